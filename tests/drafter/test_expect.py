"""Speed from accept lengths: the founding story, and a simulated server whose costs the test itself made up."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from drafter.errors import WiringError
from drafter.serving.expect import (
    DEFAULT_SHARE,
    Measured,
    best_range,
    check_joint,
    choice_at,
    choices,
    curve_length,
    expectation,
    expectation_json,
    joint_of,
    parse_point,
)
from tests.drafter.helpers import refused

BASE = 90.0
FOUNDING = Measured(46.7, 1.9, 1)
JOINT = (0.8, 0.6, 0.45, 0.3, 0.2, 0.1)


def simulated(joint: Sequence[float], drafts: int, fixed: float, each: float, rounds: int = 40_000) -> Measured:
    """A server of BASE tokens/s without drafts, run round by round: what it would measure."""
    rng = random.Random(drafts)
    tokens, steps = 0, 0.0
    for _ in range(rounds):
        draw = rng.random()
        tokens += 1 + sum(draw < p for p in joint[:drafts])
        steps += fixed + each * drafts
    return Measured(tokens / (steps / BASE), tokens / rounds, drafts)


def test_the_founding_story() -> None:
    found = expectation(BASE, [FOUNDING], most=2)
    assert found.cost == found.break_even == pytest.approx(1.9 * 90 / 46.7) == pytest.approx(3.66, abs=0.005)
    assert found.speed(found.break_even) == pytest.approx(BASE)
    assert found.ceiling == pytest.approx(2 / 1.9 * 46.7)
    assert found.ceiling is not None and found.ceiling < BASE, "no accept length that the flags allow pays"
    line = found.line(4.0, 4)
    assert [length for length, _ in line] == pytest.approx([1, 2, 3, 4])
    assert [speed for _, speed in line] == pytest.approx([BASE * length / found.cost for length in (1, 2, 3, 4)])


@pytest.mark.parametrize(("fixed", "each"), [(1.1, 0.1), (2.0, 0.0), (1.0, 0.6)])
def test_two_points_tell_fixed_and_drafting_cost(fixed: float, each: float) -> None:
    points = [simulated(JOINT, k, fixed, each) for k in (1, 5)]
    model = expectation(BASE, points).model
    assert model is not None and model.exact
    assert (model.fixed, model.per_draft) == pytest.approx((fixed, each), abs=1e-9)
    third = simulated(JOINT, 3, fixed, each)
    found = choice_at(expectation(BASE, points), third.length, 3)
    assert found is not None
    assert (found.speed, found.low, found.high) == pytest.approx((third.speed,) * 3)


def brute_best(joint: Sequence[float], fixed: float, each: float) -> int:
    speeds = [BASE, *(BASE * (1 + sum(joint[:k])) / (fixed + each * k) for k in range(1, len(joint) + 1))]
    return speeds.index(max(speeds))


@pytest.mark.parametrize("seed", range(8))
def test_the_best_number_of_drafts_is_that_of_trying_all(seed: int) -> None:
    rng = random.Random(seed)
    joint = sorted((rng.random() for _ in range(6)), reverse=True)
    fixed, each = 1 + rng.random() / 2, rng.random() / 2
    found = expectation(BASE, [simulated(joint, 1, fixed, each), simulated(joint, 6, fixed, each)])
    every = choices(found, joint)
    assert [c.speed for c in every] == sorted((c.speed for c in every), reverse=True)
    assert sorted(c.drafts for c in every) == list(range(7))
    assert every[0].drafts == brute_best(joint, fixed, each)
    assert best_range(found, joint) == (every[0].drafts,)


def test_one_point_leaves_a_range_and_the_measured_number_alone() -> None:
    point = simulated(JOINT, 3, 1.2, 0.2)
    found = expectation(BASE, [point])
    assert found.model is not None and not found.model.exact
    assert "no --draft-cost given" in found.model.words and f"{DEFAULT_SHARE:.0%}" in found.model.words
    for choice in choices(found, JOINT):
        length = 1 + sum(JOINT[: choice.drafts])
        ends = [BASE * length / found.cost, BASE * length / (1 + (found.cost - 1) / 3 * choice.drafts)]
        if choice.drafts == 0:
            assert (choice.speed, choice.low, choice.high) == (BASE, BASE, BASE)
        else:
            assert (choice.low, choice.high) == pytest.approx((min(ends), max(ends)))
            truth = BASE * length / (1.2 + 0.2 * choice.drafts)
            assert choice.low - 1e-9 <= truth <= choice.high + 1e-9, "what it really costs lies between"
        if choice.drafts == 3:
            assert choice.low == pytest.approx(choice.high)
    assert len(best_range(found, JOINT)) > 1


def test_a_given_draft_cost_is_taken() -> None:
    point = simulated(JOINT, 3, 1.2, 0.2)
    model = expectation(BASE, [point], draft_cost=0.2).model
    assert model is not None
    assert (model.fixed, model.per_draft) == pytest.approx((1.2, 0.2))
    assert "as given" in model.words
    with refused(WiringError, "a draft cost of 0.61 base steps", "0 to less than 0.6"):
        expectation(BASE, [point], draft_cost=0.61)
    with refused(WiringError, "leave it out"):
        expectation(BASE, [point, simulated(JOINT, 5, 1.2, 0.2)], draft_cost=0.2)


def test_a_round_cheaper_than_a_base_step_is_all_fixed() -> None:
    found = expectation(BASE, [Measured(BASE * 2, 1.9, 3)])
    assert found.cost == pytest.approx(0.95)
    assert found.model is not None and (found.model.fixed, found.model.per_draft) == pytest.approx((0.95, 0.0))


def test_points_of_one_number_of_drafts_are_averaged_and_more_are_fitted() -> None:
    same = [Measured(BASE * 2 / cost, 2.0, 2) for cost in (1.4, 1.6)]
    model = expectation(BASE, same).model
    assert model is not None and model.cost(2) == pytest.approx(1.5)
    three = [Measured(BASE * 1.5 / (1.1 + 0.2 * k), 1.5, k) for k in (1, 2, 4)]
    fitted = expectation(BASE, three).model
    assert fitted is not None and not fitted.exact
    assert (fitted.fixed, fitted.per_draft) == pytest.approx((1.1, 0.2))


def test_points_that_contradict_each_other_give_no_model() -> None:
    falling = [Measured(BASE * 2 / 2.0, 2.0, 2), Measured(BASE * 2 / 1.5, 2.0, 5)]
    found = expectation(BASE, falling)
    assert found.model is None and "contradict" in found.why
    assert choices(found, JOINT) == () and best_range(found, JOINT) == ()
    steep = [Measured(BASE * 2 / 1.0, 2.0, 1), Measured(BASE * 2 / 9.0, 2.0, 3)]
    assert expectation(BASE, steep).model is None


def test_without_a_number_of_drafts_there_is_only_the_break_even() -> None:
    found = expectation(BASE, [Measured(46.7, 1.9)])
    assert found.break_even == pytest.approx(3.66, abs=0.005)
    assert found.model is None and "--point TOK/S@LENGTH/DRAFTS" in found.why
    assert choice_at(found, 2.5) is not None
    assert choice_at(found, 2.5, 3) is None
    assert choice_at(expectation(BASE, [FOUNDING], most=2), 2.5) is None, "a round of one draft cannot give 2.5"


@pytest.mark.parametrize(
    ("base", "points", "said"),
    [
        (BASE, [], "no measured point"),
        (0.0, [FOUNDING], "base speed"),
        (BASE, [Measured(0.0, 1.9, 1)], "a speed of 0"),
        (BASE, [Measured(46.7, 0.9, 1)], "accept length of 0.9"),
        (BASE, [Measured(46.7, 2.5, 1)], "1 to 2"),
        (BASE, [Measured(46.7, 1.9, 0)], "expected 1 to 1"),
        (float("nan"), [FOUNDING], "base speed"),
        (BASE, [Measured(46.7, float("nan"), 1)], "accept length of nan"),
    ],
)
def test_numbers_that_no_measurement_gives(base: float, points: list[Measured], said: str) -> None:
    with refused(WiringError, said):
        expectation(base, points)


def test_curves() -> None:
    assert curve_length(JOINT, 0) == 1
    assert curve_length(JOINT, 3) == pytest.approx(2.85)
    assert joint_of([0.83, 0.6, 0.45]) == pytest.approx((0.83, 0.83 * 0.6, 0.83 * 0.6 * 0.45))
    assert curve_length(joint_of([0.83, 0.6, 0.45]), 3) == pytest.approx(1 + 0.83 + 0.498 + 0.2241)
    assert check_joint([0.8, 0.8, 0.0]) == (0.8, 0.8, 0.0)
    for wrong, said in (([], "one for each"), ([1.2], "0..1"), ([0.5, 0.7], "that rise"), ([float("nan")], "0..1")):
        with refused(WiringError, said):
            check_joint(wrong)


def test_points_as_text() -> None:
    assert parse_point("46.7@1.9") == Measured(46.7, 1.9)
    assert parse_point(" 46.7@1.9 ", 4) == Measured(46.7, 1.9, 4)
    assert parse_point("46.7@1.9/1", 4) == FOUNDING
    for text in ("", "46.7", "@1.9", "46.7@", "-1@2", "46.7@1.9/", "46.7@1.9/x", "nan@1", "1e9@2"):
        with refused(WiringError, "expected TOK/S@LENGTH"):
            parse_point(text)


def test_the_json_holds_the_numbers() -> None:
    found = expectation(BASE, [FOUNDING], most=2)
    data = expectation_json(found, choice_at(found, 1.5), JOINT)
    assert data["break_even"] == found.cost
    assert data["at"]["speed"] == pytest.approx(46.7 * 1.5 / 1.9)
    assert [one["drafts"] for one in data["choices"]] == [c.drafts for c in choices(found, JOINT)]
    assert expectation_json(found, None, ())["best"] == []
