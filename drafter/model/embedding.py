"""Rows of an embedding table, read from the file when a token first needs them and kept.

An id outside of the table has no row: zeros stand for it, as long as most ids of the sample have one. Recordings hold
such ids in the place of images, and -1 where a token was not recorded.
"""

from __future__ import annotations

import torch
from torch import Tensor

from drafter.errors import SampleError
from drafter.files.stored import DTYPES, StoredTensor


class EmbeddingTable:
    """A table [V, H] in a file, of which only the rows in use are in memory (a vocabulary can weigh gigabytes)."""

    def __init__(self, stored: StoredTensor, source: str) -> None:
        self.stored, self.source = stored, source
        self._slot = torch.full((stored.shape[0],), -1, dtype=torch.int64)
        self._rows: Tensor | None = None

    def check(self, ids: Tensor) -> None:
        """Raises SampleError when most of `ids`, those of a whole sample, are outside of the table."""
        if 2 * int(self._outside(ids).sum()) > ids.numel():
            raise SampleError(
                f"token ids {int(ids.min())}..{int(ids.max())}",
                expected=f"0..{self.stored.shape[0] - 1}, the rows of the embedding",
                hint="the sample belongs to another tokenizer",
            )

    def rows(self, ids: Tensor) -> Tensor:
        """[len(ids), H] as stored, on the CPU; zeros for ids outside of the table."""
        outside = self._outside(ids)
        if not bool(outside.any()):
            return self._known(ids)
        rows = torch.zeros((ids.numel(), self.stored.shape[1]), dtype=getattr(torch, DTYPES[self.stored.dtype][0]))
        if not bool(outside.all()):
            rows[~outside] = self._known(ids[~outside])
        return rows

    def _outside(self, ids: Tensor) -> Tensor:
        return (ids < 0) | (ids >= self.stored.shape[0])

    def _known(self, ids: Tensor) -> Tensor:
        """The rows of ids that are all in the table."""
        wanted = ids.unique()
        absent = wanted[self._slot[wanted] < 0]
        if absent.numel():
            fresh = self.stored.gather(absent.tolist())
            start = 0 if self._rows is None else self._rows.shape[0]
            self._rows = fresh if self._rows is None else torch.cat([self._rows, fresh])
            self._slot[absent] = torch.arange(start, start + absent.numel())
        assert self._rows is not None
        return self._rows[self._slot[ids]]
