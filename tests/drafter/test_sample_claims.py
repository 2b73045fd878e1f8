"""What slots are said to be: by the user, a file beside the sample, the training's config, or the layout itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafter.errors import WiringError
from drafter.sample.claims import claim_slots, parse_slots
from drafter.sample.default_layers import default_depths
from drafter.sample.open import open_sample
from drafter.sample.sample import Claim, Sample
from tests import tiny
from tests.drafter.helpers import refused
from tests.recordings import torch_dicts as write

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
    assert parse_slots("embed, 3,031,last,?") == [
        Claim("embed", "--slots", 0),
        Claim("3", "--slots", 3),
        Claim("31", "--slots", 31),
        Claim("last", "--slots", is_last=True),
        Claim("?", "--slots"),
    ]
    assert parse_slots("0") == [Claim("embed", "--slots", 0)]
    assert parse_slots("last:pre,last:post") == [
        Claim("last", "--slots", is_last=True, norm="pre"),
        Claim("last", "--slots", is_last=True, norm="post"),
    ]


@pytest.mark.parametrize(
    "labels",
    [
        *("", "1,,2", ",", "1,-2", "1.5", "a b", "²", "9" * 5000, "1;2", "a\x1b[1m"),
        *("foo", "residual", "Embed", "last,hidden"),
        *("last:", "last:mid", "last:pre:post", ":pre", "3:pre", "embed:post", "LAST:pre"),
    ],
)
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


@pytest.mark.parametrize("writer", [v1, arrow])
def test_layers_are_recorded_in_ascending_order(tmp_path: Path, writer: Callable[[Path], Sample]) -> None:
    """Whoever asks for 4, 0, 2 gets 0, 2, 4: the recorders test for each layer whether it is in the list."""
    named = claim_slots(writer(tmp_path), None, [4, 0, 2], 8)
    assert depths(named) == [0, 2, 4, None]
    assert named.slots[0].claim is not None and "ascending" in named.slots[0].claim.source


def test_a_file_beside_the_samples_in_another_order(tmp_path: Path) -> None:
    named = claim_slots(v1(tmp_path, {"hidden_states": {"layer_ids": [7, -1, 1, 3]}}), None, None, 8)
    assert depths(named) == [0, 2, 4, 8] and lasts(named) == [False, False, False, True]
    assert named.slots[0].claim is not None and named.slots[0].claim.source.startswith("data_config.json; ")


def test_speculators_records_the_last_before_the_norm(tmp_path: Path) -> None:
    for number, found in enumerate(
        (
            claim_slots(arrow(tmp_path / "a"), None, [0, 2, 4], 8),
            claim_slots(arrow(tmp_path / "b"), None, [0, 2, 4, 8], 8),
            claim_slots(v1(made(tmp_path / "c"), {"hidden_states": {"layer_ids": [-1, 1, 3, 7]}}), None, None, 8),
        )
    ):
        assert [slot.claim.norm for slot in found.slots if slot.claim] == ["", "", "", "pre"], number


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_claims_are_made_anew(tmp_path: Path) -> None:
    sample = arrow(tmp_path)
    old = sample.with_claims([Claim("old", "somebody")] * 4)
    assert claim_slots(old, None, None, None) == claim_slots(sample, None, None, None)
    assert claim_slots(old, None, [0, 2, 4], 8).slots == claim_slots(sample, None, [0, 2, 4], 8).slots


# --- layouts and their producers' default layers


def specforge(tmp_path: Path) -> Sample:
    return open_sample(write.specforge(tmp_path).path)


def norms(sample: Sample) -> list[str | None]:
    return [slot.claim.norm if slot.claim else None for slot in sample.slots]


def assumed(sample: Sample) -> list[bool | None]:
    return [slot.claim.assumed if slot.claim else None for slot in sample.slots]


DEFAULTS: dict[str, tuple[Callable[[Path], write.Written], list[int | None], list[bool]]] = {
    "SpecForge": (write.specforge, [2, 16, 29, None], [False, False, False, True]),
    "SpecForge debug tap": (lambda p: write.specforge_debug(p)[0], [2, 16, 29, None], [False, False, False, True]),
    "AngelSlim": (lambda p: write.angelslim(p)[0], [2, 16, 29, None], [False, False, False, True]),
    "speculators v0": (write.speculators_v0, [3, 17, 30, None], [False, False, False, True]),
    "BaldEagle": (write.baldeagle, [2, 16, 29], [False, False, False]),
}


@pytest.mark.parametrize("producer", DEFAULTS)
def test_a_producers_default_layers_are_assumed(tmp_path: Path, producer: str) -> None:
    writer, expected, last = DEFAULTS[producer]
    named = claim_slots(open_sample(writer(tmp_path).path), None, None, 32)
    assert (depths(named), lasts(named)) == (expected, last)
    assert assumed(named) == [not is_last for is_last in last]
    claim = named.slots[0].claim
    assert claim is not None
    assert claim.source == f"{producer}'s default layers {named.aux_rule} with L = 32; no file says so"


def test_without_the_targets_layers_only_the_last_is_named(tmp_path: Path) -> None:
    named = claim_slots(specforge(tmp_path), None, None, None)
    assert depths(named) == [None] * 4 and lasts(named) == [False, False, False, True]
    assert norms(named) == [None, None, None, "post"]


def test_default_layers_of_another_number_are_not_assumed(tmp_path: Path) -> None:
    sample = specforge(tmp_path)
    fewer = replace(sample, slots=sample.slots[1:])
    assert depths(claim_slots(fewer, None, None, 32)) == [None] * 3
    assert depths(claim_slots(sample, None, None, 4)) == [None] * 4  # 2, 2, 1 are no three layers


@pytest.mark.parametrize("layers", [7, 8, 27, 32, 61, 80])
def test_rules_of_layers(layers: int) -> None:
    assert default_depths("2, L//2, L-3", layers) == [2, layers // 2, layers - 3]
    assert default_depths("3, L//2+1, L-2", layers) == [3, layers // 2 + 1, layers - 2]
    assert default_depths("0,L", layers) == [0, layers]
    assert default_depths("L+1", layers) is None


@pytest.mark.parametrize("rule", ["", "2,", "L//3", "x", "2 3", "-1", "L-", "__import__('os')"])
def test_other_rules_are_a_mistake_of_ours(rule: str) -> None:
    with pytest.raises(ValueError, match="not a rule"):
        default_depths(rule, 32)


def test_the_trainings_layers_come_before_a_default(tmp_path: Path) -> None:
    named = claim_slots(specforge(tmp_path), None, [1, 5, 7], 32)
    assert depths(named) == [1, 5, 7, None] and lasts(named) == [False, False, False, True]
    assert norms(named) == ["", "", "", "post"] and assumed(named) == [False] * 4
    assert named.slots[3].claim is not None and named.slots[3].claim.source == "SpecForge layout"
    assert depths(claim_slots(open_sample(write.baldeagle(tmp_path).path), None, [1, 5, 7], 32)) == [1, 5, 7]


def test_other_producers_keep_the_order_that_was_asked_for(tmp_path: Path) -> None:
    assert depths(claim_slots(specforge(tmp_path), None, [7, 1, 5], 32)) == [7, 1, 5, None]


def test_as_many_layers_as_slots_where_the_layout_ends_with_the_last(tmp_path: Path) -> None:
    sample = specforge(tmp_path)
    named = claim_slots(sample, None, [1, 5, 7, 32], 32)
    assert depths(named) == [1, 5, 7, 32] and lasts(named)[3] and norms(named)[3] == "post"
    # four layers feed that drafter, none of them the last: the file has three and the last
    named = claim_slots(sample, None, [1, 5, 7, 9], 32)
    assert depths(named) == [2, 16, 29, None] and norms(named)[3] == "post"
    named = claim_slots(sample, None, [1, 5, 7, 9], None)
    assert depths(named) == [1, 5, 7, 9] and lasts(named)[3] and norms(named)[3] == "post"


def test_a_depth_that_the_file_itself_names_is_not_overruled_by_a_count(tmp_path: Path) -> None:
    sample = specforge(tmp_path)
    own = [Claim(str(i), "SGLang dump", i) for i in (3, 4, 5)]
    layouts = [*own, sample.slots[3].layout]
    slots = tuple(replace(slot, layout=said) for slot, said in zip(sample.slots, layouts, strict=True))
    assert depths(claim_slots(replace(sample, slots=slots), None, [1, 5, 7], 32)) == [3, 4, 5, None]


@pytest.mark.parametrize(
    ("labels", "layers", "last", "norm"),
    [
        ("embed,2,4,last", 8, True, "post"),
        ("embed,2,4,last:pre", 8, True, "pre"),
        ("embed,2,4,last:post", None, True, "post"),
        ("embed,2,4,8", 8, True, "post"),
        ("embed,2,4,8", None, True, "post"),
        ("embed,2,4,7", 8, False, ""),
        ("2,4,8,embed", None, False, ""),
        ("embed,2,4,?", 8, False, ""),
        ("embed,2,4,?", None, False, ""),
    ],
)
def test_the_users_labels_keep_the_layouts_norm_unless_they_contradict(
    tmp_path: Path, labels: str, layers: int | None, last: bool, norm: str
) -> None:
    claim = claim_slots(specforge(tmp_path), labels, [1, 3, 5], layers).slots[3].claim
    assert claim is not None and (claim.is_last, claim.norm, claim.source) == (last, norm, "--slots")


def test_a_last_state_where_the_layout_promises_none_has_no_norm(tmp_path: Path) -> None:
    named = claim_slots(v1(tmp_path), "last,2,4,6", None, 8)
    assert lasts(named) == [True, False, False, False] and norms(named) == [""] * 4


def test_the_last_state_alone(tmp_path: Path) -> None:
    sample = open_sample(write.eagle(tmp_path).path)
    for trained in (None, [], [2, 4, 6], [3]):
        named = claim_slots(sample, None, trained, 32)
        assert lasts(named) == [True] and norms(named) == ["post"]
