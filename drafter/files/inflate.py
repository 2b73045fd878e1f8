"""Compressed files, inflated once into a file without a name: bounded, and gone with the last tensor that reads it.

Nothing is written beside the user's files, and nothing is kept in memory.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import BinaryIO, cast

from drafter.errors import FileError, UnsafeFileError
from drafter.files.torch_file import read_inflated

GZIP_MAGIC = b"\x1f\x8b"
MAX_RATIO = 40  # recorded states shrink by a fifth; padding with zeros by more, but not the whole file
SMALL = 1 << 22  # bytes that are inflated whatever the ratio
MAX_INFLATED = 1 << 35
_BLOCK = 1 << 20


class _Raw(io.FileIO):
    def __del__(self) -> None:
        self.close()


class _Unnamed(io.BufferedRandom):
    """An open file that is closed when its last tensor is gone: nobody else could close it in time."""

    def __del__(self) -> None:
        self.close()


def _unnamed() -> BinaryIO:
    descriptor, name = tempfile.mkstemp(prefix="eagle3-tui-")
    Path(name).unlink()
    return cast("BinaryIO", _Unnamed(_Raw(descriptor, "r+b")))


def inflate(path: Path, source: BinaryIO, compressed: int) -> BinaryIO:
    """All that `source` yields, in a temporary file at position 0.

    `compressed` is the size of what it reads. Raises UnsafeFileError where the content is larger than any recording
    of that size, FileError where there is no room or the stream is broken.
    """
    limit = min(max(MAX_RATIO * compressed, SMALL), MAX_INFLATED)
    target = _unnamed()
    try:
        done = 0
        while block := source.read(_BLOCK):
            done += len(block)
            if done > limit:
                raise UnsafeFileError(
                    f"more than {limit} bytes in {compressed} compressed ones",
                    expected=f"at most {MAX_RATIO} times the size",
                    where=path,
                    hint="nothing of it was kept",
                )
            target.write(block)
        target.flush()
        target.seek(0)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        target.close()
        raise FileError(f"a broken compressed stream ({error})", where=path, hint="the file is truncated") from error
    except OSError as error:
        target.close()
        free = shutil.disk_usage(tempfile.gettempdir()).free
        said = f"cannot inflate the file ({error.strerror or error}); {free >> 20} MB free in {tempfile.gettempdir()}"
        raise FileError(said, where=path, hint="set TMPDIR to a folder with room") from error
    except BaseException:
        target.close()
        raise
    return target


def read_gzip_torch(path: Path) -> object:
    """What `torch.save` stored in the gzip file `path`, as `read_torch_file` gives it."""
    try:
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as stream:
            size = path.stat().st_size
            inflated = inflate(path, cast("BinaryIO", stream), size)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror or error})", where=path) from error
    return read_inflated(path, inflated)
