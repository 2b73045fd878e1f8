"""A .npy file by its header: one array of numbers, never an object. Needs no numpy."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import BinaryIO

from drafter.errors import FileError
from drafter.files.stored import DTYPES, Held, Stamp, StoredTensor, contiguous

MAGIC = b"\x93NUMPY"
_MAX_HEADER, _MAX = 1 << 16, 1 << 24
_DTYPES = {"<i8": "I64", "<i4": "I32", "<i2": "I16", "|i1": "I8", "|u1": "U8", "|b1": "BOOL"}
_DTYPES |= {"<f2": "F16", "<f4": "F32", "<f8": "F64"}


def read_npy(path: Path) -> StoredTensor:
    """The array in `path`, unread. Raises FileError for what is no plain array of numbers."""
    try:
        with path.open("rb") as file:
            return read_npy_at(path, path.name, file, 0, Stamp.of(file.fileno()), None)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error


def read_npy_at(path: Path, name: str, file: BinaryIO, offset: int, stamp: Stamp, held: Held | None) -> StoredTensor:
    """The array that begins at byte `offset` of `file`. Raises FileError for what is no plain array of numbers."""
    file.seek(offset)
    start = file.read(12)
    wide = start[6:7] >= b"\x02"
    length = int.from_bytes(start[8:12] if wide else start[8:10], "little")
    begin = offset + (12 if wide else 10)
    file.seek(begin)
    header = file.read(min(length, _MAX_HEADER))
    if start[:6] != MAGIC or len(header) != length:
        raise FileError("no .npy header", expected="an array that numpy.save wrote", where=path)
    shape, dtype = _parse(path, header)
    stored = StoredTensor(name, path, dtype, shape, contiguous(shape), begin + length, stamp, held)
    stored.check()
    return stored


def _parse(path: Path, header: bytes) -> tuple[tuple[int, ...], str]:
    try:
        table = ast.literal_eval(header.decode("latin-1").strip())
        shape, kind, column_major = table["shape"], table["descr"], table["fortran_order"]
        whole = isinstance(shape, tuple) and len(shape) <= 16 and all(type(n) is int and 0 <= n < _MAX for n in shape)
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError) as error:
        raise FileError("a malformed .npy header", where=path) from error
    if not whole or not isinstance(kind, str) or kind not in _DTYPES or (column_major and len(shape) > 1):
        raise FileError(f"an array of {kind!r:.40}", expected="plain numbers in rows", where=path)
    assert _DTYPES[kind] in DTYPES
    return shape, _DTYPES[kind]
