"""LineTable: what a line shows, where the cursor goes, and what a key costs on the wire."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from eagle3_tui.widgets.line_table import Column, LineTable, fit, lay_out
from tests.eagle3_tui.pty_harness import Terminal

COLUMNS = [Column("pos", 7, "right"), Column("ok", 2), Column("gt", 7, "right"), Column("text")]
HOSTILE = [
    "[/foo]",
    "[bold]x",
    "\x1b[31mred",
    "a\u202eb",
    "\ud800",
    "nul\0tab\t",
    "漢" * 100,
    "e\u0301" * 300,
    "\x9b5n",
]


class Rows:
    """Rows made from their numbers; the key is in the list."""

    def __init__(self, keys: range | list[object]) -> None:
        self.keys = keys
        self.asked = 0
        self.note = ""

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, i: int) -> object:
        return self.keys[i]

    def cells(self, i: int) -> list[tuple[str, str]]:
        self.asked += 1
        bad = i % 3 == 0
        return [
            (str(i), "dim"),
            ("x" if bad else "=", "bad" if bad else ""),
            (str(i * 31), ""),
            (f"{self.keys[i]}{self.note}", ""),
        ]


class Window(App[None]):
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, rows: Rows | None) -> None:
        super().__init__()
        self.rows = rows
        self.said: list[tuple[str, int, object]] = []

    def compose(self) -> ComposeResult:
        yield LineTable(COLUMNS, self.rows, empty="nothing here")

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        self.said.append(("moved", event.index, event.key))

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        self.said.append(("chosen", event.index, event.key))

    @property
    def table(self) -> LineTable:
        return self.query_one(LineTable)

    def text(self) -> list[str]:
        return [self.table.render_line(y).text for y in range(self.table.size.height)]


# Pure layout


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("cut", ["end", "middle"])
@pytest.mark.parametrize("align", ["left", "right"])
def test_fit_is_safe_and_exact(text, cut, align):
    for width in range(25):
        shown = fit(text, width, align, cut)
        assert cell_len(shown) == width
        assert shown.isprintable()


def test_fit_shows_what_it_can():
    assert fit("abc", 5) == "abc  " and fit("abc", 5, "right") == "  abc"
    assert fit("abcdef", 4) == "abc…"
    assert fit("model.layers.0.mlp", 9, cut="middle") == "mode….mlp"
    assert fit("漢字漢字", 4) == "漢 …"  # a wide character is dropped, never halved
    assert fit("\x1b[31m", 8) == "\\x1b[31m"


def test_a_megabyte_of_text_costs_what_a_line_costs():
    text = "\x1b漢" * 1_000_000
    start = time.perf_counter()
    for _ in range(100):
        fit(text, 20, cut="middle")
    assert time.perf_counter() - start < 1


def test_runs_are_merged():
    cells = [("1", "dim"), ("", "bad"), ("7", ""), ("text", "")]
    assert lay_out(cells, COLUMNS, 30) == [("      1    ", "dim"), ("      7 text       ", "")]
    assert lay_out(cells, COLUMNS, 5) == [("    1", "dim")]
    assert "".join(text for text, _ in lay_out([("1", "")], COLUMNS, 30)) == "      1" + " " * 23


# In an app


async def test_header_rows_and_cursor_are_drawn():
    app = Window(Rows(range(5)))
    async with app.run_test(size=(40, 10)):
        lines = app.text()
        assert lines[0] == "    pos ok      gt text                 "
        assert lines[1] == "      0 x        0 0                    "
        assert lines[5] == "      4 =      124 4                    "
        assert lines[6:] == [" " * 40] * 4
        app.table.focus()
        await asyncio.sleep(0)
        (cursor,) = app.table.render_line(1)
        assert cursor.style is not None and cursor.style.reverse
        assert [s.style.bold for s in app.table.render_line(4) if s.text.startswith("x")] == [True]
        assert app.said == [("moved", 0, 0)]


async def test_an_empty_table_says_so_and_survives_every_key():
    app = Window(None)
    async with app.run_test(size=(40, 10)) as pilot:
        assert app.text()[1].rstrip() == "nothing here"
        table = app.table
        for action in ("move(1)", "move(-1)", "pages(1)", "pages(-0.5)", "first", "last", "choose"):
            await table.run_action(action)
        assert (table.row, table.key, table.cursor, app.said) == (None, None, 0, [])
        table.set_rows(Rows(range(3)))
        await pilot.pause()
        assert app.said == [("moved", 0, 0)]
        table.set_rows(Rows([]))
        await pilot.pause()
        assert app.said[-1] == ("moved", -1, None)


async def test_keys_move_and_choose():
    app = Window(Rows(range(100)))
    async with app.run_test(size=(40, 11)) as pilot:
        app.table.focus()
        lines = []
        for key in ("j", "down", "k", "up", "pagedown", "ctrl+d", "ctrl+u", "pageup", "G", "g", "end", "home"):
            await pilot.press(key)
            lines.append(app.table.cursor)
        assert lines == [1, 2, 1, 0, 10, 15, 10, 0, 99, 0, 99, 0]
        await pilot.press("j", "enter")
        assert app.said[-2:] == [("moved", 1, 1), ("chosen", 1, 1)]


async def test_the_view_jumps_half_a_page_past_an_edge():
    app = Window(Rows(range(100)))
    async with app.run_test(size=(40, 11)) as pilot:
        table = app.table
        tops = []
        for _ in range(12):
            table.action_move(1)
            tops.append(table.top)
        assert tops == [0] * 9 + [5] * 3
        table.cursor = 99
        assert table.top == 90
        table.cursor = 89
        assert table.top == 84
        await pilot.resize_terminal(40, 5)
        await pilot.pause()
        assert table.top <= table.cursor < table.top + table.page
        await pilot.resize_terminal(3, 1)  # no crash, whatever is left to see


async def test_a_move_asks_for_two_rows_only():
    rows = Rows(range(1000))
    app = Window(rows)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        rows.asked = 0
        app.table.action_move(1)
        await pilot.pause()
        assert rows.asked == 2
        rows.asked = 0
        app.table.refresh_row(7)
        app.table.refresh_row(700)  # not on screen
        await pilot.pause()
        assert rows.asked == 1


async def test_the_cursor_stays_on_its_key():
    app = Window(Rows(list("abcdefgh")))
    async with app.run_test(size=(40, 5)) as pilot:
        table = app.table
        table.cursor = 3
        table.set_rows(Rows(list("xyzabcdefgh")))
        assert (table.key, table.row, table.cursor) == ("d", 6, 6)
        table.set_filter(lambda row: row % 2 == 0)
        assert (table.key, table.row, table.cursor, table.line_count) == ("d", 6, 3, 6)
        table.set_filter(lambda row: row % 2 == 1)  # d is hidden: the next shown row
        assert (table.key, table.row, table.cursor) == ("e", 7, 3)
        table.set_filter(None)
        assert (table.key, table.row, table.cursor) == ("e", 7, 7)
        table.set_rows(Rows(list("xyz")))
        assert (table.key, table.cursor, table.top) == ("z", 2, 0)
        table.set_filter(lambda row: False)
        assert (table.row, table.line_count) == (None, 0)
        table.set_filter(None)
        assert table.row == 2
        await pilot.pause()
        indexes = [index for _, index, _ in app.said]
        assert indexes == [0, 3, 6, 7, 2, -1, 2]


async def test_changed_rows_are_found_without_repainting_the_others():
    rows = Rows(list(range(10)))
    app = Window(rows)
    async with app.run_test(size=(40, 15)) as pilot:
        await pilot.pause()
        table, dirty = app.table, []
        refresh = table.refresh

        def spy(*regions, **options):
            dirty.extend(regions)
            return refresh(*regions, **options)

        table.refresh = spy
        table.rows_changed()
        assert dirty == []
        rows.keys = [*range(4), "new", *range(5, 11)]
        table.rows_changed()
        assert [region.y for region in dirty] == [5, 11]
        await pilot.pause()
        assert app.text()[11].split()[-1] == "10"


async def test_rows_that_stream_in_are_reachable():
    rows = Rows(list(range(4)))
    app = Window(rows)
    async with app.run_test(size=(40, 6)) as pilot:
        for count in range(5, 60, 7):
            rows.keys = list(range(count))
            app.table.rows_changed()
        app.table.action_last()
        await pilot.pause()
        assert app.text()[-1].split()[0] == "53"
        rows.keys = list(range(7))
        app.table.rows_changed()
        await pilot.pause()
        assert app.table.cursor == 6 and app.text()[-1].split()[0] == "6"


async def test_mouse_clicks_move_and_choose():
    app = Window(Rows(range(100)))
    async with app.run_test(size=(40, 11)) as pilot:
        app.table.cursor = 50
        await pilot.click(LineTable, offset=(3, 2))
        assert app.table.cursor == app.table.top + 1
        await pilot.click(LineTable, offset=(3, 0))
        await pilot.click(LineTable, offset=(3, 4), times=2)
        assert app.said[-1][0] == "chosen" and app.said[-1][1] == app.table.top + 3


async def test_hostile_text_reaches_the_screen_as_text():
    class Bad(Rows):
        def cells(self, i):
            return [(text, "dim") for text in (HOSTILE[i], HOSTILE[-i], "", HOSTILE[i])]

    app = Window(Bad(list(range(len(HOSTILE)))))
    async with app.run_test(size=(40, 15)):
        for line in app.text():
            assert line.isprintable() and cell_len(line) == 40
        assert "\\x1b[31mred" in app.text()[3]


async def test_a_hundred_thousand_rows_mount_like_ten():
    class Timed(Window):
        ready: ClassVar[float]

        async def on_mount(self):
            started = time.perf_counter()
            await self.mount(LineTable(COLUMNS, Rows(range(100_000)), id="big"))
            Timed.ready = time.perf_counter() - started

    app = Timed(Rows([]))
    async with app.run_test():
        assert Timed.ready < 0.3
        started = time.perf_counter()
        big = app.query_one("#big", LineTable)
        big.set_filter(lambda row: row % 10 == 0)
        big.action_last()
        assert big.row == 99_990
        assert time.perf_counter() - started < 0.3


# On the wire

APP = """
from textual.app import App
from tests.eagle3_tui.test_line_table import COLUMNS, Rows
from eagle3_tui.widgets.line_table import LineTable
class Window(App):
    def compose(self):
        yield LineTable(COLUMNS, Rows(range(100_000)))
    def on_mount(self):
        self.query_one(LineTable).focus()
Window().run()
"""


def mean_bytes(terminal: Terminal, key: bytes, times: int) -> float:
    before = len(terminal.written)
    for _ in range(times):
        terminal.press(key, quiet=0.03)
    terminal.read()
    return (len(terminal.written) - before) / times


def test_a_key_costs_few_bytes():
    with Terminal.python(APP) as terminal:
        terminal.read_until(b"124")
        terminal.read(0.3)
        for _ in range(22):  # to the bottom edge
            terminal.press(b"j", quiet=0.02)
        terminal.read()
        per_move = mean_bytes(terminal, b"j", 60)
        per_page = mean_bytes(terminal, b"\x1b[6~", 3)
        idle = terminal.read(quiet=0.5)
        mouse = b"".join(terminal.press(b"\x1b[<35;10;%dM" % row, quiet=0.02) for row in range(3, 13))
        print(f"{per_move:.0f} bytes a move, {per_page:.0f} bytes a page")
        assert per_move <= 1500
        assert per_page <= 9000
        assert idle == b"" and mouse == b""
        assert terminal.lines[0].split() == ["pos", "ok", "gt", "text"]


def test_the_cursor_is_seen_without_colour_and_in_sixteen():
    for env in ({"NO_COLOR": "1"}, {"TERM": "xterm"}):
        with Terminal.python(APP, env=env) as terminal:
            terminal.read_until(b"124")
            terminal.read(0.2)
            assert b"\x1b[7;" in terminal.press(b"j")
