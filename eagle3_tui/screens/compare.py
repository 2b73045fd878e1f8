"""View 8: all checkpoints of the folder on the same samples, and one of them, or of another folder, held against the
open one: configs, tensors, and the tokens on which they differ.

Ours is the open checkpoint, theirs the one that was marked. Each runs under the ordering and the wiring that it was
trained with, whatever ordering is current in the other views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from eagle3_tui.controls.compare import PAIR, RUNS, TOKENS, CompareControl
from eagle3_tui.screens import compare_config, compare_epochs, compare_tensors, compare_tokens
from eagle3_tui.screens.compare_words import Lines, Said, how_to_mark, sides, wrapped
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.view import Rows
from eagle3_tui.widgets.line_table import Column, LineTable, NoRows, RowSource
from eagle3_tui.widgets.plot import PlotView, draw

if TYPE_CHECKING:
    from drafter.checkpoint_compare.outcomes import DifferingRow

LEGEND = [
    (">", "ours: the checkpoint that is open"),
    ("<", "theirs: marked by space, held against the open one"),
    ("*", "the best checkpoint; ~ those that the rows cannot tell from it (p > 0.05)"),
    ("!", "config: the two mean different things; tensors: elements differ"),
    ("?", "config: only one of the two says it; o who wrote it differs; k a key that is not read"),
    ("=", "config: the same meaning, written otherwise; tensors: equal; tokens: right"),
    ("~", "tensors: equal once both are rounded to the coarser dtype; - not compared"),
    ("x", "tokens: another token than the sample's"),
]
EPOCHS, CONFIG, TENSORS, TOKEN = range(4)
_WIDE, _FIRST = 110, 60  # columns from which two panes stand side by side, and those of the first
_BESIDE_PLOT, _LINES, _TALL = 4, 7, 10  # of the detail
_ROOMY = 34  # lines of the view from which the detail is tall
_QUIET = ("busy", "rows", "step", "others", "probes", "statistics", "tried", "survey")


class CompareView(PanesView):
    PANES = ("epochs", "config", "tensors", "tokens")
    HINTS = "enter open  space mark  n other path  a all samples  p plot  s sort  tab  ? help"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark", id="compare.mark", tooltip="hold this checkpoint against the open one"),
        Binding("n", "another", "Other path", id="compare.another", tooltip="compare with a checkpoint at a path"),
        Binding("a", "all_samples", "All samples", id="compare.all", tooltip="on every listed sample, pooled"),
        Binding("r", "again", "Run", id="compare.run", tooltip="run or compare what this pane shows (again)"),
        Binding("p", "plot", "Plot", id="compare.plot", tooltip="accept length over the epochs, then accuracy"),
        Binding("s", "sort", "Sort", id="compare.sort", tooltip="another order of the rows of this pane"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sorts = {EPOCHS: 0, TENSORS: 0, TOKEN: 0}
        self._plot: int | None = None
        self._shown: tuple[object, ...] = ()  # what the tables of two checkpoints were made of

    def make_panes(self) -> Iterator[Widget]:
        yield EpochsPane(id="epochs")
        yield LineTable(compare_config.columns(80, 1), id="compare-config")
        yield LineTable(compare_tensors.columns(80), id="compare-tensors")
        yield LineTable(compare_tokens.columns(80, False), id="compare-tokens")

    @property
    def control(self) -> CompareControl:
        return self.controller.compare_runs

    def tables_of_another(self) -> Iterable[LineTable]:
        """Nothing here is of the sample or the checkpoint alone: what is replaced ends its filter itself."""
        return []

    def told(self, what: str) -> None:
        if not self.display and what in ("sample", "wiring", "ready"):
            self.control.drop_outdated()  # nobody looks: what runs would run for nothing
        super().told(what)

    def changed(self, what: str) -> None:
        if what in _QUIET:
            return
        if what not in ("message", "score", "pane", "sort", "size"):
            self.control.catch_up()
        # a message may say that something was stopped, which is said in place of the rows
        self._show_epochs()
        self._show_pair(what in ("all", "sort", "size"))
        self._show_detail()

    # ------------------------------------------------------------------ the tables

    def _width(self, first: bool) -> int:
        """Of a pane, before it has been laid out."""
        width = self.size.width
        if width < _WIDE:
            return width
        return _FIRST if first else width - _FIRST

    def _epoch_table(self) -> LineTable:
        return self.query_one("#epochs-table", LineTable)

    def _show_epochs(self) -> None:
        state, table, width = self.state, self._epoch_table(), self._width(True)
        lines = state.compare.lines
        _set_columns(table, compare_epochs.columns(width))
        listing = "listing the checkpoints" if self.control.runs(RUNS) else "not listed: r lists and runs them"
        table.empty = listing if state.samples is not None or state.problem else "looking for samples"
        order = compare_epochs.order(lines, self._sort_of(EPOCHS))
        drawn = [compare_epochs.cells(state, i, width) for i in order]
        table.set_rows(Rows(order, lambda i: drawn[i], lambda i: order[i]))
        if self._plot is not None:
            self._show_plot()

    def _show_pair(self, anew: bool) -> None:
        mine, width = self.state.compare, self._width(False)
        config, tensors, tokens = (self.query_one(f"#compare-{n}", LineTable) for n in ("config", "tensors", "tokens"))
        config.empty = tensors.empty = self._why_no_pair()
        tokens.empty = self._why_no_tokens()
        shown = (mine.comparison, mine.paired)
        found = mine.comparison
        if anew or shown[:1] != self._shown[:1]:
            faces = len(found.faces) if found is not None else 1
            fields = compare_config.lines_of(found) if found is not None else []
            lines = compare_tensors.lines_of(found, self._sort_of(TENSORS)) if found is not None else []
            _set_columns(config, compare_config.columns(width, faces))
            _set_columns(tensors, compare_tensors.columns(width))
            self._put(
                config, Rows(fields, lambda i: compare_config.cells(fields[i], faces), lambda i: (i, fields[i].field))
            )
            self._put(tensors, Rows(lines, lambda i: compare_tensors.cells(lines[i], width), lambda i: lines[i].name))
        if anew or shown[1:] != self._shown[1:]:
            piece, rows = self.controller.session.piece, self._token_rows()
            many = mine.paired is not None and len(mine.paired.samples) > 1
            _set_columns(tokens, compare_tokens.columns(width, many))
            keys = [(row.path, row.row) for row in rows]
            self._put(tokens, Rows(rows, lambda i: compare_tokens.cells(rows[i], piece), lambda i: keys[i]))
        if not anew and shown == self._shown:
            for table in (config, tensors, tokens):
                table.rows_changed()  # what stands in place of the rows may be another text
        self._shown = shown

    def _put(self, table: LineTable, rows: RowSource) -> None:
        if len(rows) == 0:
            table.set_filter(None)
        table.set_rows(rows if len(rows) else NoRows())

    def _token_rows(self) -> list[DifferingRow]:
        paired = self.state.compare.paired
        return compare_tokens.rows_of(paired, self._sort_of(TOKEN)) if paired is not None else []

    def _why_no_pair(self) -> str:
        """What stands in the place of configs and tensors."""
        state, mine = self.state, self.state.compare
        if state.checkpoint is None:
            return state.problem or "no checkpoint opened"
        if mine.theirs is None:
            return how_to_mark(state)
        if self.control.runs(PAIR):
            done, planned, name = mine.read
            return f"comparing {done} of {planned} tensors: {name}" if planned else "comparing …"
        if mine.comparison is not None:
            return "nothing to compare"
        return mine.pair_problem or f"not compared: r compares {sides(state)}"

    def _why_no_tokens(self) -> str:
        """What stands in the place of tokens."""
        state, mine = self.state, self.state.compare
        if state.checkpoint is None or mine.theirs is None:
            return self._why_no_pair()
        if mine.paired is not None:
            return "no row tells the two apart at step 0"
        if self.control.runs(TOKENS):
            return f"running {mine.ran} samples" if mine.ran else "running both …"
        why = mine.paired_problem or (state.problem if state.sample is None else "")
        return why or "not run: r runs both on this sample, a on all listed"

    def _sort_of(self, pane: int) -> str:
        sorts = {EPOCHS: compare_epochs.SORTS, TENSORS: compare_tensors.SORTS, TOKEN: compare_tokens.SORTS}
        return sorts[pane][self._sorts[pane]]

    # ------------------------------------------------------------------ the detail

    def _show_detail(self) -> None:
        most = _TALL if self.size.height >= _ROOMY else _LINES
        if self._plot is not None and self.current == EPOCHS and most == _LINES:
            most = _BESIDE_PLOT  # the plot takes its room of the detail, not of the checkpoints
        self.detail.set_class(most == _TALL, "tall")
        self.detail.set_class(most == _BESIDE_PLOT, "few")
        self.detail.say(self._detail(max(self.size.width, 20), most))

    def _detail(self, width: int, most: int) -> Lines:
        state, mine, found = self.state, self.state.compare, self.state.compare.comparison
        if self.current == EPOCHS:
            key = self._epoch_table().key
            row, facts = (key if isinstance(key, int) else None), {_BESIDE_PLOT: 0, _LINES: 2, _TALL: 6}[most]
            said = compare_epochs.said(state, row, self.control.runs(RUNS), facts)
            *first, last = [one for one in said if one[0]] or [("", "")]
            below = wrapped([last], width, 2)  # on what they were run stands whatever has to give way
            return wrapped(first, width, most - len(below)) + below
        table = self.table()
        row = table.row if table is not None else None
        said_: Said = []
        if self.current == TOKEN:
            rows = self._token_rows()
            one = rows[row] if row is not None and row < len(rows) else None
            if mine.paired is not None:
                said_ = compare_tokens.said(state, mine.paired, one, self.controller.session.piece)
        elif found is not None and self.current == CONFIG:
            fields = compare_config.lines_of(found)
            said_ = [*compare_config.said(fields[row] if row is not None and row < len(fields) else None)]
            said_ = [*said_, (f"verdict: {found.verdict.sentence}", "mark")]
        elif found is not None:
            lines = compare_tensors.lines_of(found, self._sort_of(TENSORS))
            said_ = compare_tensors.said(found, lines[row] if row is not None and row < len(lines) else None)
        return wrapped(said_ or [(sides(state), "dim")], width, most)

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        if self.display:
            self._show_detail()

    # ------------------------------------------------------------------ keys

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        lines = self.state.compare.lines
        if event.table is self._epoch_table() and isinstance(event.key, int) and event.key < len(lines):
            self.controller.choose_checkpoint(lines[event.key].epoch.found)
        elif self.current == TOKEN and isinstance(event.key, tuple):
            self._step_at(*event.key)

    def _step_at(self, path: object, row: object) -> None:
        """The row in the Step view; in a sample that is not open, once it is."""
        rows = [one for one in self._token_rows() if (one.path, one.row) == (path, row)]
        if not rows:
            return
        paired, state = self.state.compare.paired, self.state
        self.inspector.show_row(rows[0].path, rows[0].row)
        if paired is not None and state.ordering != paired.ours.ordering:
            fed = ",".join(map(str, paired.ours.ordering))
            self.controller.say(f"compared under fc={fed}; here another ordering is current", "warn")

    def action_mark(self) -> None:
        key, lines = self._epoch_table().key, self.state.compare.lines
        if self.current != EPOCHS:
            self.controller.say("space marks a checkpoint in epochs", "warn")
        elif isinstance(key, int) and key < len(lines):
            self.control.mark(lines[key].epoch.found)

    def action_another(self) -> None:
        self.inspector.ask("compare with", "a checkpoint, or a folder of them", self.control.another)

    def action_all_samples(self) -> None:
        if self.current == TOKEN:
            self.control.tokens(True)
        else:
            self.control.run(True)

    def action_again(self) -> None:
        begin = {EPOCHS: partial(self.control.run, False), TOKEN: partial(self.control.tokens, False)}
        begin.get(self.current, self.control.compare)()

    def action_plot(self) -> None:
        """Accept length, accuracy, no plot."""
        following = 0 if self._plot is None else self._plot + 1
        self._plot = following if following < len(compare_epochs.PLOTS) else None
        self.query_one(PlotView).set_class(self._plot is not None, "shown")
        if self._plot is not None:
            self.show_pane(EPOCHS)
            self._show_plot()
        self._show_detail()

    def action_sort(self) -> None:
        if self.current not in self._sorts:
            return self.controller.say("what differs stands first")
        count = 3 if self.current == EPOCHS else 2
        self._sorts[self.current] = (self._sorts[self.current] + 1) % count
        self.changed("sort")
        self.controller.say(f"sorted {self._sort_of(self.current)}")

    def back(self) -> bool:
        if self._plot is not None and self.current == EPOCHS:
            self._plot = None
            self.query_one(PlotView).remove_class("shown")
            self._show_detail()
            return True
        return super().back()

    def on_resize(self) -> None:
        if self.display:
            self.changed("size")

    def _show_plot(self) -> None:
        what = compare_epochs.PLOTS[self._plot or 0]
        series, across, limits = compare_epochs.series(self.state.compare.lines, what)
        look: Any = {"ascii": self.inspector.ascii, "colorless": self.inspector.colorless}
        self.query_one(PlotView).show(lambda w, h: draw(series, w, h, what, across, ylim=limits, **look))


class EpochsPane(Vertical):
    """The table of checkpoints, and below it the plot that is asked for."""

    def compose(self) -> ComposeResult:
        yield LineTable(compare_epochs.columns(80), id="epochs-table")
        yield PlotView(id="compare-plot")


def _set_columns(table: LineTable, wanted: list[Column]) -> None:
    if wanted != table.columns:
        table.set_columns(wanted)
