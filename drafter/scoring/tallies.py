"""Hits and totals as values that add up; no tensors, so that a screen can show them before torch is there."""

from __future__ import annotations

from dataclasses import dataclass

MASK_MODES = ("next", "same", "predicted", "all")
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
    def mean(self) -> float | None:
        return sum((n + 1) * c for n, c in enumerate(self.histogram)) / self.rows if self.rows else None

    @property
    def walk(self) -> float | None:
        """Tokens emitted a round when the recorded text is decoded round by round: what a server's log would say."""
        return self.tokens / self.rounds if self.rounds else None
