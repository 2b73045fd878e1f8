"""Chains of K drafts from many rows at once: step k of all rows is one pass.

Row t at step k takes the token x[t+1+k], stands at position t + k, and sees the step-0 keys of rows <= t and its own
keys of steps 1..k. Fed the sample's tokens (teacher-forced) this is the trainers' training-time test; fed its own
drafts it is what a server does from that row, and up to the first miss the two are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.drafting.context import BLOCK, Context, SampleRun
from drafter.errors import SampleError
from drafter.model.drafter import TokenHalf
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

    Teacher-forced rows end where the sample's tokens end: step k has the rows with t + 1 + k <= T - 1.
    """
    drafter, device = run.drafter, run.drafter.placement.device
    _check_window(run, int(rows[-1]) + depth)
    here = rows.to(device)
    row = run.row_input(context, here)
    tokens = run.tokens.take(here)
    nk, hd = drafter.config.num_kv_heads, drafter.config.head_dim
    own_k = own_v = row.normed.new_empty(len(rows), 0, nk, hd)  # [n, j, nk, hd]
    for k in range(depth):
        poll()
        positions = here + k
        if k:
            key, value = drafter.keys_values(row.normed, tokens, positions)
            own_k, own_v = torch.cat([own_k, key[:, None]], 1), torch.cat([own_v, value[:, None]], 1)
        q = drafter.queries(row.normed, tokens, positions)
        hidden = drafter.layer(row, q, here, context.keys, context.values, own_k, own_v)  # [n, H]
        logits = drafter.logits(hidden)  # [n, D]
        yield Step(k, rows, logits)
        if k + 1 == depth:
            return
        keep = len(rows) if own_tokens else int((rows + 2 + k <= run.sample.length - 1).sum())
        if keep == 0:
            return
        rows, here, own_k, own_v = rows[:keep], here[:keep], own_k[:keep], own_v[:keep]
        row = drafter.row_input(drafter.feedback(hidden[:keep], context.wiring), context.wiring)
        tokens = _next_tokens(run, here, k + 1, logits[:keep] if own_tokens else None)


def _check_window(run: SampleRun, positions: int) -> None:
    """Within its window a sliding-window drafter is one with full attention; past it, it is not computed here."""
    window = run.drafter.config.sliding_window
    if window is not None and positions > window:
        raise SampleError(
            f"sliding-window attention over {window} tokens at token {positions}",
            expected="rows within the window, the only ones that this version computes",
            where=run.sample.path,
            hint=f"use --rows {max(window - 64, 1)}",
        )


def _next_tokens(run: SampleRun, rows: Tensor, k: int, logits: Tensor | None) -> TokenHalf:
    if logits is None:
        return run.tokens.take(rows + k)
    return run.drafter.token_half(run.drafter.to_target(logits.argmax(-1)).cpu())


def draft_ids(
    run: SampleRun,
    ordering: Ordering,
    wiring: Wiring,
    depth: int,
    rows: Tensor | None = None,
    own_tokens: bool = False,
    poll: Poll = lambda: None,
) -> Tensor:
    """[depth, R] int64: the argmax draft id of each row at each step, -1 where a row was not asked for or has no token.

    `rows` ascending, on the CPU; None for all. Ties go to the lowest id.
    """
    chosen = torch.arange(run.rows) if rows is None else rows
    found = torch.full((depth, run.rows), -1, dtype=torch.int64)
    for block in chosen.split(BLOCK):
        if block.numel() == 0:
            break
        context = run.context(ordering, wiring, int(block[-1]) + 1, poll)
        for step in draft_steps(run, context, block, depth, own_tokens, poll):
            found[step.k, step.rows] = step.logits.argmax(-1).cpu()
    return found
