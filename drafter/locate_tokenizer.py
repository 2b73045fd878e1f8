"""Where the tokenizer lies when the user did not say, with the reason kept: checkpoint, verifier, sample, and the notes
that data generation and training left beside their outputs.

Nothing is downloaded. A folder is taken for its file names; whether its tokenizer can be read is found on opening it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.target import TargetFolder
from drafter.errors import DrafterError
from drafter.files.json_file import read_json
from drafter.named_folders import is_file, named_folders, rebased, verifier_name
from drafter.sample.text.tokens import FILES

_MAX_NOTE = 1 << 20
_KEYS = ("verifier[-_]name[-_]or[-_]path", "target[-_]model[-_]path", "model(?:[-_]name[-_]or)?(?:[-_]path)?")
_QUOTED = r"""(?:"([^"\n]+)"|'([^'\n]+)'|"""
_WORD = _QUOTED + r"""([^\s"']\S*))"""
_LINE = _QUOTED + r"""([^\s"'#][^\n]*?))[ \t]*(?:[ \t]#.*)?$"""

Place = tuple[Path, str]  # a folder and why it is looked at


@dataclass(frozen=True)
class Located:
    path: Path
    why: str


def locate_tokenizer(
    given: Path | None, checkpoint: Checkpoint | None, sample: Path | None, target: TargetFolder | None
) -> Located | None:
    """The file or folder to read token text from, or None: then ids are shown."""
    if given is not None:
        return Located(given, "as given")
    for folder, why in _places(checkpoint, sample, target):
        if any(is_file(folder / name) for name in FILES):
            return Located(folder, why)
    return None


def _places(checkpoint: Checkpoint | None, sample: Path | None, target: TargetFolder | None) -> Iterator[Place]:
    own = None if checkpoint is None else checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    if checkpoint is not None and own is not None:
        yield own, "the checkpoint's"
        yield from _named(verifier_name(checkpoint), "the config's verifier", own)
    if sample is not None:
        yield from ((sample.parent, "beside the sample"), (sample.parent.parent, "beside the samples"))
        for folder in (sample.parent, sample.parent.parent):
            yield from _named(_recorded_with(folder / "data_config.json"), "the target in data_config.json", folder)
    if own is not None:
        real = own.resolve()
        for folder in (real, real.parent):
            for note in ("train_command.txt", "run.yaml"):
                for name in _trained_with(folder / note):
                    yield from _named(name, f"the target in {note}", real)
    if target is not None:
        yield target.path, "the target's"


def _named(name: str, who: str, start: Path) -> Iterator[Place]:
    """Folders for a name in a file; where it is a path of another machine, what fits its end near `start`."""
    found = False
    for folder in named_folders(name):
        found = True
        yield folder, f"{who} {name!r}"
    if not found:
        for folder in rebased(name, start.resolve()):
            yield folder, f"{who}, rebased: {name!r} is not here"


def _recorded_with(file: Path) -> str:
    """`model.target_model_path` of the data_config.json that speculators 0.3 and 0.4 write."""
    try:
        model = read_json(file).get("model")
    except DrafterError:
        return ""
    name = model.get("target_model_path") if isinstance(model, dict) else None
    return name if isinstance(name, str) else ""


def _trained_with(note: Path) -> list[str]:
    """Models that a training's command line or run.yaml names, the surest key first; lines are searched, not parsed."""
    try:
        with note.open("rb") as file:
            text = file.read(_MAX_NOTE).decode("utf-8", errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError):
        return []
    form = rf"^[ \t]*%s[ \t]*:[ \t]+{_LINE}" if note.suffix == ".yaml" else rf"(?<!\S)--%s(?:=|[ \t]+){_WORD}"
    found = [re.search(form % key, text, re.MULTILINE) for key in _KEYS]
    return [match[1] or match[2] or match[3] for match in found if match is not None]
