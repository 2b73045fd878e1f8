"""Chains of K drafts from many rows at once: step k of all rows is one pass.

Row t at step k takes the token x[t+1+k], stands at position t + k, and sees the step-0 keys of rows <= t and its own
keys of steps 1..k, in every layer. Fed the sample's tokens (teacher-forced) this is the trainers' training-time test;
fed its own drafts it is what a server does from that row, and up to the first miss the two are equal. A sliding window
is a server's in both: it moves on with the draft, where a trainer's stays at row t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.drafting.context import BLOCK, Context, SampleRun
from drafter.model.attention import Seen
from drafter.model.drafter import Eagle3Drafter
from drafter.model.layer import LayerInput, Place
from drafter.wiring import Ordering, Wiring

Poll = Callable[[], None]


@dataclass(frozen=True)
class Step:
    """One draft step of a block: `rows` [n] that have it, `logits` [n, D] float32."""

    k: int
    rows: Tensor
    logits: Tensor


def draft_steps(
    run: SampleRun, context: Context, rows: Tensor, depth: int, own_tokens: bool, poll: Poll
) -> Iterator[Step]:
    """The K = `depth` steps of the ascending `rows` [n] (on the CPU), one block.

    Teacher-forced rows end where the sample's tokens end: step k has the rows with t + 1 + k <= T - 1. A parallel
    drafter is fed no tokens: its rows go on, and both ways are one.
    """
    drafter, wiring, parallel = run.drafter, context.wiring, run.drafter.config.parallel
    here = rows.to(drafter.placement.device)
    given, seen = run.given(context, here), context.seen(len(rows))
    for k in range(depth):
        poll()
        hidden, seen = forward(drafter, given, run.place(here, k, wiring), seen, k)
        logits = drafter.logits(hidden, wiring)  # [n, D]
        yield Step(k, rows, logits)
        if k + 1 == depth:
            return
        keep = len(rows) if own_tokens or parallel else int((rows + 2 + k <= run.sample.length - 1).sum())
        if keep == 0:
            return
        rows, here, seen = rows[:keep], here[:keep], [layer.take(slice(keep)) for layer in seen]
        if parallel:
            given = run.masked(keep, wiring)
        else:
            drafts = logits[:keep].argmax(-1) if own_tokens else None
            tokens = run.forced(wiring).take(here + k + 1) if drafts is None else run.drafted(drafts, wiring)
            given = run.fed(context, here, hidden[:keep], tokens)


def forward(
    drafter: Eagle3Drafter, given: LayerInput, place: Place, seen: list[Seen], k: int
) -> tuple[Tensor, list[Seen]]:
    """h [n, H] after the last layer, and what is seen from now on: after step 0 each row's own keys join it."""
    now, hidden = [], given.residual
    for i, layer in enumerate(place.layers):
        given = given if i == 0 else drafter.next_input(hidden, layer)
        now.append(seen[i].with_own(*layer.keys_values(given, place), k, place.draft_keys) if k else seen[i])
        hidden = layer.forward(given, place, now[i])
    return hidden, now


def draft_ids(
    run: SampleRun,
    ordering: Ordering,
    wiring: Wiring,
    depth: int,
    rows: Tensor | None = None,
    own_tokens: bool = False,
    poll: Poll = lambda: None,
) -> Tensor:
    """[depth, R] int64: the argmax draft id of each row at each step; -1 where a row was not asked for, has no token or
    gave no numbers.

    `rows` ascending, on the CPU; None for all. Ties go to the lowest id.
    """
    chosen = torch.arange(run.rows) if rows is None else rows
    found = torch.full((depth, run.rows), -1, dtype=torch.int64)
    for block in chosen.split(BLOCK):
        if block.numel() == 0:
            break
        context = run.context(ordering, wiring, int(block[-1]) + 1, poll)
        for step in draft_steps(run, context, block, depth, own_tokens, poll):
            found[step.k, step.rows] = _best_ids(step.logits).cpu()
    return found


def _best_ids(logits: Tensor) -> Tensor:
    """[n] the lowest id of the highest logit; -1 where a logit is NaN, which argmax would call the highest."""
    best = logits.argmax(-1)  # [n]
    return best.masked_fill(logits.gather(1, best[:, None])[:, 0].isnan(), -1)
