"""Groups of samples that draft worse than others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from drafter.checks.finding import Finding
from drafter.checks.k12_groups import groups
from tests.faults.checked import case_of
from tests.faults.world import Recorded, healthy, record, write_world

GroupOf = Callable[[Path], str]


def told(folder: Path, samples: tuple[Recorded, ...], group_of: GroupOf) -> list[Finding]:
    world = replace(healthy(), samples=samples, labels="2,4,6")
    case = case_of(write_world(folder, world), folder)
    case.group_of = group_of
    return list(groups(case))


def poor(seed: int) -> Recorded:
    """A text that the target did not write: half of its choices are others."""
    one = record(seed)
    rng = torch.Generator().manual_seed(seed)
    common = torch.tensor(sorted(set(one.ids)))
    other = common[torch.randint(len(common), (len(one.ids),), generator=rng)].tolist()
    ids = [b if i > 4 and i % 2 else a for i, (a, b) in enumerate(zip(one.ids, other, strict=True))]
    return replace(one, name=f"math_{seed}", ids=ids, kept=(2, 4, 6))


CHAT = tuple(replace(record(seed), name=f"chat_{seed}", kept=(2, 4, 6)) for seed in (0, 1, 2))


def by_name(path: Path) -> str:
    return path.stem.partition("_")[0]


def test_a_worse_group_is_named_with_both_lengths(tmp_path: Path) -> None:
    (found,) = told(tmp_path, (*CHAT, *(poor(seed) for seed in (3, 4, 5))), by_name)
    assert found.severity == "warning" and found.kind == "K12"
    assert found.title.startswith("groups differ: chat 0.") and ", math 0." in found.title
    assert list(found.evidence) == ["math", "chat"] and found.evidence["math"]["samples"] == 3
    assert found.fix


def named(samples: tuple[Recorded, ...], *groups: str) -> tuple[Recorded, ...]:
    return tuple(replace(s, name=f"{g}_{i}") for i, (s, g) in enumerate(zip(samples, groups, strict=True)))


def test_groups_that_draft_alike_are_right(tmp_path: Path) -> None:
    (found,) = told(tmp_path, named(CHAT * 2, *"ababab"), by_name)
    assert found.severity == "ok" and "no group is clearly worse" in found.title


def test_one_group_or_what_was_trained_on_is_said_elsewhere(tmp_path: Path) -> None:
    assert not told(tmp_path / "one", CHAT, lambda path: "all")
    assert not told(tmp_path / "none", CHAT, lambda path: "")
    assert not told(tmp_path / "seen", named(CHAT, "train", "val", "train"), by_name)


def test_few_rows_tell_nothing(tmp_path: Path) -> None:
    texts = (CHAT[0], poor(3))
    short = tuple(replace(s, ids=s.ids[:30], mask=s.mask[:30], states=s.states[:, :30]) for s in texts)
    assert not told(tmp_path / "short", short, by_name)
    assert told(tmp_path / "long", texts, by_name)
