"""How far one tensor is from another: sums in float64 over blocks, values that are no numbers counted apart.

Given pairs of blocks; knows nothing of files and names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.files.stored import DTYPES, FLOATS

# bits of a float's fraction: of two dtypes the one with fewer is the coarser
FRACTION = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7}
FRACTION |= {"F8_E4M3": 3, "F8_E4M3FNUZ": 3, "F8_E5M2": 2, "F8_E5M2FNUZ": 2, "F8_E8M0": 0}
_WHOLE = frozenset({"I64", "I32", "I16", "I8", "U8", "BOOL"})
_UNSIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@dataclass(frozen=True)
class Change:
    """theirs against ours, over the `elements` that both have.

    `changed` of them differ when both are rounded to `rounded_to`, the coarser of two dtypes ("" for one and the same);
    the two zeros are equal, and so are two NaN. `relative` is |theirs - ours| / |ours| in L2, `largest` the largest
    difference; both, and `cosine`, are over the elements that are numbers on both sides, None where that tells nothing
    (integers have no `relative` and no `cosine`). `not_finite` counts NaN and infinities of ours and of theirs.
    """

    elements: int
    changed: int
    relative: float | None
    largest: float | None
    cosine: float | None
    not_finite: tuple[int, int]
    rounded_to: str = ""

    @property
    def equal(self) -> bool:
        return self.changed == 0

    @property
    def exact(self) -> bool:
        """Equal without rounding."""
        return self.equal and not self.largest


def comparable(ours: str, theirs: str) -> bool:
    """Whether two stored dtypes hold values of one kind."""
    return ours == theirs or {ours, theirs} <= FRACTION.keys() or {ours, theirs} <= _WHOLE


def coarser(ours: str, theirs: str) -> str:
    """The dtype to which both are rounded before they are held against each other; "" where they have the same."""
    if ours == theirs or not {ours, theirs} <= FRACTION.keys():
        return ""
    return min(ours, theirs, key=FRACTION.__getitem__)


def measure(blocks: Iterable[tuple[Tensor, Tensor]], rounded_to: str = "") -> Change:
    """The change over pairs of blocks of the same shape each; at most one pair is held at a time."""
    sums = _Sums(getattr(torch, DTYPES[rounded_to][0]) if rounded_to else None)
    for ours, theirs in blocks:
        sums.add(ours, theirs)
    return sums.change(rounded_to)


class _Sums:
    def __init__(self, rounded: torch.dtype | None) -> None:
        self.rounded = rounded
        self.elements = self.changed = 0
        self.not_finite = [0, 0]
        self.ours = self.theirs = self.dot = self.distance = self.largest = 0.0
        self.floats = False

    def add(self, ours: Tensor, theirs: Tensor) -> None:
        self.elements += ours.numel()
        if not ours.is_floating_point() or not theirs.is_floating_point():
            return self._add_whole(_whole(ours), _whole(theirs))
        self.floats = True
        a, b = _double(ours), _double(theirs)
        rounded = self.rounded
        self.changed += _differing(*((a, b) if rounded is None else (_double(t.to(rounded)) for t in (ours, theirs))))
        finite = a.isfinite(), b.isfinite()
        good = finite[0] & finite[1]
        if not bool(good.all()):
            for side, numbers in enumerate(finite):
                self.not_finite[side] += int((~numbers).sum())
            a, b = a[good], b[good]
        self._add_numbers(a, b)

    def _add_numbers(self, a: Tensor, b: Tensor) -> None:
        """`a`, `b` [n] float64, all finite."""
        self.ours += float(a.dot(a))
        if torch.equal(a, b):
            self.theirs, self.dot = self.theirs + float(a.dot(a)), self.dot + float(a.dot(a))
            return
        self.theirs += float(b.dot(b))
        self.dot += float(a.dot(b))
        difference = b - a
        self.distance += float(difference.dot(difference))
        self.largest = max(self.largest, float(difference.abs().max()))

    def _add_whole(self, a: Tensor, b: Tensor) -> None:
        self.changed += int((a != b).sum())
        if a.numel():
            self.largest = max(self.largest, float((b.double() - a.double()).abs().max()))

    def change(self, rounded_to: str) -> Change:
        relative = cosine = None
        if self.floats and self.ours > 0:
            relative = math.sqrt(self.distance / self.ours)
        if self.floats and self.ours > 0 and self.theirs > 0 and not self.distance:
            cosine = 1.0
        elif self.floats and self.ours > 0 and self.theirs > 0:
            cosine = min(1.0, max(-1.0, self.dot / math.sqrt(self.ours) / math.sqrt(self.theirs)))
        largest = self.largest if self.elements > max(self.not_finite) else None
        return Change(
            self.elements, self.changed, relative, largest, cosine, (self.not_finite[0], self.not_finite[1]), rounded_to
        )


def _double(values: Tensor) -> Tensor:
    """[n] float64; eight-bit floats have no way there but over float32."""
    return (values.float() if values.element_size() == 1 else values).double().flatten()


def _differing(a: Tensor, b: Tensor) -> int:
    return int(((a != b) & ~(a.isnan() & b.isnan())).sum())


def _whole(values: Tensor) -> Tensor:
    """[n] int64, or complex as it is; unsigned ones by their bits, which are equal where they are."""
    if values.is_complex():
        return torch.view_as_real(values).flatten()
    signed = values.view(_UNSIGNED[values.dtype]) if values.dtype in _UNSIGNED else values
    return signed.to(torch.int64).flatten()


def is_float(dtype: str) -> bool:
    return dtype in FLOATS or dtype in FRACTION
