"""The app as a user drives it: every view's screen at two sizes, every key, and what goes wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eagle3_tui.app import VIEWS, InspectorApp
from eagle3_tui.widgets.line_table import LineTable
from tests import tiny
from tests.eagle3_tui.screen import check_golden, dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_screens(story: Path, size: tuple[int, int]) -> None:
    app = story_app(story)
    name = f"{size[0]}x{size[1]}"
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        for view in VIEWS[:-1]:
            app.action_view(view)
            await settle(app, pilot)
            check_golden(f"{view}-{name}", dump(app))
        await pilot.press("0")  # what stands in the log, and when, depends on how fast the machine is
        calls = {record.get("call") for record in app.controller.session.log.records}
        assert {"choose_checkpoint", "choose_sample", "load", "score"} <= calls and "digest" in dump(app)
        for view, panes in (("checkpoints", ("config", "tensors")), ("samples", ("text", "slots"))):
            app.action_view(view)
            for pane in panes:
                await pilot.press("tab")
                await settle(app, pilot)
                check_golden(f"{view}-{pane}-{name}", dump(app))
        app.action_view("checkpoints")
        await pilot.press("enter")
        await settle(app, pilot)
        app.action_view("orderings")
        await pilot.press("p")
        await settle(app, pilot)
        check_golden(f"orderings-plot-{name}", dump(app))


def shown_tokens(app: InspectorApp) -> str:
    return dump(app).split("\n")[0]


async def test_ordering_keys_change_the_row_at_once(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert (state.trained, state.configured) == ((0, 1, 2), (1, 2, 3))
        assert state.ordering == (0, 1, 2)
        await pilot.press("3")
        await settle(app, pilot)
        assert state.step is not None and state.step.ordering == (0, 1, 2)
        first = state.step.readout.predictions[0].logit
        await pilot.press("o")
        await settle(app, pilot)
        assert state.ordering == (1, 2, 3)
        assert state.step.ordering == (1, 2, 3) and state.step.readout.predictions[0].logit != first
        assert "fc=1,2,3 [2,4,6]" in shown_tokens(app)
        await pilot.press("O")
        assert state.ordering == (0, 1, 2)
        await pilot.press("c")
        assert state.ordering == (1, 2, 3)
        await pilot.press("t")
        assert state.ordering == (0, 1, 2)
        await pilot.press("b")
        assert state.scores is not None and state.ordering == state.scores.best


async def test_orderings_view_makes_one_current(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4", "G")
        table = app.view.query_one(LineTable)
        last = table.key
        assert last != app.controller.state.ordering
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.controller.state.ordering == last
        order = [table.source.key(i) for i in range(table.line_count)]
        await pilot.press("s", "s")
        assert [table.source.key(i) for i in range(table.line_count)] == sorted(order)
        before = dump(app)
        await pilot.press("V")
        assert "joint" in dump(app) and dump(app) != before
        await pilot.press("a")
        await settle(app, pilot)
        scores = app.controller.state.scores
        assert scores is not None and scores.pooled and len(scores.result.samples) == 3


async def test_step_keys(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        state = app.controller.state
        start = state.row
        assert state.counted[start] and not any(state.counted[:start])
        await pilot.press("j")
        await settle(app, pilot)
        assert state.row == start + 1 and state.step is not None and state.step.at == start + 3
        await pilot.press("n")
        await settle(app, pilot)
        assert state.ordering is not None
        readout = state.rows[state.ordering][state.row]
        assert readout.hit is False
        await pilot.press("G")
        await settle(app, pilot)
        assert state.sample is not None and state.row == state.sample.length - 2
        assert "past the end" in dump(app)
        await pilot.press("i", "5", "enter")
        await settle(app, pilot)
        assert state.row == 3
        await pilot.press("i", "9", "9", "9", "enter")
        assert "expected 2.." in dump(app)


async def test_choosing_another_checkpoint_and_sample(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert state.chosen is not None and state.chosen.name == "1"
        await pilot.press("k", "enter")
        await settle(app, pilot)
        assert state.chosen.name == "0" and state.ready
        await pilot.press("2", "j", "j", "enter")
        await settle(app, pilot)
        assert state.sample is not None and state.sample.path.name == "data_10.pt"
        assert state.scores is not None and state.scores.result.done == 24
        await pilot.press("slash", *"_2", "enter")
        assert app.view.query_one("#files", LineTable).line_count == 1
        await pilot.press("escape")
        assert app.view.query_one("#files", LineTable).line_count == 3


async def test_statistics_on_demand(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("tab", "tab", "j", "enter")
        await settle(app, pilot)
        found = app.controller.state.statistics
        assert found is not None and sum(found.histogram) == found.count
        assert "NaN 0" in dump(app) and "█" in dump(app)
        await pilot.press("escape")
        assert "█" not in dump(app)


async def test_export_and_copy_say_where(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("e")
        await settle(app, pilot)
        exported = list((story / "state" / "exports").glob("*.md"))
        assert len(exported) == 1 and "exported" in app.controller.state.message
        assert "## Scores" in exported[0].read_text(encoding="utf-8")
        await pilot.press("y")
        assert (story / "state" / "copied.txt").exists() and "copied" in app.controller.state.message


async def test_help_palette_and_quit(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3", "question_mark")
        assert "Next miss" in dump(app)
        await asyncio.sleep(0.6)  # the status line is looked after while the help covers it
        app.controller.say("news")
        await pilot.press("q")
        assert app.is_running and app.view.id == "step"
        await pilot.press("ctrl+c")
    assert app.return_value == 0


@pytest.mark.parametrize("size", [(10, 5), (1, 1), (40, 12), (300, 80)])
async def test_any_size(story: Path, size: tuple[int, int]) -> None:
    app = story_app(story)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        for key in "1234567890":
            await pilot.press(key, "j")
        await settle(app, pilot)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.is_running


async def test_bad_samples_leave_the_app_alive(story: Path) -> None:
    samples = story / "samples"
    marker = story / "marker"
    tiny.write_pickle_with_code(samples / "data_3.pt", marker)
    tiny.write_truncated(samples / "data_4.pt", samples / "data_1.pt")
    tiny.write_stride_bomb(samples / "data_5.pt")
    (samples / "[red]data.pt").write_text("no sample")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        for name in ("data_3.pt", "data_4.pt", "data_5.pt", "[red]data.pt"):
            app.controller.choose_sample(samples / name)
            await settle(app, pilot)
            assert app.controller.state.message_kind == "bad", name
        app.controller.choose_sample(samples / "data_2.pt")
        await settle(app, pilot)
        assert app.controller.state.ready and app.controller.state.scores is not None
        assert not marker.exists()


async def test_a_broken_checkpoint_does_not_hide_the_others(story: Path) -> None:
    weights = story / "output" / "1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert state.chosen is not None and state.chosen.name == "0" and state.ready and state.scores is not None
        broken = next(f for f in state.found if f.name == "1")
        assert broken.state and broken.state[:24] in dump(app)
        app.controller.choose_checkpoint(broken)
        await settle(app, pilot)
        assert state.message_kind == "bad" and state.chosen.name == "0"
        app.controller.choose_checkpoint(state.found[0])
        await settle(app, pilot)
        assert state.ready and state.scores is not None


async def test_hostile_names_are_text(story: Path) -> None:
    weights = tiny.tiny_weights(1)
    weights["[/foo]\x1b[2J\u202ename.weight"] = weights["norm.weight"].clone()
    tiny.write_flat(story / "output" / "2", weights)
    app = story_app(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        app.view.query_one("#runs", LineTable).action_last()
        await pilot.press("enter")
        await settle(app, pilot)
        await pilot.press("tab", "tab")
        await settle(app, pilot)
        screen = dump(app)
        assert "[/foo]\\x1b[2J\\u202ename" in screen
        assert "\x1b" not in screen and "\u202e" not in screen


async def test_escape_stops_a_sweep(story: Path) -> None:
    app = story_app(story, depth=8)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        app.controller.score_all()
        await pilot.press("escape")
        await settle(app, pilot)
        assert app.controller.state.message == "stopped: scoring"
        app.controller.score_one()
        await settle(app, pilot)
        scores = app.controller.state.scores
        assert scores is not None and scores.result.done == scores.result.planned


async def test_nothing_to_show_ends_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    app = story_app(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
    assert app.return_value == 2 and "the folder is empty" in app.farewell


async def test_a_sample_that_does_not_fit_changes_nothing(story: Path) -> None:
    two = tiny.tiny_sample(5, tiny.tiny_weights(1), depths=(0, 2))
    tiny.write_v1_sample(story / "samples" / "data_7.pt", two)
    app = story_app(story, slots=None)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        before = state.sample
        app.controller.choose_sample(story / "samples" / "data_7.pt")
        await settle(app, pilot)
        assert "2 recorded states" in state.message and state.sample is before
        assert app.controller.session.sample.path.name == "data_1.pt"
        await pilot.press("3", "j")
        await settle(app, pilot)
        assert state.step is not None and state.step.at == state.row + 2


async def test_a_served_view_is_named_on_every_screen(story: Path) -> None:
    app = story_app(story, view="sglang@0.5.9")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        for key in "1234567890":
            await pilot.press(key)
            await settle(app, pilot)
            assert "  as sglang@0.5.9" in dump(app).split("\n")[0]
        await pilot.press("5")
        assert "newer than what was read" not in dump(app)
        assert "as trained" not in "\n".join(dump(app).split("\n")[-5:-2]) and "as sglang@0.5.9 " in dump(app)
        await pilot.press("4")
        assert "this sample, view sglang@0.5.9, mask next" in dump(app)


async def test_what_a_served_view_assumes_is_said(story: Path) -> None:
    app = story_app(story, view="sglang@9")
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        assert app.controller.state.message == "sglang@9: newer than what was read: the rules of sglang 0.5.23"
        await pilot.press("escape", "5")
        await settle(app, pilot)
        assert dump(app).split("\n")[-3] == "sglang@9: newer than what was read: the rules of sglang 0.5.23"
