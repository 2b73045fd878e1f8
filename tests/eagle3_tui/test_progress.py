"""Progress of headless commands: rewritten on a terminal, plain and rare in a pipe."""

from __future__ import annotations

import re
import time
from pathlib import Path
from threading import enumerate as threads

import pytest

from eagle3_tui import progress
from tests.eagle3_tui.command import Run


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.1)
    monkeypatch.setattr(progress, "AGAIN", 0.2)


@pytest.mark.usefixtures("quick")
def test_a_pipe_is_told_the_newest_state_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress() as show:
        show("scored 1 of 24")
        show("scored \x1b[2J12 of 24")
        time.sleep(0.2)
        show("scored 23 of 24")
        time.sleep(0.2)  # the second line is due 0.3 s after the start; no call makes it
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == ""
    assert re.fullmatch(r"scored \\x1b\[2J12 of 24, after \d+ s", first)
    assert re.fullmatch(r"scored 23 of 24, after \d+ s", second)
    assert not any(thread.name == "progress" for thread in threads())


@pytest.mark.usefixtures("quick")
def test_silent_work_says_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress():
        time.sleep(0.2)
    assert re.fullmatch(r"at work, after \d+ s\n", capsys.readouterr().err)


def test_quick_work_says_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    with progress.progress() as show:
        show("scored 1 of 24")
    assert capsys.readouterr().err == "" and time.monotonic() - begun < progress.FIRST / 2


@pytest.mark.usefixtures("quick")
def test_a_failure_ends_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), progress.progress() as show:
        show("scored 1 of 24")
        raise KeyError
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_survey_of_many_files_tells_how_far_it_is(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST", 0.01)
    monkeypatch.setattr(progress, "AGAIN", 0.02)
    for i in range(1000):
        (tmp_path / f"data_{i}.pt").write_bytes(b"no sample")
    code, out, err = run("samples", "demo", "-s", tmp_path, "--no-log")
    assert code == 2 and "looked at" not in out
    told = [line for line in err.splitlines() if line.startswith("looked at")]
    assert told and all(re.fullmatch(r"looked at \d+ of 1000, \d+ unreadable, after 0 s", line) for line in told)
