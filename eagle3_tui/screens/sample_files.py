"""The list of sample files as rows: what is known of each so far, in the order that is asked for.

Nothing is opened to list them, and no path is made but of the rows on screen: a list may hold a hundred thousand.
"""

from __future__ import annotations

from pathlib import Path

from drafter.sample.folder import SamplePaths
from drafter.sample.many.survey import Surveyed
from drafter.scoring.tallies import SampleScore
from eagle3_tui.screens.view import percent
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, Column, RowSource

LISTED, WORST, BEST, FEWEST = "as listed", "worst first", "best first", "fewest supervised first"
SORTS = (LISTED, WORST, BEST, FEWEST)
_WIDE = 64  # columns from which tokens and a remark have room
_REMARK = Column("about", cut="middle")


def columns(width: int) -> list[Column]:
    """The columns that fit."""
    mark, step, length = Column("", 2), Column("step 0", 6, "right"), Column("length", 6, "right")
    supervised = Column("superv.", 7, "right")
    if width < _WIDE:
        return [mark, Column("sample", max(width - 31, 8), cut="middle"), supervised, step, length, Column("")]
    name = Column("sample", max(width - 60, 18) if width < 100 else 40, cut="middle")
    return [mark, name, Column("tokens", 7, "right"), supervised, step, length, _REMARK]


class SampleFiles(RowSource):
    """Sample files by their number in `paths`, in `order` (None: as listed). Reads of the state what is there."""

    def __init__(self, paths: SamplePaths, order: list[int] | None, state: State, width: int) -> None:
        self._paths, self._order, self._state, self._width = paths, order, state, width
        self._texts: list[str] = []

    def _number(self, i: int) -> int:
        return i if self._order is None else self._order[i]

    def texts(self) -> list[str]:
        """The names in lower case, for the filter."""
        if not self._texts:
            names = [name.lower() for name in self._paths.names()]
            self._texts = names if self._order is None else [names[i] for i in self._order]
        return self._texts

    def __len__(self) -> int:
        return len(self._paths)

    def key(self, i: int) -> object:
        return self._number(i)

    def cells(self, i: int) -> Cells:
        path = self._paths[self._number(i)]
        state, known = self._state, self._state.surveyed.get(path)
        chosen = state.sample is not None and state.sample.path == path
        marks = (">" if chosen else " ") + ("*" if state.marked == path else " ")
        bad = (known is not None and known.error) or path in state.skipped
        look = "bad" if bad else "mark" if chosen else ""
        scored = score_of(state, path)
        step0 = percent(scored.ratio) if scored is not None else ""
        length = f"{scored.length:.2f}" if scored is not None and scored.length is not None else ""
        cells = [(marks, "mark"), (path.name, look), (supervised(known), _mask_look(known)), (step0, ""), (length, "")]
        if self._width < _WIDE:
            return [*cells, ("", "")]
        tokens = str(known.tokens) if known is not None and not known.error else ""
        return [*cells[:2], (tokens, ""), *cells[2:], remark(path, known, state)]


def supervised(known: Surveyed | None) -> str:
    """How many tokens are supervised, `-` where the file records no mask."""
    if known is None or known.error:
        return ""
    return "-" if known.supervised is None else str(known.supervised)


def _mask_look(known: Surveyed | None) -> str:
    return "bad" if known is not None and known.supervised == 0 else ""


def remark(path: Path, known: Surveyed | None, state: State) -> tuple[str, str]:
    """What is wrong with a sample, else its group, else the folder."""
    if known is not None and known.problem:
        return known.problem, "bad" if known.error or known.supervised == 0 else "warn"
    if path in state.skipped:
        return state.skipped[path], "bad"
    group = state.group_of(path)
    return (group.rpartition("/")[2], "dim") if group else (str(path.parent), "dim")


def score_of(state: State, path: Path) -> SampleScore | None:
    """The sample's own score under the current ordering."""
    scores = state.sample_scores.get(path)
    return scores.get(state.ordering) if scores is not None and state.ordering is not None else None


def order(paths: SamplePaths, sort: str, state: State) -> list[int] | None:
    """The numbers of the paths in the order `sort`: what is not known yet comes last, as listed."""
    if sort == LISTED:
        return None
    known = state.surveyed if sort == FEWEST else state.sample_scores
    found = {number: path for path in known if (number := paths.find(path)) is not None}
    values = {number: value for number, path in found.items() if (value := _value(state, path, sort)) is not None}
    first = sorted(values, key=lambda number: (values[number], number))
    return first + [number for number in range(len(paths)) if number not in values]


def _value(state: State, path: Path, sort: str) -> float | None:
    """What a sample is sorted by, least first; None where it is not known."""
    if sort == FEWEST:
        return state.surveyed[path].supervised
    scored = score_of(state, path)
    if scored is None or scored.ratio is None:
        return None
    return scored.ratio if sort == WORST else -scored.ratio
