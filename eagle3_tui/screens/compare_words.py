"""What the panes of the Compare view have in common: lines that wrap, numbers, and who is ours and who theirs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from drafter.safe import safe
from eagle3_tui.state import State

if TYPE_CHECKING:
    from eagle3_tui.controls.compare import Scope

Said = Sequence[tuple[str, str]]
Lines = list[list[tuple[str, str]]]
_LONG = 2000  # characters of a value that may fill a file


def wrapped(said: Said, width: int, most: int) -> Lines:
    """(text, style) sentences in at most `most` lines of `width`; what is cut ends in an ellipsis."""
    lines: Lines = []
    for text, look in said:
        if text and len(lines) < most:
            room = {"max_lines": most - len(lines), "placeholder": " …"}
            lines += [[(line, look)] for line in textwrap.wrap(safe(text, _LONG), max(width, 20), **room)]  # type: ignore[arg-type]
    return lines


def number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else format(value, form)


def p_value(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def told_apart(p: float) -> str:
    from drafter.scoring.compare import TIE  # torch, which is there when there is a p

    return "not told apart by these rows" if p > TIE else "told apart"


def share(hits: int, total: int) -> str:
    return f"{hits} of {total} ({100 * hits / total:.1f} %)" if total else f"{hits} of {total}"


def sides(state: State) -> str:
    """Which two are held against each other."""
    mine = state.compare
    if state.chosen is None or mine.theirs is None:
        return ""
    why = f" ({mine.theirs_why})" if mine.theirs_why else ""
    return f"ours {state.chosen.name}, theirs {their_name(state)}{why}"


def their_name(state: State) -> str:
    """By its name in the folder, by its path where it lies elsewhere."""
    theirs = state.compare.theirs
    if theirs is None:
        return ""
    return theirs.name if any(f.path == theirs.path for f in state.found) else str(theirs.path)


def scope_said(scope: Scope | None, samples: int) -> str:
    """On what: the sample or how many, and which rows count."""
    if scope is None:
        return ""
    what = scope.sample.name if scope.sample is not None else f"all {samples} listed samples, pooled"
    supervised = "" if scope.supervised == "recorded" else f", loss mask {scope.supervised}"
    switched = f", switched: {', '.join('='.join(pair) for pair in scope.switched)}" if scope.switched else ""
    return f"{what}, mask {scope.mask}{supervised}{switched}"


def how_to_mark(state: State) -> str:
    """What stands in a pane of two checkpoints while there is only one."""
    if len(state.found) < 2:
        return "one checkpoint here: n compares it with another path, as does eagle3-tui compare PATH OTHER"
    return "space on another checkpoint in epochs compares it with the open one; n asks for a path"
