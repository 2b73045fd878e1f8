"""A sample as the drafter sees it: recorded states, the tokens' halves, and per ordering the committed context.

Row t = 0..T-2 needs x[t+1], so a sample of T tokens has R = T - 1 rows. The context of an ordering (fc output, step-0
keys and values) is filled block by block from row 0 on, only as far as somebody asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.errors import SampleError
from drafter.model.drafter import Eagle3Drafter, RowInput, TokenHalf
from drafter.sample.sample import Sample
from drafter.wiring import Ordering, Wiring

BLOCK = 256  # rows computed at once: a cancel or a more urgent question waits for no more than this
MAX_CONTEXTS = 1 << 29  # bytes of contexts that stay in memory: the current ordering and those just looked at
MAX_SHARED = 1 << 30  # bytes of per-slot fc products kept for a sweep


@dataclass
class Context:
    """Step-0 tensors of one ordering; rows 0..filled-1 are there. keys, values [R, nk, hd]; residual, normed [R, H]."""

    ordering: Ordering
    wiring: Wiring
    keys: Tensor
    values: Tensor
    residual: Tensor
    normed: Tensor
    filled: int = 0

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.keys, self.values, self.residual, self.normed))


class SampleRun:
    """One sample on one drafter. Not thread-safe: one engine thread owns it."""

    def __init__(self, drafter: Eagle3Drafter, sample: Sample) -> None:
        if sample.width != drafter.config.target_hidden_size:
            raise SampleError(
                f"recorded states are {sample.width} wide",
                expected=f"{drafter.config.target_hidden_size}, the target width of the drafter",
                where=sample.path,
            )
        self.drafter, self.sample = drafter, sample
        self.rows = sample.length - 1
        self.ids = sample.ids
        self._tokens: TokenHalf | None = None
        self._states: dict[int, Tensor] = {}
        self._parts: dict[tuple[int, int], Tensor] = {}
        self._contexts: OrderedDict[tuple[Ordering, Wiring], Context] = OrderedDict()

    @property
    def tokens(self) -> TokenHalf:
        """The halves of x[1..T-1]: row t's token at step k is entry t + k."""
        if self._tokens is None:
            self._tokens = self.drafter.token_half(self.ids[1:])
        return self._tokens

    def state(self, slot: int) -> Tensor:
        """[R, Ht] of a slot, where and as the drafter runs."""
        if slot not in self._states:
            rows = self.sample.slots[slot].tensor.rows(0, self.rows)
            self._states[slot] = rows.to(self.drafter.placement.device, self.drafter.placement.dtype)
        return self._states[slot]

    def context(self, ordering: Ordering, wiring: Wiring, rows: int, poll: Callable[[], None]) -> Context:
        """The context of `ordering` with at least `rows` rows filled; `poll` is called between blocks."""
        key = (ordering, wiring)
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = self._empty(ordering, wiring)
            while len(self._contexts) > 2 and len(self._contexts) * context.nbytes > MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        while context.filled < rows:
            poll()
            self._fill(context, min(context.filled + BLOCK, self.rows))
        return context

    def _empty(self, ordering: Ordering, wiring: Wiring) -> Context:
        c, placement = self.drafter.config, self.drafter.placement

        def empty(*shape: int) -> Tensor:
            return torch.empty(self.rows, *shape, device=placement.device, dtype=placement.dtype)

        kv, width = (c.num_kv_heads, c.head_dim), c.hidden_size
        return Context(ordering, wiring, empty(*kv), empty(*kv), empty(width), empty(width))

    def _fill(self, context: Context, stop: int) -> None:
        start = context.filled
        rows = torch.arange(start, stop)
        row = self.drafter.row_input(self._fused(context.ordering, start, stop), context.wiring)
        where = rows.to(self.drafter.placement.device)
        k, v = self.drafter.keys_values(row.normed, self.tokens.take(where), where)
        # 0 * NaN is NaN: as a value it would reach earlier rows; as a key it spoils only its own row and later ones
        bad = ~(k.isfinite() & v.isfinite()).flatten(1).all(1)[:, None, None]  # [n, 1, 1]
        context.keys[start:stop] = k.masked_fill(bad, float("nan"))
        context.values[start:stop] = v.masked_fill(bad, 0.0)
        context.residual[start:stop], context.normed[start:stop] = row.residual, row.normed
        context.filled = stop

    def _fused(self, ordering: Ordering, start: int, stop: int) -> Tensor:
        """fc of the ordering's states, rows start..stop-1: a sum of shared products where that is exact and fits."""
        if self.drafter.can_share_fc and self._shared_bytes() <= MAX_SHARED:
            return self.drafter.fc_sum([self._part(slot, i)[start:stop] for i, slot in enumerate(ordering)])
        return self.drafter.fuse([self.state(slot)[start:stop] for slot in ordering])

    def _shared_bytes(self) -> int:
        width = self.drafter.config.hidden_size
        return len(self.sample.slots) * self.drafter.fc_inputs * self.rows * width * 4

    def _part(self, slot: int, position: int) -> Tensor:
        key = (slot, position)
        if key not in self._parts:
            self._parts[key] = self.drafter.fc_part(self.state(slot), position)
        return self._parts[key]

    def row_input(self, context: Context, rows: Tensor) -> RowInput:
        return RowInput(context.residual[rows], context.normed[rows])
