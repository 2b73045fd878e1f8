"""Listing samples by name only: no stat, no open, so a hundred thousand files are listed at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from drafter.errors import PathError
from drafter.files.path import there

_SAMPLE = re.compile(r".*\.(pt|ckpt)|hs_\d+\.safetensors")
_NOT_A_SAMPLE = re.compile(
    r"(token_freq|vocab_mapping|optimizer|scheduler|training_state|rng|eagle_meta|pytorch_model|cache|d2t|t2d).*"
)
MAX_DEPTH = 4


def is_sample_name(name: str) -> bool:
    return bool(_SAMPLE.fullmatch(name)) and not _NOT_A_SAMPLE.fullmatch(name)


def list_samples(paths: Sequence[Path], poll: Callable[[], None] = lambda: None) -> list[Path]:
    """Sample files at or below `paths`; within a folder in natural order of their numbers.

    Raises PathError for a path that does not exist, or when none holds a sample.
    """
    found: list[Path] = []
    for path in paths:
        if not there(path):
            raise PathError("no such file or folder", where=path, hint="check --samples")
        found += [path] if path.is_file() else _below(path, 0, poll)
    if paths and not found:
        where = ", ".join(map(str, paths))
        raise PathError("no recorded samples", expected="data_*.pt or hs_*.safetensors", where=where)
    return found


def _below(folder: Path, depth: int, poll: Callable[[], None]) -> list[Path]:
    poll()
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    # length before text: data_9 before data_10, without splitting each of a hundred thousand names
    names = sorted((e.name for e in entries if is_sample_name(e.name)), key=lambda name: (len(name), name))
    found = [folder / name for name in names]
    if depth < MAX_DEPTH:
        folders = sorted(e.name for e in entries if "." not in e.name and e.is_dir(follow_symlinks=False))
        for name in folders:
            found += _below(folder / name, depth + 1, poll)
    return found
