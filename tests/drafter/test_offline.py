"""Offline lengths by group: what names say of samples, curves joined, and the verdict on text that is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.serving.effective import DrafterFacts
from drafter.serving.flags import parse_flags
from drafter.serving.offline import Group, curve, groups_of, judge, kind_of, pooled
from drafter.serving.serve import effective
from drafter.serving.verdict import DRAFTER, HELD_OUT, NONE, SHIFT, TRAINING, UNKNOWN, WIRING

LONG, SHORT = [100, 60, 40, 20, 180], [260, 90, 30, 10, 10]  # rows by accepted drafts
WORSE = [380, 10, 6, 3, 1]
FOUR = effective(
    parse_flags(
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path d --speculative-num-steps 4 "
        "--speculative-eagle-topk 1"
    ),
    "sglang@0.5.9",
    DrafterFacts(is_eagle3=True, fc_inputs=3),
)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("held_out", "data_1.pt"), HELD_OUT),
        (("samples", "val-3.pt"), HELD_OUT),
        (("a", "Train", "test_1.pt"), TRAINING),  # the first that says it
        (("train_val",), HELD_OUT),
        (("latest", "contest", "retrained", "unseemly"), UNKNOWN),  # words, not letters in a word
        (("", "data_0.pt"), UNKNOWN),
    ],
)
def test_what_names_say_of_samples(names: tuple[str, ...], kind: str) -> None:
    assert kind_of(*names) == kind


def test_groups_are_the_kinds_where_nobody_names_others() -> None:
    paths = [Path("s/train/0.pt"), Path("s/held_out/1.pt"), Path("s/train/2.pt"), Path("s/more/3.pt")]
    assert groups_of(paths, None) == [
        ("training", TRAINING, [paths[0], paths[2]]),
        ("held-out", HELD_OUT, [paths[1]]),
        ("other", UNKNOWN, [paths[3]]),
    ]
    assert groups_of(paths, lambda path: "/data/latest/mixed") == [("/data/latest/mixed", UNKNOWN, paths)]
    named = groups_of(paths[:3], lambda path: f"/test/{path.parent.name}")  # folders above a group say nothing of it
    assert [(name, kind) for name, kind, _ in named] == [("/test/train", TRAINING), ("/test/held_out", HELD_OUT)]


def test_joined_curves_are_those_of_all_rows() -> None:
    both = [a + b for a, b in zip(LONG, SHORT, strict=True)]
    ours, theirs = curve("c", "a", LONG, 300 / 110, 110), curve("c", "b", SHORT, 190 / 120, 120)
    assert pooled([ours, None, theirs], "all") == curve("c", "all", both, 490 / 230, 230)
    assert pooled([None], "all") is None and pooled([ours], "all") == ours
    bare = curve("c", "all", both)
    assert pooled([curve("c", "a", LONG), curve("c", "b", SHORT)], "all") == bare and bare is not None
    assert bare.walk is None


def group(kind: str, trained: list[int], served: list[int] | None = None, name: str = "") -> Group:
    as_served = None if served is None else curve("as served", kind, served)
    return Group(name or kind, kind, curve("as trained", kind, trained), as_served)


def verdict_of(served: float, *groups: Group) -> tuple[str, str]:
    whole = pooled((one.trained for one in groups), "all"), pooled((one.served for one in groups), "all")
    found = judge(*whole, served, FOUR, groups)
    return found.kind, found.sentence


def test_a_served_length_like_that_of_new_text_is_expected() -> None:
    """3.3 on what was trained on, 1.5 on other text and by users; pooled it would look like a fault of the server."""
    groups = group(TRAINING, LONG, LONG), group(HELD_OUT, SHORT, SHORT)
    kind, said = verdict_of(1.52, *groups)
    assert kind == SHIFT and said.endswith("served 1.52, as expected on new text")
    assert "3.30 on training samples, 1.55 on held-out ones" in said
    unnamed = [Group(one.name, UNKNOWN, one.trained, one.served) for one in groups]
    assert "as expected" not in verdict_of(1.52, *unnamed)[1]


def test_a_good_drafter_is_expected_too() -> None:
    good, better = [100, 60, 60, 60, 120], [10, 10, 10, 10, 360]
    kind, said = verdict_of(3.1, group(TRAINING, better), group(HELD_OUT, good))
    assert kind == NONE
    assert said == "as expected on new text: held-out samples give 3.10, served 3.10; 4.75 on training samples"
    assert verdict_of(3.1, group(TRAINING, good), group(HELD_OUT, good))[1].startswith("as expected: held-out")
    assert verdict_of(1.52, group(TRAINING, SHORT), group(HELD_OUT, SHORT))[0] == DRAFTER


def test_wiring_is_still_blamed_where_new_text_does_better() -> None:
    groups = group(TRAINING, LONG, WORSE), group(HELD_OUT, LONG, WORSE)
    assert verdict_of(1.09, *groups)[0] == WIRING


def test_groups_of_one_kind_are_judged_together() -> None:
    groups = [group(HELD_OUT, LONG, name="val"), group(HELD_OUT, SHORT, name="test"), group(TRAINING, LONG)]
    assert "held-out samples give 2.42" in verdict_of(2.42, *groups)[1]
