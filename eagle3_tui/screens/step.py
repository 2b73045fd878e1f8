"""View 3, token by token: truth and prediction of every row, the chain of drafts from the cursor, other orderings.

Row t predicts token t + 2 and is shown under that token's number, as `step --at` takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from drafter.wiring import Ordering, name
from eagle3_tui.screens.view import Detail, View
from eagle3_tui.widgets.line_table import Cells, Column, LineTable, RowSource

if TYPE_CHECKING:
    from drafter.drafting.readout import RowReadout
    from drafter.results import StepResult

HIT, MISS, OUTSIDE, NOTHING = "=", "x", "o", "-"
COUNTED = "|"
LEGEND = [
    (HIT, "the prediction is the sample's token"),
    (MISS, "the prediction is another token"),
    (OUTSIDE, "the sample's token is outside of the draft vocabulary: it cannot be predicted"),
    (NOTHING, "no token to compare with: past the end of the sample"),
    (COUNTED, "a row that counts in the scores, by the mask mode"),
]
Line = list[tuple[str, str]]


def verdict(readout: RowReadout) -> tuple[str, str]:
    """Glyph and style name of a row."""
    if readout.truth is None:
        return NOTHING, "dim"
    if readout.hit:
        return HIT, "good"
    return (MISS, "bad") if readout.truth_in_vocab else (OUTSIDE, "outside")


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
            yield Detail(id="step-detail")

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
            waiting = "" if state.sample is None else "drafting …" if state.ready else "the drafter is not loaded yet"
            return detail.say([[(waiting, "dim")]])
        others = state.others.get(step.readout.row)
        if self.screen.has_class("-wide"):
            detail.say(self._tall(step, others, detail.size.height))
        else:
            detail.say(self._flat(step, others, detail.size.width))

    def _flat(self, step: StepResult, others: dict[Ordering, int] | None, width: int) -> list[Line]:
        """Five lines under the table: what was fed, the top predictions, the chain, the other orderings."""
        piece = self.controller.session.piece
        top: Line = [("top   ", "dim")]
        for p in step.readout.predictions:
            top.append((f"{p.prob:.2f} {piece(p.id)}  ", "good" if p.id == step.readout.truth else ""))
        chain: Line = [("chain ", "dim")]
        for link in step.chain:
            chain.append((f"{HIT if link.hit else MISS}{piece(link.id)} ", "good" if link.hit else "bad"))
            if not link.hit:
                chain.append((f"(true {piece(link.truth)}) " if link.truth is not None else "(past the end) ", "dim"))
                break
        return [[*self._head(step)], top, chain, [(self._fate(step), "")], *self._others_flat(step, others, width)]

    def _head(self, step: StepResult) -> Line:
        piece, readout = self.controller.session.piece, step.readout
        truth = "past the end" if readout.truth is None else piece(readout.truth)
        glyph, look = verdict(readout)
        place = "outside of the draft vocabulary" if readout.truth is not None and not readout.truth_in_vocab else ""
        rank = f"rank {readout.truth_rank}" if readout.truth_rank is not None else place
        return [
            (f"token {step.at}", "bold"),
            (f" fed {piece(readout.fed)}  true {truth} ", ""),
            (f"{glyph} {rank}", look),
        ]

    def _fate(self, step: StepResult) -> str:
        """What a server would make of the chain."""
        right, depth = step.accept_length - 1, len(step.chain)
        if right == depth:
            return f"      all {depth} drafts accepted: accept length {step.accept_length} (bonus token counted)"
        if step.chain[right].truth is None:
            return f"      the sample ends at draft {right + 1} of {depth}: {right} accepted"
        return (
            f"      rejected at draft {right + 1} of {depth}: accept length {step.accept_length} (bonus token counted)"
        )

    def _others_flat(self, step: StepResult, others: dict[Ordering, int] | None, width: int) -> list[Line]:
        if others is None:
            return [[("other orderings …", "dim")]]
        right = [o for o, token in others.items() if token == step.readout.truth]
        wrong = [o for o in others if o not in right]
        piece = self.controller.session.piece
        first: Line = [(f"{HIT} {len(right)} of {len(others)} orderings right  ", "good" if right else "dim")]
        first.append((" ".join(name(o) for o in right), ""))
        second: Line = [(f"{MISS} ", "bad" if wrong else "dim")]
        by_token: dict[int, list[Ordering]] = {}
        for ordering in wrong:
            by_token.setdefault(others[ordering], []).append(ordering)
        for token, orderings in sorted(by_token.items(), key=lambda item: -len(item[1])):
            second += [(f"{piece(token)} ", "bad"), (f"{' '.join(name(o) for o in orderings)}  ", "")]
        return [first, second]

    def _tall(self, step: StepResult, others: dict[Ordering, int] | None, height: int) -> list[Line]:
        """The pane at the right of a wide screen: one line each."""
        piece, readout = self.controller.session.piece, step.readout
        lines: list[Line] = [self._head(step), [], [("top predictions", "bold")]]
        for p in readout.predictions:
            hit = p.id == readout.truth
            lines.append(
                [(f" {p.rank} {HIT if hit else ' '} {p.prob:.3f} {p.logit:7.2f}  {piece(p.id)}", "good" if hit else "")]
            )
        lines += [[], [(f"chain of {len(step.chain)} drafts from here", "bold")]]
        rejected = False
        for k, link in enumerate(step.chain):
            look = "dim" if rejected else "good" if link.hit else "bad"
            line: Line = [(f" {k + 1} {HIT if link.hit else MISS} {link.prob:.3f}  {piece(link.id)}", look)]
            if not link.hit:
                line.append((f"  true {piece(link.truth) if link.truth is not None else '(past the end)'}", "dim"))
                line.append(("" if rejected else "  <- rejected", "bad"))
                rejected = True
            lines.append(line)
        lines += [[(self._fate(step).strip(), "")], [], [("other orderings at this row", "bold")]]
        return lines + self._others_tall(step, others, max(height - len(lines), 1))

    def _others_tall(self, step: StepResult, others: dict[Ordering, int] | None, room: int) -> list[Line]:
        if others is None:
            return [[("…", "dim")]]
        piece, state = self.controller.session.piece, self.state
        lines: list[Line] = []
        for ordering, token in others.items():
            hit = token == step.readout.truth
            mark = ">" if ordering == state.ordering else " "
            said = f"{mark}{HIT if hit else MISS} {name(ordering)} {state.label(ordering)}  {piece(token)}"
            lines.append([(said, "good" if hit else "bad")])
        if len(lines) > room:
            lines = [*lines[: room - 1], [(f"… {len(lines) - room + 1} more in view 4", "dim")]]
        return lines

    def copy_text(self) -> str:
        return "\n".join("".join(text for text, _ in line) for line in self.query_one("#step-detail", Detail).lines)
