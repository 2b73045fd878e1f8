"""Whether recorded rows are the embedding of their tokens, with a table and without one.

With a table: rows against embed(x[t + shift]), shift -1, 0, +1. Without: rows of equal tokens are equal to the bit at
depth 0, which knows no context, and at no other depth. Knows nothing of claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter.sample.probes.scan import Scan
from drafter.sample.sample import Sample

if TYPE_CHECKING:
    import torch

    Table = Callable[[list[int]], torch.Tensor]

SHIFTS = (0, -1, 1)
EMBED_SHARE = 0.99  # share of equal rows from which a slot is the embedding: deeper states share none
MIN_PAIRS = 3  # pairs of equal tokens from which their rows tell anything
_EXACT, _QUANTISED = 1 / 128, 1 / 16  # rounding of bfloat16 and of 8-bit floats, relative to a row


@dataclass(frozen=True)
class Share:
    """`hits` of `total`."""

    hits: int = 0
    total: int = 0

    @property
    def ratio(self) -> float:
        return self.hits / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"{self.hits} of {self.total}"


@dataclass(frozen=True)
class EmbedTest:
    """`table[shift]`: rows equal to `scale` times embed(x[t + shift]); empty without a table of this width.

    `tokens[shift]`: pairs of places with equal x[t + shift] whose rows are equal. `strangers`: rows that equal the row
    of another token, as rows of an embedding do when they stand beside the wrong tokens. `first_other` is the first
    compared row that is not the embedding of its token. Rows that are zero or not finite are left out of all of it.
    """

    table: dict[int, Share]
    tokens: dict[int, Share]
    strangers: int
    scale: float = 1.0
    first_other: int | None = None

    @property
    def shift(self) -> int | None:
        """The shift at which the rows are embeddings: 0 for depth 0, -1 for rows that come one too late; None: no."""
        return next((shift for shift in SHIFTS if self._is(shift)), None)

    @property
    def known(self) -> bool:
        """Whether anything could be compared."""
        return bool(self.table) or self.tokens[0].total >= MIN_PAIRS

    @property
    def context_free(self) -> bool:
        """Whether equal tokens have equal rows, whatever the table says."""
        return self.tokens[0].total >= MIN_PAIRS and self.tokens[0].ratio >= EMBED_SHARE

    def _is(self, shift: int) -> bool:
        told = self.table.get(shift) if self.table else self.tokens[shift]
        least = 1 if self.table else MIN_PAIRS
        return told is not None and told.total >= least and told.ratio >= EMBED_SHARE


def embed_test(sample: Sample, scan: Scan, rows: Sequence[int], table: Table | None, *, quantised: bool) -> EmbedTest:
    """Compare the kept `rows` with `table(ids)` [n, Ht] where there is one, and all rows with each other."""
    tokens = {shift: _equal_tokens(sample, scan, shift) for shift in SHIFTS}
    strangers = _strangers(sample, scan)
    by_table: dict[int, Share] = {}
    first: int | None = None
    for shift in SHIFTS if table is not None else ():
        found = _against_table(sample, scan, rows, table, shift, _QUANTISED if quantised else _EXACT)
        if found is None:
            break
        places, same, scale = found
        by_table[shift] = share = Share(int(same.sum()), len(places))
        if shift == 0 and share.hits < share.total:
            first = places[int((~same).nonzero()[0])]
        if share.total and share.ratio >= EMBED_SHARE:
            return EmbedTest(by_table, tokens, strangers, scale, first)
    return EmbedTest(by_table, tokens, strangers, first_other=first)


def _against_table(
    sample: Sample, scan: Scan, rows: Sequence[int], table: Table | None, shift: int, tolerance: float
) -> tuple[list[int], torch.Tensor, float] | None:
    """Those of `rows` that can be compared, which of them are embed(x[t + shift]) [n] bool, and the factor.

    To the bit, else times one factor and within `tolerance`. None where the table is of another width.
    """
    import torch

    at = torch.tensor(list(rows), dtype=torch.int64)
    at = at[(at + shift >= 0) & (at + shift < sample.length)]
    at = at[sample.ids[at + shift] >= 0]
    if table is None or not at.numel():
        return [], torch.zeros(0, dtype=torch.bool), 1.0
    e = table(sample.ids[at + shift].tolist())
    norms = scan.norms[at]
    there = (norms > 0) & norms.isfinite() & (e != 0).any(dim=1)  # a token that is in no table has a row of zeros
    places: list[int] = at[there].tolist()
    states = scan.take(places)
    if e.shape[1] != states.shape[1]:
        return None
    return places, *_same_rows(states, e[there], tolerance)


def _same_rows(states: torch.Tensor, e: torch.Tensor, tolerance: float) -> tuple[torch.Tensor, float]:
    """Which rows of `states` [n, Ht] are those of `e` [n, Ht], and times which factor."""
    equal = (states == e.to(states.dtype)).all(dim=1)
    if int(equal.sum()) >= EMBED_SHARE * equal.numel():
        return equal, 1.0
    # some models scale the embedding on its way in, and 8-bit recordings round it
    y, e = states.double(), e.double()
    factors = (y * e).sum(1) / (e * e).sum(1)  # [n]
    finite = factors[factors.isfinite()]
    if not finite.numel() or float(finite.median()) <= 0:
        return equal, 1.0
    factor = finite.median()
    near = (y - factor * e).norm(dim=1) <= tolerance * (factor * e).norm(dim=1)
    return (near, float(factor)) if int(near.sum()) > int(equal.sum()) else (equal, 1.0)


def _equal_tokens(sample: Sample, scan: Scan, shift: int) -> Share:
    """Each place with the one before it of equal x[t + shift]: pairs whose rows are equal. All-zero rows do not count,
    nor do rows that are all the same.
    """
    import torch

    places = torch.arange(max(0, -shift), sample.length - max(0, shift))
    places = places[(sample.ids[places + shift] >= 0) & (scan.norms[places] > 0)]
    ids, marks = sample.ids[places + shift], scan.marks[places]
    if marks.unique().numel() < 2:
        return Share()
    ids, order = ids.sort(stable=True)
    same = ids[1:] == ids[:-1]
    equal = marks[order][1:] == marks[order][:-1]
    return Share(int((same & equal).sum()), int(same.sum()))


def _strangers(sample: Sample, scan: Scan) -> int:
    import torch

    places = torch.arange(sample.length)[(sample.ids >= 0) & (scan.norms > 0)]
    marks, order = scan.marks[places].sort(stable=True)
    ids = sample.ids[places][order]
    if marks.unique().numel() < 2:
        return 0
    return int(((marks[1:] == marks[:-1]) & (ids[1:] != ids[:-1])).sum())
