"""All checkpoints of the folder as rows: the trainer's own numbers beside what each does on the samples."""

from __future__ import annotations

from collections.abc import Sequence

from drafter.wiring import name
from eagle3_tui.controls.compare import EpochLine
from eagle3_tui.screens.compare_words import Said, number, p_value, scope_said, share, their_name
from eagle3_tui.screens.orderings import limits
from eagle3_tui.screens.view import percent
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, Column
from eagle3_tui.widgets.plot import Number, Series

LISTED, LONGEST, RIGHT = "by epoch", "by accept length", "by step-0 accuracy"
SORTS = (LISTED, LONGEST, RIGHT)
LENGTHS, ACCURACIES = "accept length, bonus token counted", "step-0 %"
PLOTS = (LENGTHS, ACCURACIES)
_WIDE = 70  # columns from which epoch and step have room


def columns(width: int) -> list[Column]:
    ends = [Column("step 0", 6, "right"), Column("length", 6, "right"), Column("walk", 5, "right")]
    rest = Column("trainer's own, state")
    if width < _WIDE:
        return [Column("", 2), Column("checkpoint", max(8, min(16, width - 30)), cut="middle"), *ends, rest]
    places = [Column("epoch", 5, "right"), Column("step", 7, "right")]
    return [Column("", 2), Column("checkpoint", 16, cut="middle"), *places, *ends, rest]


def order(lines: Sequence[EpochLine], sort: str) -> list[int]:
    """The numbers of the lines; those without a number come last, as listed."""
    if sort == LISTED:
        return list(range(len(lines)))
    values = {i: _length(line) if sort == LONGEST else _accuracy(line) for i, line in enumerate(lines)}
    return sorted(values, key=lambda i: (values[i] is None, -(values[i] or 0.0), i))


def cells(state: State, number_of_line: int, width: int) -> Cells:
    """One checkpoint: marks, name, epoch, step, step 0, accept length, walk, and what else is known of it."""
    line = state.compare.lines[number_of_line]
    marks = marks_of(state, number_of_line)
    look = "good" if "*" in marks else "warn" if "~" in marks else "bad" if line.epoch.problem else ""
    walk = line.lengths.walk if line.lengths is not None else None
    numbers = [percent(_accuracy(line)), number(_length(line)), number(walk)]
    rest = _rest(line)
    places = [number(line.epoch.epoch, "d"), number(line.epoch.step, "d")] if width >= _WIDE else []
    return [(text, look) for text in (marks, line.epoch.found.name, *places, *numbers, rest)]


def marks_of(state: State, number_of_line: int) -> str:
    """`>*`: open or marked, then best or tied."""
    mine, found = state.compare, state.compare.lines[number_of_line].epoch.found
    chosen = state.chosen is not None and state.chosen.path == found.path
    marked = mine.theirs is not None and mine.theirs.path == found.path
    tied = mine.best is not None and any(i == number_of_line for i, _ in mine.best.tied)
    best = mine.best is not None and mine.best.index == number_of_line
    return (">" if chosen else "<" if marked else " ") + ("*" if best else "~" if tied else " ")


def _rest(line: EpochLine) -> str:
    """What stands in the way, else the trainer's own accuracy, and the links that lead here."""
    found = line.epoch.found
    parts = [line.epoch.problem] if line.epoch.problem else []
    metric = telling(line)
    parts += [f"{metric} {line.epoch.metrics[metric]:.4g}"] if metric else []
    return "  ".join([*parts, *(f"<- {link.rpartition('/')[2]}" for link in found.links)])


def telling(line: EpochLine) -> str:
    """The trainer's metric that tells most: an accuracy before a loss."""
    return min(line.epoch.metrics, key=lambda n: ("acc" not in n, "full" not in n, n), default="")


def _length(line: EpochLine) -> float | None:
    return line.lengths.mean if line.lengths is not None else None


def _accuracy(line: EpochLine) -> float | None:
    return line.accuracy.ratio if line.accuracy is not None else None


# --- the detail


def said(state: State, row: int | None, running: bool, facts: int) -> list[tuple[str, str]]:
    """The checkpoint under the cursor with `facts` of the trainer's numbers, which is best, and on what all ran."""
    mine = state.compare
    line = mine.lines[row] if row is not None and row < len(mine.lines) else None
    first = [] if line is None else [*_about(line, facts), *_ran(line)]
    first = first if facts else first[1:2]
    return [*first[:2], _best(state), *first[2:], _how(state, running)]


def _about(line: EpochLine, facts: int) -> list[tuple[str, str]]:
    epoch = line.epoch
    places = [f"epoch {epoch.epoch} ({epoch.epoch_why})"] if epoch.epoch is not None else ["epoch not stated"]
    places += [f"step {epoch.step}"] if epoch.step is not None else []
    told = sorted(epoch.metrics, key=lambda n: ("acc" not in n, "full" not in n, n))[:facts]
    own = ", ".join(f"{name} {epoch.metrics[name]:.4g}" for name in told)
    own = f"; the trainer's own, on its data: {own}" if own else "; no numbers of the trainer"
    about = f"{epoch.found.name}: {', '.join(places)}{own}"
    return [(about, ""), (epoch.problem, "bad")] if epoch.problem else [(about, "")]


def _ran(line: EpochLine) -> Said:
    outcomes = line.epoch.outcomes
    if outcomes is None or line.accuracy is None or line.lengths is None:
        return []
    lengths = line.lengths
    histogram = " ".join(f"{n + 1}:{count}" for n, count in enumerate(lengths.histogram))
    right = f"step 0 {share(line.accuracy.hits, line.accuracy.total)}, rows by accept length {histogram}"
    skipped = f"; {len(outcomes.skipped)} samples skipped" if outcomes.skipped else ""
    fed = f"fc={name(outcomes.ordering)} ({outcomes.why}), view {outcomes.wiring.view}, {outcomes.placed}{skipped}"
    warned = [(f"! {warning}", "warn") for warning in outcomes.warnings]
    return [(right, ""), (fed, "dim"), *warned]


def _best(state: State) -> tuple[str, str]:
    mine = state.compare
    if mine.best is None:
        return mine.runs_problem, "bad"
    tied = ", ".join(f"{mine.lines[i].epoch.found.name} (p {p_value(p)})" for i, p in mine.best.tied)
    rest = f"not told apart from it: {tied}" if tied else "no other is tied with it"
    so_far = "" if mine.done >= len(mine.lines) else "so far "
    named = mine.lines[mine.best.index].epoch.found.name
    return f"* {so_far}best {named} by {mine.best.ranked_by} over {mine.best.rows} rows; ~ {rest}", "good"


def _how(state: State, running: bool) -> tuple[str, str]:
    """On what, and how far; each under its own ordering, which is not the one of the other views."""
    mine = state.compare
    marked = f"; < {their_name(state)} is marked" if mine.theirs is not None else ""
    if mine.scope is None:
        return (state.problem or f"not run: r runs all on this sample, a on all listed{marked}"), "dim"
    count = f"{mine.done} of {len(mine.lines)} run" + ("" if running or mine.done >= len(mine.lines) else ", stopped")
    whole = "" if mine.done >= len(mine.lines) else f"{count}: "
    on = f"{scope_said(mine.scope, mine.samples)}, depth {mine.depth}"
    return f"{whole}{on}; each as it was trained, lengths count the bonus token{marked}", "dim"


# --- the plot


def series(lines: Sequence[EpochLine], what: str) -> tuple[list[Series], str, tuple[float, float]]:
    """The lines of a plot over the epochs, what runs across, and the limits of its height."""
    places = [line.epoch.epoch for line in lines]
    stated = [place for place in places if place is not None]
    across = "epoch" if len(stated) == len(places) and stated == sorted(set(stated)) else "place in the list"
    x: list[Number] = [float(i if across != "epoch" or place is None else place) for i, place in enumerate(places)]
    if what == LENGTHS:
        walks = [line.lengths.walk if line.lengths is not None else None for line in lines]
        drawn = {"mean over rows": [_length(line) for line in lines], "walk": walks}
        top = max((v for values in drawn.values() for v in values if v is not None), default=2.0)
        bounds = (1.0, max(top, 1.5))
    else:
        drawn = {"here": [_percent(_accuracy(line)) for line in lines]} | _own(lines)
        bounds = limits([v for values in drawn.values() for v in values if v is not None])
    return [_connected(x, values, label) for label, values in drawn.items()], across, bounds


def _connected(x: list[Number], values: Sequence[Number], label: str) -> Series:
    """Over an epoch without a number the line goes on: two lonely points show no trend."""
    known = [(place, value) for place, value in zip(x, values, strict=True) if value is not None]
    return Series([value for _, value in known], [place for place, _ in known], label=label)


def _own(lines: Sequence[EpochLine]) -> dict[str, list[float | None]]:
    """The trainer's own accuracy of its first step, where it measured one."""
    names = [telling(line) for line in lines if line.epoch.metrics]
    if not names or "acc" not in names[0]:
        return {}
    values = [line.epoch.metrics.get(names[0]) for line in lines]
    if any(v is not None and not 0 <= v <= 1 for v in values):
        return {}
    return {"trainer's own, on its data": [_percent(v) for v in values]}


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio
