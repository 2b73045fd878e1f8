"""One line of a server's log, or one table of its JSON, as a point: what was measured, bonus token counted.

Fields are looked for one by one, because every version prints more of them and in another order. Every accept length
here counts the bonus token, as SGLang and vLLM print it. Knows no file and no statistics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from drafter.serving.server import SGLANG, VLLM

MAX_LINE = 1 << 14  # characters of a line that are looked at
MAX_POSITIONS = 64
LOGGED, REQUEST, SUMMARY, SCRAPED = "log line", "request", "average of the server", "metrics page"


@dataclass(frozen=True)
class Point:
    """One measurement; None where it does not say. `rate` is as printed, `rate_counts_bonus` None where the
    version must tell. accepted, drafted: draft tokens. rounds: verifications. running: requests at a time.
    """

    engine: str
    source: str
    line: int = 0
    time: str = ""
    length: float | None = None
    rate: float | None = None
    rate_counts_bonus: bool | None = None
    accepted: int | None = None
    drafted: int | None = None
    rounds: float | None = None
    per_position: tuple[float, ...] = ()
    throughput: float | None = None
    running: int | None = None


_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)(?!\d)"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_TIME = re.compile(r"(?:\d{4}-)?\d\d-\d\d[T ]\d\d:\d\d:\d\d|\[(\d\d:\d\d:\d\d)")


def _field(name: str) -> Callable[[str], float | None]:
    found = re.compile(name + _NUMBER, re.IGNORECASE)

    def read(line: str) -> float | None:
        match = found.search(line)
        return float(match[1]) if match else None

    return read


_LENGTH = _field(r"(?<!block )accept len: ")
_RATE = _field(r"accept rate: ")
_GEN = _field(r"gen throughput(?: \(token/s\))?: ")
_RUNNING = _field(r"#running-req: ")
_AVERAGE = _field(r"avg_spec_accept_length=")
_MEAN = _field(r"Mean acceptance length: ")
_ACCEPTED, _DRAFTED = _field(r"\bAccepted: "), _field(r"\bDrafted: ")
_DRAFT_RATE = _field(r"Draft acceptance rate: ")
_VLLM_GEN, _VLLM_RUNNING = _field(r"Avg generation throughput: "), _field(r"\bRunning: ")
_OLD_K, _OLD_DRAFTED = _field(r"Number of speculative tokens: "), _field(r"Number of draft tokens: ")
_OLD_ACCEPTED, _OLD_EMITTED = _field(r"Number of accepted tokens: "), _field(r"Number of emitted tokens: ")
_POSITIONS = re.compile(r"Per-position acceptance rate: ([\d., ]{1,2000})")


def clean(line: str) -> str:
    """`line` without colours, no longer than what is looked at."""
    return _ANSI.sub("", line[:MAX_LINE])


def time_of(line: str) -> str:
    match = _TIME.search(line[:400])
    return (match[1] or match[0]) if match else ""


def decode_line(line: str) -> Point | None:
    """SGLang's decode line, from 0.4.6 (no accept rate) to 0.5.23, or the average that it prints at a flush."""
    length, source = _LENGTH(line), LOGGED
    if length is None:
        length, source = _AVERAGE(line), SUMMARY
    if length is None:
        return None
    running = _RUNNING(line)
    return Point(
        SGLANG,
        source,
        time=time_of(line),
        length=length,
        rate=_RATE(line),
        throughput=_GEN(line),
        running=None if running is None else int(running),
    )


def metrics_line(line: str) -> Point | None:
    """vLLM's SpecDecoding line in each of its forms; the first of them printed no length and no rates by position."""
    if "SpecDecoding metrics:" not in line:
        return None
    accepted, drafted, rate = _ACCEPTED(line), _DRAFTED(line), _DRAFT_RATE(line)
    point = Point(
        VLLM,
        LOGGED,
        time=time_of(line),
        length=_MEAN(line),
        rate=None if rate is None else rate / 100,
        rate_counts_bonus=False,
        accepted=None if accepted is None else int(accepted),
        drafted=None if drafted is None else int(drafted),
        per_position=_positions(line),
    )
    if point.per_position and point.drafted:
        return replace(point, rounds=point.drafted / len(point.per_position))
    if point.length is not None and point.accepted and point.length > 1:
        return replace(point, rounds=point.accepted / (point.length - 1))
    return point


def _positions(line: str) -> tuple[float, ...]:
    match = _POSITIONS.search(line)
    parts = [part.strip() for part in match[1].split(",")] if match else []
    numbers = [part for part in parts if re.fullmatch(r"\d{1,3}(\.\d{1,9})?", part)]
    return tuple(float(part) for part in numbers[:MAX_POSITIONS])


def old_metrics_line(line: str) -> Point | None:
    """vLLM's line before V1: counts since the start, of which accepted is not a run from the first draft on.

    So the length is emitted tokens a round (the bonus is among them), and a round is K draft tokens.
    """
    k, drafted, emitted = _OLD_K(line), _OLD_DRAFTED(line), _OLD_EMITTED(line)
    if "Speculative metrics:" not in line or not k or not drafted or emitted is None:
        return None
    rounds, accepted = drafted / k, _OLD_ACCEPTED(line)
    return Point(
        VLLM,
        SUMMARY,
        time=time_of(line),
        length=emitted / rounds,
        rate=_DRAFT_RATE(line),
        rate_counts_bonus=False,
        accepted=None if accepted is None else int(accepted),
        drafted=int(drafted),
        rounds=rounds,
    )


def load_line(line: str) -> tuple[float | None, int | None] | None:
    """vLLM's line about the load: (tokens per second, running requests), which stands before its SpecDecoding line."""
    speed = _VLLM_GEN(line)
    if speed is None:
        return None
    running = _VLLM_RUNNING(line)
    return speed, None if running is None else int(running)


def table_point(table: Mapping[str, Any]) -> Point | None:
    """SGLang's JSON: `meta_info` of a request, or the server's own average in /get_server_info."""
    average = _positive(table.get("avg_spec_accept_length"))
    if average is not None:
        return Point(SGLANG, SUMMARY, length=average, throughput=_positive(table.get("last_gen_throughput")))
    rounds = _positive(table.get("spec_verify_ct"))
    length, tokens = _positive(table.get("spec_accept_length")), _positive(table.get("completion_tokens"))
    if length is None and rounds and tokens is not None:
        length = tokens / rounds  # versions up to 0.5.2 give the counts only
    if length is None:
        return None
    accepted = _first(table, "spec_num_correct_drafts", "spec_accept_token_num")
    drafted = _first(table, "spec_num_proposed_drafts", "spec_draft_token_num")
    return Point(
        SGLANG,
        REQUEST,
        length=length,
        rate=_positive(table.get("spec_accept_rate")),
        rate_counts_bonus=False,
        accepted=None if accepted is None else int(accepted),
        drafted=None if drafted is None else int(drafted),
        rounds=rounds,
    )


def _first(table: Mapping[str, Any], *keys: str) -> float | None:
    return next((number for key in keys if (number := _positive(table.get(key))) is not None), None)


def _positive(value: Any) -> float | None:
    """A number that a count, a length or a rate may be, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e15 else None
