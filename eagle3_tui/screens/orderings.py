"""View 4: every ordering with its accuracy per draft step and its accept length, filling in while a sweep runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from drafter.scoring.tallies import Count
from drafter.wiring import Ordering, name
from eagle3_tui.screens.view import Detail, Rows, View, percent
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, Column, LineTable
from eagle3_tui.widgets.plot import PlotView, Series, draw

if TYPE_CHECKING:
    from drafter.scoring.counts import OrderingCounts

LEGEND = [
    ("*", "the best ordering by step-0 accuracy"),
    ("~", "tied with the best: a paired exact test on the rows cannot tell them apart (p > 0.05)"),
    ("c", "configured: what the config's layer ids select"),
    ("t", "trained: what the training's own config says"),
    (">", "current everywhere"),
]
_SORTS = ("accuracy", "accept length", "slots")


@dataclass(frozen=True)
class Reading:
    """What the columns show: a metric and how its hits are counted over the steps."""

    metric: str
    kind: str

    def __str__(self) -> str:
        return f"{self.metric}, {self.kind}"


READINGS = (
    Reading("next_token", "marginal"),
    Reading("next_token", "joint"),
    Reading("next_token", "conditional"),
    Reading("verifier_strict", "marginal"),
    Reading("verifier_draft_vocab", "joint"),
)


class OrderingsView(View):
    HINTS = "enter current  v metric  s sort  p plot  a all samples  e export  ? help"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort", id="orderings.sort", tooltip="by accuracy, accept length or slots"),
        Binding(
            "v",
            "reading",
            "Metric",
            id="orderings.metric",
            tooltip="next_token marginal, joint, conditional; verifier's",
        ),
        Binding("p", "plot", "Plot", id="orderings.plot", tooltip="accuracy per draft step: best, current, configured"),
        Binding("a", "score_all", "All samples", id="orderings.all", tooltip="score every listed sample, pooled"),
        Binding("r", "score_one", "This sample", id="orderings.one", tooltip="score the current sample"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sort = 0
        self._reading = 0

    def compose(self) -> ComposeResult:
        with Container(id="orderings-body"):
            yield LineTable([Column("")], empty="nothing scored yet", id="orderings-table")
            yield PlotView(id="orderings-plot")
        yield Detail(id="orderings-detail")

    def table(self) -> LineTable:
        return self.query_one(LineTable)

    def changed(self, what: str) -> None:
        if what in ("all", "score", "ordering", "sample", "probes", "columns"):
            self._show_table(what in ("all", "columns", "score"))
        if what in ("all", "score", "ordering", "columns") and self.query_one(PlotView).has_class("shown"):
            self._show_plot()
        if what not in ("busy", "message", "rows", "step", "others"):
            self._show_detail()

    def _show_table(self, columns: bool) -> None:
        scores, table = self.state.scores, self.table()
        depth = scores.result.depth if scores is not None else self.controller.session.options.depth
        if columns:
            shown = min(depth, max((self.size.width - 44) // 7, 1))
            heads = [Column(f"step {k}", 6, "right") for k in range(shown)]
            wanted = [
                Column("", 4),
                Column("slots", 8),
                *heads,
                Column("length", 6, "right"),
                Column("walk", 6, "right"),
                Column("what they are"),
            ]
            if wanted != table.columns:
                table.set_columns(wanted)
        ranked = self._ranked()
        table.set_rows(Rows(ranked, lambda i: self._cells(ranked[i]), lambda i: ranked[i]))

    def _ranked(self) -> list[Ordering]:
        scores = self.state.scores
        if scores is None:
            return []
        found = scores.result.scores
        reading = READINGS[self._reading]
        if self._sort == 2:
            return sorted(found)
        if self._sort == 1:
            return sorted(found, key=lambda o: -(found[o].lengths.mean or 0))
        return sorted(found, key=lambda o: -(self._count(found[o], 0, reading).ratio or 0))

    @staticmethod
    def _count(counts: OrderingCounts, k: int, reading: Reading) -> Count:
        step = counts.steps[k].get(reading.metric)
        found: Count = getattr(step, reading.kind) if step is not None else Count()
        return found

    def _cells(self, ordering: Ordering) -> Cells:
        state, scores = self.state, self.state.scores
        assert scores is not None
        counts = scores.result.scores[ordering]
        reading = READINGS[self._reading]
        steps = len(self.table().columns) - 5
        marks = marks_of(state, ordering)
        look = "good" if "*" in marks else "warn" if "~" in marks else "bad" if "c" in marks else ""
        cells = [percent(self._count(counts, k, reading).ratio) for k in range(steps)]
        ends = [f"{v:.2f}" if v is not None else "-" for v in (counts.lengths.mean, counts.lengths.walk)]
        return [(text, look) for text in (marks, name(ordering), *cells, *ends, state.label(ordering))]

    # ------------------------------------------------------------------ keys

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        if isinstance(event.key, tuple):
            self.controller.choose_ordering(event.key)

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        self._show_detail()

    def action_sort(self) -> None:
        self._sort = (self._sort + 1) % len(_SORTS)
        self._show_table(False)
        self.controller.say(f"sorted by {_SORTS[self._sort]}")

    def action_reading(self) -> None:
        scores = self.state.scores
        there = [i for i, r in enumerate(READINGS) if scores is None or self._has(r.metric)]
        self._reading = next((i for i in there if i > self._reading), there[0])
        self.changed("columns")
        reasons = scores.result.reasons if scores is not None else {}
        note = f"; no verifier metrics: {reasons['verifier_strict']}" if "verifier_strict" in reasons else ""
        self.controller.say(f"showing {READINGS[self._reading]}{note}")

    def _has(self, metric: str) -> bool:
        scores = self.state.scores
        return scores is not None and any(metric in c.steps[0] for c in scores.result.scores.values())

    def action_plot(self) -> None:
        plot = self.query_one(PlotView)
        plot.toggle_class("shown")
        if plot.has_class("shown"):
            self._show_plot()

    def action_score_all(self) -> None:
        self.controller.score_all()

    def action_score_one(self) -> None:
        self.controller.score_one()

    def back(self) -> bool:
        plot = self.query_one(PlotView)
        was = plot.has_class("shown")
        plot.remove_class("shown")
        return was

    def on_resize(self) -> None:
        if self.display:
            self._show_table(True)

    # ------------------------------------------------------------------ plot and detail

    def _show_plot(self) -> None:
        scores, state = self.state.scores, self.state
        if scores is None:
            return
        asked = {"best": scores.best, "current": state.ordering, "configured": state.configured}
        named: dict[Ordering, list[str]] = {}
        for word, ordering in asked.items():
            if ordering is not None and ordering in scores.result.scores:
                named.setdefault(ordering, []).append(word)
        reading = READINGS[self._reading]
        series = [
            Series(
                [_percent(self._count(scores.result.scores[o], k, reading)) for k in range(scores.result.depth)],
                label=f"{name(o)} {', '.join(words)}",
            )
            for o, words in named.items()
        ]
        app: Any = self.app
        title = f"{reading.metric} {reading.kind} %"
        self.query_one(PlotView).show(
            lambda w, h: draw(series, w, h, title, ascii=app.ascii, colorless=app.colorless, ylim=(0, 100))
        )

    def _show_detail(self) -> None:
        detail = self.query_one("#orderings-detail", Detail)
        scores, state = self.state.scores, self.state
        if scores is None:
            return detail.say([[("scoring has not begun", "dim")], [(state.configured_why, "dim")]])
        result = scores.result
        key = self.table().key
        first = []
        if isinstance(key, tuple) and key in result.scores:
            first = [(describe(key, result.scores[key]), "")]
        what = f"{len(result.samples)} samples pooled" if scores.pooled else "this sample"
        done = "" if result.done == result.planned else f"  {result.done} of {result.planned} scored"
        how = f"{what}, mask {result.mask}, {READINGS[self._reading]}{done}"
        detail.say([first, [(how, "dim")], [conclusion(state)]])


def _percent(count: Count) -> float | None:
    return None if count.ratio is None else 100 * count.ratio


def marks_of(state: State, ordering: Ordering) -> str:
    """`>*ct`: current, best or tied, configured, trained, each in its place."""
    scores = state.scores
    best = "*" if scores and ordering == scores.best else "~" if scores and ordering in scores.tied else " "
    current = ">" if ordering == state.ordering else " "
    return current + best + ("c" if ordering == state.configured else " ") + ("t" if ordering == state.trained else " ")


def describe(ordering: Ordering, counts: OrderingCounts) -> str:
    """Hits, totals and the histogram of one ordering."""
    histogram = " ".join(f"{n + 1}:{c}" for n, c in enumerate(counts.lengths.histogram))
    accuracy = counts.accuracy
    return f"{name(ordering)}: step 0 {accuracy.hits} of {accuracy.total}; rows by accept length {histogram}"


def conclusion(state: State) -> tuple[str, str]:
    """The one sentence that the sweep is for."""
    scores = state.scores
    if scores is None or scores.best is None or scores.result.done < scores.result.planned:
        return "", ""
    found, best, configured = scores.result.scores, scores.best, state.configured

    def said(ordering: Ordering) -> str:
        return f"{name(ordering)} {percent(found[ordering].accuracy.ratio)} %"

    if configured is None:
        return f"best {said(best)}, {len(scores.tied)} tied; configured: {state.configured_why}", "warn"
    if configured == best:
        return f"the configured ordering {said(best)} is the best; {len(scores.tied)} tied with it", "good"
    if configured in scores.tied:
        return f"configured {said(configured)} is tied with the best {said(best)}: the rows cannot tell", "good"
    return f"! the config selects {said(configured)}; the best is {said(best)}", "bad"
