"""LineTable: the one table for every long list; what it costs does not depend on how many rows there are.

It asks its row source for the rows on screen and for nothing else, draws a fixed header line above them, and keeps
the cursor on the same key when rows come, go or are filtered. A cursor move repaints two rows; past an edge the
view jumps by half a page, because a terminal over SSH pays for every repainted row. All text passes `safe`.

It does NOT know what a row means, where rows come from, or the filter's text: screens own all three.
Row numbers: a *row* counts in the source, a *line* counts the rows that the filter lets through.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from drafter.safe import safe
from eagle3_tui.widgets.styles import CURSOR, CURSOR_UNFOCUSED, style

Cells = Sequence[tuple[str, str]]
"""One row: (text, style name) for each column."""

ELLIPSIS = "…"


@dataclass(frozen=True)
class Column:
    """A column of fixed width in cells; the last column of a table takes the rest whatever its width says."""

    title: str
    width: int = 0
    align: Literal["left", "right"] = "left"
    cut: Literal["end", "middle"] = "end"


class RowSource(Protocol):
    """Rows by number. `key` says which thing a row shows, and stays the same when rows move."""

    def __len__(self) -> int: ...
    def cells(self, i: int) -> Cells: ...
    def key(self, i: int) -> object: ...


class NoRows:
    """A source without rows."""

    def __len__(self) -> int:
        return 0

    def cells(self, i: int) -> Cells:
        raise IndexError(i)

    def key(self, i: int) -> object:
        raise IndexError(i)


class LineTable(ScrollView, can_focus=True, inherit_bindings=False):
    """A table of one-line rows. `cursor` is a line; `row` and `key` say what lies under it."""

    DEFAULT_CSS = """
    LineTable {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 0;
    }
    """
    ALLOW_SELECT = False
    ALLOW_MAXIMIZE = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="table.up", tooltip="one row up"),
        Binding("down,j", "move(1)", "Down", show=False, id="table.down", tooltip="one row down"),
        Binding("pageup", "pages(-1)", "Page up", show=False, id="table.page_up", tooltip="one page up"),
        Binding("pagedown", "pages(1)", "Page down", show=False, id="table.page_down", tooltip="one page down"),
        Binding("ctrl+u", "pages(-0.5)", "Half page up", show=False, id="table.half_up", tooltip="half a page up"),
        Binding("ctrl+d", "pages(0.5)", "Half page down", show=False, id="table.half_down", tooltip="half a page down"),
        Binding("g,home", "first", "First", show=False, id="table.first", tooltip="the first row"),
        Binding("G,end", "last", "Last", show=False, id="table.last", tooltip="the last row"),
        Binding("enter", "choose", "Open", show=False, id="table.choose", tooltip="open the row under the cursor"),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)

    class _About(Message):
        def __init__(self, table: LineTable, index: int, key: object) -> None:
            super().__init__()
            self.table = table
            self.index = index
            self.key = key

        @property
        def control(self) -> LineTable:
            return self.table

    class CursorMoved(_About):
        """Another row (number or key) is under the cursor; index -1 and key None when there is no row."""

    class Chosen(_About):
        """Enter, or a double click, on a row."""

    def __init__(
        self,
        columns: Sequence[Column],
        source: RowSource | None = None,
        *,
        empty: str = "",
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
        disabled: bool = False,
    ) -> None:
        """`empty` is shown in place of the first row when there is none, `unmatched` when the filter hides them all."""
        super().__init__(name=name, id=id, classes=classes, disabled=disabled)
        self.columns = list(columns)
        self.empty = empty
        self.unmatched = "nothing matches"
        self._source: RowSource = source if source is not None else NoRows()
        self._filter: Callable[[int], bool] | None = None
        self._shown: list[int] | None = None  # rows that pass the filter, ascending; None: all of them
        self._count = len(self._source)
        self._held: tuple[int, object] = (-1, None)  # what the last CursorMoved said
        self._anchor: tuple[int, object] = (-1, None)  # the row last under the cursor, also while a filter hides all
        self._drawn: dict[int, Strip] = {}  # what the screen shows, by y

    # What is under the cursor

    @property
    def source(self) -> RowSource:
        return self._source

    @property
    def line_count(self) -> int:
        """How many rows the filter lets through."""
        return self._count

    @property
    def row(self) -> int | None:
        """The source's number of the row under the cursor, None when there is none."""
        return self.row_at(self.cursor)

    @property
    def key(self) -> object:
        """The key of the row under the cursor, None when there is none."""
        row = self.row
        return None if row is None else self._source.key(row)

    @property
    def top(self) -> int:
        """The line drawn below the header."""
        return round(self.scroll_y)

    @property
    def page(self) -> int:
        """How many lines fit below the header."""
        return max(1, self.size.height - 1)

    def row_at(self, line: int) -> int | None:
        """The row on this line."""
        if not 0 <= line < self._count:
            return None
        return line if self._shown is None else self._shown[line]

    @property
    def filter(self) -> Callable[[int], bool] | None:
        return self._filter

    def line_of(self, row: int) -> int | None:
        """The line of this row, None when it is filtered out or does not exist."""
        if self._shown is None:
            return row if 0 <= row < self._count else None
        line = bisect_left(self._shown, row)
        return line if line < self._count and self._shown[line] == row else None

    # Changing what is shown

    def set_rows(self, source: RowSource) -> None:
        """Show these rows; the cursor stays on the key it is on, if it is still there."""
        self._source = source
        self.rows_changed()

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show these columns from now on; the rows stay."""
        self.columns = list(columns)
        self.refresh()

    def set_filter(self, predicate: Callable[[int], bool] | None) -> None:
        """Show only the rows that `predicate(row)` holds for; None shows all."""
        self._filter = predicate
        self.rows_changed()

    def rows_changed(self) -> None:
        """The source has other rows or other contents now; repaints only the lines that look different."""
        before = self._count
        self._shown = None if self._filter is None else [i for i in range(len(self._source)) if self._filter(i)]
        self._count = len(self._source) if self._shown is None else len(self._shown)
        if not self.is_mounted:
            self.set_reactive(LineTable.cursor, self.validate_cursor(self.cursor))
            return
        if self._count != before:
            self._resize_rows()
        self._follow_key()
        self._repaint_changed()

    def refresh_row(self, row: int) -> None:
        """Repaint one row of the source, when it is on screen."""
        line = self.line_of(row)
        if line is not None:
            self._refresh_line(line)

    def _resize_rows(self) -> None:
        height = self._count + 1
        size = Size(0, height)
        if (height > self.size.height) == (self.virtual_size.height > self.size.height):
            # Assigning virtual_size lays out the screen and repaints the table: 2 kB for each row that streams in.
            self.set_reactive(LineTable.virtual_size, size)
            self.scroll_target_y = self.scroll_y = min(self.scroll_y, self.max_scroll_y)
        else:
            self.virtual_size = size

    def _follow_key(self) -> None:
        old = self.cursor
        line = self._line_for(*self._anchor)
        self.set_reactive(LineTable.cursor, line)
        if line != old:
            self._scroll_lines(self.top + line - old)
        self._reveal()
        self._announce()

    def _line_for(self, row: int, key: object) -> int:
        """The line that shows `key`, else the nearest one to where it was."""
        unmoved = 0 <= row < len(self._source) and self._source.key(row) == key
        if row >= 0 and not unmoved:
            for line in range(self._count):
                candidate = self.row_at(line)
                if candidate is not None and self._source.key(candidate) == key:
                    return line
        nearest = row if self._shown is None else bisect_left(self._shown, row)
        return self.validate_cursor(nearest)

    def _repaint_changed(self) -> None:
        for y in range(1, self.size.height):
            if self._drawn.get(y) != self._draw(y):
                self.refresh(Region(0, y, self.size.width, 1))

    # The cursor

    def validate_cursor(self, line: int) -> int:
        return max(0, min(line, self._count - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        self._refresh_line(old)
        self._refresh_line(new)
        self._reveal()
        self._announce()

    def move_to_row(self, row: int) -> bool:
        """Put the cursor on this row of the source; False when it is not shown."""
        line = self.line_of(row)
        if line is not None:
            self.cursor = line
        return line is not None

    def action_move(self, lines: int) -> None:
        self.cursor += lines

    def action_pages(self, pages: float) -> None:
        lines = int(pages * self.page) or (1 if pages > 0 else -1)
        self._scroll_lines(self.top + lines)
        self.cursor += lines

    def action_first(self) -> None:
        self.cursor = 0

    def action_last(self) -> None:
        self.cursor = self._count - 1

    def action_choose(self) -> None:
        row = self.row
        if row is not None:
            self.post_message(self.Chosen(self, row, self._source.key(row)))

    def on_click(self, event: events.Click) -> None:
        line = self.top + event.y - 1
        if event.y < 1 or line >= self._count:
            return
        self.cursor = line
        if event.chain == 2:
            self.action_choose()

    def on_focus(self) -> None:
        self._refresh_line(self.cursor)

    def on_blur(self) -> None:
        self._refresh_line(self.cursor)

    def on_mount(self) -> None:
        self.virtual_size = Size(0, self._count + 1)
        self._announce()

    def on_resize(self) -> None:
        self._reveal()

    def _reveal(self) -> None:
        """Scroll so that the cursor is on screen, in the middle of the page when it was not."""
        if not self.top <= self.cursor < self.top + self.page:
            self._scroll_lines(self.cursor - self.page // 2)

    def _announce(self) -> None:
        row = self.row
        held = (-1, None) if row is None else (row, self._source.key(row))
        if row is not None or not len(self._source):
            self._anchor = held
        if held != self._held:
            self._held = held
            self.post_message(self.CursorMoved(self, *held))

    def _scroll_lines(self, top: int) -> None:
        self.scroll_to(y=max(0, top), animate=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # The header does not scroll: repainting it would cost a row of bytes for nothing.
        if round(old_value) != round(new_value):
            self.refresh(Region(0, 1, self.size.width, self.size.height - 1))

    def _refresh_line(self, line: int) -> None:
        y = line - self.top + 1
        if 1 <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    # Drawing

    def render_line(self, y: int) -> Strip:
        """Line `y` of the widget: the header at 0, rows below it."""
        strip = self._drawn[y] = self._draw(y)
        return strip

    def _draw(self, y: int) -> Strip:
        width = self.size.width
        base = self.rich_style
        if y == 0:
            runs = lay_out([(column.title, "title") for column in self.columns], self.columns, width)
            return Strip([Segment(text, base + style(name)) for text, name in runs], width)
        line = self.top + y - 1
        row = self.row_at(line)
        if row is None:
            said = self.empty if self._filter is None or not len(self._source) else self.unmatched
            text = said if self._count == 0 and line == 0 else ""
            return Strip([Segment(fit(text, width), base + style("dim") if text else base)], width)
        runs = lay_out(self._source.cells(row), self.columns, width)
        if line == self.cursor:
            look = base + (CURSOR if self.has_focus else CURSOR_UNFOCUSED)
            return Strip([Segment("".join(text for text, _ in runs), look)], width)
        return Strip([Segment(text, base + style(name)) for text, name in runs], width)


def lay_out(cells: Cells, columns: Sequence[Column], width: int) -> list[tuple[str, str]]:
    """The row as (text, style name) runs that fill exactly `width` cells, neighbours of one style merged.

    Blank text looks the same in every style that has no underline, so it joins the run before it: every run costs
    about 25 bytes of escape codes on the wire.
    """
    runs: list[tuple[str, str]] = []
    used = 0
    for number, column in enumerate(columns):
        text, name = cells[number] if number < len(cells) else ("", "")
        gap = 1 if number else 0
        room = width - used - gap
        if room <= 0:
            break
        size = room if number == len(columns) - 1 else min(column.width, room)
        piece = fit(text, size, column.align, column.cut)
        if gap:
            _add_run(runs, " ", "")
        _add_run(runs, piece, name)
        used += gap + size
    _add_run(runs, " " * (width - used), "")
    return runs


def _add_run(runs: list[tuple[str, str]], text: str, name: str) -> None:
    if runs and text and (runs[-1][1] == name or text.isspace()):
        runs[-1] = (runs[-1][0] + text, runs[-1][1])
    elif text:
        runs.append((text, name))


def fit(text: str, width: int, align: str = "left", cut: str = "end") -> str:
    """`text` made safe, in exactly `width` cells: cut with an ellipsis (at the end or in the middle) or padded."""
    if width <= 0:
        return ""
    bound = 4 * width + 8  # a name of a megabyte is not escaped and measured for 20 cells
    raw = str(text)
    shown = safe(raw if len(raw) <= 2 * bound else raw[:bound] + raw[-bound:])
    size = cell_len(shown)
    if size > width:
        shown = _cut_middle(shown, width) if cut == "middle" else set_cell_size(shown, width - 1) + ELLIPSIS
        size = cell_len(shown)
    pad = " " * (width - size)
    return pad + shown if align == "right" else shown + pad


def _cut_middle(text: str, width: int) -> str:
    head = (width - 1) // 2
    tail = text[-(width - 1 - head) :] if width > 1 else ""
    while cell_len(tail) > width - 1 - head:
        tail = tail[1:]
    return set_cell_size(text, head) + ELLIPSIS + tail
