"""What a sample file holds, told by its first bytes and never by its suffix; tensors stay unread."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from drafter.errors import FileError, PathError, SampleError
from drafter.files.inflate import GZIP_MAGIC, read_gzip_torch
from drafter.files.npy_file import MAGIC as NPY_MAGIC
from drafter.files.npy_file import read_npy
from drafter.files.npz_file import is_npz, read_npz
from drafter.files.path import there
from drafter.files.safetensors_file import read_header
from drafter.files.torch_file import read_torch_file

_ARROW = (b"\xff\xff\xff\xff", b"ARROW1")


def read_content(path: Path) -> Any:
    """A table, list or tensor with a StoredTensor in place of each tensor.

    Raises PathError, FileError, UnsafeFileError, or SampleError for a file that is still being written or that is
    part of a recording but no sample.
    """
    if not there(path):
        raise PathError("no such sample", where=path, hint="check --samples")
    _check_lock(path)
    try:
        with path.open("rb") as file:
            magic = file.read(9)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error
    if not magic:
        raise FileError("an empty file", where=path, hint="the recording failed, or is still to be written")
    if magic.startswith(_ARROW):
        raise SampleError(
            "an arrow table, which holds no states",
            expected="hidden_states/hs_{row}.safetensors beside it",
            where=path,
        )
    if magic.startswith(GZIP_MAGIC):
        return read_gzip_torch(path)
    if magic.startswith(NPY_MAGIC):
        return read_npy(path)
    if magic[8:9] == b"{":
        return read_header(path).tensors
    if magic.startswith(b"PK\x03\x04") and is_npz(path):
        return read_npz(path)
    return read_torch_file(path)


def _check_lock(path: Path) -> None:
    """vLLM holds an exclusive lock on `<file>.lock` while it writes; the lock file is neither made nor removed here."""
    lock = path.with_name(path.name + ".lock")
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # none there, or not ours to open: then nothing can be told by it
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SampleError(
            "the sample is being written", expected="an unlocked file", where=path, hint=f"{lock.name} is locked"
        ) from error
    except OSError:  # a file system without locks
        return
    finally:
        os.close(fd)
