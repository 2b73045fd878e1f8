"""Folders that a file names: a path of this machine, a model of the hub's cache, or what is left of another machine's
path. Nothing is downloaded, and a name that no file can have leads nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from drafter.checkpoint.checkpoint import Checkpoint

LEVELS = 3  # folders above a start beside which a path of another machine is looked for
_KEPT = (2, 1)  # of its last components


def verifier_name(checkpoint: Checkpoint) -> str:
    """The target that the config names, else the training's own config; empty where neither does."""
    trained = checkpoint.trained_config.verifier if checkpoint.trained_config else ""
    return checkpoint.config.verifier or trained


def named_folders(name: str) -> Iterator[Path]:
    """Folders of this machine that `name` means: an absolute path, or `org/model` in the hub's cache."""
    if not name or "\x00" in name:
        return
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # the home of a user who is not here
        return
    if path.is_absolute():
        if is_dir(path):
            yield path
    elif name.count("/") <= 1:
        yield from _snapshots(name)


def _snapshots(name: str) -> Iterator[Path]:
    """The snapshots of a model in the hub's cache, that of the branch `main` first."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    model = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{name.replace('/', '--')}"
    try:
        main = (model / "refs" / "main").read_bytes()[:100].decode("ascii", "replace").strip()
    except (OSError, ValueError):
        main = ""
    try:
        found = sorted((model / "snapshots").iterdir(), key=lambda path: (path.name != main, path.name))
    except (OSError, ValueError):
        return
    yield from found


def rebased(name: str, start: Path) -> Iterator[Path]:
    """Where the last components of another machine's path `name` are folders beside `start`, or above it."""
    parts = [part for part in re.split(r"[/\\]", name) if part.strip("~.") and "\x00" not in part]
    for parent in list(start.parents)[:LEVELS]:
        for count in _KEPT:
            folder = parent.joinpath(*parts[-count:])
            if len(parts) >= count and is_dir(folder):
                yield folder


def is_dir(path: Path) -> bool:
    """Whether `path` is a folder; none is at a name that no file can have, or that may not be looked at."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """The same for files."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
