"""One slot read once, block by block: the norm of every row, a mark that equal rows share, and the rows asked for.

Knows nothing of what a slot is or should be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter.sample.sample import States

if TYPE_CHECKING:
    import torch

BLOCK = 512  # rows read at once
SPREAD = 256  # rows that are compared, spread over the sample


@dataclass(frozen=True)
class Scan:
    """Of a slot [T, Ht]: `norms` [T] float64 (L2), `marks` [T] int64, `kept` [n, Ht] as stored: its rows `at` [n]."""

    norms: torch.Tensor
    marks: torch.Tensor
    kept: torch.Tensor
    at: torch.Tensor

    def take(self, rows: Sequence[int]) -> torch.Tensor:
        """The states [len(rows), Ht] of rows that were kept."""
        import torch

        return self.kept[torch.searchsorted(self.at, torch.tensor(list(rows), dtype=torch.int64))]


def scan(states: States, rows: Sequence[int], poll: Callable[[], None] = lambda: None) -> Scan:
    """Read every row once, and keep those in `rows`. Two rows of equal bits have equal marks, others have not."""
    import torch

    at = torch.tensor(sorted(set(rows)), dtype=torch.int64)
    norms, marks, kept = [], [], []
    for start in range(0, states.shape[0], BLOCK):
        poll()
        stop = min(start + BLOCK, states.shape[0])
        block = states.rows(start, stop).contiguous()  # [rows, Ht]
        norms.append(block.double().norm(dim=1))
        marks.append(_marks(block))
        kept.append(block[at[(at >= start) & (at < stop)] - start])
    return Scan(torch.cat(norms), torch.cat(marks), torch.cat(kept), at)


def _marks(block: torch.Tensor) -> torch.Tensor:
    """[rows] int64: the bits of each row [Ht] times fixed odd numbers, summed modulo 2^64."""
    import torch

    raw = block.view(torch.uint8)  # [rows, bytes]
    words = raw.view(torch.int64) if raw.shape[1] % 8 == 0 else raw.long()
    rng = torch.Generator().manual_seed(1)
    odd = torch.randint(-(1 << 62), 1 << 62, (words.shape[1],), generator=rng) * 2 + 1
    return (words * odd).sum(1)


def spread(places: Sequence[int], count: int = SPREAD) -> list[int]:
    """At most `count` of `places`, evenly over them, the first and the last among them."""
    last = len(places) - 1
    if last < count:
        return list(places)
    return [places[i * last // (count - 1)] for i in range(count)]


def equal_rows(one: States, other: States, poll: Callable[[], None] = lambda: None) -> bool:
    """Whether two slots [T, Ht] hold the same numbers, read block by block."""
    import torch

    for start in range(0, one.shape[0], BLOCK):
        poll()
        stop = min(start + BLOCK, one.shape[0])
        if not torch.equal(one.rows(start, stop), other.rows(start, stop)):
            return False
    return True
