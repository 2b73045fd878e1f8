"""Whether a recording vouches for itself: deep states that name the next token stand at their tokens, whatever a
drafter makes of them.

The head that names them is the target's, else the drafter's own. Knows no score of the drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafter.checks.measure import Measures
from drafter.checks.signature import above
from drafter.sample.probes.embed_test import Share
from drafter.sample.probes.probe import EMBED, SlotProbe
from drafter.sample.sample import Sample
from drafter.scoring.tallies import Count

LEAST = 0.2  # above its own token, the one after next, and the most frequent one


@dataclass(frozen=True)
class Witness:
    """Slot `slot` names x[t + 1] in `named` rows, clearly more than any other token."""

    slot: int
    named: Count

    @property
    def words(self) -> str:
        return f"slot {self.slot} names the next token in {self.named.hits} of {self.named.total} rows"


def witness(m: Measures, samples: Sequence[Sample]) -> Witness | None:
    """The slot that says the most of what comes next, all `samples` pooled; None where none does clearly."""
    found = [_of_slot(i, [m.probes(sample)[i] for sample in samples]) for i in range(len(samples[0].slots))]
    return max((one for one in found if one is not None), key=lambda one: one.named.ratio or 0.0, default=None)


def _of_slot(slot: int, probes: Sequence[SlotProbe]) -> Witness | None:
    lenses = [probe.lens for probe in probes if probe.lens is not None and probe.label != EMBED]
    named = _pooled([lens.next for lens in lenses])
    rivals = ([lens.same for lens in lenses], [lens.after for lens in lenses], [lens.chance for lens in lenses])
    clear = named.total and all(above(named, _pooled(shares), LEAST) for shares in rivals)
    return Witness(slot, named) if clear else None


def _pooled(shares: Sequence[Share]) -> Count:
    return Count(sum(share.hits for share in shares), sum(share.total for share in shares))
