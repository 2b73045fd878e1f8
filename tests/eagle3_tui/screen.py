"""Driving the app in tests: a story on disk, waiting for the engine, and the screen as text."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

from drafter.session import Options, Session
from eagle3_tui.app import InspectorApp
from eagle3_tui.widgets.filter_input import Line
from tests import tiny

GOLDEN = Path(__file__).parent.parent / "data" / "screens"
STORY_SLOTS = "embed,2,4,6"


def write_story(folder: Path) -> Path:
    """The founding story in small: two epochs in the flat layout, a target with a tokenizer, three samples."""
    weights = tiny.tiny_weights(1)
    for epoch in ("0", "1"):
        tiny.write_flat(folder / "output" / epoch, weights, speculators_config=True, norm_before_residual=True)
    (folder / "output" / "checkpoint_best").symlink_to("1")
    tiny.write_target(folder / "target", weights, tokenizer=True)
    samples = folder / "samples"
    samples.mkdir()
    for i in (1, 2, 10):
        tiny.write_v1_sample(samples / f"data_{i}.pt", tiny.tiny_sample(i, weights))
    return folder


def story_app(folder: Path, **changes: object) -> InspectorApp:
    """The app on the story in `folder`, which is the working directory."""
    options = {
        "path": Path("output"),
        "samples": (Path("samples"),),
        "target": Path("target"),
        "slots": STORY_SLOTS,
        "device": "cpu",
        **changes,
    }
    return InspectorApp(Session(Options(**options)), state_folder=folder / "state")  # type: ignore[arg-type]


async def settle(app: InspectorApp, pilot: object, seconds: float = 60.0) -> None:
    """Wait until no job runs and every event is handled."""
    quiet = 0
    for _ in range(int(seconds / 0.02)):
        await asyncio.sleep(0.02)
        await pilot.pause()  # type: ignore[attr-defined]
        # an event may set off the next job: only a second look without one is the end
        quiet = 0 if app.engine.busy or not app._message_queue.empty() else quiet + 1
        if quiet == 3:
            return
    raise AssertionError(f"still busy: {app.engine.running}")


async def answer(app: InspectorApp, pilot: Any, key: str, text: str) -> None:
    """Press `key`, which asks for a line, and give it."""
    await pilot.press(key)
    assert isinstance(app.focused, Line)
    app.focused.take(text)
    await pilot.press("enter")
    await settle(app, pilot)


def dump(app: InspectorApp) -> str:
    """The screen as text; clock times and digests blanked."""
    app._draw_status()  # what the clock would do within half a second
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in app.screen._compositor.render_strips()]
    text = "\n".join(lines) + "\n"
    text = re.sub(r"\d\d:\d\d:\d\d", "--:--:--", text)
    return re.sub(r"\b[0-9a-f]{8}\b", "--------", text)


def check_golden(name: str, text: str) -> None:
    """Compare with tests/data/screens/NAME.txt; UPDATE_SCREENS=1 writes it anew."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; UPDATE_SCREENS=1 writes it anew"
