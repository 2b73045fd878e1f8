"""The lines of a log file, however large the file or a line of it: each is cut at a bounded length.

Text of another encoding is read as far as it goes; a file that PowerShell wrote (UTF-16) is recognised by its mark.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from drafter.errors import FileError, PathError
from drafter.files.path import there
from drafter.serving.server_log import MAX_JSON

_CHUNK = 1 << 16
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def log_lines(path: Path) -> Iterator[str]:
    """The lines of the file at `path`. Raises PathError where nothing is there, FileError where it cannot be read."""
    if not there(path):
        raise PathError("no such file", where=path, hint="check --server-log")
    if path.is_dir():
        raise FileError("a folder", expected="a server's log file", where=path)
    try:
        with path.open("rb") as file:
            yield from stream_lines(file)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error


def stream_lines(stream: BinaryIO) -> Iterator[str]:
    """The lines of a binary stream, without their ends; a line longer than a whole JSON answer comes in pieces."""
    first = stream.read(_CHUNK)
    mark, encoding = next(((mark, name) for mark, name in _MARKS if first.startswith(mark)), (b"", "utf-8"))
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    rest, chunk = "", first[len(mark) :]
    while chunk:
        *lines, rest = (rest + decoder.decode(chunk)).replace("\r", "\n").split("\n")
        yield from lines
        if len(rest) > MAX_JSON:
            yield rest
            rest = ""
        chunk = stream.read(_CHUNK)
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest
