"""Scores while they fill in, and what may be said before they are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.errors import Cancelled
from drafter.results import ScoreResult
from eagle3_tui.app import InspectorApp
from eagle3_tui.screens.step_text import flat, tall
from eagle3_tui.state import Scores, scores_of
from eagle3_tui.widgets.line_table import LineTable
from tests.eagle3_tui.screen import dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


def partial(app: InspectorApp, done: int) -> Scores:
    """The pooled scores when `done` (sample, ordering) pairs are in."""
    found: list[Scores] = []

    def progress(result: ScoreResult) -> None:
        if result.done == done:
            found.append(scores_of(result, True))
            raise Cancelled("enough")

    samples = app.controller.state.samples
    assert samples is not None
    with pytest.raises(Cancelled):
        app.controller.session.score(samples.paths, app.controller.state.orderings, progress)
    return found[0]


async def test_rows_can_be_drawn_before_the_first_result(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4", "j")
        table = app.view.query_one(LineTable)
        app.controller.score_all()
        app.engine.cancel()
        for y in range(24):
            table.render_line(y)
        await pilot.press("j", "k")
        for view in "235":
            await pilot.press(view)
            await settle(app, pilot)
            state = app.controller.state
            kept = app.view.query(LineTable)
            state.forget_sample()
            for shown in kept:
                for y in range(24):
                    shown.render_line(y)
            app.controller.choose_sample(Path("samples/data_1.pt"))
            await settle(app, pilot)
        assert app.is_running


async def test_a_partial_sweep_is_ranked_on_shared_rows(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4")
        scores = partial(app, 30)
        state = app.controller.state
        state.scores = scores
        app._tell("score")
        await pilot.pause()
        table = app.view.query_one(LineTable)
        keys = [table.source.key(i) for i in range(table.line_count)]
        assert keys[0] == scores.best
        shared = min(c.row_hits.numel() for c in scores.result.scores.values())
        hits = [int(scores.result.scores[k].row_hits[:shared].sum()) for k in keys]  # type: ignore[index]
        assert hits == sorted(hits, reverse=True)
        shown = dump(app)
        assert "30 of 72 scored" in shown and " rows " in shown.split("\n")[2]
        assert not scores.complete and "! config" not in shown.split("\n")[-2]
        state.trained = None
        app._tell("ordering")
        assert "! config" not in dump(app).split("\n")[0]
        before = state.ordering
        await pilot.press("b")
        assert state.ordering == before and "30 of 72" in state.message


async def test_after_escape_the_table_says_how_far_it_came(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4")
        app.controller.state.scores = partial(app, 30)
        app.engine.submit("scoring", lambda job: [job.checkpoint() for _ in iter(int, 1)], group="score")
        await pilot.press("escape")
        await settle(app, pilot)
        assert "30 of 72 scored" in dump(app) and app.controller.state.message == "stopped: scoring"


async def test_the_conclusion_names_its_metric_and_the_detail_the_reason(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4")
        shown = dump(app)
        assert "next_token, step 0:" in shown and "0,1,2 is current: trained" in shown
        await pilot.press("V")
        assert "next_token, joint" in dump(app)
        await pilot.press("V")
        assert "next_token, conditional" in dump(app)


async def test_the_best_becomes_current_with_a_word(story: Path) -> None:
    (story / "output" / "0" / "config_speculators.json").unlink()
    (story / "output" / "1" / "config_speculators.json").unlink()
    app = story_app(story, slots=None)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert state.trained is None and state.scores is not None and state.ordering == state.scores.best
        assert state.message.startswith("fc = 3,0,2: best of all")


async def test_a_search_ends_with_the_ordering_it_was_for(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        row = app.controller.state.row
        app.action_ordering(1)  # before the engine could answer
        app.view.action_miss(1)  # type: ignore[attr-defined]
        app.action_ordering(1)
        await settle(app, pilot)
        assert app.controller.state.row == row


async def test_a_row_is_drafted_once(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        asked: list[int] = []
        step = app.controller.session.step

        def counting(at: int, *args: object, **options: object) -> object:
            asked.append(at)
            return step(at, *args, **options)  # type: ignore[arg-type]

        app.controller.session.step = counting  # type: ignore[method-assign, assignment]
        await pilot.press("3")
        await settle(app, pilot)
        assert len(asked) == 1
        await pilot.press("1", "3")
        await settle(app, pilot)
        assert len(asked) == 1


async def test_past_the_end_nothing_is_wrong(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3", "G", "k")
        await settle(app, pilot)
        step = app.controller.state.step
        assert step is not None and step.chain[-1].truth is None
        piece = app.controller.session.piece
        for lines in (flat(step, piece), tall(step, piece)):
            runs = [run for line in lines for run in line]
            past = [run for run in runs if run[0].lstrip(" 01234").startswith("- ")]
            assert all(look != "bad" for text, look in runs if "past the end" in text)
            assert all(look == "dim" for _, look in past)
        assert any("- " in run[0] for line in tall(step, piece) for run in line)


async def test_steps_are_counted_from_zero(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("3")
        await settle(app, pilot)
        assert "rejected at step 0 of 0..4" in dump(app)
