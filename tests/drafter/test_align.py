"""Two token sequences laid side by side: against sequences that were cut, packed and shifted on purpose."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import torch

from drafter.errors import SampleError
from drafter.sample.many.align import MIN_RUN, Alignment, align
from drafter.sample.sample import UNKNOWN_ID
from tests.drafter.helpers import refused
from tests.drafter.twin_files import tokens

WHERE = Path("theirs.pt")


def aligned(ours: list[int], theirs: list[int]) -> Alignment:
    return align(torch.tensor(ours), torch.tensor(theirs), WHERE)


def place(found: Alignment) -> tuple[int, int, int]:
    return found.ours, found.theirs, found.count


def test_equal_and_prefix() -> None:
    ids = tokens(50)
    assert place(aligned(ids, ids)) == (0, 0, 50)
    assert aligned(ids, ids).how == "the same 50 tokens"
    assert place(aligned(ids, ids[:20])) == (0, 0, 20)
    assert aligned(ids, ids[:20]).how == "theirs is the first 20 of the 50 tokens of ours"
    assert aligned(ids[:5], ids).how == "ours is the first 5 of the 50 tokens of theirs"
    assert place(aligned(ids[:5], ids)) == (0, 0, 5)


def test_one_inside_of_the_other() -> None:
    ids = tokens(60)
    found = aligned(ids, ids[13:40])
    assert (place(found), found.how) == ((13, 0, 27), "theirs is tokens 13 to 39 of ours")
    found = aligned(ids[13:40], ids)
    assert (place(found), found.how) == ((0, 13, 27), "ours is tokens 13 to 39 of theirs")
    assert not found.whole_context


def test_a_common_run_against_brute_force() -> None:
    draw = random.Random(1)
    for _ in range(30):
        run = [draw.randrange(40) for _ in range(draw.randrange(MIN_RUN, 60))]
        ours = [draw.randrange(40, 80) for _ in range(draw.randrange(30))] + run + [90] * draw.randrange(1, 9)
        theirs = [draw.randrange(80, 90) for _ in range(draw.randrange(30))] + run + [91] * draw.randrange(1, 9)
        assert place(aligned(ours, theirs)) == longest(ours, theirs)


def longest(a: list[int], b: list[int]) -> tuple[int, int, int]:
    every = [(i, j) for i in range(len(a)) for j in range(len(b))]
    runs = []
    for i, j in every:
        n = 0
        while i + n < len(a) and j + n < len(b) and a[i + n] == b[j + n]:
            n += 1
        runs.append((i, j, n))
    return max(runs, key=lambda run: run[2])


def test_unknown_tokens_fit_any() -> None:
    ids = tokens(40)
    assert place(aligned(ids, [UNKNOWN_ID, *ids[1:]])) == (0, 0, 40)
    assert place(aligned([*ids[:7], UNKNOWN_ID, *ids[8:]], ids[:20])) == (0, 0, 20)
    # within a run that begins elsewhere, too
    assert place(aligned(ids, [*ids[10:20], UNKNOWN_ID, *ids[21:]])) == (10, 0, 30)


def test_unknown_tokens_alone_prove_nothing() -> None:
    with refused(SampleError, "too few tokens are known", "theirs.pt"):
        aligned(tokens(40), [UNKNOWN_ID] * 40)


def test_other_tokens_are_refused_with_the_place() -> None:
    ours, theirs = tokens(40), tokens(30, seed=9)
    theirs[:3], theirs[3] = ours[:3], ours[3] + 1
    agree = sum(a == b for a, b in zip(ours, theirs, strict=False))
    with refused(SampleError, f"first differ at token 3 ({ours[3]}, here {theirs[3]})", f"{agree} of 30 agree"):
        aligned(ours, theirs)


def test_seven_common_tokens_are_too_few_and_eight_are_not() -> None:
    ids = tokens(MIN_RUN)
    with refused(SampleError, "other tokens"):
        aligned([1, 1, *ids[1:], 1], [2, *ids[1:], 2, 2])
    assert place(aligned([1, 1, *ids, 1], [2, *ids, 2, 2])) == (2, 1, MIN_RUN)


@pytest.mark.parametrize("ids", [[7] * 20_000, [1, 2] * 10_000, tokens(20_000)])
def test_repeats_cost_linear_time(ids: list[int]) -> None:
    begun = time.monotonic()
    found = aligned([5, *ids], [6, 6, *ids])
    assert time.monotonic() - begun < 5
    assert found.count >= 19_990
