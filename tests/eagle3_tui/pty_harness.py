"""A program under a real pseudo terminal: what it writes, byte for byte, and what a terminal would show."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parents[2]
PLAIN = {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "TEXTUAL_ANIMATIONS": "none"}
DROPPED = ("COLORTERM", "NO_COLOR", "COLUMNS", "LINES", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_THEME", "LC_ALL")


class Terminal:
    """A child process on a pty of `rows` x `columns`; kill it by leaving the with block."""

    def __init__(self, argv: list[str], rows: int = 24, columns: int = 80, env: dict[str, str] | None = None) -> None:
        self.written = b""
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.status: int | None = None
        environ = {key: value for key, value in os.environ.items() if key not in DROPPED} | PLAIN | (env or {})
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(argv[0], argv, environ)  # noqa: S606

    @classmethod
    def python(cls, code: str, **options: object) -> Terminal:
        return cls([sys.executable, "-c", code], **options)  # type: ignore[arg-type]

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Take the terminal away."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def read(self, quiet: float = 0.1, most: float = 10.0) -> bytes:
        """What it writes until it has been quiet for so long."""
        got, end = b"", time.monotonic() + most
        while time.monotonic() < end and select.select([self.fd], [], [], quiet)[0]:
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:  # EIO: the child has closed its side
                break
            if not data:
                break
            got += data
        self.written += got
        self._stream.feed(got)
        return got

    def read_until(self, text: bytes, most: float = 10.0) -> bytes:
        """What it writes until `text` is part of everything it wrote."""
        got, end = b"", time.monotonic() + most
        while text not in self.written:
            assert time.monotonic() < end, f"no {text!r} in {self.written[-2000:]!r}"
            got += self.read(quiet=0.02)
        return got

    def send(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def press(self, keys: bytes, quiet: float = 0.1) -> bytes:
        """What one key press makes it write."""
        self.send(keys)
        return self.read(quiet)

    @property
    def lines(self) -> list[str]:
        """The screen as text."""
        return [line.rstrip() for line in self.screen.display]

    def wait(self, most: float = 10.0) -> int:
        """Its exit code, negative when a signal ended it."""
        end = time.monotonic() + most
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                break
            assert time.monotonic() < end, "still alive"
            if self.fd >= 0:
                self.read(quiet=0.01)
            time.sleep(0.01)
        return self.status
