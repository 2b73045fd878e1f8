"""A comparison of two recordings in plain sentences. Decides nothing: see `twins`."""

from __future__ import annotations

from collections.abc import Sequence

from drafter.sample.many.pairs import Pair
from drafter.sample.many.twins import ALIKE, EQUAL, NONE, SCALED, Comparison, Match
from drafter.sample.sample import Slot


def sentences(comparison: Comparison) -> list[str]:
    """What was found: the tokens, each slot of theirs, and what follows for the ordering."""
    span = comparison.alignment
    said = [span.how]
    if not span.whole_context:
        said.append("what came before these tokens may differ, and states that look back differ with it")
    if 2 * span.count < min(comparison.ours.length, comparison.theirs.length):
        said.append("less than half of either is common: these are probably two texts with a common part")
    said += [_slot_words(comparison, match) for match in comparison.matches]
    return said + _ordering_words(comparison)


def _slot_words(comparison: Comparison, match: Match) -> str:
    best, which = match.best, f"slot {match.theirs} of theirs"
    ours = f"slot {best.ours} of ours{_depth(comparison.ours.slots[best.ours])}"
    if match.kind == NONE:
        if best.cosine is None:
            return f"{which} matches none of ours: no row is finite and not zero in both"
        return f"{which} matches none of ours (best cosine {_cosine(best)} with slot {best.ours})"
    angle, equal = f"mean cosine {_cosine(best)}", _equal_words(best, comparison)
    if match.kind == SCALED:
        said = f"{which} points where {ours} does ({angle}) but is {best.norm_ratio:.3g} times as long"
    elif match.kind == ALIKE:
        said = f"{which} is like {ours}{_shift_words(best)}: {angle}, {equal}"
        said += "; the same state computed otherwise, or that of a neighbouring layer"
    else:
        said = f"{which} is {ours}{_shift_words(best)}: {equal}"
    if not match.clear and match.second is not None:
        said += f"; not clear: slot {match.second.ours} of ours is as near"
    return said


def _depth(slot: Slot) -> str:
    claim = slot.claim or slot.layout
    if claim is None:
        return ""
    return f" (depth {claim.depth})" if claim.depth else f" ({claim.label})"


def _shift_words(pair: Pair) -> str:
    if pair.shift == 0:
        return ""
    way, other = ("late", "t - 1") if pair.shift < 0 else ("early", "t + 1")
    return f", one row {way} (its row t is row {other} of ours)"


def _equal_words(pair: Pair, comparison: Comparison) -> str:
    equal, close = pair.equal_rows or 0, pair.close_rows or 0
    said = f"equal on all {pair.rows} rows" if equal == pair.rows else f"equal on {equal} of {pair.rows} rows"
    if close > equal:
        allowed = f"{comparison.tolerance:.1g}"
        said += f", {'the rest' if close == pair.rows else f'{close - equal} more'} within {allowed}"
    if pair.bad_rows:
        said += f", {pair.bad_rows} rows not finite"
    if pair.first_differing is None:
        return said
    span = comparison.alignment.shifted(pair.shift)
    theirs = pair.first_differing - span.ours + span.theirs
    return f"{said}, first differs at row {pair.first_differing}" + (
        f" (row {theirs} of theirs)" if theirs != pair.first_differing else ""
    )


def _cosine(pair: Pair) -> str:
    """Two digits, and more where that would round to one."""
    value = pair.cosine or 0.0
    return f"{value:.2f}" if value < 0.985 else f"{value:.4f}"


def _ordering_words(comparison: Comparison) -> list[str]:
    matches, ordering = comparison.matches, comparison.ordering
    if ordering is not None:
        slots = _many(ordering)
        if ordering == tuple(range(len(comparison.ours.slots))):
            return [f"theirs is [{slots}] of ours: the same slots in the same order"]
        return [f"theirs is [{slots}] of ours: the ordering to serve"]
    shifts = {match.best.shift for match in matches if match.kind != NONE}
    if shifts and 0 not in shifts and len(shifts) == 1:
        return [f"theirs is one row {'late' if shifts == {-1} else 'early'}: shift it before anything else is compared"]
    found = [m for m in matches if m.kind in (EQUAL, ALIKE) and m.clear]
    if not found:
        return ["no slot of theirs is surely one of ours: another target, other layers, or other text before"]
    said = f"{_many([m.theirs for m in found])} of theirs is [{_many([m.best.ours for m in found])}] of ours"
    rest = len(matches) - len(found)
    if rest:
        said += f"; {rest} of its {len(matches)} slots {'is' if rest == 1 else 'are'} not surely of ours"
    return [f"{said}: no whole ordering follows"]


def _many(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
