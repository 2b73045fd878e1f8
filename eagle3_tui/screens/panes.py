"""PanesView: a view of several panes of which one is current; Tab goes to the next.

At 80 columns only the current pane is on screen; from 110 on the first stays at the left of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Click
from textual.widget import Widget

from eagle3_tui.screens.view import Detail, View
from eagle3_tui.widgets.line_table import LineTable
from eagle3_tui.widgets.tab_bar import TabBar


class PanesView(View):
    """Subclasses name their `PANES` and make them in `make_panes`, in the same order."""

    PANES: ClassVar[tuple[str, ...]] = ()

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "pane(1)", "Next pane", id="pane.next", tooltip="the next pane of this view"),
        Binding("shift+tab", "pane(-1)", "Previous pane", id="pane.previous", tooltip="the pane before", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.current = 0
        self._panes: list[Widget] = []

    def make_panes(self) -> Iterator[Widget]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield TabBar(classes="pane-bar")
        self._panes = list(self.make_panes())
        with Container(classes="pane-body"):
            for number, pane in enumerate(self._panes):
                pane.add_class("pane")
                if number == 0:
                    pane.add_class("first-pane")
                yield pane
        yield Detail(classes="detail")

    def on_mount(self) -> None:
        self._arrange()

    def action_pane(self, step: int) -> None:
        self.show_pane((self.current + step) % len(self._panes))

    def show_pane(self, number: int) -> None:
        if number != self.current:
            self.current = number
            self._arrange()
            self.focus_table()
            self.changed("pane")

    def _arrange(self) -> None:
        for number, pane in enumerate(self._panes):
            pane.set_class(number == self.current, "current-pane")
            # a wide screen shows two panes: the first, and the current or the second beside it
            pane.set_class(number == 1 and self.current == 0, "beside")
        names = [f"[{name}]" if number == self.current else f" {name} " for number, name in enumerate(self.PANES)]
        self.query_one(TabBar).show(names, self.current, "  tab")

    def on_tab_bar_clicked(self, event: TabBar.Clicked) -> None:
        event.stop()
        self.show_pane(event.number)

    def on_click(self, event: Click) -> None:
        """A click into a pane that stands beside the current one: its keys are what is wanted now."""
        for number, pane in enumerate(self._panes):
            if pane.display and pane.region.contains(event.screen_x, event.screen_y):
                return self.show_pane(number)

    def pane(self) -> Widget:
        return self._panes[self.current]

    def table(self) -> LineTable | None:
        return self._table_in(self.pane())

    def tables_of_another(self) -> Iterable[LineTable]:
        """The first pane lists what there is to choose from: that stays as it is."""
        return [table for pane in self._panes[1:] if (table := self._table_in(pane)) is not None]

    @staticmethod
    def _table_in(pane: Widget) -> LineTable | None:
        if isinstance(pane, LineTable):
            return pane
        inner = pane.query(LineTable)
        return inner.first() if inner else None

    def focus_table(self) -> None:
        table = self.table()
        self.screen.set_focus(table if table is not None else self.pane())

    @property
    def detail(self) -> Detail:
        return self.query_one(".detail", Detail)

    def back(self) -> bool:
        if self.current:
            self.show_pane(0)
            return True
        return False
