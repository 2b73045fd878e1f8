"""Pane 3 of the Serving view: the engine's numbers in their own definition, beside the offline ones in the same.

Lengths count the bonus token; rates stand in both definitions that engines have, the printed one is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafter.serving.offline import Curve
from drafter.serving.server_log import ServerLog, check_against
from eagle3_tui.screens.serving_offline import judged, served, trained
from eagle3_tui.screens.serving_text import NARROW, Line, number, wrapped
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, Column

EMPTY = "l reads a server's log; offline numbers come once the views are scored"
_BONUS = "the bonus token counts"


def columns(width: int) -> list[Column]:
    value = 8 if width >= NARROW else 7
    return [
        Column("", 1),
        Column("number", 22 if width >= NARROW else 17),
        *(Column(side, value, "right") for side in ("engine", "trained", "served")),
        Column("definition"),
    ]


@dataclass(frozen=True)
class Compared:
    """One number: `sides` are by the engine, as trained, as served; `words` is what it is."""

    what: str
    sides: Sequence[str]
    words: str
    printed: bool = False


def rows(state: State) -> list[Compared]:
    log, made = state.serving.log, state.serving.round
    curves = trained(state), served(state)[0]
    if log is None and not any(curves):
        return []
    drafts = state.serving.drafts
    lengths = [None if curve is None else curve.at(drafts) for curve in curves]
    by_all = [number(log.mean) if log else "", *map(number, lengths)]
    found = [Compared("accept length", by_all, _length_words(log))]
    tokens = made.draft_tokens if made is not None and not made.varies and made.server.startswith("sglang") else None
    proposed = tokens - 1 if tokens is not None and tokens > 1 else drafts
    found += _rates(log, lengths, proposed)
    found += _positions(log, curves)
    return found + (_course(log) if log is not None else [])


def _length_words(log: ServerLog | None) -> str:
    return log.definitions["length"] if log is not None else "tokens a round, the bonus token counted"


def _rates(log: ServerLog | None, lengths: list[float | None], proposed: int | None) -> list[Compared]:
    """The accept rate both ways, the one that the engine prints marked."""
    printed = log.definitions.get("rate", "") if log is not None and log.rate is not None else ""
    rate = log.rate.mean if log is not None and log.rate is not None else None
    bonus = _BONUS in printed
    share = log.drafts_accepted if log is not None else None
    unclear = bool(printed) and ", or " in printed
    whole = rate if bonus else log.mean / (proposed + 1) if log is not None and proposed else None
    found = []
    if unclear:
        found.append(Compared("accept rate", [number(rate), "", ""], printed, printed=True))

    def both(less: int, over: int | None) -> list[str]:
        return [number(None if n is None or not over else (n - less) / over) for n in lengths]

    told = printed if printed and not unclear else ""
    without = told if told and not bonus else "accepted drafts / drafted tokens, no bonus"
    sides = [number(share), *both(1, proposed)]
    found.append(Compared("accepted drafts", sides, without, bool(told) and not bonus))
    over = proposed + 1 if proposed else None
    words = told if bonus else "accept length / T, bonus counted in both"
    found.append(Compared("length / T", [number(whole), *both(0, over)], words, bool(told) and bonus))
    return found


def _positions(log: ServerLog | None, curves: tuple[Curve | None, Curve | None]) -> list[Compared]:
    engine = log.per_position if log is not None else ()
    sides = [engine, *(() if curve is None else curve.joint for curve in curves)]
    found = []
    for i in range(max(map(len, sides), default=0)):
        texts = [number(side[i] if i < len(side) else None, 3) for side in sides]
        what = "draft 1 right" if i == 0 else f"drafts 1..{i + 1} right"
        found.append(Compared(what, texts, "joint: of all rounds, or of all rows that count"))
    return found


def _course(log: ServerLog) -> list[Compared]:
    length = log.length
    span = f"{length.low:.2f} to {length.high:.2f}, median {length.median:.2f}"
    found = [Compared("lines, requests", [str(length.count), "", ""], f"{log.source}: {span}")]
    if log.first is not None and log.last is not None:
        found.append(Compared("first quarter", [number(log.first), "", ""], "mean accept length of its lines"))
        found.append(Compared("last quarter", [number(log.last), "", ""], "mean accept length of its lines"))
    if log.throughput is not None:
        running = "" if log.running is None else f", {log.running.mean:.1f} requests at a time"
        found.append(Compared("tokens/s", [f"{log.throughput.median:.1f}", "", ""], f"median{running}"))
    return found


def cells(row: Compared) -> Cells:
    sign = ">" if row.printed else ""
    return [(text, "") for text in (sign, row.what, *row.sides)] + [(row.words, "dim")]


def lines(state: State, row: Compared | None, width: int, most: int) -> list[Line]:
    """The verdict with its reasons and what is missing; the row's definition in full; warnings."""
    serving, found = state.serving, judged(state)
    lines: list[Line] = []
    if found is not None:
        lines += wrapped(found.sentence, "mark", width, 2)
        lines += wrapped("; ".join(found.reasons), "", width, 2)
        lines += wrapped("missing: " + "; ".join(found.missing) if found.missing else "", "warn", width, 2)
    if serving.log is not None:
        said = [check_against(serving.log, serving.longest), *serving.log.warnings]
        lines += wrapped("; ".join(f"! {one}" for one in said if one), "warn", width, 2)
    why = served(state)[1]
    lines += wrapped(f"served: {why}" if why else "", "dim", width, 1)
    lines += wrapped(f"{row.what}: {row.words}" if row is not None else "", "dim", width, 2)
    return lines[: most - 1] + wrapped(_conventions(state), "dim", width, 1)


def _conventions(state: State) -> str:
    serving = state.serving
    log = "no log" if serving.log_path is None else f"log {serving.log_path.name}"
    if serving.views is None:
        return f"{log}; offline numbers are not scored yet"
    drafts = serving.drafts if serving.drafts is not None else serving.views["depth"]
    what = f"{serving.views['samples']} samples pooled" if serving.views_pooled else "this sample"
    return f"{log}; offline: {what}, mask {serving.views['mask']}, K {drafts}, mean of rows"
