"""What the data itself shows about a slot: equality with the embedding, norms, numbers that are no numbers.

Knows nothing of claims; whoever shows both puts them side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter.sample.sample import Sample, Slot

if TYPE_CHECKING:
    import torch

BLOCK = 512  # rows read at once
EMBED_ROWS = 256  # rows compared with the embedding, spread over the sample
EMBED_SHARE = 0.99  # share of equal rows from which a slot is the embedding: deeper states share none


@dataclass(frozen=True)
class SlotProbe:
    """`embed_equal` of `embed_rows` compared rows equal the embedding of their token; None when none was there.

    `mean_norm` is the mean L2 norm over all rows, None when a row is not finite; `bad_rows` counts those rows.
    """

    index: int
    mean_norm: float | None
    bad_rows: int
    first_bad_row: int | None
    zero_rows: int
    embed_equal: int | None
    embed_rows: int

    @property
    def label(self) -> str | None:
        """`embed`, `not embed`, or None where there was no embedding to compare with."""
        if self.embed_equal is None or not self.embed_rows:
            return None
        return "embed" if self.embed_equal >= EMBED_SHARE * self.embed_rows else "not embed"


def probe_slot(
    sample: Sample,
    slot: Slot,
    embedding: Callable[[list[int]], torch.Tensor] | None,
    poll: Callable[[], None] = lambda: None,
) -> SlotProbe:
    """Read `slot` once, block by block. `embedding(ids)` gives rows [n, Ht] as stored, or is None without a table."""
    total, bad, first_bad, zero = 0.0, 0, None, 0
    for start in range(0, sample.length, BLOCK):
        poll()
        block = slot.tensor.rows(start, min(start + BLOCK, sample.length)).double()
        norms = block.norm(dim=1)  # [rows]
        finite = norms.isfinite()
        total += float(norms[finite].sum())
        zero += int((norms == 0).sum())
        bad += int((~finite).sum())
        if first_bad is None and not bool(finite.all()):
            first_bad = start + int((~finite).nonzero()[0])
    equal, compared = _embed_equal(sample, slot, embedding)
    good = sample.length - bad
    mean = total / good if good and not bad else None
    return SlotProbe(slot.index, mean, bad, first_bad, zero, equal, compared)


def _embed_equal(
    sample: Sample, slot: Slot, embedding: Callable[[list[int]], torch.Tensor] | None
) -> tuple[int | None, int]:
    if embedding is None:
        return None, 0
    step = max(1, sample.length // EMBED_ROWS)
    rows = list(range(0, sample.length, step))[:EMBED_ROWS]
    states = slot.tensor.gather(rows)
    table = embedding([int(sample.ids[row]) for row in rows])
    if table.shape != states.shape:
        return None, 0
    return int((states == table.to(states.dtype)).all(dim=1).sum()), len(rows)
