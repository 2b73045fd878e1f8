"""The real terminal around `App.run`: refuse what cannot work, set up what must hold, and always leave.

    reason = check()                         one line and exit code 2, when there is one
    with prepare(log) as settings:           while the app exists: made, run and ended inside
        app.run()                            App.on_mount calls attach(app)
    finish(code, engine)                     may not return

Each step is here because Textual 8.2 does otherwise: a hang-up or SIGTERM leaves the terminal broken or spins for
ever, one byte of noise ends the app, C libraries write over the screen, COLUMNS freezes the size, and the screen
stays blank after ctrl+z and fg. It does NOT know what the app shows.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import functools
import io
import os
import select
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import textual
from rich.cells import get_character_cell_size
from rich.console import Console
from textual import constants
from textual.app import App

EXIT_SIGNALS: Final = {signal.SIGHUP: 129, signal.SIGTERM: 143}
HANGUP_SECONDS = 1.0
_PATIENCE = 0.3  # seconds that leaving waits for the engine: who imports torch at that moment hears nothing for longer
_FEW_GLYPHS = ("linux", "vt")  # TERMs whose fonts have no braille and half of the blocks

_ASCII: Final = {
    char: plain
    for plain, chars in {
        "-": "─━–—▄▔¯⎯",
        "|": "│┃║▏▕",
        "+": "┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝",
        "=": "═▅▆",
        "~": "…",
        ".": "·▂▃░",
        ":": "▒",
        "_": "▁",
        "#": "▇█▌▐▓",
        "'": "‘’▀",
        '"': "“”",
        "*": "•∙",
        "x": "×✗",
        "v": "↓▼✓",
        "^": "↑▲",
        "<": "←◀⏎«‹",
        ">": "→▶»›",
    }.items()
    for char in chars
}


@dataclass(frozen=True)
class Settings:
    """How to draw on this terminal. `theme` None: the app's own; `ansi_color` is for the App's constructor."""

    ascii: bool
    theme: str | None
    ansi_color: bool


class Stoppable(Protocol):
    def stop(self, timeout: float = 1.0) -> bool: ...


def check() -> str | None:
    """Why the screen cannot start here, in one line; None when it can."""
    for number, name in ((0, "standard input"), (2, "standard error")):
        if not os.isatty(number):
            return f"the screen needs a terminal, and {name} is not one; the commands with --json need none"
    term = os.environ.get("TERM", "")
    if term in ("dumb", "unknown"):
        return f"the screen needs a terminal that can move its cursor, and TERM is {term!r}"
    return None


@contextlib.contextmanager
def prepare(log_path: str | os.PathLike[str] | None, ascii: bool = False) -> Iterator[Settings]:
    """The process as the app needs it, put back at the end; what others write to fd 2 goes to `log_path` meanwhile.

    `ascii` asks for ASCII on a terminal that could do more.
    """
    for name in ("COLUMNS", "LINES"):  # Textual would take them for the size, for good
        os.environ.pop(name, None)
    ascii = ascii or not _speaks_unicode()
    with _own_screen(log_path, ascii), _noise_tolerant_input():
        yield Settings(ascii, "ansi-dark" if _color_system() == "standard" else None, "NO_COLOR" in os.environ)


def attach(app: App[Any]) -> None:
    """Make the running app end when its terminal goes or it is told to, and draw when it comes back. For on_mount."""
    if app.is_headless:
        return
    loop = asyncio.get_running_loop()
    for number, code in EXIT_SIGNALS.items():
        loop.add_signal_handler(number, functools.partial(app.exit, return_code=code))
    app.set_interval(HANGUP_SECONDS, functools.partial(_leave_if_hung_up, app))
    app.app_resume_signal.subscribe(app, lambda _: app.refresh(layout=True))


def finish(code: int, engine: Stoppable | None = None, close: Callable[[], object] | None = None) -> int:
    """After the app: stop the engine, call `close` (the session's log), flush, and return `code` for `sys.exit`.

    Does not return when the engine's thread still computes: the interpreter would be aborted inside torch.
    """
    stopped = engine is None or engine.stop(_PATIENCE)
    try:
        if close is not None:
            close()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if not stopped:
            os._exit(code)
    return code


# Signals and hang-ups


def _leave_if_hung_up(app: App[Any]) -> None:
    poll = select.poll()
    poll.register(0, 0)
    if any(event & select.POLLHUP for _, event in poll.poll(0)):
        app.exit(return_code=EXIT_SIGNALS[signal.SIGHUP])


# Output


class _Screen(io.TextIOWrapper):
    """The terminal as a stream. A terminal that is gone takes everything: Textual's writer must not die or block."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            super().flush()


@contextlib.contextmanager
def _own_screen(log_path: str | os.PathLike[str] | None, ascii: bool) -> Iterator[None]:
    """The terminal is `sys.__stderr__` and no longer fd 2, which C libraries write to without asking."""
    old_error, old_output = sys.__stderr__, sys.__stdout__
    _flush(sys.stderr)
    encoding, errors = ("ascii", "eagle3-ascii") if ascii else ("utf-8", "replace")
    codecs.register_error("eagle3-ascii", _to_ascii)
    screen = _Screen(io.FileIO(os.dup(2), "w"), encoding=encoding, errors=errors, newline="", write_through=False)
    log = _open_log(log_path)
    os.dup2(log, 2)
    os.close(log)
    sys.__stderr__ = screen  # type: ignore[misc]
    if not os.isatty(1):
        sys.__stdout__ = screen  # type: ignore[misc]  # where the size is asked for; sys.stdout stays for data
    try:
        yield
    finally:
        _flush(sys.stderr)
        screen.flush()
        os.dup2(screen.fileno(), 2)
        sys.__stderr__, sys.__stdout__ = old_error, old_output  # type: ignore[misc]
        with contextlib.suppress(OSError):
            screen.close()


def _open_log(path: str | os.PathLike[str] | None) -> int:
    try:
        return os.open(Path(path) if path is not None else os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)  # no log is better than no screen


def _flush(stream: Any) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stream.flush()


def _speaks_unicode() -> bool:
    """Python writes UTF-8 in a C locale too: whether somebody chose that locale is asked of the environment."""
    if os.environ.get("LC_ALL") in ("C", "POSIX") or os.environ.get("TERM", "").startswith(_FEW_GLYPHS):
        return False
    encoding = getattr(sys.__stderr__, "encoding", None) or "ascii"
    try:
        return codecs.lookup(encoding).name.startswith("utf")
    except LookupError:
        return False


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    """Stand-ins for what ASCII cannot say, of the same width, so that columns stay columns."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_ascii_for, error.object[error.start : error.end])), error.end


def _ascii_for(char: str) -> str:
    if char in _ASCII:
        return _ASCII[char]
    if "\u2800" <= char <= "\u28ff":  # braille dots, which plots are made of
        return " " if char == "\u2800" else "*"
    plain = unicodedata.normalize("NFKD", char)[:1]
    width = get_character_cell_size(char)
    return plain if plain.isascii() and plain.isprintable() and width == 1 else "?" * width


def _color_system() -> str | None:
    """`standard` (16 colours), `256`, `truecolor`: what Textual is going to use."""
    return Console(color_system=constants.COLOR_SYSTEM, force_terminal=True).color_system  # type: ignore[arg-type]


# Input


@contextlib.contextmanager
def _noise_tolerant_input() -> Iterator[None]:
    """Bytes that are not UTF-8 become U+FFFD. Textual's strict decoder ends the app (Textualize/textual#6456)."""
    if not textual.__version__.startswith("8.2."):
        yield
        return
    from textual.drivers import linux_driver

    strict = codecs.getincrementaldecoder

    def tolerant(encoding: str) -> Callable[[], codecs.IncrementalDecoder]:
        return functools.partial(strict(encoding), errors="replace")

    driver: Any = linux_driver
    driver.getincrementaldecoder = tolerant
    try:
        yield
    finally:
        driver.getincrementaldecoder = strict
