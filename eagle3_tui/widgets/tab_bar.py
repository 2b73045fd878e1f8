"""TabBar: names in one line, the current one in bold; a click on another tells whoever listens.

It does NOT know what the names stand for, nor does it change the current one itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from eagle3_tui.widgets.styles import style


class TabBar(Static):
    class Clicked(Message):
        """A click on the name of this number."""

        def __init__(self, bar: TabBar, number: int) -> None:
            super().__init__()
            self.bar, self.number = bar, number

        @property
        def control(self) -> TabBar:
            return self.bar

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__("", markup=False, id=id, classes=classes)
        self._names: list[str] = []

    def show(self, names: Sequence[str], current: int, note: str = "") -> None:
        """`names` one after another as they are, blanks included; `note` behind them."""
        self._names = list(names)
        text = Text(no_wrap=True)
        for number, name in enumerate(names):
            text.append(name, style("bold" if number == current else "dim"))
        text.append(note, style("dim"))
        if self.content != text:
            self.update(text, layout=False)

    def on_click(self, event: events.Click) -> None:
        end = 0
        for number, name in enumerate(self._names):
            end += cell_len(name)
            if event.x < end:
                self.post_message(self.Clicked(self, number))
                return
