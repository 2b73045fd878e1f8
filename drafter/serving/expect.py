"""What speed an accept length gives: from a baseline without drafts and one or more measured points.

The unit of cost is a base step, the time in which the server without drafts makes one token. A round costs
`fixed` + `per_draft` x K base steps (verification and overhead, then a drafting part for each of K steps), and gives
as many tokens as the accept length, which counts the bonus token. One point tells a round's cost at its own K exactly
and no other; what is assumed for other K is named. Plain numbers: knows no server and no file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from drafter.errors import WiringError

DEFAULT_SHARE = 0.5
MAX_DRAFTS = 1024
_POINT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)@(\d{1,4}(?:\.\d{1,9})?)(?:/(\d{1,4}))?")
_ONE = 1e-9


@dataclass(frozen=True)
class Measured:
    """`speed` in tokens per second of one request at the accept length `length`, with `drafts` steps a round."""

    speed: float
    length: float
    drafts: int | None = None


@dataclass(frozen=True)
class CostModel:
    """Base steps of a round: `fixed` + `per_draft` x K. `words` says how the split was found."""

    fixed: float
    per_draft: float
    words: str
    exact: bool

    def cost(self, drafts: int) -> float:
        """Base steps of a round with `drafts` steps; without drafts it is a base step by definition."""
        return 1.0 if drafts == 0 else self.fixed + self.per_draft * drafts


@dataclass(frozen=True)
class Choice:
    """One number of draft steps: accept length, tokens per second, and the range of what the split leaves open."""

    drafts: int
    length: float
    speed: float
    low: float
    high: float


@dataclass(frozen=True)
class Expectation:
    """`cost` is that of a round at the first point, in base steps, and so the accept length that breaks even.

    `most` is the longest accept length that the flags allow, `ceiling` the speed at it, None where not known.
    `model` is None where the points do not give one, `why` says why; `extremes` are the two splits between which the
    truth lies where there is only one K.
    """

    base: float
    points: tuple[Measured, ...]
    cost: float
    break_even: float
    most: float | None
    ceiling: float | None
    model: CostModel | None
    extremes: tuple[CostModel, ...]
    why: str

    def speed(self, length: float) -> float:
        """Tokens per second at another accept length with the K of the first point."""
        return self.base * length / self.cost

    def line(self, longest: float, count: int = 33) -> tuple[tuple[float, float], ...]:
        """(accept length, tokens per second) from 1 to `longest`, for a plot."""
        steps = max(count - 1, 1)
        lengths = [1 + (longest - 1) * i / steps for i in range(count)]
        return tuple((length, self.speed(length)) for length in lengths)


def expectation(
    base: float, points: Sequence[Measured], *, most: float | None = None, draft_cost: float | None = None
) -> Expectation:
    """What the points say. `draft_cost`: base steps of one draft step, where one K alone was measured.

    Raises WiringError for numbers that no measurement gives, or a draft cost larger than the round's.
    """
    _check(base, points, most)
    cost = _cost(base, points[0])
    model, extremes, why = _model(base, points, draft_cost)
    ceiling = None if most is None else base * most / cost
    return Expectation(base, tuple(points), cost, cost, most, ceiling, model, extremes, why)


def _check(base: float, points: Sequence[Measured], most: float | None) -> None:
    if not points:
        raise WiringError("no measured point", expected="a speed and its accept length, e.g. --point 46.7@1.9")
    if not 0 < base < 1e9:
        raise WiringError(f"a base speed of {base:g} tokens/s", expected="more than 0")
    for point in points:
        if not 0 < point.speed < 1e9:
            raise WiringError(f"a speed of {point.speed:g} tokens/s", expected="more than 0")
        longest = point.drafts + 1 if point.drafts is not None else most or MAX_DRAFTS + 1
        if not 1 <= point.length <= longest + 0.005:
            expected = f"1 to {longest:g}: the bonus token counts, and a round gives one more than it drafts"
            raise WiringError(f"an accept length of {point.length:g}", expected=expected)
        if point.drafts is not None and not 1 <= point.drafts <= MAX_DRAFTS:
            raise WiringError(f"{point.drafts} drafts a round", expected=f"1 to {MAX_DRAFTS}")


def _cost(base: float, point: Measured) -> float:
    """Base steps of a round: it made `length` tokens in the time in which base steps would have made this many."""
    return point.length * base / point.speed


def _model(
    base: float, points: Sequence[Measured], draft_cost: float | None
) -> tuple[CostModel | None, tuple[CostModel, ...], str]:
    if any(point.drafts is None for point in points):
        return None, (), "the number of drafts a round is not known: give the flags, or --point TOK/S@LENGTH/DRAFTS"
    costs: dict[int, list[float]] = {}
    for point in points:
        costs.setdefault(point.drafts or 0, []).append(_cost(base, point))
    means = {drafts: sum(found) / len(found) for drafts, found in costs.items()}
    if len(means) == 1:
        ((drafts, cost),) = means.items()
        return _from_one(drafts, cost, draft_cost)
    if draft_cost is not None:
        raise WiringError("a draft cost beside points of several numbers of drafts", hint="those tell it: leave it out")
    return _from_several(means)


def _from_one(
    drafts: int, cost: float, draft_cost: float | None
) -> tuple[CostModel | None, tuple[CostModel, ...], str]:
    """A split by assumption, between the two extremes: all of the cost verification, or all above a step drafting."""
    extra = max(cost - 1, 0.0)
    extremes = (
        CostModel(cost, 0.0, "all cost is verification", False),
        CostModel(cost - extra, extra / drafts, "all cost above a base step is drafting", False),
    )
    if draft_cost is None:
        words = (
            f"assumed: {DEFAULT_SHARE:.0%} of a round's cost above one base step is drafting (no --draft-cost given)"
        )
        share = DEFAULT_SHARE * extra
        return CostModel(cost - share, share / drafts, words, False), extremes, ""
    if not draft_cost >= 0 or drafts * draft_cost >= cost:
        expected = f"0 to less than {cost / drafts:.3g}, as a round costs {cost:.3g} with {drafts} draft step(s)"
        raise WiringError(f"a draft cost of {draft_cost:g} base steps", expected=expected)
    words = f"as given: a draft step costs {draft_cost:g} base steps"
    return CostModel(cost - drafts * draft_cost, draft_cost, words, False), extremes, ""


def _from_several(means: dict[int, float]) -> tuple[CostModel | None, tuple[CostModel, ...], str]:
    """The straight line through two numbers of drafts, or the least squares through more."""
    x, y = list(means), list(means.values())
    mid_x, mid_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mid_x) ** 2 for a in x)
    slope = sum((a - mid_x) * (b - mid_y) for a, b in zip(x, y, strict=True)) / over
    fixed = mid_y - slope * mid_x
    if slope < 0 or fixed <= 0:
        return None, (), (
            f"the points contradict a cost that grows with the drafts: {fixed:.3g} + {slope:.3g} x K base steps; "
            "were they measured under the same load?"
        )  # fmt: skip
    words = f"measured at {len(x)} numbers of drafts: {', '.join(map(str, sorted(x)))}"
    return CostModel(fixed, slope, words, len(x) == 2), (), ""


def curve_length(joint: Sequence[float], drafts: int) -> float:
    """The accept length of a chain: 1 + the sum of P(the first i drafts are right) for i = 1..drafts."""
    return 1 + sum(joint[:drafts])


def joint_of(conditional: Sequence[float]) -> tuple[float, ...]:
    """Joint rates of rates per step given that the steps before were right: their running products."""
    joint, product = [], 1.0
    for rate in conditional:
        product *= rate
        joint.append(product)
    return tuple(joint)


def check_joint(joint: Sequence[float]) -> tuple[float, ...]:
    """`joint` if it can be one. Raises WiringError where it is none: rates in 0..1 that never rise."""
    if not joint or not all(0 <= p <= 1 for p in joint):
        raise WiringError("acceptance rates that are none", expected="numbers 0..1, one for each draft step")
    if any(later > earlier + 0.005 for earlier, later in pairwise(joint)):
        raise WiringError(
            f"acceptance rates that rise: {', '.join(f'{p:g}' for p in joint)}",
            expected="joint rates: that the first i drafts are all right",
            hint="rates given that the earlier drafts were right must be multiplied up first",
        )
    return tuple(joint)


def choices(expected: Expectation, joint: Sequence[float]) -> tuple[Choice, ...]:
    """Every number of drafts from 0 (no drafting) to that of `joint`, fastest first. Empty without a cost model.

    low and high are those of the extreme splits; where the cost was measured at several K they are the speed itself.
    """
    model = expected.model
    if model is None:
        return ()
    found = []
    for drafts in range(len(joint) + 1):
        length = curve_length(joint, drafts)
        each = [expected.base * length / m.cost(drafts) for m in (model, *expected.extremes)]
        found.append(Choice(drafts, length, each[0], min(each), max(each)))
    return tuple(sorted(found, key=lambda choice: (-choice.speed, choice.drafts)))


def best_range(expected: Expectation, joint: Sequence[float]) -> tuple[int, ...]:
    """The best number of drafts under each split that is possible, ascending; one number where the choice is clear."""
    models = [m for m in (expected.model, *expected.extremes) if m is not None]

    def best(model: CostModel) -> int:
        return max(range(len(joint) + 1), key=lambda k: (curve_length(joint, k) / model.cost(k), -k))

    return tuple(sorted({best(model) for model in models}))


def choice_at(expected: Expectation, length: float, drafts: int | None = None) -> Choice | None:
    """The speed at `length` with `drafts` steps a round, by default those of the first point.

    None where that many were not measured and there is no model, or where the round cannot give such a length.
    """
    measured = expected.points[0].drafts
    if drafts is None or drafts == measured:
        if expected.most is not None and length > expected.most + 0.005:
            return None
        speed = expected.speed(length)
        return Choice(measured or 0, length, speed, speed, speed)
    if expected.model is None:
        return None
    each = [expected.base * length / m.cost(drafts) for m in (expected.model, *expected.extremes)]
    return Choice(drafts, length, each[0], min(each), max(each))


def parse_point(text: str, drafts: int | None = None) -> Measured:
    """`46.7@1.9` or `46.7@1.9/1`: tokens per second, accept length, drafts a round (else `drafts`)."""
    match = _POINT.fullmatch(text.strip())
    if match is None:
        raise WiringError(f"the point {text!r:.60}", expected="TOK/S@LENGTH or TOK/S@LENGTH/DRAFTS, e.g. 46.7@1.9/1")
    return Measured(float(match[1]), float(match[2]), int(match[3]) if match[3] else drafts)


def expectation_json(expected: Expectation, at: Choice | None, joint: Sequence[float]) -> dict[str, Any]:
    model = expected.model
    every = choices(expected, joint) if joint else ()
    return {
        "base_speed": expected.base,
        "points": [{"speed": p.speed, "length": p.length, "drafts": p.drafts} for p in expected.points],
        "round_cost": expected.cost,
        "break_even": expected.break_even,
        "max_accept_length": expected.most,
        "speed_at_max": expected.ceiling,
        "at": None if at is None else _choice_json(at),
        "model": None
        if model is None
        else {"fixed": model.fixed, "per_draft": model.per_draft, "words": model.words, "measured": model.exact},
        "why_no_model": expected.why,
        "choices": [_choice_json(choice) for choice in every],
        "best": list(best_range(expected, joint)) if joint and model is not None else [],
    }


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {
        "drafts": choice.drafts,
        "length": choice.length,
        "speed": choice.speed,
        "low": choice.low,
        "high": choice.high,
    }
