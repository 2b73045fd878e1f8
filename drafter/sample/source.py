"""What a reader of one producer's layout is, and what it is given: the content of a file, its tensors unread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafter.sample.sample import Sample


@dataclass(frozen=True)
class Source:
    """`path` names the sample and `file` is where it lies: they differ where a file holds several (`part`).

    `content` is a table or list with a StoredTensor in place of each tensor; `width` is the target width H of the
    drafter that is open, for layouts that do not say theirs.
    """

    path: Path
    file: Path
    content: Any
    width: int | None = None
    part: int = 0


def _one(source: Source) -> int:
    return 1


@dataclass(frozen=True)
class Reader:
    """One layout: `name` as it is shown, `expects` the keys and shapes in words, for refusals.

    `fits(content)` decides by keys and shapes alone; `parts(source)` is the number of samples in the file; `read`
    raises SampleError where shapes contradict each other.
    """

    name: str
    expects: str
    fits: Callable[[Any], bool]
    read: Callable[[Source], Sample]
    parts: Callable[[Source], int] = _one
