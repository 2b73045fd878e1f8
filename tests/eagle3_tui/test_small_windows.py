"""Windows smaller than 80x24 show less, and what they show is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_tui.app import TITLES
from eagle3_tui.terminal import _ascii_for
from eagle3_tui.widgets.line_table import LineTable
from eagle3_tui.widgets.modal_help import gather
from tests.eagle3_tui.screen import dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


async def test_a_short_window_has_one_line_of_status(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(40, 12)) as pilot:
        await settle(app, pilot)
        for view, title in zip("1234567890", TITLES, strict=True):
            await pilot.press(view)
            await settle(app, pilot)
            lines = dump(app).rstrip("\n").split("\n")
            assert f"[{view} {title}" in lines[1]
            assert app.query_one("#status").size.height == 1
        app.controller.say("a long refusal " * 20, "bad")
        await pilot.pause()
        assert app.query_one("#status").size.height == 1 and dump(app).rstrip().endswith("…")


async def test_a_narrow_step_view_shows_the_prediction(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(50, 20)) as pilot:
        await settle(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        shown = dump(app)
        assert "p(true)" not in shown and "rank" not in shown.split("\n")[2] and '"w42"' in shown.split("\n")[3]
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert "p(true)" in dump(app)


async def test_the_smallest_window_has_a_row(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(10, 5)) as pilot:
        await settle(app, pilot)
        for view in "1234567890":
            await pilot.press(view)
            await settle(app, pilot)
            table = app.view.table()
            assert table is not None and table.size.height >= 2, view


async def test_cut_lines_say_so(story: Path) -> None:
    deep = story / ("a" * 60) / ("b" * 60)
    deep.parent.mkdir()
    (story / "target").rename(deep)
    app = story_app(story, target=deep)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        target = next(line for line in dump(app).split("\n") if line.startswith("target: "))
        assert "…" in target and target.endswith("(as given)") and len(target) <= 80
        await pilot.press("3")
        await settle(app, pilot)
        others = dump(app).rstrip("\n").split("\n")[-2]
        assert len(others) <= 80 and others.endswith("…")


async def test_help_lists_only_our_keys(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2", "tab")
        groups = gather(app.screen)
        keys = [key for lines in groups.values() for line in lines for key in line.keys]
        assert "^q" not in keys and "super+c" not in keys and {"^u", "^d", "pgup", "pgdn", ":"} <= set(keys)
        names = [line.description for lines in groups.values() for line in lines]
        assert "Focus Next" not in names and len(names) == len(set(names))
        await pilot.press("ctrl+q")
        assert app.is_running


def test_quotation_marks_in_ascii() -> None:
    assert [_ascii_for(char) for char in "«»▔"] == ["<", ">", "-"]


async def test_wiring_says_what_a_value_needs(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("5")
        await settle(app, pilot)
        table = app.view.query_one(LineTable)
        said = [
            cells[-1][0] for cells in map(table.source.cells, range(table.line_count)) if cells[1][0] == "rope_type"
        ]
        assert said[1:] == ["needs factor"] * 4
