"""The Wiring view: every switch with its score, put in force and given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.wiring import SWITCHES
from eagle3_tui.screens.wiring import Choice, WiringView
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
        choices = [table.source.key(i) for i in range(table.line_count)]
        assert all((c.switch, c.value) in state.tried for c in choices if isinstance(c, Choice))
        ordering = state.ordering
        assert state.tried["", "trained"].accuracy == state.tried["", "now"].accuracy  # type: ignore[union-attr]
        table.move_to_row(choices.index(Choice("norm_before_residual", "off")))
        alone = state.tried["norm_before_residual", "off"]
        await pilot.press("enter")
        await settle(app, pilot)
        assert state.switches["norm_before_residual"] == "off" and state.ordering == ordering
        assert state.tried["", "now"].lengths == alone.lengths  # type: ignore[union-attr]
        assert "! 1 switched" in dump(app).split("\n")[0]
        assert ordering is not None and state.scores is not None
        assert state.scores.result.scores[ordering].accuracy == alone.accuracy  # type: ignore[union-attr]
        await pilot.press("3")
        await settle(app, pilot)
        assert state.step is not None
        await pilot.press("5", "x")
        await settle(app, pilot)
        assert state.switches == state.trained_switches and "switched" not in dump(app).split("\n")[0]


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
