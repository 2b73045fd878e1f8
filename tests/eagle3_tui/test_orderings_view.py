"""The Orderings view over several samples: groups, accuracy by the row of the text, and recordings of many layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from eagle3_tui.screens.orderings import bucket_words
from eagle3_tui.widgets.plot import PlotView
from tests import tiny
from tests.eagle3_tui.screen import dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


async def test_groups_are_told_apart(story: Path) -> None:
    app = story_app(story, groups=("train=*data_1*", "held-out=*data_2.pt"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4", "a")
        await settle(app, pilot)
        scores = app.controller.state.scores
        assert scores is not None and {g: s.samples for g, s in scores.result.groups.items()} == {
            "train": 2,
            "held-out": 1,
        }
        line = next(line for line in dump(app).split("\n") if line.startswith("groups: "))
        assert "train" in line and "held-out" in line and "% of" in line
        await pilot.press("2")
        await settle(app, pilot)
        assert "held-out" in dump(app)


async def test_accuracy_by_the_row_of_the_text(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4", "p")
        await settle(app, pilot)
        plot = app.view.query_one(PlotView)
        assert plot.has_class("shown") and "draft step" in dump(app)
        await pilot.press("p")
        await settle(app, pilot)
        assert plot.has_class("shown") and "by row of the text" in dump(app) and "0: 0-31" in dump(app)
        await pilot.press("p")
        await settle(app, pilot)
        assert not plot.has_class("shown")
    assert bucket_words(3) == "rows 0: 0-31, 1: 32-63, 2: 64-127"


async def test_a_recording_of_many_layers_is_scored_near_what_is_known(story: Path) -> None:
    """Twelve states are 1,320 orderings: those near the configured and the trained one are scored, and that is said."""
    weights = tiny.tiny_weights(1)
    sample = tiny.tiny_sample(1, weights)
    known = [sample.slots[:, i].clone() for i in range(4)]
    states = known + [torch.randn(25, 32).bfloat16() for _ in range(8)]
    record = {"input_ids": torch.tensor(sample.ids), "hidden_states": states, "loss_mask": torch.tensor(sample.mask)}
    torch.save(record, story / "samples/data_0.pt")
    app = story_app(story, slots="embed,2,4,6" + ",?" * 8)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        state = app.controller.state
        assert state.sample is not None and len(state.sample.slots) == 12
        assert {(0, 1, 2), (1, 2, 3), (2, 1, 0), (0, 1, 11)} <= set(state.orderings) and len(state.orderings) < 504
        assert state.scores is not None and state.scores.complete
        await pilot.press("4")
        await settle(app, pilot)
        assert f"{len(state.orderings)} of 1320 orderings" in dump(app)


async def test_an_ordering_of_many_inputs_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = replace(tiny.SIZES, states=5)
    weights = tiny.tiny_weights(1, sizes)
    tiny.write_flat(tmp_path / "output/0", weights, sizes, norm_before_residual=True)
    tiny.write_target(tmp_path / "target", weights, sizes, tokenizer=True)
    sample = tiny.tiny_sample(1, weights, sizes, depths=(0, 2, 4, 6, 7))
    tiny.write_v1_sample(tmp_path / "samples/data_1.pt", sample)
    app = story_app(tmp_path, slots="embed,2,4,6,7")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("4")
        await settle(app, pilot)
        state = app.controller.state
        assert len(state.orderings) == 120
        first = dump(app).split("\n")[3:18]
        assert all(line[5:14].count(",") == 4 and line[14] == " " for line in first), first
        assert "what they" in dump(app)
