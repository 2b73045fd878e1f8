"""The loss mask that is asked for, what is said of it, and the facts about any mask, against chats made here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter.errors import SampleError, WiringError
from drafter.options import Options
from drafter.sample.open import open_sample
from drafter.sample.sample import Sample
from drafter.sample.text.supervised import choose_mask, mask_facts, parse_supervised
from tests import tiny
from tests.drafter.byte_chat import Chat, chat, write_table
from tests.drafter.helpers import refused
from tests.tiny_world import tiny_world

MARKS = ["<|im_start|>", "<|im_end|>"]
TEXT = (
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>hm</think>Yes»<|im_end|>\n"
    "<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n«No»<|im_end|>\n"
)


@pytest.fixture
def talk(tmp_path: Path) -> Chat:
    return chat(tmp_path / "tokenizer", TEXT, MARKS)


def recorded(folder: Path, ids: list[int], mask: list[int] | None) -> Sample:
    """A v1 file of these ids and this mask, opened."""
    record: dict[str, Any] = {"input_ids": torch.tensor(ids), "hidden_states": [torch.ones(len(ids), 8)]}
    if mask is not None:
        record["loss_mask"] = torch.tensor(mask)
    torch.save(record, folder / "data_0.pt")
    return open_sample(folder / "data_0.pt")


def mask_of(sample: Sample) -> list[int]:
    assert sample.mask is not None and sample.mask.dtype == torch.bool
    return sample.mask.int().tolist()


# --- what is asked for


def test_the_recorded_mask_is_left_alone(tmp_path: Path, talk: Chat) -> None:
    for mask in (talk.answers, None):
        sample = recorded(tmp_path, talk.ids, mask)
        assert choose_mask(sample, "recorded", talk.tokens) is sample


def test_all_tokens(tmp_path: Path, talk: Chat) -> None:
    count, length = sum(talk.answers), len(talk.ids)
    sample = choose_mask(recorded(tmp_path, talk.ids, talk.answers), "all", None)
    assert mask_of(sample) == [1] * length
    said = f"all: {length} of {length} tokens supervised (--supervised all); recorded {count}; {length - count} differ"
    assert sample.warnings == (f"{said}, from token 0",)


@pytest.mark.parametrize(
    ("how", "spans"),
    [
        ("3:7", [(3, 7)]),
        ("3:7,9:", [(3, 7), (9, None)]),
        (":4, 2:6", [(0, 6)]),
        (":", [(0, None)]),
        ("5:999", [(5, None)]),
    ],
)
def test_spans_of_tokens(tmp_path: Path, talk: Chat, how: str, spans: list[tuple[int, int | None]]) -> None:
    wanted = [0] * len(talk.ids)
    for start, stop in spans:
        wanted[start:stop] = [1] * len(wanted[start:stop])
    sample = choose_mask(recorded(tmp_path, talk.ids, talk.answers), how, None)
    assert mask_of(sample) == wanted
    differing = [i for i, (one, other) in enumerate(zip(wanted, talk.answers, strict=True)) if one != other]
    assert f"spans: {sum(wanted)} of {len(wanted)}" in sample.warnings[-1]
    assert f"{len(differing)} differ, from token {differing[0]}" in sample.warnings[-1]


@pytest.mark.parametrize(
    "how",
    ["", "none", "Roles", "3", "7:3", "3:3", "-1:4", "3:7,", "1:2:3", "a:b", "²:5", "9" * 10 + ":", "0x1:4", "\x1b:"],
)
def test_what_cannot_be_meant_is_refused_before_any_file(tmp_path: Path, how: str) -> None:
    with refused(WiringError, "--supervised"):
        parse_supervised(how)
    with refused(WiringError, "--supervised"):
        Options(tmp_path, supervised=how)


def test_spans_past_the_end_are_refused(tmp_path: Path, talk: Chat) -> None:
    with refused(SampleError, "from token 500", f"{len(talk.ids)} tokens", "data_0.pt"):
        choose_mask(recorded(tmp_path, talk.ids, talk.answers), "0:4,500:", None)


def test_roles(tmp_path: Path, talk: Chat) -> None:
    late = [0, *talk.answers[:-1]]
    for mask, said in ((talk.answers, "the same tokens"), (late, "4 differ, from token"), (None, "nothing recorded")):
        sample = choose_mask(recorded(tmp_path, talk.ids, mask), "roles", talk.tokens)
        assert mask_of(sample) == talk.answers
        assert f"roles (ChatML): {sum(talk.answers)} of {len(talk.ids)}" in sample.warnings[-1]
        assert said in sample.warnings[-1]


def test_one_token_of_difference_is_named(tmp_path: Path, talk: Chat) -> None:
    mask = list(talk.answers)
    mask[talk.spans[1][1]] = 1
    sample = choose_mask(recorded(tmp_path, talk.ids, mask), "roles", talk.tokens)
    assert sample.warnings[-1].endswith(f"recorded {sum(mask)}; 1 differs, at token {talk.spans[1][1]}")


def test_it_is_no_longer_said_that_all_rows_count(tmp_path: Path, talk: Chat) -> None:
    sample = replace(
        recorded(tmp_path, talk.ids, None), warnings=("no loss mask in the sample: all rows count", "other")
    )
    assert choose_mask(sample, "roles", talk.tokens).warnings[:-1] == ("other",)


def test_roles_that_cannot_be_told(tmp_path: Path, talk: Chat) -> None:
    sample = recorded(tmp_path, talk.ids, talk.answers)
    with refused(SampleError, "a tokenizer", "--tokenizer"):
        choose_mask(sample, "roles", None)
    plain = recorded(tmp_path, list(b"just text, no chat"), None)
    with refused(SampleError, "chat template", "--supervised 40:212"):
        choose_mask(plain, "roles", talk.tokens)


def test_a_session_scores_what_is_asked_for(tmp_path: Path) -> None:
    world = tiny_world(tmp_path, count=2)
    T = tiny.TOKENS
    one = world.session(supervised="4:9")
    assert mask_of(one.sample) == [0] * 4 + [1] * 5 + [0] * (T - 9)
    assert sum(one.counted()) == 5
    # the mask is of the rows that are left
    assert sum(world.session(supervised="4:", rows=6).sample.supervised.tolist()) == 4
    with refused(SampleError, "chat template"):
        world.session(supervised="roles")
    marks = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "assistant\n"]
    ids = [3, 5, 40, 41, 42, 4] + [7] * (T - 6)
    words = marks + [f"w{i}" for i in range(len(marks), tiny.SIZES.vocab)]
    tiny.write_tokenizer(tmp_path / "samples/tokenizer.json", tokens=words)
    tiny.write_v1_sample(world.samples[0], replace(world.texts[0], ids=ids))
    talk = world.session(supervised="roles")
    assert mask_of(talk.sample) == [0, 0, 1, 1, 1, 0] + [0] * (T - 6)
    assert talk.mask_facts()[-1] == "roles (ChatML): the same 3 tokens"
    with refused(SampleError, "chat template"):
        talk.open_sample(world.samples[1])


# --- facts


def fact(folder: Path, talk: Chat, mask: list[int] | None, about: str) -> str:
    (found,) = [line for line in mask_facts(recorded(folder, talk.ids, mask), talk.tokens) if line.startswith(about)]
    return found


def test_counts_and_edges(tmp_path: Path, talk: Chat) -> None:
    facts = mask_facts(recorded(tmp_path, talk.ids, talk.answers), talk.tokens)
    first, last = talk.spans[0][0], talk.spans[1][1] - 1
    assert facts[0] == f"{sum(talk.answers)} of {len(talk.ids)} tokens supervised, in 2 spans"
    assert facts[1] == f'first supervised token {first} "<", last {last} "o"'
    assert mask_facts(recorded(tmp_path, talk.ids, talk.answers), None) == [
        facts[0],
        f"first supervised token {first} <id 60>, last {last} <id 111>",
    ]


def test_no_mask_and_an_empty_mask(tmp_path: Path, talk: Chat) -> None:
    length = len(talk.ids)
    assert mask_facts(recorded(tmp_path, talk.ids, None), None) == [f"no loss mask: all {length} tokens count"]
    (said,) = mask_facts(recorded(tmp_path, talk.ids, [0] * length), None)
    assert said.startswith(f"0 of {length} tokens supervised")
    assert "nothing is supervised" in fact(tmp_path, talk, [0] * length, "roles")


def test_thinking(tmp_path: Path, talk: Chat) -> None:
    count = sum(talk.answers)
    assert fact(tmp_path, talk, talk.answers, "thinking") == (
        f"thinking: 2 of 2 tokens between think tags supervised, {2 / count:.0%} of the supervised"
    )
    start = talk.spans[0][0]
    mask = list(talk.answers)
    mask[start : start + len("<think>hm</think>")] = [0] * len("<think>hm</think>")
    assert fact(tmp_path, talk, mask, "thinking").startswith("thinking: 0 of 2 ")
    cut = start + len("<think>h")
    facts = mask_facts(recorded(tmp_path, talk.ids[:cut], talk.answers[:cut]), talk.tokens)
    assert any(line.startswith("thinking: 1 of 1 ") for line in facts)
    silent = mask_facts(recorded(tmp_path, list(b"no tags </think>"), None), talk.tokens)
    assert not any("thinking" in line for line in silent)


def reasons() -> dict[str, Any]:
    def ends(chat: Chat) -> list[int]:
        return [int(one or i in {stop for _, stop in chat.spans}) for i, one in enumerate(chat.answers)]

    def last(chat: Chat) -> list[int]:
        return [int(i in range(chat.spans[-1][0], chat.spans[-1][1] + 1)) for i in range(len(chat.ids))]

    return {
        "the same": lambda c: c.answers,
        "end-of-turn tokens": ends,
        "first token of each answer": lambda c: [
            int(one and i not in {start for start, _ in c.spans}) for i, one in enumerate(c.answers)
        ],
        "one token late": lambda c: [0, *c.answers[:-1]],
        "token late": lambda c: [0, *ends(c)[:-1]],
        "one token early": lambda c: [*c.answers[1:], 0],
        "token early": lambda c: [*ends(c)[1:], 0],
        "every token": lambda c: [1] * len(c.ids),
        "only the last answer": last,
    }


@pytest.mark.parametrize("words", reasons())
def test_known_reasons_for_another_mask(tmp_path: Path, talk: Chat, words: str) -> None:
    mask = reasons()[words](talk)
    said = fact(tmp_path, talk, mask, "roles")
    assert words in said and said.startswith("roles (ChatML): ")
    assert sum(word in said for word in ("late", "early", "end-of-turn", "every", "only", "first token", "same")) == 1
    differing = sum(one != other for one, other in zip(mask, talk.answers, strict=True))
    assert differing == 0 or f"{differing} differ, from token " in said


def test_a_difference_of_no_known_kind_is_counted(tmp_path: Path, talk: Chat) -> None:
    mask = list(talk.answers)
    mask[0] = mask[3] = 1
    said = fact(tmp_path, talk, mask, "roles")
    assert said.endswith(f"{sum(talk.answers)} tokens, the mask {sum(mask)}; 2 differ, from token 0")


def test_a_chat_without_answers(tmp_path: Path) -> None:
    one = chat(tmp_path / "t", "<|im_start|>user\nHi<|im_end|>", MARKS)
    assert fact(tmp_path, one, None, "roles") == "roles (ChatML): no answer of the assistant in the text"


def test_a_broken_table_costs_no_facts(tmp_path: Path) -> None:
    from drafter.sample.text.tokens import open_tokenizer

    tokens = open_tokenizer(write_table(tmp_path / "t", ["<|im_start|>"]))
    facts = mask_facts(recorded(tmp_path, [-1, 2**40, 300, 5], [0, 1, 1, 0]), tokens)
    assert facts[:2] == [
        "2 of 4 tokens supervised, in 1 span",
        f"first supervised token 1 <id {2**40}>, last 2 <|im_start|>",
    ]
