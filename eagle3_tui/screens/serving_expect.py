"""Pane 4 of the Serving view: the speed that an accept length gives, and the number of drafts that is best.

The curve is that of the current ordering once it is scored, else that of the trained view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drafter.serving.expect import Choice, Expectation, best_range, choice_at, choices
from drafter.serving.offline import Curve
from eagle3_tui.screens.serving_offline import current, served, trained
from eagle3_tui.screens.serving_text import NARROW, Line, number, wrapped
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, Column
from eagle3_tui.widgets.plot import Series, draw

EMPTY = "w takes the speed without drafts and a measured point, e.g. 90 46.7@1.9/1"


def columns(width: int) -> list[Column]:
    wide = width >= NARROW
    return [
        Column("", 1),
        Column("case", 26 if wide else 21, cut="middle"),
        Column("length", 6, "right"),
        Column("tokens/s", 8, "right"),
        Column("x base", 6, "right"),
        Column("range, as the cost may split" if wide else "range"),
    ]


@dataclass(frozen=True)
class Case:
    """One accept length with its speed; `low` and `high` are what an unknown split of the cost leaves open."""

    what: str
    length: float
    speed: float
    low: float
    high: float
    sign: str = ""


def joint_curve(state: State) -> Curve | None:
    return current(state) or trained(state)


def rows(state: State) -> list[Case]:
    expected = state.serving.expected
    if expected is None:
        return []
    base = expected.base
    found = [Case("no drafts", 1.0, base, base, base, _sign(0, _best(state)))]
    for point in expected.points:
        told = "" if point.drafts is None else f", {_drafts(point.drafts)}"
        found.append(Case(f"measured{told}", point.length, point.speed, point.speed, point.speed))
    found.append(Case("breaks even", expected.break_even, base, base, base))
    if expected.most is not None and expected.ceiling is not None:
        top = expected.ceiling
        found.append(Case("most, by the flags", expected.most, top, top, top))
    for one in (joint_curve(state), served(state)[0]):
        at = _at(expected, one) if one is not None else None
        found += [Case(f"offline {one.name}", at.length, at.speed, at.low, at.high)] if at and one else []
    return found + _choices(state, expected)


def _at(expected: Expectation, one: Curve) -> Choice | None:
    """The offline length with the drafts that were measured, else with its own."""
    measured = expected.points[0].drafts
    length = one.at(measured)
    return None if length is None else choice_at(expected, length, measured)


def _choices(state: State, expected: Expectation) -> list[Case]:
    """Every number of drafts of the curve, in order, the best ones marked."""
    one = joint_curve(state)
    if one is None or expected.model is None:
        return []
    best = _best(state)
    found = sorted(choices(expected, one.joint), key=lambda choice: choice.drafts)
    return [Case(_drafts(c.drafts), c.length, c.speed, c.low, c.high, _sign(c.drafts, best)) for c in found if c.drafts]


def _drafts(count: int) -> str:
    return f"{count} draft{'' if count == 1 else 's'}"


def cells(case: Case, base: float) -> Cells:
    span = f"{case.low:.1f} to {case.high:.1f}" if case.high - case.low > 0.05 else ""
    gain = case.speed / base
    look = "good" if case.sign == "*" else "warn" if case.sign else "" if gain >= 1 else "dim"
    texts = (case.sign, case.what, number(case.length), f"{case.speed:.1f}", f"{gain:.2f}", span)
    return [(text, look) for text in texts]


def lines(state: State, width: int, most: int) -> list[Line]:
    """The cost of a round, what pays, how the cost was split, and the curve."""
    expected = state.serving.expected
    if expected is None:
        return [[("accept lengths count the bonus token; speeds are of one request, in tokens per second", "dim")]]
    said = f"a round costs {expected.cost:.2f} steps of the server without drafts: it pays from {expected.cost:.2f} on"
    found = wrapped(said, "", width, 2)
    if expected.most is not None and expected.ceiling is not None and expected.ceiling < expected.base:
        never = f"! at most {expected.most:g} with these flags, {expected.ceiling:.1f} tokens/s: they can never pay"
        found += wrapped(never, "bad", width, 1)
    one, model = joint_curve(state), expected.model
    if model is None:
        found += wrapped(f"other numbers of drafts: {expected.why}", "warn", width, 2)
    else:
        cost = f"cost of a round: {model.fixed:.2f} + {model.per_draft:.3f} x drafts; {model.words}"
        found += wrapped(cost.replace("no --draft-cost given", "cost=STEPS in w says it"), "dim", width, 2)
    if one is None:
        return (found + wrapped("no offline curve yet: the scores of the ordering give it", "dim", width, 1))[:most]
    if model is not None:
        found += wrapped(_best_said(_best(state), one), "mark", width, 2)
    rates = ", ".join(f"{p:.3f}" for p in one.joint)
    mask = state.serving.views["mask"] if state.scores is None and state.serving.views else ""
    mask = state.scores.result.mask if state.scores is not None else mask
    words = f"joint curve of {one.name}: {rates}; of {one.rows} rows, {one.samples}, mask {mask}"
    return (found + wrapped(words, "dim", width, 2))[:most]


def _best(state: State) -> tuple[int, ...]:
    """The best numbers of drafts, one for every way in which the cost may split; none where that cannot be told."""
    expected, one = state.serving.expected, joint_curve(state)
    return best_range(expected, one.joint) if expected is not None and expected.model and one is not None else ()


def _sign(drafts: int, best: tuple[int, ...]) -> str:
    return "" if drafts not in best else "*" if len(best) == 1 else "~"


def _best_said(best: tuple[int, ...], one: Curve) -> str:
    open_ = ", depending on how the cost splits" if len(best) > 1 else ""
    deepest = "; more were not scored (--depth)" if one.drafts in best else ""
    words = " or ".join("no drafts" if drafts == 0 else _drafts(drafts) for drafts in best)
    return f"best for {one.name}: {words}{open_}{deepest}"


def _between(expected: Expectation, found: list[Choice]) -> list[Series]:
    """What the split of the cost leaves open; nothing where it was measured."""
    if not expected.extremes:
        return []
    return [Series([c.low for c in found], label="low"), Series([c.high for c in found], label="high")]


def plot(state: State, ascii: bool, colorless: bool) -> Callable[[int, int], str] | None:
    """Speed by drafts a round; where other numbers of drafts cannot be told, by accept length."""
    expected, one = state.serving.expected, joint_curve(state)
    if expected is None:
        return None
    if expected.model is not None and one is not None:
        found = sorted(choices(expected, one.joint), key=lambda choice: choice.drafts)
        series = [
            Series([c.speed for c in found], label="expected"),
            *_between(expected, found),
            Series([expected.base] * len(found), label="no drafts"),
        ]
        title, across = "tokens/s", "drafts a round"
    else:
        line = expected.line(max(expected.most or 0, expected.break_even, *(p.length for p in expected.points)))
        lengths = [length for length, _ in line]
        series = [
            Series([speed for _, speed in line], lengths, label="expected"),
            Series([expected.base] * len(line), lengths, label="no drafts"),
        ]
        title, across = "tokens/s", "accept length, bonus counted"
    return lambda w, h: draw(series, w, h, title, across, ascii=ascii, colorless=colorless)
