"""View: what the six views have in common. One focusable table at a time, a detail of the row under the cursor, keys
of its own; it reads the State and asks the Controller, and is told what changed.

A view that is not on screen only remembers that it is stale.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from rich.text import Text
from textual.containers import Container
from textual.widgets import Static

from drafter.safe import safe
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, LineTable, RowSource, fit
from eagle3_tui.widgets.styles import style

if TYPE_CHECKING:
    from drafter.wiring import Ordering
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
        if what in ("sample", "checkpoint"):
            for table in self.tables_of_another():
                table.set_filter(None)
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
            self.screen.set_focus(table)  # at once: the next key may have come with this one

    def back(self) -> bool:
        """Escape: undo one thing of this view; False when there is nothing to undo."""
        return False

    def copy_text(self) -> str:
        """What `y` copies: the row under the cursor."""
        table = self.table()
        row = table.row if table is not None else None
        return "" if table is None or row is None else "  ".join(text.strip() for text, _ in table.source.cells(row))

    # ------------------------------------------------------------------ the filter

    def tables_of_another(self) -> Iterable[LineTable]:
        """The tables that show other things when another checkpoint or sample is chosen: their filters end."""
        table = self.table()
        return [] if table is None else [table]

    def keep_filter(self, text: str) -> None:
        """Show only the rows whose text contains `text`, whatever the case; all for an empty text."""
        table = self.table()
        if table is not None:
            table.unmatched = f"nothing matches /{text}"
            table.set_filter(TextFilter(table, text) if text else None)

    def filter_text(self) -> str:
        """What the current table is filtered by."""
        table = self.table()
        return table.filter.text if table is not None and isinstance(table.filter, TextFilter) else ""

    def filter_said(self) -> str:
        """The filter as the status line shows it; empty when all rows are shown."""
        table, text = self.table(), self.filter_text()
        if table is None or not text:
            return ""
        return f"/{text}  {table.line_count} of {len(table.source)}  esc shows all"

    def end_filter(self) -> bool:
        """Show every row, the cursor where it is; False when all were shown."""
        table = self.table()
        if table is None or table.filter is None:
            return False
        table.set_filter(None)
        return True

    # ------------------------------------------------------------------ what stands in the way

    def problem_lines(self, otherwise: str = "", most: int = 4) -> list[list[tuple[str, str]]]:
        """Why there is nothing to show, in as many lines as it takes."""
        problem = safe(self.state.problem)
        if not problem:
            return [[(otherwise, "dim")]]
        lines = textwrap.wrap(problem, max(self.size.width, 20), max_lines=most, placeholder=" …")
        return [[(line, "bad")] for line in lines]


class TextFilter:
    """Whether a row of the table says `text`; follows the table when it is given other rows."""

    def __init__(self, table: LineTable, text: str) -> None:
        self.text = text
        self._wanted, self._table = text.lower(), table
        self._source: RowSource | None = None
        self._texts: list[str] | None = None

    def __call__(self, i: int) -> bool:
        source = self._table.source
        if source is not self._source:
            self._source = source
            self._texts = source.texts() if isinstance(source, Searchable) else None
        if self._texts is not None:
            return self._wanted in self._texts[i]
        return any(self._wanted in text.lower() for text, _ in source.cells(i))


@runtime_checkable
class Searchable(Protocol):
    """A list that knows its rows' texts without drawing them: lower case, one a row."""

    def texts(self) -> list[str]: ...


class Rows(RowSource):
    """Rows of a short list: `items` with a key and cells made when a row is drawn.

    A row may be drawn after the state has moved on: `cells` must hold on to what it shows.
    """

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
        self._cut: tuple[int, ...] = ()

    @property
    def lines(self) -> list[list[tuple[str, str]]]:
        return self._said

    def say(self, lines: Sequence[Sequence[tuple[str, str]]], cut: tuple[int, ...] = ()) -> None:
        """`lines` of (text, style name) runs; everything passes `safe`. The lines numbered in `cut` hold one run with a
        path in it, and are cut in the middle where they are too long."""
        said = [list(line) for line in lines]
        if said == self._said:
            return
        taller = len(said) != len(self._said)  # only then may it need another place
        self._said, self._cut = said, cut
        self._write(taller)

    def on_resize(self) -> None:
        if self._cut:
            self._write(False)

    def _write(self, layout: bool) -> None:
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        for number, line in enumerate(self._said):
            if number:
                text.append("\n")
            for run, name in line:
                room = self.size.width if number in self._cut else 0
                text.append(fit(run, room, cut="middle").rstrip() if room else safe(run), style(name))
        self.update(text, layout=layout)


def convention(controller: Controller, ordering: Ordering | None = None) -> str:
    """What a step-0 accuracy and an accept length beside it are of: without that a number in a picture says nothing."""
    state, session = controller.state, controller.session
    options, ordering = session.options, ordering or state.ordering
    fed = f"fc={','.join(map(str, ordering))}, " if ordering is not None else ""
    changed = sum(state.trained_switches.get(switch) != value for switch, value in state.switches.items())
    view = f"view {session.view_name}" + (f" with {changed} switched" if changed else "")
    mask = f"mask {options.mask}" + (f" of {options.supervised}" if options.supervised != "recorded" else "")
    return f"{fed}{view}, next_token, {mask}, K {options.depth}, bonus counted"


def megabytes(count: int) -> str:
    """Bytes for people: `19.5 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f}"
