"""Which files of a folder hold the weights, and whether they look whole; the safe formats first. Needs no torch.

safetensors before torch files: what both hold is the same, and only the first can be listed without unpickling.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from drafter.errors import FileError
from drafter.files.json_file import read_json
from drafter.files.legacy_torch import MAGIC
from drafter.files.order import natural
from drafter.files.path import there
from drafter.files.safetensors_file import read_header

INDEX = "model.safetensors.index.json"
INDEXES = {INDEX: ".safetensors", "pytorch_model.bin.index.json": ".bin"}
STATE = "training_state.pt"  # SpecForge's; the draft's weights lie in it
TORCH = (".bin", ".pt", ".pth")
_TORCH_WEIGHTS = re.compile(r"(pytorch_model|model|draft_model|draft|eagle_model)([-_.][\w-]+)*\.(bin|pt|pth)")
_NOT_WEIGHTS = (".", "optimizer", "adapter", "scheduler", "random_states", "rng")
_UNFINISHED = re.compile(r"(model|pytorch_model|training_state|config).*\.(lock|tmp|part|aria2)|.*\.incomplete")
_PEEK = 1 << 22


@dataclass(frozen=True)
class Weights:
    """`paths` are all read; `index` where they are shards of one."""

    paths: tuple[Path, ...] = ()
    index: Path | None = None


def is_weights(file: str) -> bool:
    """Whether `file` is named like the weights of a model."""
    if file.startswith(_NOT_WEIGHTS):
        return False
    return file.endswith(".safetensors") or file == STATE or _TORCH_WEIGHTS.fullmatch(file) is not None


def weight_files(folder: Path, files: Iterable[str]) -> Weights:
    """The files of `folder`, which holds `files`, that its weights are read from."""
    names = sorted((file for file in files if is_weights(file)), key=natural)
    for index, suffix in INDEXES.items():
        ours = [name for name in names if name.endswith(suffix)]
        if index in files:
            return Weights(tuple(folder / name for name in ours), folder / index)
        if suffix == ".safetensors" and ours:
            return Weights(tuple(folder / name for name in ours))
    plain = [name for name in names if name != STATE] or names
    return Weights(tuple(folder / name for name in plain))


def folder_state(folder: Path, files: Iterable[str], weights: Weights) -> str:
    """Empty when the weights look whole, else what is wrong with them; reads headers only."""
    unfinished = next((file for file in sorted(files) if _UNFINISHED.fullmatch(file)), None)
    if weights.index is not None:
        missing = _missing_shard(weights.index)
        if missing:
            return missing
    for path in weights.paths:
        problem = file_state(path)
        if problem:
            return f"{path.name}: {problem}" + (f"; {unfinished} beside it" if unfinished else "")
    if unfinished is not None:
        return f"still being written ({unfinished})"
    if weights.paths:
        return ""
    parts = [file for file in files if file.endswith(".distcp")]
    return f"weights in {len(parts)} .distcp parts: export them to safetensors" if parts else "no weights"


def _missing_shard(index: Path) -> str:
    try:
        table = read_json(index).get("weight_map")
    except FileError as error:
        return f"{index.name}: {error.found}"
    if not isinstance(table, dict):
        return f"{index.name}: no 'weight_map'"
    named = sorted({str(file) for file in table.values()})
    absent = [file for file in named if not there(index.parent / file)]
    return f"a shard is missing: {absent[0]:.80}" if absent else ""


def file_state(path: Path) -> str:
    """Empty when the file looks whole, else what is wrong with it."""
    try:
        if path.stat().st_size == 0:
            return "zero bytes"
        if path.suffix == ".safetensors":
            read_header(path)
            return ""
        return _torch_state(path)
    except FileError as error:
        return f"{error.found}; {error.hint}" if error.hint else error.found
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _torch_state(path: Path) -> str:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == MAGIC:
        return ""
    if magic != b"PK\x03\x04":
        return f"no torch file (begins with {magic!r})"
    return "" if zipfile.is_zipfile(path) else "a torch file without a whole directory; it is truncated"


def mentions(path: Path, words: Iterable[bytes]) -> bool:
    """Whether the structure of a weight file holds one of `words`; nothing is unpickled."""
    try:
        if path.suffix == ".safetensors":
            names = [name.encode() for name in read_header(path).tensors]
            return any(word in name for word in words for name in names)
        with path.open("rb") as file:
            if file.read(4) == MAGIC:
                start = file.read(_PEEK)
                return any(word in start for word in words)
        with zipfile.ZipFile(path) as archive:
            entry = next(entry for entry in archive.infolist() if entry.filename.endswith("data.pkl"))
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > _PEEK:
                return False
            return any(word in archive.read(entry) for word in words)
    except Exception:  # zipfile fails in whatever way forged bytes lead it to; such a file mentions nothing
        return False
