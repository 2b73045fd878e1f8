"""Statistics over the points of a log, exact over all of them, and evenly spaced points for the course of time.

Bounded in memory however many points come. Knows no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from drafter.serving.log_points import LOGGED, REQUEST, SUMMARY, Point

MAX_POINTS = 8192
MIN_QUARTER = 5  # points of a quarter without which no decay is told
QUANTITIES = ("length", "rate", "throughput", "running")


@dataclass(frozen=True)
class Spread:
    """One quantity over all points that have it; the median is exact to four digits."""

    count: int
    mean: float
    median: float
    low: float
    high: float


@dataclass
class _Sum:
    """One quantity, being added up. Rounded values are counted for the median, so that there are few of them."""

    count: int = 0
    total: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")
    rounded: Counter[float] = field(default_factory=Counter)

    def add(self, value: float) -> None:
        self.count, self.total = self.count + 1, self.total + value
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.rounded[float(f"{value:.4g}")] += 1

    def spread(self) -> Spread | None:
        if not self.count:
            return None
        return Spread(self.count, self.total / self.count, self._median(), self.low, self.high)

    def _median(self) -> float:
        middle = [(self.count - 1) // 2, self.count // 2]
        passed, halves = 0, 0.0
        for value in sorted(self.rounded):
            before, passed = passed, passed + self.rounded[value]
            halves += value * sum(before <= at < passed for at in middle)
        return halves / 2


class Tally:
    """The points of one engine and one kind of source."""

    def __init__(self) -> None:
        self.seen, self.stride = 0, 1
        self.points: list[Point] = []
        self.sums = {name: _Sum() for name in QUANTITIES}
        self.accepted = self.rounds = self.drafted = 0.0
        self.counted = 0
        self.positions: list[float] = []
        self.position_weight = 0.0
        self.rates_with_bonus: set[bool | None] = set()

    def add(self, point: Point) -> None:
        if self.seen % self.stride == 0:
            self.points.append(point)
            if len(self.points) > MAX_POINTS:
                self.points, self.stride = self.points[::2], self.stride * 2
        self.seen += 1
        for name, one in self.sums.items():
            value = getattr(point, name)
            if value is not None and (name != "throughput" or value > 0):
                one.add(float(value))
        if point.rate is not None:
            self.rates_with_bonus.add(point.rate_counts_bonus)
        self._count(point)
        self._positions(point)

    def _count(self, point: Point) -> None:
        if point.source == SUMMARY:  # counts since the start: those of the last line hold all others
            self.accepted = self.rounds = self.drafted = 0.0
        if point.rounds and point.length is not None:
            self.rounds += point.rounds
            self.accepted += point.rounds * (point.length - 1)
            self.drafted += point.drafted or 0
            self.counted += 1

    def _positions(self, point: Point) -> None:
        if not point.per_position:
            return
        weight = point.rounds or 1.0
        if len(self.positions) != len(point.per_position):  # another K: an earlier run in the same log
            self.positions, self.position_weight = [0.0] * len(point.per_position), 0.0
        self.positions = [a + weight * p for a, p in zip(self.positions, point.per_position, strict=True)]
        self.position_weight += weight

    def spread(self, name: str) -> Spread | None:
        return self.sums[name].spread()

    @property
    def pooled(self) -> float | None:
        """The accept length over all rounds, None where some points do not count theirs."""
        return 1 + self.accepted / self.rounds if self.rounds and self.counted == self.seen else None

    @property
    def per_position(self) -> tuple[float, ...]:
        return tuple(p / self.position_weight for p in self.positions) if self.position_weight else ()

    @property
    def quarters(self) -> tuple[float | None, float | None]:
        """Mean lengths of the first and the last quarter, None where they are too few or have no order in time."""
        lengths = [p.length for p in self.points if p.length is not None and p.source in (LOGGED, REQUEST)]
        size = len(lengths) // 4
        if size < MIN_QUARTER:
            return None, None
        return _mean(lengths[:size]), _mean(lengths[-size:])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
