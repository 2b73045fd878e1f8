"""Slots of two recordings side by side, row by row: norms, angles, equal rows. Knows no verdicts.

States are read in blocks of at most 512 rows, all slots of a block once, within a fixed budget of memory.
n slots of ours, m of theirs, R rows, H width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drafter.files.stored import DTYPES
from drafter.sample.many.align import Alignment
from drafter.sample.sample import Sample, States

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 512  # rows read at once
BLOCK_BYTES = 1 << 28  # of float32 copies of a block of all slots
SPREAD_ROWS = 1024
# relative to an element, or to the row's mean where the element is smaller: one step of the coarser dtype
TOLERANCES = {"F64": 1e-5, "F32": 1e-5, "F16": 2.0**-10, "BF16": 2.0**-7}
_COARSEST = 2.0**-3  # of eight-bit numbers


@dataclass(frozen=True)
class Pair:
    """Slot `theirs` of theirs beside slot `ours` of ours: row t beside row t + `shift`, over `rows` rows.

    `norm_ratio` (theirs / ours) and `cosine` are means over the rows in which both are finite and not zero, None
    where there is none. `equal_rows` are equal to the bit (in the coarser of two dtypes), `close_rows` also within its
    tolerance; `first_differing` is the first row of ours that is neither. These are None where only spread rows
    were compared. `bad_rows` are not finite in one of the two.
    """

    ours: int
    theirs: int
    shift: int
    rows: int
    norm_ratio: float | None
    cosine: float | None
    equal_rows: int | None = None
    close_rows: int | None = None
    max_difference: float | None = None
    first_differing: int | None = None
    bad_rows: int | None = None

    @property
    def close_share(self) -> float:
        return (self.close_rows or 0) / self.rows if self.rows else 0.0


@dataclass
class _Sums:
    ratio: float = 0.0
    cosine: float = 0.0
    good: int = 0
    equal: int = 0
    close: int = 0
    bad: int = 0
    largest: float | None = None
    first: int | None = None


@dataclass(frozen=True)
class _Block:
    """Rows of one slot: values [R, H], lengths [R] float64, values of length one [R, H], which rows have one [R]."""

    values: Tensor
    norms: Tensor
    units: Tensor
    good: Tensor


def coarser(a: str, b: str) -> str:
    return max(a, b, key=lambda dtype: TOLERANCES.get(dtype, _COARSEST))


def tolerance(a: str, b: str) -> float:
    """How far apart equal numbers may lie that were recorded as dtypes `a` and `b`."""
    return TOLERANCES.get(coarser(a, b), _COARSEST)


def likeness(
    ours: Sample, theirs: Sample, span: Alignment, shift: int, poll: Callable[[], None]
) -> dict[tuple[int, int], Pair]:
    """Every pair of slots, by angle and length only, over at most SPREAD_ROWS rows spread over `span`."""
    import torch

    n, m = len(ours.slots), len(theirs.slots)
    span = span.shifted(shift)
    cosine, ratio, good = (torch.zeros(n, m, dtype=torch.float64) for _ in range(3))
    rows = _spread(span.count)
    size = _block_rows(3 * (n + m), ours.width)
    for start in range(0, len(rows), size):
        poll()
        chosen = rows[start : start + size]
        a = [_block(_read(slot.tensor, span.ours, chosen)) for slot in ours.slots]
        b = [_block(_read(slot.tensor, span.theirs, chosen)) for slot in theirs.slots]
        angles = _units(a) @ _units(b).transpose(1, 2)  # [R, n, H] times [R, H, m]
        cosine += angles.double().sum(dim=0)
        usable = [torch.stack([block.good for block in side]).double() for side in (a, b)]  # [n, R], [m, R]
        lengths = [torch.stack([block.norms for block in side]) for side in (a, b)]
        # the length of a row that is not good is 1, and it is masked
        ratio += (usable[0] / lengths[0]) @ (usable[1] * lengths[1]).T
        good += usable[0] @ usable[1].T
    return {(i, j): _spread_pair(i, j, shift, len(rows), cosine, ratio, good) for i in range(n) for j in range(m)}


def measure(
    ours: Sample,
    theirs: Sample,
    span: Alignment,
    wanted: Sequence[tuple[int, int]],
    shift: int,
    poll: Callable[[], None],
) -> list[Pair]:
    """The `wanted` (slot of ours, slot of theirs) over all rows of `span`."""
    span = span.shifted(shift)
    left, right = dict.fromkeys(i for i, _ in wanted), dict.fromkeys(j for _, j in wanted)
    sums = {pair: _Sums() for pair in wanted}
    for start, stop in _ranges(span.count, _block_rows(2 * (len(left) + len(right)), ours.width)):
        poll()
        a = {i: _block(ours.slots[i].tensor.rows(span.ours + start, span.ours + stop)) for i in left}
        b = {j: _block(theirs.slots[j].tensor.rows(span.theirs + start, span.theirs + stop)) for j in right}
        for i, j in wanted:
            poll()
            _add(sums[i, j], a[i], b[j], (ours.slots[i].tensor, theirs.slots[j].tensor), span.ours + start)
    return [_pair(i, j, shift, span.count, sums[i, j]) for i, j in wanted]


def _read(states: States, start: int, rows: Sequence[int]) -> Tensor:
    """Rows `start` + `rows`; neighbours in one read."""
    first, last = start + rows[0], start + rows[-1]
    return states.rows(first, last + 1) if last - first < len(rows) else states.gather([start + row for row in rows])


def _spread(count: int) -> list[int]:
    """At most SPREAD_ROWS of `count` rows, evenly apart."""
    if count <= SPREAD_ROWS:
        return list(range(count))
    return [k * count // SPREAD_ROWS for k in range(SPREAD_ROWS)]


def _block_rows(slots: int, width: int) -> int:
    return max(1, min(BLOCK, BLOCK_BYTES // (slots * width * 4)))


def _ranges(count: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + size, count)) for start in range(0, count, size))


def _block(rows: Tensor) -> _Block:
    import torch

    values = rows if rows.dtype == torch.float64 else rows.float()
    norms = torch.linalg.vector_norm(values, dim=1, dtype=torch.float64)
    good = norms.isfinite() & (norms > 0)
    norms = norms.where(good, torch.ones_like(norms))
    units = torch.where(good[:, None], values / norms[:, None].to(values.dtype), 0.0)
    return _Block(values, norms, units, good)


def _units(blocks: Sequence[_Block]) -> Tensor:
    """[R, slots, H]"""
    import torch

    return torch.stack([block.units.float() for block in blocks], dim=1)


def _add(sums: _Sums, a: _Block, b: _Block, states: tuple[States, States], first_row: int) -> None:
    good = a.good & b.good
    sums.cosine += float(((a.units * b.units).sum(dim=1).double())[good].sum())
    sums.ratio += float((b.norms / a.norms)[good].sum())
    sums.good += int(good.sum())
    finite = a.values.isfinite().all(dim=1) & b.values.isfinite().all(dim=1)
    sums.bad += int((~finite).sum())
    equal = _equal_rows(a.values, b.values, states)
    close, largest = _close_rows(a.values, b.values, tolerance(states[0].dtype, states[1].dtype))
    close = (close & finite) | equal  # an infinite difference is within an infinite tolerance
    sums.equal += int(equal.sum())
    sums.close += int(close.sum())
    if bool(finite.any()):
        sums.largest = max(sums.largest or 0.0, float(largest[finite].max()))
    if sums.first is None and not bool(close.all()):
        sums.first = first_row + int((~close).nonzero()[0])


def _equal_rows(a: Tensor, b: Tensor, states: tuple[States, States]) -> Tensor:
    """Which rows [R] are equal, NaN to NaN; of two dtypes, once both are rounded to the coarser."""
    import torch

    dtype = coarser(states[0].dtype, states[1].dtype)
    if states[0].dtype != states[1].dtype and dtype in TOLERANCES:
        rounded = getattr(torch, DTYPES[dtype][0])
        a, b = a.to(rounded), b.to(rounded)
    return ((a == b) | (a.isnan() & b.isnan())).all(dim=1)


def _close_rows(a: Tensor, b: Tensor, relative: float) -> tuple[Tensor, Tensor]:
    """Which rows [R] are within the tolerance, and the largest difference in each [R]."""
    difference = (a - b).abs()
    scale = a.abs().maximum(b.abs()).maximum(a.abs().mean(dim=1, keepdim=True))
    return (difference <= relative * scale).all(dim=1), difference.amax(dim=1)


def _pair(ours: int, theirs: int, shift: int, rows: int, sums: _Sums) -> Pair:
    found = Pair(ours, theirs, shift, rows, None, None, sums.equal, sums.close, sums.largest, sums.first, sums.bad)
    if not sums.good:
        return found
    return replace(found, norm_ratio=sums.ratio / sums.good, cosine=min(sums.cosine / sums.good, 1.0))


def _spread_pair(i: int, j: int, shift: int, rows: int, cosine: Tensor, ratio: Tensor, good: Tensor) -> Pair:
    count = int(good[i, j])
    if not count:
        return Pair(i, j, shift, rows, None, None)
    return Pair(i, j, shift, rows, float(ratio[i, j]) / count, min(float(cosine[i, j]) / count, 1.0))
