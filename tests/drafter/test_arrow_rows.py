"""Rows of arrow tables by number: any order, several batches and shards, and a table read once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drafter.errors import FileError
from drafter.sample.formats.arrow_rows import table_row

Row = tuple[list[int], list[int]]


def rows(count: int, seed: int = 0) -> list[Row]:
    rng = random.Random(seed)
    lengths = [rng.randrange(1, 9) for _ in range(count)]
    return [([rng.randrange(1000) for _ in range(n)], [rng.randrange(2) for _ in range(n)]) for n in lengths]


def write(path: Path, of: list[Row], batch: int, extra: bool = True) -> Path:
    columns: dict[str, Any] = {"input_ids": [ids for ids, _ in of], "loss_mask": [mask for _, mask in of]}
    table = pa.table(({"text": ["x" * i for i in range(len(of))]} if extra else {}) | columns)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)
    return path


def test_every_row_in_any_order(tmp_path: Path) -> None:
    first, second = rows(23, 1), rows(10, 2)
    shards = [write(tmp_path / "a.arrow", first, 4), write(tmp_path / "b.arrow", second, 100)]
    wanted = [*first, *second]
    order = [*range(len(wanted)), *random.Random(3).choices(range(len(wanted)), k=60)]
    for number in order:
        assert table_row(shards, number) == wanted[number], number
    assert table_row(shards, len(wanted)) is None


def test_a_folder_of_samples_reads_its_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = rows(40)
    shards = [write(tmp_path / "a.arrow", of, 5)]
    read = []
    real = pa.ipc.read_message
    monkeypatch.setattr(pa.ipc, "read_message", lambda source: read.append(1) or real(source))
    assert [table_row(shards, number) for number in range(40)] == of
    assert len(read) == 8


def test_the_first_row_needs_the_first_batch_only(tmp_path: Path) -> None:
    """A table that is cut further on still gives the rows before the cut, and says so for the others."""
    of = rows(40)
    path = write(tmp_path / "a.arrow", of, 5)
    path.write_bytes(path.read_bytes()[:-900])
    assert table_row([path], 2) == of[2]
    with pytest.raises(FileError, match="cannot read the arrow table"):
        table_row([path], 39)
    assert table_row([path], 3) == of[3]


def test_a_table_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "a.arrow", rows(6, 1), 2)
    assert table_row([path], 5) == rows(6, 1)[5]
    write(path, rows(8, 9), 3, extra=False)
    assert table_row([path], 5) == rows(8, 9)[5] and table_row([path], 7) == rows(8, 9)[7]
