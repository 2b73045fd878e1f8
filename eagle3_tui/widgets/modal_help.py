"""The help screen: the keys that work right now, read from the bindings themselves, so that it cannot be out of date.

Grouped by where a key works: on the focused widget, in the view around it, everywhere. The caller may add a legend
of glyphs. It does NOT know any key of the app but its own.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.events import Resize
from textual.screen import ModalScreen, Screen

from drafter.safe import safe
from eagle3_tui.widgets.line_table import Cells, Column, LineTable

KEYS_WIDTH = 18
GROUPS = ("here", "in this view", "everywhere")


@dataclass
class HelpLine:
    """One action: its keys, its name, what it does, and whether it can be done now."""

    keys: list[str]
    description: str
    tooltip: str
    enabled: bool


class HelpScreen(ModalScreen[None]):
    """`app.push_screen(HelpScreen(app.screen, legend=[("x", "a wrong prediction")]))`."""

    # Opaque: a tinted background repaints the whole screen below it, twice.
    DEFAULT_CSS = """
    HelpScreen { background: $background; &:ansi { background: ansi_default; } }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "Close", id="help.close", tooltip="back to the view"),
    ]

    def __init__(
        self, below: Screen[Any], legend: Sequence[tuple[str, str]] = (), title: str = "Keys (esc closes)"
    ) -> None:
        """The keys of `below` as they are now, while it is still the active screen."""
        super().__init__()
        self._groups = gather(below)
        self._legend = list(legend)
        self._title = title

    def compose(self) -> ComposeResult:
        yield LineTable([Column(self._title, KEYS_WIDTH), Column("")], self._page(self.app.size.width))

    def on_mount(self) -> None:
        self.query_one(LineTable).focus()

    def on_resize(self, event: Resize) -> None:
        self.query_one(LineTable).set_rows(self._page(event.size.width))

    def _page(self, width: int) -> HelpPage:
        return HelpPage(self._groups, self._legend, max(10, width - KEYS_WIDTH - 1))


class HelpPage:
    """The lines of the page, as rows of a table; text too long for `width` goes on in the next row."""

    def __init__(self, groups: dict[str, list[HelpLine]], legend: Sequence[tuple[str, str]], width: int) -> None:
        self._width = width
        self._rows: list[Cells] = []
        for name, lines in groups.items():
            if lines:
                self._add(name, "", "title")
            for line in lines:
                text = f"{line.description}: {line.tooltip}" if line.tooltip else line.description
                self._add(" ".join(line.keys), text, "" if line.enabled else "dim")
        if legend:
            self._add("glyphs", "", "title")
        for glyph, meaning in legend:
            self._add(glyph, meaning, "")

    def _add(self, left: str, right: str, look: str) -> None:
        if look == "title" and self._rows:
            self._rows.append([])
        first, *others = textwrap.wrap(safe(right), self._width) or [""]
        self._rows.append([(left, look or "bold"), (first, look)])
        self._rows.extend([("", ""), (other, look)] for other in others)

    def __len__(self) -> int:
        return len(self._rows)

    def cells(self, i: int) -> Cells:
        return self._rows[i]

    def key(self, i: int) -> object:
        return i


def gather(screen: Screen[Any]) -> dict[str, list[HelpLine]]:
    """The bindings that work on `screen` now, by group; the keys of one action together, in order of definition.

    Only bindings with an id: those without are Textual's own, such as ways to move the focus that lead nowhere here.
    """
    groups: dict[str, dict[tuple[str, str], HelpLine]] = {name: {} for name in GROUPS}
    for active in screen.active_bindings.values():
        binding = active.binding
        if binding.system or not binding.id:
            continue
        lines = groups[_group(active, screen)]
        line = lines.setdefault(
            (binding.id, binding.description),
            HelpLine([], binding.description, active.tooltip, active.enabled),
        )
        line.keys.append(screen.app.get_key_display(binding))
    return {name: list(lines.values()) for name, lines in groups.items()}


def _group(active: ActiveBinding, screen: Screen[Any]) -> str:
    if active.node is screen.focused:
        return GROUPS[0]
    return GROUPS[2] if active.node is screen.app else GROUPS[1]
