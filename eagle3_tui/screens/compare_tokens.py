"""Two checkpoints on the same rows: the rows that only one of them has right, decoded, and what all rows amount to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drafter.wiring import name
from eagle3_tui.screens.compare_words import number, p_value, scope_said, share, sides, told_apart
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, Column

if TYPE_CHECKING:
    from drafter.checkpoint_compare.outcomes import DifferingRow, Outcomes, Paired

TELLING, IN_ORDER = "by the difference of accept lengths", "as they stand in the text"
SORTS = (TELLING, IN_ORDER)
RIGHT, WRONG = "=", "x"
Piece = Callable[[int], str]


def rows_of(paired: Paired, sort: str) -> list[DifferingRow]:
    if sort == TELLING:
        return list(paired.differing)
    places = {sample.path: i for i, sample in enumerate(paired.samples)}
    return sorted(paired.differing, key=lambda row: (places[row.path], row.row))


def columns(width: int, many: bool) -> list[Column]:
    """With the sample of each row where there are several."""
    token = max(6, min(20, (width - (32 if many else 18)) // 4))
    words = [Column(title, token) for title in ("fed", "true", "ours", "theirs")]
    rest = [Column("sample", cut="middle")] if many else []
    return [Column("token", 6, "right"), *words, Column("length", 7), *rest]


def cells(row: DifferingRow, piece: Piece) -> Cells:
    """The token predicted, as `step --at` counts it, and who is right; lengths count the bonus token, ours | theirs."""
    ours, theirs = (_drafted(token, row.truth, piece) for token in (row.ours, row.theirs))
    lengths = f"{row.length_ours} | {row.length_theirs}"
    fed, truth = piece(row.fed), piece(row.truth)
    return [(str(row.row + 2), ""), (fed, "dim"), (truth, ""), ours, theirs, (lengths, ""), (row.path.name, "dim")]


def _drafted(token: int, truth: int, piece: Piece) -> tuple[str, str]:
    right = token == truth
    shown = "(nothing)" if token < 0 else piece(token)
    return f"{RIGHT if right else WRONG} {shown}", "good" if right else "bad"


def said(state: State, paired: Paired, row: DifferingRow | None, piece: Piece) -> list[tuple[str, str]]:
    """Who is right on how many rows, whose drafts are longer, how each was run, and how many rows are listed."""
    table, longer, scope = paired.table, paired.longer, state.compare.paired_scope
    step0 = (
        f"step 0: both right {table.both}, only ours {table.only_ours}, only theirs {table.only_theirs}, "
        f"both wrong {table.neither}, of {table.rows}; McNemar p {p_value(table.p)}: {told_apart(table.p)}"
    )
    means = [number(lengths.mean) for lengths in paired.lengths]
    lengths = (
        f"accept length, bonus counted: ours {means[0]}, theirs {means[1]}; longer in ours on {longer.only_ours} rows, "
        f"in theirs on {longer.only_theirs}, equal {longer.both}; "
        f"sign test p {p_value(longer.p)}: {told_apart(longer.p)}"
    )
    total = table.only_ours + table.only_theirs
    listed = f"{len(paired.differing)} of {total} rows that only one has right" if total else "no row tells them apart"
    on = scope_said(scope, len(paired.samples))
    about = f"{listed}; {on}, depth {len(paired.lengths[0].histogram) - 1}; {sides(state)}"
    runs = f"ours {_ran(paired.ours, paired, 0)}; theirs {_ran(paired.theirs, paired, 1)}"
    lines = [(step0, ""), (lengths, ""), (about, "dim"), (runs, "dim")]
    skipped = [*paired.ours.skipped.values(), *paired.theirs.skipped.values()]
    lines += [(f"! {len(skipped)} skipped: {skipped[0]}", "warn")] if skipped else []
    if row is not None and len(paired.samples) > 1:
        lines.insert(0, (f"{row.path.name}, token {row.row + 2}: true {piece(row.truth)}", ""))
    return lines


def _ran(outcomes: Outcomes, paired: Paired, side: int) -> str:
    count = paired.accuracy[side]
    return f"{share(count.hits, count.total)} right, fc={name(outcomes.ordering)} ({outcomes.why})"
