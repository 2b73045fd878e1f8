"""Attention of the training-time test: a row sees the step-0 keys of rows <= itself and its own later keys.

The same pattern is chain drafting: the step-0 keys are the committed context, the later ones the drafts so far.
"""

from __future__ import annotations

import torch
from torch import Tensor


def attend(q: Tensor, rows: Tensor, keys: Tensor, values: Tensor, own_keys: Tensor, own_values: Tensor) -> Tensor:
    """[n, nh * hd] of queries q [n, nh, hd] in the ascending `rows` [n].

    keys, values [R, nk, hd] are those of step 0; own_keys, own_values [n, j, nk, hd] those of steps 1..j of each row.
    Softmax in float32, scale 1 / sqrt(hd).
    """
    n, nh, hd = q.shape
    nk = keys.shape[1]
    seen = int(rows[-1]) + 1
    grouped = q.view(n, nk, nh // nk, hd)  # query heads that share a key head lie together
    by_head = grouped.permute(1, 0, 2, 3).reshape(nk, n * (nh // nk), hd)
    scores = torch.bmm(by_head, keys[:seen].permute(1, 2, 0))  # [nk, n * g, seen]
    scores = scores.view(nk, n, nh // nk, seen).permute(1, 0, 2, 3).float()  # [n, nk, g, seen]
    future = torch.arange(seen, device=q.device)[None, :] > rows[:, None]  # [n, seen]
    scores = scores.masked_fill(future[:, None, None, :], float("-inf"))
    own = torch.einsum("nkgd,njkd->nkgj", grouped, own_keys).float()  # [n, nk, g, j]
    weights = torch.softmax(torch.cat([scores, own], dim=-1) * hd**-0.5, dim=-1).to(q.dtype)
    past = weights[..., :seen].permute(1, 0, 2, 3).reshape(nk, n * (nh // nk), seen)
    mixed = torch.bmm(past, values[:seen].permute(1, 0, 2))  # [nk, n * g, hd]
    mixed = mixed.view(nk, n, nh // nk, hd).permute(1, 0, 2, 3)
    mixed = mixed + torch.einsum("nkgj,njkd->nkgd", weights[..., seen:], own_values)
    return mixed.reshape(n, nh * hd)
