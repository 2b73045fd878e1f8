"""Eagle3Drafter: the forward of a one-layer GQA drafter, in the pieces that drafting and sweeps share.

Row t holds the recorded states of position t and the embedding of token x[t+1]; its step 0 predicts x[t+2]. Shapes:
R rows, n of them in a block, H drafter width, Ht target width, A states feeding fc, D draft vocabulary, nh / nk query
and key heads of hd. The definition is the one that speculators, SpecForge and SafeAILab's EAGLE agree on:

    g = fc(concat(states));  e = RMS(embed[x[t+1]]);  hN = RMS(g; hidden_norm)
    y = res + o_proj(attention(concat(e, hN)));  res = hN if norm_before_residual else g
    h = y + MLP(RMS(y));  logits = lm_head(RMS(h; norm));  fed back: h, or RMS(h; norm) if norm_output

Knows nothing of files, samples and orderings.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from drafter.checkpoint.config import DrafterConfig
from drafter.checkpoint.vocab_map import VocabMap
from drafter.model.attention import attend
from drafter.model.device import Placement
from drafter.model.embedding import EmbeddingTable
from drafter.model.rope import inverse_frequencies, rotate
from drafter.wiring import Wiring

_ATTN, _MLP = "layers.0.self_attn", "layers.0.mlp"


@dataclass(frozen=True)
class TokenHalf:
    """What the token contributes to q [n, nh*hd], k and v [n, nk*hd]; it does not depend on the ordering."""

    q: Tensor
    k: Tensor
    v: Tensor

    def take(self, rows: Tensor) -> TokenHalf:
        return TokenHalf(self.q[rows], self.k[rows], self.v[rows])


@dataclass(frozen=True)
class RowInput:
    """The hidden side of a block of rows: the residual [n, H] and the normed hidden [n, H]."""

    residual: Tensor
    normed: Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., H] / rms(x) in float32, cast back, times `weight` [H]."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


class Eagle3Drafter:
    def __init__(
        self,
        config: DrafterConfig,
        weights: dict[str, Tensor],
        embedding: EmbeddingTable,
        vocab: VocabMap,
        placement: Placement,
    ) -> None:
        self.config, self.embedding, self.vocab, self.placement = config, embedding, vocab, placement
        self._w = weights
        self._frequencies = inverse_frequencies(config.rope, config.head_dim).to(placement.device)
        self._target_ids = vocab.target_ids.to(placement.device)

    # ------------------------------------------------------------------ the token side

    def token_half(self, ids: Tensor) -> TokenHalf:
        """The token's part of q, k and v for `ids` [n]. Raises SampleError for ids outside of the embedding."""
        rows = self.embedding.rows(ids.cpu()).to(self.placement.device, self.placement.dtype)  # [n, H]
        normed = rms_norm(rows, self._w["layers.0.input_layernorm.weight"], self.config.rms_norm_eps)
        q, k, v = (F.linear(normed, self._half(p, 0), self._w.get(f"{_ATTN}.{p}_proj.bias")) for p in "qkv")
        return TokenHalf(q, k, v)

    def _half(self, projection: str, which: int) -> Tensor:
        width = self.config.hidden_size
        return self._w[f"{_ATTN}.{projection}_proj.weight"][:, which * width : (which + 1) * width]

    # ------------------------------------------------------------------ the state side

    @property
    def fc_inputs(self) -> int:
        """A, the states that fc takes."""
        return self._w["fc.weight"].shape[1] // self.config.target_hidden_size

    @property
    def can_share_fc(self) -> bool:
        """Whether fc(concat(a, b, c)) may be summed from products per state: float32, and no norm spans all."""
        return self.placement.dtype == torch.float32 and not self.config.norm_before_fc

    def fc_part(self, state: Tensor, position: int) -> Tensor:
        """[n, H]: what `state` [n, Ht] contributes when it stands at `position` among the inputs of fc."""
        width = self.config.target_hidden_size
        block = self._w["fc.weight"][:, position * width : (position + 1) * width]
        return F.linear(self._chunk_norm(state, position), block)

    def fc_sum(self, parts: list[Tensor]) -> Tensor:
        total = torch.stack(parts).sum(0)
        bias = self._w.get("fc.bias")
        return total if bias is None else total + bias

    def fuse(self, states: list[Tensor]) -> Tensor:
        """g [n, H] = fc of the states [n, Ht], in order."""
        if self.config.norm_before_fc:
            joined = rms_norm(torch.cat(states, -1), self._w["input_norm.weight"], self.config.rms_norm_eps)
            states = list(joined.split(self.config.target_hidden_size, -1))
        joined = torch.cat([self._chunk_norm(state, i) for i, state in enumerate(states)], -1)  # [n, A * Ht]
        return F.linear(joined, self._w["fc.weight"], self._w.get("fc.bias"))

    def _chunk_norm(self, state: Tensor, position: int) -> Tensor:
        if not self.config.fc_norm:
            return state
        return rms_norm(state, self._w[f"fc_norm.{position}.weight"], self.config.rms_norm_eps)

    def row_input(self, hidden: Tensor, wiring: Wiring) -> RowInput:
        """The two faces of `hidden` [n, H]: fc's output at step 0, the fed-back state later."""
        normed = rms_norm(hidden, self._w["layers.0.hidden_norm.weight"], self.config.rms_norm_eps)
        return RowInput(normed if wiring.norm_before_residual else hidden, normed)

    # ------------------------------------------------------------------ the layer

    def keys_values(self, normed: Tensor, tokens: TokenHalf, positions: Tensor) -> tuple[Tensor, Tensor]:
        """k (rotated to `positions` [n]) and v, both [n, nk, hd]."""
        k = self._heads(torch.addmm(tokens.k, normed, self._half("k", 1).T), "k_norm")
        v = torch.addmm(tokens.v, normed, self._half("v", 1).T)
        return rotate(k, positions, self._frequencies), v.view(-1, self.config.num_kv_heads, self.config.head_dim)

    def queries(self, normed: Tensor, tokens: TokenHalf, positions: Tensor) -> Tensor:
        """q [n, nh, hd], rotated to `positions` [n]."""
        q = self._heads(torch.addmm(tokens.q, normed, self._half("q", 1).T), "q_norm")
        return rotate(q, positions, self._frequencies)

    def _heads(self, x: Tensor, norm: str) -> Tensor:
        split = x.view(x.shape[0], -1, self.config.head_dim)
        weight = self._w.get(f"{_ATTN}.{norm}.weight")
        return split if weight is None else rms_norm(split, weight, self.config.rms_norm_eps)

    def layer(
        self, row: RowInput, q: Tensor, rows: Tensor, keys: Tensor, values: Tensor, own_k: Tensor, own_v: Tensor
    ) -> Tensor:
        """h [n, H] of a block of rows: attention (see `attend`), residual, MLP."""
        mixed = attend(q, rows, keys, values, own_k, own_v)
        y = row.residual + F.linear(mixed, self._w[f"{_ATTN}.o_proj.weight"], self._w.get(f"{_ATTN}.o_proj.bias"))
        x = rms_norm(y, self._w["layers.0.post_attention_layernorm.weight"], self.config.rms_norm_eps)
        gate, up = (
            F.linear(x, self._w[f"{_MLP}.{p}_proj.weight"], self._w.get(f"{_MLP}.{p}_proj.bias"))
            for p in ("gate", "up")
        )
        down = F.linear(F.silu(gate) * up, self._w[f"{_MLP}.down_proj.weight"], self._w.get(f"{_MLP}.down_proj.bias"))
        return y + down

    # ------------------------------------------------------------------ out

    def final_norm(self, hidden: Tensor) -> Tensor:
        return rms_norm(hidden, self._w["norm.weight"], self.config.rms_norm_eps)

    def feedback(self, hidden: Tensor, wiring: Wiring) -> Tensor:
        """What the next draft step is fed: h [n, H] before or after the final norm."""
        return self.final_norm(hidden) if wiring.norm_output else hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, D] float32 over the draft vocabulary."""
        return F.linear(self.final_norm(hidden), self._w["lm_head.weight"]).float()

    def to_target(self, draft_ids: Tensor) -> Tensor:
        """Target token ids of `draft_ids`, through the vocab map."""
        return self._target_ids[draft_ids]
