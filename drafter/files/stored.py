"""One tensor as it lies in a file: name, dtype, shape, byte offset; its rows are read when they are asked for.

Everything is read by position (`pread`), never through a memory map: a map over a file that shrinks kills the process
with SIGBUS, a short read is an ordinary error. Knows nothing of file formats; the format readers make these objects.
torch is imported only when numbers are read, so listing works without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from drafter.errors import FileError, UnsafeFileError

if TYPE_CHECKING:
    import torch

# safetensors' dtype names -> (torch's name, bytes)
DTYPES: dict[str, tuple[str, int]] = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "C64": ("complex64", 8),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U64": ("uint64", 8),
    "U32": ("uint32", 4),
    "U16": ("uint16", 2),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
INTEGERS = frozenset({"I64", "I32", "I16", "I8", "U8"})
_READ_BYTES = 1 << 26  # one read; Linux cuts a single read at 2 GiB anyway


@dataclass(frozen=True)
class Stamp:
    """What a file was when its header was read; a different stamp later means that the header no longer holds."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, fd: int) -> Stamp:
        stat = os.fstat(fd)
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ino)


class Held(Protocol):
    """An open file that lives as long as a tensor needs it: what was inflated, which no path leads to."""

    def fileno(self) -> int: ...


@dataclass(frozen=True)
class StoredTensor:
    """`shape` and `strides` count elements, `offset` bytes from the start of `path`.

    Where the bytes were inflated first they are read from `held`, and `path` only says where they came from.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    stamp: Stamp
    held: Held | None = field(default=None, compare=False, repr=False)

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype][1]

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.itemsize

    def select(self, dim: int, index: int) -> StoredTensor:
        """The tensor without dimension `dim`, at `index` of it: a view, nothing is read."""
        return replace(
            self,
            shape=self.shape[:dim] + self.shape[dim + 1 :],
            strides=self.strides[:dim] + self.strides[dim + 1 :],
            offset=self.offset + index * self.strides[dim] * self.itemsize,
        )

    def columns(self, start: int, stop: int) -> StoredTensor:
        """The last dimension cut to start..stop: a view, nothing is read."""
        return replace(
            self,
            shape=(*self.shape[:-1], stop - start),
            offset=self.offset + start * self.strides[-1] * self.itemsize,
        )

    def head(self, rows: int) -> StoredTensor:
        """The first `rows` rows: a view, nothing is read."""
        return self.cut(0, rows)

    def read(self) -> torch.Tensor:
        """The whole tensor, as stored.

        Raises FileError when the file was replaced or cut since its header was read.
        """
        return _read_all([self], _read_one)[0]

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Rows start..stop-1 of the first dimension, as stored."""
        return self.cut(start, stop).read()

    def gather(self, indices: Sequence[int]) -> torch.Tensor:
        """Rows at `indices` of the first dimension, one read each: [len(indices), ...]."""
        import torch

        if not indices:
            return torch.empty((0, *self.shape[1:]), dtype=getattr(torch, DTYPES[self.dtype][0]))
        rows = [self.cut(i, i + 1) for i in indices]
        return torch.cat(_read_all(rows, _read_one))

    def cut(self, start: int, stop: int) -> StoredTensor:
        """Rows start..stop-1 of the first dimension: a view, nothing is read."""
        if not 0 <= start <= stop <= self.shape[0]:
            raise FileError(f"rows {start}:{stop} of {self.name!r}", expected=f"0:{self.shape[0]}", where=self.path)
        return replace(
            self,
            shape=(stop - start, *self.shape[1:]),
            offset=self.offset + start * self.strides[0] * self.itemsize,
        )

    def span(self) -> int:
        """Bytes from the first to past the last element."""
        if self.numel == 0:
            return 0
        return (sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1) * self.itemsize

    def check(self) -> None:
        """Refuse shapes that the file cannot hold, before anything is allocated for them.

        Raises UnsafeFileError for elements that share bytes, negative strides, and elements outside of the file.
        """
        if any(n < 0 for n in self.shape) or any(s < 0 for s in self.strides):
            raise UnsafeFileError(f"{self.name!r} has a negative size or stride", where=self.path)
        repeats = any(n > 1 and s == 0 for n, s in zip(self.shape, self.strides, strict=True))
        if self.numel and (repeats or self.nbytes > self.span()):
            raise UnsafeFileError(
                f"{self.name!r} of shape {list(self.shape)} repeats stored elements (strides {list(self.strides)})",
                expected="a tensor whose elements are all in the file",
                where=self.path,
                hint="nothing was allocated",
            )
        if self.numel and self.offset + self.span() > self.stamp.size:
            raise UnsafeFileError(
                f"{self.name!r} of shape {list(self.shape)} ends past the end of the file ({self.stamp.size} bytes)",
                where=self.path,
                hint="the file is truncated or forged",
            )


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def read_bytes(part: StoredTensor) -> bytes:
    """The bytes from the first to past the last element, for what is read before torch is there."""
    return _read_all([part], lambda fd, one: bytes(_fill(fd, one)))[0]


_T = TypeVar("_T")


def _read_all(parts: Sequence[StoredTensor], read_one: Callable[[int, StoredTensor], _T]) -> list[_T]:
    """`read_one` of every part; all parts are of one file."""
    path, stamp, held = parts[0].path, parts[0].stamp, parts[0].held
    if held is not None:
        return [read_one(held.fileno(), part) for part in parts]
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise FileError(f"cannot open the file any more ({error.strerror})", where=path) from error
    try:
        if Stamp.of(fd) != stamp:
            raise FileError("the file was changed or replaced since it was opened", where=path, hint="open it again")
        return [read_one(fd, part) for part in parts]
    except OSError as error:
        raise FileError(f"cannot read the file any more ({error.strerror})", where=path) from error
    finally:
        os.close(fd)


def _fill(fd: int, part: StoredTensor) -> bytearray:
    buffer = bytearray(part.span())
    view, done = memoryview(buffer), 0
    while done < len(buffer):
        count = os.preadv(fd, [view[done : done + _READ_BYTES]], part.offset + done)
        if count == 0:
            raise FileError(f"the file ends inside of {part.name!r}", where=part.path, hint="it was cut while open")
        done += count
    return buffer


def _read_one(fd: int, part: StoredTensor) -> torch.Tensor:
    import torch

    dtype = getattr(torch, DTYPES[part.dtype][0])
    if part.numel == 0:
        return torch.empty(part.shape, dtype=dtype)
    flat = torch.frombuffer(_fill(fd, part), dtype=torch.uint8).view(dtype)
    return flat.as_strided(part.shape, part.strides)
