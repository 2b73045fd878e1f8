"""Fingerprints that say whether two people talk about the same file, without reading gigabytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from drafter.errors import FileError

WHOLE = 1 << 26  # bytes up to which a file is hashed whole
_SAMPLES, _BLOCK = 64, 1 << 16


def fingerprint(path: Path) -> dict[str, str | int]:
    """`{"size", "sha256"}` of a file up to 64 MiB; above, `{"size", "sha256_sampled"}` over 64 blocks spread over it.

    Raises FileError when the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= WHOLE:
                digest.update(file.read())
                return {"size": size, "sha256": digest.hexdigest()}
            for i in range(_SAMPLES):
                file.seek((size - _BLOCK) * i // (_SAMPLES - 1))
                digest.update(file.read(_BLOCK))
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error
    return {"size": size, "sha256_sampled": digest.hexdigest()}
