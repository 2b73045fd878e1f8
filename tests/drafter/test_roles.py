"""The assistant's turns by the marks of each chat template, against chats whose author is known token by token."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.sample.text.roles import TEMPLATES, assistant_spans
from drafter.sample.text.tokens import open_tokenizer
from tests import tiny
from tests.drafter.byte_chat import Chat, chat, write_table

Q, A = "What is <|im_end|> [0]?", "Bytes — naïve, 😀\n\nand lines"
# name -> (marks, what the template writes; «» around what the assistant wrote)
CHATS: dict[str, tuple[list[str], str]] = {
    "ChatML": (
        ["<|im_start|>", "<|im_end|>"],
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n{Q}<|im_end|>\n"
        "<|im_start|>assistant\n«{A}»<|im_end|>\n<|im_start|>user\nassistant\n<|im_end|>\n"
        "<|im_start|>assistant\n«\n{A}»<|im_end|>",
    ),
    "Llama 3": (
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{Q}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n«{A}»<|eot_id|>"
        "<|start_header_id|>ipython<|end_header_id|>\n\n42<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n«{A}»<|eot_id|>",
    ),
    "Llama 4": (
        ["<|header_start|>", "<|header_end|>", "<|eot|>"],
        "<|header_start|>user<|header_end|>\n\n{Q}<|eot|><|header_start|>assistant<|header_end|>\n\n«{A}»<|eot|>",
    ),
    "Kimi": (
        ["<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
        "<|im_user|>user<|im_middle|>{Q}<|im_end|><|im_assistant|>assistant<|im_middle|>«{A}»<|im_end|>"
        "<|im_user|>user<|im_middle|>{Q}<|im_end|><|im_assistant|>assistant<|im_middle|>«{A}»<|im_end|>",
    ),
    "DeepSeek": (
        ["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"],
        "<｜User｜>{Q}<｜Assistant｜>«{A}»<｜end▁of▁sentence｜><｜User｜>{Q}<｜Assistant｜>«{A}»<｜end▁of▁sentence｜>",
    ),
    "Gemma": (
        ["<bos>", "<start_of_turn>", "<end_of_turn>"],
        "<bos><start_of_turn>user\n{Q}<end_of_turn>\n<start_of_turn>model\n«{A}»<end_of_turn>\n",
    ),
    "Harmony": (
        ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"],
        "<|start|>user<|message|>{Q}<|end|><|start|>assistant<|channel|>analysis<|message|>«Hm.»<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>«1»<|call|>"
        "<|start|>assistant<|channel|>final<|message|>«{A}»<|return|>",
    ),
    "Phi": (
        ["<|user|>", "<|assistant|>", "<|end|>"],
        "<|user|>\n{Q}<|end|>\n<|assistant|>\n«{A}»<|end|>\n",
    ),
    "GLM": (
        ["<|user|>", "<|assistant|>", "<|observation|>"],
        "<|user|>\n{Q}<|assistant|>«\n{A}»<|observation|>\n42<|assistant|>«{A}»",
    ),
    # [INST] is plain text in the first versions, and one token in the later ones
    "Mistral": (["<s>", "</s>"], "<s>[INST] {Q} [/INST]« {A}»</s>[INST] and? [/INST]«{A}»</s>"),
}
WITH_INST = (["<s>", "</s>", "[INST]", "[/INST]"], CHATS["Mistral"][1])


def made(name: str, folder: Path) -> Chat:
    marks, text = CHATS[name]
    return chat(folder, text, marks, Q=Q, A=A)


def test_each_template_has_a_chat() -> None:
    assert set(CHATS) == {template.name for template in TEMPLATES}


@pytest.mark.parametrize("name", CHATS)
def test_answers_are_found_token_by_token(tmp_path: Path, name: str) -> None:
    one = made(name, tmp_path)
    assert assistant_spans(one.ids, one.tokens) == (one.spans, name)
    assert sum(stop - start for start, stop in one.spans) == sum(one.answers) > 0


@pytest.mark.parametrize("name", CHATS)
def test_a_recording_that_is_cut_anywhere(tmp_path: Path, name: str) -> None:
    """What is left of an answer counts; a header that is cut is no answer."""
    one = made(name, tmp_path)
    for length in range(1, len(one.ids)):
        found = assistant_spans(one.ids[:length], one.tokens)
        assert found is not None or one.spans[0][0] >= length
        if found is not None:
            counted = [0] * length
            for start, stop in found[0]:
                counted[start:stop] = [1] * (stop - start)
            wrong = [i for i in range(length) if counted[i] != one.answers[i]]
            # what begins like a line break of the header, or like [INST], cannot be told before it is whole
            assert all(i >= length - len("[INST]") for i in wrong), (length, wrong)


def test_marks_as_plain_text_are_none(tmp_path: Path) -> None:
    """A user who types marks makes no turns: only the tokenizer's own tokens are marks."""
    marks, text = CHATS["ChatML"]
    tokens = open_tokenizer(write_table(tmp_path, marks))
    assert assistant_spans(list(text.encode()), tokens) is None
    typed = chat(tmp_path, "<|im_start|>user\n{typed}<|im_end|>", marks, typed=text + WITH_INST[1])
    assert assistant_spans(typed.ids, typed.tokens) == (typed.spans, "ChatML") == ([], "ChatML")


def test_a_token_that_is_half_header_half_answer_counts(tmp_path: Path) -> None:
    marks = ["<|im_start|>", "<|im_end|>"]
    tokens = open_tokenizer(write_table(tmp_path, marks, {b"\n\n": 256, b"assistant": 257}))
    assert assistant_spans([300, 257, 256, 104, 105, 301], tokens) == ([(2, 5)], "ChatML")
    assert assistant_spans([300, 257, 10, 104, 105, 301], tokens) == ([(3, 5)], "ChatML")


def test_an_empty_answer_has_no_span(tmp_path: Path) -> None:
    turn = "<|im_start|>assistant\n«%s»<|im_end|>\n"
    one = chat(tmp_path, turn % "" + turn % "x", CHATS["ChatML"][0])
    assert assistant_spans(one.ids, one.tokens) == (one.spans, "ChatML")
    assert len(one.spans) == 1


def test_marks_of_one_token_where_others_write_text(tmp_path: Path) -> None:
    one = chat(tmp_path, WITH_INST[1], WITH_INST[0], Q=Q, A=A)
    assert assistant_spans(one.ids, one.tokens) == (one.spans, "Mistral")


def test_phi_4_closes_its_header_with_a_mark(tmp_path: Path) -> None:
    marks = ["<|im_start|>", "<|im_sep|>", "<|im_end|>"]
    one = chat(tmp_path, "<|im_start|>assistant<|im_sep|>«{A}»<|im_end|>", marks, A=A)
    assert assistant_spans(one.ids, one.tokens) == (one.spans, "ChatML")


def test_ids_without_text_keep_their_place(tmp_path: Path) -> None:
    one = made("ChatML", tmp_path)
    start, _ = one.spans[0]
    ids = [*one.ids[: start + 2], -1, 99_999, *one.ids[start + 4 :]]
    assert assistant_spans(ids, one.tokens) == (one.spans, "ChatML")
    assert assistant_spans([-1, 5_000, -(2**63)], one.tokens) is None
    ids = [*one.ids[:start], -1, *one.ids[start + 1 :]]  # the first token of the answer
    assert assistant_spans(ids, one.tokens) == (one.spans, "ChatML")


def test_text_without_marks_has_no_roles(tmp_path: Path) -> None:
    words = tiny.write_tokenizer(tmp_path / "tokenizer.json")
    assert assistant_spans([1, 5, 6, 2], open_tokenizer(words)) is None
