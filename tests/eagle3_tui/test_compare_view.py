"""The Compare view: all checkpoints of a folder, two of them side by side, and what happens when something changes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafter.files.find import find_checkpoints
from drafter.sample.folder import SamplePaths
from drafter.session import Options, SampleList, Session
from eagle3_tui.app import InspectorApp
from eagle3_tui.controls import compare as control
from eagle3_tui.screens.compare import CONFIG, EPOCHS, TENSORS, TOKEN, CompareView
from eagle3_tui.screens.step import StepView
from eagle3_tui.widgets.line_table import LineTable
from eagle3_tui.widgets.plot import PlotView
from tests import tiny
from tests.eagle3_tui.screen import STORY_SLOTS, check_golden, dump, settle, story_app

SIZES = tiny.Sizes(vocab=11, draft_vocab=8)  # so few tokens that a random drafter is often right
OURS = tiny.tiny_weights(0, SIZES)
# fc moved half way to another run's: right on some rows that ours has right, and on others
THEIRS = {**OURS, "fc.weight": (OURS["fc.weight"] + tiny.tiny_weights(1, SIZES)["fc.weight"] / 2).bfloat16().float()}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Epochs 0, 2 and 5, of which 2 has lost its weights; three samples."""
    monkeypatch.chdir(tmp_path)
    for epoch, weights in ((0, THEIRS), (2, OURS), (5, OURS)):
        folder = tmp_path / f"output/{epoch}"
        tiny.write_flat(folder, weights, SIZES, speculators_config=True, norm_before_residual=True)
        (folder / "val_metrics.json").write_text(f'{{"loss_epoch": 2.5, "full_acc_0_epoch": 0.{epoch + 1}25}}')
    (tmp_path / "output/2/model.safetensors").unlink()
    tiny.write_target(tmp_path / "target", OURS, SIZES, tokenizer=True)
    for i in (1, 2, 3):
        tiny.write_v1_sample(tmp_path / f"samples/data_{i}.pt", tiny.tiny_sample(i, OURS, SIZES, tokens=120))
    return tmp_path


def session() -> Session:
    """Another session on the same files, to ask what the screen must say."""
    options = Options(Path("output"), (Path("samples"),), target=Path("target"), slots=STORY_SLOTS, device="cpu")
    made = Session(options)
    made.choose_checkpoint(made.pick(made.find()))
    return made


def view_of(app: InspectorApp) -> CompareView:
    assert isinstance(app.view, CompareView)
    return app.view


def cells(app: InspectorApp, table: str) -> list[list[str]]:
    found = app.query_one(f"#{table}", LineTable)
    return [[text for text, _ in found.source.cells(i)] for i in range(len(found.source))]


async def go(app: InspectorApp, pilot: Any, *keys: str) -> None:
    await pilot.press(*keys)
    await settle(app, pilot)


async def test_every_checkpoint_is_run_on_the_current_sample(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert not app.controller.state.compare.lines  # nothing before somebody looks
        await go(app, pilot, "8")
        own = session()
        expected = own.run_epochs(own.find(), [Path("samples/data_1.pt")])
        for row, epoch in zip(cells(app, "epochs-table"), expected.epochs, strict=True):
            assert row[1:3] == [epoch.found.name, epoch.found.name]
            if epoch.outcomes is None:
                assert epoch.found.name == "2" and row[4:7] == ["-", "-", "-"] and row[7].startswith("no weights")
                continue
            count, lengths = epoch.outcomes.pooled() or (None, None)
            assert count is not None and lengths is not None and lengths.mean and lengths.walk and count.ratio
            assert row[4:7] == [f"{100 * count.ratio:.1f}", f"{lengths.mean:.2f}", f"{lengths.walk:.2f}"]
            assert row[7] == f"full_acc_0_epoch {epoch.metrics['full_acc_0_epoch']:.4g}"
        best = expected.best()
        assert best is not None
        marks = [row[0][1] for row in cells(app, "epochs-table")]
        assert marks[best.index] == "*" and [m == "~" for m in marks] == [
            i in [n for n, _ in best.tied] for i in range(3)
        ]
        check_golden("compare-epochs-80x24", dump(app))


async def test_all_samples_are_pooled_and_a_sample_chosen_later_changes_nothing(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "a")
        own = session()
        expected = own.run_epochs(own.find(), own.list_samples().paths)
        shown = app.controller.state.compare.lines
        assert [line.accuracy for line in shown] == [
            e.outcomes.pooled()[0] if e.outcomes and e.outcomes.pooled() else None  # type: ignore[index]
            for e in expected.epochs
        ]
        check_golden("compare-epochs-120x40", dump(app))
        await go(app, pilot, "2", "j", "enter", "8")
        assert app.controller.state.compare.lines == shown


async def test_two_checkpoints_field_by_field_tensor_by_tensor_token_by_token(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space")
        own = session()
        theirs = own.find()[0]
        expected = own.compare_checkpoints(theirs)
        paired = own.compare_outcomes(own.find()[2], theirs, [Path("samples/data_1.pt")], 500)
        assert cells(app, "epochs-table")[0][0][0] == "<"
        await go(app, pilot, "tab")
        assert len(cells(app, "compare-config")) == sum(
            len(f.fields) + sum(not k.read for k in f.keys) for f in expected.faces
        )
        check_golden("compare-config-80x24", dump(app))
        await go(app, pilot, "tab")
        rows = {row[1]: row for row in cells(app, "compare-tensors")}
        assert [row[1] for row in cells(app, "compare-tensors")][: len(expected.tensors.compared)] == [
            c.name for c in expected.tensors.compared
        ]
        fc = next(c for c in expected.tensors.compared if c.name == "fc.weight").change
        assert rows["fc.weight"][0] == "!" and rows["fc.weight"][2] == f"{fc.relative:#.3g}"
        assert rows["norm.weight"][0] == "=" and rows["norm.weight"][5] == "0.0"
        assert all(rows[left.name][0] == "-" for left in expected.tensors.not_compared)
        check_golden("compare-tensors-80x24", dump(app))
        await go(app, pilot, "tab")
        table = paired.table
        assert table.only_ours and table.only_theirs and len(paired.differing) == table.only_ours + table.only_theirs
        said = (
            f"step 0: both right {table.both}, only ours {table.only_ours}, only theirs {table.only_theirs}, "
            f"both wrong {table.neither}, of {table.rows}"
        )
        assert said in dump(app)
        piece = app.controller.session.piece
        for row, one in zip(cells(app, "compare-tokens"), paired.differing, strict=True):
            ours, theirs_ = ("= " if one.truth == token else "x " for token in (one.ours, one.theirs))
            assert row[0] == str(one.row + 2) and row[2] == piece(one.truth)
            assert row[3:5] == [ours + piece(one.ours), theirs_ + piece(one.theirs)] and ours != theirs_
            assert row[5] == f"{one.length_ours} | {one.length_theirs}"
        check_golden("compare-tokens-80x24", dump(app))
        await pilot.resize_terminal(120, 40)
        await settle(app, pilot)
        check_golden("compare-tokens-120x40", dump(app))


async def test_a_row_that_differs_opens_in_step(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space", "shift+tab", "j")
        key = view_of(app).table().key  # type: ignore[union-attr]
        assert isinstance(key, tuple)
        await go(app, pilot, "enter")
        state = app.controller.state
        assert isinstance(app.view, StepView) and state.row == key[1] == app.view.table().row
        assert state.step is not None and state.step.readout.row == key[1]
        await go(app, pilot, "8", "a")
        table, view = app.query_one("#compare-tokens", LineTable), view_of(app)
        assert view.current == TOKEN and len({row[6] for row in cells(app, "compare-tokens")}) == 3
        other = next(i for i, row in enumerate(cells(app, "compare-tokens")) if row[6] == "data_3.pt")
        table.move_to_row(other)
        wanted = table.source.key(other)
        await go(app, pilot, "o", "enter")  # another ordering than the compared one
        assert state.sample is not None and (state.sample.path, state.row) == wanted
        assert isinstance(app.view, StepView) and app.view.table().row == state.row


async def test_the_ordering_in_step_is_said_to_be_another_one(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space", "shift+tab", "o", "enter")
        assert "compared under fc=0,1,2; here another ordering is current" in dump(app)


async def test_enter_opens_a_checkpoint_and_the_pair_follows(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space")
        mine, scope = app.controller.state.compare, app.controller.state.compare.scope
        await go(app, pilot, "j", "enter")  # one without weights
        state = app.controller.state
        assert state.chosen is not None and state.chosen.name == "2" and mine.scope == scope
        assert mine.comparison is not None and mine.comparison.ours.path.name == "2"
        await go(app, pilot, "tab", "tab", "tab")
        assert "not run" in dump(app)
        await go(app, pilot, "r")
        assert state.message_kind == "bad" and "without weights" in state.message
        await go(app, pilot, "escape", "escape", "k", "enter")  # the marked one: nothing is left to compare
        assert state.chosen.name == "0" and mine.theirs is None and mine.comparison is None
        assert "is open now" in state.message


async def test_a_checkpoint_elsewhere(run: Path, tmp_path: Path) -> None:
    tiny.write_nested(tmp_path / "export", OURS, SIZES, norm_before_residual=True)
    app = story_app(run)

    async def asked(pilot: Any, text: str) -> str:
        await pilot.press("escape", "n", *(f"{'slash' if c == '/' else c}" for c in text), "enter")
        await settle(app, pilot)
        return app.controller.state.message

    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8")
        mine = app.controller.state.compare
        assert "no such file or folder" in await asked(pilot, "nowhere") and mine.theirs is None
        assert "no EAGLE-3 checkpoint" in await asked(pilot, "samples") and mine.theirs is None
        assert "is the one that is open" in await asked(pilot, "output/5") and mine.theirs is None
        await asked(pilot, "export")
        assert mine.theirs is not None and mine.theirs.path == (tmp_path / "export").resolve()
        assert mine.comparison is not None and mine.comparison.verdict.kind == "same weights"
        await go(app, pilot, "tab", "tab", "tab")
        assert "no row tells the two apart" in dump(app)
        await asked(pilot, "nowhere")  # a slip of the finger costs nothing
        assert mine.paired is not None and app.controller.state.message_kind == "bad"


async def test_one_checkpoint_says_how_to_compare(run: Path) -> None:
    for name in ("0", "2"):
        shutil.rmtree(run / "output" / name)
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space")
        assert "this one is open" in app.controller.state.message
        await go(app, pilot, "tab")
        assert "one checkpoint here: n compares it with another path" in dump(app)


async def test_another_mask_or_sample_begins_anew(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space")
        mine = app.controller.state.compare
        before = [line.accuracy for line in mine.lines]
        await go(app, pilot, "m")
        assert mine.scope is not None and mine.scope.mask == "same" and "mask same" in dump(app)
        assert [line.accuracy for line in mine.lines] != before
        assert mine.paired_scope == mine.scope and mine.paired is not None
        await go(app, pilot, "2", "j", "enter")  # nobody looks at what there was
        assert mine.scope is None and mine.best is None and mine.paired is None and mine.comparison is not None
        assert [line.accuracy for line in mine.lines] == [None] * 3
        await go(app, pilot, "8")
        assert mine.scope is not None and mine.scope.sample == Path("samples/data_2.pt") and mine.paired is not None


def endless(real: Callable[..., Any]) -> Callable[..., Any]:
    """The session's method, which after its first word of progress waits to be stopped."""

    def work(found: Any, paths: Any, on_progress: Any, poll: Any) -> Any:
        def told(run: Any) -> None:
            on_progress(run)
            for _ in range(3000):
                poll()
                time.sleep(0.01)

        return real(found, paths, told, poll)

    return work


async def until(pilot: Any, holds: Callable[[], bool]) -> None:
    for _ in range(500):
        await pilot.pause(0.02)
        if holds():
            return
    raise AssertionError("never came to hold")


async def test_escape_stops_and_what_is_in_stays(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = story_app(run)
    session, real = app.controller.session, app.controller.session.run_epochs
    monkeypatch.setattr(session, "run_epochs", endless(real))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        mine = app.controller.state.compare
        await pilot.press("8")
        await until(pilot, lambda: mine.done == 1)
        assert "running checkpoints" in dump(app) and "esc stops" in dump(app)
        assert "so far best 0" in dump(app)
        await go(app, pilot, "escape")
        assert "1 of 3 run, stopped" in dump(app) and [bool(line.accuracy) for line in mine.lines] == [
            True,
            False,
            False,
        ]
        await go(app, pilot, "1", "8", "j")
        assert mine.done == 1  # what was stopped does not begin by itself
        monkeypatch.setattr(session, "run_epochs", real)
        await go(app, pilot, "r")
        assert mine.done == 3 and mine.lines[2].accuracy is not None


async def test_nobody_looking_ends_a_run_on_a_sample_that_was_left(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = story_app(run)
    monkeypatch.setattr(app.controller.session, "run_epochs", endless(app.controller.session.run_epochs))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await pilot.press("8")
        await until(pilot, lambda: app.controller.state.compare.done == 1)
        await go(app, pilot, "2", "j", "enter")  # settles only where the run has ended
        assert app.controller.state.compare.scope is None


async def test_without_samples_the_folders_and_two_checkpoints_are_still_compared(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = story_app(run)
    monkeypatch.setattr(app.controller.session, "list_samples", lambda poll: SampleList(SamplePaths(), "none here"))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8")
        assert [row[4] for row in cells(app, "epochs-table")] == ["-"] * 3 and "0.125" in dump(app)
        assert "no samples" in dump(app)
        await go(app, pilot, "a")
        assert app.controller.state.message_kind == "warn"
        await go(app, pilot, "space", "shift+tab")
        assert app.controller.state.compare.comparison is not None and "no samples" in dump(app)


async def test_large_checkpoints_are_run_only_when_asked_for(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "UNASKED", 1000)
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8")
        mine = app.controller.state.compare
        assert len(mine.lines) == 3 and mine.scope is None and "not run: r runs all" in dump(app)
        await go(app, pilot, "space")
        assert mine.comparison is not None and mine.paired is None
        await go(app, pilot, "shift+tab")
        assert "r runs both on this sample" in dump(app)
        await go(app, pilot, "r", "escape", "r")
        assert mine.paired is not None and mine.done == 3
        await go(app, pilot, "j", "enter")  # the pair is another one: nor is that read unasked
        assert mine.theirs is not None and mine.comparison is None
        await go(app, pilot, "tab")
        assert "r compares ours 2, theirs 0" in dump(app)
        await go(app, pilot, "r")
        assert mine.comparison is not None and mine.comparison.ours.path.name == "2"


async def test_a_checkpoint_that_cannot_be_compared_is_said_in_its_pane(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8")
        (run / "output/0/config.json").write_text("{")
        (run / "output/0/config_speculators.json").write_text("{")
        await go(app, pilot, "space", "tab")
        assert app.controller.state.message_kind == "bad"
        await go(app, pilot, "escape")
        mine = app.controller.state.compare
        assert mine.comparison is None and mine.pair_problem and mine.pair_problem[:40] in dump(app)


async def test_the_curve_of_lengths_then_of_accuracies(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "p")
        plot = app.query_one("#compare-plot", PlotView)
        assert plot.has_class("shown") and "accept length, bonus token counted" in dump(app) and "epoch" in dump(app)
        check_golden("compare-plot-80x24", dump(app))
        await go(app, pilot, "p")
        assert "step-0 %" in dump(app) and "trainer's own" in dump(app)
        await go(app, pilot, "escape")
        assert not plot.has_class("shown") and view_of(app).current == EPOCHS
        await go(app, pilot, "tab", "p")
        assert view_of(app).current == EPOCHS and plot.has_class("shown")


async def test_sorting_each_pane(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space")

        def column(table: str, number: int) -> list[str]:
            return [row[number] for row in cells(app, table)]

        assert column("epochs-table", 1) == ["0", "2", "5"]
        await go(app, pilot, "s", "s")
        known = [float(text) for text in column("epochs-table", 4) if text != "-"]
        assert known == sorted(known, reverse=True) and column("epochs-table", 1)[-1] == "2"
        await go(app, pilot, "tab", "tab", "s")
        assert view_of(app).current == TENSORS
        assert column("compare-tensors", 1) == sorted(column("compare-tensors", 1))
        await go(app, pilot, "tab")
        places = [int(text) for text in column("compare-tokens", 0)]
        assert places != sorted(places)
        await go(app, pilot, "s")
        assert [int(text) for text in column("compare-tokens", 0)] == sorted(places)


async def test_the_same_key_unmarks_and_other_panes_do_not_mark(run: Path) -> None:
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "space", "tab", "space")
        mine = app.controller.state.compare
        assert (
            mine.theirs is not None and view_of(app).current == CONFIG and "in epochs" in app.controller.state.message
        )
        await go(app, pilot, "escape", "space")
        assert mine.theirs is None and mine.comparison is None and mine.paired is None
        assert not cells(app, "compare-config") and not cells(app, "compare-tokens")


async def test_names_from_files_are_shown_as_text(run: Path) -> None:
    evil = run / "output" / "9\x1b[31m"
    shutil.copytree(run / "output/0", evil)
    (evil / "val_metrics.json").write_text('{"acc\\u001b[2J": 0.5}')
    app = story_app(run)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "G")
        assert "\x1b" not in dump(app) and "\\x1b[2J" in dump(app)
        assert len(find_checkpoints(run / "output")) == 4


@pytest.mark.parametrize("size", [(10, 5), (40, 12), (200, 60)])
async def test_every_pane_at_any_size(run: Path, size: tuple[int, int]) -> None:
    app = story_app(run)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "8", "p", "space")
        for _ in range(4):
            table = view_of(app).table()
            assert table is not None and table.size.height >= 2 and table.size.width >= 8
            await go(app, pilot, "tab", "j")
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert "checkpoint" in dump(app)
