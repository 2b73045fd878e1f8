"""Kinds of text on which the drafter does clearly worse than on others, by the groups that samples were put in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from drafter.checks.case import Case
from drafter.checks.explain import diagnosis
from drafter.checks.finding import CKPT, OK, SMP, WARNING, Finding
from drafter.checks.measure import Measured, measures
from drafter.checks.registry import FORWARD, check
from drafter.checks.signature import ROWS, above
from drafter.sample.sample import Sample
from drafter.serving.offline import kind_of
from drafter.serving.verdict import HELD_OUT, TRAINING

REPORTS = ("sgl-project/SpecForge#252", "NickL77/BaldEagle#17")
GAP = 0.12  # of step-0 accuracy: as much as new text may cost before it is said


@check("groups-draft-alike", "K12", (CKPT, SMP), REPORTS, FORWARD)
def groups(case: Case) -> Iterator[Finding]:
    """Groups by name (--group, or one for each -s); what was trained on against what was not is another check's."""
    d, m = diagnosis(case), measures(case)
    members = _members(case, d.samples)
    if len(members) < 2:
        return
    scores = {name: m.measure(d.last, samples) for name, samples in members.items()}
    told = {name: one for name, one in scores.items() if one.rows >= ROWS}
    apart = [pair for pair in combinations(sorted(told, key=lambda n: told[n].accuracy), 2) if _apart(told, *pair)]
    if len(told) < 2:
        return
    ranked = sorted(told, key=lambda n: told[n].accuracy)
    worst, best = ranked[0], ranked[-1]
    both = f"{_words(best, told[best])}, {_words(worst, told[worst])}"
    yield Finding(
        "groups-draft-alike",
        "K12",
        WARNING if apart else OK,
        f"groups differ: {both}" if apart else f"no group is clearly worse than another: {both}",
        {name: {**told[name].said(), "samples": len(members[name])} for name in ranked},
        "expect each kind of traffic at its own length; train on more text of the worst" if apart else "",
        REPORTS,
        "orderings",
        34,
    )


def _members(case: Case, samples: list[Sample]) -> dict[str, list[Sample]]:
    """Samples by group, empty where the groups are no more than what was trained on and what was not."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        name = case.group_of(sample.path)
        if name:
            found.setdefault(name, []).append(sample)
    kinds = {kind_of(Path(name).name) for name in found}
    return {} if kinds == {TRAINING, HELD_OUT} and len(found) == 2 else found


def _apart(told: dict[str, Measured], worse: str, better: str) -> bool:
    return above(told[better].counts.accuracy, told[worse].counts.accuracy, GAP)


def _words(name: str, one: Measured) -> str:
    return f"{name} {one.accuracy:.3f} at step 0, accept length {one.length or 0:.2f}"
