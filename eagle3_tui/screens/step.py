"""View 3, token by token: truth and prediction of every row, the chain of drafts from the cursor, other orderings.

Row t predicts token t + 2 and is shown under that token's number, as `step --at` takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.timer import Timer

from drafter.sample.sample import Sample
from eagle3_tui.screens.step_text import (
    COUNTED,
    flat,
    others_flat,
    others_tall,
    tall,
    verdict,
)
from eagle3_tui.screens.view import Detail, View
from eagle3_tui.widgets.line_table import Cells, Column, LineTable, NoRows, RowSource

if TYPE_CHECKING:
    from drafter.results import StepResult

_PATIENCE = 0.15  # seconds after which an unanswered row says that it is being drafted
_NARROW = 60  # columns below which the probability and the rank of the truth give way


class TokenRows(RowSource):
    """One row a predicted token of `sample`; what is not computed yet shows its truth only."""

    def __init__(self, view: StepView, sample: Sample) -> None:
        self._view, self._sample = view, sample
        self._texts: list[str] = []

    def __len__(self) -> int:
        return self._sample.length - 1

    def key(self, i: int) -> object:
        return i

    def texts(self) -> list[str]:
        """What a filter looks at: the number and the truth, which do not depend on what has been computed."""
        if not self._texts:
            self._texts = [f"{i + 2} {self._truth(i)}".lower() for i in range(len(self))]
        return self._texts

    def _truth(self, i: int) -> str:
        piece = self._view.controller.session.piece
        return piece(int(self._sample.ids[i + 2])) if i + 2 < self._sample.length else "(end)"

    def cells(self, i: int) -> Cells:
        state, piece = self._view.state, self._view.controller.session.piece
        ordering, truth = state.ordering, self._truth(i)
        counts = i < len(state.counted) and state.counted[i]
        head = [(str(i + 2), "" if counts else "dim"), (COUNTED if counts else "", "")]
        readout = state.rows.get(ordering, {}).get(i) if ordering is not None else None
        if readout is None:
            blank = [] if self._view.narrow else [("", ""), ("", "")]
            return [*head, ("", ""), *blank, (truth, ""), ("…", "dim")]
        glyph, look = verdict(readout)
        best = readout.predictions[0]
        prob = "-" if readout.truth_prob is None else f"{readout.truth_prob:.2f}"
        rank = "-" if readout.truth_rank is None else str(readout.truth_rank)
        place = [] if self._view.narrow else [(prob, ""), (rank, "")]
        return [*head, (glyph, look), *place, (truth, ""), (f"{best.prob:.2f} {piece(best.id)}", look)]


class StepView(View):
    HINTS = "n/N miss  o/O ordering  b best  i token  e export  ? help  q quit"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "n",
            "miss(1)",
            "Next miss",
            id="step.next_miss",
            tooltip="the next counted row predicted wrongly",
        ),
        Binding("N", "miss(-1)", "Previous miss", id="step.previous_miss", tooltip="the one before"),
        Binding("i", "ask_token", "Go to token", id="step.token", tooltip="type a token number, enter goes there"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._patience: Timer | None = None  # runs while the row under the cursor is not answered
        self.narrow = False

    def compose(self) -> ComposeResult:
        with Container(id="step-body"):
            yield LineTable(self._columns(80), id="tokens")
            with Container(id="step-side"):
                yield Detail(id="step-detail")
                yield Detail(id="step-others")

    @staticmethod
    def _columns(width: int) -> Sequence[Column]:
        place = [Column("p(true)", 7, "right"), Column("rank", 6, "right")]
        narrow = width < _NARROW
        return [
            Column("token", 6, "right"),
            Column("", 1),
            Column("", 1),
            *([] if narrow else place),
            Column("true", max(1, min(20, (width - 11) // 2)) if narrow else 20),
            Column("predicted, with its probability"),
        ]

    def table(self) -> LineTable:
        return self.query_one("#tokens", LineTable)

    def changed(self, what: str) -> None:
        table, sample = self.table(), self.state.sample
        if what in ("all", "sample", "checkpoint", "problem"):
            table.empty = self.state.problem or "no sample opened: choose one in view 2"
            table.set_rows(NoRows() if sample is None else TokenRows(self, sample))
            table.move_to_row(self.state.row)
            self.call_after_refresh(self._look)
        elif what in ("rows", "ordering", "wiring"):
            table.rows_changed()
        if what in ("ordering", "ready", "wiring"):
            self._look()
        if what not in ("busy", "message", "probes"):
            self._show_detail()

    def _look(self) -> None:
        """Ask for what is on screen."""
        table = self.table()
        row = table.row
        if row is not None:
            lines = range(max(table.top - 2, 0), min(table.top + table.page + 2, table.line_count))
            shown = [shown for line in lines if (shown := table.row_at(line)) is not None]
            self.controller.look_at(row, shown)

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        if self.display and event.index >= 0:
            self.state.row = event.index
            self._look()
            self._show_detail()

    def on_resize(self) -> None:
        width = self.size.width
        if width and self.table().columns != self._columns(width):
            self.narrow = width < _NARROW
            self.table().set_columns(self._columns(width))
        self.call_after_refresh(self._show_detail)

    def action_miss(self, step: int) -> None:
        row = self.table().row
        if row is not None:
            self.controller.find_miss(row, step, self._go_to_miss)

    def _go_to_miss(self, row: int | None) -> None:
        if row is None:
            self.controller.say("no further miss among the rows that count")
        else:
            self.go_to(row)

    def go_to(self, row: int) -> None:
        """Put the cursor on a row, whether the filter shows it or not."""
        if not self.table().move_to_row(row):
            self.end_filter()
            self.table().move_to_row(row)
            self.controller.say(f"token {row + 2} was hidden by the filter, which is cleared")

    def action_ask_token(self) -> None:
        if self.state.sample is not None:
            self.inspector.ask("token", f"2..{self.state.sample.length}", self._go_to_token)

    def _go_to_token(self, text: str) -> None:
        last = self.state.sample.length if self.state.sample is not None else 0
        if text.isdecimal() and text.isascii() and len(text) < 10 and 2 <= int(text) <= last:
            self.go_to(int(text) - 2)
        else:
            self.controller.say(f"token {text!r}: expected 2..{last}", "warn")

    # ------------------------------------------------------------------ the detail

    def _show_detail(self) -> None:
        detail = self.query_one("#step-detail", Detail)
        step, state = self.state.step, self.state
        if state.problem and not state.ready:
            self._answered()
            self.query_one("#step-others", Detail).say([])
            return detail.say(self.problem_lines())
        if step is None or step.readout.row != self.table().row or step.ordering != state.ordering:
            # most answers come at once: to say so for 10 ms would cost a slow line more than the answer
            self._patience = self._patience or self.set_timer(_PATIENCE, self._say_waiting)
            return
        self._answered()
        detail.say((tall if self.screen.has_class("-wide") else flat)(step, self.controller.session.piece))
        self._show_others(step)
        self.call_after_refresh(self._show_others, step)  # what is above may have taken a line more

    def _show_others(self, step: StepResult) -> None:
        """Below the chain, in a widget of their own: what comes later must not send again what came first."""
        state, rest, piece = self.state, self.query_one("#step-others", Detail), self.controller.session.piece
        others, truth = state.others.get(step.readout.row), step.readout.truth
        if step is not state.step:
            return
        if self.screen.has_class("-wide"):
            rest.say(others_tall(others, truth, piece, state.label, state.ordering, max(rest.size.height, 1)))
        else:
            rest.say(others_flat(others, truth, piece))

    def _answered(self) -> None:
        if self._patience is not None:
            self._patience.stop()
            self._patience = None

    def _say_waiting(self) -> None:
        self._patience = None
        state = self.state
        asked = self.controller.engine.expects("cursor")
        waiting = "" if state.sample is None or (state.ready and not asked) else "drafting …"
        waiting = waiting if state.ready or not waiting else "the drafter is not loaded yet"
        self.query_one("#step-detail", Detail).say([[(waiting, "dim")]])
        self.query_one("#step-others", Detail).say([])

    def copy_text(self) -> str:
        return "\n".join("".join(text for text, _ in line) for detail in self.query(Detail) for line in detail.lines)
