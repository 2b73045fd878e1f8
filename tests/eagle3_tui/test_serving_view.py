"""The Serving view: served views, flags, a server's log and speeds; its numbers are those of the Session."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import drafter.serving.view_scores as view_scores
from drafter.serving.effective import effective_json
from drafter.serving.expect import curve_length
from drafter.serving.log_file import log_lines
from drafter.serving.offline import view_of
from drafter.serving.server_log import read_log
from drafter.serving.verdict import TRAINED, Offline, verdict
from drafter.session import Session
from drafter.views import views_json
from eagle3_tui.app import InspectorApp
from eagle3_tui.demo import demo_options
from eagle3_tui.screens import serving_expect, serving_flags, serving_numbers
from eagle3_tui.screens.serving import EXPECT, FLAGS, NUMBERS, VIEWS, ServingView
from eagle3_tui.screens.serving_offline import served
from eagle3_tui.widgets.filter_input import Line
from eagle3_tui.widgets.line_table import LineTable
from eagle3_tui.widgets.plot import PlotView
from tests import tiny
from tests.eagle3_tui.screen import answer, check_golden, dump, settle, story_app, write_story

SECRET = "sk-not-for-the-log"  # noqa: S105
LINE = (
    "python -m sglang.launch_server --model-path /m --speculative-algorithm EAGLE3 --speculative-draft-model-path /d "
    f"--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 16 --api-key {SECRET}"
)
DECODE = (
    "[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 5, token usage: 0.00, accept len: 1.90, accept rate: "
    "0.95, cuda graph: True, gen throughput (token/s): 46.70, #queue-req: 0\n"
)
VLLM = (
    "INFO 10-26 12:36:16 [loggers.py:127] Engine 000: Avg generation throughput: 60.0 tokens/s, Running: 1 reqs\n"
    "INFO 10-26 12:36:16 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.40, Accepted: 140 tokens, "
    "Drafted: 300 tokens, Per-position acceptance rate: 0.700, 0.400, 0.300, Avg Draft acceptance rate: 46.7%\n"
)


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every score of a view takes long enough to be seen on its way."""
    quick = view_scores.score_one

    def score(*args: Any) -> Any:
        time.sleep(0.1)
        return quick(*args)

    monkeypatch.setattr(view_scores, "score_one", score)


def demo_app(folder: Path) -> InspectorApp:
    """The drafter that ships: good as trained, and its config names the layers one state too late."""
    return InspectorApp(Session(replace(demo_options(), device="cpu")), state_folder=folder / "state")


async def open_view(app: InspectorApp, pilot: Any) -> ServingView:
    await settle(app, pilot)
    await pilot.press("7")
    await settle(app, pilot)
    assert isinstance(app.view, ServingView)
    return app.view


async def until_scored(app: InspectorApp, pilot: Any, least: int) -> None:
    """Wait until the views are on their way."""
    for _ in range(500):
        await pilot.pause(0.02)
        serving = app.controller.state.serving
        if serving.views is not None and serving.done >= least:
            return
    raise AssertionError("no progress")


def texts(app: InspectorApp, name: str) -> list[list[str]]:
    table = app.view.query_one(f"#serving-{name}", LineTable)
    return [[text for text, _ in table.source.cells(i)] for i in range(len(table.source))]


def calls(app: InspectorApp) -> list[str]:
    return [record["call"] for record in app.controller.session.log.records if record["record"] == "call"]


# ---------------------------------------------------------------------- served views


async def test_views_are_scored_once_somebody_looks_and_are_those_of_the_session(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert "views" not in calls(app) and app.controller.state.serving.views is None
        await open_view(app, pilot)
        assert calls(app).count("views") == 1
        session, state = app.controller.session, app.controller.state
        assert state.sample is not None
        wanted = views_json(session.views([state.sample.path]))
        assert state.serving.views == wanted and state.serving.done == state.serving.planned
        shown = texts(app, "views")
        assert [row[1] for row in shown if not row[1].startswith(" ")][1:] == [v["name"] for v in wanted["views"]]
        trained = wanted["trained"]
        accuracy, lengths = trained["accuracy"], trained["accept_length"]
        assert shown[0][2:6] == [
            "0,1,2",
            f"{100 * accuracy['hits'] / accuracy['total']:.1f}",
            f"{lengths['mean']:.2f}",
            f"{lengths['walk']['length']:.2f}",
        ]
        check_golden("serving-views-80x24", dump(app))
        await pilot.press("1", "7")
        await settle(app, pilot)
        assert calls(app).count("views") == 2  # the one of this test


async def test_a_wide_screen_shows_the_views_beside_another_pane(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_view(app, pilot)
        await answer(app, pilot, "f", LINE)
        await answer(app, pilot, "w", "90 46.7@1.9")
        check_golden("serving-expect-120x40", dump(app))


async def test_enter_opens_the_differences_of_a_view_and_escape_closes_them(tmp_path: Path) -> None:
    app = demo_app(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        closed = len(texts(app, "views"))
        await pilot.press("j", "enter")
        await settle(app, pilot)
        views = app.controller.state.serving.views
        assert views is not None
        differences = views["views"][0]["differences"]
        opened = texts(app, "views")
        assert len(opened) == closed + len(differences) > closed
        names = [row[1].strip() for row in opened]
        at = names.index("norm_before_residual")
        assert opened[at][0] == "!" and opened[at][-1] == "costs: on -> off"
        table = view.query_one("#serving-views", LineTable)
        table.move_to_row(at)
        await settle(app, pilot)
        said = " ".join("".join(text for text, _ in line) for line in view.detail.lines)
        one = next(d for d in differences if d["name"] == "norm_before_residual")
        hits, total = one["together"]["accuracy"].values()
        assert opened[at][3] == f"{100 * hits / total:.1f}"
        assert f"{one['name']}: {one['trained']} -> {one['served']}" in said and f"cure: {one['cure']}"[:60] in said
        await pilot.press("enter")  # on a difference: closes its view, the cursor on it
        await settle(app, pilot)
        assert len(texts(app, "views")) == closed and table.row == 1
        await pilot.press("enter", "escape")
        await settle(app, pilot)
        assert len(texts(app, "views")) == closed


async def test_escape_stops_the_views_and_keeps_what_is_there(story: Path, slow: None) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("7")
        await until_scored(app, pilot, 1)
        assert any(row[-1] == "…" for row in texts(app, "views"))
        await pilot.press("escape")
        await settle(app, pilot)
        state = app.controller.state
        assert state.message == "stopped: scoring served views" and state.serving.views is not None
        assert 0 < state.serving.done < state.serving.planned
        assert any(row[-1] == "stopped" for row in texts(app, "views"))
        assert f"stopped: {state.serving.done} of {state.serving.planned} scored" in dump(app)
        await pilot.press("1", "7")
        await settle(app, pilot)
        assert state.serving.done < state.serving.planned  # what was stopped does not begin by itself
        await pilot.press("r")
        await settle(app, pilot)
        assert state.serving.done == state.serving.planned
        assert not any(row[-1] in ("stopped", "…") for row in texts(app, "views"))


async def test_all_samples_are_pooled(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await pilot.press("a")
        await settle(app, pilot)
        session, state = app.controller.session, app.controller.state
        assert state.samples is not None
        assert state.serving.views == views_json(session.views(state.samples.paths))
        assert state.serving.views["samples"] == 3 and "3 samples pooled, mask next" in dump(app)


@pytest.mark.parametrize("change", ["sample", "mask", "checkpoint"])
async def test_views_follow_what_is_open_even_while_they_run(story: Path, slow: None, change: str) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("7")
        await until_scored(app, pilot, 1)
        controller, state = app.controller, app.controller.state
        if change == "sample":
            assert state.samples is not None
            controller.choose_sample(state.samples.paths[2])
        elif change == "mask":
            await pilot.press("m")
        else:
            assert state.chosen is not None
            controller.choose_checkpoint(next(f for f in state.found if f != state.chosen))
        await settle(app, pilot)
        assert state.sample is not None and state.serving.views is not None
        assert state.serving.views == views_json(controller.session.views([state.sample.path]))
        if change == "mask":
            assert state.serving.views["mask"] == "same"
        else:
            wanted = "data_10.pt" if change == "sample" else "data_1.pt"
            assert state.sample.path.name == wanted


async def test_what_stands_in_the_way_is_said(story: Path) -> None:
    for path in (story / "samples").iterdir():
        path.write_bytes(b"")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        state = app.controller.state
        assert state.problem and state.problem[:40] in dump(app).split("\n")[4] and state.serving.views is None
        await answer(app, pilot, "f", LINE)  # what needs no sample works
        assert state.serving.made is not None


async def test_a_refusal_of_the_views_stands_in_the_table(story: Path) -> None:
    app = story_app(story, slots="?,?,?,?")
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        state = app.controller.state
        assert state.serving.views is None and "no trained ordering" in state.serving.views_problem
        assert "no trained ordering" in dump(app).split("\n")[4]
        count = len(app.controller.session.log.records)
        await pilot.press("1", "7")
        await settle(app, pilot)
        assert len(app.controller.session.log.records) == count  # asked once, not at every look


def test_a_version_between_two_rows_is_served_as_the_older_one() -> None:
    rows = [["sglang@0.5.9", "sglang@0.5.10"], ["sglang@0.5.11"], ["sglang@0.5.12", "sglang@0.5.23"], ["vllm@0.33.0"]]
    views = {"views": [{"versions": versions} for versions in rows]}
    found = {
        text: view_of(views, text) for text in ("sglang@0.5.10.post1", "sglang@0.5.14", "sglang@0.5.6", "vllm@0.40.0")
    }
    assert [row and rows.index(row["versions"]) for row in found.values()] == [0, 2, 0, 3]
    assert view_of(views, "trtllm@1.0.0") is None


# ---------------------------------------------------------------------- flags


async def test_flags_are_read_from_a_line_or_a_file_by_the_version_that_is_named(story: Path) -> None:
    (story / "line.txt").write_text(LINE.replace(" --spec", " \\\n  --spec"))
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await answer(app, pilot, "f", LINE)
        serving, session = app.controller.state.serving, app.controller.session
        assert view.current == FLAGS and serving.made is not None
        assert serving.made == session.serving_flags(LINE)[1] and serving.made.draft_tokens == 2
        assert texts(app, "flags")[0][:4] == ["*", "draft tokens", "16", "2"]
        assert "2 tokens verified, accept length at most 2 (with bonus)" in " ".join(dump(app).split())
        typed = effective_json(serving.made)
        await answer(app, pilot, "f", "@line.txt")
        assert serving.line == "@line.txt" and effective_json(serving.made) == typed
        await answer(app, pilot, "v", "sglang@0.5.9")
        assert serving.made.server == "sglang@0.5.9" and "sglang@0.5.9 EAGLE3" in dump(app)
        check_golden("serving-flags-80x24", dump(app))
        records = str(app.controller.session.log.records)
        assert "serving_flags" in records and SECRET not in records


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("f", "sglang --speculative-num-steps x", "expected a whole number"),
        ("f", "@no_such_file", "no such file"),
        ("f", "sglang --speculative-num-steps 3 \\", "backslash"),
        ("f", "--speculative-num-steps 3 --num-speculative-tokens 3", "flags of two engines"),
        ("v", "trtllm", "its rules were not read"),
        ("v", "vllm@0.33.0", "flags of sglang"),
        ("l", "no_such_file", "no such file"),
        ("l", "output", "a folder"),
        ("l", "pipe", "not a file"),
        ("l", "target/config.json", "no accept length"),
        ("w", "fast", "expected tokens/s without drafts"),
        ("w", "90", "no point"),
        ("w", "90 46.7", "TOK/S@LENGTH"),
        ("w", "90 46.7@5/1", "the bonus token counts"),
        ("w", "nan 46.7@1.9", "a base speed of nan"),
    ],
)
async def test_what_cannot_be_meant_is_refused_and_the_old_stays(story: Path, key: str, text: str, said: str) -> None:
    os.mkfifo(story / "pipe")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await answer(app, pilot, "f", LINE)
        serving, state = app.controller.state.serving, app.controller.state
        before = (serving.line, serving.server, serving.made, serving.log, serving.expected)
        await answer(app, pilot, key, text)
        assert said in state.message and state.message_kind in ("bad", "warn")
        assert (serving.line, serving.server, serving.made, serving.log, serving.expected) == before
        await pilot.press("escape")
        assert state.message == "" or state.message_kind == "warn"


async def test_flags_are_read_again_for_another_checkpoint(story: Path) -> None:
    weights = tiny.tiny_weights(1)
    tiny.write_flat(story / "output" / "0", weights, speculators_config=False, norm_before_residual=True)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await answer(app, pilot, "f", LINE)
        serving, controller = app.controller.state.serving, app.controller
        first = serving.read_for
        assert controller.state.chosen is not None and first == controller.state.chosen.path
        other = next(f for f in controller.state.found if f.path != first)
        controller.choose_checkpoint(other)
        await settle(app, pilot)
        assert serving.read_for == other.path and serving.line == LINE
        assert calls(app).count("serving_flags") == 2


# ---------------------------------------------------------------------- the log


async def test_the_log_stands_beside_the_offline_numbers(story: Path) -> None:
    (story / "server.log").write_text("sglang version 0.5.9\n" + DECODE * 60)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await answer(app, pilot, "f", LINE)
        await answer(app, pilot, "v", "sglang@0.5.9")
        await answer(app, pilot, "l", "'server.log'")
        state = app.controller.state
        serving, wanted = state.serving, read_log(log_lines(story / "server.log"))
        assert view.current == NUMBERS and serving.log is not None and serving.log.mean == wanted.mean
        rows = {row[1]: row for row in texts(app, "numbers")}
        assert serving.views is not None
        histogram = serving.views["trained"]["accept_length"]["histogram"]
        share = sum(histogram[1:]) / sum(histogram)  # of one draft
        assert rows["accept length"][2:4] == ["1.90", f"{1 + share:.2f}"]
        assert rows["accepted drafts"][2:4] == ["0.90", f"{share:.2f}"] and rows["accepted drafts"][0] == ""
        assert rows["length / T"][2:4] == ["0.95", f"{(1 + share) / 2:.2f}"] and rows["length / T"][0] == ">"
        joint = [sum(histogram[i:]) / sum(histogram) for i in range(1, len(histogram))]
        assert rows["drafts 1..3 right"][3] == f"{joint[2]:.3f}" and rows["drafts 1..3 right"][2] == "-"
        offline = [Offline(1 + sum(joint), len(joint), TRAINED, rounds=sum(histogram), joint=tuple(joint))]
        said = verdict(offline, wanted.mean, serving.made).sentence
        assert " ".join(said.split()) in " ".join(dump(app).split())
        check_golden("serving-numbers-80x24", dump(app))


async def test_a_log_that_tells_its_flags_needs_no_launch_line(story: Path) -> None:
    (story / "vllm.log").write_text(
        "INFO Initializing a V1 LLM engine (v0.33.0) with config: speculative_config="
        "SpeculativeConfig(method='eagle3', model='/d', num_spec_tokens=3)\n" + VLLM * 40
    )
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await answer(app, pilot, "l", "vllm.log")
        serving = app.controller.state.serving
        assert serving.made is None and serving.round is not None and serving.round.server == "vllm@0.33.0"
        assert serving.drafts == 3 and serving.longest == 4
        rows = {row[1]: row for row in texts(app, "numbers")}
        assert [rows[f"{what} right"][2] for what in ("draft 1", "drafts 1..2", "drafts 1..3")] == [
            "0.700",
            "0.400",
            "0.300",
        ]
        await answer(app, pilot, "w", "40")  # the log itself is the point: one request at a time
        assert serving.expected is not None
        (point,) = serving.expected.points
        assert (point.speed, point.drafts) == (60.0, 3) and point.length == pytest.approx(2.4, abs=0.01)


async def test_reading_a_long_log_is_stopped_by_escape(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (story / "server.log").write_text(DECODE * 2000)
    real = log_lines

    def slowly(path: Path) -> Any:
        for line in real(path):
            time.sleep(0.005)
            yield line

    monkeypatch.setattr("drafter.serving.log_file.log_lines", slowly)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await pilot.press("l")
        assert isinstance(app.focused, Line)
        app.focused.take("server.log")
        await pilot.press("enter")
        await pilot.pause(0.2)
        began = time.monotonic()
        await pilot.press("escape")
        await settle(app, pilot)
        assert time.monotonic() - began < 5 and app.controller.state.serving.log is None
        assert app.controller.state.message == "stopped: reading server.log"


async def test_what_the_server_computes_is_beside_what_was_trained(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        state = app.controller.state
        assert served(state) == (None, "no server is named: f, v or l")
        await answer(app, pilot, "f", LINE)
        await answer(app, pilot, "v", "sglang@0.5.12")
        views = state.serving.views
        assert views is not None
        row = view_of(views, "sglang@0.5.12")
        found, why = served(state)
        assert row is not None
        if row["accept_length"] is None:
            assert found is None and row["name"] in why
        else:
            assert found is not None and found.at(None) == pytest.approx(row["accept_length"]["mean"])
            numbers = {n.what: n for n in serving_numbers.rows(state)}
            assert numbers["accept length"].sides[2] == f"{found.at(1):.2f}"


# ---------------------------------------------------------------------- speeds


async def test_the_speed_to_expect_is_that_of_the_joint_curve(story: Path) -> None:
    app = demo_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await answer(app, pilot, "f", LINE)
        await answer(app, pilot, "w", "90 46.7@1.9")
        state = app.controller.state
        assert view.current == EXPECT and state.serving.expected is not None and state.scores is not None
        rows = {row[1]: row for row in texts(app, "expect")}
        cost = 90 * 1.9 / 46.7
        assert rows["breaks even"][2] == f"{cost:.2f}" and rows["most, by the flags"][3] == f"{90 * 2 / cost:.1f}"
        assert state.ordering is not None
        histogram = state.scores.result.scores[state.ordering].lengths.histogram
        joint = [sum(histogram[i:]) / sum(histogram) for i in range(1, len(histogram))]
        each = (cost - 1) / 2  # half of what a round costs above a step is drafting, of one draft
        speeds = [90.0] + [90 * curve_length(joint, k) / (cost - each + each * k) for k in range(1, 6)]
        assert rows["3 drafts"][3] == f"{speeds[3]:.1f}" and rows["1 draft"][3] == f"{speeds[1]:.1f}"
        best = max(range(6), key=lambda k: speeds[k])
        marked = [row[1] for row in texts(app, "expect") if row[0]]
        assert ("no drafts" if best == 0 else serving_expect._drafts(best)) in marked
        other = next(o for o in state.orderings if state.scores.result.scores[o].lengths.histogram != histogram)
        app.controller.choose_ordering(other)
        await settle(app, pilot)
        again = {row[1]: row for row in texts(app, "expect")}
        assert again["3 drafts"] != rows["3 drafts"] and f"offline fc={','.join(map(str, other))}" in again


async def test_the_plot_comes_and_goes(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await pilot.press("p")
        assert app.controller.state.message == "nothing to plot: w takes the speeds"
        await answer(app, pilot, "w", "90 46.7@1.9")
        await pilot.press("p")
        await settle(app, pilot)
        plot = view.query_one(PlotView)
        assert plot.has_class("shown") and "accept length, bonus counted" in dump(app)  # no number of drafts is known
        await answer(app, pilot, "f", LINE)
        await pilot.press("tab", "tab")
        await settle(app, pilot)
        assert view.current == EXPECT and "drafts a round" in dump(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert not plot.has_class("shown") and view.current == EXPECT
        await pilot.press("escape")
        await settle(app, pilot)
        assert view.current == VIEWS


async def test_points_of_two_kinds_tell_the_cost_of_a_draft(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await answer(app, pilot, "w", "100, 120@1.8/1 150@3/4")
        expected = app.controller.state.serving.expected
        assert expected is not None and expected.model is not None
        slope = (100 * 3 / 150 - 100 * 1.8 / 120) / 3
        assert expected.model.per_draft == pytest.approx(slope) and expected.model.exact
        await answer(app, pilot, "w", "100 120@1.8/1 cost=0.2")
        expected = app.controller.state.serving.expected
        assert expected is not None and expected.model is not None and expected.model.per_draft == 0.2


async def test_what_was_typed_stays_when_another_sample_is_opened(story: Path) -> None:
    (story / "server.log").write_text(DECODE * 60)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await answer(app, pilot, "f", LINE)
        await answer(app, pilot, "l", "server.log")
        await answer(app, pilot, "w", "90 46.7@1.9")
        serving, controller = app.controller.state.serving, app.controller
        kept = serving.made, serving.log, serving.expected
        before = serving.views
        assert controller.state.samples is not None
        controller.choose_sample(controller.state.samples.paths[1])
        await settle(app, pilot)
        assert (serving.made, serving.log, serving.expected) == kept and serving.views is not before
        assert len(serving_flags.rows(serving)) == len(texts(app, "flags")) > 0


@pytest.mark.parametrize("size", [(10, 5), (30, 9), (60, 15), (200, 60)])
async def test_every_pane_is_drawn_in_every_window(story: Path, size: tuple[int, int]) -> None:
    (story / "server.log").write_text(DECODE * 60)
    app = story_app(story)
    async with app.run_test(size=size) as pilot:
        view = await open_view(app, pilot)
        for key, text in (("f", LINE), ("l", "server.log"), ("w", "90 46.7@1.9")):
            await answer(app, pilot, key, text)
        await pilot.press("p")
        for pane in range(len(view.PANES)):
            view.show_pane(pane)
            await settle(app, pilot)
            assert len(dump(app).split("\n")) == size[1] + 1
        await pilot.resize_terminal(80, 24)
        view.show_pane(VIEWS)
        await settle(app, pilot)
        assert "against trained" in dump(app)


async def test_a_view_says_what_costs_first_and_the_key_that_cures_it(tmp_path: Path) -> None:
    app = demo_app(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        shown = texts(app, "views")
        row = next(i for i, cells in enumerate(shown) if cells[1].endswith("0.5.23"))
        assert shown[row][0] == "!" and shown[row][-1] == "costs"
        view.query_one("#serving-views", LineTable).move_to_row(row)
        await settle(app, pilot)
        views = app.controller.state.serving.views
        assert views is not None
        found = view_of(views, "sglang@0.5.23")
        assert found is not None and found["cause"] == "ordering"
        one = found["differences"][0]
        before, after = (side["accuracy"] for side in (views["trained"], one["together"]))
        change = " -> ".join(f"{100 * c['hits'] / c['total']:.1f}" for c in (before, after))
        assert f"ordering costs first: step 0 {change} %" in dump(app)
        cure = "cure: config.json: eagle_config.eagle_aux_hidden_state_layer_ids = [-1, 1, 3]"
        assert cure in dump(app) and cure in view.copy_text() and shown[row][1] in view.copy_text()
