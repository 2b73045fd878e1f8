"""What the accuracies of the draft steps look like together: dead, low everywhere, rising, dying after step 0, whole.

Plain counts, with the rows below which nothing is said. The table of faults behind it: fault by fault, a trained
drafter loses in one of few ways, whatever its size. Knows no cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from drafter.scoring.tallies import Count

ROWS = 40  # below so many rows no shape is told
DEAD = 0.02  # right more often than this is no accident of a wrong map or head
LOW = 0.25  # a trained drafter that is wired rightly is seldom below, even on text that it has not seen
RISE = 0.12  # what deeper steps gain over the first where the states belong to other tokens
DIES = 0.62  # a step 1 below this share of step 0 has lost what is fed back
SIGMAS = 4.0

DEAD_ALL, FLAT_LOW, RISING, DYING, WHOLE, UNTOLD = "dead", "low", "rising", "dying", "whole", "untold"
WORDS = {
    DEAD_ALL: "nothing is right at any draft step",
    FLAT_LOW: "few are right, at every draft step alike",
    RISING: "the first step is worse than the later ones, which lean on the tokens more than on the states",
    DYING: "the first step is right, the ones fed with the drafter's own state are not",
    WHOLE: "the steps keep the accuracy of the first",
    UNTOLD: "too few rows to tell",
}


@dataclass(frozen=True)
class Signature:
    name: str
    steps: tuple[float, ...]

    @property
    def words(self) -> str:
        return WORDS[self.name]


def signature(steps: Sequence[Count]) -> Signature:
    """The shape of `steps`: teacher-forced hits and totals by draft step."""
    known = [step for step in steps if step.total]
    ratios = tuple(step.ratio or 0.0 for step in known)
    if not known or known[0].total < ROWS:
        return Signature(UNTOLD, ratios)
    first, later = known[0], known[1:]
    if all(step.hits <= max(1, DEAD * step.total) for step in known):
        return Signature(DEAD_ALL, ratios)
    if later and any(above(step, first, RISE) for step in later):
        return Signature(RISING, ratios)
    if ratios[0] < LOW:
        return Signature(FLAT_LOW, ratios)
    if later and ratios[1] < DIES * ratios[0] and above(first, later[0], 0.0):
        return Signature(DYING, ratios)
    return Signature(WHOLE, ratios)


def above(one: Count, other: Count, least: float) -> bool:
    """Whether one share is above another by more than `least`, and by so many standard errors."""
    a, b = one.ratio or 0.0, other.ratio or 0.0
    spread = sqrt(_variance(one) + _variance(other))
    return a - b > least and a - b > SIGMAS * spread


def _variance(count: Count) -> float:
    ratio = (count.hits + 1) / (count.total + 2)  # never quite 0: few rows prove little
    return ratio * (1 - ratio) / max(count.total, 1)
