"""The help screen and the filter line."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from eagle3_tui.widgets.filter_input import FilterInput, Question
from eagle3_tui.widgets.line_table import Column, LineTable
from eagle3_tui.widgets.modal_help import HelpScreen, gather
from tests.eagle3_tui.test_line_table import Rows


class Window(App[None]):
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit", id="app.quit", tooltip="leave"),
        Binding("question_mark", "help", "Help", id="app.help", tooltip="this page"),
        Binding("slash", "filter", "Filter", id="app.filter", tooltip="[/foo] \x1b[31m"),
        Binding("x", "grey", "Grey", id="app.grey", tooltip="not now"),
        Binding("y", "gone", "Gone", id="app.gone"),
        Binding("z", "nameless", "Nameless"),
    ]
    legend: ClassVar[list[tuple[str, str]]] = [("x", "a wrong prediction"), ("[/b]", "\x1b[31m is text")]

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def compose(self) -> ComposeResult:
        yield LineTable([Column("text")], Rows(range(30)))
        yield FilterInput()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return {"grey": None, "gone": False}.get(action, True)

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.screen, self.legend))

    def action_filter(self) -> None:
        self.query_one(FilterInput).ask(self.question())

    def question(self) -> Question:
        return Question(
            "/",
            "text",
            kept=lambda text: self.said.append(("kept", text)),
            changed=lambda text: self.said.append(("changed", text)),
            cleared=lambda: self.said.append(("cleared", "")),
        )


def shown(app: App[None]) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def test_bindings_are_grouped_by_where_they_work():
    app = Window()
    async with app.run_test(size=(80, 24)):
        app.query_one(LineTable).focus()
        groups = gather(app.screen)
        here = {line.description: line.keys for line in groups["here"]}
        assert here["Up"] == ["↑", "k"] and here["Half page down"] == ["^d"] and len(here) == 9
        everywhere = {line.description: line for line in groups["everywhere"]}
        assert everywhere["Quit"].tooltip == "leave" and everywhere["Help"].keys == ["?"]
        assert not everywhere["Grey"].enabled and not {"Gone", "Nameless"} & set(everywhere)


async def test_help_opens_scrolls_and_closes():
    app = Window()
    async with app.run_test(size=(80, 14)) as pilot:
        app.query_one(LineTable).focus()
        await pilot.press("question_mark")
        page = shown(app)
        assert "a wrong prediction" not in page and "Up: one row up" in page and "esc closes" in page
        assert app.said == []
        await pilot.press("G")
        page = shown(app)
        assert "a wrong prediction" in page and "[/b]" in page and "\\x1b[31m is text" in page
        assert "\x1b" not in page
        await pilot.press("q")
        assert not isinstance(app.screen, HelpScreen) and app.is_running
        assert app.screen.focused is app.query_one(LineTable)


async def test_help_hides_the_view_below_in_every_theme():
    app = Window()
    async with app.run_test(size=(60, 50)) as pilot:
        app.theme = "ansi-dark"
        await app.push_screen(HelpScreen(app.screen, [("=", "right " * 20)]))
        await pilot.pause()
        assert "29" not in shown(app) and shown(app).count("right") == 20
        await pilot.press("escape")
        assert "29" in shown(app)


async def test_filter_keeps_and_gives_the_focus_back():
    app = Window()
    async with app.run_test(size=(60, 12)) as pilot:
        table, line = app.query_one(LineTable), app.query_one(FilterInput)
        table.focus()
        assert not line.display
        await pilot.press("slash", "j")
        assert line.display and line.region.y == 11 and table.cursor == 0
        await pilot.press("enter")
        assert app.said == [("changed", "j"), ("kept", "j")] and line.text == "j"
        assert not line.display and app.screen.focused is table
        await pilot.press("slash", "escape")
        assert app.said[2:] == [("cleared", "")] and app.screen.focused is table


async def test_filter_text_is_harmless():
    app = Window()
    async with app.run_test(size=(60, 12)) as pilot:
        line = app.query_one(FilterInput)
        line.ask(app.question(), "a\x1b[31m\u202eb")
        await pilot.pause()
        assert line.text == "a[31mb" and "\x1b" not in shown(app)
        assert line._input.cursor_blink is False
        line.ask(app.question())
        await pilot.press("enter")
        assert app.said[-1] == ("cleared", "") and not line.display
