"""Tree drafting against a plain search, an exhaustive one and the chain; what of a tree is kept, seen and accepted."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from drafter.drafting import tree_eagle2
from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.readout import accepted, read_chain
from drafter.drafting.tree import RULES, Node, TreePlan, leaf_paths, seen_by, tree_json, tree_plan
from drafter.drafting.tree_eagle2 import Forest, best_tokens, forests, read_tree
from drafter.errors import Cancelled, WiringError
from drafter.sample.open import open_sample
from tests import tiny
from tests.drafter.helpers import refused, tiny_run, trained
from tests.drafter.test_variants import VARIANTS, Case, S, Variant, case
from tests.reference.tree import PlainTree, TreeSearch

ORDERING = (0, 1, 2)
WINDOWED = Variant(
    replace(S, layers=2), config={"sliding_window": 6}, switches={"windows": [6, 6], "moving_windows": True}
)
GROWN = {name: variant for name, variant in VARIANTS.items() if not variant.config.get("parallel")}


@pytest.fixture
def small(tmp_path: Path) -> SampleRun:
    weights = tiny.tiny_weights(3)
    return tiny_run(tmp_path, weights, tiny.tiny_sample(3, weights))


def grown(run: SampleRun, plan: TreePlan, rows: list[int] | None = None) -> list[Forest]:
    chosen = torch.arange(run.rows) if rows is None else torch.tensor(rows)
    return list(forests(run, ORDERING, trained(run), chosen, plan))


def paths_of(forest: Forest, row: int) -> list[tuple[int, ...]]:
    """The draft ids from the root to each candidate."""
    paths: list[tuple[int, ...]] = []
    for parent, draft in zip(forest.parents[row].tolist(), forest.draft_ids[row].tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), draft))
    return paths


# --- what can be asked


def test_a_plan_says_what_it_searches() -> None:
    plan = tree_plan("sglang", 5, 4, 16)
    assert (plan.levels, plan.candidates, plan.drafts, plan.notes) == (5, 4 + 4 * 16, 15, ())
    plan = tree_plan("safeailab", 7, 10, 60)
    assert (plan.levels, plan.candidates, plan.drafts) == (8, 10 + 7 * 100, 59)


def test_what_a_server_changes_is_said() -> None:
    plan = tree_plan("sglang", 1, 1, 16)
    assert (plan.tokens, plan.drafts) == (2, 1)
    assert "steps + 1 = 2" in plan.notes[0] and "(16)" in plan.notes[0]
    assert tree_plan("sglang", 3, 1) == tree_plan("sglang", 3, 1, 4)
    plan = tree_plan("sglang", 1, 4, 16)
    assert plan.drafts == 4 and "only 4 candidates" in plan.notes[0]
    assert "path of 8 drafts" in tree_plan("sglang", 8, 4, 4).notes[0]


@pytest.mark.parametrize(
    ("rule", "steps", "topk", "tokens", "word"),
    [
        ("eagle", 3, 4, 8, "sglang, sglang-slots, safeailab"),
        ("sglang", 0, 4, 8, "steps 0"),
        ("sglang", 3, 0, 8, "topk 0"),
        ("sglang", 3, 65, 8, "1..64"),
        ("sglang", 3, 4, 1, "at least 2"),
        ("sglang", 3, 4, None, "no number of tokens"),
        ("safeailab", 3, 1, None, "no number of tokens"),
        ("sglang", 10**9, 4, 8, "1..64"),
        ("safeailab", 64, 64, 8, "at most 65536"),
    ],
)
def test_what_cannot_be_meant_is_refused(rule: str, steps: int, topk: int, tokens: int | None, word: str) -> None:
    with refused(WiringError, word):
        tree_plan(rule, steps, topk, tokens)


def test_a_beam_wider_than_the_vocabulary_is_refused(small: SampleRun) -> None:
    assert grown(small, tree_plan("sglang", 2, 40, 8), [3])
    with refused(WiringError, "topk 41", "at most the draft vocabulary of 40"):
        grown(small, tree_plan("sglang", 2, 41, 8))


def test_a_parallel_drafter_grows_no_tree(tmp_path: Path) -> None:
    here = case(tmp_path, VARIANTS["p-eagle"])
    with refused(WiringError, "P-EAGLE", "chain"):
        read_tree(here.run, here.ordering, here.wiring, 3, tree_plan("sglang", 2, 2, 4))


@pytest.mark.parametrize("row", [-1, 24, 10**9])
def test_rows_that_are_not_there_are_refused(small: SampleRun, row: int) -> None:
    with refused(WiringError, f"row {row}", "0..23"):
        read_tree(small, ORDERING, trained(small), row, tree_plan("sglang", 2, 2, 4))


# --- the search


def plain(here: Case, row: int, plan: TreePlan) -> PlainTree:
    search = TreeSearch(
        here.truth, here.sample.ids, here.states, row, here.weights["d2t"].tolist(), plan.rule == "safeailab"
    )
    levels = plan.steps + 1 if plan.rule == "safeailab" else plan.steps
    return search.search(levels, plan.topk, plan.tokens - 1, plan.rule == "sglang-slots")


def compare(forest: Forest, row: int, truth: PlainTree) -> None:
    """The same candidates in the same order with the same scores, and the same ones kept."""
    assert paths_of(forest, row) == [draft.path for draft in truth.drafts]
    assert forest.scores[row].tolist() == pytest.approx([d.score for d in truth.drafts], rel=2e-3, abs=1e-4)
    assert forest.probs[row].tolist() == pytest.approx([d.prob for d in truth.drafts], rel=2e-3, abs=1e-5)
    assert forest.kept[row].nonzero().flatten().tolist() == truth.kept


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["plain", "every norm and bias", "four layers", "mla, two layers, biases", "late"])
def test_a_tree_is_the_plain_searchs(tmp_path: Path, name: str, rule: str) -> None:
    here = case(tmp_path, GROWN[name])
    plan, rows = tree_plan(rule, 3, 3, 12), [0, 5, here.run.rows - 1]
    (forest,) = forests(here.run, here.ordering, here.wiring, torch.tensor(rows), plan)
    for place, row in enumerate(rows):
        compare(forest, place, plain(here, row, plan))


@pytest.mark.parametrize("name", ["no aux", "double_norm", "constant", "dynamic", "mla, yarn", "tied", "logit scale"])
def test_every_wiring_grows_its_own_tree(tmp_path: Path, name: str) -> None:
    here, plan = case(tmp_path, GROWN[name]), tree_plan("sglang", 3, 3, 9)
    (forest,) = forests(here.run, here.ordering, here.wiring, torch.tensor([6]), plan)
    compare(forest, 0, plain(here, 6, plan))


def test_a_window_moves_with_the_depth(tmp_path: Path) -> None:
    here, plan = case(tmp_path, WINDOWED, tokens=20), tree_plan("sglang", 4, 2, 9)
    whole = case(tmp_path / "whole", replace(WINDOWED, config={}, switches={}), tokens=20)
    (forest,) = forests(here.run, here.ordering, here.wiring, torch.tensor([3, 15]), plan)
    (other,) = forests(whole.run, whole.ordering, whole.wiring, torch.tensor([3, 15]), plan)
    for place, row in enumerate([3, 15]):
        compare(forest, place, plain(here, row, plan))
    assert not torch.allclose(forest.scores[1], other.scores[1], rtol=1e-2)


def test_keys_that_stay_in_their_slot_make_another_tree(small: SampleRun) -> None:
    ours, theirs = (grown(small, tree_plan(rule, 4, 3, 20)) for rule in ("sglang", "sglang-slots"))
    first = ours[0].depths <= 2  # no two earlier keys could be exchanged up to there
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.scores[:, first], b.scores[:, first])
    assert not all(torch.equal(a.draft_ids, b.draft_ids) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("rule", ["sglang", "sglang-slots"])
@pytest.mark.parametrize("name", GROWN)
def test_a_beam_of_one_is_the_chain(tmp_path: Path, name: str, rule: str) -> None:
    here = case(tmp_path, GROWN[name])
    rows = torch.arange(here.run.rows)
    chain = draft_ids(here.run, here.ordering, here.wiring, 5, own_tokens=True)
    (forest,) = forests(here.run, here.ordering, here.wiring, rows, tree_plan(rule, 5, 1))
    assert torch.equal(forest.draft_ids.T, chain)
    assert bool(forest.kept.all()) and forest.parents[0].tolist() == [-1, 0, 1, 2, 3]
    for row in (0, 7):
        links = read_chain(here.run, here.ordering, here.wiring, row, 5)
        nodes = read_tree(here.run, here.ordering, here.wiring, row, tree_plan(rule, 5, 1)).nodes
        assert [node.id for node in nodes[1:]] == [link.id for link in links]
        assert [node.prob for node in nodes[1:]] == pytest.approx([link.prob for link in links], rel=1e-4)


@pytest.mark.parametrize("rule", ["sglang", "safeailab"])
@pytest.mark.parametrize("keep", [2, 4, 5])
def test_the_best_of_all_paths_are_found(tmp_path: Path, rule: str, keep: int) -> None:
    """With as many in the beam as are kept, nothing that belongs into the tree can be missed."""
    here = case(tmp_path, Variant(replace(S, draft_vocab=5)), tokens=8)
    plan = tree_plan(rule, 3 if rule == "sglang" else 2, 5, keep + 1)
    for row in range(here.run.rows):
        search = TreeSearch(
            here.truth, here.sample.ids, here.states, row, here.weights["d2t"].tolist(), rule == "safeailab"
        )
        every = sorted(search.every_path(3), key=lambda draft: -draft.score)
        assert len(every) == 5 + 25 + 125
        (forest,) = forests(here.run, here.ordering, here.wiring, torch.tensor([row]), plan)
        found = {path for path, kept in zip(paths_of(forest, 0), forest.kept[0].tolist(), strict=True) if kept}
        assert found == {draft.path for draft in every[:keep]}


# --- many rows, in blocks, cancelled


@pytest.mark.parametrize("rule", RULES)
def test_blocks_of_any_size_give_the_same(small: SampleRun, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    plan = tree_plan(rule, 3, 3, 10)
    (whole,) = grown(small, plan)
    for limit in (1, 60_000):
        monkeypatch.setattr(tree_eagle2, "MAX_BYTES", limit)
        parts = grown(small, plan)
        assert (len(parts) == small.rows) if limit == 1 else 1 < len(parts) < small.rows
        assert torch.equal(torch.cat([part.rows for part in parts]), whole.rows)
        assert torch.allclose(torch.cat([part.scores for part in parts]), whole.scores, rtol=1e-3, atol=1e-4)
        assert torch.equal(torch.cat([part.kept for part in parts]), whole.kept)
    assert grown(small, plan, []) == []


def test_a_search_stops_between_levels(small: SampleRun) -> None:
    plan, polls = tree_plan("sglang", 4, 2, 6), itertools.count()
    list(forests(small, ORDERING, trained(small), torch.arange(3), plan, lambda: next(polls) and None))
    assert next(polls) >= 4
    left = iter(range(2))

    def stop() -> None:
        if next(left, None) is None:
            raise Cancelled

    with pytest.raises(Cancelled):
        list(forests(small, ORDERING, trained(small), torch.arange(3), plan, stop))


# --- ties, and what is no number


def test_of_equal_logits_the_lowest_ids_are_taken() -> None:
    rng = torch.Generator().manual_seed(1)
    logits = torch.randint(0, 4, (200, 12), generator=rng).float()
    for count in (1, 3, 12):
        values, ids = best_tokens(logits, count)
        for row, own, found in zip(logits.tolist(), ids.tolist(), values.tolist(), strict=True):
            assert own == sorted(range(12), key=lambda d: (-row[d], d))[:count]
            assert found == [row[d] for d in own]


@pytest.mark.parametrize("rule", RULES)
def test_equal_scores_keep_the_first_found_with_their_parents(tmp_path: Path, rule: str) -> None:
    """A head that says the same of every token, and one that is so sure that a child scores as high as its parent."""
    for gain in (0.0, 1e4):
        weights = tiny.tiny_weights(3)
        weights["lm_head.weight"] *= gain
        run = tiny_run(tmp_path / str(gain), weights, tiny.tiny_sample(3, weights))
        for forest in grown(run, tree_plan(rule, 4, 3, 8)):
            for kept, parents in zip(forest.kept, forest.parents, strict=True):
                assert int(kept.sum()) == 7
                assert all(parent < 0 or kept[parent] for parent in parents[kept].tolist())
            if gain == 0.0:
                assert forest.draft_ids[0, :3].tolist() == [0, 1, 2]


def test_a_state_that_is_no_number_grows_nothing_and_spoils_no_earlier_row(tmp_path: Path, small: SampleRun) -> None:
    sample = tiny.tiny_sample(3, tiny.tiny_weights(3))
    sample.slots[10, 1] = float("nan")
    spoiled = SampleRun(small.drafter, open_sample(tiny.write_v1_sample(tmp_path / "nan/data_0.pt", sample)))
    for rule in RULES:
        plan = tree_plan(rule, 3, 3, 8)
        (ours,), (theirs,) = grown(spoiled, plan), grown(small, plan)
        assert ours.finite.tolist() == [row < 10 for row in range(small.rows)]
        assert torch.equal(ours.draft_ids[:10], theirs.draft_ids[:10])
        assert ours.accepted(spoiled.ids)[10:].tolist() == [0] * (small.rows - 10)
        tree = read_tree(spoiled, ORDERING, trained(spoiled), 12, plan)
        assert len(tree.nodes) == 1 and tree.accept_length == 1


def test_a_token_that_is_no_number_has_no_children(small: SampleRun, tmp_path: Path) -> None:
    weights, sample = tiny.tiny_weights(3), tiny.tiny_sample(3, tiny.tiny_weights(3))
    first = read_tree(small, ORDERING, trained(small), 7, tree_plan("sglang", 2, 3, 7)).nodes[1].id
    weights["embed_tokens.weight"][first] = float("nan")
    sample = replace(sample, ids=[3 if token == first else token for token in sample.ids])
    run = tiny_run(tmp_path, weights, sample)
    for rule in RULES:
        tree = read_tree(run, ORDERING, trained(run), 7, tree_plan(rule, 2, 3, 7))
        barren = [place for place, node in enumerate(tree.nodes) if node.id == first and node.depth < tree.plan.levels]
        assert barren and not {node.parent for node in tree.nodes} & set(barren)
        assert len(tree.kept()) == 7


# --- what is kept, seen and accepted


def random_forest(seed: int) -> tuple[Forest, Tensor]:
    """Trees of few tokens over a text of few tokens, so that paths match by chance; and the text."""
    rng = random.Random(seed)
    plan, rows, text = tree_plan("sglang", 4, 3, 14), 6, [rng.choice((0, 1, 2, 2, -1)) for _ in range(9)]
    count = plan.candidates
    depths = [1] * 3 + [2] * 9 + [3] * 9 + [4] * 9
    levels = [[i for i, d in enumerate(depths) if d == depth] for depth in range(5)]
    parents = [[-1 if d == 1 else rng.choice(levels[d - 1]) for d in depths] for _ in range(rows)]
    kept = [[False] * count for _ in range(rows)]
    for row in range(rows):
        for place in range(count):
            parent = parents[row][place]
            kept[row][place] = (parent < 0 or kept[row][parent]) and rng.random() < 0.8
    ids = torch.tensor([[rng.choice((0, 1, 2, -1)) for _ in range(count)] for _ in range(rows)])
    ones = torch.ones(rows, count)
    where = torch.tensor([0, 1, 3, 5, 6, 7])
    forest = Forest(plan, where, torch.tensor(depths), ids, ids, ones, ones, torch.tensor(parents), torch.tensor(kept))
    return forest, torch.tensor(text)


@pytest.mark.parametrize("seed", range(8))
def test_what_the_text_accepts_is_its_longest_path(seed: int) -> None:
    forest, text = random_forest(seed)
    for row, start in enumerate(forest.rows.tolist()):
        best = 0
        for place in range(forest.plan.candidates):
            path, at = [], place
            while at >= 0:
                path.append(int(forest.ids[row, at]))
                at = int(forest.parents[row, at])
            if -1 in path:  # a token that the recording leaves out is like no draft
                continue
            if bool(forest.kept[row, place]) and path[::-1] == text[start + 2 : start + 2 + len(path)].tolist():
                best = max(best, len(path))
        assert int(forest.accepted(text)[row]) == best


def test_a_tree_finds_what_the_chain_misses(tmp_path: Path) -> None:
    """The text is rewritten to the best path that begins with another token than the first: no chain is right there."""
    weights, row = tiny.tiny_weights(4), 9
    sample, d2t = tiny.tiny_sample(4, weights), weights["d2t"].tolist()
    search = TreeSearch(tiny.reference(weights), sample.ids, sample.slots[:, :3], row, d2t, False)
    drafts = search.search(3, 8, 100).drafts
    others = [d for d in drafts if len(d.path) == 3 and d.path[0] != drafts[0].path[0]]
    path = max(others, key=lambda draft: draft.score).path
    ids = [*sample.ids[: row + 2], *(d + d2t[d] for d in path), *sample.ids[row + 5 :]]
    run = tiny_run(tmp_path, weights, replace(sample, ids=ids))
    assert accepted(read_chain(run, ORDERING, trained(run), row, 3)) == 0
    tree = read_tree(run, ORDERING, trained(run), row, tree_plan("sglang", 3, 8, 100))
    assert tree.accept_length == 4 and tree.at == row + 2
    assert [node.draft_id for node in tree.nodes if node.accepted] == [-1, *path]
    assert tree_json(tree)["accept_length"] == 4
    thin = read_tree(run, ORDERING, trained(run), row, tree_plan("sglang", 3, 8, 2))
    assert thin.accept_length == 1 and [node.depth for node in thin.kept()] == [0, 1]


def test_nodes_are_the_forests_and_kept_ones_are_numbered_anew(small: SampleRun) -> None:
    plan = tree_plan("safeailab", 3, 3, 9)
    (forest,) = grown(small, plan, [7])
    tree = read_tree(small, ORDERING, trained(small), 7, plan)
    root, *nodes = tree.nodes
    assert (root.id, root.draft_id, root.parent, root.depth) == (int(small.ids[8]), -1, -1, 0)
    assert [n.parent - 1 if n.parent else -1 for n in nodes] == forest.parents[0].tolist()
    assert [n.id for n in nodes] == small.drafter.to_target(forest.draft_ids[0], trained(small)).tolist()
    assert [n.kept for n in nodes] == forest.kept[0].tolist()
    kept = tree.kept()
    assert len(kept) == 9 and [n.id for n in kept] == [root.id, *(n.id for n in nodes if n.kept)]
    for node in kept[1:]:
        before = kept[node.parent]
        assert before.depth == node.depth - 1 and node.score == pytest.approx(
            before.score + torch.tensor(node.prob).log().item(), abs=1e-4
        )
    data = tree_json(tree)
    assert [n["parent"] for n in data["nodes"]] == [n.parent for n in kept] and data["row"] == 7


def test_paths_and_masks_of_a_hand_drawn_tree() -> None:
    #        0
    #      1   2
    #     3 4   5
    #     6
    parents, depths = [-1, 0, 0, 1, 1, 2, 3], [0, 1, 1, 2, 2, 2, 3]
    nodes = tuple(Node(p, d, 0, 0, 1.0, 1.0, True, False) for p, d in zip(parents, depths, strict=True))
    assert leaf_paths(nodes) == [[0, 1, 4], [0, 2, 5], [0, 1, 3, 6]]
    seen = [[other for other, sees in enumerate(row) if sees] for row in seen_by(nodes)]
    assert seen == [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 4], [0, 2, 5], [0, 1, 3, 6]]
