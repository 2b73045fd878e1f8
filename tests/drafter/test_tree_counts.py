"""Accept lengths of trees, counted by brute force and asked of a session: rows, mask modes, walks, progress, log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter.drafting.context import SampleRun
from drafter.drafting.tree import TreePlan, tree_plan
from drafter.drafting.tree_eagle2 import read_tree
from drafter.errors import Cancelled, WiringError
from drafter.log import SessionLog
from drafter.scoring import tree_counts
from drafter.scoring.counts import count, rows_needed
from drafter.scoring.sweep import truths_of
from drafter.scoring.tree_counts import TreeCounts, count_trees, tree_counts_json
from drafter.session import Session
from tests import reference_scores as scores
from tests import tiny
from tests.drafter.helpers import refused, tiny_run, trained
from tests.drafter.test_variants import VARIANTS, case
from tests.tiny_world import World, tiny_world

ORDERING = (0, 1, 2)
MASKS = {
    "as recorded": None,
    "from the first token": [1] * 25,
    "two runs": [0] * 4 + [1] * 6 + [0] * 3 + [1] * 9 + [0] * 3,
    "none": [0] * 25,
}


def echoing(folder: Path, mask: list[int] | None = None) -> SampleRun:
    """A run whose text follows the drafter's trees for a while here and there, so that all lengths occur."""
    weights = tiny.tiny_weights(4)
    sample = tiny.tiny_sample(4, weights, mask=mask)
    for row in (2, 5, 9, 12, 16, 19):
        run = tiny_run(folder / str(row), weights, sample)
        nodes = read_tree(run, ORDERING, trained(run), row, tree_plan("sglang", 3, 3, 10)).kept()
        leaf = max((n for n in nodes if n.depth == 1 + row % 3), key=lambda n: (n.parent, n.id))
        path = []
        while leaf.parent >= 0:
            path.append(leaf.id)
            leaf = nodes[leaf.parent]
        sample = replace(sample, ids=[*sample.ids[: row + 2], *path[::-1], *sample.ids[row + 2 + len(path) :]])
    return tiny_run(folder / "whole", weights, sample)


def counted(run: SampleRun, plan: TreePlan, mode: str = "next", **options: Any) -> TreeCounts:
    wiring = trained(run)
    return count_trees(run, ORDERING, wiring, plan, truths_of(run, None, wiring), mode, **options)


def lengths_by_row(run: SampleRun, plan: TreePlan) -> list[int]:
    return [read_tree(run, ORDERING, trained(run), row, plan).accept_length - 1 for row in range(run.rows)]


def walked(accepted: list[int], mask: list[int]) -> tuple[int, int]:
    """Round by round: row p - 1 drafts from token p; token 0 has none."""
    rounds = tokens = 0
    for start, stop in scores.runs(mask):
        p = start
        while p < stop - 1:
            emitted = min((accepted[p - 1] if p else 0) + 1, stop - 1 - p)
            rounds, tokens, p = rounds + 1, tokens + emitted, p + emitted
    return rounds, tokens


@pytest.mark.parametrize("mode", scores.MODES)
@pytest.mark.parametrize("mask", MASKS)
def test_lengths_and_walks_are_those_of_every_row_by_itself(tmp_path: Path, mask: str, mode: str) -> None:
    run, plan = echoing(tmp_path, MASKS[mask]), tree_plan("sglang", 3, 3, 10)
    accepted, own = lengths_by_row(run, plan), run.sample.supervised.int().tolist()
    histogram = [0] * 4
    for row in range(run.rows - 3):  # with three truths
        if all(scores.counts_row(own, mode, row + k) for k in range(3)):
            histogram[accepted[row]] += 1
    counts = counted(run, plan, mode)
    assert list(counts.lengths.histogram) == histogram
    assert (counts.lengths.rounds, counts.lengths.tokens) == walked(accepted, own)
    assert (counts.of, counts.not_finite) == (sum(histogram), 0) and counts.done == counts.planned
    if mask == "from the first token":
        assert set(accepted) == {0, 1, 2, 3}


def test_a_chain_stands_beside_the_tree_on_the_same_rows(tmp_path: Path) -> None:
    run = echoing(tmp_path)
    wiring, truths = trained(run), truths_of(run, None, trained(run))
    rows = rows_needed(truths.mask, "next", 4)
    chain = count(tree_counts.draft_ids(run, ORDERING, wiring, 4, rows), truths, "next").lengths
    for rule, steps in (("sglang", 4), ("safeailab", 3)):
        counts = counted(run, tree_plan(rule, steps, 3, 30))
        assert counts.chain == chain
        assert counts.lengths.sum > chain.sum and counts.lengths.rows == chain.rows
    alone = counted(run, tree_plan("sglang", 4, 1))
    assert alone.lengths == alone.chain == chain


def test_some_rows_are_spread_and_walk_nowhere(tmp_path: Path) -> None:
    run, plan = echoing(tmp_path, [1] * 25), tree_plan("sglang", 3, 3, 10)
    accepted, of = lengths_by_row(run, plan), run.rows - 3
    for rows in (2, 3, 4, 5, 7):
        counts = counted(run, plan, rows=rows)
        histogram = [0] * 4
        for i in range(rows):
            histogram[accepted[i * of // rows]] += 1
        assert list(counts.lengths.histogram) == histogram
    assert (counts.lengths.walk, counts.chain.walk, counts.planned, counts.of) == (None, None, 7, of)
    assert tree_counts_json(counts)["accept_length"]["walk"] is None
    assert counted(run, plan, rows=of) == counted(run, plan, rows=10**9) == counted(run, plan)
    with refused(WiringError, "0 rows"):
        counted(run, plan, rows=0)


def test_progress_grows_to_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafter.drafting.tree_eagle2.MAX_BYTES", 20_000)
    run, plan, seen = echoing(tmp_path), tree_plan("sglang", 3, 3, 10), list[TreeCounts]()
    result = counted(run, plan, found=seen.append)
    assert len(seen) > 3 and seen[-1] == result
    assert [s.done for s in seen] == sorted({s.done for s in seen}) and result.done == result.planned
    assert all(s.lengths.walk is None for s in seen[:-1]) and result.lengths.walk is not None
    assert seen[1].lengths.rows == seen[1].chain.rows < result.lengths.rows


def test_rows_without_numbers_accept_nothing(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(3)
    sample = tiny.tiny_sample(3, weights, mask=[1] * 25)
    sample.slots[20, 1] = float("nan")
    counts = counted(tiny_run(tmp_path, weights, sample), tree_plan("sglang", 2, 2, 4))
    assert counts.not_finite == 4 and counts.done == 24
    json.dumps(tree_counts_json(counts), allow_nan=False)


def test_a_parallel_drafter_is_refused_before_anything_is_searched(tmp_path: Path) -> None:
    here = case(tmp_path, VARIANTS["p-eagle"])
    truths = truths_of(here.run, None, here.wiring)
    with refused(WiringError, "P-EAGLE"):
        count_trees(here.run, here.ordering, here.wiring, tree_plan("sglang", 2, 2, 4), truths, "next")


# --- a session


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("world"))


def last_call(session: Session) -> dict[str, Any]:
    return session.log.records[-1]


def test_a_session_grows_a_tree_and_writes_it_down(world: World) -> None:
    session = world.session(SessionLog(None, []))
    tree = session.tree(9, ORDERING, "sglang", 3, 3, 8)
    record = last_call(session)
    assert (record["call"], record["inputs"]["at"], record["inputs"]["tokens"]) == ("tree", 9, 8)
    assert record["inputs"]["sample"] == str(world.samples[0])
    assert tree.row == 7 and len(record["result"]["nodes"]) == 8
    assert record["result"]["nodes"][0]["id"] == world.texts[0].ids[8]
    step = session.step(9, ORDERING)
    assert tree.nodes[1].id == step.readout.predictions[0].id
    assert tree.nodes[1].prob == pytest.approx(step.readout.predictions[0].prob, rel=1e-4)
    assert session.tree(9, ORDERING, "sglang", 3, 3, 8) == tree and last_call(session)["digest"] == record["digest"]


def test_a_session_counts_trees_in_its_mask_mode_and_wiring(world: World) -> None:
    session = world.session(SessionLog(None, []), mask="all")
    seen = list[TreeCounts]()
    counts = session.tree_lengths(ORDERING, "sglang", 3, 3, 8, on_progress=seen.append)
    assert counts.lengths.rows == 25 - 4 and seen[-1] == counts
    record = last_call(session)
    assert record["call"] == "tree_lengths" and record["inputs"]["mask"] == "all"
    assert record["result"] == tree_counts_json(counts)
    chain = session.score_wiring(ORDERING, session.wiring, 3).lengths
    assert counts.chain == chain
    first = session.tree(9, ORDERING, "sglang", 3, 3, 8)
    session.set_switch("norm_before_residual", "off")
    assert session.tree(9, ORDERING, "sglang", 3, 3, 8) != first


@pytest.mark.parametrize(("at", "word"), [(1, "token 1"), (26, "token 26")])
def test_tokens_without_a_row_are_refused_and_logged(world: World, at: int, word: str) -> None:
    session = world.session(SessionLog(None, []))
    with refused(WiringError, word, "2..25"):
        session.tree(at, ORDERING, "sglang", 3, 3, 8)
    assert last_call(session)["record"] == "error" and last_call(session)["call"] == "tree"


def test_a_search_that_cannot_be_meant_is_refused_and_logged(world: World) -> None:
    session = world.session(SessionLog(None, []))
    with refused(WiringError, "topk 41", "40"):
        session.tree_lengths(ORDERING, "sglang", 3, 41, 8)
    with refused(WiringError, "rule"):
        session.tree_lengths(ORDERING, "vllm", 3, 4, 8)
    assert [r["record"] for r in session.log.records[-2:]] == ["error", "error"]


def test_a_count_can_be_left(world: World) -> None:
    session = world.session(SessionLog(None, []))
    session.run()
    left = iter(range(3))

    def stop() -> None:
        if next(left, None) is None:
            raise Cancelled

    with pytest.raises(Cancelled):
        session.tree_lengths(ORDERING, "sglang", 3, 3, 8, poll=stop)
    assert torch.is_tensor(session.run().ids) and session.tree_lengths(ORDERING, "sglang", 3, 3, 8).done > 0
