"""Where two recordings hold the same tokens: all of them, a prefix, one inside of the other, or a common run.

Knows token ids only. A token that a recording leaves out (UNKNOWN_ID) fits any.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.errors import SampleError
from drafter.sample.sample import UNKNOWN_ID

if TYPE_CHECKING:
    from torch import Tensor

MIN_RUN = 8  # tokens that a common run has at least
_PLACES = 4  # places of one run of eight that are remembered, so that repeats cost no more than linear time
_DIAGONALS = 8  # offsets that are looked at in full
_BASE, _PRIME = 1_000_003, (1 << 31) - 1


@dataclass(frozen=True)
class Alignment:
    """Tokens `ours`.. and `theirs`.. are the same for `count` tokens; `how` says so in words."""

    ours: int
    theirs: int
    count: int
    how: str

    @property
    def whole_context(self) -> bool:
        """Whether both begin there, so that states that look back see the same tokens."""
        return self.ours == 0 and self.theirs == 0

    def shifted(self, shift: int) -> Alignment:
        """Row t of theirs beside row t + `shift` of ours, as far as both are aligned."""
        return Alignment(self.ours + max(shift, 0), self.theirs + max(-shift, 0), self.count - abs(shift), self.how)


def align(ours: Tensor, theirs: Tensor, where: Path) -> Alignment:
    """Align the ids `ours` [T] and `theirs` [T']. Raises SampleError, about the file `where`, where they differ."""
    total, other = ours.numel(), theirs.numel()
    shorter = min(total, other)
    if shorter and _agree(ours[:shorter], theirs[:shorter]):
        return Alignment(0, 0, shorter, _prefix_words(total, other))
    run = _longest_run(ours, theirs)
    if run is None:
        raise _differ(ours[:shorter], theirs[:shorter], where)
    start, begin, count = run
    return Alignment(start, begin, count, _run_words(start, begin, count, total, other))


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a == UNKNOWN_ID) | (b == UNKNOWN_ID)


def _agree(a: Tensor, b: Tensor) -> bool:
    """Whether all tokens fit, and at least half of them are known to both: unknown ones prove nothing."""
    known = (a != UNKNOWN_ID) & (b != UNKNOWN_ID)
    return bool(_same(a, b).all()) and 2 * int(known.sum()) >= a.numel()


def _longest_run(ours: Tensor, theirs: Tensor) -> tuple[int, int, int] | None:
    """(start in ours, start in theirs, length) of the longest common run of the offsets with the most common eights."""
    places: dict[int, list[int]] = {}
    for at, code in _eights(ours):
        if len(places.setdefault(code, [])) < _PLACES:
            places[code].append(at)
    votes = Counter(at - begin for begin, code in _eights(theirs) for at in places.get(code, ()))
    runs = [_run_at(ours, theirs, offset) for offset, _ in votes.most_common(_DIAGONALS)]
    best = max(runs, key=lambda run: run[2], default=(0, 0, 0))
    return best if best[2] >= MIN_RUN else None


def _eights(ids: Tensor) -> list[tuple[int, int]]:
    """(start, hash) of each run of eight known tokens."""
    count = ids.numel() - MIN_RUN + 1
    if count < 1:
        return []
    code = ids.new_zeros(count)
    for step in range(MIN_RUN):
        code = (code * _BASE + ids[step : step + count] % _PRIME) % _PRIME
    known = (ids != UNKNOWN_ID).unfold(0, MIN_RUN, 1).all(dim=1)
    return [(at, value) for at, (value, good) in enumerate(zip(code.tolist(), known.tolist(), strict=True)) if good]


def _run_at(ours: Tensor, theirs: Tensor, offset: int) -> tuple[int, int, int]:
    """The longest run of fitting tokens where token t of theirs lies beside token t + `offset` of ours."""
    import torch

    start, begin = max(offset, 0), max(-offset, 0)
    count = min(ours.numel() - start, theirs.numel() - begin)
    same = _same(ours[start : start + count], theirs[begin : begin + count])
    ends = torch.cat([torch.tensor([-1]), (~same).nonzero()[:, 0], torch.tensor([count])])
    gaps = ends.diff() - 1
    at = int(gaps.argmax())
    first = int(ends[at]) + 1
    return start + first, begin + first, int(gaps[at])


def _prefix_words(total: int, other: int) -> str:
    if total == other:
        return f"the same {total} tokens"
    if other < total:
        return f"theirs is the first {other} of the {total} tokens of ours"
    return f"ours is the first {total} of the {other} tokens of theirs"


def _run_words(start: int, begin: int, count: int, total: int, other: int) -> str:
    if count == other:
        return f"theirs is tokens {start} to {start + count - 1} of ours"
    if count == total:
        return f"ours is tokens {begin} to {begin + count - 1} of theirs"
    at = f"from token {start} of the {total} of ours and token {begin} of the {other} of theirs"
    return f"only a run of {count} tokens is common, {at}"


def _differ(a: Tensor, b: Tensor, where: Path) -> SampleError:
    same = _same(a, b)
    # where all known tokens fit, what is missing is known tokens
    first = int((~same).nonzero()[0]) if not bool(same.all()) else None
    at = "too few tokens are known" if first is None else f"ids first differ at token {first}"
    said = "" if first is None else f" ({int(a[first])}, here {int(b[first])})"
    return SampleError(
        f"other tokens: {at}{said}, {int(same.sum())} of {same.numel()} agree",
        expected=f"the same tokens, or a common run of at least {MIN_RUN}",
        where=where,
    )
