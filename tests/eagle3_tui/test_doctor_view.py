"""The Doctor view: findings and verdict are the Session's own; what stops, jumps and hides; small windows."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import drafter.checks.run as checks_run
from drafter.checks.finding import ERROR, KINDS, OK, WARNING, Finding
from drafter.checks.registry import Check
from drafter.checks.run import all_checks
from drafter.errors import SampleError
from drafter.session import Session
from eagle3_tui.app import InspectorApp
from eagle3_tui.controls.doctor import DoctorState
from eagle3_tui.screens import doctor_text
from eagle3_tui.screens.checkpoints import CheckpointsView
from eagle3_tui.screens.doctor import FINDINGS, NOT_CHECKED, DoctorView
from eagle3_tui.screens.doctor_jump import Jump, jump
from eagle3_tui.screens.samples import SLOTS, SamplesView
from tests.eagle3_tui.screen import answer, check_golden, dump, settle, story_app, write_story
from tests.faults import world
from tests.faults.zoo import FAULTS

LINE = "sglang.launch_server --speculative-algorithm EAGLE3 --speculative-num-steps 1 --speculative-eagle-topk 1"


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_story(tmp_path)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check of samples and numbers takes long enough to be seen on its way."""

    def slowed(check: Check) -> Check:
        def run(case: Any) -> Iterable[Finding]:
            for _ in range(8):
                time.sleep(0.01)
                case.poll()
            return check.run(case)

        return Check(check.id, check.kind, check.needs, check.reports, check.stage, run)

    known = [check if check.stage == "static" else slowed(check) for check in all_checks()]
    monkeypatch.setattr(checks_run, "all_checks", lambda: known)


def world_app(folder: Path, made: world.World) -> InspectorApp:
    """The app on one of the worlds with a drafter that predicts."""
    session = world.write_world(folder, made)
    return InspectorApp(Session(session.options), state_folder=folder / "state")


def fault_app(folder: Path, name: str) -> InspectorApp:
    return world_app(folder, next(fault for fault in FAULTS if fault.name == name).make())


async def open_view(app: InspectorApp, pilot: Any) -> DoctorView:
    await settle(app, pilot)
    await pilot.press("9")
    await settle(app, pilot)
    assert isinstance(app.view, DoctorView)
    return app.view


async def until(pilot: Any, reached: Callable[[], bool]) -> None:
    for _ in range(1000):
        await pilot.pause(0.01)
        if reached():
            return
    raise AssertionError("never reached")


def doctor(app: InspectorApp) -> DoctorState:
    return app.controller.state.doctor


def rows(app: InspectorApp, view: DoctorView, name: str = "findings") -> list[list[str]]:
    table = view._table(name)
    return [[text for text, _ in table.source.cells(row)] for row in range(len(table.source))]


def checked(app: InspectorApp, paths: list[Path], **asked: Any) -> Any:
    """What the Session says itself."""
    session = app.controller.session
    return session.check(session.pick(session.last_found), paths, **asked)


def told(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.check, finding.title) for finding in findings]


# ---------------------------------------------------------------------- what is found


async def test_the_findings_are_those_of_the_session_and_begin_by_themselves(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert doctor(app).complete  # nobody has looked at the view
        view = await open_view(app, pilot)
        sample = app.controller.state.sample
        assert sample is not None
        report = checked(app, [sample.path])
        assert told(doctor(app).findings) == told(report.findings)
        assert (doctor(app).verdict, doctor(app).verdict_kind) == (report.verdict, report.verdict_kind)
        assert [one.check for one in doctor(app).not_checked] == [one.check for one in report.not_checked]
        first = doctor(app).findings[0]
        assert (first.severity, first.check) == (ERROR, "layer-ids-differ")
        assert rows(app, view)[0] == ["!", "wiring", first.title]
        assert [row[0] for row in rows(app, view)] == [doctor_text.GLYPHS[f.severity] for f in report.findings]
        shown = dump(app)
        assert f"! {report.verdict}"[:70] in shown.split("\n")[3]
        assert re.search(r"1 error, .* ok on data_1\.pt, mask next, bonus token counted", shown)
        check_golden("doctor-findings-80x24", shown)


async def test_a_wide_screen_shows_what_was_not_checked_beside_the_findings(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(120, 40)) as pilot:
        view = await open_view(app, pilot)
        check_golden("doctor-findings-120x40", dump(app))
        await pilot.press("tab")
        await settle(app, pilot)
        assert view.current == NOT_CHECKED
        check_golden("doctor-skipped-120x40", dump(app))


async def test_what_was_not_checked_says_what_would_allow_it(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await pilot.press("tab")
        await settle(app, pilot)
        assert [row[0] for row in rows(app, view, "skipped")] == [
            "flags",
            "flags-needed",
            "served-length",
            "served-looks-like",
        ]
        assert "here: F takes the launch line" in dump(app)
        check_golden("doctor-skipped-80x24", dump(app))
        await pilot.press("enter")  # opens nothing
        await settle(app, pilot)
        assert app.view is view
        await pilot.press("escape")
        assert view.current == FINDINGS


async def test_a_healthy_drafter_is_said_to_be_healthy(tmp_path: Path) -> None:
    app = world_app(tmp_path, world.healthy())
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await pilot.press("a")
        await settle(app, pilot)
        assert doctor(app).verdict_kind == "healthy" and doctor(app).samples == 4 and not doctor(app).ill
        lines = dump(app).split("\n")
        assert "! check" not in lines[0] and lines[3].startswith("= healthy: the drafter is healthy")
        assert "on 4 listed samples pooled" in lines[4]
        assert not {ERROR, WARNING} & {finding.severity for finding in doctor(app).findings}
        report = checked(app, list(app.controller.session.options.samples))
        assert told(doctor(app).findings) == told(report.findings)
        assert rows(app, view) and not any(row[0] in "!?" for row in rows(app, view))


async def test_a_verdict_stands_on_every_view_where_nothing_else_is_said(tmp_path: Path) -> None:
    app = fault_app(tmp_path, "NaN in a weight")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert doctor(app).verdict_kind == "broken-checkpoint"
        for key in "1237":
            await pilot.press(key)
            await settle(app, pilot)
            assert "  ! check: broken-checkpoint" in dump(app).split("\n")[0]
        app.controller.set_switch("final_norm", "off")
        await settle(app, pilot)
        first = dump(app).split("\n")[0]
        assert "1 switched" in first and "check:" not in first


async def test_a_checkpoint_that_cannot_be_opened_is_looked_at_all_the_same(story: Path) -> None:
    for epoch in "01":
        (story / "output" / epoch / "config.json").write_text("{broken")
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        assert app.controller.state.chosen is None
        first = doctor(app).findings[0]
        assert (first.severity, first.check) == (ERROR, "opens") and rows(app, view)[0][2] == first.title
        shown = dump(app)
        assert "1, which cannot be opened: 1 error" in shown and "! check: broken-checkpoint" in shown


async def test_a_checkpoint_without_weights_is_checked_by_its_files(story: Path) -> None:
    for epoch in "01":
        (story / "output" / epoch / "model.safetensors").unlink()
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        assert doctor(app).verdict_kind == "broken-checkpoint" and not doctor(app).problem
        assert any("weights" in row[2] for row in rows(app, view) if row[0] == "!")


async def test_without_samples_it_is_said_what_was_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tmp_path / "far" / "from" / "all"  # what lies beside is looked for two folders up
    alone.mkdir(parents=True)
    monkeypatch.chdir(alone)
    story = write_story(alone)
    shutil.rmtree(story / "samples")
    app = story_app(story, samples=())
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        assert doctor(app).complete and doctor(app).findings[0].check == "layer-ids-differ"
        assert "without a sample" in dump(app)
        await pilot.press("tab")
        await settle(app, pilot)
        skipped = dict(row[:2] for row in rows(app, view, "skipped"))
        assert "no sample" in skipped["states-are-numbers"]
        await pilot.press("a")
        await settle(app, pilot)
        assert "no samples" in app.controller.state.message


# ---------------------------------------------------------------------- running


async def test_escape_stops_the_checks_and_again_begins_anew(story: Path, slow: None) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(doctor(app).done and doctor(app).checking))
        await pilot.press("9")
        await until(pilot, lambda: "esc stops" in dump(app))
        running = re.search(r"checking (\S+) …  esc stops", dump(app))
        assert running and running[1] in {check.id for check in all_checks() if check.stage != "static"}
        assert "so far: miswired" in dump(app)
        await pilot.press("escape")
        await settle(app, pilot)
        state = app.controller.state
        assert state.message == "stopped: checking" and doctor(app).stopped and not doctor(app).complete
        assert "stopped, r again: 1 error" in dump(app)
        count = len(doctor(app).findings)
        await pilot.press("1", "9")
        await settle(app, pilot)
        assert not doctor(app).complete and len(doctor(app).findings) == count  # does not begin by itself
        await pilot.press("r")
        await settle(app, pilot)
        assert doctor(app).complete and len(doctor(app).findings) > count


async def test_what_is_more_severe_comes_under_a_cursor_that_was_not_moved(tmp_path: Path, slow: None) -> None:
    app = fault_app(tmp_path, "NaN in a weight")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(doctor(app).done and doctor(app).checking))
        before = doctor(app).findings[0]
        view = await open_view(app, pilot)
        after = doctor(app).findings[0]
        assert before.severity != after.severity == ERROR
        assert view._table("findings").row == 0 and dump(app).split("\n")[6].startswith("! ")


async def test_all_samples_are_checked_when_asked_for_and_one_again(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        one = told(doctor(app).findings)
        await pilot.press("a")
        await settle(app, pilot)
        samples = app.controller.state.samples
        assert samples is not None
        assert told(doctor(app).findings) == told(checked(app, list(samples.paths)).findings) != one
        assert "on 3 listed samples pooled" in dump(app)
        app.controller.say("")
        await pilot.press("r")
        assert app.controller.state.message == "checking with data_1.pt alone: a checks all listed samples"
        await settle(app, pilot)
        assert told(doctor(app).findings) == one
        app.controller.say("")
        await pilot.press("r")
        await settle(app, pilot)
        assert not app.controller.state.message, "nothing is left out that was there before"


@pytest.mark.parametrize("change", ["sample", "mask", "checkpoint"])
async def test_checks_follow_what_is_open_even_while_they_run(story: Path, slow: None, change: str) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(doctor(app).done and doctor(app).checking))
        await pilot.press("9")
        controller, state = app.controller, app.controller.state
        if change == "sample":
            assert state.samples is not None
            controller.choose_sample(state.samples.paths[2])
        elif change == "mask":
            await pilot.press("m")
        else:
            controller.choose_checkpoint(next(f for f in state.found if f != state.chosen))
        await settle(app, pilot)
        asked = doctor(app).asked
        assert doctor(app).complete and asked is not None and asked.found == state.chosen
        assert asked.sample is not None and state.sample is not None and asked.sample == state.sample.path
        assert asked.sample.name == ("data_10.pt" if change == "sample" else "data_1.pt")
        assert asked.mask == ("same" if change == "mask" else "next")
        assert len({(f.check, f.title) for f in doctor(app).findings}) == len(doctor(app).findings)


async def test_a_switch_changes_no_finding_and_checks_nothing_again(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)

        def checks() -> int:
            return sum(record.get("call") == "check" for record in app.controller.session.log.records)

        before, asked = checks(), doctor(app).asked
        app.controller.set_switch("final_norm", "off")
        await settle(app, pilot)
        assert (checks(), doctor(app).asked) == (before, asked) and before == 2


async def test_again_checks_the_switches_that_are_set_and_enter_shows_the_wrong_one(tmp_path: Path) -> None:
    app = world_app(tmp_path, world.healthy())
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        healthy = told(doctor(app).findings)
        app.controller.set_switch("fed_ids", "draft")
        await settle(app, pilot)
        assert told(doctor(app).findings) == healthy and "fed_ids" not in dump(app)
        await pilot.press("r")
        await settle(app, pilot)
        first = doctor(app).findings[0]
        assert (first.severity, first.check) == (ERROR, "a-program-computes-something-else")
        assert "bonus token counted, fed_ids draft" in doctor_text.summary(doctor(app), "all")
        assert rows(app, view)[0][1] == KINDS["K03"]
        await pilot.press("enter")
        await settle(app, pilot)
        table = app.view.table()
        assert app.view.id == "wiring" and table is not None and table.key.switch == "fed_ids"
        app.controller.set_switch("fed_ids", "target")
        await pilot.press("9", "r")
        await settle(app, pilot)
        assert told(doctor(app).findings) == healthy


async def test_switches_of_the_command_line_are_checked_at_once(tmp_path: Path) -> None:
    session = world.write_world(tmp_path, world.healthy())
    options = replace(session.options, switches=(("draft_keys", "alone"),))
    app = InspectorApp(Session(options), state_folder=tmp_path / "state")
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        assert doctor(app).findings[0].check == "a-program-computes-something-else"
        assert doctor(app).verdict_kind == "serving"


async def test_a_launch_line_is_checked_too(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await answer(app, pilot, "V", "sglang@0.5.9")
        await answer(app, pilot, "F", LINE)
        sample, serving = app.controller.state.sample, app.controller.state.serving
        assert sample is not None and (serving.line, serving.server) == (LINE, "sglang@0.5.9")
        report = checked(app, [sample.path], flags=LINE, server="sglang@0.5.9")
        assert told(doctor(app).findings) == told(report.findings)
        assert "flags" not in {row[0] for row in rows(app, view, "skipped")}
        asked = doctor(app).asked
        await answer(app, pilot, "F", "@missing.txt")
        assert "no such file" in app.controller.state.message and doctor(app).asked == asked
        await answer(app, pilot, "F", "a line that asks for no drafting")
        assert "flags" in {row[0] for row in rows(app, view, "skipped")} and not doctor(app).problem


VLLM_LOG = (
    "INFO 10-26 12:36:00 [api_server.py:1] vLLM API server version 0.11.0\n"
    "INFO 10-26 12:36:16 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 1.10, Accepted throughput: 10 "
    "tokens/s, Drafted throughput: 50.00 tokens/s, Accepted: 10 tokens, Drafted: 300 tokens, Per-position acceptance "
    "rate: 0.080, 0.020, 0.000, Avg Draft acceptance rate: 3.3%\n"
)
SGLANG_LOG = (
    "[2025-10-26 12:36:00] server_args=ServerArgs(model_path='t', speculative_algorithm='EAGLE3', "
    "speculative_draft_model_path='d', speculative_num_steps=3, speculative_eagle_topk=1, "
    "speculative_num_draft_tokens=4)\n"
    "[2025-10-26 12:36:16] Decode batch. #running-req: 1, #token: 100, token usage: 0.01, accept len: 1.20, accept "
    "rate: 0.30, cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 0\n"
)


@pytest.mark.parametrize(
    ("text", "server", "flags"),
    [(VLLM_LOG, "vllm@0.11.0", False), (SGLANG_LOG, "sglang", True)],
    ids=["vllm", "sglang"],
)
async def test_a_log_tells_flags_and_version_too(story: Path, text: str, server: str, flags: bool) -> None:
    (story / "server.log").write_text(text)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        app.controller.serving.read_log(str(story / "server.log"))
        await settle(app, pilot)
        asked, log = doctor(app).asked, app.controller.state.serving.log
        assert asked is not None and log is not None and asked.server == server
        assert ("flags" not in {row[0] for row in rows(app, view, "skipped")}) == flags
        sample = app.controller.state.sample
        assert sample is not None
        report = checked(app, [sample.path], flags=log.asked, server=server, served=log.mean, rates=log.per_position)
        assert told(doctor(app).findings) == told(report.findings)
        other = {"vllm@0.11.0": "sglang@", "sglang": "vllm@"}[server]
        assert not any(str(f.evidence.get("server", "")).startswith(other) for f in doctor(app).findings)
        assert f"server {server}" in doctor_text.summary(doctor(app), "all")


async def test_enter_on_the_vocabulary_shows_the_map(tmp_path: Path) -> None:
    app = fault_app(
        tmp_path, next(fault.name for fault in FAULTS if "K03" in fault.kinds and "target ids" in fault.name)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        at = next(i for i, f in enumerate(doctor(app).findings) if f.kind == "K03")
        view._table("findings").move_to_row(at)
        await pilot.press("enter")
        await settle(app, pilot)
        table = app.view.table()
        assert isinstance(app.view, CheckpointsView) and table is not None and table.row is not None
        assert table.source.cells(table.row)[1][0] == "vocab map"


async def test_a_refusal_of_the_run_stands_in_place_of_the_findings(
    story: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **asked: object) -> None:
        raise SampleError("a refusal of the run")

    monkeypatch.setattr(Session, "check", refuse)
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        lines = dump(app).split("\n")
        assert lines[3] == "! not checked: a refusal of the run"
        assert not doctor(app).findings and "a refusal of the run" in "\n".join(lines[5:9])


# ---------------------------------------------------------------------- looking


async def test_f_hides_what_is_right_and_then_notes(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        every = len(rows(app, view))
        await pilot.press("f")
        without = rows(app, view)
        assert "=" not in {row[0] for row in without} and 0 < len(without) < every and "without ok: " in dump(app)
        await pilot.press("f")
        assert {row[0] for row in rows(app, view)} <= {"!", "?"} and "errors and warnings: " in dump(app)
        await pilot.press("f")
        assert len(rows(app, view)) == every


async def test_f_says_when_it_hides_everything(tmp_path: Path) -> None:
    app = world_app(tmp_path, world.healthy())
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await pilot.press("f", "f")
        await settle(app, pilot)
        assert not rows(app, view)
        assert f"none of these, {len(doctor(app).findings)} others: f shows them" in dump(app)


async def test_enter_opens_the_view_that_shows_a_finding(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.view.id == "orderings"
        await pilot.press("9")
        at = next(i for i, f in enumerate(doctor(app).findings) if f.check == "served-otherwise")
        switch = doctor(app).findings[at].evidence["switch"]
        view._table("findings").move_to_row(at)
        await pilot.press("enter")
        await settle(app, pilot)
        table = app.view.table()
        assert app.view.id == "wiring" and table is not None and table.row is not None
        assert table.source.cells(table.row)[1][0] == switch


async def test_enter_goes_to_the_tensor_and_to_the_slot(tmp_path: Path) -> None:
    app = fault_app(tmp_path, "NaN in a weight")
    async with app.run_test(size=(80, 24)) as pilot:
        view = await open_view(app, pilot)
        at = next(i for i, f in enumerate(doctor(app).findings) if f.check == "numbers")
        view._table("findings").move_to_row(at)
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.view, CheckpointsView)
        table = app.view.table()
        assert table is not None and table.key in doctor(app).findings[at].evidence
        await pilot.press("9")
        at = next(i for i, f in enumerate(doctor(app).findings) if f.check == "slots-are-of-one-scale")
        view._table("findings").move_to_row(at)
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.view, SamplesView) and app.view.current == SLOTS


def test_every_kind_of_finding_leads_to_a_view() -> None:
    assert jump(Finding("x", "K02", ERROR, "t", {"tensor": "fc.weight"})) == Jump(
        "checkpoints", "tensors", ("fc.weight",)
    )
    assert jump(Finding("x", "K02", ERROR, "t", {"missing": ["norm"]})) == Jump("checkpoints", "config", ("norm",))
    assert jump(Finding("x", "K08", ERROR, "t", {"a.pt": "slot 2: 1 row"}, view="sample")) == Jump(
        "samples", "slots", ("2",)
    )
    assert jump(Finding("x", "K01", ERROR, "works on slots 0,2,1")) == Jump("orderings", rows=("0,2,1",))
    assert jump(Finding("x", "K10", WARNING, "t", view="serving")) == Jump("serving", "flags")
    assert all(jump(Finding("x", kind, OK, "t")) is not None for kind in KINDS)


def test_the_cure_has_room_whatever_the_evidence() -> None:
    evidence = {f"number {i}": "a long value " * 20 for i in range(30)}
    finding = Finding("x", "K01", ERROR, "a title " * 60, evidence, "the cure " * 60, ("a/b#1",))
    said = doctor_text.lines(finding, "Orderings", 80, 10)
    text = ["".join(run for run, _ in line) for line in said]
    assert len(text) <= 10 and any(line.startswith("fix: ") for line in text) and text[-1] == "like a/b#1"
    assert any("30 more: y copies all" in line for line in text)
    whole = "\n".join("".join(run for run, _ in line) for line in doctor_text.lines(finding, "", 10_000, 999))
    assert whole.count("number ") == 30


async def test_y_copies_the_whole_finding(story: Path) -> None:
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        await pilot.press("y")
        copied = (story / "state" / "copied.txt").read_text()
        first = doctor(app).findings[0]
        assert first.title in copied and first.fix in copied and all(name in copied for name in first.evidence)


@pytest.mark.parametrize("size", [(10, 5), (40, 12), (60, 20), (200, 60)])
async def test_any_window_shows_a_finding(story: Path, size: tuple[int, int]) -> None:
    app = story_app(story)
    async with app.run_test(size=size) as pilot:
        view = await open_view(app, pilot)
        assert view._table("findings").size.height >= 2
        assert "! " in dump(app)
        await pilot.press("tab", "f", "G", "y")
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert "not checked" in dump(app)


async def test_text_of_files_is_made_safe(story: Path) -> None:
    path = story / "output/1/config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["\x1b[31mEvil"]}))
    app = story_app(story)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_view(app, pilot)
        seen = ""
        for _ in doctor(app).findings:
            seen += dump(app)
            await pilot.press("j")
        assert "Evil" in seen and "\x1b" not in seen
