"""Finding draft checkpoints below a folder, by names and small JSON files only; no weights are opened here.

A checkpoint is a folder with a drafter's config, with or without weights, or a single .safetensors file. Links
(`checkpoint_best -> 7`) are listed as names of the folder that they lead to, also where a copy turned the link into a
small text file. Knows nothing of what a config means beyond "could this be a drafter".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from drafter.errors import FileError, PathError
from drafter.files.json_file import read_json
from drafter.files.path import there
from drafter.files.safetensors_file import read_header

CONFIGS = ("config.json", "config_speculators.json")
MAX_DEPTH = 8
MAX_FOLDERS = 50_000
_LINK_TEXT = re.compile(r"[\w.@+-]{1,200}(/[\w.@+-]{1,200}){0,3}")
_EPOCH = re.compile(r"(?:^|[-_/])(?:epoch|step|checkpoint|iter)?[-_]?(\d+)(?:[-_]step[-_]?\d+)?$")


@dataclass(frozen=True)
class Found:
    """One checkpoint: `name` is relative to where the search began; `state` is empty when it looks whole."""

    path: Path
    name: str
    config: Path | None
    weights: tuple[Path, ...]
    size: int
    state: str = ""
    links: tuple[str, ...] = ()
    epoch: int | None = None


@dataclass
class _Walk:
    root: Path
    poll: Callable[[], None]
    found: dict[Path, Found] = field(default_factory=dict)
    links: list[tuple[str, Path]] = field(default_factory=list)
    folders: int = 0


def find_checkpoints(root: Path, poll: Callable[[], None] = lambda: None) -> list[Found]:
    """All checkpoints at or below `root`, in natural order of their names. `poll` may raise Cancelled.

    Raises PathError when `root` does not exist or holds none, saying what was there instead.
    """
    if not there(root):
        raise PathError("no such file or folder", where=root, hint="check the path")
    if root.is_file():
        return [_single_file(root)]
    walk = _Walk(root, poll)
    _visit(walk, root.resolve(), "", 0)
    for name, target in walk.links:
        if target in walk.found:
            entry = walk.found[target]
            walk.found[target] = Found(**{**entry.__dict__, "links": (*entry.links, name)})
    if not walk.found:
        raise PathError(
            f"no EAGLE-3 checkpoint ({_what_is_here(root)})",
            expected="config.json of a drafter with model.safetensors beside it, at any depth",
            where=root,
            hint="name the folder that the training wrote",
        )
    return sorted(walk.found.values(), key=lambda f: natural(f.name))


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key by which `epoch_10` follows `epoch_9`."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)


def _single_file(path: Path) -> Found:
    if path.suffix != ".safetensors":
        raise PathError(f"a file {path.name!r}", expected="a folder, or a .safetensors file", where=path.parent)
    configs = [path.parent / name for name in CONFIGS if (path.parent / name).is_file()]
    if not configs:
        raise PathError("weights without a config", expected="config.json in the same folder", where=path)
    return Found(path, path.name, configs[0], (path,), path.stat().st_size, epoch=None)


def _visit(walk: _Walk, folder: Path, name: str, depth: int) -> None:
    walk.poll()
    walk.folders += 1
    if depth > MAX_DEPTH or walk.folders > MAX_FOLDERS:
        return
    entries = _entries(folder)
    files = _files(entries)
    if any(config in files for config in CONFIGS) or any(f.endswith(".safetensors") for f in files):
        found = _inspect(folder, name, files)
        if found is not None:
            walk.found[folder] = found
    for entry in sorted(entries, key=lambda e: natural(e.name)):
        below = f"{name}/{entry.name}" if name else entry.name
        if entry.is_symlink():
            _note_link(walk, Path(entry.path), below)
        elif _is(entry.is_dir):
            if not entry.name.startswith("."):
                _visit(walk, Path(entry.path), below, depth + 1)
        elif "." not in entry.name and _is(entry.is_file):
            _note_text_link(walk, entry, below)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []  # a folder that may not be read holds nothing for this user


def _files(entries: list[os.DirEntry[str]]) -> set[str]:
    """Names of regular files and of links to them: a pipe would be waited for, a dangling link has no size."""
    return {entry.name for entry in entries if _is(entry.is_file)}


def _is(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:
        return False  # a circular link


def _note_link(walk: _Walk, link: Path, name: str) -> None:
    try:
        target = link.resolve(strict=True)
    except (OSError, RuntimeError):
        return  # a dangling or circular link leads nowhere
    if not target.is_dir():
        return
    walk.links.append((name, target))
    if not target.is_relative_to(walk.root.resolve()) and target not in walk.found:
        # the only name under which this folder can be seen from here
        found = _inspect(target, name, _files(_entries(target)))
        if found is not None:
            walk.found[target] = found
            walk.links.pop()


def _note_text_link(walk: _Walk, entry: os.DirEntry[str], name: str) -> None:
    """A link that a copy without links left as a text file with the target's name in it."""
    try:
        if entry.stat().st_size > 255:
            return
        text = Path(entry.path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return
    if _LINK_TEXT.fullmatch(text) and ".." not in text:
        target = Path(entry.path).parent / text
        if target.is_dir():
            walk.links.append((name, target.resolve()))


def _inspect(folder: Path, name: str, files: set[str]) -> Found | None:
    configs = [folder / config for config in CONFIGS if config in files]
    weights = tuple(folder / file for file in sorted(files, key=natural) if is_weights(file))
    if not (configs and _is_drafter_config(configs, weights)):
        return None
    state = "" if weights else "no weights"
    if any(file.endswith((".bin", ".pt")) and "model" in file for file in files) and not weights:
        state = "weights in a format not read yet"
    size = sum(path.stat().st_size for path in weights)
    shown = name or folder.name
    match = _EPOCH.search(shown)
    return Found(folder, shown, configs[0], weights, size, state, (), int(match.group(1)) if match else None)


def is_weights(file: str) -> bool:
    return file.endswith(".safetensors") and not file.startswith((".", "optimizer", "adapter"))


def _is_drafter_config(configs: list[Path], weights: tuple[Path, ...]) -> bool:
    for path in configs:
        try:
            config = read_json(path)
        except FileError:
            return True  # listed, so that opening it can say what is wrong
        architectures = str(config.get("architectures"))
        if "speculators_model_type" in config or "eagle_config" in config or "eagle" in architectures.lower():
            return True
        if "draft_vocab_size" in config:
            return True
    return bool(weights) and _has_fc(weights[0])


def _has_fc(weights: Path) -> bool:
    try:
        return any(name.endswith("fc.weight") for name in read_header(weights).tensors)
    except FileError:
        return False


def _what_is_here(root: Path) -> str:
    try:
        names = sorted(os.listdir(root), key=natural)
    except OSError as error:
        return f"cannot list it: {error.strerror}"
    if not names:
        return "the folder is empty"
    shown = ", ".join(repr(name) for name in names[:4])
    return f"{len(names)} entries: {shown}{', ...' if len(names) > 4 else ''}"
