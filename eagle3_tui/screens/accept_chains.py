"""What chains of drafts say, as rows and lines: by draft step and accept length, and where they break.

Reads the JSON of `accept` (its shape stands in `eagle3_tui.accept_report`). Knows no widget and no state.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from drafter.safe import safe
from eagle3_tui.accept_report import bar
from eagle3_tui.screens.view import percent
from eagle3_tui.widgets.line_table import Cells, Column

if TYPE_CHECKING:
    from eagle3_tui.controls.accept import Chains

Json = dict[str, Any]
Line = list[tuple[str, str]]
WIDE = 66  # columns from which the names of the columns have room
WAYS = ("teacher_forced", "free_running", "joint", "conditional")
BREAK, OUTSIDE = "x", "o"

# By draft step


def columns(width: int) -> list[Column]:
    """A row is draft step k, and the accept length k + 1 of the chains that break at it."""
    if width < WIDE:
        names = [("step", 4), ("text", 5), ("own", 5), ("joint", 5), ("cond", 5), ("len", 3), ("rows", 5)]
    else:
        names = [("step", 4), ("text fed", 8), ("own fed", 8), ("joint", 6), ("cond.", 6), ("length", 6), ("rows", 7)]
        names.append(("%", 5))
    return [*(Column(title, size, "right") for title, size in names), Column("")]


def step_cells(data: Json, k: int, width: int, ascii: bool) -> Cells:
    steps, histogram = data["steps"], data["accept_length"]["histogram"]
    rows, most = sum(histogram), max(histogram)
    step = steps[k] if k < len(steps) else None
    shares = [percent(_ratio(step[way])) if step is not None else "" for way in WAYS]
    cells = [str(k) if step is not None else "", *shares, str(k + 1), str(histogram[k])]
    room = width - sum(column.width + 1 for column in columns(width)[:-1])
    if width >= WIDE:
        cells.append(percent(histogram[k] / rows if rows else None))
    return [*((cell, "") for cell in cells), (bar(histogram[k], most, max(room, 1), ascii), "mark")]


def _ratio(count: Json) -> float | None:
    return count["hits"] / count["total"] if count["total"] else None


def step_lines(chains: Chains, k: int | None) -> list[Line]:
    """Six lines: the lengths with what they count, and the row under the cursor in counts."""
    data = chains.data
    lengths, expected = data["accept_length"], data["expected"]
    samples = data["samples"]
    where = f"{lengths['rows']} rows" + (f" of {len(samples)} samples" if chains.planned > 1 else "")
    how = f": bonus counted, {where} pooled, K {data['depth']}, mask {data['mask']}"
    walk = lengths["walk"]
    return [
        [(f"accept length {number(lengths['mean'])}", "bold"), (how, "")],
        [(f"walk {number(walk['length'])} tokens a round ({walk['tokens']} in {walk['rounds']} rounds, pooled)", "")],
        [
            (f"the accuracies imply: conditional {number(expected['conditional'])}", ""),
            (f", joint {number(expected['joint'])}", ""),
            (f"; marginal (the mistake) {number(expected['marginal'])}", "dim"),
        ],
        [_remark(chains)],
        *_step_counts(data, k),
    ]


def _remark(chains: Chains) -> tuple[str, str]:
    """What is wrong, else how two other ways of counting come out."""
    data, lengths = chains.data, chains.data["accept_length"]
    if not chains.complete:
        return f"{chains.done} of {chains.planned} samples so far", "warn"
    if data["skipped"]:
        first = data["skipped"][0]
        return f"! {len(data['skipped'])} skipped: {first['path']}: {first['error']}", "warn"
    if data["not_finite"]:
        return f"! {data['not_finite']} of the rows that count gave no numbers: misses for that alone", "warn"
    if not lengths["rows"]:
        return f"! no row counts for an accept length: none has {data['depth']} truths that count", "warn"
    ceiling = f"ceiling by draft vocabulary {number(_ceiling(data))}"
    if chains.planned > 1:
        mean = lengths["mean_of_samples"]
        return f"mean of {mean['samples']} samples {number(mean['mean'])} (each weighs the same); {ceiling}", ""
    differ = lengths["free_running"]["rows_that_differ"]
    return ceiling + (f"; fed its own tokens, {differ} rows differ (ties)" if differ else ""), ""


def _ceiling(data: Json) -> float | None:
    ceiling = data["breaks"]["ceiling"]
    return ceiling["sum"] / ceiling["rows"] if ceiling["rows"] else None


def _step_counts(data: Json, k: int | None) -> list[Line]:
    steps, histogram = data["steps"], data["accept_length"]["histogram"]
    if k is None or k >= len(histogram):
        return []
    if k == len(steps):
        return [[(f"length {k + 1}: {histogram[k]} chains are right to the end", "dim")]]
    counts = [f"{steps[k][way]['hits']}/{steps[k][way]['total']}" for way in WAYS]
    said = f"step {k}: text fed {counts[0]}, own fed {counts[1]}, joint {counts[2]}, cond. {counts[3]}"
    end = f"length {k + 1}: {histogram[k]} chains break at step {k}; text fed and own fed are marginal"
    return [[(said, "dim")], [(end, "dim")]]


# Breaks


def break_columns(width: int) -> list[Column]:
    head = [Column("", 1), Column("breaks", 6, "right")]
    if width < 48:
        return [*head, Column("true token", max(width // 3, 6)), Column("instead")]
    more = [Column("reached", 7, "right"), Column("%", 5, "right")]
    return [*head, *more, Column("true token", 18), Column("predicted instead")]


def break_rows(data: Json) -> list[Json]:
    """The true tokens that break the most chains; after them those outside of the draft vocabulary."""
    breaks = data["breaks"]
    return [*breaks["tokens"], *breaks["outside_tokens"]]


def break_cells(one: Json, width: int) -> Cells:
    narrow = width < 48
    if "instead" not in one:
        blank = [] if narrow else [("", ""), ("", "")]
        said = (one["text"], "outside"), ("outside of the draft vocabulary", "outside")
        return [(OUTSIDE, "outside"), (str(one["breaks"]), ""), *blank, *said]
    shares = [] if narrow else [(str(one["reached"]), ""), (percent(one["breaks"] / one["reached"]), "")]
    return [(BREAK, "bad"), (str(one["breaks"]), ""), *shares, (one["text"], ""), (_instead(one), "")]


def _instead(one: Json) -> str:
    return ", ".join(f"{other['text'] or 'no numbers'} x{other['breaks']}" for other in one["instead"])


def break_lines(chains: Chains, one: Json | None, width: int) -> list[Line]:
    """Six lines: totals, what no training repairs, by the place of the row, the token under the cursor."""
    data, breaks = chains.data, chains.data["breaks"]
    if not breaks["chains"]:
        return [[_remark(chains)]]
    places, depth = breaks["places"], data["depth"]
    first = f"{breaks['broken']} of {breaks['chains']} chains of {depth} break, at {places['broken']} places"
    vocab = f"{breaks['outside']} of them, at {places['outside']} places, outside of the draft vocabulary"
    lines: list[Line] = [
        [(first, "bold"), (f"; {breaks['whole']} right to the end; mask {data['mask']}", "")],
        [(f"{OUTSIDE} {vocab} (no training helps)", "outside")],
    ]
    if chains.complete and not data["skipped"]:
        lines.append([(f"accept length {number(_ceiling(data))} if right wherever the draft vocabulary allows", "")])
    else:
        lines.append([_remark(chains)])
    lines += wrapped(_by_place(breaks["positions"]), width, 2)
    if one is not None and "instead" in one:
        said = f"{one['text']} (id {one['id']}) breaks {one['breaks']} of {one['reached']} chains that reach it"
        lines.append([(said, "bold"), (f": {_instead(one)}", "")])
    elif one is not None:
        lines.append(
            [(f"{one['text']} (id {one['id']}) breaks {one['breaks']} chains: it cannot be drafted", "outside")]
        )
    return lines


def _by_place(positions: list[Json]) -> str:
    """Chains that break, of those from the rows of each stretch of the text."""
    parts = [
        f"{part['from']}-{part['to']} {part['broken']}/{part['chains']}"
        + (f" ({part['outside']} {OUTSIDE})" if part["outside"] else "")
        for part in positions
        if part["chains"]
    ]
    return "broken by row of the text: " + ", ".join(parts)


def wrapped(text: str, width: int, most: int, look: str = "") -> list[Line]:
    """`text` in at most so many lines."""
    lines = textwrap.wrap(safe(text), max(width, 20), max_lines=most, placeholder=" …")
    return [[(line, look)] for line in lines]


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
