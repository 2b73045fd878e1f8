"""Scoring a set of orderings on a set of samples, one (sample, ordering) at a time, pooled as counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.verifier import VerifierChoice
from drafter.scoring.counts import OrderingCounts, Truths, count, rows_needed
from drafter.wiring import Ordering, Wiring

Poll = Callable[[], None]


def truths_of(run: SampleRun, choice: VerifierChoice | None, wiring: Wiring) -> Truths:
    """What the predictions on `run` are held against; a sample without a mask counts every token."""
    sample, vocab = run.sample, run.drafter.vocab(wiring)
    full, draft = (choice.full, choice.draft) if choice is not None else (None, None)
    return Truths(sample.ids, sample.supervised, vocab.target_ids, vocab.draft_ids, full, draft)


def score_sample(
    run: SampleRun,
    truths: Truths,
    orderings: Sequence[Ordering],
    wiring: Wiring,
    depth: int,
    mode: str,
    found: Callable[[Ordering, OrderingCounts, Tensor], None],
    poll: Poll = lambda: None,
) -> None:
    """Score each of `orderings` on one sample; `found` is given each one's counts and draft ids [depth, R] at once.

    Only the rows that enter a count are drafted. `poll` is called between blocks and steps and may raise Cancelled.
    """
    rows = rows_needed(truths.mask, mode, depth)
    for ordering in orderings:
        predicted = draft_ids(run, ordering, wiring, depth, rows, poll=poll)
        found(ordering, count(predicted, truths, mode), predicted)
