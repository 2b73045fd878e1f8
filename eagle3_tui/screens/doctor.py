"""View 9: what is wrong with the checkpoint, its samples and a server's flags, most severe first, with the cure; and
what could not be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from drafter.checks.finding import Finding, NotChecked
from eagle3_tui.screens import doctor_text as words
from eagle3_tui.screens.doctor_jump import go, jump
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.serving_text import Line
from eagle3_tui.screens.view import Rows
from eagle3_tui.widgets.line_table import LineTable
from eagle3_tui.widgets.styles import style

LEGEND = words.LEGEND
FINDINGS, NOT_CHECKED = range(2)
_LINES, _ROOMY = 10, 16  # of the detail, in a window of usual height and a tall one
_TALL = 32  # lines of the screen from which it is tall


class DoctorView(PanesView):
    PANES = ("findings", "not checked")
    HINTS = "enter see it  tab pane  f severities  a all  r again  F flags  V server  ? help"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "severities", "Severities", id="doctor.severities", tooltip="show all, all but ok, or what hurts"),
        Binding("a", "check_all", "All samples", id="doctor.all", tooltip="check with all listed samples, up to 64"),
        Binding("r", "again", "Again", id="doctor.again", tooltip="check once more: current sample, switches as set"),
        Binding("F", "flags", "Flags", id="doctor.flags", tooltip="a server's launch line, or @FILE, to check"),
        Binding("V", "server", "Server", id="doctor.server", tooltip="the server and version that serves"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._severities = next(iter(words.SHOWN))

    def compose(self) -> ComposeResult:
        for number, widget in enumerate(super().compose()):
            yield widget
            if number == 0:  # below the names of the panes, which come first
                yield Static("", markup=False, id="doctor-verdict")
                yield Static("", markup=False, id="doctor-counts")

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable(words.columns(80), id="doctor-findings")
        yield LineTable(words.skipped_columns(80), id="doctor-skipped")

    def _table(self, name: str) -> LineTable:
        return self.query_one(f"#doctor-{name}", LineTable)

    def tables_of_another(self) -> Iterable[LineTable]:
        return [self._table("findings"), self._table("skipped")]

    def changed(self, what: str) -> None:
        if what in ("all", "serving", "checkpoint"):
            self.controller.doctor.follow()
        if what in ("all", "checks", "severities", "columns", "checkpoint", "sample", "problem"):
            self._show_verdict()
            self._show_tables()
        if what not in ("busy", "rows", "step", "others"):
            self._show_detail()

    # ------------------------------------------------------------------ what is shown

    def _show_verdict(self) -> None:
        doctor = self.state.doctor
        said, look = words.verdict(doctor)
        counts = words.summary(doctor, self._severities)
        for where, text in (
            ("verdict", Text(said or self._why_empty(), style(look or "dim"))),
            ("counts", Text(counts, style("dim"))),
        ):
            widget = self.query_one(f"#doctor-{where}", Static)
            if widget.content != text:
                widget.update(text, layout=False)

    def _show_tables(self) -> None:
        doctor = self.state.doctor
        wanted = words.SHOWN[self._severities]
        found = [finding for finding in doctor.findings if finding.severity in wanted]
        findings, skipped = self._table("findings"), self._table("skipped")
        hidden = len(doctor.findings) - len(found)
        findings.empty = f"none of these, {hidden} others: f shows them" if hidden else self._why_empty()
        skipped.empty = "everything was checked" if doctor.complete else self._why_empty()
        for table, columns in ((findings, words.columns), (skipped, words.skipped_columns)):
            fitting = columns(table.size.width or self.size.width)
            if fitting != table.columns:
                table.set_columns(fitting)
        at_top = findings.cursor == 0
        findings.set_rows(Rows(found, lambda i: words.cells(found[i]), lambda i: (found[i].check, found[i].title)))
        if at_top:  # what is more severe comes in above: whoever has not moved wants to see it
            findings.action_first()
        without = doctor.not_checked
        skipped.set_rows(Rows(without, lambda i: words.skipped_cells(without[i]), lambda i: without[i].check))

    def _why_empty(self) -> str:
        state, doctor = self.state, self.state.doctor
        if doctor.problem:
            return doctor.problem
        if doctor.stopped:
            return "stopped: r checks again, a with all listed samples"
        if doctor.asked is not None:
            return "checking …"
        return state.problem or ("no sample opened yet" if state.chosen is not None else "no checkpoint opened yet")

    @property
    def _most(self) -> int:
        return _ROOMY if self.has_class("roomy") else _LINES

    def _show_detail(self) -> None:
        self.detail.say(self._lines(self.size.width, self._most) or self.problem_lines())

    def _lines(self, width: int, most: int) -> list[Line]:
        doctor, thing = self.state.doctor, self._at_cursor()
        if isinstance(thing, NotChecked):
            return words.skipped_lines(thing, doctor.not_checked, width, most)
        return words.lines(thing, self._where(thing), width, most) if thing is not None else []

    def _at_cursor(self) -> Finding | NotChecked | None:
        doctor, table = self.state.doctor, self.table()
        key: Any = table.key if table is not None else None
        if self.current == NOT_CHECKED:
            return next((one for one in doctor.not_checked if one.check == key), None)
        return next((one for one in doctor.findings if (one.check, one.title) == key), None)

    @staticmethod
    def _where(finding: Finding) -> str:
        """The view and pane that enter opens."""
        to = jump(finding)
        return "" if to is None else to.view.capitalize() + (f", {to.pane}" if to.pane else "")

    def copy_text(self) -> str:
        """The finding under the cursor, whole."""
        return "\n".join("".join(text for text, _ in line) for line in self._lines(10_000, 999))

    # ------------------------------------------------------------------ keys

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        self._show_detail()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        thing = self._at_cursor()
        if not isinstance(thing, Finding):
            return
        to = jump(thing)
        if to is None:
            return self.controller.say("no view shows this", "warn")
        self.inspector.action_view(to.view)
        go(self.inspector.view, to)

    def action_severities(self) -> None:
        names = list(words.SHOWN)
        self._severities = names[(names.index(self._severities) + 1) % len(names)]
        self.changed("severities")

    def action_check_all(self) -> None:
        self.controller.doctor.check_all()

    def action_again(self) -> None:
        self.controller.doctor.again()

    def action_flags(self) -> None:
        self.inspector.ask(
            "launch line", "sglang ... --speculative-num-steps 3, or @FILE", self.controller.serving.set_line
        )

    def action_server(self) -> None:
        now = self.state.serving.server
        self.inspector.ask(
            "server",
            f"sglang@0.5.9 or vllm@0.33.0{f'; now {now}' if now else ''}",
            self.controller.serving.set_server,
        )

    def on_resize(self) -> None:
        self.set_class(self.inspector.size.height >= _TALL, "roomy")
        if self.display:
            self.call_after_refresh(self.changed, "columns")
