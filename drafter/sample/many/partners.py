"""Which samples of two folders hold the same tokens, told by a digest of their ids; states stay unread.

A recording that leaves out its first token (UNKNOWN_ID) is found by the others. Prefixes are not looked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drafter.errors import DrafterError
from drafter.sample.many.each import Opener, each_sample
from drafter.sample.sample import UNKNOWN_ID, Sample


@dataclass
class Partners:
    """`pairs` of (ours, theirs) in the order of ours; the rest found no partner, or could not be read (and why)."""

    pairs: list[tuple[Path, Path]] = field(default_factory=list)
    only_ours: list[Path] = field(default_factory=list)
    only_theirs: list[Path] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Known:
    """A sample by its digests: of all ids, and of all but the first; `headless` where the first is unknown."""

    path: Path
    whole: bytes
    tail: bytes
    headless: bool


def find_partners(
    ours: Sequence[Path], theirs: Sequence[Path], open_one: Opener, poll: Callable[[], None] = lambda: None
) -> Partners:
    """Pair the samples of `ours` and `theirs` by their token ids, each once, in order; parts of a file included."""
    result = Partners()
    left = _known(ours, open_one, poll, result.unreadable)
    right = _known(theirs, open_one, poll, result.unreadable)
    order = {one.path: at for at, one in enumerate(left)}
    found = _paired(left, right, lambda one: one.whole, lambda a, b: True)
    left, right = _without(left, [a for a, _ in found]), _without(right, [b for _, b in found])
    rest = _paired(left, right, lambda one: one.tail, lambda a, b: a.headless or b.headless)
    result.only_ours = [one.path for one in _without(left, [a for a, _ in rest])]
    result.only_theirs = [one.path for one in _without(right, [b for _, b in rest])]
    result.pairs = [(a.path, b.path) for a, b in sorted([*found, *rest], key=lambda pair: order[pair[0].path])]
    return result


def _known(
    paths: Sequence[Path], open_one: Opener, poll: Callable[[], None], unreadable: dict[Path, str]
) -> list[_Known]:
    known = []
    for path, looked in each_sample(paths, open_one, poll):
        if isinstance(looked, DrafterError):
            unreadable[path] = str(looked)
        else:
            known.append(_digests(path, looked))
    return known


def _digests(path: Path, sample: Sample) -> _Known:
    ids = sample.ids.tolist()
    whole, tail = (hashlib.sha256(",".join(map(str, part)).encode()).digest() for part in (ids, ids[1:]))
    return _Known(path, whole, tail, bool(ids) and ids[0] == UNKNOWN_ID)


def _paired(
    left: Sequence[_Known],
    right: Sequence[_Known],
    key: Callable[[_Known], bytes],
    may: Callable[[_Known, _Known], bool],
) -> list[tuple[_Known, _Known]]:
    waiting: dict[bytes, list[_Known]] = {}
    for one in right:
        waiting.setdefault(key(one), []).append(one)
    pairs = []
    for one in left:
        fitting = next((other for other in waiting.get(key(one), ()) if may(one, other)), None)
        if fitting is not None:
            waiting[key(one)].remove(fitting)
            pairs.append((one, fitting))
    return pairs


def _without(all_of: Sequence[_Known], taken: Iterable[_Known]) -> list[_Known]:
    gone = {one.path for one in taken}
    return [one for one in all_of if one.path not in gone]
