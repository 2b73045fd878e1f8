"""A filter is seen, ends with what it was made for, and never makes a row wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_tui.widgets.line_table import LineTable
from tests.eagle3_tui.screen import dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


async def test_the_rows_on_screen_are_drafted_under_a_filter(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3", "slash", "1", "enter")
        await settle(app, pilot)
        table = app.view.query_one(LineTable)
        state = app.controller.state
        assert 3 < table.line_count < 24 and state.ordering is not None
        shown = [table.row_at(line) for line in range(table.line_count)]
        assert all(row in state.rows[state.ordering] for row in shown)
        assert "…" not in "\n".join(dump(app).split("\n")[3:16])


async def test_a_kept_filter_is_in_the_status_line(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2", "slash", *"_2", "enter")
        assert "/_2  1 of 3" in dump(app)
        await pilot.press("1")
        assert "/_2" not in dump(app)
        await pilot.press("2", "escape")
        assert "/_2" not in dump(app) and app.view.query_one("#files", LineTable).line_count == 3


async def test_another_sample_ends_the_filter_of_its_tokens(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3", "slash", *"w4", "enter")
        few = app.view.query_one(LineTable).line_count
        await pilot.press("2", "slash", *"data", "enter", "j", "enter")
        await settle(app, pilot)
        assert app.view.query_one("#files", LineTable).filter is not None
        await pilot.press("3")
        await settle(app, pilot)
        assert few < app.view.query_one(LineTable).line_count == 24


async def test_no_match_is_said_and_the_row_is_kept(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3", "j", "j")
        row = app.controller.state.row
        await pilot.press("slash", *"zzz", "enter")
        assert "nothing matches /zzz" in dump(app) and "no sample" not in dump(app)
        await pilot.press("escape")
        await settle(app, pilot)
        table = app.view.query_one(LineTable)
        assert table.row == row == app.controller.state.row and table.line_count == 24


async def test_a_hidden_row_can_be_gone_to(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3", "slash", *"w83", "enter", "i", "5", "enter")
        await settle(app, pilot)
        table = app.view.query_one(LineTable)
        assert app.controller.state.row == 3 and table.line_count == 24
        assert "filter" in app.controller.state.message
        await pilot.press("slash", *"w57", "enter", "i", "9", "9", "enter")
        assert "expected 2..25" in dump(app)
        await pilot.press("n")
        await settle(app, pilot)
        state = app.controller.state
        assert state.ordering is not None and state.rows[state.ordering][state.row].hit is False
        assert table.row == state.row
