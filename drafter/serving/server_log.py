"""A server's log, metrics page or JSON as the accept length that users got, and how it moved.

Reads line by line and keeps a bounded number of points, so that a log of many gigabytes may be given. Of several
engines or kinds of source in one file that with the most points counts, and the others are named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from drafter.errors import FileError
from drafter.serving import log_points
from drafter.serving.accept_rate import rate_meaning
from drafter.serving.flags import Asked, from_table
from drafter.serving.log_points import LOGGED, REQUEST, SCRAPED, SUMMARY, Point
from drafter.serving.log_tally import Spread, Tally
from drafter.serving.metrics_page import MetricsPage
from drafter.serving.server import SGLANG, VLLM, Server

MAX_JSON = 1 << 25  # characters of a JSON answer
MAX_TABLES = 1 << 20
MAX_WALK = 64  # levels of a JSON answer that are looked into
_VERSION = r"v?(\d{1,4}\.\d{1,4}\.\d{1,4}(?:\.?(?:post|rc|dev)\d{1,4})?)"
_VERSIONS = {
    SGLANG: re.compile(r"sglang(?:[ _-]?version)?[ '\":=@v]{1,5}" + _VERSION, re.IGNORECASE),
    VLLM: re.compile(r"(?:vllm|LLM engine|API server)[ _-]?(?:version)?[ ('\":=@v]{1,5}" + _VERSION, re.IGNORECASE),
}
_ARGUMENT = re.compile(
    r"\b(speculative_\w{1,40}|page_size|attention_backend|model_path)=(?:'([^']{0,400})'|([\w.]{1,40}))"
)
_SPEC_CONFIG = re.compile(r"SpeculativeConfig\(method='(\w{1,40})', model='([^']{0,400})', num_spec_tokens=(\d{1,6})")
_CLAMPED = "is adjusted to speculative_num_steps + 1"
_ROUNDED = 0.02
# one of these stands in every line that says something; most lines of a log are other ones
_TELLING = ("accept", "spec", "Spec", "throughput", "sglang", "SGLang", "vllm", "vLLM", "LLM engine")
_ABOUT_LENGTH = {
    (SGLANG, LOGGED): "SGLang's accept len: (accepted drafts + requests) / verifications",
    (SGLANG, REQUEST): "completion tokens / verifications of each request",
    (SGLANG, SUMMARY): "SGLang's average since its start",
    (SGLANG, SCRAPED): "sglang:spec_accept_length, of the moment",
    (VLLM, LOGGED): "vLLM's mean acceptance length: 1 + accepted / drafts",
    (VLLM, SUMMARY): "emitted tokens / rounds of K drafts since the start",
    (VLLM, SCRAPED): "1 + accepted / drafts since the start",
}


@dataclass(frozen=True)
class ServerLog:
    """What was found. Every length counts the bonus token.

    pooled: the length over all rounds where they are counted, else None, and `length.mean` weighs all lines alike.
    rate: as printed; drafts_accepted: accepted drafts out of drafted ones, None where it cannot be told.
    per_position: P(the first i + 1 drafts are right), joint. first, last: mean lengths of the first and last quarter.
    `asked` are flags that the log itself tells, as they were after the server's own changes; `clamped`: it says that
    it lowered or raised T. `definitions` says in words what each number is.
    """

    engine: str
    version: str
    source: str
    lines: int
    points: tuple[Point, ...]
    length: Spread
    pooled: float | None
    rate: Spread | None
    drafts_accepted: float | None
    per_position: tuple[float, ...]
    throughput: Spread | None
    running: Spread | None
    first: float | None
    last: float | None
    clamped: bool
    asked: Asked | None
    definitions: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def mean(self) -> float:
        """The accept length to compare with: over all rounds where they are counted, else over the lines."""
        return self.length.mean if self.pooled is None else self.pooled

    @property
    def max_length_seen(self) -> float:
        return self.length.high

    @property
    def speed(self) -> float | None:
        """Tokens per second of one request, None where the lines do not tell it or requests ran side by side."""
        alone = self.running is not None and self.running.high == 1
        return self.throughput.median if self.throughput is not None and alone else None


def read_log(lines: Iterable[str], *, server: Server | None = None, draft_tokens: int | None = None) -> ServerLog:
    """What the `lines` say. `server` and `draft_tokens` (T of SGLang, K of vLLM) help where the log is silent.

    Raises FileError when no line tells an accept length.
    """
    reader = _Reader(server, draft_tokens)
    for line in _log_lines(lines, reader):
        reader.take(line)
    return reader.result()


def _log_lines(lines: Iterable[str], reader: _Reader) -> Iterator[str]:
    """The lines of a log; what begins as JSON is read as a whole, and as lines where that says nothing."""
    stream = iter(lines)
    kept: list[str] = []
    size = 0
    for line in stream:
        if not kept and line.strip() and line.lstrip()[0] not in "{[":
            yield line
            break
        if kept or line.strip():
            kept.append(line)
            size += len(line)
        if size > MAX_JSON:
            break
    else:
        if kept and reader.whole(kept):
            return
    yield from kept
    yield from stream


@dataclass
class _Reader:
    """Takes lines one by one; everything it keeps is bounded."""

    server: Server | None
    draft_tokens: int | None
    lines: int = 0
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    page: MetricsPage = field(default_factory=MetricsPage)
    load: tuple[float | None, int | None] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    config: Asked | None = None
    clamped: bool = False
    without_length: int = 0

    def whole(self, kept: Sequence[str]) -> bool:
        """Whether the lines together are one JSON value that tells an accept length."""
        try:
            found = self._tables(json.loads("".join(kept)))
        except (ValueError, RecursionError):
            return False
        self.lines = len(kept) if found else 0
        return found

    def take(self, raw: str) -> None:
        self.lines += 1
        if not any(word in raw for word in _TELLING):
            return
        line = log_points.clean(raw)
        self._about(line)
        if self.page.take(line):
            return
        self.load = log_points.load_line(line) or self.load
        point = log_points.decode_line(line) or log_points.metrics_line(line) or log_points.old_metrics_line(line)
        if point is not None:
            self._add(point)
        elif "spec_" in line and line.lstrip().startswith(("{", "[", "data: {")):
            self._json_line(raw.strip().removeprefix("data: "))

    def _json_line(self, line: str) -> None:
        try:
            self._tables(json.loads(line))
        except (ValueError, RecursionError):
            return

    def _tables(self, value: Any) -> bool:
        """Add the points of every table in a JSON value; whether there were any."""
        found, waiting = False, [(value, 0)]
        for _ in range(MAX_TABLES):
            if not waiting:
                break
            one, level = waiting.pop()
            if isinstance(one, Mapping):
                point = log_points.table_point(one)
                found = (point is not None and self._add(point)) or found
                self._server_table(one)
            inner = list(one.values()) if isinstance(one, Mapping) else one
            if level < MAX_WALK:
                waiting += [(item, level + 1) for item in reversed(inner) if isinstance(item, Mapping | list)]
        return found

    def _server_table(self, table: Mapping[str, Any]) -> None:
        if "speculative_num_steps" not in table and "speculative_algorithm" not in table:
            return
        self.told |= {k: str(v) for k, v in table.items() if isinstance(v, str | int) and not isinstance(v, bool)}
        version = table.get("version")
        if isinstance(version, str) and re.fullmatch(_VERSION, version):
            self.versions[SGLANG] = version.removeprefix("v")

    def _about(self, line: str) -> None:
        """What a start-up line says of the version and the flags."""
        if "speculative" in line.lower():
            self.clamped = self.clamped or _CLAMPED in line
            if "ServerArgs(" in line or "server_args=" in line:
                self.told |= {name: quoted or bare for name, quoted, bare in _ARGUMENT.findall(line)}
            config = _SPEC_CONFIG.search(line)
            if config:
                self.config = Asked(
                    engine=VLLM, method=config[1], draft_model=config[2], speculative_tokens=int(config[3])
                )
        for engine, pattern in _VERSIONS.items():
            match = None if engine in self.versions else pattern.search(line)
            if match:
                self.versions[engine] = match[1]

    def _add(self, point: Point) -> bool:
        """Count a point; whether it tells a length. An idle server prints nan, or 0.00."""
        if point.engine == VLLM and point.source == LOGGED and self.load is not None:
            point, self.load = replace(point, throughput=self.load[0], running=self.load[1]), None
        point = replace(_with_length(point, self._drafts_a_round()), line=self.lines)
        if not point.length:
            self.without_length += 1
            return False
        self.tallies.setdefault((point.engine, point.source), Tally()).add(point)
        return True

    def _drafts_a_round(self) -> int | None:
        told = None if self.config is None else self.config.speculative_tokens
        return told or (self.draft_tokens if self.server is not None and self.server.name == VLLM else None)

    def result(self) -> ServerLog:
        for point in self.page.points():
            self._add(point)
        if not self.tallies:
            raise self._nothing()
        order = (LOGGED, REQUEST, SCRAPED, SUMMARY)
        engine, source = max(self.tallies, key=lambda key: (self.tallies[key].seen, -order.index(key[1])))
        asked = self.config if engine == VLLM else from_table(self.told)
        return _summed(self, engine, source, asked if asked is not None and asked.speculates else None)

    def _nothing(self) -> FileError:
        found, hint = f"no accept length in {self.lines} lines", "a server prints it while it decodes with drafts"
        if self.without_length:
            found += f" ({self.without_length} about drafting without one)"
            hint = "vLLM's first format tells it only with the number of drafts: give --flags and --server"
        expected = "SGLang's decode lines, vLLM's SpecDecoding lines, a /metrics page, or their JSON"
        return FileError(found, expected=expected, hint=hint)


def _with_length(point: Point, k: int | None) -> Point:
    """vLLM's first form prints counts only: with the number of drafts a round they give the length."""
    if point.length is None and k and point.drafted and point.accepted is not None:
        rounds = point.drafted / k
        return replace(point, length=1 + point.accepted / rounds, rounds=rounds)
    return point


def _summed(reader: _Reader, engine: str, source: str, asked: Asked | None) -> ServerLog:
    tally = reader.tallies[engine, source]
    length = tally.spread("length")
    assert length is not None  # a tally is made by its first length
    version = reader.versions.get(engine, "")
    server, warnings = _server(reader, engine, version)
    warnings += _left_out(reader, (engine, source))
    accepted, words, warning = _rate(tally, engine, server, _tokens(reader, engine, asked))
    first, last = tally.quarters
    if length.low < 1:
        warnings.append(f"lengths below 1 ({length.low:.2f}): no round gives less than its bonus token")
    weight = "every round weighs the same" if tally.pooled is not None else "every line weighs the same"
    return ServerLog(
        engine=engine,
        version=version,
        source=source,
        lines=reader.lines,
        points=tuple(tally.points),
        length=length,
        pooled=tally.pooled,
        rate=tally.spread("rate"),
        drafts_accepted=accepted,
        per_position=tally.per_position,
        throughput=tally.spread("throughput"),
        running=tally.spread("running"),
        first=first,
        last=last,
        clamped=reader.clamped,
        asked=asked,
        definitions={"length": f"{_ABOUT_LENGTH[engine, source]}; the bonus token counts; {weight}", **words},
        warnings=(*warnings, *([warning] if warning else [])),
    )


def _tokens(reader: _Reader, engine: str, asked: Asked | None) -> int | None:
    """T of SGLang: as the log tells it, else as the caller does."""
    told = asked.draft_tokens if asked is not None else None
    other = reader.server is not None and reader.server.name != engine
    return told or (None if other else reader.draft_tokens)


def _server(reader: _Reader, engine: str, version: str) -> tuple[Server | None, list[str]]:
    """The server that wrote the log: the version that the log tells, else the one that was named."""
    given = reader.server
    named = given if given is not None and given.name == engine and not given.assumed else None
    said = f"{engine} {version}" if version else engine
    other = given is not None and given.name != engine
    if not version:
        return named, [f"the log is of {said}, not of {given}"] if other else []
    told = Server.parse(f"{engine}@{version}")
    differs = other or (named is not None and named.version != told.version)
    return told, [f"the log is of {told}, not of {given}"] if differs else []


def _left_out(reader: _Reader, chosen: tuple[str, str]) -> list[str]:
    others = {key: tally for key, tally in reader.tallies.items() if key != chosen}
    return [
        f"left out: {tally.seen} x {source} of {engine}, the last {tally.points[-1].length or 0:.2f}"
        for (engine, source), tally in others.items()
    ]


def _rate(
    tally: Tally, engine: str, server: Server | None, tokens: int | None
) -> tuple[float | None, dict[str, str], str]:
    """Accepted drafts out of drafted ones, what the printed rate means, and a warning."""
    length, rate = tally.spread("length"), tally.spread("rate")
    if length is None or rate is None:
        told = length is not None and engine == SGLANG and tokens is not None and tokens > 1
        return (length.mean - 1) / (tokens - 1) if told and length and tokens else None, {}, ""
    if tally.rates_with_bonus <= {False}:
        share = tally.accepted / tally.drafted if tally.drafted else rate.mean
        return share, {"rate": "accepted drafts / drafted tokens, no bonus token"}, ""
    pairs = [(p.length, p.rate) for p in tally.points if p.length is not None and p.rate is not None]
    meaning = rate_meaning(pairs, length.mean, rate.mean, server, tokens)
    return meaning.accepted, {"rate": meaning.words}, meaning.warning


def check_against(log: ServerLog, longest: int | None) -> str:
    """What the longest length of the log says about the flags' maximum; "" where they fit or it is not known."""
    if longest is None or log.max_length_seen <= longest + _ROUNDED:
        return ""
    return (
        f"the log reaches an accept length of {log.max_length_seen:.2f}, the flags allow {longest}: "
        "they are of different runs"
    )


def log_json(log: ServerLog) -> dict[str, Any]:
    """Everything; of the points line, time and length."""
    return {
        "engine": log.engine,
        "version": log.version or None,
        "source": log.source,
        "lines": log.lines,
        "accept_length": {"value": log.mean, "pooled": log.pooled, **(_spread_json(log.length) or {})},
        "accept_rate": _spread_json(log.rate),
        "drafts_accepted": log.drafts_accepted,
        "per_position": list(log.per_position),
        "throughput": _spread_json(log.throughput),
        "running": _spread_json(log.running),
        "first_quarter": log.first,
        "last_quarter": log.last,
        "clamped": log.clamped,
        "definitions": dict(log.definitions),
        "warnings": list(log.warnings),
        "points": [{"line": p.line, "time": p.time, "length": p.length} for p in log.points],
    }


def _spread_json(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"count": spread.count, "mean": spread.mean, "median": spread.median, "min": spread.low, "max": spread.high}
