"""Progress of a headless command, on stderr: one line that is rewritten on a terminal, a plain line now and then in a
pipe, where control codes would be noise and silence would look like a hang.

Knows no command; the text of a line is the caller's.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from threading import Event, Thread

from drafter.safe import safe

FIRST, AGAIN = 5.0, 10.0  # seconds until a plain line, and between such lines
_REDRAW = 0.1  # seconds between two drawings on a terminal

Show = Callable[[str], None]


@contextlib.contextmanager
def progress() -> Iterator[Show]:
    """A function to which the state of the work is told as often as it changes; what it shows is rarer."""
    with _redrawn() if sys.stderr.isatty() else _now_and_then() as show:
        yield show


@contextlib.contextmanager
def _redrawn() -> Iterator[Show]:
    shown = 0.0

    def show(text: str) -> None:
        nonlocal shown
        if time.monotonic() - shown > _REDRAW:
            shown = time.monotonic()
            sys.stderr.write(f"\r{safe(text)}\x1b[K")
            sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextlib.contextmanager
def _now_and_then() -> Iterator[Show]:
    """Says the newest state from a thread of its own: a step may take longer than the time between two lines."""
    said, over, begun = ["at work"], Event(), time.monotonic()

    def speak() -> None:
        wait = FIRST
        while not over.wait(wait):
            wait = AGAIN
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more: no reason to end the work
                sys.stderr.write(f"{safe(said[0])}, after {time.monotonic() - begun:.0f} s\n")
                sys.stderr.flush()

    def show(text: str) -> None:
        said[0] = text

    speaker = Thread(target=speak, name="progress", daemon=True)
    speaker.start()
    try:
        yield show
    finally:
        over.set()
        speaker.join()
