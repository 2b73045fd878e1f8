"""Two recordings of the same tokens, slot by slot: which slot of theirs is which of ours, and what differs.

For instance what a server captured against what training saw. Knows no checkpoint; claims are only repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from drafter.errors import SampleError
from drafter.sample.many.align import Alignment, align
from drafter.sample.many.pairs import Pair, likeness, measure, tolerance
from drafter.sample.sample import Sample

EXACT_PAIRS = 32  # up to so many pairs of slots are compared over all rows
CANDIDATES = 2  # else these many a slot of theirs
EQUAL, ALIKE, SCALED, NONE = "equal", "alike", "scaled", "none"
EQUAL_SHARE, EQUAL_ROWS = 0.5, 4  # of the rows, or so many rows: no two layers share them by chance
ALIKE_COSINE, ALIKE_RATIO = 0.99, 0.05
CLEAR_SHARE, CLEAR_ANGLE = 0.1, 2.0
SHIFTS = (-1, 0, 1)


@dataclass(frozen=True)
class Match:
    """What slot `theirs` is: `best` among ours, `kind` says how surely, `clear` whether the `second` is further off.

    `equal`: half of the rows, or four, are equal or within the tolerance; `alike`: the same direction and length but
    for a hundredth; `scaled`: the direction only; `none`. `shifts` has the mean cosine with the best slot when theirs
    row t is laid beside row t - 1, t and t + 1 of ours, on spread rows.
    """

    theirs: int
    best: Pair
    second: Pair | None
    kind: str
    clear: bool
    shifts: dict[int, float | None]


@dataclass(frozen=True)
class Comparison:
    """`pairs` are all pairs of slots without a shift; `ordering` are slots of ours where all of theirs are found."""

    ours: Sample
    theirs: Sample
    alignment: Alignment
    tolerance: float
    pairs: tuple[Pair, ...]
    matches: tuple[Match, ...]
    ordering: tuple[int, ...] | None


def compare_recordings(ours: Sample, theirs: Sample, poll: Callable[[], None] = lambda: None) -> Comparison:
    """Compare every slot of `theirs` with every slot of `ours` over the tokens that both hold.

    Raises SampleError where they hold other tokens, or states of another width.
    """
    if not ours.slots or not theirs.slots or ours.width != theirs.width:
        widths = [str(side.width) if side.slots else "no states" for side in (theirs, ours)]
        raise SampleError(f"recorded states are {widths[0]} wide", expected=f"{widths[1]}, as ours", where=theirs.path)
    span = align(ours.ids, theirs.ids, theirs.path)
    spread = {shift: likeness(ours, theirs, span, shift, poll) for shift in SHIFTS if span.count > abs(shift)}
    pairs = _pairs(ours, theirs, span, spread[0], poll)
    matches = [_match(ours, theirs, span, j, pairs, spread, poll) for j in range(len(theirs.slots))]
    allowed = max(tolerance(a.tensor.dtype, b.tensor.dtype) for a in ours.slots for b in theirs.slots)
    return Comparison(ours, theirs, span, allowed, tuple(pairs.values()), tuple(matches), _ordering(matches))


_Pairs = dict[tuple[int, int], Pair]


def _pairs(ours: Sample, theirs: Sample, span: Alignment, spread: _Pairs, poll: Callable[[], None]) -> _Pairs:
    """Every pair: over all rows where that is worth it, else over the spread rows."""
    wanted = list(spread)
    if len(wanted) > EXACT_PAIRS:
        columns = [[spread[i, j] for i in range(len(ours.slots))] for j in range(len(theirs.slots))]
        wanted = [(p.ours, p.theirs) for column in columns for p in sorted(column, key=_rank)[:CANDIDATES]]
    exact = measure(ours, theirs, span, wanted, 0, poll)
    return spread | {(pair.ours, pair.theirs): pair for pair in exact}


def _rank(pair: Pair) -> tuple[float, float]:
    """Best first: more rows that are equal or close, then the smaller angle."""
    return -pair.close_share, -(-2.0 if pair.cosine is None else pair.cosine)


def _match(
    ours: Sample,
    theirs: Sample,
    span: Alignment,
    slot: int,
    pairs: _Pairs,
    spread: dict[int, _Pairs],
    poll: Callable[[], None],
) -> Match:
    ranked = sorted((pair for (_, j), pair in pairs.items() if j == slot), key=_rank)
    best, others = ranked[0], ranked[1:]
    if _kind(best) != EQUAL:
        best, others = _shifted(ours, theirs, span, best, others, spread, poll)
    second = others[0] if others else None
    kind = _kind(best)
    shifts = {shift: found[best.ours, slot].cosine for shift, found in spread.items()}
    return Match(slot, best, second, kind, kind != NONE and _is_clear(best, second), dict(sorted(shifts.items())))


def _shifted(
    ours: Sample,
    theirs: Sample,
    span: Alignment,
    best: Pair,
    others: Sequence[Pair],
    spread: dict[int, _Pairs],
    poll: Callable[[], None],
) -> tuple[Pair, list[Pair]]:
    """The best pair and the others, with the rows laid one off where that fits better."""
    moved = [p for shift, found in spread.items() for p in found.values() if shift and p.theirs == best.theirs]
    if not moved:
        return best, list(others)
    shift = min(moved, key=_rank).shift
    likely = sorted((pair for pair in moved if pair.shift == shift), key=_rank)[:CANDIDATES]
    exact = measure(ours, theirs, span, [(pair.ours, pair.theirs) for pair in likely], shift, poll)
    first, *rivals = sorted(exact, key=_rank)
    if _kind(first) == NONE or _rank(first) >= _rank(best):
        return best, list(others)
    return first, rivals


def _kind(pair: Pair) -> str:
    if pair.close_share >= EQUAL_SHARE or (pair.close_rows or 0) >= EQUAL_ROWS:
        return EQUAL
    if pair.cosine is None or pair.norm_ratio is None or pair.cosine < ALIKE_COSINE:
        return NONE
    return ALIKE if abs(pair.norm_ratio - 1) <= ALIKE_RATIO else SCALED


def _is_clear(best: Pair, second: Pair | None) -> bool:
    """Whether the second is further off: by the share of close rows, or by twice the angle's departure."""
    if second is None or best.close_share - second.close_share >= CLEAR_SHARE:
        return True
    if best.cosine is None or second.cosine is None:
        return False
    return 1 - second.cosine > CLEAR_ANGLE * (1 - best.cosine) + 1e-6


def _ordering(matches: Sequence[Match]) -> tuple[int, ...] | None:
    sure = all(m.kind in (EQUAL, ALIKE) and m.clear and m.best.shift == 0 for m in matches)
    found = tuple(match.best.ours for match in matches)
    return found if sure and len(set(found)) == len(found) else None


def comparison_json(comparison: Comparison, *, pairs: bool = True) -> dict[str, Any]:
    """The comparison as plain values; without `pairs` only what matches what."""
    from drafter.sample.many.twin_words import sentences  # which knows this module

    span = comparison.alignment
    return {
        "ours": _sample_json(comparison.ours),
        "theirs": _sample_json(comparison.theirs),
        "aligned": {"ours": span.ours, "theirs": span.theirs, "tokens": span.count},
        "tolerance": comparison.tolerance,
        "matches": [
            {
                "theirs": match.theirs,
                "ours": match.best.ours if match.kind != NONE else None,
                "kind": match.kind,
                "clear": match.clear,
                "best": asdict(match.best),
                "second": asdict(match.second) if match.second else None,
                "shifts": {str(shift): cosine for shift, cosine in match.shifts.items()},
            }
            for match in comparison.matches
        ],
        **({"pairs": [asdict(pair) for pair in comparison.pairs]} if pairs else {}),
        "ordering": list(comparison.ordering) if comparison.ordering else None,
        "verdict": sentences(comparison),
    }


def _sample_json(sample: Sample) -> dict[str, Any]:
    claims = [slot.claim or slot.layout for slot in sample.slots]
    return {
        "path": str(sample.path),
        "format": sample.format,
        "tokens": sample.length,
        "dtypes": [slot.tensor.dtype for slot in sample.slots],
        "claimed": [claim.label if claim else None for claim in claims],
    }
