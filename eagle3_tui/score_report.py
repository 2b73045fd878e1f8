"""The whole of `score` as text: the pooled table, then sample by sample, group by group, and by the place of the row.

The JSON of the command in, lines out. A part that would repeat the pooled table is left out. Knows no session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drafter.files.order import natural
from drafter.safe import safe
from eagle3_tui import text_report
from eagle3_tui.text_report import percent, table

Json = dict[str, Any]
SORTS = ("worst", "best", "name")
MOST_SAMPLES = 20  # rows of the table of samples
MOST_ORDERINGS = 5  # of each group, beside those that carry a mark


def score(data: Json, sort: str = "worst", rows: int | None = None) -> str:
    """`sort` orders the table of samples: `worst` or `best` first at step 0, or by `name`. `rows` is that of --rows."""
    parts = [_samples(data, sort), _groups(data), _positions(data)]
    tail = [line for part in parts if part for line in ("", *part)]
    return text_report.score(data, rows) + "".join(f"{line}\n" for line in tail)


def _shown(data: Json) -> list[int] | None:
    """The ordering that single samples are compared under: the best of all, else the first."""
    best: list[int] | None = data["best"]
    return best or next((o["slots"] for o in data["orderings"]), None)


def _of(orderings: Sequence[Json], slots: list[int] | None) -> Json:
    """The counts of one ordering; none where it was not scored."""
    nothing = {"hits": 0, "total": 0, "accept_length": {"mean": None, "rows": 0}}
    return next((o for o in orderings if o["slots"] == slots), nothing)


def _ratio(count: Json) -> float | None:
    return count["hits"] / count["total"] if count["total"] else None


def _rank(count: Json, best_first: bool = False) -> tuple[bool, float]:
    """Lowest first, or highest; what has no rows comes last either way."""
    ratio = _ratio(count)
    return ratio is None, -(ratio or 0.0) if best_first else ratio or 0.0


# Sample by sample


def _samples(data: Json, sort: str) -> list[str]:
    samples, slots = data["samples"], _shown(data)
    if len(samples) < 2:
        return []
    counts = [(sample, _of(sample["orderings"], slots)) for sample in samples]
    if sort == "name":
        counts.sort(key=lambda pair: natural(pair[0]["path"]))
    else:
        counts.sort(key=lambda pair: _rank(pair[1], sort == "best"))
    told = {"worst": "worst first", "best": "best first", "name": "by name"}[sort]
    title = f"samples under {_slots(slots)}, {told}:"
    rows = [["step 0", "", "length", "tokens", "sample"]]
    for sample, count in counts[:MOST_SAMPLES]:
        length = _number(count["accept_length"]["mean"])
        rows.append([*_cells(count), length, str(sample["tokens"]), safe(sample["path"])])
    more = len(counts) - MOST_SAMPLES
    return [title, *table(rows, left=(4,)), *([f"... {more} more"] if more > 0 else [])]


# Group by group


def _groups(data: Json) -> list[str]:
    slots = _shown(data)
    groups = sorted(data.get("groups") or [], key=lambda group: _rank(_of(group["orderings"], slots)))
    lines: list[str] = []
    for group in groups:
        count = group["samples"]
        lines += ["", f"group {safe(group['name'])}, {count} sample{'' if count == 1 else 's'}:"]
        lines += _group_table(data, group["orderings"])
    return lines[1:]


def _group_table(data: Json, orderings: Sequence[Json]) -> list[str]:
    ranked = sorted(orderings, key=lambda o: _rank(o, best_first=True))
    shown = [o for i, o in enumerate(ranked) if i < MOST_ORDERINGS or text_report.marks(data, o["slots"]).strip(" ~")]
    rows = [["", "slots", "step 0", "", "length"]]
    for one in shown:
        mark, length = text_report.marks(data, one["slots"]), _number(one["accept_length"]["mean"])
        rows.append([mark, _slots(one["slots"]), *_cells(one), length])
    more = len(ranked) - len(shown)
    return [*table(rows, left=(0, 1)), *([f"... {more} more orderings"] if more else [])]


# By the place of the row


def _positions(data: Json) -> list[str]:
    """Step 0 of the ordering shown, by how much text came before; nothing where all rows are in one bucket."""
    slots = _shown(data)
    found: list[Json] = next((o.get("positions", []) for o in data["orderings"] if o["slots"] == slots), [])
    if len(found) < 2:
        return []
    rows = [["rows", "step 0", ""]]
    rows += [[f"{one['from']}-{one['to']}", *_cells(one)] for one in found]
    return [f"by the place of the row, under {_slots(slots)}:", *table(rows, left=(0,))]


def _cells(count: Json) -> list[str]:
    return [percent(count), f"{count['hits']}/{count['total']}"]


def _slots(slots: Sequence[int] | None) -> str:
    return ",".join(map(str, slots or ()))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
