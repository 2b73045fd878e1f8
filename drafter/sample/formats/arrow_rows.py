"""Rows of an arrow table by number, without a memory map and without reading a shard twice.

A stream has no index, so one is kept of the record batches seen so far: the samples of a folder, opened one after the
other, read its table once.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from drafter.errors import FileError
from drafter.files.stored import Stamp

_SHARDS = 16  # whose index is kept; of each the last batch is too
_COLUMNS = ("input_ids", "loss_mask")


class _Shard:
    """One stream file: where its batches begin, as far as it was read, and the batch that was used last."""

    def __init__(self, path: Path, stamp: Stamp) -> None:
        self.path, self.stamp = path, stamp
        self._schema: Any = None
        self._next = 0  # where the first batch that is not known yet begins
        self._batches: list[tuple[int, int, int]] = []  # first row, rows, offset
        self._held: tuple[int, Any] = (-1, None)
        self._ended = False

    @property
    def rows(self) -> int:
        return self._batches[-1][0] + self._batches[-1][1] if self._batches else 0

    def row(self, number: int) -> tuple[list[int], list[int]] | None:
        """(ids, mask) of a row; None where the shard has fewer, and then `rows` is their number."""
        import pyarrow as pa

        with pa.OSFile(str(self.path)) as source:
            while number >= self.rows and not self._ended:
                self._read_next(source)
            for first, count, offset in self._batches:
                if first <= number < first + count:
                    return self._cells(self._batch(source, offset), number - first)
        return None

    def _read_next(self, source: Any) -> None:
        import pyarrow as pa

        if self._schema is None:
            self._schema = pa.ipc.open_stream(source).schema
        else:
            source.seek(self._next)
        offset = source.tell()
        try:
            message = pa.ipc.read_message(source)
        except EOFError:  # the end, whether the writer has marked it or not
            self._ended = True
            return
        self._next = source.tell()
        if message.type == "record batch":
            batch = self._checked(message)
            self._batches.append((self.rows, batch.num_rows, offset))
            self._held = offset, batch

    def _batch(self, source: Any, offset: int) -> Any:
        import pyarrow as pa

        if self._held[0] != offset:
            source.seek(offset)
            self._held = offset, self._checked(pa.ipc.read_message(source))
        return self._held[1]

    def _checked(self, message: Any) -> Any:
        import pyarrow as pa

        columns = pa.ipc.read_record_batch(message, self._schema).select(list(_COLUMNS))
        columns.validate(full=True)  # pyarrow follows forged offsets out of its buffers otherwise
        return columns

    def _cells(self, batch: Any, row: int) -> tuple[list[int], list[int]]:
        ids, mask = (batch.column(i)[row].as_py() for i in range(2))
        if len(ids) != len(mask) or not all(isinstance(value, int) for value in mask):
            said = f"a mask of {len(mask)} entries for {len(ids)} ids"
            raise FileError(said, expected="a number for each", where=self.path)
        return ids, mask


@lru_cache(maxsize=_SHARDS)
def _shard(path: Path, stamp: Stamp) -> _Shard:
    return _Shard(path, stamp)


def table_row(shards: list[Path], row: int) -> tuple[list[int], list[int]] | None:
    """(ids, mask) of row `row` over all shards in their order, or None. Raises FileError for what is no such table."""
    import pyarrow as pa

    for path in shards:
        try:
            with path.open("rb") as file:
                stamp = Stamp.of(file.fileno())
            shard = _shard(path, stamp)
            found = shard.row(row)
        except (pa.ArrowException, OSError, KeyError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise FileError(f"cannot read the arrow table ({reason:.120})", where=path) from error
        if found is not None:
            return found
        row -= shard.rows
    return None
