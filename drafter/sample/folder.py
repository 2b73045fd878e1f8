"""Listing samples by name only: no stat, no open, so a hundred thousand files are listed at once."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import overload

from drafter.errors import PathError
from drafter.files.path import there

_SUFFIXES = (".pt", ".ckpt", ".ckpt.gz", ".pt.gz", ".pth", ".npz", ".safetensors", ".npy")
# what lies in the same folders and is no sample; a name of another kind that is meant is given by itself
_OTHERS = (
    *("token_freq", "vocab_mapping", "optimizer", "scheduler", "training_state", "training_args", "rng", "eagle_meta"),
    *("pytorch_model", "model.safetensors", "model-", "consolidated", "adapter", "draft_model", "cache", "d2t", "t2d"),
    *("target_embeddings", "random_states", "."),
)
# beside checkpoints, where nobody said that there are samples, only names that recorders give
_BESIDE = re.compile(r".*\.(pt|ckpt|ckpt\.gz)|(hs_|shard-)\d+\.safetensors")
_FILE_SUFFIXES = (*_SUFFIXES, ".lock", ".json", ".tmp", ".txt", ".md", ".arrow", ".gz", ".py")
MAX_DEPTH = 4


def is_sample_name(name: str) -> bool:
    """Whether a file of this name is taken for a sample where nobody said so."""
    return not name.startswith(_OTHERS) and bool(_BESIDE.fullmatch(name))


class SamplePaths(Sequence[Path]):
    """Paths as folders with names in them: a Path is made only where somebody looks at one."""

    def __init__(self, folders: Iterable[tuple[str, list[str]]] = ()) -> None:
        self._folders = [(folder, names) for folder, names in folders if names]
        self._starts = [0]
        self._numbers: dict[str, dict[str, int]] | None = None  # by folder and name, made when first asked for
        for _, names in self._folders:
            self._starts.append(self._starts[-1] + len(names))

    @classmethod
    def of(cls, paths: Iterable[Path]) -> SamplePaths:
        """The same paths in the same order."""
        folders: list[tuple[str, list[str]]] = []
        for path in paths:
            if not folders or folders[-1][0] != str(path.parent):
                folders.append((str(path.parent), []))
            folders[-1][1].append(path.name)
        return cls(folders)

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Path: ...

    @overload
    def __getitem__(self, index: slice) -> list[Path]: ...

    def __getitem__(self, index: int | slice) -> Path | list[Path]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        folder, name = self.parts(index)
        return Path(folder, name)

    def parts(self, index: int) -> tuple[str, str]:
        """(folder, name) of one path."""
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(index)
        at = bisect_right(self._starts, index) - 1
        folder, names = self._folders[at]
        return folder, names[index - self._starts[at]]

    def expanded(self, index: int, parts: int) -> SamplePaths:
        """The same with path `index`, a file that holds `parts` samples, replaced by each of them."""
        folder, name = self.parts(index)
        at = bisect_right(self._starts, index) - 1
        here, inner = self._folders[at][1], index - self._starts[at]
        names = [*here[:inner], *(f"{name}#{i}" for i in range(parts)), *here[inner + 1 :]]
        return SamplePaths([*self._folders[:at], (folder, names), *self._folders[at + 1 :]])

    def find(self, path: Path) -> int | None:
        """The number of `path`, or None."""
        if self._numbers is None:
            self._numbers = {}
            for start, (folder, names) in reversed(list(zip(self._starts, self._folders, strict=False))):
                inner = self._numbers.setdefault(folder, {})
                inner.update(zip(reversed(names), range(start + len(names) - 1, start - 1, -1), strict=True))
        return self._numbers.get(str(path.parent), {}).get(path.name)

    def names(self) -> list[str]:
        """Every file name, in order."""
        return [name for _, names in self._folders for name in names]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SamplePaths({list(self[:3])!r}{', ...' if len(self) > 3 else ''})"


def list_samples(
    paths: Sequence[Path], poll: Callable[[], None] = lambda: None, *, beside: bool = False
) -> SamplePaths:
    """Sample files at or below `paths`; within a folder in natural order of their numbers.

    `beside` takes only the names that recorders give. Raises PathError for a path that does not exist, or when none
    holds a sample.
    """
    found: list[tuple[str, list[str]]] = []
    for path in paths:
        if there(path) and path.is_dir():
            found += _below(str(path), 0, poll, beside)
        elif there(path) or _is_part(path):
            found.append((str(path.parent), [path.name]))
        else:
            raise PathError("no such file or folder", where=path, hint="check --samples")
    listed = SamplePaths(found)
    if paths and not listed:
        where = ", ".join(map(str, paths))
        raise PathError("no recorded samples", expected=f"files named *{', *'.join(_SUFFIXES[:7])}", where=where)
    return listed


def _is_part(path: Path) -> bool:
    """Whether `path` names one sample of a file that holds several."""
    from drafter.sample.sample import split_part

    file, part = split_part(path)
    return part is not None and there(file)


def _below(folder: str, depth: int, poll: Callable[[], None], beside: bool) -> list[tuple[str, list[str]]]:
    poll()
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    names = [e.name for e in entries if e.name.endswith(_SUFFIXES)]
    names = [name for name in names if not name.startswith(_OTHERS)]
    if beside:
        names = [name for name in names if _BESIDE.fullmatch(name)]
    # length before text: data_9 before data_10, without splitting each of a hundred thousand names
    names.sort()
    names.sort(key=len)
    found = [(folder, names)]
    if depth < MAX_DEPTH:
        others = (e for e in entries if not e.name.endswith(_FILE_SUFFIXES) and not e.name.startswith("."))
        for name in sorted(e.name for e in others if e.is_dir(follow_symlinks=False)):
            found += _below(os.path.join(folder, name), depth + 1, poll, beside)  # noqa: PTH118  (strings, not Paths)
    return found
