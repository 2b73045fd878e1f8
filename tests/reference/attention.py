"""One row's attention over the rows that it may see: grouped-query heads, or DeepSeek's latent heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference.pieces import Weights
from tests.reference.rotary import Rope

# What one row leaves behind for later rows, for each layer: its key [nk, hd] and its value [nk, hd or v].
KeyValue = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Latent:
    """Head sizes of latent attention (MLA): a head is `nope` plain elements and then `rope` turned ones."""

    nope: int
    rope: int
    value: int
    kv_rank: int


def grouped(
    w: Weights,
    at: str,
    x: Tensor,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope: Rope,
    position: int,
    length: int,
    seen: Sequence[KeyValue],
) -> tuple[Tensor, KeyValue]:
    """x [in] -> [H]; `seen` are the keys and values that the row may look at beside its own."""
    q = w.linear(x, f"{at}.q_proj").view(heads, head_dim)
    k = w.linear(x, f"{at}.k_proj").view(kv_heads, head_dim)
    v = w.linear(x, f"{at}.v_proj").view(kv_heads, head_dim)
    if f"{at}.q_norm" in w:
        q, k = w.norm(q, f"{at}.q_norm"), w.norm(k, f"{at}.k_norm")
    q, k = rope.turn(q, position, length), rope.turn(k, position, length)
    out = _mix(q, [*seen, (k, v)], head_dim**-0.5)
    return w.linear(out, f"{at}.o_proj"), (k, v)


def latent(
    w: Weights,
    at: str,
    x: Tensor,
    heads: int,
    sizes: Latent,
    rope: Rope,
    position: int,
    length: int,
    seen: Sequence[KeyValue],
) -> tuple[Tensor, KeyValue]:
    """As `grouped`: queries through a low-rank pair (or one matrix), keys and values out of one latent vector."""
    if f"{at}.q_a_proj" in w:
        q = w.linear(w.norm(w.linear(x, f"{at}.q_a_proj"), f"{at}.q_a_layernorm"), f"{at}.q_b_proj")
    else:
        q = w.linear(x, f"{at}.q_proj")
    q_plain, q_turned = q.view(heads, sizes.nope + sizes.rope).split([sizes.nope, sizes.rope], dim=-1)
    both = w.linear(x, f"{at}.kv_a_proj_with_mqa")
    packed, shared = both.split([sizes.kv_rank, sizes.rope])
    opened = w.linear(w.norm(packed, f"{at}.kv_a_layernorm"), f"{at}.kv_b_proj")
    k_plain, v = opened.view(heads, sizes.nope + sizes.value).split([sizes.nope, sizes.value], dim=-1)
    q_turned = rope.turn(q_turned, position, length)
    k_turned = rope.turn(shared[None], position, length).expand(heads, -1)  # one turned slice for all heads
    k = torch.cat([k_plain, k_turned], dim=-1)
    scale = (sizes.nope + sizes.rope) ** -0.5 * rope.latent_scale
    out = _mix(torch.cat([q_plain, q_turned], dim=-1), [*seen, (k, v)], scale)
    return w.linear(out, f"{at}.o_proj"), (k, v)


def _mix(q: Tensor, rows: Sequence[KeyValue], scale: float) -> Tensor:
    """q [nh, hd] over all rows -> [nh * v], one head after another."""
    keys, values = torch.stack([k for k, _ in rows]), torch.stack([v for _, v in rows])  # [S, nk, hd], [S, nk, v]
    out = []
    for head in range(len(q)):
        shared = head // (len(q) // keys.shape[1])  # neighbouring query heads share one key head
        scores = keys[:, shared] @ q[head] * scale  # [S]
        out.append(scores.softmax(0) @ values[:, shared])
    return torch.cat(out)
