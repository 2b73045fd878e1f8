"""View 4: every ordering with its accuracy per draft step and its accept length, filling in while a sweep runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from drafter.scoring.tallies import KINDS, METRICS, Count, bucket
from drafter.wiring import Ordering, name
from eagle3_tui.screens.view import Detail, Rows, View, percent
from eagle3_tui.state import Scores, State
from eagle3_tui.widgets.line_table import Cells, Column, LineTable, NoRows
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
_SLOTS, _MOST = 8, 24  # columns of an ordering: of three inputs with two digits each, and at most
_SORTS = ("accuracy", "accept length", "slots")


@dataclass(frozen=True)
class Reading:
    """What the columns show: a metric and how its hits are counted over the steps."""

    metric: str
    kind: str

    def __str__(self) -> str:
        return f"{self.metric}, {self.kind}"


class OrderingsView(View):
    HINTS = "enter current  v/V metric  s sort  p plot  a all samples  e export  ? help"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort", id="orderings.sort", tooltip="by accuracy, accept length or slots"),
        Binding("v", "metric", "Metric", id="orderings.metric", tooltip="next_token, or against the verifier's choice"),
        Binding("V", "kind", "Kind", id="orderings.kind", tooltip="hits counted marginal, joint or conditional"),
        Binding("p", "plot", "Plot", id="orderings.plot", tooltip="accuracy per draft step, then by row of the text"),
        Binding("a", "score_all", "All samples", id="orderings.all", tooltip="score every listed sample, pooled"),
        Binding("r", "score_one", "This sample", id="orderings.one", tooltip="score the current sample"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sort = 0
        self._reading = Reading(METRICS[0], KINDS[0])
        self._by_position = False  # what the plot shows

    def compose(self) -> ComposeResult:
        with Container(id="orderings-body"):
            yield LineTable([Column("")], id="orderings-table")
            yield PlotView(id="orderings-plot")
        yield Detail(id="orderings-detail")

    def table(self) -> LineTable:
        return self.query_one(LineTable)

    def changed(self, what: str) -> None:
        if what in ("all", "score", "ordering", "sample", "checkpoint", "ready", "probes", "problem", "columns"):
            self._show_table(what in ("all", "columns", "score"))
        if what in ("all", "score", "ordering", "columns") and self.query_one(PlotView).has_class("shown"):
            self._show_plot()
        if what not in ("busy", "message", "rows", "step", "others"):
            self._show_detail()

    def _show_table(self, columns: bool) -> None:
        scores, table = self.state.scores, self.table()
        table.empty = self._why_empty()
        partial = scores is not None and scores.pooled and not scores.complete
        depth = scores.result.depth if scores is not None else self.controller.session.options.depth
        if columns:
            slots = min(max([_SLOTS, *(len(name(o)) for o in self.state.orderings)]), _MOST)
            shown = min(depth, max((self.size.width - (51 if partial else 44) - (slots - _SLOTS)) // 7, 1))
            heads = [Column(f"step {k}", 6, "right") for k in range(shown)]
            # orderings that have not been on every sample yet must not look as if they had
            heads = [Column("rows", 6, "right"), *heads] if partial else heads
            wanted = [
                Column("", 4),
                Column("slots", slots),
                *heads,
                Column("length", 6, "right"),
                Column("walk", 6, "right"),
                Column("what they are"),
            ]
            if wanted != table.columns:
                table.set_columns(wanted)
        if scores is None:
            return table.set_rows(NoRows())
        ranked, steps = self._ranked(scores), sum(column.title.startswith("step") for column in table.columns)
        table.set_rows(Rows(ranked, lambda i: self._cells(scores, ranked[i], steps, partial), lambda i: ranked[i]))

    def _why_empty(self) -> str:
        """What stands in place of the rows."""
        if self.state.problem or not self.state.ready:
            return self.state.problem or "the drafter is not loaded yet"
        scoring = self.controller.engine.expects("score")
        return "scoring …" if scoring else "nothing scored: r scores this sample, a all samples"

    def _ranked(self, scores: Scores) -> list[Ordering]:
        """Best first. Until all are scored they are ranked on the rows that they share, as the best is told."""
        found, reading = scores.result.scores, self._reading
        if self._sort == 2:
            return sorted(found)
        if self._sort == 1:
            return sorted(found, key=lambda o: -(found[o].lengths.mean or 0))
        if not scores.complete:
            return sorted(found, key=lambda o: -scores.shared.get(o, 0))
        return sorted(found, key=lambda o: -(self._count(found[o], 0, reading).ratio or 0))

    @staticmethod
    def _count(counts: OrderingCounts, k: int, reading: Reading) -> Count:
        step = counts.steps[k].get(reading.metric)
        found: Count = getattr(step, reading.kind) if step is not None else Count()
        return found

    def _cells(self, scores: Scores, ordering: Ordering, steps: int, partial: bool) -> Cells:
        state, reading = self.state, self._reading
        counts = scores.result.scores[ordering]
        marks = marks_of(state, scores, ordering)
        look = "good" if "*" in marks else "warn" if "~" in marks else "bad" if "c" in marks else ""
        cells = [str(self._count(counts, 0, reading).total)] if partial else []
        cells += [percent(self._count(counts, k, reading).ratio) for k in range(steps)]
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

    def action_metric(self) -> None:
        there = [metric for metric in METRICS if metric == METRICS[0] or self._has(metric)]
        where = there.index(self._reading.metric) if self._reading.metric in there else -1
        scores = self.state.scores
        reasons = scores.result.reasons if scores is not None else {}
        note = f"; no verifier metrics: {reasons['verifier_strict']}" if "verifier_strict" in reasons else ""
        self._read(Reading(there[(where + 1) % len(there)], self._reading.kind), note)

    def action_kind(self) -> None:
        kind = KINDS[(KINDS.index(self._reading.kind) + 1) % len(KINDS)]
        self._read(Reading(self._reading.metric, kind))

    def _read(self, reading: Reading, note: str = "") -> None:
        self._reading = reading
        self.changed("columns")
        self.controller.say(f"showing {reading}{note}")

    def _has(self, metric: str) -> bool:
        scores = self.state.scores
        return scores is not None and any(metric in c.steps[0] for c in scores.result.scores.values())

    def action_plot(self) -> None:
        plot = self.query_one(PlotView)
        shown = plot.has_class("shown")
        self._by_position = shown and not self._by_position
        plot.set_class(not shown or self._by_position, "shown")
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
        found = scores.result.scores
        if self._by_position:
            lines = {o: [_percent(count) for count in found[o].positions] for o in named}
            longest = max((len(line) for line in lines.values()), default=0)
            title, across = "next_token step 0 % by row of the text", bucket_words(longest)
        else:
            reading, depth = self._reading, scores.result.depth
            lines = {o: [_percent(self._count(found[o], k, reading)) for k in range(depth)] for o in named}
            title, across = f"{reading.metric} {reading.kind} %", "draft step"
        series = [Series(lines[o], label=f"{name(o)} {', '.join(words)}") for o, words in named.items()]
        low, high = limits([value for line in lines.values() for value in line if value is not None])
        across = f"{across} (height: {low} to {high} %)"
        app: Any = self.app
        look = {"ascii": app.ascii, "colorless": app.colorless}
        self.query_one(PlotView).show(lambda w, h: draw(series, w, h, title, across, ylim=(low, high), **look))

    def _show_detail(self) -> None:
        detail = self.query_one("#orderings-detail", Detail)
        scores, state = self.state.scores, self.state
        if scores is None:
            if state.problem:
                return detail.say(self.problem_lines())
            return detail.say([[], [], [(current(state), "dim")], [(state.configured_why, "dim")]])
        result = scores.result
        key = self.table().key
        first = []
        if isinstance(key, tuple) and key in result.scores:
            first = [(describe(key, result.scores[key]), "")]
        what = f"{len(result.samples)} samples pooled" if scores.pooled else "this sample"
        if result.skipped:
            what += f" ({len(result.skipped)} skipped: {result.skipped[0][1]})"
        how = f"{what}, view {result.view}, mask {result.mask}, {self._reading}"
        if not scores.complete:
            on = "ranked on the rows that all share" if scores.pooled else what
            how = f"{result.done} of {result.planned} scored, {on}; {self._reading}"
        more = [text for text in (groups_said(scores, key), state.orderings_note) if text]
        detail.set_class(bool(more), "more")
        extra = [[("; ".join(more), "")]] if more else []
        detail.say([first, *extra, [(how, "dim")], [(current(state), "dim")], [conclusion(state)]])


def _percent(count: Count) -> float | None:
    return None if count.ratio is None else 100 * count.ratio


def limits(values: list[float]) -> tuple[int, int]:
    """The tens between which all the values lie: the whole height for what differs."""
    low = 10 * math.floor(min(values, default=0) / 10)
    return low, max(10 * math.ceil(max(values, default=100) / 10), low + 10)


def marks_of(state: State, scores: Scores, ordering: Ordering) -> str:
    """`>*ct`: current, best or tied, configured, trained, each in its place."""
    best = "*" if ordering == scores.best else "~" if ordering in scores.tied else " "
    mark = ">" if ordering == state.ordering else " "
    return mark + best + ("c" if ordering == state.configured else " ") + ("t" if ordering == state.trained else " ")


def current(state: State) -> str:
    """Which ordering is current, and why that one."""
    return "" if state.ordering is None else f"{name(state.ordering)} is current: {state.ordering_why}"


def describe(ordering: Ordering, counts: OrderingCounts) -> str:
    """Hits, totals and the histogram of one ordering."""
    histogram = " ".join(f"{n + 1}:{c}" for n, c in enumerate(counts.lengths.histogram))
    accuracy = counts.accuracy
    return f"{name(ordering)}: step 0 {accuracy.hits} of {accuracy.total}; rows by accept length {histogram}"


def groups_said(scores: Scores, ordering: object) -> str:
    """One ordering on every group of samples, the worst first; empty where there are no groups."""
    found = {
        group: pooled.orderings[ordering].accuracy
        for group, pooled in scores.result.groups.items()
        if isinstance(ordering, tuple) and ordering in pooled.orderings
    }
    ranked = sorted(found, key=lambda group: found[group].ratio or 0)
    return "groups: " * bool(ranked) + ", ".join(
        f"{group.rpartition('/')[2]} {percent(found[group].ratio)} % of {found[group].total}" for group in ranked
    )


def bucket_words(count: int) -> str:
    """What the places along a plot by position stand for."""
    spans = [bucket(i) for i in range(count)]
    return "rows " + ", ".join(f"{i}: {first}-{last}" for i, (first, last) in enumerate(spans))


def conclusion(state: State) -> tuple[str, str]:
    """The one sentence that the sweep is for; what it is told by, whatever the columns show."""
    scores = state.scores
    if scores is None or scores.best is None or not scores.complete:
        return "", ""
    by = "next_token, step 0:"
    found, best, configured = scores.result.scores, scores.best, state.configured

    def said(ordering: Ordering) -> str:
        return f"{name(ordering)} {percent(found[ordering].accuracy.ratio)} %"

    if configured is None:
        return f"{by} best {said(best)}, {others(len(scores.tied))}; configured: {state.configured_why}", "warn"
    if configured == best:
        return f"{by} the configured {said(best)} is the best, {others(len(scores.tied))}", "good"
    if configured in scores.tied:
        return f"{by} configured {said(configured)} is tied with the best, {said(best)}", "good"
    return f"! {by} the config selects {said(configured)}; the best is {said(best)}", "bad"


def others(tied: int) -> str:
    return "none tied" if not tied else f"{tied} other{'s' if tied > 1 else ''} tied with it"
