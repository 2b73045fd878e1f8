"""The Accept view: chains, rounds, breaks and trees, each held against what the session itself answers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafter.drafting.tree import Node, Tree, tree_plan
from drafter.scoring.chain_report import chain_report_json
from eagle3_tui.app import InspectorApp
from eagle3_tui.controls.accept import AcceptState
from eagle3_tui.screens.accept import DEPTH, ROUND_BY_ROUND, TREES, AcceptView
from eagle3_tui.screens.accept_branches import tree_lines
from eagle3_tui.screens.step import StepView
from eagle3_tui.screens.view import percent
from eagle3_tui.widgets.line_table import LineTable
from eagle3_tui.widgets.plot import PlotView
from tests import tiny
from tests.drafter.chain_cases import agreeable_world
from tests.eagle3_tui.screen import check_golden, dump, settle, story_app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose samples agree with the drafter, so that something is accepted."""
    return agreeable_world(tmp_path_factory.mktemp("accept"), count=3).folder


@pytest.fixture
def app(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InspectorApp:
    monkeypatch.chdir(folder)
    return made(tmp_path)


def made(state: Path, **changes: object) -> InspectorApp:
    return story_app(state, **{"orderings": ("0,1,2",), "dtype": "float32", **changes})


async def go(app: InspectorApp, pilot: Any, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(app, pilot)


def rows(app: InspectorApp, pane: str) -> list[list[str]]:
    source = app.query_one(f"#accept-{pane}", LineTable).source
    return [[text for text, _ in source.cells(i)] for i in range(len(source))]


def detail(app: InspectorApp) -> str:
    view = app.view
    assert isinstance(view, AcceptView)
    return "\n".join("".join(text for text, _ in line) for line in view.detail.lines)


def calls(app: InspectorApp, name: str) -> int:
    return sum(record.get("call") == name for record in app.controller.session.log.records)


def mine(app: InspectorApp) -> AcceptState:
    return app.controller.state.accept


def report(app: InspectorApp, **asked: Any) -> dict[str, Any]:
    session = app.controller.session
    return chain_report_json(session.chain_report((0, 1, 2), **asked), session.piece, 200)


def share(count: dict[str, int]) -> str:
    return percent(count["hits"] / count["total"])


async def test_steps_and_lengths_are_the_sessions(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        assert not calls(app, "chain_report") and not calls(app, "rounds")
        await go(app, pilot, "6")
        assert (calls(app, "chain_report"), calls(app, "rounds"), calls(app, "tree")) == (1, 0, 0)
        data = report(app)
        histogram = data["accept_length"]["histogram"]
        assert sum(histogram) > histogram[0] > 0  # else every number below would be a zero
        ways = ("teacher_forced", "free_running", "joint", "conditional")
        table = rows(app, "steps")
        assert [row[:5] for row in table] == [
            *([str(k), *(share(step[way]) for way in ways)] for k, step in enumerate(data["steps"])),
            [""] * 5,
        ]
        assert [row[5:7] for row in table] == [[str(n + 1), str(count)] for n, count in enumerate(histogram)]
        widest = max(range(len(histogram)), key=lambda n: histogram[n])
        assert max(len(row[-1]) for row in table) == len(table[widest][-1]) > 0
        said = detail(app)
        assert f"accept length {data['accept_length']['mean']:.2f}: bonus counted" in said and "mask next" in said
        assert f"walk {data['accept_length']['walk']['length']:.2f} tokens a round" in said
        assert f"conditional {data['expected']['conditional']:.2f}" in said
        assert f"(the mistake) {data['expected']['marginal']:.2f}" in said
        check_golden("accept-depth-80x24", dump(app))
        await go(app, pilot, "j", "j")
        assert f"step 2: text fed {data['steps'][2]['teacher_forced']['hits']}/" in detail(app)
        await go(app, pilot, "2", "6")
        assert calls(app, "chain_report") == 2  # the view's and this test's: what is there is not computed again


async def test_other_depths(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "tab", "shift+tab", "plus", "plus")
        data = report(app, depth=7)
        assert [row[6] for row in rows(app, "steps")] == [str(n) for n in data["accept_length"]["histogram"]]
        assert len(rows(app, "steps")) == 8 and not mine(app).rounds
        await go(app, pilot, *["minus"] * 6)
        assert len(rows(app, "steps")) == 2 and app.controller.state.message == ""
        await go(app, pilot, "minus")
        assert "expected 1..16" in app.controller.state.message and len(rows(app, "steps")) == 2
        await go(app, pilot, "tab")
        found = app.controller.session.rounds((0, 1, 2), 1)
        assert [row[1] for row in rows(app, "rounds")] == [f"{one.accepted}/1" for one in found]
        await go(app, pilot, *["plus"] * 15, "plus")
        assert app.controller.accept.depth == 16 and "expected 1..16" in app.controller.state.message


async def test_the_plot_takes_the_place_of_the_detail(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "p")
        view = app.view
        plot = app.query_one("#accept-plot", PlotView)
        assert isinstance(view, AcceptView) and plot.display and not view.detail.display
        assert "text fed" in dump(app) and "own fed" in dump(app) and "draft step" in dump(app)
        await go(app, pilot, "tab")
        assert view.detail.display  # the other panes have no plot
        await go(app, pilot, "p")
        assert view.current == DEPTH and plot.display and not view.detail.display
        await go(app, pilot, "p")
        assert not plot.display and view.detail.display
        await go(app, pilot, "p", "escape")
        assert not plot.display and view.detail.display


async def test_all_samples_are_pooled_and_weighed(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "a")
        paths = list(app.controller.state.samples.paths)  # type: ignore[union-attr]
        data = report(app, paths=paths)
        assert len(data["samples"]) == 3 and mine(app).chains.data == data  # type: ignore[union-attr]
        assert [row[6] for row in rows(app, "steps")] == [str(n) for n in data["accept_length"]["histogram"]]
        assert "of 3 samples pooled" in detail(app)
        mean = data["accept_length"]["mean_of_samples"]["mean"]
        assert f"mean of 3 samples {mean:.2f} (each weighs the same)" in detail(app)
        await go(app, pilot, "r")
        assert mine(app).chains.data == report(app) != data  # type: ignore[union-attr]
        await go(app, pilot, "a", "o")
        chains = mine(app).chains
        assert chains is not None and chains.planned == 1  # another ordering begins with the sample that is open


async def test_rounds_are_the_sessions(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "tab")
        session = app.controller.session
        found, piece = session.rounds((0, 1, 2)), session.piece
        assert {0, 5} <= {one.accepted for one in found}
        for one, row in zip(found, rows(app, "rounds"), strict=True):
            said = [piece(token) for token in one.drafted]
            # the token after which it drafts, as `accept` prints it
            known = piece(int(session.sample.ids[one.known]))
            assert row[:4] == [str(one.known), f"{one.accepted}/5", str(one.emitted), known]
            assert row[4] == " ".join(f"={text}" for text in said[: one.accepted])
            assert row[5] == ("end of run" if one.bonus is None else f"+{piece(one.bonus)}")
            left = said[one.accepted :]
            if one.bonus is not None:
                assert row[6].split() == [f"{'-' if k else 'x'}{text}" for k, text in enumerate(left)]
        assert f"({sum(one.emitted for one in found)} in {len(found)} rounds)" in detail(app)
        assert "R refresh target: rows of accepted drafts are made again" in detail(app)
        check_golden("accept-rounds-80x24", dump(app))


async def test_the_rounds_that_accepted_nothing_are_found(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "n")  # from the first pane: the rounds come on screen
        view, table = app.view, app.query_one("#accept-rounds", LineTable)
        assert isinstance(view, AcceptView) and view.current == ROUND_BY_ROUND
        none = [i for i, one in enumerate(app.controller.session.rounds((0, 1, 2))) if not one.accepted]
        assert len(none) > 1
        await go(app, pilot, "g")
        seen = [table.row]
        for _ in none:
            await go(app, pilot, "n")
            seen.append(table.row)
        expected = none if none[0] else [*none[1:], none[-1]]
        assert seen[1:] == expected
        await go(app, pilot, "n")
        assert table.row == none[-1] and "no further round" in app.controller.state.message
        await go(app, pilot, "N")
        assert table.row == none[-2]
        known = app.controller.session.rounds((0, 1, 2))[none[-2]].known
        await go(app, pilot, "enter")
        assert isinstance(app.view, StepView) and app.controller.state.row == known - 1
        assert app.view.table().row == known - 1
        step = app.controller.state.step
        assert step is not None and step.readout.row == known - 1 and step.accept_length == 1


async def test_rows_that_keep_their_drafts(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "tab", "R")
        kept = app.controller.session.rounds((0, 1, 2), refresh="drafted")
        assert [row[:2] for row in rows(app, "rounds")] == [[str(o.known), f"{o.accepted}/5"] for o in kept]
        assert "refresh drafted" in detail(app) and "without the extend step" in detail(app)
        before = calls(app, "rounds")
        await go(app, pilot, "R")
        assert "refresh target" in detail(app) and calls(app, "rounds") == before


async def test_breaks_are_the_sessions(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "tab", "tab")
        breaks, piece = app.controller.session.breaks((0, 1, 2)), app.controller.session.piece
        tokens, outside = breaks.tokens(200), breaks.outside_tokens(200)
        assert tokens and outside
        assert [row[:5] for row in rows(app, "breaks")] == [
            *(["x", str(t.breaks), str(t.reached), percent(t.breaks / t.reached), piece(t.id)] for t in tokens),
            *(["o", str(times), "", "", piece(i)] for i, times in outside),
        ]
        first = tokens[0].instead[0]
        assert rows(app, "breaks")[0][5].startswith(f"{piece(first[0])} x{first[1]}")
        assert f"o {breaks.total.outside} of them, at {breaks.outside_places} places" in detail(app)
        assert "broken by row of the text: 0-31 " in detail(app)
        check_golden("accept-breaks-80x24", dump(app))
        await go(app, pilot, "G")
        assert "it cannot be drafted" in detail(app)
        await go(app, pilot, "slash", "o", "u", "t", "s", "enter")
        assert app.query_one("#accept-breaks", LineTable).line_count == len(outside)


async def test_the_tree_is_the_sessions(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        session, state = app.controller.session, app.controller.state
        good = next(one for one in session.rounds((0, 1, 2)) if one.accepted > 1)
        app.controller.go_to_row(state.sample.path, good.known - 1)  # type: ignore[union-attr]
        await go(app, pilot, "6", "shift+tab")
        view = app.view
        assert isinstance(view, AcceptView) and view.current == TREES and calls(app, "tree") == 1
        tree = session.tree(state.row + 2, (0, 1, 2), "sglang", 5, 4, 16)
        table = rows(app, "tree")
        assert sorted(row[1:3] for row in table[1:]) == sorted(
            [f"{n.prob:.3f}", f"{n.score:.4f}"] for n in tree.nodes[1:]
        )
        assert sum(row[0] == "=" for row in table) == tree.accept_length - 1 > 0
        assert sum(row[0] in ".!" and row[0] != "" for row in table) == sum(not n.kept for n in tree.nodes)
        assert f"accept length {tree.accept_length}, bonus counted" in detail(app)
        check_golden("accept-tree-80x24", dump(app))
        await go(app, pilot, "v")
        assert len(rows(app, "tree")) == sum(n.kept for n in tree.nodes) == 16
        row = state.row
        await go(app, pilot, "right_square_bracket", "right_square_bracket", "left_square_bracket")
        assert state.row == row + 1 and mine(app).tree.tree.row == row + 1  # type: ignore[union-attr]
        await go(app, pilot, "enter")
        assert isinstance(app.view, StepView) and app.view.table().row == row + 1
        await go(app, pilot, "j", "6")
        assert mine(app).tree.tree.row == row + 2  # type: ignore[union-attr]
        app.controller.go_to_row(state.sample.path, 0)  # type: ignore[union-attr]
        await go(app, pilot, "left_square_bracket")
        assert state.row == 0
        app.controller.go_to_row(state.sample.path, 58)  # type: ignore[union-attr]
        await go(app, pilot, "right_square_bracket")
        assert state.row == 58 and "the text ends" in detail(app)


async def test_rules_and_sizes_of_the_tree(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "T", "T")
        plan = app.controller.accept.plan
        assert plan.rule == "safeailab" and "safeailab steps 5 topk 4 tokens 16" in detail(app)
        assert [c.title for c in app.query_one("#accept-tree", LineTable).columns][2] == "sum log"
        for wrong, said in (("5 4", "expected steps, topk and tokens"), ("5 99 9", "topk 99"), ("5 4 x", "expected")):
            await go(app, pilot, "x", *wrong.replace(" ", ","), "enter")
            assert said in app.controller.state.message and app.controller.accept.plan == plan
        await go(app, pilot, "x", *"2,3,5", "enter")
        tree = app.controller.session.tree(app.controller.state.row + 2, (0, 1, 2), "safeailab", 2, 3, 5)
        assert len(rows(app, "tree")) == len(tree.nodes) == 1 + 3 + 9 + 9
        await go(app, pilot, "x", *"2,64,5", "enter")  # the draft vocabulary holds 40
        assert "at most the draft vocabulary of 40" in detail(app) and not rows(app, "tree")
        assert "refused" in dump(app) and app.controller.state.message == ""
        await go(app, pilot, "x", *"2,3,5", "enter")
        assert len(rows(app, "tree")) == len(tree.nodes)


async def test_lengths_of_trees_beside_the_chains(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "shift+tab")
        assert calls(app, "tree_lengths") == 0 and "L: accept lengths" in detail(app)
        await go(app, pilot, "L")
        counts = app.controller.session.tree_lengths((0, 1, 2), "sglang", 5, 4, 16)
        trees, chain = counts.lengths, counts.chain
        assert trees.mean > chain.mean  # type: ignore[operator]
        said = f"trees {trees.mean:.2f}, chains of 5 drafts {chain.mean:.2f}: {trees.rows} rows"
        assert said in detail(app) and f"walk {trees.walk:.2f} tokens a round, chains {chain.walk:.2f}" in detail(app)
        await go(app, pilot, "T")
        assert mine(app).lengths is None and "L: accept lengths" in detail(app)


def endless(real: Callable[..., Any]) -> Callable[..., Any]:
    """The real call, that first polls until somebody cancels it."""

    def call(*args: Any, **named: Any) -> Any:
        poll, end = named.get("poll") or args[-1], time.monotonic() + 20
        while time.monotonic() < end:
            poll()
            time.sleep(0.001)
        return real(*args, **named)

    return call


CASES = [("chain_report", "accept", ["6"]), ("rounds", "rounds", ["6", "tab"]), ("tree_lengths", "lengths", ["6", "L"])]


@pytest.mark.parametrize(("call", "group", "keys"), CASES)
async def test_escape_stops_and_r_begins_again(
    app: InspectorApp, monkeypatch: pytest.MonkeyPatch, call: str, group: str, keys: list[str]
) -> None:
    session = app.controller.session
    real = getattr(session, call)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        monkeypatch.setattr(session, call, endless(real))
        for key in keys:
            await pilot.press(key)
        for _ in range(200):
            await pilot.pause(0.02)
            if app.engine.running and app.engine.jobs[0].group == group:
                break
        assert "esc stops" in dump(app)
        await pilot.press("escape")
        await settle(app, pilot)  # would never come while it runs
        assert app.controller.state.message.startswith("stopped: ") and mine(app).stopped == {group}
        assert group == "lengths" or "stopped: r computes it" in dump(app)
        monkeypatch.setattr(session, call, real)
        await go(app, pilot, "2", "6")
        assert mine(app).stopped == {group}  # what was stopped does not begin by itself
        await go(app, pilot, "L" if group == "lengths" else "r")
        assert not mine(app).stopped and app.controller.state.message_kind != "bad"
        found = {"accept": mine(app).chains, "rounds": mine(app).rounds, "lengths": mine(app).lengths}
        assert found[group]


async def test_another_ordering_mask_or_sample_is_computed_anew(app: InspectorApp) -> None:
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "tab", "tab", "tab", "escape", "o")
        accept, state = mine(app), app.controller.state
        assert accept.chains is not None and tuple(accept.chains.data["ordering"]) == state.ordering != (0, 1, 2)
        assert not accept.rounds and accept.tree is None  # nobody looks at those
        await go(app, pilot, "O", "m")
        assert mine(app).chains.data["mask"] == "same" and "mask same" in detail(app)  # type: ignore[union-attr]
        assert mine(app).chains.data == report(app)  # type: ignore[union-attr]
        await go(app, pilot, "2", "j", "enter", "6")
        path = str(state.sample.path)  # type: ignore[union-attr]
        assert [one["path"] for one in mine(app).chains.data["samples"]] == [path]  # type: ignore[union-attr]
        assert mine(app).chains.data == report(app)  # type: ignore[union-attr]


async def test_a_sample_that_cannot_be_had_does_not_end_what_was_computed(app: InspectorApp, folder: Path) -> None:
    broken = folder / "samples" / "zz.pt"
    broken.write_bytes(b"")
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await settle(app, pilot)
            await go(app, pilot, "6", "2", "g", "enter")
            assert app.controller.state.message_kind == "bad"
            await go(app, pilot, "escape", "6")
            assert len(rows(app, "steps")) == 6 and detail(app).startswith("accept length ")
    finally:
        broken.unlink()


async def test_what_stands_in_the_way_is_said(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = tmp_path / "far" / "from" / "all"  # what lies beside is looked for two folders up
    alone.mkdir(parents=True)
    monkeypatch.chdir(alone)
    shutil.copytree(folder / "output", alone / "output")
    app = made(alone, samples=(), target=None, slots=None, orderings=())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        for keys in (["6"], ["tab"], ["tab"], ["tab"], ["a"], ["r"], ["L", "T", "]"], ["p", "plus"], ["n", "R"]):
            await go(app, pilot, *[key.replace("]", "right_square_bracket") for key in keys])
            assert app.is_running and "no samples" in dump(app).split("\n")[4]
        assert not calls(app, "chain_report") and not calls(app, "rounds") and not calls(app, "tree")


async def test_another_ordering_or_sample_ends_what_runs(app: InspectorApp, monkeypatch: pytest.MonkeyPatch) -> None:
    session = app.controller.session
    real = session.rounds
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6")
        monkeypatch.setattr(session, "rounds", endless(real))
        await pilot.press("tab")
        await pilot.pause(0.1)
        assert app.engine.expects("rounds") and "drafting …" in dump(app)
        monkeypatch.setattr(session, "rounds", real)
        await go(app, pilot, "o")  # settles only where the first run has ended
        found = real(app.controller.state.ordering)  # type: ignore[arg-type]
        assert [row[1] for row in rows(app, "rounds")] == [f"{one.accepted}/5" for one in found]
        monkeypatch.setattr(session, "rounds", endless(real))
        await pilot.press("R")
        await pilot.pause(0.1)
        assert app.engine.expects("rounds")
        await pilot.press("2", "g", "j", "enter")
        await settle(app, pilot)
        assert not app.engine.expects("rounds") and not mine(app).rounds


async def test_a_text_without_supervised_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = agreeable_world(tmp_path, count=1)
    text = world.texts[0]
    tiny.write_v1_sample(world.samples[0], tiny.TinySample(text.ids, [0] * len(text.ids), text.slots, text.depths))
    monkeypatch.chdir(tmp_path)
    app = made(tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6")
        assert "accept length -" in detail(app) and "! no row counts for an accept length" in detail(app)
        await go(app, pilot, "tab")
        assert "no supervised text to decode" in dump(app)
        await go(app, pilot, "tab")
        assert "no chain breaks" in dump(app) and "! no row counts" in detail(app)


async def test_two_panes_on_a_wide_screen(app: InspectorApp) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6")
        assert len(rows(app, "steps")) == 6 and len(rows(app, "rounds")) > 3
        check_golden("accept-wide-120x40", dump(app))
        await go(app, pilot, "shift+tab", "L")
        check_golden("accept-tree-120x40", dump(app))
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert "step text fed" not in dump(app) and "cumul." in dump(app)


async def test_every_pane_in_the_smallest_window(app: InspectorApp) -> None:
    async with app.run_test(size=(10, 5)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6", "p", "tab", "n", "tab", "tab", "L", "right_square_bracket", "v")
        await pilot.resize_terminal(50, 20)
        await settle(app, pilot)
        assert app.is_running and "= " in dump(app)
        await go(app, pilot, "tab")
        assert [c.title for c in app.query_one("#accept-steps", LineTable).columns][1:3] == ["text", "own"]


async def test_ascii_draws_bars_and_branches_without_unicode(app: InspectorApp) -> None:
    app.ascii = True
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await go(app, pilot, "6")
        bars = [row[-1] for row in rows(app, "steps")]
        assert set("".join(bars)) == {"#"}
        await go(app, pilot, "shift+tab")
        drawn = [row[3] for row in rows(app, "tree")]
        assert all(text.isascii() for text in drawn) and any(text.startswith("`- ") for text in drawn)


def test_branches_are_drawn_with_the_likeliest_child_first() -> None:
    def node(parent: int, depth: int, id: int, score: float, kept: bool) -> Node:
        return Node(parent, depth, id, id, score, score, kept, False)

    plan = tree_plan("sglang", 2, 2, 4)
    nodes = (
        Node(-1, 0, 9, -1, 1.0, 1.0, True, True),
        node(0, 1, 1, 0.3, False),
        node(0, 1, 2, 0.6, True),
        node(2, 2, 3, 0.1, False),
        node(2, 2, 4, 0.5, True),
        node(1, 2, 5, 0.2, False),
    )
    tree = Tree(plan, 0, nodes)
    lines = tree_lines(tree, [9, 1, 5])
    assert [(line.guide, line.node.id) for line in lines] == [
        ("", 9),
        ("├─ ", 2),
        ("│  ├─ ", 4),
        ("│  └─ ", 3),
        ("└─ ", 1),
        ("   └─ ", 5),
    ]
    assert [line.node.id for line in lines if line.right] == [9, 1, 5]  # right, and yet not kept
    assert [(line.guide, line.node.id) for line in tree_lines(tree, [9], only_kept=True)] == [
        ("", 9),
        ("└─ ", 2),
        ("   └─ ", 4),
    ]
