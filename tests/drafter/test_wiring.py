"""Orderings, views, and the slots that a config selects."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from drafter.checkpoint.dialects import read_config
from drafter.errors import WiringError
from drafter.files.stored import Stamp, StoredTensor
from drafter.sample.claims import parse_slots
from drafter.sample.sample import Slot
from drafter.wiring import (
    Wiring,
    all_orderings,
    check_ordering,
    configured_ordering,
    name,
    parse_ordering,
    promising_orderings,
)
from tests import tiny
from tests.drafter.helpers import refused


def slots(labels: str | None, count: int = 4) -> list[Slot]:
    claims = parse_slots(labels) if labels else [None] * count
    tensor = StoredTensor("x", Path("x"), "F32", (5, 2), (2, 1), 0, Stamp(40, 0, 0))
    return [Slot(i, tensor, claim) for i, claim in enumerate(claims)]


# --- orderings


@pytest.mark.parametrize(("slots", "inputs", "count"), [(4, 3, 24), (3, 3, 6), (1, 1, 1), (5, 1, 5), (7, 6, 5040)])
def test_every_ordered_choice_once(slots: int, inputs: int, count: int) -> None:
    found = all_orderings(slots, inputs)
    assert len(found) == len(set(found)) == count and found == sorted(found)
    assert all(len(set(o)) == inputs and max(o) < slots for o in found)


def test_too_few_slots_and_too_many_orderings_are_refused() -> None:
    with refused(WiringError, "2 recorded states", "at least the 3"):
        all_orderings(2, 3)
    for slots, inputs in ((64, 3), (8, 7), (64, 64)):
        with refused(WiringError, "--ordering", "5040"):
            all_orderings(slots, inputs)


def test_of_few_slots_all_orderings_are_promising() -> None:
    assert promising_orderings(4, 3, [(0, 1, 2)]) == (all_orderings(4, 3), "")
    assert promising_orderings(9, 3, []) == (all_orderings(9, 3), "")
    with refused(WiringError, "2 recorded states"):
        promising_orderings(2, 3, [])


@pytest.mark.parametrize(("slots", "near"), [(61, [(3, 31, 59)]), (33, [(2, 16, 29), (0, 2, 16)]), (62, []), (10, [])])
def test_of_many_slots_those_near_what_is_known(slots: int, near: list[tuple[int, ...]]) -> None:
    found, note = promising_orderings(slots, 3, near)
    assert len(found) == len(set(found)) and all(len(set(o)) == 3 and 0 <= min(o) <= max(o) < slots for o in found)
    assert f"{len(found)} of {slots * (slots - 1) * (slots - 2)} orderings" in note
    for centre in near:
        wanted = {*permutations(centre)}  # the same slots in another order
        wanted |= {(centre[0], s, centre[2]) for s in range(slots) if s not in centre}  # one other layer
        wanted |= {tuple(s + move for s in centre) for move in (-1, 1)}  # ids read one too high or low
        assert {o for o in wanted if max(o) < slots and min(o) >= 0} <= set(found)
    if not near:
        assert len(found) > 2 * slots


def test_orderings_as_text() -> None:
    assert parse_ordering("0,1,2") == (0, 1, 2) == parse_ordering(" 0 , 1,002")
    assert name((2, 0, 11)) == "2,0,11" and parse_ordering(name((2, 0, 11))) == (2, 0, 11)


@pytest.mark.parametrize(
    "text", ["", "0,,1", "0,1,", "a", "0;1", "-1,0,1", "0.5", "²,1,2", "9" * 5000, "0,1\x1b[1m", "all"]
)
def test_text_that_is_no_ordering_is_refused(text: str) -> None:
    with refused(WiringError, "the ordering"):
        parse_ordering(text)


def test_an_ordering_has_to_fit() -> None:
    assert check_ordering((3, 0, 1), 4, 3) == (3, 0, 1)
    for ordering, word in {
        (0, 1): "2 slots",
        (0, 1, 2, 3): "4 slots",
        (0, 1, 4): "slot 4",
        (0, -1, 2): "slot -1",
    }.items():
        with refused(WiringError, word):
            check_ordering(ordering, 4, 3)


# --- the configured ordering


@pytest.mark.parametrize(
    ("depths", "labels", "inputs", "ordering", "why"),
    [
        ((2, 4, 6), "embed,2,4,6", 3, (1, 2, 3), "depths [2, 4, 6]"),
        ((0, 2, 4), "embed,2,4,6", 3, (0, 1, 2), "depths"),
        ((6, 2, 0), "embed,2,4,6", 3, (3, 1, 0), "depths"),
        ((2, 4, 6), "6,4,2,?", 3, (2, 1, 0), "depths"),
        ((2, 2, 4), "embed,2,4,6", 3, (1, 1, 2), "depths"),
        ((2, 4, 6), "2,2,4,6", 3, (0, 2, 3), "depths"),
        ((2, 4, 8), "embed,2,4,6", 3, None, "depth 8 is not among"),
        ((2, 4, 6), "embed,2,4,last", 3, None, "depth 6 is not among"),
        ((2, 4), "embed,2,4,6", 3, None, "names 2 layers, fc takes 3"),
        ((2, 4, 6), "?,?,?,last", 3, None, "--slots"),
        ((2, 4, 6), None, 3, None, "--slots"),
        (None, "embed,2,4,6", 3, None, "no layer ids"),
    ],
)
def test_the_configured_ordering(
    depths: tuple[int, ...] | None, labels: str | None, inputs: int, ordering: tuple[int, ...] | None, why: str
) -> None:
    found, reason = configured_ordering(depths, slots(labels), inputs)
    assert found == ordering and why in reason


def test_the_story_of_the_wrong_slots() -> None:
    """One sample, the trained ids in both conventions: SGLang's config selects other slots than training did."""
    weights = tiny.tiny_weights()
    flat = read_config(tiny.flat_config(weights), "config.json")
    nested = read_config(tiny.nested_config(weights), "config_speculators.json")
    recorded = slots("embed,2,4,6")
    assert configured_ordering(flat.aux_depths, recorded, 3)[0] == (1, 2, 3)
    assert configured_ordering(nested.aux_depths, recorded, 3)[0] == (0, 1, 2)


# --- views


@pytest.mark.parametrize("switches", [(False, False), (True, False), (False, True)])
def test_the_trained_view_is_the_configs(switches: tuple[bool, bool]) -> None:
    options = dict(zip(("norm_before_residual", "norm_output"), switches, strict=True))
    config = read_config(tiny.nested_config(tiny.tiny_weights(), **options), "config.json")
    assert Wiring.trained(config) == Wiring("trained", *switches, rope=config.rope, window="still")
