"""What the target would make of recorded rows: whether its final norm was applied, and which token its head names.

Of the head only the rows of a sample's own tokens are read, never the whole. Knows nothing of claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter.checkpoint.target import TargetFolder
from drafter.files.stored import FLOATS, StoredTensor
from drafter.sample.probes.embed_test import Share
from drafter.sample.probes.scan import spread
from drafter.sample.sample import Sample

if TYPE_CHECKING:
    import torch

CANDIDATES = 2048  # rows of the head in memory at once
HEAD_BYTES = 1 << 28  # and no more than this, in float32
NORM_TOLERANCE = 0.02
_TINY = 1e-4  # of the largest norm weight: columns below tell nothing
_ROWS = 64  # states that meet the candidates at once


@dataclass(frozen=True)
class Lens:
    """The target's end, as far as it is there: the final norm's factors [Ht], and some rows of a head.

    `row_of` [V] is the row of `head` that stands for each token, -1 where there is none; None where id = row.
    """

    norm: torch.Tensor | None = None
    head: StoredTensor | None = None
    row_of: torch.Tensor | None = None
    source: str = ""

    def rows_of(self, ids: torch.Tensor) -> torch.Tensor:
        """The head's row for each of `ids` [n], -1 where it has none."""
        import torch

        known = self.row_of.numel() if self.row_of is not None else self.head.shape[0] if self.head else 0
        inside = (ids >= 0) & (ids < known)
        rows = self.row_of[ids.clamp(0, known - 1)] if self.row_of is not None else ids
        return torch.where(inside, rows, -1)


def lens_of(
    target: TargetFolder | None, width: int, own_head: StoredTensor | None, draft_ids: torch.Tensor | None
) -> Lens:
    """What fits states of `width`: the target's norm, and its head, else the drafter's own over its vocabulary.

    `draft_ids` [V] gives the row of `own_head` for each token, -1 outside of the draft vocabulary.
    """
    norm = None
    if target is not None and target.norm is not None and target.norm.shape == (width,):
        norm = target.norm.read().double() + (1 if target.norm_is_one_plus_weight else 0)
    if target is not None and _fits(target.head, width):
        source = "the target's embedding, tied" if target.tied else "the target's head"
        return Lens(norm, target.head, None, source)
    if own_head is not None and draft_ids is not None and _fits(own_head, width):
        last = own_head.shape[0] - 1
        return Lens(norm, own_head, draft_ids.masked_fill(draft_ids > last, -1), "the drafter's own head")
    return Lens(norm)


def _fits(head: StoredTensor | None, width: int) -> bool:
    return head is not None and head.dtype in FLOATS and len(head.shape) == 2 and head.shape[1] == width


def norm_share(states: torch.Tensor, lens: Lens) -> Share | None:
    """Rows y of `states` [n, Ht] with RMS(y / w) = 1 within 2 %, which is what a norm with weight w leaves.

    Rows that are zero or not finite do not count. None without a norm, or where most of its weights are next to zero.
    """
    if lens.norm is None:
        return None
    columns = lens.norm.abs() > _TINY * lens.norm.abs().max()
    if int(columns.sum()) * 2 < columns.numel():
        return None
    scaled = (states[:, columns].double() / lens.norm[columns]).square().mean(1).sqrt()  # [n]
    scaled = scaled[scaled.isfinite() & (scaled > 0)]
    return Share(int(((scaled - 1).abs() <= NORM_TOLERANCE).sum()), scaled.numel())


@dataclass(frozen=True)
class Agreement:
    """Rows t at which the argmax over `candidates` tokens of head . N(y[t]) is x[t], x[t + 1], x[t + 2].

    N is the final norm where `normed`, else nothing. `chance` is the share of the most frequent x[t + 1].
    """

    normed: bool
    same: Share
    next: Share
    after: Share
    candidates: int
    chance: Share
    source: str

    @property
    def norm_said(self) -> str:
        return "RMSNorm(y[t])" if self.normed else "y[t]"


@dataclass(frozen=True)
class Candidates:
    """What every slot of a sample is held against: `rows` t, `ids` [c] ascending, `head` [c, Ht] float32."""

    rows: list[int]
    ids: torch.Tensor
    head: torch.Tensor


def predicting_rows(sample: Sample) -> list[int]:
    """At most 256 rows t, spread over those whose x[t + 1] is supervised and that have x[t] to x[t + 2]."""
    good = sample.supervised[1:-1] & (sample.ids[:-2] >= 0) & (sample.ids[1:-1] >= 0) & (sample.ids[2:] >= 0)
    return spread(good.nonzero().flatten().tolist())


def candidates(sample: Sample, lens: Lens, rows: list[int]) -> Candidates | None:
    """The distinct tokens of the sample that the head has, those near `rows` first; None without a head or tokens."""
    import torch

    if lens.head is None or not rows:
        return None
    at = torch.tensor(rows)
    near = torch.cat([sample.ids[at], sample.ids[at + 1], sample.ids[at + 2]]).unique()
    every = sample.ids.unique()
    ids = torch.cat([near, every[~torch.isin(every, near)]])
    most = min(CANDIDATES, HEAD_BYTES // (4 * lens.head.shape[1]))
    ids = ids[lens.rows_of(ids) >= 0][:most].sort().values
    if ids.numel() < 2:
        return None
    return Candidates(rows, ids, lens.head.gather(lens.rows_of(ids).tolist()).float())


def agreements(
    sample: Sample, states: torch.Tensor, found: Candidates, lens: Lens, poll: Callable[[], None] = lambda: None
) -> tuple[Agreement, ...]:
    """Without the norm and, where it is there, with it; `states` [n, Ht] are those at `found.rows`."""
    import torch

    rows = torch.tensor(found.rows)
    finite = states.double().norm(dim=1).isfinite() & (states != 0).any(dim=1)
    truths = [sample.ids[rows + ahead] for ahead in (0, 1, 2)]
    known = [finite & torch.isin(truth, found.ids) for truth in truths]
    counted = truths[1][known[1]]
    chance = Share(int(counted.unique(return_counts=True)[1].max()) if counted.numel() else 0, counted.numel())
    out = []
    for normed in (False, True) if lens.norm is not None else (False,):
        said = found.ids[_best(states, found.head, lens if normed else Lens(), poll)]
        same, after_it, later = (
            Share(int((said == truth)[here].sum()), int(here.sum())) for truth, here in zip(truths, known, strict=True)
        )
        out.append(Agreement(normed, same, after_it, later, found.ids.numel(), chance, lens.source))
    return tuple(out)


def _best(states: torch.Tensor, head: torch.Tensor, lens: Lens, poll: Callable[[], None]) -> torch.Tensor:
    """[n]: the row of `head` [c, Ht] with the greatest product."""
    import torch

    best = []
    for block in states.split(_ROWS):
        poll()
        y = block.float()
        if lens.norm is not None:
            y = y * lens.norm.float()  # the norm also divides a row by one number, which changes no argmax
        best.append((y @ head.T).argmax(-1))
    return torch.cat(best)
