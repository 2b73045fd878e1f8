"""Counts against brute force on random cases, against recorded numbers, and what follows from them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.errors import WiringError
from drafter.scoring import compare
from drafter.scoring.compare import best_ordering, mcnemar
from drafter.scoring.counts import OrderingCounts, Truths, count, row_mask, rows_needed
from drafter.scoring.groups import Grouping, parse_groups
from drafter.scoring.tallies import MASK_MODES, METRICS, Count, Lengths, SampleScore, bucket
from tests import reference_scores as scores
from tests.drafter.helpers import refused
from tests.test_reference import SAMPLES, golden, golden_counts, golden_d2t

VOCAB, DRAFT = 20, 12


def as_json(counts: OrderingCounts) -> dict[str, Any]:
    """In the shape of the reference's."""

    def one(c: Count) -> dict[str, int]:
        return {"hits": c.hits, "total": c.total}

    steps = [
        {
            name: {kind: one(getattr(step[name], kind)) for kind in ("marginal", "joint", "conditional")}
            if name in step
            else None
            for name in METRICS
        }
        for step in counts.steps
    ]
    lengths = counts.lengths
    walked = {"rounds": lengths.rounds, "tokens": lengths.tokens, "length": lengths.walk}
    rest = {"rows": lengths.rows, "histogram": list(lengths.histogram), "mean": lengths.mean, "walk": walked}
    return {"steps": steps, "accept_length": rest}


class Case:
    """A random sample with predictions that are often right: masks with gaps, any length, any depth."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.tokens = rng.choice([3, 4, 5, rng.randint(3, 40)])
        self.depth = rng.randint(1, 7)
        self.mode = rng.choice(MASK_MODES)
        self.verified = rng.random() < 0.7
        targets = rng.sample(range(VOCAB), DRAFT)
        if rng.random() < 0.5:
            targets.sort()
        self.d2t = [t - d for d, t in enumerate(targets)]
        density, right = rng.random(), rng.random()
        self.ids = [rng.choice(targets if rng.random() < 0.9 else range(VOCAB)) for _ in range(self.tokens)]
        self.mask = [int(rng.random() < density) for _ in range(self.tokens)]
        self.argmax = [rng.randrange(VOCAB) if rng.random() < 0.4 else rng.choice(targets) for _ in range(self.tokens)]
        self.argmax_draft = [targets.index(a) if a in targets else rng.randrange(DRAFT) for a in self.argmax]
        self.pred: list[list[int | None]] = []
        for k in range(self.depth):
            row: list[int | None] = []
            for t in range(self.tokens - 1):
                goals = [self.argmax[t + 1 + k]] if t + 1 + k < self.tokens else []
                goals += self.ids[t + 2 + k : t + 3 + k]
                good = [targets.index(g) for g in goals if g in targets]
                known = rng.choice(good) if good and rng.random() < right else rng.randrange(DRAFT)
                row.append(known if t + 1 + k <= self.tokens - 1 else None)
            self.pred.append(row)

    @property
    def truths(self) -> Truths:
        target_ids = torch.arange(DRAFT) + torch.tensor(self.d2t)
        inverse = torch.full((VOCAB,), -1)
        inverse[target_ids] = torch.arange(DRAFT)
        full, draft = (torch.tensor(a) if self.verified else None for a in (self.argmax, self.argmax_draft))
        return Truths(torch.tensor(self.ids), torch.tensor(self.mask).bool(), target_ids, inverse, full, draft)

    @property
    def predicted(self) -> Tensor:
        return torch.tensor([[-1 if p is None else p for p in row] for row in self.pred])

    def expected(self) -> dict[str, Any]:
        verifier = (self.argmax, self.argmax_draft) if self.verified else (None, None)
        return scores.score_json(self.pred, self.ids, self.mask, self.d2t, self.mode, self.depth, *verifier)


@pytest.mark.parametrize("seed", range(200))
def test_counts_are_those_of_brute_force(seed: int) -> None:
    case = Case(seed)
    counts = count(case.predicted, case.truths, case.mode)
    assert scores.differing(as_json(counts), case.expected()) == []
    covered = scores.coverage(case.ids, case.d2t, case.mask, case.mode)
    assert (counts.coverage.hits, counts.coverage.total) == (covered.hits, covered.total)
    step0 = scores.next_token(case.pred, case.ids, case.d2t)
    rows = [t for t in range(case.tokens - 2) if scores.counts_row(case.mask, case.mode, t)]
    assert counts.row_hits.tolist() == [step0.is_hit(0, t) for t in rows]
    assert counts.accuracy == counts.steps[0]["next_token"].marginal == Count(int(counts.row_hits.sum()), len(rows))


@pytest.mark.parametrize("seed", range(200))
def test_the_rows_needed_are_enough(seed: int) -> None:
    case = Case(seed)
    whole = count(case.predicted, case.truths, case.mode)
    needed = rows_needed(case.truths.mask, case.mode, case.depth)
    assert needed.tolist() == sorted(set(needed.tolist())) and needed.numel() <= case.tokens - 1
    part = torch.full_like(case.predicted, -1)
    part[:, needed] = case.predicted[:, needed]
    assert as_json(count(part, case.truths, case.mode)) == as_json(whole)


def test_rows_that_count_nowhere_are_not_needed() -> None:
    mask = torch.zeros(100, dtype=torch.bool)
    mask[60:70] = True
    assert rows_needed(mask, "next", 1).tolist() == list(range(59, 69))
    assert rows_needed(mask, "same", 3).tolist() == list(range(58, 70))
    assert rows_needed(torch.zeros(100, dtype=torch.bool), "next", 5).numel() == 0
    assert rows_needed(mask, "all", 5).numel() == 99


@pytest.mark.parametrize("mode", MASK_MODES)
def test_row_masks_are_those_of_the_definition(mode: str) -> None:
    mask = [0, 1, 1, 0, 1, 0, 0, 1]
    ours = row_mask(torch.tensor(mask).bool(), mode, 7)
    assert ours.tolist() == [bool(scores.counts_row(mask, mode, t)) for t in range(7)]


@pytest.mark.parametrize("seed", range(20))
def test_counts_of_two_samples_add_up(seed: int) -> None:
    one, other = Case(2 * seed), Case(2 * seed + 1)
    other.mode, other.verified = one.mode, one.verified
    depth = min(one.depth, other.depth)
    parts = [count(c.predicted[:depth], c.truths, c.mode) for c in (one, other)]
    total = scores.leaves(as_json(parts[0] + parts[1]))
    left, right = (scores.leaves(as_json(part)) for part in parts)
    for path, value in total.items():
        if isinstance(value, int):
            assert value == left[path] + right[path], path
    assert (parts[0] + parts[1]).row_hits.numel() == sum(p.row_hits.numel() for p in parts)


def test_a_choice_beyond_the_vocabulary_is_outside_of_it() -> None:
    """A target's head may be padded past the vocabulary that the drafter's config names."""
    case = next(c for c in map(Case, range(500)) if c.verified and c.tokens > 20)
    truths = case.truths
    assert truths.verifier_full is not None
    padded = replace(
        truths, verifier_full=truths.verifier_full.masked_fill(truths.draft_ids[case.argmax] < 0, VOCAB + 5)
    )
    ours, theirs = (count(case.predicted, t, case.mode).steps for t in (padded, truths))
    assert [s["in_vocab"] for s in ours] == [s["in_vocab"] for s in theirs]


def test_ids_beyond_the_vocabulary_are_not_covered() -> None:
    case = next(c for c in map(Case, range(500)) if c.mode == "all" and c.tokens > 20)
    truths = case.truths
    outside = replace(truths, ids=torch.full_like(truths.ids, VOCAB + 7))
    assert count(case.predicted, outside, "all").coverage.hits == 0
    assert count(case.predicted, replace(truths, ids=torch.full_like(truths.ids, -3)), "all").coverage.hits == 0


def test_nothing_to_count() -> None:
    empty = Lengths((0, 0, 0))
    assert (empty.mean, empty.walk, Count().ratio) == (None, None, None)
    assert Lengths((2, 0, 2), 3, 6) + Lengths((1, 1, 0), 1, 1) == Lengths((3, 1, 2), 4, 7)
    assert Lengths((2, 0, 2), 3, 6).mean == 2.0 and Lengths((2, 0, 2), 3, 6).walk == 2.0


# --- by the place of the row


@pytest.mark.parametrize(
    ("index", "rows"), [(0, (0, 31)), (1, (32, 63)), (2, (64, 127)), (3, (128, 255)), (4, (256, 511))]
)
def test_buckets_double(index: int, rows: tuple[int, int]) -> None:
    assert bucket(index) == rows


@pytest.mark.parametrize("tokens", [3, 32, 33, 34, 35, 65, 66, 67, 700])
@pytest.mark.parametrize("mode", MASK_MODES)
def test_positions_are_those_of_brute_force(tokens: int, mode: str) -> None:
    rng = random.Random(tokens)
    ids = [rng.randrange(4) for _ in range(tokens)]
    mask = [int(rng.random() < 0.7) for _ in range(tokens)]
    pred = [rng.randrange(4) for _ in range(tokens - 1)]
    truths = Truths(torch.tensor(ids), torch.tensor(mask).bool(), torch.arange(4), torch.arange(4))
    found = count(torch.tensor([pred]), truths, mode).positions
    assert len(found) == sum(first <= tokens - 3 for first, _ in map(bucket, range(20)))
    for i, here in enumerate(found):
        rows = [t for t in range(tokens - 2) if scores.counts_row(mask, mode, t) and bucket(i)[0] <= t <= bucket(i)[1]]
        assert here == Count(sum(pred[t] == ids[t + 2] for t in rows), len(rows))


def test_positions_of_a_short_and_a_long_sample_add_up() -> None:
    short, long = (counted([1], positions=tuple(Count(n, 2 * n) for n in range(size))) for size in (2, 4))
    both = (Count(0, 0), Count(2, 4), Count(2, 4), Count(3, 6))
    assert (short + long).positions == (long + short).positions == both


# --- rows without numbers


def test_what_gave_no_numbers_is_a_miss_and_is_counted() -> None:
    """-1 stands for no prediction; it must not equal an id that a recording leaves out, which is -1 as well."""
    ids = torch.tensor([5, 6, 7, 5, -1, 6, 7])
    predicted = torch.tensor([[-1, 0, -1, 1, -1, 2]])
    truths = Truths(ids, torch.tensor([1, 1, 0, 1, 1, 1, 1]).bool(), torch.tensor([5, 6, 7]), torch.arange(8) - 5)
    found = count(predicted, truths, "next")
    # rows 0, 2, 3, 4 count: row 1 is masked, row 5 has no truth
    assert found.accuracy == Count(1, 4) and found.row_hits.tolist() == [False, False, True, False]
    assert found.not_finite == 3
    assert (found + found).not_finite == 6
    verified = replace(truths, verifier_full=torch.full((7,), -1), verifier_draft=torch.full((7,), -1))
    for name in ("verifier_strict", "verifier_draft_vocab"):
        step = count(predicted, verified, "all").steps[0]
        assert name not in step or step[name].marginal.hits == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_summary_is_the_counts_in_whole_numbers(seed: int) -> None:
    case = Case(seed)
    counts = count(case.predicted, case.truths, case.mode)
    kept = counts.summary
    assert (kept.ratio, kept.length) == (counts.accuracy.ratio, counts.lengths.mean)
    assert kept.length_sum == sum((n + 1) * rows for n, rows in enumerate(counts.lengths.histogram))
    assert SampleScore().ratio is None and SampleScore().length is None


# --- groups


def test_globs_group_by_path_or_name_and_the_first_counts() -> None:
    grouping = Grouping(parse_groups(["code=*/code/*", "first=data_0*", "code=*.gz", " a b =x=y*"]))
    assert grouping.any
    for path, group in {
        "/d/code/data_0.pt": "code",
        "/d/text/data_0.pt": "first",
        "/d/text/data_3.ckpt.gz": "code",
        "/d/text/data_3.pt": "other",
        "/d/x=y1": "a b",
        "/d/data_0.pt#3": "first",
        "/d/shard.gz#11": "code",
    }.items():
        assert grouping.of(Path(path)) == group, path


def test_globs_without_samples_are_told() -> None:
    grouping = Grouping(parse_groups(["pt=*.pt", "first=data_0*", "none=*/code/*", "zip=*.pt#1"]))
    paths = [Path("x/data_0.pt"), Path("x/data_1.pt#1")]
    assert grouping.without_samples(paths) == [
        "--group first=data_0* matches only samples of groups before it",
        "--group none=*/code/* matches no sample",
        "--group zip=*.pt#1 matches only samples of groups before it",
    ]
    assert Grouping(given=(Path("a"), Path("b"))).without_samples(paths) == []
    assert Grouping(parse_groups(["a=*", "a=*"])).without_samples(paths) == []


def test_several_given_paths_are_groups() -> None:
    given = (Path("/d"), Path("/d/code"), Path("/e/data_1.pt"), Path("/e/s.pt#1"))
    grouping = Grouping(given=given)
    assert grouping.any and not Grouping(given=given[:1]).any and not Grouping(given=given[:1] * 2).any
    for path, group in {
        "/d/text/data_0.pt": "/d",
        "/d/code/data_0.pt#2": "/d/code",
        "/e/data_1.pt": "/e/data_1.pt",
        "/e/data_1.pt#4": "/e/data_1.pt",
        "/e/s.pt#1": "/e/s.pt#1",
        "/f/data_0.pt": "other",
    }.items():
        assert grouping.of(Path(path)) == group, path


@pytest.mark.parametrize("text", ["code", "=x", "code=", " =*", ""])
def test_groups_that_cannot_be_meant(text: str) -> None:
    with refused(WiringError, "--group", "NAME=GLOB"):
        parse_groups([text])


# --- recorded numbers


@pytest.mark.parametrize("index", SAMPLES)
@pytest.mark.parametrize("group", ["v1", "speculators"])
def test_counts_are_the_recorded_ones(group: str, index: int) -> None:
    target_ids = torch.tensor(golden_d2t())
    target_ids = target_ids + torch.arange(len(target_ids))
    inverse = torch.full((49152,), -1)
    inverse[target_ids] = torch.arange(len(target_ids))
    file = f"data_{index}.pt" if group == "v1" else f"hs_{index}.safetensors"
    for ordering, modes in golden_counts()[group][file].items():
        g = {key: torch.tensor(value) for key, value in golden(index, ordering).items()}
        verifier = (g["verifier_argmax"], g["verifier_argmax_draft_id"])
        truths = Truths(g["input_ids"], g["loss_mask"].bool(), target_ids, inverse, *verifier)
        for mode, truth in modes.items():
            ours = as_json(count(g["pred_draft_id"], truths, mode))
            assert scores.differing(ours, truth) == [], (ordering, mode)


# --- comparing orderings


@pytest.mark.parametrize("seed", range(40))
def test_mcnemar_is_the_exact_test(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.choice([1, 5, 30, 300, 5000])
    lead = rng.choice([0.5, 0.55, 0.9])
    pairs = [(rng.random() < lead, rng.random() < 0.5) for _ in range(n)]
    ours, theirs = ([pair[i] for pair in pairs] for i in range(2))
    found = mcnemar(torch.tensor(ours), torch.tensor(theirs))
    assert found == pytest.approx(scores.mcnemar(ours, theirs), rel=1e-6, abs=1e-300)
    assert found == mcnemar(torch.tensor(theirs), torch.tensor(ours))


def test_mcnemar_without_differences() -> None:
    assert mcnemar(torch.ones(5).bool(), torch.ones(5).bool()) == 1.0
    assert mcnemar(torch.zeros(0).bool(), torch.zeros(0).bool()) == 1.0
    assert mcnemar(torch.ones(3000).bool(), torch.zeros(3000).bool()) == 0.0  # 2^-2999 is no float


def counted(hits: list[int], positions: tuple[Count, ...] = ()) -> OrderingCounts:
    steps: tuple[Mapping[str, Any], ...] = ()
    return OrderingCounts(steps, Lengths((0,)), Count(), torch.tensor(hits).bool(), positions)


def test_the_best_and_those_tied_with_it() -> None:
    good = [1] * 60 + [0] * 40
    found = {
        (0, 1, 2): counted([0] * 100),
        (2, 1, 0): counted(good),
        (1, 0, 2): counted([0, *good[1:]]),
        (0, 2, 1): counted([1] * 40 + [0] * 60),
    }
    best, tied = best_ordering(found)
    assert best == (2, 1, 0) and tied == [(1, 0, 2)]
    assert mcnemar(found[2, 1, 0].row_hits, found[0, 2, 1].row_hits) < compare.TIE


def test_of_equals_the_first_is_named_and_the_others_tied() -> None:
    found = {(i,): counted([1, 0, 1]) for i in range(3)}
    assert best_ordering(found) == ((0,), [(1,), (2,)])
    found[3,] = counted([1, 1, 1])
    assert best_ordering(found) == ((3,), [(0,), (1,), (2,)])


def test_nothing_to_compare() -> None:
    assert best_ordering({}) == (None, [])
    assert best_ordering({(0,): counted([])}) == (None, [])


def test_only_shared_rows_are_compared() -> None:
    """While a sweep runs, an ordering that has seen more rows must not win by their number."""
    found = {(0,): counted([1, 0] + [1] * 50), (1,): counted([1, 1])}
    assert best_ordering(found) == ((1,), [(0,)])
