"""What may be imported when: no torch before the first frame, no screen in the library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.eagle3_tui.screen import write_story

HEAVY = ("torch", "numpy", "plotext", "pyarrow", "tokenizers", "tiktoken")


def run(code: str, folder: Path) -> str:
    root = Path(__file__).parent.parent.parent
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{code}"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_first_frame_without_torch(tmp_path: Path) -> None:
    write_story(tmp_path)
    code = f"""
import asyncio
from pathlib import Path
from drafter.session import Options, Session
from eagle3_tui.app import InspectorApp
from eagle3_tui.controller import Controller

seen = []
Controller.start = lambda self: seen.extend(m for m in {HEAVY!r} if m in sys.modules)  # called after the first frame

async def main():
    app = InspectorApp(Session(Options(Path("output"))), state_folder=Path("state"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        assert any("Checkpoints" in segment.text for strip in strips for segment in strip)
        print("drawn", seen)

asyncio.run(main())
"""
    assert run(code, tmp_path) == "drawn []\n"


def test_checkpoints_are_found_and_opened_without_torch(tmp_path: Path) -> None:
    write_story(tmp_path)
    code = f"""
from pathlib import Path
from drafter.session import Options, Session
session = Session(Options(Path("output"), samples=(Path("samples"),)))
found = session.find()
checkpoint = session.choose_checkpoint(session.pick(found))
samples = session.list_samples().paths
print(len(found), len(checkpoint.tensors), len(samples), [m for m in {HEAVY!r} if m in sys.modules])
"""
    assert run(code, tmp_path) == "2 15 3 []\n"


@pytest.mark.parametrize(
    "module, banned",
    [("eagle3_tui.cli", ("torch", "numpy", "textual", "plotext")), ("drafter.session", ("torch", "textual", "rich"))],
)
def test_cheap_imports(module: str, banned: tuple[str, ...], tmp_path: Path) -> None:
    assert run(f"import {module}; print([m for m in {banned!r} if m in sys.modules])", tmp_path) == "[]\n"


def test_the_library_knows_no_screen(tmp_path: Path) -> None:
    code = """
import pkgutil, importlib, drafter
for module in pkgutil.walk_packages(drafter.__path__, "drafter."):
    importlib.import_module(module.name)
print([m for m in ("textual", "rich", "click", "plotext", "eagle3_tui") if m in sys.modules])
"""
    assert run(code, tmp_path) == "[]\n"
