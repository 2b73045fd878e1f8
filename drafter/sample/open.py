"""Opening a recorded sample: the content is told by magic bytes, the layout by keys and shapes, never by the suffix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from drafter.errors import SampleError
from drafter.files.path import there
from drafter.files.stored import StoredTensor
from drafter.sample.content import read_content
from drafter.sample.readers import READERS
from drafter.sample.sample import Sample, name_part, split_part
from drafter.sample.source import Reader, Source

_SHOWN = 8  # keys in a refusal


def open_sample(path: Path, width: int | None = None) -> Sample:
    """The sample in `path`, its states unread; `path#3` is sample 3 of a file that holds several.

    `width` is the target width of the drafter that is open. Raises PathError, FileError, UnsafeFileError or
    SampleError.
    """
    file, part = (path, None) if there(path) else split_part(path)
    content = read_content(file)
    reader = _reader(content, file)
    source = Source(path, file, content, width, part or 0)
    parts = reader.parts(source)
    if not 0 <= source.part < max(parts, 1):
        raise SampleError(f"sample {source.part}", expected=f"0 to {parts - 1}", where=file)
    return replace(reader.read(replace(source, path=name_part(file, source.part, parts))), parts=max(parts, 1))


def _reader(content: Any, file: Path) -> Reader:
    for reader in READERS:
        if reader.fits(content):
            return reader
    raise SampleError(
        describe(content),
        expected="input_ids (or token_ids) and hidden states of a known layout",
        where=file,
        hint="say which is which with --keys ids=KEY,states=KEY,mask=KEY",
    )


def describe(content: Any) -> str:
    """Keys and shapes, for a refusal."""
    if isinstance(content, dict):
        return f"a table with {_shapes(content)}" if content else "an empty table"
    if isinstance(content, list):
        return f"a list of {len(content)}" + (f", the first {describe(content[0])}" if content else "")
    if isinstance(content, StoredTensor):
        return f"one tensor {list(content.shape)} {content.dtype}"
    return f"a {type(content).__name__}"


def _shapes(table: dict[Any, Any]) -> str:
    def shape(value: Any) -> str:
        if isinstance(value, list):
            return f"list of {len(value)}"
        return str(list(value.shape)) if isinstance(value, StoredTensor) else type(value).__name__

    said = [f"{key!r:.40} {shape(value)}" for key, value in list(table.items())[:_SHOWN]]
    return ", ".join(said) + (", ..." if len(table) > _SHOWN else "")
