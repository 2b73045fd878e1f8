"""Chains from every row at once, both ways: fed the sample's own tokens, and running free on their own drafts.

Up to a chain's first miss the two are one computation: what was drafted is what the sample says. After it a free chain
is fed its own wrong token, so its later steps are worse by what one wrong token costs, while its accept length cannot
differ. Knows nothing of masks: which rows count is a matter of scoring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.wiring import Ordering, Wiring

Poll = Callable[[], None]


@dataclass(frozen=True)
class BothWays:
    """Draft ids [K, R] of the same rows, fed the sample's tokens and fed their own; -1 where there is none.

    Teacher-forced rows end where the sample's tokens end; free ones draft on.
    """

    forced: Tensor
    free: Tensor


def both_ways(
    run: SampleRun,
    ordering: Ordering,
    wiring: Wiring,
    depth: int,
    rows: Tensor | None = None,
    poll: Poll = lambda: None,
) -> BothWays:
    """K = `depth` drafts of the ascending `rows` (all if None), twice; a parallel drafter is fed no tokens at all."""
    forced = draft_ids(run, ordering, wiring, depth, rows, poll=poll)
    if run.drafter.config.parallel:
        return BothWays(forced, forced)
    return BothWays(forced, draft_ids(run, ordering, wiring, depth, rows, own_tokens=True, poll=poll))


def target_tokens(run: SampleRun, wiring: Wiring, drafted: Tensor) -> Tensor:
    """Target ids of draft ids of any shape, -1 where there is none."""
    ids = run.drafter.vocab(wiring).target_ids
    return torch.where(drafted >= 0, ids[drafted.clamp(min=0)], -1)


def leading_right(tokens: Tensor, ids: Tensor) -> Tensor:
    """[R] how many leading drafts of each row equal the text: `tokens` [K, R] target ids, `ids` [T] the sample's."""
    depth, rows = tokens.shape
    right = torch.zeros_like(tokens, dtype=torch.bool)
    for k in range(min(depth, rows - 1)):
        have = rows - 1 - k  # rows with a truth: t + 2 + k <= T - 1 = R
        right[k, :have] = (tokens[k, :have] == ids[2 + k :]) & (tokens[k, :have] >= 0)
    return right.long().cumprod(0).sum(0)
