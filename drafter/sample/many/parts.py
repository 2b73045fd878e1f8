"""The samples in one listed file, by name: most hold one, some recorders write many into a file."""

from __future__ import annotations

from pathlib import Path

from drafter.errors import DrafterError
from drafter.files.path import there
from drafter.sample.content import read_content
from drafter.sample.formats.readers import READERS
from drafter.sample.sample import name_part
from drafter.sample.source import Source


def sample_paths(path: Path, width: int | None = None) -> list[Path]:
    """`path` itself, or `path#0`, `path#1`, ... of a file that holds several; only headers are read.

    A name that is no file (`file#3` already) and a file that cannot be read are answered with `path`: opening it says
    what is wrong.
    """
    try:
        # what is compressed is one sample of SpecForge: it must not be inflated twice to learn that
        parts = _parts(path, width) if there(path) and not path.name.endswith(".gz") else 1
    except DrafterError:
        parts = 1
    return [name_part(path, part, parts) for part in range(parts)]


def _parts(path: Path, width: int | None) -> int:
    content = read_content(path)
    reader = next((reader for reader in READERS if reader.fits(content)), None)
    return max(reader.parts(Source(path, path, content, width)), 1) if reader is not None else 1
