"""Finding draft checkpoints below a folder, by names and small JSON files only; no weights are opened here.

A checkpoint is a folder with a drafter's config, with or without weights; a folder with a drafter's weights whose
config lies in it or in the folder above; or a single file of weights. Links (`checkpoint_best -> 7`) are listed as
names of the folder that they lead to, also where a copy turned the link into a small text file, or lost it and kept
`{run}.best_meta.json`. Knows nothing of what a config means beyond "could this be a drafter".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from drafter.errors import FileError, PathError
from drafter.files.containers import STATE, TORCH, Weights, file_state, folder_state, is_weights, mentions, weight_files
from drafter.files.json_file import read_json
from drafter.files.order import natural as natural
from drafter.files.path import there

CONFIGS = ("config.json", "config_speculators.json")
# what SpecForge's runs call the config of the draft, which they do not copy beside every step's weights
RUN_CONFIGS = (*CONFIGS, "draft_model_config.json", "draft_config.json")
MAX_DEPTH = 8
MAX_FOLDERS = 50_000
MAX_SHARDS = 8  # of which the headers are looked at when a config says nothing
_BEST = ".best_meta.json"
_OTHERS = re.compile(r"medusa|nextn|mtp|mlp_?speculator|dflash")
_LINK_TEXT = re.compile(r"[\w.@+-]{1,200}(/[\w.@+-]{1,200}){0,3}")
_EPOCH = re.compile(r"(?:^|[-_/])(?:epoch|step|checkpoint|iter|state)?[-_]?(\d+)(?:[-_]step[-_]?\d+)?$")


@dataclass(frozen=True)
class Found:
    """One checkpoint: `name` is relative to where the search began; `state` is empty when it looks whole.

    `config` is None where there are weights and no config; `index` says which file holds which tensor.
    """

    path: Path
    name: str
    config: Path | None
    weights: tuple[Path, ...]
    size: int
    state: str = ""
    links: tuple[str, ...] = ()
    epoch: int | None = None
    index: Path | None = None


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


def _single_file(path: Path) -> Found:
    if path.suffix not in (".safetensors", *TORCH):
        expected = "a folder, or a file of weights (.safetensors, .bin, .pt)"
        raise PathError(f"a file {path.name!r}", expected=expected, where=path.parent)
    config = _config_of(path.parent, {name for name in RUN_CONFIGS if (path.parent / name).is_file()})
    if config is None:
        raise PathError("weights without a config", expected="config.json in the same folder", where=path)
    return Found(path, path.name, config, (path,), path.stat().st_size, file_state(path), epoch=None)


def _visit(walk: _Walk, folder: Path, name: str, depth: int) -> None:
    walk.poll()
    walk.folders += 1
    if depth > MAX_DEPTH or walk.folders > MAX_FOLDERS:
        return
    entries = _entries(folder)
    files = _files(entries)
    if any(config in files for config in CONFIGS) or any(is_weights(f) or f.endswith(".distcp") for f in files):
        found = _inspect(folder, name, files)
        if found is not None:
            walk.found[folder] = found
    for file in sorted(files):
        if file.endswith(_BEST):
            _note_best(walk, folder / file, f"{name}/{file}" if name else file)
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


def _note_best(walk: _Walk, path: Path, name: str) -> None:
    """SpecForge's note of its best step, which stands when a copy has lost the link."""
    try:
        table = read_json(path)
    except FileError:
        return
    run, step = path.name.removesuffix(_BEST), table.get("step")
    if type(step) is int and (path.parent / f"{run}-step{step}").is_dir():
        walk.links.append((name, (path.parent / f"{run}-step{step}").resolve()))


def _inspect(folder: Path, name: str, files: set[str]) -> Found | None:
    weights = weight_files(folder, files)
    config = _config_of(folder, files) if any(file in files for file in CONFIGS) else None
    drafter = config is not None and (_is_drafter_config(folder, files) or _has_fc(weights))
    if not drafter:
        parts = folder.name == "model" and any(file.endswith(".distcp") for file in files)  # TorchSpec's
        if config is not None or not (parts or _has_fc(weights)):
            return None
        config = _config_of(folder, files)
    state = folder_state(folder, files, weights)
    if config is not None and _says_other(config):
        state = "another kind of speculator"
    if config is None:
        state = "no config" + (f"; {state}" if state else "")
    shown = name or folder.name
    match = _EPOCH.search(shown.removesuffix("/model"))
    epoch = int(match.group(1)) if match else None
    return Found(folder, shown, config, weights.paths, _size(weights), state, (), epoch, weights.index)


def _size(weights: Weights) -> int:
    total = 0
    for path in weights.paths:
        try:
            total += path.stat().st_size
        except OSError:
            continue  # removed since it was listed
    return total


def _config_of(folder: Path, files: set[str]) -> Path | None:
    """The config in `folder`, else a drafter's in the folder above, where a run keeps one for all of its steps."""
    own = next((folder / name for name in RUN_CONFIGS if name in files), None)
    if own is not None:
        return own
    above = (folder.parent / name for name in RUN_CONFIGS)
    return next((path for path in above if _is(path.is_file) and _says_drafter(path)), None)


def _is_drafter_config(folder: Path, files: set[str]) -> bool:
    return any(name in files and _says_drafter(folder / name) is not False for name in CONFIGS)


def _says_drafter(path: Path) -> bool | None:
    """Whether a config has a drafter's keys; None where it cannot be read."""
    try:
        config = read_json(path)
    except FileError:
        return None  # listed, so that opening it can say what is wrong
    keys = ("speculators_model_type", "eagle_config", "draft_vocab_size", "medusa_num_heads")
    names = f"{config.get('architectures')} {config.get('model_type')}".lower()
    return any(key in config for key in keys) or "eagle" in names or _OTHERS.search(names) is not None


def _says_other(path: Path) -> bool:
    """Whether a config is that of Medusa heads and the like: listed, so that opening can say what they are."""
    try:
        config = read_json(path)
    except FileError:
        return False
    kind = config.get("speculators_model_type")
    names = f"{config.get('architectures')} {config.get('model_type')}".lower()
    other = kind is not None and kind not in ("eagle3", "peagle")
    return other or "medusa_num_heads" in config or ("eagle3" not in names and _OTHERS.search(names) is not None)


def _has_fc(weights: Weights) -> bool:
    """Whether the first file of weights is a drafter's; of SpecForge's training state, whether it holds the draft."""
    words = (b"draft_state_dict",) if weights.paths and weights.paths[0].name == STATE else (b"fc.weight",)
    return any(mentions(path, words) for path in weights.paths[:MAX_SHARDS])


def _what_is_here(root: Path) -> str:
    try:
        names = sorted(os.listdir(root), key=natural)
    except OSError as error:
        return f"cannot list it: {error.strerror}"
    if not names:
        return "the folder is empty"
    if "config.json" in names:
        try:
            config = read_json(root / "config.json")
        except FileError as error:
            return f"config.json: {error.found}"
        return f"the model {config.get('architectures')!r:.80} of {config.get('num_hidden_layers')!r:.20} layers, no fc"
    shown = ", ".join(repr(name) for name in names[:4])
    return f"{len(names)} entries: {shown}{', ...' if len(names) > 4 else ''}"
