"""Opening a recorded sample: the content is told by magic bytes, the layout by keys and shapes, never by the suffix."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from drafter.errors import SampleError
from drafter.files.path import there
from drafter.files.stored import StoredTensor
from drafter.sample.content import read_content
from drafter.sample.formats.readers import READERS
from drafter.sample.keys import parse_keys, read_keys
from drafter.sample.sample import Sample, name_part, split_part
from drafter.sample.source import Reader, Source
from drafter.sample.storage import check_storage

_SHOWN = 8  # keys in a refusal
_HINT = "say which is which with --keys ids=KEY,states=KEY,mask=KEY"


def open_sample(path: Path, width: int | None = None, keys: str | None = None) -> Sample:
    """The sample in `path`, its states unread; `path#3` is sample 3 of a file that holds several.

    `width` is the target width of the drafter that is open; with `keys` (see `drafter.sample.keys`) no known layout is
    tried. Raises PathError, FileError, UnsafeFileError or SampleError, and WiringError for malformed `keys`.
    """
    described = None if keys is None else parse_keys(keys)
    file, part = (path, None) if there(path) else split_part(path)
    content = read_content(file)
    if described is not None:
        if part is not None:
            found = f"sample {part} of a file that --keys describes"
            raise SampleError(found, where=file, hint=f"name the list entry in the keys: ids={part}.KEY")
        sample = read_keys(Source(path, file, content, width), described)
        return replace(sample, warnings=(*sample.warnings, *check_storage(content)))
    reader = _reader(content, file)
    source = Source(path, file, content, width, part or 0)
    parts = reader.parts(source)
    if not 0 <= source.part < max(parts, 1):
        raise SampleError(f"sample {source.part}", expected=f"0 to {parts - 1}", where=file)
    sample = reader.read(replace(source, path=name_part(file, source.part, parts)))
    said = check_storage(content) if parts <= 1 else []
    return replace(sample, parts=max(parts, 1), warnings=(*sample.warnings, *said))


def _reader(content: Any, file: Path) -> Reader:
    for reader in READERS:
        if reader.fits(content):
            return reader
    near = nearest(content)
    raise SampleError(
        describe(content),
        expected="input_ids (or token_ids) and hidden states of a known layout",
        where=file,
        hint=f"{near}; {_HINT}" if near else _HINT,
    )


def nearest(content: Any) -> str:
    """The known layout that shares most keys with `content`, and which it shares; empty where none shares any."""
    while isinstance(content, list) and content:
        content = content[0]
    keys = {key for key in content if isinstance(key, str)} if isinstance(content, dict) else set()
    shared = [(reader, [word for word in _words(reader) if word in keys]) for reader in READERS]
    reader, words = max(shared, key=lambda pair: len(pair[1]))
    if not words:
        return ""
    return f"nearest: {reader.name}, which also has {', '.join(words)} and expects {reader.expects}"


def _words(reader: Reader) -> list[str]:
    """The keys that a reader's `expects` names: its words with an underscore, each once."""
    return list(dict.fromkeys(re.findall(r"[a-z]+(?:_[a-z]+)+", reader.expects)))


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
