"""A .npz file: a zip of .npy arrays. Stored ones are read where they lie, deflated ones are inflated with a bound."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import BinaryIO, cast

from drafter.errors import FileError
from drafter.files.inflate import inflate
from drafter.files.npy_file import read_npy_at
from drafter.files.stored import Stamp, StoredTensor

_LOCAL_HEADER, _LOCAL_MAGIC = 30, b"PK\x03\x04"
_MAX_ENTRIES = 1000


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
            stamp = Stamp.of(file.fileno())
            entries = archive.infolist()
            if len(entries) > _MAX_ENTRIES:
                raise FileError(f"{len(entries)} arrays", expected=f"at most {_MAX_ENTRIES}", where=path)
            return {e.filename.removesuffix(".npy"): _array(path, file, archive, e, stamp) for e in entries}
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror or error})", where=path) from error
    except Exception as error:  # zipfile fails in whatever way forged bytes lead it to
        raise FileError("a .npz file without a whole directory", where=path, hint="the file is truncated") from error


def _array(path: Path, file: BinaryIO, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, stamp: Stamp) -> StoredTensor:
    name = entry.filename.removesuffix(".npy")
    if entry.compress_type == zipfile.ZIP_STORED:
        file.seek(entry.header_offset)
        local = file.read(_LOCAL_HEADER)
        if local[:4] != _LOCAL_MAGIC:
            raise FileError(f"no entry where the directory says {name!r} lies", where=path)
        names = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        return read_npy_at(path, name, file, entry.header_offset + _LOCAL_HEADER + names, stamp, None)
    with archive.open(entry) as stream:
        held = inflate(path, cast("BinaryIO", stream), entry.compress_size)
    return read_npy_at(path, name, held, 0, Stamp.of(held.fileno()), held)
