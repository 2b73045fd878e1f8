"""What cannot be done is said, stays said where it matters, and ends the app only where the options are to blame."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eagle3_tui.controller import Controller
from tests import tiny
from tests.eagle3_tui.pty_harness import Terminal
from tests.eagle3_tui.screen import dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"samples": (Path("nowhere"),)}, "no such file or folder; in nowhere"),
        ({"target": Path("nowhere")}, "no such target folder"),
        ({"tokenizer": Path("nowhere")}, "no such tokenizer"),
        ({"view": "sglang"}, "would not load"),
        ({"orderings": ("0,1,9",)}, "slot 9"),
        ({"device": "cuda:7"}, "the device 'cuda:7'"),
        ({"device": "tpu"}, "the device 'tpu'"),
    ],
)
async def test_options_that_cannot_be_meant_end_the_app(story: Path, options: dict[str, object], said: str) -> None:
    if "view" in options:
        config = story / "output/1/config.json"
        config.write_text(config.read_text().replace('"num_hidden_layers": 1', '"num_hidden_layers": 2'))
    app = story_app(story, **options)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
    assert app.return_value == 2 and said in app.farewell


async def test_a_bad_sample_among_others_ends_nothing(story: Path) -> None:
    tiny.write_truncated(story / "samples" / "data_0.pt", story / "samples" / "data_1.pt")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert state.ready and state.sample is not None and state.sample.path.name == "data_1.pt"
        assert state.message_kind == "warn" and "data_0.pt" in state.message and state.problem == ""
        await pilot.press("3")
        assert "data_0.pt" not in dump(app).split("\n")[0]


async def test_where_no_sample_can_be_opened_that_stays_on_screen(story: Path) -> None:
    for path in (story / "samples").iterdir():
        path.write_bytes(path.read_bytes()[:-200])
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert state.message_kind == "bad" and "data_1.pt" in state.problem
        for view in "2345":
            await pilot.press(view)
            await settle(app, pilot)
            assert "data_1.pt" in dump(app), view
        tiny.write_v1_sample(story / "samples/data_2.pt", tiny.tiny_sample(2, tiny.tiny_weights(1)))
        await pilot.press("2", "j", "enter")
        await settle(app, pilot)
        assert state.ready and state.problem == "" and state.sample is not None
        await pilot.press("3")
        assert "data_1.pt" not in dump(app)


async def test_what_stands_in_the_way_stays_on_screen(story: Path) -> None:
    """No weights: the refusal is in every view that cannot show anything, until something can be shown."""
    tiny.write_flat(story / "output" / "2", tiny.tiny_weights(1))
    (story / "output" / "2" / "model.safetensors").unlink()
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert state.placement
        bare = next(found for found in state.found if found.name == "2")
        app.controller.choose_checkpoint(bare)
        await settle(app, pilot)
        assert not state.ready and state.problem and state.placement == "" and "cpu" not in dump(app).split("\n")[0]
        for view in "345":
            await pilot.press(view)
            await settle(app, pilot)
            shown = dump(app)
            assert state.problem[:30] in shown, view
            assert "not loaded yet" not in shown and "not begun" not in shown
        app.controller.choose_checkpoint(state.found[0])
        await settle(app, pilot)
        assert state.ready and state.problem == ""


async def test_a_refused_choice_leaves_the_work_going(story: Path) -> None:
    tiny.write_truncated(story / "samples" / "data_3.pt", story / "samples" / "data_1.pt")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        app.controller.score_one()
        app.controller.choose_sample(story / "samples" / "data_3.pt")
        await settle(app, pilot)
        state = app.controller.state
        assert state.message_kind == "bad" and state.ready and state.scores is not None
        assert state.scores.result.done == state.scores.result.planned
        await pilot.press("3", "j")
        await settle(app, pilot)
        assert state.step is not None and state.step.at == state.row + 2


async def test_a_refused_switch_leaves_the_work_going(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        app.controller.score_one()
        app.controller.set_switch("rope_base", "x")
        await settle(app, pilot)
        state = app.controller.state
        assert state.message_kind == "bad" and state.scores is not None and state.scores.complete


async def test_a_switch_that_stands_in_the_way_can_be_given_back(story: Path) -> None:
    app = story_app(story, switches=(("rope_type", "linear"),))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert not state.ready or state.scores is None
        await pilot.press("5", "x")
        await settle(app, pilot)
        assert state.ready and state.scores is not None and state.trained_switches == state.switches


async def test_a_sample_asked_for_while_torch_loads_is_opened(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = Controller._torch_ready

    def chosen_first(self: Controller) -> None:
        self.choose_sample(Path("samples/data_10.pt"))
        ready(self)

    monkeypatch.setattr(Controller, "_torch_ready", chosen_first)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        sample = app.controller.state.sample
        assert sample is not None and sample.path.name == "data_10.pt"


CRASH = """
import sys
from pathlib import Path
from drafter.session import Options
from eagle3_tui import app
from eagle3_tui.ui_settings import UiSettings

def action_redraw(self):
    raise ZeroDivisionError("on purpose")

app.InspectorApp.action_redraw = action_redraw
code = app.run_app(Options(Path(sys.argv[1])), Path(sys.argv[2]), UiSettings(False, True, ["eagle3-tui"]))
sys.exit(code)
"""


def test_a_crash_is_said_and_logged(story: Path) -> None:
    log, state = story / "session.jsonl", story / "state"
    command = [sys.executable, "-c", CRASH, str(story / "output"), str(log)]
    with Terminal(command, env={"XDG_STATE_HOME": str(state)}) as terminal:
        terminal.read_until(b"enter open")
        terminal.read(quiet=0.3)
        terminal.send(b"\x0c")
        assert terminal.wait() == 1
        terminal.read()
    assert b"ZeroDivisionError: on purpose; unexpected" in terminal.written
    assert b"stderr.log" in terminal.written and b"session.jsonl" in terminal.written
    assert "on purpose" in log.read_text(encoding="utf-8")
