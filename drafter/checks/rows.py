"""Rows of two stored tables held against each other, some of many: equal, close, or nothing to do with each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drafter.files.stored import StoredTensor

PARTS = 4  # of a table, as ranks of a server split it


@dataclass(frozen=True)
class RowsCompared:
    """Of `rows` rows, spread evenly: how many are equal to the bit, the mean cosine, and that of each quarter."""

    rows: int
    equal: int
    cosine: float
    parts: tuple[float, ...]


def compare_rows(ours: StoredTensor, theirs: StoredTensor, most: int, poll: Callable[[], None]) -> RowsCompared:
    """At most `most` of the rows that both tables have. Both are [rows, width] with the same width."""
    import torch

    count = min(ours.shape[0], theirs.shape[0])
    picked = [count * i // min(count, most) for i in range(min(count, most))]
    poll()
    a = ours.gather(picked).float()
    poll()
    b = theirs.gather(picked).float()
    cosines = torch.nn.functional.cosine_similarity(a, b, dim=1).nan_to_num(0.0)
    parts = tuple(float(part.mean()) for part in cosines.chunk(PARTS))
    return RowsCompared(len(picked), int((a == b).all(1).sum()), float(cosines.mean()), parts)


def cosine_at(ours: StoredTensor, rows: Sequence[int], theirs: StoredTensor, at: Sequence[int]) -> float:
    """Mean cosine of our `rows` with their rows `at`."""
    import torch

    a, b = ours.gather(list(rows)).float(), theirs.gather(list(at)).float()
    return float(torch.nn.functional.cosine_similarity(a, b, dim=1).nan_to_num(0.0).mean())
