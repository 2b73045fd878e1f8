"""Hits and totals of one ordering on one sample, as the README defines them; ratios are made where they are shown.

Row t at step k predicts x[t+2+k]. All tensors are on the CPU. Knows nothing of models: it is given what was predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from drafter.scoring.tallies import Count, Lengths, SampleScore, StepCounts, bucket, pooled_positions

_SHIFT = {"next": 1, "same": 0, "predicted": 2}


@dataclass(frozen=True)
class Truths:
    """What predictions are held against: ids [T], loss mask [T], the map's ids [D] and inverse [V], the verifier.

    `verifier_full` and `verifier_draft` [T] (entry t: after x[0..t]) are None where the verifier is not known; -1 in
    the second: no choice there.
    """

    ids: Tensor
    mask: Tensor
    target_ids: Tensor
    draft_ids: Tensor
    verifier_full: Tensor | None = None
    verifier_draft: Tensor | None = None

    @property
    def length(self) -> int:
        return self.ids.numel()

    def can_be_drafted(self, ids: Tensor) -> Tensor:
        """Which target ids [n] are in the draft vocabulary; a padded head can choose ids beyond every vocabulary."""
        last = len(self.draft_ids) - 1
        return (ids >= 0) & (ids <= last) & (self.draft_ids[ids.clamp(0, last)] >= 0)


@dataclass(frozen=True)
class OrderingCounts:
    """`steps[k][metric]`, accept lengths, and `row_hits` [n] of step 0 over the rows that count (for paired tests).

    `positions[i]` are the step-0 counts of the rows in `bucket(i)`; `not_finite` of the rows that count at step 0 gave
    no numbers (they are misses).
    """

    steps: tuple[Mapping[str, StepCounts], ...]
    lengths: Lengths
    coverage: Count
    row_hits: Tensor = field(repr=False)
    positions: tuple[Count, ...] = ()
    not_finite: int = 0

    def __add__(self, other: OrderingCounts) -> OrderingCounts:
        steps = tuple(
            {name: a[name] + b[name] for name in a if name in b} for a, b in zip(self.steps, other.steps, strict=True)
        )
        hits = torch.cat([self.row_hits, other.row_hits])
        return OrderingCounts(
            steps,
            self.lengths + other.lengths,
            self.coverage + other.coverage,
            hits,
            pooled_positions(self.positions, other.positions),
            self.not_finite + other.not_finite,
        )

    @property
    def accuracy(self) -> Count:
        return self.steps[0]["next_token"].marginal

    @property
    def summary(self) -> SampleScore:
        """The whole numbers that are kept of every sample."""
        accuracy, lengths = self.accuracy, self.lengths
        return SampleScore(accuracy.hits, accuracy.total, lengths.sum, lengths.rows, self.not_finite)


def row_mask(mask: Tensor, mode: str, rows: int) -> Tensor:
    """m(t) for t = 0..rows-1: the loss mask at t + 1 (`next`), t (`same`), t + 2 (`predicted`), or 1 (`all`).

    Past the end of the sample the mask is 0.
    """
    if mode == "all":
        return torch.ones(rows, dtype=torch.bool)
    shift = _SHIFT[mode]
    padded = torch.cat([mask, torch.zeros(rows + shift, dtype=torch.bool)])
    return padded[shift : shift + rows]


def rows_needed(mask: Tensor, mode: str, depth: int) -> Tensor:
    """The rows whose drafts enter any count: m(t + k) for a k < depth, or a round of `walk` that starts there."""
    rows = mask.numel() - 1
    counted = row_mask(mask, mode, rows)
    starts = row_mask(mask, "next", rows)
    needed = counted | starts
    for k in range(1, min(depth, rows)):
        needed[: rows - k] |= counted[k:]
    return needed.nonzero().flatten()


def count(predicted: Tensor, truths: Truths, mode: str) -> OrderingCounts:
    """All counts of `predicted` [K, R] draft ids (-1 where there is none), R = T - 1, in mask mode `mode`."""
    depth, rows = predicted.shape
    mask = row_mask(truths.mask, mode, rows)
    mapped = torch.where(predicted >= 0, truths.target_ids[predicted.clamp(min=0)], -1)
    right = next_token_hits(mapped, truths.ids)
    steps: list[dict[str, StepCounts]] = [{} for _ in range(depth)]
    _add_metric(steps, "next_token", right, mask, 2, None)
    if truths.verifier_full is not None:
        strict = _verifier_hits(mapped, truths.verifier_full)
        inside = truths.can_be_drafted(truths.verifier_full)  # [T]
        _add_metric(steps, "verifier_strict", strict, mask, 1, None)
        _add_metric(steps, "in_vocab", strict, mask, 1, inside)
    if truths.verifier_draft is not None:
        own = _verifier_hits(predicted, truths.verifier_draft)
        # a recorded distribution may leave places out: as if they had no truth
        told = truths.verifier_draft >= 0 if bool((truths.verifier_draft < 0).any()) else None
        _add_metric(steps, "verifier_draft_vocab", own, mask, 1, told)
    counted = mask[: rows - 1]
    covered = truths.can_be_drafted(truths.ids[2:])
    coverage = Count(int((covered & counted).sum()), int(counted.sum()))
    lengths = _accept_lengths(right, mask)
    rounds, tokens = _walk(right, truths.mask)
    return OrderingCounts(
        tuple(steps),
        Lengths(lengths, rounds, tokens),
        coverage,
        right[0, : rows - 1][counted],
        _by_position(right[0, : rows - 1], counted),
        int(((predicted[0, : rows - 1] < 0) & counted).sum()),
    )


def _by_position(right: Tensor, counted: Tensor) -> tuple[Count, ...]:
    """Hits and totals of the rows [R - 1] of each bucket, as far as there are rows."""
    found: list[Count] = []
    while bucket(len(found))[0] < right.numel():
        first, last = bucket(len(found))
        here = counted[first : last + 1]
        found.append(Count(int((right[first : last + 1] & here).sum()), int(here.sum())))
    return tuple(found)


def next_token_hits(mapped: Tensor, ids: Tensor) -> Tensor:
    """[K, R] bool; False where there is no truth."""
    hits = torch.zeros_like(mapped, dtype=torch.bool)
    for k in range(mapped.shape[0]):
        have = ids.numel() - 2 - k  # rows with t + 2 + k <= T - 1
        if have > 0:
            hits[k, :have] = (mapped[k, :have] == ids[2 + k :]) & (mapped[k, :have] >= 0)
    return hits


def _verifier_hits(predicted: Tensor, choice: Tensor) -> Tensor:
    """[K, R] bool against the choice after x[0..t+1+k]."""
    hits = torch.zeros_like(predicted, dtype=torch.bool)
    for k in range(predicted.shape[0]):
        have = choice.numel() - 1 - k  # rows with t + 1 + k <= T - 1
        if have > 0:
            hits[k, :have] = (predicted[k, :have] == choice[1 + k :]) & (predicted[k, :have] >= 0)
    return hits


def _add_metric(
    steps: list[dict[str, StepCounts]], name: str, hits: Tensor, mask: Tensor, reach: int, only: Tensor | None
) -> None:
    """Count `hits` [K, R], whose truth at step k lies at t + reach + k; `only` [T] restricts the truths' places."""
    rows = mask.numel()
    before = torch.ones(rows, dtype=torch.bool)  # steps 0..k-1 right
    for k in range(len(steps)):
        have = max(rows + 1 - reach - k, 0)
        here = mask[k : k + have]  # m(t + k)
        right, first, chain = hits[k, :have], mask[:have], before[:have]
        if only is not None:  # a place that is left out is as if it had no truth
            inside = only[reach + k : reach + k + have]
            here, first = here & inside, first & inside
        joint = int((right & chain & first & here).sum())
        total = int(here.sum())
        steps[k][name] = StepCounts(
            Count(int((right & here).sum()), total), Count(joint, total), Count(joint, int((first & chain).sum()))
        )
        before = torch.cat([chain & right, torch.zeros(rows - have, dtype=torch.bool)])


def _accept_lengths(right: Tensor, mask: Tensor) -> tuple[int, ...]:
    """Rows by leading right drafts, over the rows that count for it."""
    depth = right.shape[0]
    accepted = right.long().cumprod(0).sum(0)[length_rows(mask, depth)]
    return tuple(torch.bincount(accepted, minlength=depth + 1).tolist())


def length_rows(mask: Tensor, depth: int) -> Tensor:
    """[R] bool: the rows with all K truths and m(t + k) for every k, where `mask` [R] is m."""
    have = max(mask.numel() - depth, 0)  # t + 1 + K <= T - 1
    counted = torch.zeros_like(mask)
    counted[:have] = True
    for k in range(depth):
        counted[:have] &= mask[k : k + have]
    return counted


def _walk(right: Tensor, mask: Tensor) -> tuple[int, int]:
    return walk(right.long().cumprod(0).sum(0).tolist(), mask)


def walk(accepted: list[int], mask: Tensor) -> tuple[int, int]:
    """(rounds, tokens) of decoding each supervised run of `mask` [T]; its first token is free, and every round emits
    one token more than the drafts that its row accepts, `accepted` [R]."""
    emitted = [one + 1 for one in round_accepts(accepted, mask)]
    return len(emitted), sum(emitted)


def round_accepts(accepted: list[int], mask: Tensor) -> list[int]:
    """Of each round of `walk` in order how many drafts count as accepted: no more than the run has tokens left."""
    found = []
    for start, stop in _runs(mask.tolist()):
        last = start
        while last < stop - 1:
            # the row of token p is p - 1; the very first token of a text has none, so nothing can be drafted from it
            drafted = accepted[last - 1] if last else 0
            found.append(min(drafted, stop - 2 - last))
            last += found[-1] + 1
    return found


def _runs(mask: list[bool]) -> list[tuple[int, int]]:
    runs, start = [], None
    for i, value in enumerate([*mask, False]):
        if value and start is None:
            start = i
        elif not value and start is not None:
            runs.append((start, i))
            start = None
    return runs
