"""The Accept view."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from eagle3_tui.screens.panes import PanesView
from eagle3_tui.widgets.line_table import Column, LineTable


class AcceptView(PanesView):
    PANES = ("accept",)
    HINTS = "? help  q quit"

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable([Column("")], id="accept-table")

    def changed(self, what: str) -> None:
        self.detail.say(self.problem_lines())
