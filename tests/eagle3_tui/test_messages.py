"""The status line: what runs, what it promises about esc, and how long a message stays."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from eagle3_tui import app as app_module
from eagle3_tui.worker import Job
from tests.eagle3_tui.screen import dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


def status(text: str) -> str:
    return text.rstrip("\n").split("\n")[-1]


async def test_a_notice_goes_and_what_runs_is_shown_again(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(app_module._SHOWN_FOR, "", 0.2)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        go = threading.Event()

        def sweep(job: Job) -> None:
            while not go.wait(0.01):
                job.checkpoint()

        app.engine.submit("scoring", sweep, group="score")
        await pilot.press("4", "s")
        assert status(dump(app)) == "sorted by accept length"
        await asyncio.sleep(0.4)
        assert status(dump(app)).startswith("scoring") and "esc stops" in status(dump(app))
        go.set()
        await settle(app, pilot)
        app.controller.say("broken", "bad")
        await asyncio.sleep(0.4)
        assert status(dump(app)) == "broken"  # an error stays until it is read


async def test_escape_does_one_thing_at_a_time(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2", "tab")
        go = threading.Event()

        def sweep(job: Job) -> None:
            while not go.wait(0.01):
                job.checkpoint()

        app.engine.submit("scoring", sweep, group="score")
        app.controller.say("broken", "bad")
        await pilot.press("escape")
        assert app.controller.state.message == "" and app.engine.running and app.view.current == 1  # type: ignore[attr-defined]
        await pilot.press("escape")
        await settle(app, pilot)
        assert app.controller.state.message == "stopped: scoring" and app.view.current == 1  # type: ignore[attr-defined]
        await pilot.press("escape")
        assert app.view.current == 0  # type: ignore[attr-defined]


async def test_nothing_is_promised_or_called_stopped_that_goes_on(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        go = threading.Event()
        app.engine.submit("loading torch", lambda job: go.wait(10), group="torch", priority=50)
        await asyncio.sleep(0.05)
        assert status(dump(app)) == "loading torch …"
        await pilot.press("escape")
        assert app.controller.state.message == ""
        go.set()
        await settle(app, pilot)


async def test_loading_can_be_stopped(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = story_app(story)
    load, hold = app.controller.session.load, [True]

    def slow(poll: object = None) -> object:
        while hold[0]:
            poll()  # type: ignore[operator]
        return load()

    monkeypatch.setattr(app.controller.session, "load", slow)
    async with app.run_test(size=(80, 24)) as pilot:
        while "loading weights" not in app.engine.running:
            await asyncio.sleep(0.02)
        assert "loading weights …  esc stops" in dump(app)
        await pilot.press("escape", "3")
        await settle(app, pilot)
        assert "loading was stopped" in dump(app)
        hold[0] = False
        await pilot.press("2", "enter")
        await settle(app, pilot)
        assert app.controller.state.ready and app.controller.state.problem == ""


async def test_asking_leaves_the_filter_alone(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3", "slash", *"w8", "enter", "i")
        assert "token" in status(dump(app)) and "w8" not in status(dump(app))
        await pilot.press("escape", "slash")
        assert status(dump(app)).startswith("/ w8")


async def test_what_runs_says_how_far_it_is_and_how_much_escape_stops(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        go = threading.Event()

        def sweep(job: Job) -> None:
            while not go.wait(0.01):
                job.checkpoint()

        state = app.controller.state
        assert state.scores is not None and state.samples is not None
        app.engine.submit("scoring", sweep, group="score")
        await asyncio.sleep(0.05)
        assert status(dump(app)) == "scoring: 24 of 24 …  esc stops it"
        app.engine.submit("reading ids and masks", sweep, group="survey", priority=5)
        await asyncio.sleep(0.05)
        assert status(dump(app)) == "reading ids and masks: 3 of 3 …  esc stops it and 1 more"
        app.engine.submit("drafting", sweep, group="cursor", priority=40)
        await asyncio.sleep(0.05)  # a moment's work is no news while long work waits behind it
        assert app.engine.running[-1] == "drafting" and status(dump(app)).startswith("reading ids and masks")
        app.engine.cancel("score", "survey")
        await asyncio.sleep(0.05)
        app.engine.submit("trees of all rows", sweep, group="lengths", priority=50)
        state.accept.progress["lengths"] = "row 7 of 90"
        await asyncio.sleep(0.05)
        assert status(dump(app)) == "trees of all rows: row 7 of 90 …  esc stops it"
        app.engine.cancel("lengths")
        app.engine.submit("running checkpoints", sweep, group="runs", priority=50)
        await asyncio.sleep(0.05)
        assert status(dump(app)) == "running checkpoints …  esc stops it"  # none is listed yet
        app.engine.cancel("runs")
        go.set()
        await settle(app, pilot)
