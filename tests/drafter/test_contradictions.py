"""What slots are said to be against what their data shows: each fault is named, and no sound sample is accused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from drafter.checkpoint.target import open_target
from drafter.sample.probes.contradictions import BAD, WARN, contradictions, contradictions_json
from drafter.sample.probes.probe import probe_slots
from eagle3_tui import text_report
from tests import tiny
from tests.drafter.probe_worlds import (
    TABLE,
    TOKENS,
    WEIGHTS,
    final_norm,
    predicting,
    probed,
    shift,
)
from tests.tiny_world import tiny_world

TEXT = predicting()
T = TOKENS


def normed(slot: int) -> Callable[[Tensor], object]:
    return lambda slots: slots[:, slot].copy_(final_norm(slots[:, slot]))


def nothing(slots: Tensor) -> None:
    pass


# --- sound samples


@pytest.mark.parametrize("claims", ["embed,2,4,last", "embed,2,4,8", "embed,2,4,6", "?,?,?,?", "embed,?,?,?", None])
@pytest.mark.parametrize("seed", range(4))
def test_sound_samples_contradict_nothing(tmp_path: Path, claims: str | None, seed: int) -> None:
    for table in (TABLE, None):
        assert probed(tmp_path, claims=claims, text=predicting(seed), table=table).found == []
    assert probed(tmp_path, claims=claims, text=predicting(seed), with_target=False).found == []


@pytest.mark.parametrize("right", [1.0, 0.5, 0.35])
def test_sampled_text_lowers_agreement_and_is_no_fault(tmp_path: Path, right: float) -> None:
    assert probed(tmp_path, text=predicting(right=right)).found == []


@pytest.mark.parametrize("norm", ["", "pre"])
def test_claims_of_the_norm_that_hold(tmp_path: Path, norm: str) -> None:
    assert probed(tmp_path, norm=norm).found == []
    assert probed(tmp_path, normed(3), norm="post").found == []
    assert probed(tmp_path, normed(3), norm="").found == []


def test_a_short_text_is_not_judged_by_shares(tmp_path: Path) -> None:
    """Random states name nothing; 16 rows are too few to say that this is no chance."""
    sample = tiny.tiny_sample(0, WEIGHTS, depths=tiny.ARROW_DEPTHS)
    assert probed(tmp_path, text=sample).found == []


# --- faults


def other_sample(slots: Tensor) -> None:
    slots[:] = predicting(9).slots


def other_table(slots: Tensor) -> None:
    slots[:, 0] = TABLE.roll(1, 0)[TEXT.ids].bfloat16()


def slipped(slots: Tensor) -> None:
    slots[80:] = predicting(9).slots[80:]


def images(slots: Tensor) -> None:
    slots[20:40, 0] = torch.randn(20, 32, generator=torch.Generator().manual_seed(3)).bfloat16()


def zero_from(row: int, *slots: int) -> Callable[[Tensor], object]:
    def change(states: Tensor) -> None:
        states[row:, list(slots)] = 0

    return change


def bad_numbers(slots: Tensor) -> None:
    slots[30, 1, 4], slots[12:14, 1, 5] = float("nan"), float("inf")


def copied(slots: Tensor) -> None:
    slots[:, 2] = slots[:, 1]


def deeper_first(slots: Tensor) -> None:
    slots[:] = slots[:, [1, 0, 2, 3]]


def last_before(slots: Tensor) -> None:
    slots[:] = slots[:, [0, 1, 3, 2]]


# change, claims, the last's norm, (slot, severity), words of the sentence
FAULTS: dict[str, tuple[Callable[[Tensor], object], str, str, tuple[int | None, str], list[str]]] = {
    "embed is deeper": (deeper_first, "embed,2,4,last", "", (0, BAD), ["said to be embed", "0 of 120 rows equal"]),
    "depth is embed": (nothing, "3,16,28,last", "", (0, BAD), ["said to be depth 3", "120 of 120", "of their token"]),
    "last is embed": (nothing, "last,2,4,6", "", (0, BAD), ["said to be last", "120 of 120", "of their token"]),
    "late": (shift(1), "embed,2,4,last", "", (0, BAD), ["119 of 119", "the previous token", "shifted by one row"]),
    "early": (shift(-1), "embed,2,4,last", "", (0, BAD), ["119 of 119", "the next token", "shifted by one row"]),
    "last late": (shift(1), "embed,2,4,last", "", (3, BAD), ["name x[t] in", "one row too late"]),
    "last early": (shift(-1), "embed,2,4,last", "", (3, BAD), ["name x[t + 2] in", "one row too early"]),
    "swapped": (other_sample, "embed,2,4,last", "", (0, BAD), ["of another token", "another sample"]),
    "last swapped": (other_sample, "embed,2,4,last", "", (3, BAD), ["most frequent token", "other tokens"]),
    "slipped": (slipped, "embed,2,4,last", "", (0, BAD), ["row 80 is the first that does not", "another sample"]),
    "another model": (other_table, "embed,2,4,last", "", (0, BAD), ["0 of 120", "embedding of another model"]),
    "images": (images, "embed,2,4,last", "", (0, WARN), ["100 of 120", "row 20 is the first", "images"]),
    "order": (last_before, "embed,2,4,last", "", (3, BAD), ["slot 2, said to be shallower, names x[t + 1]"]),
    "post is pre": (nothing, "embed,2,4,last", "post", (3, BAD), ["after the final norm", "0 of 120"]),
    "pre is post": (normed(3), "embed,2,4,last", "pre", (3, BAD), ["before the final norm", "120 of 120"]),
    "aux is post": (
        normed(1),
        "embed,2,4,last",
        "",
        (1, BAD),
        ["said to be depth 2", "passed the target's final norm"],
    ),
    "copied": (copied, "embed,2,4,last", "", (2, BAD), ["same numbers as slot 1", "120 rows"]),
    "zeros": (zero_from(0, 1), "embed,2,4,last", "", (1, BAD), ["slot 1 is all zeros"]),
    "zero tail": (zero_from(100, 2), "embed,2,4,last", "", (2, BAD), ["slot 2 is zero from row 100", "20 of 120"]),
    "zero tails": (zero_from(100, 0, 1, 2, 3), "embed,2,4,last", "", (None, BAD), ["all slots", "from row 100"]),
    "bad numbers": (bad_numbers, "embed,2,4,last", "", (1, BAD), ["3 rows", "1 with NaN, 2 with Inf", "row 12 (Inf)"]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(tmp_path: Path, name: str) -> None:
    change, claims, norm, (slot, severity), words = FAULTS[name]
    found = probed(tmp_path, change, claims, norm).found
    fitting = [one for one in found if one.slot == slot and all(word in one.text for word in words)]
    assert len(fitting) == 1 and fitting[0].severity == severity, [one.text for one in found]
    assert all(one.text.isprintable() and len(one.text) < 250 for one in found)


COUNTS = {"zero tail": 1, "zero tails": 1, "zeros": 1, "copied": 1, "aux is post": 1, "pre is post": 1, "images": 1}
COUNTS |= {"another model": 1, "bad numbers": 1, "late": 2, "early": 2, "swapped": 2}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_one_fault_is_not_named_again_and_again(tmp_path: Path, name: str, count: int) -> None:
    change, claims, norm, _, _ = FAULTS[name]
    assert len(probed(tmp_path, change, claims, norm).found) == count


def test_faults_that_need_no_table(tmp_path: Path) -> None:
    def said(change: Callable[[Tensor], object], claims: str = "embed,2,4,last") -> str:
        return probed(tmp_path, change, claims, table=None, with_target=False).said

    assert "previous token" in said(shift(1)) and "next token" in said(shift(-1))
    assert "the states of another sample" in said(other_sample)
    assert "pairs) are the embedding of their token" in said(nothing, "3,16,28,last")
    assert "pairs of equal tokens have equal rows" in said(deeper_first)
    assert said(other_table) == ""  # without the table nobody can know


def test_rows_that_are_zero_here_and_there(tmp_path: Path) -> None:
    def change(slots: Tensor) -> None:
        slots[[3, 9], 2] = 0

    (one,) = probed(tmp_path, change).found
    assert (one.slot, one.severity) == (2, WARN) and "2 of 120 rows zero, the first is 3" in one.text


def test_a_last_norm_that_falls_is_doubted_where_the_norm_is_not_known(tmp_path: Path) -> None:
    bare = open_target(tiny.write_target(tmp_path / "bare", WEIGHTS, norm=False))
    (one,) = probed(tmp_path, normed(3), norm="pre", target=bare).found
    assert (one.slot, one.severity) == (3, WARN) and "median norm falls" in one.text and "slot 2" in one.text
    assert probed(tmp_path, normed(3), norm="post", target=bare).found == []
    assert probed(tmp_path, target=bare).found == []


def test_a_slot_that_nobody_claims_to_be_anything_is_not_accused_of_its_norm(tmp_path: Path) -> None:
    assert probed(tmp_path, normed(3), claims="embed,2,4,?").found == []
    assert probed(tmp_path, normed(3), claims=None).found == []


def test_the_grave_ones_come_first(tmp_path: Path) -> None:
    def change(slots: Tensor) -> None:
        slots[[3, 9], 1] = 0
        slots[:, 2] = slots[:, 3]

    found = probed(tmp_path, change).found
    assert [one.severity for one in found] == sorted((one.severity for one in found), key=lambda s: s != BAD)
    assert {one.severity for one in found} == {BAD, WARN}
    assert contradictions_json(found)[0] == {"slot": found[0].slot, "severity": BAD, "text": found[0].text}


def test_rows_cut_off_are_judged_alone(tmp_path: Path) -> None:
    """A sample cut to its first rows is probed as if the others were not there."""
    cut = probed(tmp_path, zero_from(100, 2)).sample.cut(90)
    assert contradictions(cut, probe_slots(cut, lambda ids: TABLE[ids])) == []


# --- through a session


def test_a_session_says_it_for_the_sample_and_for_each_scored(tmp_path: Path) -> None:
    world = tiny_world(tmp_path, "flat", "v1")
    session = world.session(slots="2,4,6,embed", orderings=("0,1,2",), depth=1)
    told = session.contradictions()
    assert {one.slot for one in told} == {0, 3} and "are the embedding of their token" in told[0].text
    shown = session.show_json(session.last_found[0], session.list_samples())["sample"]
    assert shown["contradictions"] == contradictions_json(told)
    result = session.score(world.samples)
    assert [[c["slot"] for c in sample["contradictions"]] for sample in result.samples] == [[0, 3]] * 2
    assert world.session(slots="embed,2,4,6").contradictions() == []
    slots = shown["slots"]
    assert [slot["probed"] for slot in slots] == ["embed", *["not embed"] * 3]
    assert slots[0]["embed"] == {"hits": 25, "total": 25} and slots[1]["post_norm"]["hits"] == 0
    assert slots[2]["names_next"][1]["normed"] and slots[2]["facts"]
    text = text_report.show(session.show_json(session.last_found[0], session.list_samples()))
    assert "contradiction: slot 0 is said to be depth 2" in text and "L2 norm of a row, median" in text


def test_a_session_without_a_target_uses_the_drafters_head(tmp_path: Path) -> None:
    world = tiny_world(tmp_path, "nested", "arrow")
    (world.target / "model.safetensors").unlink()
    save_file({"model.embed_tokens.weight": WEIGHTS["embed_tokens.weight"]}, world.target / "model.safetensors")
    one = world.session().probe()[3]
    assert [a.source for a in one.agreements] == ["the drafter's own head"] and one.post_norm is None
