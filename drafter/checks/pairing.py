"""Whether the recorded states belong to the tokens beside them, told by what a drafter makes of them.

Rows are moved by one, and states of other samples put in their place; what clearly predicts more is what was recorded.
Needs a drafter that works on something: a broken one tells nothing here. A recording that vouches for itself is not
asked: what a broken drafter makes of it may be better a row away all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafter.checks.measure import Measured, Measures, Option, moved
from drafter.checks.signature import LOW
from drafter.checks.witness import witness
from drafter.sample.sample import Sample
from drafter.scoring.compare import mcnemar

GAIN = 0.1  # what rows moved by one must be better by
OTHERS_GAIN, OTHERS_AFTER = 0.25, 0.4  # states of a text of the same kind help a little by themselves
P = 0.001  # and how unlikely that is by chance, times the pairings that were tried
PARTNERS = 16  # samples whose states are tried


@dataclass(frozen=True)
class Pairing:
    """`sample` does better with its states moved by `shift` rows, or with those of `other`."""

    sample: Sample
    before: Measured
    after: Measured
    p: float
    tried: int
    shift: int = 0
    other: Sample | None = None


def pairing(m: Measures, sample: Sample, option: Option, others: Sequence[Sample]) -> Pairing | None:
    """The better pairing of `sample`, None where its own is as good as any."""
    if sample.length < 8 or witness(m, [sample]) is not None:
        return None
    before = m.alone(moved(sample, 0), option)
    found = [Pairing(sample, before, m.alone(moved(sample, s), option), 0, 2, shift=s) for s in (-1, 1)]
    if before.accuracy < LOW:
        found += _others(m, sample, option, others)
    told = [one for one in map(_tested, found) if one is not None]
    return max(told, key=lambda one: one.after.accuracy, default=None)


def _others(m: Measures, sample: Sample, option: Option, others: Sequence[Sample]) -> list[Pairing]:
    found = []
    partners = [other for other in others if other is not sample and other.length >= 8][:PARTNERS]
    for other in partners:
        foreign = moved(sample, 0, other)
        own = moved(sample, 0).cut(foreign.length)
        before, after = m.alone(own, option), m.alone(foreign, option)
        found.append(Pairing(sample, before, after, 0, len(partners) + 2, other=other))
    return found


def _tested(one: Pairing) -> Pairing | None:
    p = mcnemar(one.before.counts.row_hits, one.after.counts.row_hits) * one.tried
    gain, after = (GAIN, LOW) if one.other is None else (OTHERS_GAIN, OTHERS_AFTER)
    clear = p < P and one.after.accuracy >= after and one.after.accuracy - one.before.accuracy >= gain
    return Pairing(one.sample, one.before, one.after, p, one.tried, one.shift, one.other) if clear else None
