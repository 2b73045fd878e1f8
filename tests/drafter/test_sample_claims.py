"""What slots are said to be: by the user, by a file beside the sample, by the training's own rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter.errors import WiringError
from drafter.sample.claims import claim_slots, parse_slots
from drafter.sample.open import open_sample
from drafter.sample.sample import Claim, Sample
from tests import tiny
from tests.drafter.helpers import refused

WEIGHTS = tiny.tiny_weights()


def v1(tmp_path: Path, data_config: Any = None) -> Sample:
    if data_config is not None:
        (tmp_path / "data_config.json").write_text(json.dumps(data_config))
    return open_sample(tiny.write_v1_sample(tmp_path / "data_0.pt", tiny.tiny_sample(0, WEIGHTS)))


def arrow(tmp_path: Path) -> Sample:
    folder = tiny.write_arrow_samples(tmp_path, {0: tiny.tiny_sample(0, WEIGHTS, depths=tiny.ARROW_DEPTHS)})
    return open_sample(folder / "hidden_states/hs_0.safetensors")


def depths(sample: Sample) -> list[int | None]:
    return [slot.claim.depth if slot.claim else None for slot in sample.slots]


def lasts(sample: Sample) -> list[bool]:
    return [slot.claim is not None and slot.claim.is_last for slot in sample.slots]


# --- --slots


def test_labels() -> None:
    assert parse_slots("embed, 3,031,last,?,residual") == [
        Claim("embed", "--slots", 0),
        Claim("3", "--slots", 3),
        Claim("31", "--slots", 31),
        Claim("last", "--slots", is_last=True),
        Claim("?", "--slots"),
        Claim("residual", "--slots"),
    ]
    assert parse_slots("0") == [Claim("embed", "--slots", 0)]


@pytest.mark.parametrize("labels", ["", "1,,2", ",", "1,-2", "1.5", "a b", "²", "9" * 5000, "1;2", "a\x1b[1m"])
def test_labels_that_are_none_are_refused(labels: str) -> None:
    with refused(WiringError, "--slots"):
        parse_slots(labels)


def test_the_users_word_comes_first(tmp_path: Path) -> None:
    sample = v1(tmp_path, {"hidden_states": {"layer_ids": [2, 4, 6, 7]}})
    named = claim_slots(sample, "embed,2,?,8", [1, 3, 5], 8)
    assert depths(named) == [0, 2, None, 8] and lasts(named) == [False, False, False, True]
    assert {slot.claim.source for slot in named.slots if slot.claim} == {"--slots"}
    assert lasts(claim_slots(sample, "embed,2,4,last", None, None)) == [False, False, False, True]
    for labels in ("1,2,3", "1,2,3,4,5"):
        with refused(WiringError, "expected 4"):
            claim_slots(sample, labels, None, None)


# --- data_config.json


def test_the_file_beside_the_samples_counts_layers(tmp_path: Path) -> None:
    named = claim_slots(v1(tmp_path, {"hidden_states": {"layer_ids": [-1, 1, 3, 7]}}), None, [9, 9, 9], 8)
    assert depths(named) == [0, 2, 4, 8] and lasts(named) == [False, False, False, True]
    assert {slot.claim.source for slot in named.slots if slot.claim} == {"data_config.json"}
    assert named.slots[0].claim is not None and named.slots[0].claim.label == "embed"


@pytest.mark.parametrize(
    "content",
    [{}, [], {"hidden_states": [1]}, {"hidden_states": {"layer_ids": "1,2"}}]
    + [{"hidden_states": {"layer_ids": ids}} for ids in ([1, 2, 3], [1, 2, 3, "4"], [1, 2, 3, True], None)],
)
def test_a_file_that_does_not_fit_says_nothing(tmp_path: Path, content: Any) -> None:
    named = claim_slots(v1(tmp_path, content), None, [0, 2, 4], 8)
    assert depths(named)[:3] == [0, 2, 4]


# --- the trainer's rule


def test_the_trainer_records_its_layers_and_then_the_last(tmp_path: Path) -> None:
    named = claim_slots(arrow(tmp_path), None, [0, 2, 4], 8)
    assert depths(named) == [0, 2, 4, None] and lasts(named) == [False, False, False, True]
    assert [slot.claim.label for slot in named.slots if slot.claim] == ["embed", "2", "4", "last"]


def test_a_v1_list_need_not_end_with_the_last(tmp_path: Path) -> None:
    named = claim_slots(v1(tmp_path), None, [0, 2, 4], 8)
    assert depths(named) == [0, 2, 4, None] and lasts(named) == [False] * 4


def test_as_many_slots_as_layers(tmp_path: Path) -> None:
    named = claim_slots(arrow(tmp_path), None, [0, 2, 4, 8], 8)
    assert depths(named) == [0, 2, 4, 8] and lasts(named) == [False, False, False, True]


@pytest.mark.parametrize("trained", [None, [0, 2], [0, 2, 4, 6, 8]])
def test_nothing_is_claimed_where_nothing_fits(tmp_path: Path, trained: list[int] | None) -> None:
    named = claim_slots(arrow(tmp_path), None, trained, 8)
    assert [slot.claim for slot in named.slots] == [None] * 4
