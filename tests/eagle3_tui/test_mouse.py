"""Clicks: on the names of views and panes, on rows, and into a pane that stands beside the current one."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_tui.screens.panes import PanesView
from eagle3_tui.widgets.line_table import LineTable
from tests.eagle3_tui.screen import dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


def place(screen: str, line: int, word: str) -> tuple[int, int]:
    return screen.split("\n")[line].index(word) + 1, line


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_click_on_a_name_shows_the_view_or_the_pane(story: Path, size: tuple[int, int]) -> None:
    app = story_app(story)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        for word, view in (("3 Step", "step"), ("0 Log", "log"), ("2 S", "samples"), ("1 C", "checkpoints")):
            await pilot.click(offset=place(dump(app), 1, word))
            await settle(app, pilot)
            assert app.view.id == view
        await pilot.click(offset=(size[0] - 1, 1))  # behind the last name
        await settle(app, pilot)
        view_now = app.view
        assert view_now.id == "checkpoints" and isinstance(view_now, PanesView)
        for word, number in (("tensors", 2), ("runs", 0), ("config", 1)):
            await pilot.click(offset=place(dump(app), 2, word))
            await settle(app, pilot)
            assert view_now.current == number and f"[{word}]" in dump(app).split("\n")[2]
        await pilot.click(offset=place(dump(app), 2, "  tab"))
        assert view_now.current == 1


async def test_a_click_into_the_other_pane_makes_it_current(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await pilot.press("2")
        await settle(app, pilot)
        view = app.view
        assert isinstance(view, PanesView) and view.current == 0
        await pilot.click(offset=(80, 6))
        await settle(app, pilot)
        assert view.current == 1 and "[text]" in dump(app)
        files = view.query_one("#files", LineTable)
        await pilot.click(offset=(10, 5))
        await settle(app, pilot)
        assert view.current == 0 and files.has_focus and files.row == 1
        await pilot.click(offset=(10, 5), times=2)
        await settle(app, pilot)
        sample = app.controller.state.sample
        assert sample is not None and sample.path.name == "data_2.pt"
