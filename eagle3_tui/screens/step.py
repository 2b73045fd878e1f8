"""View 3, token by token: truth and prediction of every row, the chain of drafts from the cursor, other orderings.

Row t predicts token t + 2 and is shown under that token's number, as `step --at` takes it.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.timer import Timer

from eagle3_tui.screens.step_text import (
    COUNTED,
    flat,
    others_flat,
    others_tall,
    tall,
    verdict,
)
from eagle3_tui.screens.view import Detail, View
from eagle3_tui.widgets.line_table import Cells, Column, LineTable, RowSource

_PATIENCE = 0.15  # seconds after which an unanswered row says that it is being drafted


class TokenRows(RowSource):
    """One row a predicted token; what is not computed yet shows its truth only."""

    def __init__(self, view: StepView) -> None:
        self._view = view

    def __len__(self) -> int:
        sample = self._view.state.sample
        return sample.length - 1 if sample is not None else 0

    def key(self, i: int) -> object:
        return i

    def cells(self, i: int) -> Cells:
        state, piece = self._view.state, self._view.controller.session.piece
        sample, ordering = state.sample, state.ordering
        assert sample is not None
        truth = piece(int(sample.ids[i + 2])) if i + 2 < sample.length else "(end)"
        counts = i < len(state.counted) and state.counted[i]
        head = [(str(i + 2), "" if counts else "dim"), (COUNTED if counts else "", "")]
        readout = state.rows.get(ordering, {}).get(i) if ordering is not None else None
        if readout is None:
            return [*head, ("", ""), ("", ""), ("", ""), (truth, ""), ("…", "dim")]
        glyph, look = verdict(readout)
        best = readout.predictions[0]
        prob = "-" if readout.truth_prob is None else f"{readout.truth_prob:.2f}"
        rank = "-" if readout.truth_rank is None else str(readout.truth_rank)
        return [*head, (glyph, look), (prob, ""), (rank, ""), (truth, ""), (f"{best.prob:.2f} {piece(best.id)}", look)]


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

    def compose(self) -> ComposeResult:
        columns = [
            Column("token", 6, "right"),
            Column("", 1),
            Column("", 1),
            Column("p(true)", 7, "right"),
            Column("rank", 6, "right"),
            Column("true", 20),
            Column("predicted, with its probability"),
        ]
        with Container(id="step-body"):
            yield LineTable(columns, empty="no sample opened: choose one in view 2", id="tokens")
            with Container(id="step-side"):
                yield Detail(id="step-detail")
                yield Detail(id="step-others")

    def table(self) -> LineTable:
        return self.query_one("#tokens", LineTable)

    def changed(self, what: str) -> None:
        table = self.table()
        if what in ("all", "sample", "checkpoint"):
            table.set_rows(TokenRows(self))
            table.move_to_row(self.state.row)
            self.call_after_refresh(self._look)
        elif what in ("rows", "ordering"):
            table.rows_changed()
        if what in ("all", "ordering", "ready"):
            self._look()
        if what not in ("busy", "message", "probes"):
            self._show_detail()

    def _look(self) -> None:
        """Ask for what is on screen."""
        table = self.table()
        row = table.row
        if row is not None:
            last = table.line_count - 1
            first = max(table.top - 2, 0)
            self.controller.look_at(row, range(first, min(table.top + table.page + 2, last) + 1))

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        if self.display and event.index >= 0:
            self.state.row = event.index
            self._look()
            self._show_detail()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_detail)

    def action_miss(self, step: int) -> None:
        row = self.table().row
        if row is not None:
            self.controller.find_miss(row, step, self._go_to_miss)

    def _go_to_miss(self, row: int | None) -> None:
        if row is None:
            self.controller.say("no further miss among the rows that count")
        else:
            self.table().move_to_row(row)

    def action_ask_token(self) -> None:
        self.inspector.ask("token ", "a token number, 2 or more", self._go_to_token)

    def _go_to_token(self, text: str) -> None:
        if not (text.isdigit() and self.table().move_to_row(int(text) - 2)):
            self.controller.say(f"token {text!r}: expected 2..{self.table().line_count + 1}", "warn")

    # ------------------------------------------------------------------ the detail

    def _show_detail(self) -> None:
        detail = self.query_one("#step-detail", Detail)
        step, state = self.state.step, self.state
        if step is None or step.readout.row != self.table().row or step.ordering != state.ordering:
            # most answers come at once: to say so for 10 ms would cost a slow line more than the answer
            self._patience = self._patience or self.set_timer(_PATIENCE, self._say_waiting)
            return
        self._answered()
        piece, truth = self.controller.session.piece, step.readout.truth
        others, rest = state.others.get(step.readout.row), self.query_one("#step-others", Detail)
        # two widgets: what comes later must not send again what came first
        if self.screen.has_class("-wide"):
            detail.say(tall(step, piece))
            rest.say(others_tall(others, truth, piece, state.label, state.ordering, max(rest.size.height, 1)))
        else:
            detail.say(flat(step, piece))
            rest.say(others_flat(others, truth, piece))

    def _answered(self) -> None:
        if self._patience is not None:
            self._patience.stop()
            self._patience = None

    def _say_waiting(self) -> None:
        self._patience = None
        state = self.state
        waiting = "" if state.sample is None else "drafting …" if state.ready else "the drafter is not loaded yet"
        self.query_one("#step-detail", Detail).say([[(waiting, "dim")]])
        self.query_one("#step-others", Detail).say([])

    def copy_text(self) -> str:
        return "\n".join("".join(text for text, _ in line) for detail in self.query(Detail) for line in detail.lines)
