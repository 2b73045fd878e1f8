"""A .npz file: a zip of .npy arrays. Stored ones are read where they lie, deflated ones are inflated with a bound."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from drafter.errors import FileError, UnsafeFileError
from drafter.files.inflate import inflate
from drafter.files.npy_file import read_npy_at
from drafter.files.stored import Stamp, StoredTensor

_LOCAL_HEADER, _LOCAL_MAGIC = 30, b"PK\x03\x04"
_MAX_ENTRIES = 1000
_BLOCK = 1 << 20


def is_npz(path: Path) -> bool:
    """Whether the zip `path` holds arrays of numpy."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # zipfile fails in whatever way forged bytes lead it to; then it is none
        return False
    return bool(names) and all(name.endswith(".npy") for name in names)


def read_npz(path: Path) -> dict[str, StoredTensor]:
    """The arrays in `path` by name, unread. Raises FileError or UnsafeFileError."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries = _entries(path, archive)
            stamp = Stamp.of(file.fileno())
            stored = [entry for entry in entries if entry.compress_type == zipfile.ZIP_STORED]
            found = {_name(entry): _stored(path, file, entry, stamp) for entry in stored}
            deflated = [entry for entry in entries if entry.compress_type == zipfile.ZIP_DEFLATED]
            found |= _inflated(path, archive, deflated, stamp.size) if deflated else {}
            return {_name(entry): found[_name(entry)] for entry in entries}
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror or error})", where=path) from error
    except Exception as error:  # zipfile fails in whatever way forged bytes lead it to
        raise FileError(
            "a .npz file whose entries cannot be read", where=path, hint="the file is truncated or damaged"
        ) from error


def _name(entry: zipfile.ZipInfo) -> str:
    return entry.filename.removesuffix(".npy")


def _entries(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    entries = archive.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise FileError(f"{len(entries)} arrays", expected=f"at most {_MAX_ENTRIES}", where=path)
    if len({_name(entry) for entry in entries}) != len(entries):
        raise FileError("two arrays of one name", where=path)
    odd = next((e for e in entries if e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)), None)
    if odd is not None:
        said = f"{_name(odd)!r:.80} is compressed by method {odd.compress_type}"
        raise FileError(said, expected="arrays as numpy.savez writes them", where=path)
    return entries


def _stored(path: Path, file: BinaryIO, entry: zipfile.ZipInfo, stamp: Stamp) -> StoredTensor:
    name = _name(entry)
    file.seek(entry.header_offset)
    local = file.read(_LOCAL_HEADER)
    if local[:4] != _LOCAL_MAGIC:
        raise FileError(f"no entry where the directory says {name!r:.80} lies", where=path)
    start = entry.header_offset + len(local) + int.from_bytes(local[26:28], "little")  # its name
    start += int.from_bytes(local[28:30], "little")  # its extra field
    array = read_npy_at(path, name, file, start, stamp, None)
    _check_end(array, start + entry.file_size)
    return array


def _check_end(array: StoredTensor, end: int) -> None:
    if array.numel and array.offset + array.span() > end:
        said = f"{array.name!r:.80} of shape {list(array.shape)} ends past its entry"
        raise UnsafeFileError(said, where=array.path, hint="the file is damaged or forged")


class _Joined:
    """Deflated entries read one after the other, as one stream: `starts` are their places in it, `done` its length."""

    def __init__(self, archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> None:
        self.starts: list[int] = []
        self.done = 0
        self._blocks = self._read(archive, entries)

    def read(self, size: int) -> bytes:
        return next(self._blocks, b"")

    def _read(self, archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> Iterator[bytes]:
        for entry in entries:
            self.starts.append(self.done)
            with archive.open(entry) as stream:
                while block := stream.read(_BLOCK):
                    self.done += len(block)
                    yield block


def _inflated(
    path: Path, archive: zipfile.ZipFile, entries: list[zipfile.ZipInfo], size: int
) -> dict[str, StoredTensor]:
    """The arrays of `entries`, inflated into one file, whose bound is that of the whole archive of `size` bytes."""
    joined = _Joined(archive, entries)
    held = inflate(path, cast("BinaryIO", joined), size)
    stamp = Stamp.of(held.fileno())
    found = {}
    for entry, start, end in zip(entries, joined.starts, [*joined.starts[1:], joined.done], strict=True):
        found[_name(entry)] = read_npy_at(path, _name(entry), held, start, stamp, held)
        _check_end(found[_name(entry)], end)
    return found
