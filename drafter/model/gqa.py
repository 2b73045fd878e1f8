"""Grouped-query attention: heads that share keys, with or without norms on q and k."""

from __future__ import annotations

from torch import Tensor

from drafter.checkpoint.config import DrafterConfig
from drafter.model.norm import rms_norm
from drafter.model.projection import Joined, Linear, TokenHalf, Weights
from drafter.model.rope import Rotary


class Gqa:
    """nh query heads over nk key heads of hd (nk = nh: multi-head attention)."""

    def __init__(self, weights: Weights, name: str, config: DrafterConfig) -> None:
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.key_shape = self.value_shape = (config.num_kv_heads, config.head_dim)
        self._q, self._k, self._v = (Joined(weights, f"{name}.{p}_proj", config.hidden_size) for p in "qkv")
        self._q_norm, self._k_norm = (weights.get(f"{name}.{p}_norm.weight") for p in "qk")
        self.out, self._eps = Linear(weights, f"{name}.o_proj"), config.rms_norm_eps

    def scale(self, rotary: Rotary) -> float:
        return float(self.head_dim**-0.5)

    def token_half(self, e: Tensor) -> TokenHalf:
        return TokenHalf((self._q.token(e), self._k.token(e), self._v.token(e)))

    def queries(self, normed: Tensor, tokens: TokenHalf | None, positions: Tensor, rotary: Rotary) -> Tensor:
        """q [n, nh, hd], rotated to `positions` [n]."""
        q = self._q.join(normed, tokens, 0)
        return rotary.rotate(self._split(q, self.heads, self._q_norm), positions)

    def keys_values(
        self, normed: Tensor, tokens: TokenHalf | None, positions: Tensor, rotary: Rotary
    ) -> tuple[Tensor, Tensor]:
        """k (rotated to `positions` [n]) and v, both [n, nk, hd]."""
        k = self._k.join(normed, tokens, 1)
        v = self._v.join(normed, tokens, 2)
        k = rotary.rotate(self._split(k, self.kv_heads, self._k_norm), positions)
        return k, self._split(v, self.kv_heads, None)

    def _split(self, x: Tensor, heads: int, norm: Tensor | None) -> Tensor:
        split = x.view(x.shape[0], heads, self.head_dim)
        return split if norm is None else rms_norm(split, norm, self._eps)
