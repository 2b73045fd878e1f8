"""Files of `torch.save`, without running what they contain and without reading their data.

The zip's entries are checked first (stored, not deflated; inside of the file), then torch's `weights_only` unpickler
builds the structure on the meta device; every tensor in it becomes a `StoredTensor` that is read by position later.
Files from before torch 1.6 are no zips: `legacy_torch` reads their structure in the same way.
"""

from __future__ import annotations

import functools
import io
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from drafter.errors import FileError, UnsafeFileError
from drafter.files.legacy_torch import MAGIC, TooLong, load_legacy
from drafter.files.stored import DTYPES, Stamp, StoredTensor

MAX_PICKLE = 1 << 26  # bytes of structure, without data; real files have some hundred
MAX_ITEMS = 100_000  # after shared references are written out: ten bytes each can multiply without end
MAX_NESTED = 32
_NAMES = {torch_name: name for name, (torch_name, _) in DTYPES.items()}
_OFFSET = "_checkpoint_offset"  # where torch keeps a storage's place in the file
_NAMED = re.compile(r"\bGLOBAL ([\w.]+)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def read_torch_file(path: Path) -> Any:
    """What `torch.save` stored in `path`, with a StoredTensor in place of each tensor.

    Raises UnsafeFileError for pickles that would run code and for bombs; FileError for what is no whole torch file.
    """
    try:
        with path.open("rb") as file:
            return _read(path, file, None)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error


def read_inflated(path: Path, file: BinaryIO) -> Any:
    """The same of `file`, which was inflated from `path`; the tensors keep it open. Raises like `read_torch_file`."""
    return _read(path, file, file)


def _read(path: Path, file: BinaryIO, held: BinaryIO | None) -> Any:
    stamp = Stamp.of(file.fileno())
    old = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    if not old:
        _check_zip(path, file)
    return _Structure(path, stamp, held).convert(_load(path, file, old), "")


def _check_zip(path: Path, file: BinaryIO) -> None:
    magic = file.read(4)
    if magic != b"PK\x03\x04":
        raise FileError(f"a file that begins with {magic!r}", expected="a torch.save file (PK\\x03\\x04)", where=path)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            order = next(
                (archive.read(e) for e in entries if e.filename.endswith("/byteorder") and e.file_size < 9), b""
            )
    except OSError:
        raise
    except Exception as error:  # zipfile fails in whatever way forged bytes lead it to
        raise FileError("a torch file without a whole directory", where=path, hint="the file is truncated") from error
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise UnsafeFileError(
                f"the entry {entry.filename!r} is compressed ({entry.compress_size} -> {entry.file_size} bytes)",
                expected="stored entries, as torch.save writes them",
                where=path,
            )
        if entry.filename.endswith("data.pkl") and entry.file_size > MAX_PICKLE:
            raise UnsafeFileError(f"a structure of {entry.file_size} bytes", where=path)
    if order == b"big":
        raise FileError("a torch file of a big-endian machine", expected="little-endian numbers", where=path)
    if not any(entry.filename.endswith("data.pkl") for entry in entries):
        raise FileError("a zip without data.pkl", expected="a torch.save file", where=path)


def _load(path: Path, file: BinaryIO, old: bool) -> Any:
    import pickle

    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # the file, not its path: of a name that ends in .safetensors torch makes another reader's business
            file.seek(0)
            if old:
                return load_legacy(file, _OFFSET, MAX_PICKLE)
            if meta_load_tells_offsets():
                return torch.load(file, map_location="meta", weights_only=True)
            return load_as_fake(file)
    except pickle.UnpicklingError as error:
        raise UnsafeFileError(
            f"a pickle that needs {_globals(file, error)} to load",
            expected="tensors, numbers, text and lists only",
            where=path,
            hint="nothing in it was run",
        ) from error
    except TooLong as error:
        raise UnsafeFileError(f"a structure of more than {MAX_PICKLE} bytes", where=path) from error
    except FileError as error:
        raise FileError(error.found, expected=error.expected, where=path, hint=error.hint) from error
    except OSError:
        raise
    except Exception as error:  # so does the unpickler
        reason = _ANSI.sub("", str(error)).splitlines()
        raise FileError(
            f"torch cannot load it ({reason[0][:160] if reason else type(error).__name__})", where=path
        ) from error


@functools.cache
def meta_load_tells_offsets() -> bool:
    """Whether this torch says where a tensor lies in the file when it loads to the meta device (2.13 does)."""
    import torch

    buffer = io.BytesIO()
    torch.save(torch.zeros(1), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location="meta", weights_only=True)
    return hasattr(loaded.untyped_storage(), _OFFSET)


def load_as_fake(file: BinaryIO) -> Any:
    """The same structure from older torch: tensors without data, at the price of importing its tracing parts."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.load(file, weights_only=True)


def _globals(file: BinaryIO, error: Exception) -> str:
    """The names that torch refuses, without importing any of them; of an old file the first one, from its message."""
    import torch

    try:
        file.seek(0)
        names = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:  # an old file, or a pickle that is broken beyond listing; the refusal stands all the same
        names = _NAMED.findall(str(error))
    return ", ".join(repr(name) for name in sorted(map(str, names))[:5]) or "more than plain data"


@dataclass
class _Structure:
    """Walks what torch built, no deeper and no longer than any real file asks for."""

    path: Path
    stamp: Stamp
    held: BinaryIO | None = None
    items: int = 0

    def convert(self, value: Any, name: str, depth: int = 0) -> Any:
        import torch

        self.items += 1
        if self.items > MAX_ITEMS or depth > MAX_NESTED:
            said = f"of more than {MAX_ITEMS} items" if depth <= MAX_NESTED else f"nested more than {MAX_NESTED} deep"
            raise UnsafeFileError(f"a structure {said}", where=self.path)
        if isinstance(value, torch.Tensor):
            return _stored(name or "(tensor)", value, self.path, self.stamp, self.held)
        if isinstance(value, dict):
            return {k: self.convert(v, f"{name}.{k}" if name else str(k), depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.convert(item, f"{name}[{i}]", depth + 1) for i, item in enumerate(value)]
        return value


def _stored(name: str, tensor: Any, path: Path, stamp: Stamp, held: BinaryIO | None) -> StoredTensor:
    import torch

    dtype = _NAMES.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None or tensor.layout != torch.strided:
        raise FileError(f"{name!r} is {tensor.dtype}, {tensor.layout}", expected="a plain dense tensor", where=path)
    storage = tensor.untyped_storage()
    base = getattr(storage, _OFFSET, None)
    if base is None:
        raise FileError(
            f"torch {torch.__version__} does not say where {name!r} lies in the file",
            expected="torch >= 2.10",
            where=path,
        )
    start = base + tensor.storage_offset() * tensor.element_size()
    stored = StoredTensor(name, path, dtype, tuple(tensor.shape), tuple(tensor.stride()), start, stamp, held)
    stored.check()
    if stored.numel and tensor.storage_offset() * stored.itemsize + stored.span() > storage.nbytes():
        raise UnsafeFileError(f"{name!r} of shape {list(stored.shape)} ends past its storage", where=path)
    return stored
