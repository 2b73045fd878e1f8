"""Files of `torch.save`, without running what they contain and without reading their data.

The zip's entries are checked first (stored, not deflated; inside of the file), then torch's `weights_only` unpickler
builds the structure on the meta device; every tensor in it becomes a `StoredTensor` that is read by position later.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

from drafter.errors import FileError, UnsafeFileError
from drafter.files.stored import DTYPES, Stamp, StoredTensor

MAX_PICKLE = 1 << 26  # bytes of structure, without data; real files have some hundred
_NAMES = {torch_name: name for name, (torch_name, _) in DTYPES.items()}
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def read_torch_file(path: Path) -> Any:
    """What `torch.save` stored in `path`, with a StoredTensor in place of each tensor.

    Raises UnsafeFileError for pickles that would run code and for bombs; FileError for what is no whole torch file.
    """
    import torch

    try:
        with path.open("rb") as file:
            stamp = Stamp.of(file.fileno())
            _check_zip(path, file.read(4))
            loaded = _load(path)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error
    if isinstance(loaded, torch.Tensor):
        return _stored("(tensor)", loaded, path, stamp)
    return _convert(loaded, "", path, stamp)


def _check_zip(path: Path, magic: bytes) -> None:
    if magic[:2] == b"\x80\x02":
        raise FileError(
            "a torch file of the old, unindexed kind",
            expected="the zip kind that torch.save has written since 1.6",
            where=path,
            hint="load and save it again with a current torch",
        )
    if magic != b"PK\x03\x04":
        raise FileError(f"a file that begins with {magic!r}", expected="a torch.save file (PK\\x03\\x04)", where=path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile as error:
        raise FileError("a torch file without its end", where=path, hint="the file is truncated") from error
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise UnsafeFileError(
                f"the entry {entry.filename!r} is compressed ({entry.compress_size} -> {entry.file_size} bytes)",
                expected="stored entries, as torch.save writes them",
                where=path,
            )
        if entry.filename.endswith("data.pkl") and entry.file_size > MAX_PICKLE:
            raise UnsafeFileError(f"a structure of {entry.file_size} bytes", where=path)
    if not any(entry.filename.endswith("data.pkl") for entry in entries):
        raise FileError("a zip without data.pkl", expected="a torch.save file", where=path)


def _load(path: Path) -> Any:
    import pickle

    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeFileError(
            f"a pickle that needs {_globals(path)} to load",
            expected="tensors, numbers, text and lists only",
            where=path,
            hint="nothing in it was run",
        ) from error
    except (
        RuntimeError,
        ValueError,
        EOFError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        reason = _ANSI.sub("", str(error)).splitlines()
        raise FileError(
            f"torch cannot load it ({reason[0][:160] if reason else type(error).__name__})", where=path
        ) from error


def _globals(path: Path) -> str:
    """The names that torch refuses, without importing any of them."""
    import torch

    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # the pickle may be broken beyond listing; the refusal stands all the same
        names = []
    return ", ".join(repr(name) for name in sorted(map(str, names))[:5]) or "more than plain data"


def _convert(value: Any, name: str, path: Path, stamp: Stamp) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return _stored(name, value, path, stamp)
    if isinstance(value, dict):
        return {key: _convert(item, f"{name}.{key}" if name else str(key), path, stamp) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_convert(item, f"{name}[{i}]", path, stamp) for i, item in enumerate(value)]
    return value


def _stored(name: str, tensor: Any, path: Path, stamp: Stamp) -> StoredTensor:
    import torch

    dtype = _NAMES.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None or tensor.layout != torch.strided:
        raise FileError(f"{name!r} is {tensor.dtype}, {tensor.layout}", expected="a plain dense tensor", where=path)
    storage = tensor.untyped_storage()
    base = getattr(storage, "_checkpoint_offset", None)
    if base is None:
        raise FileError(
            f"torch {torch.__version__} does not say where {name!r} lies in the file",
            expected="torch >= 2.10",
            where=path,
        )
    start = base + tensor.storage_offset() * tensor.element_size()
    stored = StoredTensor(name, path, dtype, tuple(tensor.shape), tuple(tensor.stride()), start, stamp)
    stored.check()
    if stored.numel and tensor.storage_offset() * stored.itemsize + stored.span() > storage.nbytes():
        raise UnsafeFileError(f"{name!r} of shape {list(stored.shape)} ends past its storage", where=path)
    return stored
