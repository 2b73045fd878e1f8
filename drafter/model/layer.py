"""One decoder layer. Layer 0 takes the token beside the hidden; the layers above are ordinary ones.

y = residual + o_proj(attention);  h = y + MLP(RMS(y; post_attention_layernorm))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from drafter.checkpoint.config import DrafterConfig
from drafter.errors import CheckpointError
from drafter.model.attention import Seen, Window, attend
from drafter.model.gqa import Gqa
from drafter.model.mla import Mla
from drafter.model.norm import rms_norm
from drafter.model.projection import Linear, TokenHalf, Weights, weight_of
from drafter.model.rope import Rotary


@dataclass(frozen=True)
class LayerInput:
    """A block of rows before a layer: residual [n, H], normed [n, H], and in layer 0 what the tokens contribute."""

    residual: Tensor
    normed: Tensor
    tokens: TokenHalf | None = None

    def repeat(self, rows: int) -> LayerInput:
        """The one row of this input, in `rows` rows."""
        tokens = None if self.tokens is None else self.tokens.repeat(rows)
        return LayerInput(self.residual.expand(rows, -1), self.normed.expand(rows, -1), tokens)


@dataclass(frozen=True)
class Place:
    """Where a block stands at one step: `rows` [n] ascending, their `positions` [n], the rotation, the layers that it
    passes, the window, and what a draft sees of the keys before it (`Wiring.draft_keys`)."""

    rows: Tensor
    positions: Tensor
    rotary: Rotary
    layers: Sequence[DecoderLayer]
    window: Window | None = None
    draft_keys: str = "kept"


class Attention(Protocol):
    key_shape: tuple[int, int]
    value_shape: tuple[int, int]
    out: Linear

    def scale(self, rotary: Rotary) -> float: ...

    def token_half(self, e: Tensor) -> TokenHalf: ...

    def queries(self, normed: Tensor, tokens: TokenHalf | None, positions: Tensor, rotary: Rotary) -> Tensor: ...

    def keys_values(
        self, normed: Tensor, tokens: TokenHalf | None, positions: Tensor, rotary: Rotary
    ) -> tuple[Tensor, Tensor]: ...


_ATTENTION: dict[str, type[Gqa] | type[Mla]] = {"gqa": Gqa, "mla": Mla}


class DecoderLayer:
    """`adds_residual` is False for a program that hands on the MLP's output alone."""

    def __init__(self, weights: Weights, index: int, config: DrafterConfig, adds_residual: bool = True) -> None:
        if config.attention not in _ATTENTION:
            raise CheckpointError(f"attention {config.attention!r}, which this version does not compute")
        name, self._eps = f"layers.{index}", config.rms_norm_eps
        self._windowed, self._adds_residual = config.window_of(index) is not None, adds_residual
        self.attention: Attention = _ATTENTION[config.attention](weights, f"{name}.self_attn", config)
        self.input_norm = weight_of(weights, f"{name}.input_layernorm.weight")
        self._norm = weight_of(weights, f"{name}.post_attention_layernorm.weight")
        self._gate, self._up, self._down = (Linear(weights, f"{name}.mlp.{p}_proj") for p in ("gate", "up", "down"))

    def keys_values(self, given: LayerInput, place: Place) -> tuple[Tensor, Tensor]:
        """k [n, nk, hd] and v [n, nk, vd] of the rows at their place."""
        return self.attention.keys_values(given.normed, given.tokens, place.positions, place.rotary)

    def forward(self, given: LayerInput, place: Place, seen: Seen) -> Tensor:
        """h [n, H] of a block of rows, each of which sees itself too: its own key is in `seen`."""
        attention = self.attention
        q = attention.queries(given.normed, given.tokens, place.positions, place.rotary)
        window = place.window if self._windowed else None
        mixed = attend(q, place.rows, seen, attention.scale(place.rotary), window)
        y = given.residual + attention.out(mixed)
        x = rms_norm(y, self._norm, self._eps)
        out: Tensor = self._down(F.silu(self._gate(x)) * self._up(x))
        return y + out if self._adds_residual else out
