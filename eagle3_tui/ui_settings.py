"""What the user asked of the screen itself; everything else is `drafter.session.Options`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UiSettings:
    """`ascii`: draw in ASCII also where more would work. `mouse`: take mouse events. `argv`: for the log."""

    ascii: bool
    mouse: bool
    argv: list[str]
