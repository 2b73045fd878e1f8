"""The Samples view: what is known of each file, sorting, marks, contradictions, and the source of the loss mask."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from eagle3_tui.app import InspectorApp
from eagle3_tui.screens.samples import RECORDINGS, SamplesView
from eagle3_tui.widgets.line_table import LineTable
from tests import tiny
from tests.eagle3_tui.screen import check_golden, dump, settle, story_app, write_story


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


def files(app: InspectorApp) -> LineTable:
    return app.view.query_one("#files", LineTable)


def names(app: InspectorApp) -> list[str]:
    """The files as they are listed now."""
    table = files(app)
    return [table.source.cells(i)[1][0] for i in range(len(table.source))]


def column(app: InspectorApp, title: str) -> list[str]:
    table = files(app)
    at = [c.title for c in table.columns].index(title)
    return [table.source.cells(i)[at][0] for i in range(len(table.source))]


async def test_worst_samples_come_first_once_they_are_scored(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2")
        await settle(app, pilot)
        listed = names(app)
        assert listed == ["data_1.pt", "data_2.pt", "data_10.pt"]
        assert column(app, "tokens") == ["25"] * 3 and "" not in column(app, "superv.")
        assert column(app, "step 0")[1:] == ["", ""]
        state = app.controller.state
        ordering, swept = state.ordering, state.scores
        await pilot.press("a")
        await settle(app, pilot)
        assert ordering is not None and "" not in column(app, "step 0") and state.scores is swept
        assert [len(found) for found in state.sample_scores.values()] == [24, 1, 1]
        pooled = [found[ordering] for found in state.sample_scores.values()]
        hits, rows = sum(one.hits for one in pooled), sum(one.total for one in pooled)
        assert f"3 samples pooled {100 * hits / rows:.1f} % ({hits}/{rows}), length" in dump(app)
        assert "fc=0,1,2, view trained, next_token, mask next, K 5, bonus counted" in dump(app)
        await pilot.press("A")
        await settle(app, pilot)
        assert state.scores is not swept
        scored = {p: list(s) for p, s in state.sample_scores.items()}
        assert len(scored) == 3 and all(len(found) == 24 for found in scored.values())

        def ratios() -> dict[str, float]:
            assert state.ordering is not None
            return {p.name: s[state.ordering].ratio or 0.0 for p, s in state.sample_scores.items()}

        # a random drafter is wrong nearly everywhere: take an ordering under which the samples differ
        differing = [o for o in state.orderings if len({s[o].hits for s in state.sample_scores.values()}) > 1]
        app.controller.choose_ordering(differing[0])
        await pilot.press("s")
        await settle(app, pilot)
        assert names(app) == sorted(listed, key=lambda n: ratios()[n]) and "worst first" in dump(app)
        await pilot.press("s")
        await settle(app, pilot)
        assert names(app) == sorted(listed, key=lambda n: -ratios()[n])
        before = names(app)
        for other in differing[1:]:  # another ordering has other scores
            app.controller.choose_ordering(other)
            await settle(app, pilot)
            assert names(app) == sorted(listed, key=lambda n: -ratios()[n])
            if names(app) != before:
                break
        else:
            raise AssertionError("every ordering ranks the samples alike")
        await pilot.press("m")  # other rows count: what was scored before says nothing any more
        await settle(app, pilot)
        assert app.controller.session.options.mask == "same" and len(state.sample_scores) == 1


async def test_a_broken_file_is_named_in_the_list(story: Path) -> None:
    tiny.write_truncated(story / "samples/data_3.pt", story / "samples/data_1.pt")
    (story / "samples/data_4.pt").write_bytes(b"")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2")
        await settle(app, pilot)
        assert "3 read" in dump(app) and "2 cannot be read (1 of them empty)" in dump(app)
        await pilot.press("j", "j")
        await settle(app, pilot)
        assert "truncated" in dump(app)
        await pilot.press("enter")
        await settle(app, pilot)
        state = app.controller.state
        assert state.message_kind == "bad" and state.sample is not None and state.sample.path.name == "data_1.pt"
        await pilot.press("escape", "a")
        await settle(app, pilot)
        assert "3 samples pooled" in dump(app) and "(2 skipped: " in dump(app)
        await pilot.press("A")
        await settle(app, pilot)
        assert state.scores is not None and len(state.scores.result.samples) == 3
        await pilot.press("4")
        await settle(app, pilot)
        assert "3 samples pooled (2 skipped" in dump(app)


async def test_a_contradiction_stands_on_every_view(story: Path) -> None:
    app = story_app(story, slots="2,embed,4,6")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        for view in "1234567890":
            await pilot.press(view)
            await settle(app, pilot)
            assert "! slot 0,1 in doubt" in dump(app).split("\n")[0]
        await pilot.press("2", "tab", "tab")
        await settle(app, pilot)
        check_golden("slots-contradicted-80x24", dump(app))
        assert "! contradicts the data" in dump(app)


async def test_two_recordings_are_compared_slot_by_slot(story: Path) -> None:
    weights = tiny.tiny_weights(1)
    sample = tiny.tiny_sample(2, weights)
    states = [sample.slots[:, i].clone() for i in (1, 2, 3, 0)]
    states[1][7:] += 1.0
    capture = {"input_ids": torch.tensor(sample.ids), "hidden_states": states, "loss_mask": torch.tensor(sample.mask)}
    torch.save(capture, story / "samples/served.pt")
    app = story_app(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await pilot.press("2")
        await settle(app, pilot)
        table = files(app)
        table.move_to_row(names(app).index("data_2.pt"))
        await pilot.press("space")
        await settle(app, pilot)
        assert table.source.cells(names(app).index("data_2.pt"))[0][0] == " *"
        table.move_to_row(names(app).index("served.pt"))
        await pilot.press("space")
        await settle(app, pilot)
        view, found = app.view, app.controller.state.comparison
        assert isinstance(view, SamplesView) and view.current == RECORDINGS and found is not None
        assert [m.best.ours for m in found.matches] == [1, 2, 3, 0]
        assert found.matches[1].best.first_differing == 7
        check_golden("recordings-120x40", dump(app))
        await pilot.press("escape")
        table.move_to_row(0)
        await pilot.press("space")
        table.move_to_row(1)
        await pilot.press("space")  # other tokens
        await settle(app, pilot)
        state = app.controller.state
        assert state.marked is None and state.comparison is found and state.message_kind == "bad"


async def test_a_file_of_several_samples_is_listed_as_all_of_them(story: Path) -> None:
    weights = tiny.tiny_weights(1)
    shutil.rmtree(story / "samples")
    (story / "samples").mkdir()
    texts = [tiny.tiny_sample(i, weights) for i in range(3)]
    records = [
        {
            "id": i,
            "input_ids": torch.tensor(t.ids),
            "hidden_state": t.slots[:, 3].clone(),
            "hidden_state_features": t.slots[:, :3].reshape(len(t.ids), -1).clone(),
        }
        for i, t in enumerate(texts)
    ]
    torch.save(records, story / "samples/many.pt")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2")
        await settle(app, pilot)
        assert names(app) == ["many.pt#0", "many.pt#1", "many.pt#2"]
        await pilot.press("j", "j", "enter")
        await settle(app, pilot)
        state = app.controller.state
        assert state.sample is not None and state.sample.path.name == "many.pt#2"
        assert state.sample.ids.tolist() == texts[2].ids
        await pilot.press("A")
        await settle(app, pilot)
        assert state.scores is not None and len(state.scores.result.samples) == 3 and len(state.sample_scores) == 3


async def test_where_the_loss_mask_comes_from(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2", "M")
        await settle(app, pilot)
        state, session = app.controller.state, app.controller.session
        assert session.options.supervised == "recorded" and state.message_kind == "bad"  # no chat, so no roles
        assert state.sample is not None and state.scores is not None and state.scores.complete
        await pilot.press("M")
        await settle(app, pilot)


async def test_a_sample_that_does_not_fit_is_named_in_the_list(story: Path) -> None:
    sizes = replace(tiny.SIZES, hidden=2 * tiny.SIZES.hidden)
    other = tiny.tiny_sample(5, tiny.tiny_weights(1, sizes), sizes)
    tiny.write_v1_sample(story / "samples/data_5.pt", other)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("2", "a")
        await settle(app, pilot)
        place = names(app).index("data_5.pt")
        assert "states are" in column(app, "about")[place] and column(app, "step 0")[place] == ""
        files(app).move_to_row(place)
        await settle(app, pilot)
        assert f"recorded states are {2 * tiny.SIZES.hidden} wide" in dump(app) and "3 samples pooled" in dump(app)
        await pilot.press("m")
        await settle(app, pilot)
        assert "states are" not in column(app, "about")[place]
