"""Rows of an embedding table, read from the file when a token first needs them and kept."""

from __future__ import annotations

import torch
from torch import Tensor

from drafter.errors import SampleError
from drafter.files.stored import StoredTensor


class EmbeddingTable:
    """A table [V, H] in a file, of which only the rows in use are in memory (a vocabulary can weigh gigabytes)."""

    def __init__(self, stored: StoredTensor, source: str) -> None:
        self.stored, self.source = stored, source
        self._slot = torch.full((stored.shape[0],), -1, dtype=torch.int64)
        self._rows: Tensor | None = None

    def check(self, ids: Tensor) -> None:
        """Raises SampleError for ids outside of the table."""
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < self.stored.shape[0]:
            raise SampleError(
                f"token ids {int(ids.min())}..{int(ids.max())}",
                expected=f"0..{self.stored.shape[0] - 1}, the rows of the embedding",
                hint="the sample belongs to another tokenizer",
            )

    def rows(self, ids: Tensor) -> Tensor:
        """[len(ids), H] as stored, on the CPU. Raises SampleError for ids outside of the table."""
        self.check(ids)
        wanted = ids.unique()
        absent = wanted[self._slot[wanted] < 0]
        if absent.numel():
            fresh = self.stored.gather(absent.tolist())
            start = 0 if self._rows is None else self._rows.shape[0]
            self._rows = fresh if self._rows is None else torch.cat([self._rows, fresh])
            self._slot[absent] = torch.arange(start, start + absent.numel())
        assert self._rows is not None
        return self._rows[self._slot[ids]]
