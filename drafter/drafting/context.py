"""A sample as the drafter sees it: recorded states, the tokens' halves, and per ordering the committed context.

Row t = 0..T-2 needs x[t+1], so a sample of T tokens has R = T - 1 rows. The context of an ordering (fc output, each
layer's step-0 keys and values) is filled block by block from row 0 on, only as far as somebody asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from drafter.errors import SampleError
from drafter.model.attention import Seen, Window
from drafter.model.drafter import Eagle3Drafter
from drafter.model.fusion import Fusion
from drafter.model.kept import LayersKept
from drafter.model.layer import LayerInput, Place
from drafter.model.projection import TokenHalf
from drafter.sample.sample import Sample
from drafter.wiring import Ordering, Wiring

BLOCK = 256  # rows computed at once: a cancel or a more urgent question waits for no more than this
MAX_CONTEXTS = 1 << 29  # bytes of contexts that stay in memory: the current ordering and those just looked at
MAX_SHARED = 1 << 30  # bytes of per-slot fc products kept for a sweep
MAX_STATES = 1 << 28  # bytes of recorded states kept; above it they are read again, block by block


@dataclass
class Context:
    """Step-0 tensors of one ordering; rows 0..filled-1 are there.

    keys [R, nk, hd], values [R, nk, vd]: one of each for every layer; residual, normed [R, H]: before layer 0.
    """

    ordering: Ordering
    wiring: Wiring
    keys: list[Tensor]
    values: list[Tensor]
    residual: Tensor
    normed: Tensor
    filled: int = 0

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values, self.residual, self.normed))

    def seen(self, rows: int) -> list[Seen]:
        """What `rows` rows see at step 0, layer by layer."""
        return [Seen.first(k, v, rows) for k, v in zip(self.keys, self.values, strict=True)]


@dataclass
class _Part:
    """One slot's product with one column block of `fc`, [R, H]; rows 0..filled-1 are there."""

    product: Tensor
    filled: int = 0


class _Tokens:
    """The token halves of some ids, computed block by block where somebody asks for rows of them."""

    def __init__(self, drafter: Eagle3Drafter, ids: Tensor, wiring: Wiring) -> None:
        self._drafter, self._ids, self._wiring = drafter, ids, wiring
        self._there = torch.zeros(-(-len(ids) // BLOCK), dtype=torch.bool)
        self._half: TokenHalf | None = None

    def take(self, rows: Tensor) -> TokenHalf:
        """The halves at `rows` [n]."""
        wanted = (rows // BLOCK).unique().cpu()
        for block in wanted[~self._there[wanted]].tolist():
            self._fill(block)
        assert self._half is not None
        return self._half.take(rows)

    def _fill(self, block: int) -> None:
        start, stop = block * BLOCK, min((block + 1) * BLOCK, len(self._ids))
        found = self._drafter.token_half(self._ids[start:stop], self._wiring)
        if self._half is None:
            self._half = TokenHalf(tuple(part.new_empty(len(self._ids), part.shape[1]) for part in found.parts))
        for part, new in zip(self._half.parts, found.parts, strict=True):
            part[start:stop] = new
        self._there[block] = True


class SampleRun:
    """One sample on one drafter. Not thread-safe: one engine thread owns it."""

    def __init__(self, drafter: Eagle3Drafter, sample: Sample) -> None:
        if sample.width != drafter.fusion.width:
            raise SampleError(
                f"recorded states are {sample.width} wide",
                expected=f"{drafter.fusion.width}, the target width of the drafter",
                where=sample.path,
            )
        self.drafter, self.sample = drafter, sample
        self.rows = sample.length - 1
        self.ids = sample.ids
        self._tokens: dict[tuple[str, str, LayersKept], _Tokens] = {}
        self._masked: dict[Wiring, LayerInput] = {}
        self._states: dict[tuple[int, int, int], Tensor] = {}
        self._parts: dict[tuple[int, int], _Part] = {}
        self._parts_of: Fusion | None = None
        self._contexts: OrderedDict[tuple[Ordering, Wiring], Context] = OrderedDict()

    # ------------------------------------------------------------------ tokens

    def committed(self, wiring: Wiring) -> _Tokens:
        """Entry t is the token of row t at step 0: x[t+1], or x[t]. Raises SampleError for ids without an embedding."""
        if wiring.row_ids == "same":
            return self._halves("same", wiring, lambda: self.ids[:-1])
        return self._halves("next", wiring, lambda: self.ids[1:])

    def forced(self, wiring: Wiring) -> _Tokens:
        """Entry t + k is what row t is fed at step k >= 1 if the sample's own x[t+1+k] was drafted."""
        if wiring.fed_ids == "draft":
            return self._halves(f"draft {wiring.d2t}", wiring, lambda: self._draft_numbers(wiring)[1:])
        return self._halves("next", wiring, lambda: self.ids[1:])

    def drafted(self, draft_ids: Tensor, wiring: Wiring) -> TokenHalf:
        """The halves of the drafts `draft_ids` [n], each of which is looked up once: many rows draft the same."""
        ids, places = self.drafter.fed_ids(draft_ids, wiring).unique(return_inverse=True)
        return self.drafter.token_half(ids, wiring).take(places)

    def _draft_numbers(self, wiring: Wiring) -> Tensor:
        """[T] draft ids of the tokens; one that cannot be drafted is never fed after a right draft, and stays."""
        known = self.drafter.vocab(wiring).draft_ids
        drafts = known[self.ids.clamp(0, len(known) - 1)]
        return torch.where((drafts >= 0) & (self.ids < len(known)), drafts, self.ids)

    def _halves(self, name: str, wiring: Wiring, ids: Callable[[], Tensor]) -> _Tokens:
        key = (name, wiring.embedding, LayersKept.of(wiring))
        if key not in self._tokens:
            wanted = ids()
            self.drafter.embedding(wiring).check(wanted)
            self._tokens[key] = _Tokens(self.drafter, wanted, wiring)
        return self._tokens[key]

    # ------------------------------------------------------------------ rows

    def masked(self, rows: int, wiring: Wiring) -> LayerInput:
        """What P-EAGLE feeds `rows` rows at any step >= 1."""
        if wiring not in self._masked:
            self._masked = {wiring: self.drafter.masked_input(wiring)}
        return self._masked[wiring].repeat(rows)

    def place(self, rows: Tensor, k: int, wiring: Wiring) -> Place:
        """Where `rows` [n] (ascending, where the drafter runs) stand at step k."""
        ahead = {"advance": k, "constant": 0, "late": k + 1 if k else 0}[wiring.positions]
        rotary = self.drafter.rotary(wiring.rope, self.rows + k)
        width = self.drafter.config.sliding_window if wiring.window != "none" else None
        window = None if width is None else Window(width, k if wiring.window == "moving" else 0)
        return Place(rows, rows + ahead, rotary, self.drafter.layers_of(wiring), window, wiring.draft_keys)

    def states(self, slot: int, start: int, stop: int) -> Tensor:
        """[stop - start, Ht] of a slot, where and as the drafter runs; a small sample's states are kept."""
        key = (slot, start, stop)
        if key in self._states:
            return self._states[key]
        placement = self.drafter.placement
        rows = self.sample.slots[slot].tensor.rows(start, stop).to(placement.device, placement.dtype)
        if len(self.sample.slots) * self.rows * self.sample.width * rows.element_size() <= MAX_STATES:
            self._states[key] = rows
        return rows

    def context(self, ordering: Ordering, wiring: Wiring, rows: int, poll: Callable[[], None]) -> Context:
        """The context of `ordering` with at least `rows` rows filled; `poll` is called between blocks.

        Wirings that only differ in later steps share their tensors.
        """
        key = (ordering, wiring.of_rows())
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = self._empty(*key)
            while len(self._contexts) > 2 and len(self._contexts) * context.nbytes > MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        while context.filled < rows:
            poll()
            if context.filled < rows:  # what ran in the poll may have filled it
                self._fill(context, min(context.filled + BLOCK, self.rows))
        return replace(context, wiring=wiring)

    def _empty(self, ordering: Ordering, wiring: Wiring) -> Context:
        drafter, placement = self.drafter, self.drafter.placement

        def empty(*shape: int) -> Tensor:
            return torch.empty(self.rows, *shape, device=placement.device, dtype=placement.dtype)

        attention = [layer.attention for layer in drafter.layers]
        keys, values = [empty(*a.key_shape) for a in attention], [empty(*a.value_shape) for a in attention]
        width = drafter.config.hidden_size
        return Context(ordering, wiring, keys, values, empty(width), empty(width))

    def _fill(self, context: Context, stop: int) -> None:
        """One more block: all layers up to the keys and values of the last."""
        start, wiring = context.filled, context.wiring
        rows = torch.arange(start, stop, device=self.drafter.placement.device)
        place = self.place(rows, 0, wiring)
        layers = place.layers
        g = self._fused(context.ordering, wiring, start, stop)
        given = self.drafter.first_input(g, self.committed(wiring).take(rows), wiring)
        context.residual[start:stop], context.normed[start:stop] = given.residual, given.normed
        for i, layer in enumerate(layers):
            self._store(context, i, start, *layer.keys_values(given, place))
            if i + 1 < len(layers):
                seen = Seen.first(context.keys[i], context.values[i], stop - start)
                given = self.drafter.next_input(layer.forward(given, place, seen), layers[i + 1])
        context.filled = stop

    def _store(self, context: Context, layer: int, start: int, k: Tensor, v: Tensor) -> None:
        # 0 * NaN is NaN: as a value it would reach earlier rows; as a key it spoils only its own row and later ones
        bad = ~(k.isfinite().flatten(1).all(1) & v.isfinite().flatten(1).all(1))[:, None, None]  # [n, 1, 1]
        context.keys[layer][start : start + len(k)] = k.masked_fill(bad, float("nan"))
        context.values[layer][start : start + len(v)] = v.masked_fill(bad, 0.0)

    def _fused(self, ordering: Ordering, wiring: Wiring, start: int, stop: int) -> Tensor:
        """fc of the ordering's states, rows start..stop-1: a sum of shared products where that is exact and fits."""
        fusion = self.drafter.fusion_of(wiring)
        if self.drafter.shares_fc(fusion) and self._shared_bytes() <= MAX_SHARED:
            return fusion.total([self._part(fusion, slot, i, start, stop) for i, slot in enumerate(ordering)])
        return fusion([self.states(slot, start, stop) for slot in ordering])

    def _shared_bytes(self) -> int:
        width = self.drafter.config.hidden_size
        return len(self.sample.slots) * self.drafter.fusion.inputs * self.rows * width * 4

    def _part(self, fusion: Fusion, slot: int, position: int, start: int, stop: int) -> Tensor:
        """[stop - start, H]: contexts fill from row 0 on in the same blocks, so no row is computed twice.

        The products of one fusion are kept: another wiring may leave a norm out of it.
        """
        if self._parts_of is not fusion:
            self._parts, self._parts_of = {}, fusion
        part = self._parts.get((slot, position))
        if part is None:
            first = fusion.part(self.states(slot, 0, min(BLOCK, self.rows)), position)
            part = self._parts[slot, position] = _Part(first.new_empty(self.rows, first.shape[1]), len(first))
            part.product[: len(first)] = first
        while part.filled < stop:
            end = min(part.filled + BLOCK, self.rows)
            part.product[part.filled : end] = fusion.part(self.states(slot, part.filled, end), position)
            part.filled = end
        return part.product[start:stop]

    def given(self, context: Context, rows: Tensor) -> LayerInput:
        """The step-0 input of `rows`, which are filled."""
        tokens = self.committed(context.wiring).take(rows)
        return LayerInput(context.residual[rows], context.normed[rows], tokens)

    def fed(self, context: Context, rows: Tensor, hidden: Tensor, tokens: TokenHalf) -> LayerInput:
        """The input of a later step of `rows` [n]: `tokens` beside what comes back of h [n, H] of the step before."""
        wiring = context.wiring
        if wiring.feedback == "first":
            return LayerInput(context.residual[rows], context.normed[rows], tokens)
        return self.drafter.first_input(self.drafter.feedback(hidden, wiring), tokens, wiring)
