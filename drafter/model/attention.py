"""Attention of the training-time test: a row sees the step-0 keys of rows <= itself and its own later keys.

The same pattern is chain drafting (the step-0 keys are the committed context, the later ones the drafts so far) and
P-EAGLE's (its depths are the steps).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """A sliding window: a key is seen only where it lies less than `width` places behind the query.

    Places are those of a server's cache, whatever the rotary positions are: a row's number, plus `step` for its own
    keys of that step.
    """

    width: int
    step: int


@dataclass(frozen=True)
class Seen:
    """The keys and values of one layer: `keys`, `values` [R, nk, hd] of step 0, `own_keys`, `own_values`
    [n, j, nk, hd] of the steps from `since` on of each row. A value may have another size than a key. `past` is False
    where the keys of step 0 are not seen."""

    keys: Tensor
    values: Tensor
    own_keys: Tensor
    own_values: Tensor
    since: int = 1
    past: bool = True

    @classmethod
    def first(cls, keys: Tensor, values: Tensor, rows: int) -> Seen:
        """What `rows` rows see at step 0: no keys of their own beside those of step 0."""
        own = [x.new_empty(rows, 0, *x.shape[1:]) for x in (keys, values)]
        return cls(keys, values, own[0], own[1])

    def with_own(self, keys: Tensor, values: Tensor, step: int, draft_keys: str = "kept") -> Seen:
        """At `step`: its keys, values [n, nk, hd] joined to each row's own, as far as `draft_keys` keeps those."""
        keys, values = keys[:, None], values[:, None]
        if draft_keys == "forgotten":
            return replace(self, own_keys=keys, own_values=values, since=step)
        own = torch.cat([self.own_keys, keys], 1), torch.cat([self.own_values, values], 1)
        return replace(self, own_keys=own[0], own_values=own[1], past=draft_keys != "alone")

    def take(self, rows: Tensor | slice) -> Seen:
        """What these of the rows see."""
        return replace(self, own_keys=self.own_keys[rows], own_values=self.own_values[rows])


def attend(q: Tensor, rows: Tensor, seen: Seen, scale: float, window: Window | None = None) -> Tensor:
    """[n, nh * vd] of queries q [n, nh, hd] in the ascending `rows` [n]; softmax in float32."""
    n, nh, hd = q.shape
    nk, vd = seen.values.shape[1:]
    stop = int(rows[-1]) + 1
    start = 0 if window is None else min(max(int(rows[0]) + window.step - window.width + 1, 0), stop)
    keys, values = seen.keys[start:stop], seen.values[start:stop]  # [s, nk, hd], [s, nk, vd]
    grouped = q.view(n, nk, nh // nk, hd)  # query heads that share a key head lie together
    by_head = grouped.permute(1, 0, 2, 3).reshape(nk, n * (nh // nk), hd)
    scores = torch.bmm(by_head, keys.permute(1, 2, 0))  # [nk, n * g, s]
    scores = scores.view(nk, n, nh // nk, stop - start).permute(1, 0, 2, 3).float()  # [n, nk, g, s]
    hidden = _hidden(rows, start, stop, window) | (not seen.past)
    scores = scores.masked_fill(hidden[:, None, None, :], float("-inf"))
    own = torch.einsum("nkgd,njkd->nkgj", grouped, seen.own_keys).float()  # [n, nk, g, j]
    if window is not None:
        behind = window.step - torch.arange(seen.since, seen.since + own.shape[-1], device=q.device)  # [j]
        own = own.masked_fill(behind >= window.width, float("-inf"))
    weights = torch.softmax(torch.cat([scores, own], dim=-1) * scale, dim=-1).to(q.dtype)
    past = weights[..., : stop - start].permute(1, 0, 2, 3).reshape(nk, n * (nh // nk), stop - start)
    mixed = torch.bmm(past, values.permute(1, 0, 2))  # [nk, n * g, vd]
    mixed = mixed.view(nk, n, nh // nk, vd).permute(1, 0, 2, 3)
    mixed = mixed + torch.einsum("nkgj,njkd->nkgd", weights[..., stop - start :], seen.own_values)
    return mixed.reshape(n, nh * vd)


def _hidden(rows: Tensor, start: int, stop: int, window: Window | None) -> Tensor:
    """[n, stop - start] bool: the step-0 keys of rows start..stop-1 that a row does not see."""
    keys = torch.arange(start, stop, device=rows.device)[None, :]
    future = keys > rows[:, None]
    if window is None:
        return future
    return future | (rows[:, None] + window.step - keys >= window.width)
