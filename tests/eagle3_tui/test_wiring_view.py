"""The Wiring view: every switch with its score, put in force and given back."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from drafter.wiring import SWITCHES
from eagle3_tui.app import InspectorApp
from eagle3_tui.controls.wiring import NOW
from eagle3_tui.screens.wiring import _WHAT, Choice, WiringView
from eagle3_tui.widgets.line_table import LineTable
from tests.eagle3_tui.screen import check_golden, dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


async def test_every_switch_is_scored_and_can_be_put_in_force(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("5")
        await settle(app, pilot)
        state, table = app.controller.state, app.view.query_one(LineTable)
        check_golden("wiring-80x24", dump(app))
        assert set(state.trained_switches) == set(SWITCHES) and state.switches == state.trained_switches
        choices = [c for i in range(table.line_count) if isinstance(c := table.source.key(i), Choice)]
        assert all(((c.switch, c.value) in state.tries.found) == bool(c.value) for c in choices)
        absent = [c.switch for c in choices if not c.value]
        assert absent == [c.switch for c in choices[-len(absent) :]] and {"fc_bias", "qk_norm"} <= set(absent)
        assert not set(absent) & {c.switch for c in choices if c.value}
        ordering = state.ordering
        assert state.tries.found["", "trained"].accuracy == state.tries.found["", "now"].accuracy  # type: ignore[union-attr]
        table.move_to_row(choices.index(Choice("norm_before_residual", "off")))
        alone = state.tries.found["norm_before_residual", "off"]
        await pilot.press("enter")
        await settle(app, pilot)
        assert state.switches["norm_before_residual"] == "off" and state.ordering == ordering
        assert state.tries.found["", "now"].lengths == alone.lengths  # type: ignore[union-attr]
        assert "! 1 switched" in dump(app).split("\n")[0]
        assert ordering is not None and state.scores is not None
        assert state.scores.result.scores[ordering].accuracy == alone.accuracy  # type: ignore[union-attr]
        await pilot.press("3")
        await settle(app, pilot)
        assert state.step is not None
        await pilot.press("5", "x")
        await settle(app, pilot)
        assert state.switches == state.trained_switches and "switched" not in dump(app).split("\n")[0]


def test_every_switch_is_said_in_words() -> None:
    assert set(_WHAT) == set(SWITCHES)


async def test_a_base_is_asked_for(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("5")
        await settle(app, pilot)
        view = app.view
        assert isinstance(view, WiringView)
        choice = Choice("rope_base", app.controller.state.switches["rope_base"])
        table = view.table()
        table.move_to_row([table.source.key(i) for i in range(table.line_count)].index(choice))
        await pilot.press("enter", *"777", "enter")
        await settle(app, pilot)
        assert app.controller.state.switches["rope_base"] == "777"
        table.move_to_row([table.source.key(i) for i in range(table.line_count)].index(Choice("rope_base", "777")))
        await pilot.press("enter", "x", "enter")
        await settle(app, pilot)
        assert app.controller.state.message_kind == "bad" and app.controller.state.switches["rope_base"] == "777"


def tries_of(app: InspectorApp) -> list[str]:
    """The calls of the log since the app runs, in order, without what asks only."""
    return [str(r.get("call")) for r in app.controller.session.log.records if r.get("call") in ("try_switch", "score")]


async def test_a_value_in_force_is_not_scored_twice(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("5")
        await settle(app, pilot)
        state, control = app.controller.state, app.controller.wiring
        in_force = [(s, v) for s, v in control.pairs() if state.switches[s] == v]
        now = state.tries.found[NOW]
        assert len(in_force) > 5 and all(state.tries.found[pair] is now for pair in in_force)
        assert tries_of(app).count("try_switch") == len(control.pairs()) - len(in_force)


async def test_what_another_view_needs_waits_for_one_try_at_most(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        before = tries_of(app)
        gate, started = threading.Event(), threading.Event()
        score_wiring = app.controller.session.score_wiring

        def held(*args: object, **options: object) -> object:
            started.set()
            assert gate.wait(10)
            return score_wiring(*args, **options)  # type: ignore[arg-type]

        app.controller.session.score_wiring = held  # type: ignore[assignment, method-assign]
        await pilot.press("5")
        assert started.wait(10)
        await pilot.press("4", "r")
        gate.set()
        await settle(app, pilot)
        calls = tries_of(app)[len(before) :]
        assert calls[0] == "score" and calls.count("try_switch") > 5
        await pilot.press("5", "4", "r")
        assert app.engine.hastened == {"score"}


async def test_escape_stops_the_tries_and_r_takes_them_up(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        tries, try_switch = app.controller.state.tries, app.controller.session.try_switch
        enough = threading.Event()

        def slow(*args: object, **options: object) -> object:
            if len(tries.found) > 25:
                enough.set()
                while True:
                    options["poll"]()  # type: ignore[operator]
                    time.sleep(0.01)
            return try_switch(*args, **options)  # type: ignore[arg-type]

        app.controller.session.try_switch = slow  # type: ignore[assignment, method-assign]
        await pilot.press("5")
        for _ in range(500):
            await pilot.pause(0.02)
            if enough.is_set():
                break
        done = tries.planned - tries.missing
        app._draw_status()
        assert f"trying switches: {done} of {tries.planned} …  esc stops it" in dump(app).split("\n")[-2]
        await pilot.press("escape")
        await settle(app, pilot)
        assert tries.stopped and tries.missing and f"stopped after {done} of {tries.planned}: r scores" in dump(app)
        await pilot.press("4", "5", "j")
        await settle(app, pilot)
        assert tries.missing == tries.planned - done  # nothing begins again by itself
        app.controller.session.try_switch = try_switch  # type: ignore[method-assign]
        await pilot.press("r")
        await settle(app, pilot)
        assert not tries.missing and not tries.stopped and "stopped" not in dump(app)


async def test_the_last_lines_say_which_numbers_these_are(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("5")
        await settle(app, pilot)
        said = dump(app).split("\n")[-3]
        assert said == "fc=0,1,2, view trained, next_token, mask next, K 5, bonus counted, data_1.pt"
        app.controller.set_switch("norm_output", "on")
        await settle(app, pilot)
        await pilot.press("m")
        await settle(app, pilot)
        assert "view trained with 1 switched, next_token, mask same" in dump(app).split("\n")[-3]


async def test_the_worst_values_come_first(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("5")
        await settle(app, pilot)
        table, found = app.view.query_one(LineTable), app.controller.state.tries.found

        def ratios() -> list[float]:
            keys = [c for i in range(table.line_count) if isinstance(c := table.source.key(i), Choice)]
            known = [found[c.switch, c.value] for c in keys if c.value]
            return [t.accuracy.ratio or 0.0 for t in known if not isinstance(t, str)]

        listed = ratios()
        await pilot.press("s")
        assert ratios() == sorted(listed, reverse=True) != listed
        await pilot.press("s")
        assert ratios() == sorted(listed) and "sorted worst first" in dump(app)
        await pilot.press("s")
        assert ratios() == listed


async def test_enter_on_a_switch_that_does_not_apply_changes_nothing(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("5")
        await settle(app, pilot)
        await pilot.press("G", "enter")
        await settle(app, pilot)
        state = app.controller.state
        assert (
            state.switches == state.trained_switches
            and state.message == "fc: does not apply: fc takes more than the drafter is wide"
        )
