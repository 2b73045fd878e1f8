"""Breaks against a plain loop over chains, on made-up predictions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch

from drafter.scoring.breaks import Breaks, Broken, breaks_json, find_breaks
from drafter.scoring.counts import Truths, count
from drafter.scoring.tallies import bucket
from tests import reference_scores

V, D = 12, 8
TARGETS = [0, 2, 3, 4, 6, 7, 9, 11]  # draft id -> target id; 1, 5, 8, 10 can never be drafted


def truths(ids: list[int], mask: list[int]) -> Truths:
    inverse = torch.full((V,), -1)
    inverse[torch.tensor(TARGETS)] = torch.arange(D)
    return Truths(torch.tensor(ids), torch.tensor(mask, dtype=torch.bool), torch.tensor(TARGETS), inverse)


@dataclass
class Case:
    ids: list[int]
    mask: list[int]
    predicted: list[list[int]]  # [K][R] draft ids, -1 for none


def random_case(seed: int, depth: int, tokens: int = 90) -> Case:
    """Predictions that are right two times in three where they can be."""
    rng = random.Random(seed)
    ids = [rng.randrange(V) for _ in range(tokens)]
    mask = [int(rng.random() < 0.93) for _ in range(tokens)]
    predicted = []
    for k in range(depth):
        step = []
        for t in range(tokens - 1):
            truth = ids[t + 2 + k] if t + 2 + k < tokens else -1
            right = truth in TARGETS and rng.random() < 0.7
            step.append(TARGETS.index(truth) if right else rng.randrange(-1, D))
        predicted.append(step)
    return Case(ids, mask, predicted)


@dataclass
class Plain:
    chains: int = 0
    steps: list[Broken] = field(default_factory=list)
    positions: Counter[int] = field(default_factory=Counter)
    broken_at: list[int] = field(default_factory=list)
    outside_at: list[int] = field(default_factory=list)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    outside: Counter[int] = field(default_factory=Counter)
    reached: Counter[int] = field(default_factory=Counter)
    ceiling: int = 0


def plain(case: Case, mode: str) -> Plain:
    """One chain after another, one step after another."""
    depth, found = len(case.predicted), Plain()
    steps = [[0, 0, 0, 0] for _ in range(depth)]
    for t in range(len(case.ids) - 1):
        if t + 1 + depth >= len(case.ids):
            continue
        if not all(reference_scores.counts_row(case.mask, mode, t + k) for k in range(depth)):
            continue
        found.chains += 1
        found.positions[next(i for i in range(20) if bucket(i)[0] <= t <= bucket(i)[1])] += 1
        drawable = [case.ids[t + 2 + k] in TARGETS for k in range(depth)]
        found.ceiling += 1 + reference_scores.leading(drawable)
        for k in range(depth):
            draft, truth = case.predicted[k][t], case.ids[t + 2 + k]
            said = TARGETS[draft] if draft >= 0 else -1
            steps[k][0] += 1
            found.reached[truth] += 1
            if said == truth:
                continue
            steps[k][1] += 1
            steps[k][3] += said < 0
            found.broken_at.append(t + 2 + k)
            if truth not in TARGETS:
                steps[k][2] += 1
                found.outside[truth] += 1
                found.outside_at.append(t + 2 + k)
            else:
                found.pairs[truth, said] += 1
            break
    found.steps = [Broken(*step) for step in steps]
    return found


@pytest.mark.parametrize("mode", reference_scores.MODES)
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_breaks_are_those_of_a_plain_loop(depth: int, mode: str) -> None:
    for seed in range(5):
        case = random_case(seed, depth)
        found = find_breaks(torch.tensor(case.predicted), truths(case.ids, case.mask), mode)
        truth = plain(case, mode)
        assert found.steps == truth.steps
        assert dict(found.pairs) == dict(truth.pairs) and dict(found.outside) == dict(truth.outside)
        assert dict(found.reached) == dict(truth.reached)
        assert (found.places, found.outside_places) == (len(set(truth.broken_at)), len(set(truth.outside_at)))
        assert found.ceiling == truth.ceiling
        assert found.total.chains == truth.chains and found.total.broken == len(truth.broken_at)
        assert {i: part.chains for i, part in enumerate(found.positions) if part.chains} == dict(truth.positions)
        assert found.total.outside == len(truth.outside_at) > 0


def test_breaks_are_the_histogram_of_lengths() -> None:
    case = random_case(9, 4)
    lengths = count(torch.tensor(case.predicted), truths(case.ids, case.mask), "next").lengths
    found = find_breaks(torch.tensor(case.predicted), truths(case.ids, case.mask), "next")
    whole = found.total.chains - found.total.broken
    assert [*(step.broken for step in found.steps), whole] == list(lengths.histogram)


def test_samples_add_up() -> None:
    cases = [random_case(seed, 3, tokens) for seed, tokens in ((1, 90), (2, 20), (3, 200))]
    pooled, parts = Breaks(), [plain(case, "next") for case in cases]
    for case in cases:
        pooled.add(find_breaks(torch.tensor(case.predicted), truths(case.ids, case.mask), "next"))
    assert pooled.total.chains == sum(part.chains for part in parts)
    assert pooled.steps == [sum((part.steps[k] for part in parts), Broken()) for k in range(3)]
    assert dict(pooled.pairs) == dict(sum((part.pairs for part in parts), Counter()))
    assert pooled.places == sum(len(set(part.broken_at)) for part in parts)
    assert pooled.ceiling == sum(part.ceiling for part in parts)
    assert [part.chains for part in pooled.positions] == [
        sum(part.positions[i] for part in parts) for i in range(len(pooled.positions))
    ]


def test_tokens_are_ranked_and_those_outside_stand_apart() -> None:
    # draft id 3 is token 4; the text says 4 and 9 where the drafter says 2 or 3, and 5, which it cannot say
    ids = [0, 0, 4, 9, 9, 5, 9, 5]
    said = [1, 1, 1, 2, 2, 2, -1]  # row t predicts ids[t+2]: targets 2 2 2 3 3 3, and a row without a truth
    found = find_breaks(torch.tensor([said]), truths(ids, [1] * 8), "all")
    first, second = found.tokens()
    assert (first.id, first.breaks, first.reached, first.instead) == (9, 3, 3, ((2, 2), (3, 1)))
    assert (second.id, second.breaks, second.instead) == (4, 1, ((2, 1),))
    assert found.outside_tokens() == [(5, 2)] and found.tokens(1) == [first]
    data = breaks_json(found, lambda i: f"<{i}>", 1)
    assert data["tokens"] == [
        {"id": 9, "text": "<9>", "breaks": 3, "reached": 3,
         "instead": [{"id": 2, "text": "<2>", "breaks": 2}, {"id": 3, "text": "<3>", "breaks": 1}]}
    ]  # fmt: skip
    assert data["outside_tokens"] == [{"id": 5, "text": "<5>", "breaks": 2}]
    assert (data["chains"], data["broken"], data["outside"], data["whole"]) == (6, 6, 2, 0)
    assert data["ceiling"] == {"sum": 4 * 2 + 2, "rows": 6}
    assert data["positions"] == [{"from": 0, "to": 31, "chains": 6, "broken": 6, "outside": 2, "no_numbers": 0}]


def test_what_gave_no_numbers_is_told_apart() -> None:
    found = find_breaks(torch.tensor([[-1, 3, -1]]), truths([0, 0, 4, 4], [1] * 4), "all")
    assert found.total == Broken(2, 1, 0, 1)
    assert breaks_json(found, str)["tokens"][0]["instead"] == [{"id": None, "text": "", "breaks": 1}]


def test_nothing_counts() -> None:
    for ids, mask in (([1, 2], [1, 1]), ([1, 2, 3, 4], [0, 0, 0, 0])):
        found = find_breaks(torch.zeros(3, len(ids) - 1, dtype=torch.int64), truths(ids, mask), "next")
        assert found.total == Broken() and found.steps == [Broken()] * 3 and not found.tokens()
        assert breaks_json(found, str)["chains"] == 0
