"""The few styles that text in a table may have, by name; the only place where a name becomes a look.

ANSI colour numbers on purpose: Textual turns them into its palette, a 16 colour terminal shows its own.
Colour only adds: what a row says must be readable from its glyphs alone, since NO_COLOR leaves nothing else.
This module knows neither what the names are used for nor which terminal is there.
"""

from __future__ import annotations

from typing import Final

from rich.style import Style

STYLES: Final[dict[str, Style]] = {
    "": Style(),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
    "good": Style(color="green"),
    "bad": Style(color="red", bold=True),
    "outside": Style(color="magenta"),
    "warn": Style(color="yellow"),
    "mark": Style(color="cyan", bold=True),
    "title": Style(bold=True, underline=True),
}

# Attributes, not backgrounds: they are what is left under NO_COLOR.
CURSOR: Final = Style(reverse=True)
CURSOR_UNFOCUSED: Final = Style(underline=True, bold=True)


def style(name: str) -> Style:
    """The style called `name`; an unknown name is plain text, so that a typing error never costs the screen."""
    return STYLES.get(name, STYLES[""])
