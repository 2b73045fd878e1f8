"""View: what the five views have in common. One focusable table at a time, a detail of the row under the cursor, keys
of its own; it reads the State and asks the Controller, and is told what changed.

A view that is not on screen only remembers that it is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from rich.text import Text
from textual.containers import Container
from textual.widgets import Static

from drafter.safe import safe
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, LineTable, RowSource
from eagle3_tui.widgets.styles import style

if TYPE_CHECKING:
    from eagle3_tui.app import InspectorApp
    from eagle3_tui.controller import Controller


class View(Container):
    """`HINTS` are the keys shown in the last line; `changed(what)` is called for every change of the state."""

    HINTS = ""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._stale = True

    @property
    def inspector(self) -> InspectorApp:
        return cast("InspectorApp", self.app)

    @property
    def controller(self) -> Controller:
        return self.inspector.controller

    @property
    def state(self) -> State:
        return self.controller.state

    def told(self, what: str) -> None:
        """A part of the state is new."""
        if self.display:
            self.changed(what)
        else:
            self._stale = True

    def shown(self) -> None:
        """The view comes on screen: take the focus, and catch up."""
        if self._stale:
            self._stale = False
            self.changed("all")
        self.focus_table()

    def changed(self, what: str) -> None:
        """Show what is new; `all` after the view was away."""

    def table(self) -> LineTable | None:
        """The table that the filter works on."""
        return None

    def focus_table(self) -> None:
        table = self.table()
        if table is not None:
            table.focus()

    def back(self) -> bool:
        """Escape: undo one thing of this view; False when there is nothing to undo."""
        return False

    def copy_text(self) -> str:
        """What `y` copies: the row under the cursor."""
        table = self.table()
        row = table.row if table is not None else None
        return "" if table is None or row is None else "  ".join(text.strip() for text, _ in table.source.cells(row))

    def keep_filter(self, text: str) -> None:
        """Show only the rows whose text contains `text`, whatever the case; all for an empty text."""
        table = self.table()
        if table is not None:
            wanted = text.lower()
            source = table.source
            if wanted and isinstance(source, Searchable):
                texts = source.texts()
                table.set_filter(lambda i: wanted in texts[i])
            else:
                table.set_filter((lambda i: contains(source.cells(i), wanted)) if wanted else None)


def contains(cells: Cells, wanted: str) -> bool:
    return any(wanted in text.lower() for text, _ in cells)


@runtime_checkable
class Searchable(Protocol):
    """A long list that knows its rows' texts without drawing them: lower case, one a row."""

    def texts(self) -> list[str]: ...


class Rows(RowSource):
    """Rows of a short list: `items` with a key and cells made when a row is drawn."""

    def __init__(self, items: Sequence[object], cells: Callable[[int], Cells], key: Callable[[int], object]) -> None:
        self._items, self._cells, self._key = items, cells, key

    def __len__(self) -> int:
        return len(self._items)

    def cells(self, i: int) -> Cells:
        return self._cells(i)

    def key(self, i: int) -> object:
        return self._key(i)


class Detail(Static):
    """Some lines of plain text below a table; repaints only when the text is another one."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__("", markup=False, id=id, classes=classes)
        self._said: list[list[tuple[str, str]]] = []

    @property
    def lines(self) -> list[list[tuple[str, str]]]:
        return self._said

    def say(self, lines: Sequence[Sequence[tuple[str, str]]]) -> None:
        """`lines` of (text, style name) runs; everything passes `safe`."""
        said = [list(line) for line in lines]
        if said == self._said:
            return
        taller = len(said) != len(self._said)  # only then may it need another place
        self._said = said
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        for number, line in enumerate(said):
            if number:
                text.append("\n")
            for run, name in line:
                text.append(safe(run), style(name))
        self.update(text, layout=taller)


def megabytes(count: int) -> str:
    """Bytes for people: `19.5 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f}"
