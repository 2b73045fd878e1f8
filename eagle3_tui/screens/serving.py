"""View 7: the drafter as every server version computes it, what a server makes of its flags, its log beside the offline
numbers, and the speed to expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from eagle3_tui.screens import serving_expect, serving_flags, serving_numbers, serving_views
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.serving_text import Line
from eagle3_tui.screens.view import Rows
from eagle3_tui.widgets.line_table import Column, LineTable, NoRows
from eagle3_tui.widgets.plot import PlotView

LEGEND = [
    ("=", "views: computes what was trained"),
    ("!", "views: costs, clearly worse (paired exact test on the rows, p <= 0.05); flags: runs, but wrongly"),
    ("+", "views: gains, clearly better"),
    ("~", "views: differs, cannot be told apart (p > 0.05); expect: best under one split of the cost"),
    ("x", "refused: would not load the checkpoint, or not start with these flags"),
    ("?", "views: not computed, what it feeds was not recorded or needs a file that is not there"),
    ("*", "flags: changed by the server; expect: the best number of drafts"),
    (">", "numbers: the accept rate as the log prints it"),
]
VIEWS, FLAGS, NUMBERS, EXPECT = range(4)
_LINES = 8  # of the detail
# what the panes show is made of these parts of the state
_OF_VIEWS = ("all", "served views", "ready", "sample", "checkpoint", "problem", "wiring", "message", "columns")
_TYPED = ("all", "columns", "pane", "serving", "served views", "score", "ordering", "sample", "checkpoint", "wiring")

_COLUMNS = {"flags": serving_flags.columns, "numbers": serving_numbers.columns, "expect": serving_expect.columns}


class ExpectPane(Container):
    """The cases, and above them a plot when it was asked for."""

    def compose(self) -> ComposeResult:
        yield PlotView(id="serving-plot")
        yield LineTable(serving_expect.columns(80), empty=serving_expect.EMPTY, id="serving-expect")


class ServingView(PanesView):
    PANES = ("views", "flags", "numbers", "expect")
    HINTS = "enter differences  tab pane  f flags  v server  l log  w speeds  a all  ? help"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "score_all", "All samples", id="serving.all", tooltip="views on every listed sample, pooled"),
        Binding("r", "score_one", "This sample", id="serving.one", tooltip="views on the current sample"),
        Binding("f", "flags", "Flags", id="serving.flags", tooltip="type or paste a launch line, or @FILE"),
        Binding("v", "server", "Server", id="serving.server", tooltip="the server and version that serves"),
        Binding("l", "log", "Log", id="serving.log", tooltip="read a server's log, /metrics page or JSON"),
        Binding("w", "speeds", "Speeds", id="serving.speeds", tooltip="speed without drafts, and measured points"),
        Binding("p", "plot", "Plot", id="serving.plot", tooltip="the speed by the number of drafts"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._opened: set[str] = set()  # views whose differences are shown, by name

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable(serving_views.columns(80), id="serving-views")
        yield LineTable(serving_flags.columns(80), empty=serving_flags.EMPTY, id="serving-flags")
        yield LineTable(serving_numbers.columns(80), empty=serving_numbers.EMPTY, id="serving-numbers")
        yield ExpectPane(id="serving-speeds")

    def _table(self, name: str) -> LineTable:
        return self.query_one(f"#serving-{name}", LineTable)

    def tables_of_another(self) -> Iterable[LineTable]:
        """What was typed stays when another sample is opened."""
        return [self._table("views")]

    def changed(self, what: str) -> None:
        control = self.controller.serving
        if what in ("all", "checkpoint"):
            control.checkpoint_changed()
        if what in ("all", "ready", "wiring", "sample"):
            control.start(again=what == "ready")
        if what in _OF_VIEWS:
            self._show_views()
        if what in _TYPED:
            self._show_typed()
        if what not in ("busy", "rows", "step", "others"):
            self._show_detail()

    def _show_views(self) -> None:
        shown, table = self._shown(), self._table("views")
        table.empty = self._why_empty()
        width = self._fit(table, serving_views.columns)
        if shown is None:
            return table.set_rows(NoRows())
        found = serving_views.rows(shown.views, self._opened)
        table.set_rows(Rows(found, lambda i: serving_views.cells(shown, found[i], width), lambda i: found[i]))

    def _shown(self) -> serving_views.Shown | None:
        """The served views as far as they are scored."""
        return serving_views.shown_of(self.state.serving, self.controller.engine.expects("views"))

    def _fit(self, table: LineTable, columns: Callable[[int], list[Column]]) -> int:
        """Give the table the columns for its width, which is returned."""
        width = table.size.width or self.size.width
        if columns(width) != table.columns:
            table.set_columns(columns(width))
        return width

    def _why_empty(self) -> str:
        state = self.state
        if state.problem or not state.ready:
            return state.problem or "the drafter is not loaded yet"
        if self.controller.engine.expects("views"):
            return "scoring the served views …"
        return state.serving.views_problem or "stopped: r scores this sample, a all samples"

    def _show_typed(self) -> None:
        state = self.state
        for name, columns in _COLUMNS.items():
            self._fit(self._table(name), columns)
        flags = serving_flags.rows(state.serving)
        self._table("flags").set_rows(
            Rows(flags, lambda i: serving_flags.cells(flags[i]), lambda i: (flags[i].what, flags[i].why))
        )
        numbers = serving_numbers.rows(state)
        found = Rows(numbers, lambda i: serving_numbers.cells(numbers[i]), lambda i: numbers[i].what)
        self._table("numbers").set_rows(found)
        cases, expected = serving_expect.rows(state), state.serving.expected
        base = expected.base if expected is not None else 1.0
        of_cases = Rows(cases, lambda i: serving_expect.cells(cases[i], base), lambda i: cases[i].what)
        self._table("expect").set_rows(of_cases)
        if self.query_one(PlotView).has_class("shown"):
            self._show_plot()

    # ------------------------------------------------------------------ the detail

    def _show_detail(self) -> None:
        self.detail.say(self._lines(self.size.width, _LINES))

    def _lines(self, width: int, most: int) -> list[Line]:
        state, serving = self.state, self.state.serving
        if self.current == FLAGS:
            return serving_flags.lines(serving, self._at("flags", serving_flags.rows(serving)), width, most)
        if self.current == NUMBERS:
            return serving_numbers.lines(state, self._at("numbers", serving_numbers.rows(state)), width, most)
        if self.current == EXPECT:
            return serving_expect.lines(state, width, most)
        row, shown = self._table("views").key, self._shown()
        if shown is None or not isinstance(row, serving_views.Row):
            return self.problem_lines(most=most)
        if row.view is not None and row.view >= len(shown.views["views"]):
            return []
        return serving_views.lines(shown, row, width, most)

    def _at(self, name: str, rows: list[Any]) -> Any:
        """The thing under the cursor of a table whose rows are `rows`."""
        row = self._table(name).row
        return rows[row] if row is not None and row < len(rows) else None

    def copy_text(self) -> str:
        """The row under the cursor, with all that the detail says of it."""
        return "\n".join(
            [super().copy_text(), *("".join(text for text, _ in line) for line in self._lines(10_000, 99))]
        )

    # ------------------------------------------------------------------ keys

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        self._show_detail()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        views, row = self.state.serving.views, event.key
        if views is None or not isinstance(row, serving_views.Row) or row.view is None:
            return
        name = views["views"][row.view]["name"]
        table = self._table("views")
        if name in self._opened:
            table.move_to_row(serving_views.rows(views, self._opened).index(serving_views.Row(row.view)))
        self._opened ^= {name}
        self._show_views()
        self._show_detail()

    def action_score_all(self) -> None:
        self.controller.serving.score_all()

    def action_score_one(self) -> None:
        self.controller.serving.score_one()

    def action_flags(self) -> None:
        self._ask(
            FLAGS, "launch line", "sglang ... --speculative-num-steps 3, or @FILE", self.controller.serving.set_line
        )

    def action_server(self) -> None:
        made = self.state.serving.round
        now = self.state.serving.server or (made.server if made is not None else "")
        self._ask(
            FLAGS,
            "server",
            f"sglang@0.5.9 or vllm@0.33.0{f'; now {now}' if now else ''}",
            self.controller.serving.set_server,
        )

    def action_log(self) -> None:
        self._ask(
            NUMBERS, "log", "a file: the server's log, a /metrics page, its JSON", self.controller.serving.read_log
        )

    def action_speeds(self) -> None:
        now = self.state.serving.speeds or "90 46.7@1.9/1: tokens/s without drafts, then TOK/S@LENGTH[/DRAFTS]"
        self._ask(EXPECT, "speeds", now, self.controller.serving.set_speeds)

    def _ask(self, pane: int, prompt: str, placeholder: str, take: Callable[[str], None]) -> None:
        def answer(text: str) -> None:
            self.show_pane(pane)
            take(text)

        self.inspector.ask(prompt, placeholder, answer)

    def action_plot(self) -> None:
        plot = self.query_one(PlotView)
        if self.state.serving.expected is None:
            return self.controller.say("nothing to plot: w takes the speeds", "warn")
        shown = self.current == EXPECT and plot.has_class("shown")
        self.show_pane(EXPECT)
        plot.set_class(not shown, "shown")
        self._show_plot()

    def _show_plot(self) -> None:
        app = self.inspector
        self.query_one(PlotView).show(serving_expect.plot(self.state, app.ascii, app.colorless))

    def back(self) -> bool:
        plot = self.query_one(PlotView)
        if self.current == EXPECT and plot.has_class("shown"):
            plot.remove_class("shown")
            return True
        if super().back():
            return True
        opened, self._opened = self._opened, set()
        self._show_views()
        return bool(opened)

    def on_resize(self) -> None:
        if self.display:
            self.call_after_refresh(self.changed, "columns")
