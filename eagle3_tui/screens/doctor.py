"""The Doctor view."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from eagle3_tui.screens.panes import PanesView
from eagle3_tui.widgets.line_table import Column, LineTable


class DoctorView(PanesView):
    PANES = ("findings",)
    HINTS = "? help  q quit"

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable([Column("")], id="doctor-table")

    def changed(self, what: str) -> None:
        self.detail.say(self.problem_lines())
