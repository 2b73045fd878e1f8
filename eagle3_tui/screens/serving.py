"""The Serving view."""

from __future__ import annotations

from collections.abc import Iterator

from textual.widget import Widget

from eagle3_tui.screens.panes import PanesView
from eagle3_tui.widgets.line_table import Column, LineTable


class ServingView(PanesView):
    PANES = ("serving",)
    HINTS = "? help  q quit"

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable([Column("")], id="serving-table")

    def changed(self, what: str) -> None:
        self.detail.say(self.problem_lines())
