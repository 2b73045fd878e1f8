"""Small JSON files of strangers: capped in size, plain tables only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drafter.errors import FileError

MAX_BYTES = 1 << 24  # tokenizer tables are larger and are read by their own library


def read_small(path: Path, max_bytes: int, what: str) -> bytes:
    """All bytes of `path`. Raises FileError when it cannot be read, or holds more than `max_bytes`."""
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error
    if len(data) > max_bytes:
        raise FileError(f"{what} of more than {max_bytes} bytes", where=path)
    return data


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The table in `path`. Raises FileError when it cannot be read, is too large, or is not a JSON table."""
    try:
        value = json.loads(read_small(path, max_bytes, "a JSON file"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"not JSON ({error})", where=path) from error
    if not isinstance(value, dict):
        raise FileError(f"JSON that is a {type(value).__name__}", expected="a table", where=path)
    return value
