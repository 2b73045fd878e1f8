"""Opening a recorded sample: the format is told by magic bytes and keys, never by the suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter.errors import FileError, PathError, SampleError
from drafter.files.path import there
from drafter.files.safetensors_file import read_header
from drafter.files.stored import StoredTensor
from drafter.files.torch_file import read_torch_file
from drafter.sample import speculators_arrow, speculators_v1
from drafter.sample.sample import Sample

_EXPECTED = "input_ids with a list hidden_states (torch), or token_ids with hidden_states (safetensors)"


def open_sample(path: Path) -> Sample:
    """The sample in `path`, its states unread.

    Raises PathError, FileError, UnsafeFileError or SampleError.
    """
    if not there(path):
        raise PathError("no such sample", where=path, hint="check --samples")
    try:
        with path.open("rb") as file:
            magic = file.read(9)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error
    if magic[8:9] == b"{":
        header = read_header(path)
        if speculators_arrow.fits(header):
            return speculators_arrow.read(path, header)
        raise SampleError(f"tensors {_shapes(header.tensors)}", expected=_EXPECTED, where=path)
    content = read_torch_file(path)
    if speculators_v1.fits(content):
        return speculators_v1.read(path, content)
    raise SampleError(_describe(content), expected=_EXPECTED, where=path)


def _describe(content: Any) -> str:
    if isinstance(content, dict):
        return f"a table with {_shapes(content)}"
    return f"a {type(content).__name__}"


def _shapes(table: dict[Any, Any]) -> str:
    def shape(value: Any) -> str:
        return str(list(value.shape)) if isinstance(value, StoredTensor) else type(value).__name__

    said = [f"{key!r:.40} {shape(value)}" for key, value in list(table.items())[:8]]
    return ", ".join(said) + (", ..." if len(table) > 8 else "")
