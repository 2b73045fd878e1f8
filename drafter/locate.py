"""Where samples and target lie when the user did not say: beside the checkpoint, with the reason kept.

Nothing is downloaded, and nothing is taken silently: every answer carries the words in which it is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.target import TargetFolder, open_target
from drafter.errors import DrafterError
from drafter.files.find import natural
from drafter.named_folders import named_folders, verifier_name
from drafter.sample.folder import SamplePaths, is_sample_name, list_samples

LEVELS = 3  # folders above the checkpoint whose children are looked at
MAX_CHILDREN = 200


def locate_target(given: Path | None, checkpoint: Checkpoint) -> tuple[TargetFolder | None, str]:
    """The target folder and the reason, or None and what was looked for.

    The user's choice, else the config's `verifier.name_or_path` if it is here, else a folder beside the checkpoint
    that has the right sizes. Raises PathError or FileError only for the user's own choice.
    """
    if given is not None:
        return open_target(given), "as given"
    named = verifier_name(checkpoint)
    for path in named_folders(named):
        target = _fitting(path, checkpoint)
        if target is not None:
            return target, f"the config's verifier {named!r}"
    for folder in _around(checkpoint.path):
        target = _fitting(folder, checkpoint)
        if target is not None:
            return target, "found beside the checkpoint, by its sizes" + (f"; {named!r} is not here" if named else "")
    return None, f"{named!r} is not here, and nothing beside the checkpoint fits" if named else "no target known"


def _fitting(folder: Path, checkpoint: Checkpoint) -> TargetFolder | None:
    config = checkpoint.config
    try:
        target = open_target(folder)
    except DrafterError:
        return None
    same = target.hidden_size == config.target_hidden_size and target.vocab_size == config.vocab_size
    # another drafter with an embedding of its own has the same sizes
    return target if same and target.embed is not None and not target.has_fc else None


def _around(start: Path) -> Iterator[Path]:
    """Folders with a config near `start`: its siblings, then those of the folders above."""
    own = start.resolve()
    for parent in list(own.parents)[:LEVELS]:
        try:
            children = sorted((e.name for e in os.scandir(parent) if e.is_dir()), key=natural)[:MAX_CHILDREN]
        except OSError:
            continue
        for name in children:
            folder = parent / name
            if folder != own and not own.is_relative_to(folder) and (folder / "config.json").is_file():
                yield folder


def locate_samples(given: tuple[Path, ...], root: Path, poll: Callable[[], None]) -> tuple[SamplePaths, str]:
    """Sample files and where they were found. Raises PathError only for the user's own choice.

    Beside the checkpoints: below `root`, then in folders next to it that hold samples.
    """
    if given:
        return list_samples(given, poll), ", ".join(map(str, given))
    base = root.resolve() if root.is_dir() else root.resolve().parent
    for folder in [base, *_sample_folders(base)]:
        try:
            return _of_one_kind(list_samples([folder], poll, beside=True), folder)
        except DrafterError:
            continue
    return SamplePaths(), "none given (-s), none beside the checkpoints"


def _of_one_kind(paths: SamplePaths, folder: Path) -> tuple[SamplePaths, str]:
    """Only the files like the first: recordings of two formats are often the same texts, which would count twice."""
    said = f"{folder}, beside the checkpoints"
    suffix = paths[0].suffix
    if all(name.endswith(suffix) for name in paths.names()):
        return paths, said
    same = SamplePaths.of(path for path in paths if path.suffix == suffix)
    return same, f"{said}; {len(paths) - len(same)} files of another format left out"


def _sample_folders(base: Path) -> Iterator[Path]:
    for parent in list(base.parents)[:2]:
        try:
            entries = list(os.scandir(parent))
        except OSError:
            continue
        if any(is_sample_name(entry.name) for entry in entries):
            yield parent
        for entry in sorted(entries, key=lambda e: e.name):
            named = any(word in entry.name.lower() for word in ("sample", "hidden", "data"))
            if named and entry.is_dir() and Path(entry.path).resolve() != base:
                yield Path(entry.path)
