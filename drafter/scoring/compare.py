"""Which of several orderings is best, and which ones the rows cannot tell from it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from drafter.scoring.counts import OrderingCounts
from drafter.wiring import Ordering

TIE = 0.05  # two-sided p above which two orderings are not told apart


def mcnemar(ours: Tensor, theirs: Tensor) -> float:
    """Two-sided exact p of McNemar's test on paired hits [n]: the binomial test of the rows on which they differ."""
    only_ours, only_theirs = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    n = only_ours + only_theirs
    if n == 0:
        return 1.0
    log_half = n * math.log(0.5)
    tail = sum(
        math.exp(math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + log_half)
        for i in range(min(only_ours, only_theirs) + 1)
    )
    return min(1.0, 2 * tail)


def best_ordering(scores: Mapping[Ordering, OrderingCounts]) -> tuple[Ordering | None, list[Ordering]]:
    """The ordering with the highest step-0 accuracy (the first of equals), and those tied with it, best first.

    While a sweep runs some orderings have more samples than others: all are compared on the rows that they share.
    """
    shared = min((counts.row_hits.numel() for counts in scores.values()), default=0)
    if not shared:
        return None, []
    hits = {ordering: counts.row_hits[:shared] for ordering, counts in scores.items()}
    ranked = sorted(hits, key=lambda o: -int(hits[o].sum()))
    best = ranked[0]
    return best, [o for o in ranked[1:] if mcnemar(hits[best], hits[o]) > TIE]
