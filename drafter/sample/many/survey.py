"""What a folder of recorded samples holds, sample by sample and counted: formats, tokens, supervised tokens, states,
bytes, and what cannot be read. Headers, ids and masks are read, never states.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from drafter.errors import DrafterError
from drafter.files.path import there
from drafter.sample.many.each import Opener, each_part
from drafter.sample.sample import Sample, split_part

_EMPTY = frozenset({"an empty file", "an empty table", "a list of 0", "0 tokens"})


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One sample. `supervised` is None where no loss mask is recorded; `size` is the bytes of its whole file.

    A refused one has an `error`, one line, and its `kind`: what was found, with numbers and names left out.
    """

    path: Path
    size: int
    format: str = ""
    tokens: int = 0
    supervised: int | None = None
    slots: int = 0
    width: int = 0
    dtype: str = ""
    warnings: tuple[str, ...] = ()
    error: str = ""
    kind: str = ""
    empty: bool = False

    @property
    def readable(self) -> bool:
        return not self.error

    @property
    def problem(self) -> str:
        """The refusal, else that nothing is supervised, else the warnings; empty for a sound sample."""
        if self.error:
            return self.error
        unused = [f"0 of {self.tokens} tokens supervised"] if self.supervised == 0 else []
        return "; ".join([*unused, *self.warnings])


@dataclass
class FirstError:
    """The first refusal of its kind, and how many there are."""

    kind: str
    path: Path
    error: str
    count: int = 1


@dataclass
class Survey:
    """Fills while it runs. Counts are of samples; `files` and `bytes` count each file once."""

    planned: int
    samples: list[Surveyed] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    tokens: int = 0
    supervised: int = 0
    readable: int = 0
    unreadable: int = 0
    empty: int = 0
    without_mask: int = 0
    unsupervised: int = 0
    by_format: Counter[str] = field(default_factory=Counter)
    by_dtype: Counter[str] = field(default_factory=Counter)
    by_slots: Counter[int] = field(default_factory=Counter)
    by_width: Counter[int] = field(default_factory=Counter)
    errors: dict[str, FirstError] = field(default_factory=dict)

    def add(self, one: Surveyed) -> None:
        self.samples.append(one)
        if one.error:
            self._refused(one)
            return
        self.readable += 1
        self.tokens += one.tokens
        self.supervised += one.supervised or 0
        self.without_mask += one.supervised is None
        self.unsupervised += one.supervised == 0
        self.by_format[one.format] += 1
        self.by_dtype[one.dtype] += 1
        self.by_slots[one.slots] += 1
        self.by_width[one.width] += 1

    def _refused(self, one: Surveyed) -> None:
        self.unreadable += 1
        self.empty += one.empty
        known = self.errors.get(one.kind)
        if known is None:
            self.errors[one.kind] = FirstError(one.kind, one.path, one.error)
        else:
            known.count += 1


def survey(
    paths: Sequence[Path],
    open_one: Opener,
    poll: Callable[[], None] = lambda: None,
    found: Callable[[Survey], None] = lambda survey: None,
) -> Survey:
    """Look at every sample in `paths`; `found` is given the same growing survey after each file.

    A file that holds several samples counts each. `open_one` raises DrafterError for what it cannot read.
    """
    result, seen = Survey(len(paths)), set()
    for path in paths:
        file = path if there(path) else split_part(path)[0]
        size = _size(file)
        if file not in seen:
            seen.add(file)
            result.files += 1
            result.bytes += size
        for name, looked in each_part(path, open_one, poll):
            result.add(_refused(name, size, looked) if isinstance(looked, DrafterError) else _sound(name, size, looked))
        found(result)
    return result


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _sound(path: Path, size: int, sample: Sample) -> Surveyed:
    dtypes = "+".join(dict.fromkeys(slot.tensor.dtype for slot in sample.slots))
    supervised = None if sample.mask is None else int(sample.mask.sum())
    width = sample.width if sample.slots else 0
    return Surveyed(
        path, size, sample.format, sample.length, supervised, len(sample.slots), width, dtypes, sample.warnings
    )


def _refused(path: Path, size: int, error: DrafterError) -> Surveyed:
    kind = re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", error.found))[:120]
    return Surveyed(path, size, error=str(error), kind=kind, empty=error.found in _EMPTY)


def survey_json(result: Survey, *, samples: bool = True) -> dict[str, Any]:
    """The survey as plain values; without `samples` only what was counted."""
    one_by_one = [{**asdict(one), "path": str(one.path), "warnings": list(one.warnings)} for one in result.samples]
    counted = ("files", "bytes", "tokens", "supervised", "readable", "unreadable", "empty", "without_mask")
    totals = {name: getattr(result, name) for name in (*counted, "unsupervised")}
    for name in ("by_format", "by_dtype", "by_slots", "by_width"):
        totals[name] = {str(key): count for key, count in getattr(result, name).most_common()}
    totals["errors"] = [{**asdict(e), "path": str(e.path)} for e in result.errors.values()]
    return {"samples": one_by_one, "totals": totals} if samples else {"totals": totals}
