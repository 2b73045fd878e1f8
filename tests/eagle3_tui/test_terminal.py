"""The terminal around the app, under a real pty: how it starts, what it survives, and that it always leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from eagle3_tui.terminal import Settings, _ascii_for, check, finish, prepare
from tests.eagle3_tui.pty_harness import ROOT, Terminal

APP = """
import contextlib, os, signal, sys
from textual.app import App
from textual.binding import Binding
from textual.widgets import Static
from eagle3_tui.terminal import attach, check, finish, prepare
class Window(App):
    BINDINGS = [Binding("q", "quit"), Binding("z", "suspend_process"), Binding("c", "c_library"), Binding("x", "crash")]
    def compose(self):
        yield Static("unchanged")
        yield Static("ready … │ é 漢", id="text")
    def on_mount(self):
        attach(self)
        if "--nohup" in sys.argv:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
    def on_key(self, event):
        self.query_one("#text").update(f"key {event.key!r} size {self.size.width}x{self.size.height}", layout=False)
    def on_unmount(self):
        print("unmounted", file=open(LOG + ".unmounted", "w"))
    def action_c_library(self):
        os.write(2, b"a C library says hello\\n")
    def action_crash(self):
        1 / 0
LOG = sys.argv[1]
reason = check()
if reason:
    print(reason, file=sys.stderr)
    sys.exit(2)
with prepare(LOG, ascii="--ascii" in sys.argv) as settings:
    app = Window(ansi_color=settings.ansi_color or None)
    if settings.theme:
        app.theme = settings.theme
    app.run()
with contextlib.suppress(OSError):
    os.write(2, f"after {settings}\\n".encode())
sys.exit(finish(app.return_code or 0))
"""
READY = b"ready"
RESTORED = b"\x1b[?1049l"


def start(log, *options: str, **how) -> Terminal:
    return Terminal([sys.executable, "-c", APP, str(log), *options], **how)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "ui.log"


def wait_for(path, most: float = 5.0) -> str:
    end = time.monotonic() + most
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return path.read_text()


def test_a_session(log):
    """Size from the terminal and not from COLUMNS; noise and C libraries survived; everything put back."""
    with start(log, rows=30, columns=100, env={"COLUMNS": "33", "LINES": "7"}) as terminal:
        terminal.read_until(READY)
        assert terminal.lines[1] == "ready … │ é 漢"
        terminal.send(b"\xe9\xff")  # a latin-1 key, line noise
        terminal.send(b"c")
        terminal.read_until(b"size 100x30")
        assert wait_for(log) == "a C library says hello\n"
        assert b"hello" not in terminal.written
        terminal.read(0.2)
        assert terminal.read(quiet=1.3) == b""  # the hang-up check writes nothing
        terminal.send(b"q")
        assert terminal.wait() == 0
        terminal.read()
        assert RESTORED in terminal.written
        assert b"after Settings(ascii=False, theme=None, ansi_color=False)" in terminal.written


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_end_it_in_order(log, number, code):
    with start(log) as terminal:
        terminal.read_until(READY)
        started = time.monotonic()
        os.kill(terminal.pid, number)
        assert terminal.wait() == code
        assert time.monotonic() - started < 2
        terminal.read()
        assert RESTORED in terminal.written
        assert wait_for(log.with_name("ui.log.unmounted"))


def test_a_terminal_that_is_gone_ends_it_without_a_signal(log):
    with start(log, "--nohup") as terminal:
        terminal.read_until(READY)
        terminal.hang_up()
        assert terminal.wait(5) == 129
        assert wait_for(log.with_name("ui.log.unmounted"))


def test_the_screen_comes_back_after_ctrl_z(log):
    with start(log) as terminal:
        terminal.read_until(READY)
        terminal.send(b"z")
        terminal.read_until(RESTORED)
        _, status = os.waitpid(terminal.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        terminal.read()
        terminal.written = b""
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.read_until(b"unchanged")
        terminal.send(b"q")
        assert terminal.wait() == 0


def test_a_crash_goes_to_the_log(log):
    with start(log) as terminal:
        terminal.read_until(READY)
        terminal.send(b"x")
        assert terminal.wait() == 1
        terminal.read()
        assert b"ZeroDivisionError" not in terminal.written
        assert "ZeroDivisionError" in log.read_text()


@pytest.mark.parametrize(
    ("options", "env", "settings"),
    [
        (["--ascii"], {"TERM": "xterm"}, b"Settings(ascii=True, theme='ansi-dark', ansi_color=False)"),
        ([], {"LC_ALL": "C", "NO_COLOR": "1"}, b"Settings(ascii=True, theme=None, ansi_color=True)"),
        ([], {"TERM": "linux"}, b"Settings(ascii=True, theme='ansi-dark', ansi_color=False)"),
        ([], {"PYTHONIOENCODING": "latin-1", "NO_COLOR": "1"}, b"Settings(ascii=True, theme=None, ansi_color=True)"),
    ],
)
def test_terminals_that_can_do_less(log, options, env, settings):
    with start(log, *options, env=env) as terminal:
        terminal.read_until(READY)
        terminal.read()
        assert terminal.lines[1] == "ready ~ | e ??"
        assert terminal.written.isascii()
        terminal.send(b"q")
        assert terminal.wait() == 0
        terminal.read()
        assert settings in terminal.written
        if "NO_COLOR" in env:
            assert b"\x1b[38;" not in terminal.written and b"48;5" not in terminal.written


def test_output_may_be_a_file(log, tmp_path):
    command = f'exec {sys.executable} -c "$CODE" {log} > {tmp_path / "out"}'
    with Terminal(["/bin/sh", "-c", command], rows=30, columns=100, env={"CODE": APP}) as terminal:
        terminal.read_until(READY)
        terminal.send(b"a")
        terminal.read_until(b"size 100x30")
        terminal.send(b"q")
        assert terminal.wait() == 0


def test_no_terminal_is_refused_in_one_line(log):
    environ = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", APP, log], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environ
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("the screen needs a terminal, and standard input") and done.stderr.count("\n") == 1
    with start(log, env={"TERM": "dumb"}) as terminal:
        assert terminal.wait() == 2
        terminal.read()
        assert terminal.lines[0].startswith("the screen needs a terminal that can move its cursor")


def test_check_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(os, "isatty", lambda number: number != 2)
    assert "standard error" in (check() or "")
    monkeypatch.setattr(os, "isatty", lambda number: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert check() is None


def test_prepare_puts_everything_back(tmp_path, monkeypatch):
    from textual.drivers import linux_driver

    before = sys.__stderr__, sys.__stdout__, linux_driver.getincrementaldecoder, os.fstat(2).st_ino
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with prepare(tmp_path / "none" / "log", ascii=True) as settings:  # a log that cannot be opened
        assert settings == Settings(True, "ansi-dark", True)
        assert sys.__stderr__ is not before[0]
    assert before == (sys.__stderr__, sys.__stdout__, linux_driver.getincrementaldecoder, os.fstat(2).st_ino)


def test_stand_ins_have_the_width_of_what_they_stand_for():
    shown = {char: _ascii_for(char) for char in "…│█⠶⠀é漢\u0301\ud800"}
    assert shown == {
        "…": "~", "│": "|", "█": "#", "⠶": "*", "⠀": " ", "é": "e", "漢": "??", "\u0301": "", "\ud800": "?",
    }  # fmt: skip


def test_finish_waits_for_the_engine_and_closes():
    order = []

    class Engine:
        def stop(self, timeout: float = 1.0) -> bool:
            order.append("stop")
            return True

    assert finish(3, Engine(), lambda: order.append("close")) == 3
    assert order == ["stop", "close"]


def test_finish_leaves_though_the_engine_is_deaf():
    code = """
import threading, time
from eagle3_tui.terminal import finish
from eagle3_tui.worker import Engine
engine, started = Engine(lambda event: None), threading.Event()
engine.submit("deaf", lambda job: (started.set(), time.sleep(60)), group="a")
started.wait()
print("data")
finish(7, engine, lambda: print("closed"))
print("never")
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "data\nclosed\n")
    assert time.monotonic() - started < 3
