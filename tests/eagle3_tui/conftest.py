"""Fixtures of the command tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_tui import cli
from tests.eagle3_tui.command import Ran, Run


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line in this process; the session log goes where only the test looks."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: object) -> Ran:
        code = cli.main([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return run
