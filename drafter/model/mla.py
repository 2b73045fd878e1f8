"""Multi-head latent attention (DeepSeek, Kimi): keys and values out of one low-rank vector for each row.

Keys are opened to all heads here, as training does; servers multiply the same matrices in another order. A head is
`nope` plain numbers and then `rope` rotated ones, and the rotated slice of a key is shared by all heads. The norms
inside take the config's eps, as servers do (transformers: 1e-6).
"""

from __future__ import annotations

import torch
from torch import Tensor

from drafter.checkpoint.config import DrafterConfig
from drafter.errors import CheckpointError
from drafter.model.norm import rms_norm
from drafter.model.projection import Joined, Linear, TokenHalf, Weights, weight_of
from drafter.model.rope import Rotary


class Mla:
    def __init__(self, weights: Weights, name: str, config: DrafterConfig) -> None:
        if config.mla is None:
            raise CheckpointError("latent attention (MLA) without its sizes", expected="kv_lora_rank and head sizes")
        self._sizes, self._eps, width = config.mla, config.rms_norm_eps, config.hidden_size
        self.heads = config.num_heads
        self._nope, self._rope = self._sizes.qk_nope_head_dim, self._sizes.qk_rope_head_dim
        self.key_shape = (self.heads, self._nope + self._rope)
        self.value_shape = (self.heads, self._sizes.v_head_dim)
        factored = self._sizes.q_lora_rank is not None
        self._q = Joined(weights, f"{name}.{'q_a_proj' if factored else 'q_proj'}", width)
        self._q_norm = weight_of(weights, f"{name}.q_a_layernorm.weight") if factored else None
        self._q_open = Linear(weights, f"{name}.q_b_proj") if factored else None
        self._kv = Joined(weights, f"{name}.kv_a_proj_with_mqa", width)
        self._kv_norm = weight_of(weights, f"{name}.kv_a_layernorm.weight")
        self._kv_open = Linear(weights, f"{name}.kv_b_proj")
        self.out = Linear(weights, f"{name}.o_proj")

    def scale(self, rotary: Rotary) -> float:
        return float((self._nope + self._rope) ** -0.5) * rotary.softmax

    def token_half(self, e: Tensor) -> TokenHalf:
        return TokenHalf((self._q.token(e), self._kv.token(e)))

    def queries(self, normed: Tensor, tokens: TokenHalf | None, positions: Tensor, rotary: Rotary) -> Tensor:
        """q [n, nh, nope + rope], its last `rope` numbers rotated to `positions` [n]."""
        q = self._q.join(normed, tokens, 0)  # [n, q_lora] or [n, nh * (nope + rope)]
        if self._q_norm is not None and self._q_open is not None:
            q = self._q_open(rms_norm(q, self._q_norm, self._eps))
        plain, turned = q.view(-1, *self.key_shape).split([self._nope, self._rope], -1)
        return torch.cat([plain, rotary.rotate(turned, positions)], -1)

    def keys_values(
        self, normed: Tensor, tokens: TokenHalf | None, positions: Tensor, rotary: Rotary
    ) -> tuple[Tensor, Tensor]:
        """k [n, nh, nope + rope], rotated to `positions` [n], and v [n, nh, vd]."""
        both = self._kv.join(normed, tokens, 1)  # [n, kv_lora + rope]
        latent, shared = both.split([self._sizes.kv_lora_rank, self._rope], -1)
        opened = self._kv_open(rms_norm(latent, self._kv_norm, self._eps))  # [n, nh * (nope + vd)]
        plain, v = opened.view(-1, self.heads, self._nope + self.value_shape[1]).split(
            [self._nope, self.value_shape[1]], -1
        )
        turned = rotary.rotate(shared[:, None], positions)  # [n, 1, rope]
        return torch.cat([plain, turned.expand(-1, self.heads, -1)], -1), v
