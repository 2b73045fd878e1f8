"""safetensors by header only: eight bytes of length, JSON, then the data. Reads no tensor and needs no torch.

Checks what the format promises (sizes, order, full cover), so that a truncated or forged file is refused with the
tensor's name before anything is allocated.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from drafter.errors import FileError
from drafter.files.stored import DTYPES, Stamp, StoredTensor, contiguous

MAX_HEADER = 100_000_000  # the format's own limit
MAX_DIMENSIONS = 16


@dataclass(frozen=True)
class SafetensorsFile:
    path: Path
    tensors: dict[str, StoredTensor]
    metadata: dict[str, str] = field(default_factory=dict)


def read_header(path: Path) -> SafetensorsFile:
    """The tensors of `path`, unread.

    Raises FileError when the file cannot be opened, is truncated, or is not safetensors.
    """
    try:
        with path.open("rb") as file:
            stamp = Stamp.of(file.fileno())
            header = _header(path, stamp.size, file.read(8), file.fileno())
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error
    length, entries = header
    metadata = entries.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, entry, 8 + length, stamp) for name, entry in entries.items()}
    _check_cover(path, tensors, 8 + length, stamp.size)
    clean = {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {}
    return SafetensorsFile(path, tensors, clean)


def _header(path: Path, size: int, first: bytes, fd: int) -> tuple[int, dict[str, Any]]:
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > MAX_HEADER:
        raise FileError(f"no safetensors header ({size} bytes)", expected="a .safetensors file", where=path)
    if 8 + length > size:
        raise FileError(f"a header of {length} bytes in a file of {size}", where=path, hint="the file is truncated")
    try:
        entries = json.loads(os.pread(fd, length, 8))
    except (ValueError, RecursionError) as error:
        raise FileError(f"a safetensors header that is not JSON ({error})", where=path) from error
    if not isinstance(entries, dict):
        raise FileError("a safetensors header that is not a table", where=path)
    return length, entries


def _tensor(path: Path, name: str, entry: Any, start: int, stamp: Stamp) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = all(type(n) is int and 0 <= n < 1 << 62 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError) as error:
        raise FileError(f"a malformed entry for {name!r}", where=path) from error
    if not whole or not isinstance(dtype, str) or not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise FileError(f"a malformed entry for {name!r}", where=path)
    itemsize = DTYPES[dtype][1] if dtype in DTYPES else None
    if itemsize is None:
        raise FileError(f"{name!r} has dtype {dtype!r}", expected=f"one of {', '.join(DTYPES)}", where=path)
    if prod(max(n, 1) for n in shape) >= 1 << 62:  # also where another size is 0: strides would overflow
        raise FileError(f"{name!r} is said to be {shape}", expected="a shape that a file can hold", where=path)
    if end - begin != prod(shape) * itemsize:
        raise FileError(f"{name!r} {dtype} {shape} has {end - begin} bytes", expected="its size", where=path)
    if start + end > stamp.size:
        raise FileError(
            f"{name!r} ends at byte {start + end} of a file of {stamp.size}", where=path, hint="the file is truncated"
        )
    return StoredTensor(name, path, dtype, tuple(shape), contiguous(shape), start + begin, stamp)


def _check_cover(path: Path, tensors: dict[str, StoredTensor], start: int, size: int) -> None:
    position = start
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.nbytes)):
        if tensor.offset != position:
            raise FileError(f"{tensor.name!r} overlaps or leaves a gap at byte {position}", where=path)
        position += tensor.nbytes
    if position != size:
        raise FileError(f"{size - position} bytes that belong to no tensor", where=path)
