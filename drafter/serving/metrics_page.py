"""A Prometheus page (`/metrics`) of SGLang or vLLM as one point: counters since the start, gauges of the moment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from drafter.serving.log_points import MAX_POSITIONS, SCRAPED, Point
from drafter.serving.server import SGLANG, VLLM

_LINE = re.compile(r"((?:sglang|vllm):[\w:]{1,100})(\{[^}]{0,2000}\})?\s+([-+]?[\w.+-]{1,40})\s*(?:\d{1,20})?\s*$")
_POSITION = re.compile(r'position="(\d{1,4})"')
_SGLANG_GAUGES = {
    "spec_accept_length": "length",
    "spec_accept_rate": "rate",
    "gen_throughput": "throughput",
    "num_running_reqs": "running",
}
_VLLM_COUNTERS = {
    "spec_decode_num_drafts": "rounds",
    "spec_decode_num_draft_tokens": "drafted",
    "spec_decode_num_accepted_tokens": "accepted",
    "spec_decode_num_accepted_tokens_per_pos": "position",
    "num_requests_running": "running",
}


@dataclass
class MetricsPage:
    """Collects the lines of a page. Series that differ in labels (engines, ranks) are added; the last scrape counts."""

    values: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Whether `line` is one that counts here; comments and other metrics are not."""
        match = _LINE.match(line)
        if match is None:
            return False
        engine, _, name = match[1].partition(":")
        name = name.removesuffix("_total")
        meaning = (_SGLANG_GAUGES if engine == SGLANG else _VLLM_COUNTERS).get(name)
        number = _float(match[3])
        if meaning is None or number is None:
            return False
        labels = match[2] or ""
        if meaning == "position":
            found = _POSITION.search(labels)
            if found is None or int(found[1]) >= MAX_POSITIONS:
                return False
            meaning = f"position {int(found[1])}"
        self.values.setdefault((engine, meaning), {})[labels[:2000]] = number
        return True

    def points(self) -> list[Point]:
        """A point for each engine that has what a length needs."""
        return [point for point in (self._sglang(), self._vllm()) if point is not None]

    def _sum(self, engine: str, meaning: str) -> float | None:
        found = self.values.get((engine, meaning))
        return sum(found.values()) if found else None

    def _mean(self, engine: str, meaning: str) -> float | None:
        found = self.values.get((engine, meaning))
        return sum(found.values()) / len(found) if found else None

    def _sglang(self) -> Point | None:
        length = self._mean(SGLANG, "length")
        if length is None:
            return None
        running = self._sum(SGLANG, "running")
        return Point(
            SGLANG,
            SCRAPED,
            length=length,
            rate=self._mean(SGLANG, "rate"),
            throughput=self._sum(SGLANG, "throughput"),
            running=None if running is None else int(running),
        )

    def _vllm(self) -> Point | None:
        rounds, accepted = self._sum(VLLM, "rounds"), self._sum(VLLM, "accepted")
        if not rounds or accepted is None:
            return None
        drafted = self._sum(VLLM, "drafted")
        positions = [self._sum(VLLM, f"position {i}") for i in range(MAX_POSITIONS)]
        known = [count for count in positions if count is not None]
        return Point(
            VLLM,
            SCRAPED,
            length=1 + accepted / rounds,
            rate=accepted / drafted if drafted else None,
            rate_counts_bonus=False,
            accepted=int(accepted),
            drafted=None if drafted is None else int(drafted),
            rounds=rounds,
            per_position=tuple(count / rounds for count in known) if None not in positions[: len(known)] else (),
        )


def _float(text: str) -> float | None:
    if not re.fullmatch(r"\+?\d{1,20}(\.\d{1,20})?([eE][-+]?\d{1,2})?", text):
        return None  # NaN and Inf are what an idle server writes
    number = float(text)
    return number if number < 1e18 else None
