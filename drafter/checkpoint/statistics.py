"""Statistics of one stored tensor, chunk by chunk: counts of what is no number, moments in float64, a histogram.

Never more than a chunk is in memory, and one NaN hides nothing: it is counted and left out of the moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from drafter.files.stored import StoredTensor, contiguous

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 22  # elements
BINS = 48
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


@dataclass(frozen=True)
class TensorStatistics:
    """Moments and quantiles of the finite values, None where there are none. Quantiles are exact to one bin's width."""

    name: str
    count: int
    nan: int
    inf: int
    zero: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    norm: float | None
    quantiles: tuple[tuple[float, float], ...]
    histogram: tuple[int, ...]

    @property
    def bin_width(self) -> float:
        if self.minimum is None or self.maximum is None:
            return 0.0
        return (self.maximum - self.minimum) / BINS


def statistics(stored: StoredTensor, poll: Callable[[], None] = lambda: None) -> TensorStatistics:
    """Two passes over `stored`: moments and range, then the histogram. `poll` is called for every chunk.

    Raises FileError when the file changed.
    """
    count = nan = inf = zero = 0
    low, high, total, squares = math.inf, -math.inf, 0.0, 0.0
    for values in _chunks(stored, poll):
        finite = values[values.isfinite()]
        count += values.numel()
        nan += int(values.isnan().sum())
        inf += int(values.isinf().sum())
        zero += int((values == 0).sum())
        if finite.numel():
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total += float(finite.sum())
            squares += float(finite.square().sum())
    good = count - nan - inf
    empty = TensorStatistics(stored.name, count, nan, inf, zero, None, None, None, None, None, (), ())
    if not good:
        return empty
    mean = total / good
    std = math.sqrt(max(squares / good - mean * mean, 0.0))
    bins = _histogram(stored, low, high, poll)
    moments = replace(empty, minimum=low, maximum=high, mean=mean, std=std, norm=math.sqrt(squares))
    return replace(moments, histogram=tuple(bins), quantiles=_quantiles(bins, low, high))


def _chunks(stored: StoredTensor, poll: Callable[[], None]) -> Iterator[torch.Tensor]:
    """The elements as flat float64 blocks."""
    if stored.strides != contiguous(stored.shape):
        poll()
        yield stored.read().double().flatten()
        return
    flat = replace(stored, shape=(stored.numel,), strides=(1,))
    for start in range(0, flat.numel, CHUNK):
        poll()
        yield flat.rows(start, min(start + CHUNK, flat.numel)).double()


def _histogram(stored: StoredTensor, low: float, high: float, poll: Callable[[], None]) -> list[int]:
    import torch

    bins = torch.zeros(BINS, dtype=torch.int64)
    width = (high - low) or 1.0
    for values in _chunks(stored, poll):
        places = ((values[values.isfinite()] - low) / width * BINS).long().clamp(0, BINS - 1)
        bins += torch.bincount(places, minlength=BINS)
    return [int(n) for n in bins]


def _quantiles(bins: list[int], low: float, high: float) -> tuple[tuple[float, float], ...]:
    total, width = sum(bins), (high - low) / BINS
    found, seen, wanted = [], 0, list(QUANTILES)
    for i, n in enumerate(bins):
        seen += n
        while wanted and seen >= wanted[0] * total:
            found.append((wanted.pop(0), low + (i + 0.5) * width))
    return tuple(found)
