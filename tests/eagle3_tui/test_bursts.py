"""Keys that arrive together, as pasted text and slow links send them, act in the order in which they were typed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from textual.events import Key, Paste

from eagle3_tui.app import InspectorApp
from eagle3_tui.widgets.filter_input import FilterInput
from eagle3_tui.widgets.line_table import LineTable
from tests.eagle3_tui.pty_harness import Terminal
from tests.eagle3_tui.screen import dump, settle, story_app, write_story

NAMES = {"/": "slash", "?": "question_mark", ":": "colon", "\r": "enter", "\x1b": "escape"}


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


def burst(app: InspectorApp, keys: str) -> None:
    """Everything is in the app's queue before any of it is handled."""
    for key in keys:
        app.post_message(Key(NAMES.get(key, key), key))


async def test_what_is_typed_after_the_slash_is_text(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        burst(app, "2/qu1")
        await settle(app, pilot)
        line = app.query_one(FilterInput)
        assert app.is_running and app.view.id == "samples" and line.display and line.text == "qu1"
        burst(app, "\x1b3j")
        await settle(app, pilot)
        assert app.view.id == "step" and not line.display and app.controller.state.row == 8
        burst(app, "i20\rj")
        await settle(app, pilot)
        assert app.controller.state.row == 19
        burst(app, '/w83"\rG')
        await settle(app, pilot)
        assert line.text == 'w83"' and not line.display and app.is_running


async def test_a_paste_goes_where_the_keys_go(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        burst(app, "2/")
        app.post_message(Paste("data\x1b_\nq"))
        burst(app, "10")
        await settle(app, pilot)
        assert app.query_one(FilterInput).text == "data_10"
        assert app.view.query_one("#files", LineTable).line_count == 1


async def test_a_digit_and_a_move_in_one_burst(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        burst(app, "4jj")
        await settle(app, pilot)
        table = app.view.query_one(LineTable)
        assert table.cursor == 2 and app.screen.focused is table
        burst(app, "2\t")
        burst(app, "?q")
        await settle(app, pilot)
        assert app.is_running and "Samples" in dump(app)


def test_a_burst_on_a_real_terminal(story: Path) -> None:
    command = [sys.executable, "-m", "eagle3_tui", str(story / "output"), "-s", str(story / "samples"), "--no-log"]
    with Terminal([*command, "--device", "cpu"]) as terminal:
        terminal.read_until(b"enter open")
        terminal.send(b"/qu")
        terminal.read(quiet=0.5)
        assert any(line.startswith("/ qu") for line in terminal.lines), terminal.lines
        terminal.send(b"\x1bq")
        assert terminal.wait() == 0
