"""Accept lengths of a tree search over a sample, counted as those of chains are, beside the chain's on the same rows.

A row counts as in `drafter.scoring.counts`, with K = the levels of the tree: so a tree and a chain as long are counted
on the same rows. Knows nothing of how a tree is searched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.tree import TreePlan, plan_json
from drafter.drafting.tree_eagle2 import check_tree, forests
from drafter.errors import WiringError
from drafter.scoring.counts import Truths, length_rows, next_token_hits, row_mask, walk
from drafter.scoring.tallies import Lengths
from drafter.wiring import Ordering, Wiring

Poll = Callable[[], None]


@dataclass(frozen=True)
class TreeCounts:
    """Accept lengths of `plan` and of the greedy `chain` of as many drafts as the longest path has, on the same rows.

    `histogram[n]` rows accept n drafts; rounds and tokens are those of `walk`, which needs every row: without, they
    are 0. `not_finite` of the rows searched gave no numbers and accept nothing. `done` of `planned` rows are searched;
    `of` rows count for an accept length, all of them unless fewer were asked for.
    """

    plan: TreePlan
    lengths: Lengths
    chain: Lengths
    not_finite: int
    done: int
    planned: int
    of: int


def count_trees(
    run: SampleRun,
    ordering: Ordering,
    wiring: Wiring,
    plan: TreePlan,
    truths: Truths,
    mode: str,
    rows: int | None = None,
    found: Callable[[TreeCounts], None] = lambda counts: None,
    poll: Poll = lambda: None,
) -> TreeCounts:
    """Search a tree from every row that counts or may begin a round of `walk`; or, without the walk, from at most
    `rows` of those that count, spread evenly. `found` is given the counts so far after each block.

    Raises WiringError for a drafter that grows no trees.
    """
    if rows is not None and rows < 1:
        raise WiringError(f"trees from {rows} rows", expected="at least 1 row")
    check_tree(run.drafter, plan, wiring)
    tally = _Tally(plan, truths, mode, rows)
    tally.chain = _chain(run, ordering, wiring, plan.levels, truths, tally.rows, poll)
    for forest in forests(run, ordering, wiring, tally.rows, plan, poll):
        tally.add(forest.rows, forest.accepted(truths.ids), forest.finite)
        found(tally.counts())
    return tally.counts()


def _chain(
    run: SampleRun, ordering: Ordering, wiring: Wiring, depth: int, truths: Truths, rows: Tensor, poll: Poll
) -> Tensor:
    """[R] leading right drafts of the chains from `rows`; 0 elsewhere."""
    predicted = draft_ids(run, ordering, wiring, depth, rows, poll=poll)  # [K, R]
    mapped = torch.where(predicted >= 0, truths.target_ids[predicted.clamp(min=0)], -1)
    return next_token_hits(mapped, truths.ids).long().cumprod(0).sum(0)


class _Tally:
    """What is known so far: drafts accepted from each row [R], by trees and by the chain."""

    def __init__(self, plan: TreePlan, truths: Truths, mode: str, rows: int | None) -> None:
        self._plan, self._mask, size = plan, truths.mask, truths.length - 1
        self._counted = length_rows(row_mask(truths.mask, mode, size), plan.levels)  # [R]
        self._of, self._whole = int(self._counted.sum()), rows is None or rows >= int(self._counted.sum())
        if self._whole:
            self.rows = (self._counted | row_mask(truths.mask, "next", size)).nonzero().flatten()
        else:
            assert rows is not None
            every = self._counted.nonzero().flatten()
            self.rows = every[torch.arange(rows) * len(every) // rows]
        self.chain, self._trees = torch.zeros(size, dtype=torch.int64), torch.zeros(size, dtype=torch.int64)
        self._done, self._not_finite = torch.zeros(size, dtype=torch.bool), 0

    def add(self, rows: Tensor, accepted: Tensor, finite: Tensor) -> None:
        self._trees[rows], self._done[rows] = accepted, True
        self._not_finite += int((~finite).sum())

    def counts(self) -> TreeCounts:
        done = int(self._done.sum())
        trees, chain = self._lengths(self._trees), self._lengths(self.chain)
        return TreeCounts(self._plan, trees, chain, self._not_finite, done, len(self.rows), self._of)

    def _lengths(self, accepted: Tensor) -> Lengths:
        """Of the rows done."""
        histogram = torch.bincount(accepted[self._counted & self._done], minlength=self._plan.levels + 1)
        complete = self._whole and int(self._done.sum()) == len(self.rows)
        rounds, tokens = walk(accepted.tolist(), self._mask) if complete else (0, 0)
        return Lengths(tuple(histogram.tolist()), rounds, tokens)


def tree_counts_json(counts: TreeCounts) -> dict[str, Any]:
    """`walk` is null where not every row was searched."""
    return {
        **plan_json(counts.plan),
        "accept_length": _lengths_json(counts.lengths),
        "chain": {"depth": counts.plan.levels, **_lengths_json(counts.chain)},
        "not_finite": counts.not_finite,
        "rows_searched": counts.done,
        "rows_that_count": counts.of,
    }


def _lengths_json(lengths: Lengths) -> dict[str, Any]:
    walked = {"rounds": lengths.rounds, "tokens": lengths.tokens, "length": lengths.walk}
    return {
        "mean": lengths.mean,
        "rows": lengths.rows,
        "histogram": list(lengths.histogram),
        "walk": walked if lengths.rounds else None,
    }
