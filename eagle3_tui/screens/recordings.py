"""Two recordings of the same tokens: for every slot of the second which slot of the first it is."""

from __future__ import annotations

import textwrap

from drafter.sample.many.pairs import Pair
from drafter.sample.many.twin_words import sentences
from drafter.sample.many.twins import NONE, Comparison, Match
from eagle3_tui.widgets.line_table import Cells, Column

COLUMNS = [
    Column("theirs", 6, "right"),
    Column("ours", 4, "right"),
    Column("is", 7),
    Column("match", 6),
    Column("cosine", 8, "right"),
    Column("norms", 7, "right"),
    Column("equal rows", 13, "right"),
    Column("differs at", 10, "right"),
    Column("next best"),
]
EMPTY = "mark two recordings of the same tokens in files: space on the one, space on the other"
_LOOKS = {"equal": "good", "alike": "warn", "scaled": "warn", NONE: "bad"}


def match_cells(comparison: Comparison, match: Match) -> Cells:
    """One slot of theirs: its match among ours, how near it is, and the first row that differs."""
    best = match.best
    look = _LOOKS.get(match.kind, "") if match.clear or match.kind == NONE else "warn"
    claim = comparison.ours.slots[best.ours].claim
    label = claim.label if claim is not None and match.kind != NONE else ""
    ours = str(best.ours) if match.kind != NONE else "-"
    texts = [str(match.theirs), ours, label, match.kind, _number(best.cosine, 4), _number(best.norm_ratio, 3)]
    texts += [_equal(best), "" if best.first_differing is None else f"row {best.first_differing}", _second(match)]
    return [(text, look) for text in texts]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _equal(pair: Pair) -> str:
    return "" if pair.equal_rows is None else f"{pair.equal_rows} of {pair.rows}"


def _second(match: Match) -> str:
    return "" if match.second is None else f"{match.second.ours}: {_number(match.second.cosine, 4)}"


def lines(comparison: Comparison, match: int | None, width: int, most: int) -> list[list[tuple[str, str]]]:
    """Which two they are and how their tokens lie, the sentence on one slot, and what follows for the ordering."""
    said = sentences(comparison)
    slots = len(comparison.matches)
    first = next((i for i, text in enumerate(said) if text.startswith("slot 0 of theirs")), len(said))
    about = [f"ours {comparison.ours.path.name}, theirs {comparison.theirs.path.name}: {said[0]}", *said[1:first]]
    one = said[first + match : first + match + 1] if match is not None else []
    follows = said[first + slots :]
    looks = [*((text, "dim") for text in about), *((text, "") for text in one)]
    looks += [(text, "mark" if comparison.ordering else "warn") for text in follows]
    return [[(line, look)] for text, look in looks for line in textwrap.wrap(text, max(width, 20))][:most]
