"""A vocab map that lies beside the weights and not in them: offered, and named wherever it is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drafter.errors import DrafterError
from drafter.files.npy_file import read_npy
from drafter.files.order import natural
from drafter.files.stored import INTEGERS, StoredTensor
from drafter.files.torch_file import read_torch_file

_FOLDERS = ("", "vocab_mapping", "cache/vocab_mapping")
_TORCH = ("vocab_mapping.pt", "eagle_meta.pt", "cache.pt")
MAX_FILES = 64


@dataclass(frozen=True)
class SideMap:
    """`d2t` [D] as stored, unread, in the file `source`; `t2d` where there is one of the same map."""

    d2t: StoredTensor
    t2d: StoredTensor | None
    source: Path


def find_side_maps(folder: Path, size: int) -> list[SideMap]:
    """Maps of `size` draft ids in or beside `folder`, the nearest first; files that cannot be read are passed over."""
    found = []
    for place in _places(folder):
        for path in place:
            try:
                made = _npy(path) if path.suffix == ".npy" else _torch(path)
            except DrafterError:
                continue
            if made is not None and made.d2t.shape == (size,) and made.d2t.dtype in INTEGERS:
                found.append(made)
    return found


def _places(folder: Path) -> Iterator[list[Path]]:
    for base in (folder, folder.parent):
        for inner in _FOLDERS:
            try:
                names = sorted((p.name for p in (base / inner).iterdir()), key=natural)
            except OSError:
                continue
            wanted = [name for name in names if re.fullmatch(r"d2t(-\d+)?\.npy", name) or name in _TORCH]
            if inner:
                wanted += [name for name in names if name.endswith(".pt") and name not in wanted]
            yield [base / inner / name for name in wanted[:MAX_FILES] if (base / inner / name).is_file()]


def _npy(path: Path) -> SideMap:
    d2t, marks = read_npy(path), path.with_name(path.name.replace("d2t", "t2d", 1))
    try:
        t2d = read_npy(marks) if marks.is_file() else None
    except DrafterError:
        t2d = None
    return SideMap(replace(d2t, name="d2t"), replace(t2d, name="t2d") if t2d else None, path)


def _torch(path: Path) -> SideMap | None:
    table: Any = read_torch_file(path)
    if not isinstance(table, dict):
        return None
    d2t = table.get("d2t", table.get("selected_token_ids"))
    t2d = table.get("t2d")
    if not isinstance(d2t, StoredTensor):
        return None
    return SideMap(replace(d2t, name="d2t"), t2d if isinstance(t2d, StoredTensor) else None, path)
