"""View 6: what a server would accept under the current ordering, without a server. Chains by draft step and accept
length, the text decoded round by round, the tokens at which chains break, and the tree of drafts from one row.

Nothing is computed until it is looked at. All of it is for the current ordering, wiring, mask and sample.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from eagle3_tui.controls.accept import CHAINS, LENGTHS, ROUNDS, TREE, Chains
from eagle3_tui.screens import accept_chains, accept_rounds, accept_tree
from eagle3_tui.screens.accept_chains import Line, wrapped
from eagle3_tui.screens.orderings import limits
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.sample_text import readable
from eagle3_tui.screens.view import Rows
from eagle3_tui.widgets.line_table import Column, LineTable, NoRows
from eagle3_tui.widgets.plot import PlotView, Series, draw

LEGEND = [
    ("=", "accepted: the sample's own token, after none that is not"),
    ("x", "the first wrong draft of a round; in breaks: the chains break here"),
    ("-", "a draft after the first wrong one, or after the end of the text to decode"),
    ("+", "the bonus token, which the target adds to what it accepts"),
    ("o", "outside of the draft vocabulary: it cannot be drafted"),
    (".", "tree: a candidate that is not kept"),
    ("!", "tree: right, but not kept"),
    ("text fed", "right at the step, each step fed the sample's tokens (marginal)"),
    ("own fed", "right at the step, each step fed the drafter's own tokens (marginal)"),
    ("joint", "right at all steps up to this one"),
    ("cond.", "right at the step, of those right at all before it"),
]
DEPTH, ROUND_BY_ROUND, BREAKS, TREES = range(4)
_PARTS = (CHAINS, ROUNDS, CHAINS, TREE)  # what each pane shows
_FIRST = 58  # columns of the first pane and a gap on a wide screen, as app.tcss has it
_HINTS = (
    "tab pane  +/- depth  p plot  a all samples  r this sample  o ordering  ? help",
    "enter in Step  n/N none accepted  R refresh  +/- depth  tab pane  ? help",
    "tab pane  +/- depth  a all samples  r this sample  o ordering  / filter  ? help",
    "[/] row  T rule  x sizes  v kept  L lengths  enter in Step  tab pane  ? help",
)
_IGNORED = ("message", "rows", "step", "others", "tried", "score", "survey", "statistics", "probes", "comparison")


class DepthPane(Container):
    """The steps and lengths, and the plot that `p` shows below them."""

    def compose(self) -> ComposeResult:
        yield LineTable(accept_chains.columns(80), id="accept-steps")
        yield PlotView(id="accept-plot")


class AcceptView(PanesView):
    PANES = ("depth", "rounds", "breaks", "tree")
    HINTS = _HINTS[DEPTH]

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus", "depth(1)", "Deeper", id="accept.deeper", tooltip="chains of one draft more"),
        Binding("minus", "depth(-1)", "Shorter", id="accept.shorter", tooltip="chains of one draft less"),
        Binding("p", "plot", "Plot", id="accept.plot", tooltip="accuracy per draft step as curves"),
        Binding("a", "pool", "All samples", id="accept.all", tooltip="chains over all listed samples, pooled"),
        Binding("r", "again", "This sample", id="accept.again", tooltip="compute the pane again, of this sample"),
        Binding(
            "n", "none(1)", "None accepted", id="accept.next_none", tooltip="the next round that accepted no draft"
        ),
        Binding("N", "none(-1)", "Previous", id="accept.previous_none", tooltip="the one before"),
        Binding("R", "refresh_rows", "Refresh", id="accept.refresh", tooltip="what rows of accepted drafts hold next"),
        Binding("right_square_bracket", "row(1)", "Next row", id="accept.next_row", tooltip="the tree one token on"),
        Binding("left_square_bracket", "row(-1)", "Row before", id="accept.row_before", tooltip="one token back"),
        Binding("T", "rule", "Tree rule", id="accept.rule", tooltip="whose search: sglang, its cache slots, safeailab"),
        Binding("x", "sizes", "Tree sizes", id="accept.sizes", tooltip="steps, topk and tokens of the tree"),
        Binding("v", "kept", "Kept only", id="accept.kept", tooltip="all candidates, or only those that are kept"),
        Binding("L", "lengths", "Tree lengths", id="accept.lengths", tooltip="accept length of the trees of all rows"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._only_kept = False

    def make_panes(self) -> Iterator[Widget]:
        yield DepthPane(id="accept-depth")
        yield LineTable(accept_rounds.columns(80), id="accept-rounds")
        yield LineTable(accept_chains.break_columns(80), id="accept-breaks")
        yield LineTable(accept_tree.columns(None), id="accept-tree")

    def tables_of_another(self) -> Iterable[LineTable]:
        return self.query(LineTable)

    def show_pane(self, number: int) -> None:
        self.HINTS = _HINTS[number]
        super().show_pane(number)
        self._plotted(self.query_one(PlotView).has_class("shown"))

    @property
    def _wide(self) -> bool:
        return bool(self.screen.has_class("-wide"))

    def _on_screen(self) -> list[int]:
        """The panes that can be seen."""
        if not self._wide:
            return [self.current]
        return [DEPTH, self.current or ROUND_BY_ROUND]

    def _width(self, number: int) -> int:
        """The columns of a pane, also of one that is not laid out yet."""
        if not self._wide:
            return self.size.width
        return _FIRST - 1 if number == DEPTH else self.size.width - _FIRST

    # ------------------------------------------------------------------ showing

    def changed(self, what: str) -> None:
        if what in _IGNORED:
            return
        if what != "busy":
            self._ask()
        for number in self._on_screen():
            self._show(number, what)
        if what != "busy":
            self._show_detail()

    def _ask(self) -> None:
        """What can be seen first; what was asked for by a key goes on behind it."""
        accept = self.state.accept
        wanted = [_PARTS[number] for number in self._on_screen()]
        wanted += [CHAINS] * accept.pooled + [LENGTHS] * accept.wants_lengths
        self.controller.accept.ask(list(dict.fromkeys(wanted)))

    def _show(self, number: int, what: str) -> None:
        table = self._table_in(self._panes[number])
        assert table is not None
        table.empty = self._why_empty(number)
        if what == "busy":
            return table.rows_changed()
        width = self._width(number)
        columns, rows = (self._steps, self._rounds, self._breaks, self._tree)[number](width)
        if columns != table.columns:
            table.set_columns(columns)
        table.set_rows(rows)

    def _why_empty(self, number: int) -> str:
        """What stands in place of the rows."""
        state, part = self.state, _PARTS[number]
        if state.problem or state.sample is None or not state.ready:
            where = (
                "the drafter is not loaded yet" if state.sample is not None else "no sample opened: view 2 lists them"
            )
            return state.problem or where
        if part in state.accept.problems:
            return f"refused: {state.accept.problems[part]}"
        if part in state.accept.stopped:
            return "stopped: r computes it"
        if self.controller.engine.expects(part):
            return state.accept.progress.get(part, "drafting …")
        return ("", "no supervised text to decode", "no chain breaks", "")[number]

    def _steps(self, width: int) -> tuple[list[Column], Any]:
        chains, ascii = self.state.accept.chains, self.inspector.ascii
        columns = accept_chains.columns(width)
        if chains is None:
            return columns, NoRows()
        data = chains.data
        numbers = range(data["depth"] + 1)
        if self.query_one(PlotView).has_class("shown"):
            self._show_plot(chains)
        return columns, Rows(numbers, lambda i: accept_chains.step_cells(data, i, width, ascii), lambda i: i)

    def _rounds(self, width: int) -> tuple[list[Column], Any]:
        rounds = self._these_rounds()
        rows = NoRows() if rounds is None else accept_rounds.RoundRows(rounds, self.controller.session.piece)
        return accept_rounds.columns(width), rows

    def _these_rounds(self) -> Any:
        return self.state.accept.rounds.get(self.controller.accept.refresh)

    def _breaks(self, width: int) -> tuple[list[Column], Any]:
        chains, columns = self.state.accept.chains, accept_chains.break_columns(width)
        if chains is None:
            return columns, NoRows()
        found = accept_chains.break_rows(chains.data)
        rows = Rows(found, lambda i: accept_chains.break_cells(found[i], width), lambda i: found[i]["id"])
        return columns, rows

    def _tree(self, width: int) -> tuple[list[Column], Any]:
        grown, piece, ascii = self._this_tree(), self.controller.session.piece, self.inspector.ascii
        if grown is None:
            return accept_tree.columns(None), NoRows()
        lines = grown.kept if self._only_kept else grown.lines
        rows = Rows(lines, lambda i: accept_tree.cells(grown.tree, lines[i], piece, ascii), lambda i: i)
        return accept_tree.columns(grown.tree), rows

    def _this_tree(self) -> Any:
        """The tree of the current row, not the one of the row before."""
        grown = self.state.accept.tree
        return grown if grown is not None and grown.tree.row == self.state.row else None

    def _show_plot(self, chains: Chains) -> None:
        steps = chains.data["steps"]
        names = ("text fed", "own fed", "joint", "conditional")
        lines = [[_percent(step[way]) for step in steps] for way in accept_chains.WAYS]
        series = [Series(line, label=label) for line, label in zip(lines, names, strict=True)]
        low, high = limits([value for line in lines for value in line if value is not None])
        look: dict[str, Any] = {"ascii": self.inspector.ascii, "colorless": self.inspector.colorless}
        across = f"draft step, {low} to {high} %"
        self.query_one(PlotView).show(lambda w, h: draw(series, w, h, "%", across, ylim=(low, high), **look))

    # ------------------------------------------------------------------ the detail

    def _show_detail(self) -> None:
        state = self.state
        part, width = _PARTS[self.current], self.size.width
        if state.problem and not state.ready:
            return self.detail.say(self.problem_lines())
        if part in state.accept.problems:
            return self.detail.say(wrapped(state.accept.problems[part], width, 4, "warn"))
        self.detail.say((self._step_detail, self._round_detail, self._break_detail, self._tree_detail)[self.current]())

    def _row_in(self, number: int) -> int | None:
        table = self._table_in(self._panes[number])
        return table.row if table is not None else None

    def _step_detail(self) -> list[Line]:
        chains = self.state.accept.chains
        return [] if chains is None else accept_chains.step_lines(chains, self._row_in(DEPTH))

    def _round_detail(self) -> list[Line]:
        rounds, session = self._these_rounds(), self.controller.session
        if rounds is None:
            return []

        def running(ids: list[int]) -> str:
            return readable(session.tokens, ids).replace("\n", "")

        return accept_rounds.lines(rounds, self._row_in(ROUND_BY_ROUND), session.piece, running, self.size.width)

    def _break_detail(self) -> list[Line]:
        chains, row = self.state.accept.chains, self._row_in(BREAKS)
        if chains is None:
            return []
        found = accept_chains.break_rows(chains.data)
        one = found[row] if row is not None and row < len(found) else None
        return accept_chains.break_lines(chains, one, self.size.width)

    def _tree_detail(self) -> list[Line]:
        accept, grown = self.state.accept, self._this_tree()
        lines = [] if grown is None else accept_tree.detail(grown, self.controller.session.piece)
        if LENGTHS in accept.problems:
            return [*lines, *wrapped(accept.problems[LENGTHS], self.size.width, 2, "warn")]
        if accept.lengths is not None:
            return [*lines, *accept_tree.lengths_said(accept.lengths, self.controller.session.options.mask)]
        waits = "trees of all rows …" if self.controller.engine.expects(LENGTHS) else ""
        return [*lines, [(waits or "L: accept lengths of the trees of all rows, beside the chain's", "dim")]]

    # ------------------------------------------------------------------ keys

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        if self.display:
            self._show_detail()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        if event.table.id == "accept-tree":
            self._to_step(self.state.row)
        elif event.table.id == "accept-rounds" and isinstance(event.key, int):
            if event.key == 0:
                return self.controller.say("the first token has no row: nothing is drafted from it", "warn")
            self._to_step(event.key - 1)  # the row that drafts from the last known token

    def _to_step(self, row: int) -> None:
        if self.state.sample is not None:
            self.inspector.show_row(self.state.sample.path, row)

    def action_depth(self, step: int) -> None:
        self.controller.accept.change_depth(step)

    def action_plot(self) -> None:
        plot, chains = self.query_one(PlotView), self.state.accept.chains
        shown = self.current != DEPTH or not plot.has_class("shown")
        self.show_pane(DEPTH)
        self._plotted(shown)
        if plot.has_class("shown") and chains is not None:
            self._show_plot(chains)

    def _plotted(self, shown: bool) -> None:
        """The plot takes the place of the detail where there is no room for both."""
        self.query_one(PlotView).set_class(shown, "shown")
        self.set_class(shown and self.current == DEPTH, "plotted")

    def action_pool(self) -> None:
        self.controller.accept.pool()

    def action_again(self) -> None:
        self.controller.accept.again(_PARTS[self.current])

    def action_none(self, step: int) -> None:
        self.show_pane(ROUND_BY_ROUND)
        rounds, table = self._these_rounds(), self.query_one("#accept-rounds", LineTable)
        row = table.row
        if rounds is None or row is None:
            return
        none = rounds.none
        place = bisect_right(none, row) if step > 0 else bisect_left(none, row) - 1
        if not 0 <= place < len(none):
            return self.controller.say("no further round that accepted no draft")
        if not table.move_to_row(none[place]):
            self.end_filter()
            table.move_to_row(none[place])
            self.controller.say("the round was hidden by the filter, which is cleared")

    def action_refresh_rows(self) -> None:
        self.show_pane(ROUND_BY_ROUND)
        self.controller.accept.change_refresh()

    def action_row(self, step: int) -> None:
        self.show_pane(TREES)
        self.controller.accept.move(step)

    def action_rule(self) -> None:
        self.show_pane(TREES)
        self.controller.accept.cycle_rule()

    def action_sizes(self) -> None:
        self.show_pane(TREES)
        self.inspector.ask("tree", "steps topk tokens, e.g. 5 4 16", self.controller.accept.set_sizes)

    def action_kept(self) -> None:
        self.show_pane(TREES)
        self._only_kept = not self._only_kept
        self.changed("kept")

    def action_lengths(self) -> None:
        self.show_pane(TREES)
        self.controller.accept.measure()

    def back(self) -> bool:
        plot = self.query_one(PlotView)
        if self.current == DEPTH and plot.has_class("shown"):
            self._plotted(False)
            return True
        return super().back()

    def on_resize(self) -> None:
        if self.display:
            self.call_after_refresh(self.changed, "size")


def _percent(count: dict[str, int]) -> float | None:
    return 100 * count["hits"] / count["total"] if count["total"] else None
