"""What the panes of the Serving view share: lines of runs, wrapped, and numbers as they are written there."""

from __future__ import annotations

import textwrap

NARROW = 72  # columns below which a pane gives up what its detail says too
Line = list[tuple[str, str]]


def wrapped(text: str, look: str, width: int, most: int = 99, indent: str = "") -> list[Line]:
    """`text` in as many lines as it takes, at most `most`; later lines are set in by `indent`."""
    if most <= 0 or not text:
        return []
    room = max(width, 20)
    lines = textwrap.wrap(text, room, subsequent_indent=indent, max_lines=most, placeholder=" …")
    return [[(line, look)] for line in lines]


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
