"""Hits and totals as values that add up; no tensors, so that a screen can show them before torch is there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

MASK_MODES = ("next", "same", "predicted", "all")
FIRST_ROWS = 32  # rows in the first bucket of positions; each bucket after it ends where its rows have doubled
METRICS = ("next_token", "verifier_strict", "verifier_draft_vocab", "in_vocab")
KINDS = ("marginal", "joint", "conditional")


@dataclass(frozen=True)
class Count:
    hits: int = 0
    total: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.hits + other.hits, self.total + other.total)

    @property
    def ratio(self) -> float | None:
        return self.hits / self.total if self.total else None


@dataclass(frozen=True)
class StepCounts:
    """One metric at one step. marginal: right at this step; joint: right at this and all steps before; conditional: the
    same hits over the rows that were right before."""

    marginal: Count = Count()
    joint: Count = Count()
    conditional: Count = Count()

    def __add__(self, other: StepCounts) -> StepCounts:
        return StepCounts(
            self.marginal + other.marginal, self.joint + other.joint, self.conditional + other.conditional
        )


@dataclass(frozen=True)
class Lengths:
    """`histogram[n]` rows accept n drafts: their accept length is n + 1, the bonus token counted."""

    histogram: tuple[int, ...]
    rounds: int = 0
    tokens: int = 0

    def __add__(self, other: Lengths) -> Lengths:
        both = tuple(a + b for a, b in zip(self.histogram, other.histogram, strict=True))
        return Lengths(both, self.rounds + other.rounds, self.tokens + other.tokens)

    @property
    def rows(self) -> int:
        return sum(self.histogram)

    @property
    def sum(self) -> int:
        """The accept lengths of all rows, added up."""
        return sum((n + 1) * c for n, c in enumerate(self.histogram))

    @property
    def mean(self) -> float | None:
        return self.sum / self.rows if self.rows else None

    @property
    def walk(self) -> float | None:
        """Tokens emitted a round when the recorded text is decoded round by round: what a server's log would say."""
        return self.tokens / self.rounds if self.rounds else None


def lengths_json(lengths: Lengths) -> dict[str, Any]:
    """Accept lengths as every command prints them; the bonus token counts."""
    return {
        "mean": lengths.mean,
        "rows": lengths.rows,
        "histogram": list(lengths.histogram),
        "walk": {"rounds": lengths.rounds, "tokens": lengths.tokens, "length": lengths.walk},
    }


@dataclass(frozen=True, slots=True)
class SampleScore:
    """One ordering on one sample in whole numbers, small enough to keep for ten thousand samples.

    `hits` of `total` rows are right at step 0 (`next_token`); the accept lengths of `length_rows` rows add up to
    `length_sum`; `not_finite` of `total` rows gave no numbers, so nothing was predicted there.
    """

    hits: int = 0
    total: int = 0
    length_sum: int = 0
    length_rows: int = 0
    not_finite: int = 0

    @property
    def ratio(self) -> float | None:
        return self.hits / self.total if self.total else None

    @property
    def length(self) -> float | None:
        return self.length_sum / self.length_rows if self.length_rows else None


@dataclass(frozen=True)
class GroupScore:
    """One ordering on a group of samples: `next_token` at step 0, and the accept lengths."""

    accuracy: Count
    lengths: Lengths

    def __add__(self, other: GroupScore) -> GroupScore:
        return GroupScore(self.accuracy + other.accuracy, self.lengths + other.lengths)


def bucket(index: int) -> tuple[int, int]:
    """First and last row of bucket `index`: 0-31, 32-63, 64-127, 128-255, ..."""
    return FIRST_ROWS << (index - 1) if index else 0, (FIRST_ROWS << index) - 1


def pooled_positions(ours: tuple[Count, ...], theirs: tuple[Count, ...]) -> tuple[Count, ...]:
    """Buckets added up; the shorter of the two has no rows in what it lacks."""
    return tuple(a + b for a, b in zip_longest(ours, theirs, fillvalue=Count()))
