"""Make screenshots/*.svg from the demo, and some as *.png where Chromium is installed (only it draws the SVG right).

    python scripts/screenshots.py [--png]

Needs the fonts Fira Code and a CJK fallback for the PNGs, and Pillow, which takes two thirds of their size:
apt-get install chromium fonts-firacode; pip install pillow.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from textual.pilot import Pilot

from drafter.session import Session
from eagle3_tui.app import InspectorApp
from eagle3_tui.demo import demo_options

OUT = Path(__file__).resolve().parent.parent / "screenshots"
Keys = tuple[str, ...]
SHOTS: dict[str, tuple[tuple[int, int], Keys]] = {
    "checkpoints": ((120, 40), ("1",)),
    "config": ((80, 24), ("1", "tab")),
    "tensors": ((120, 40), ("1", "tab", "tab", "j", "enter")),
    "samples": ((80, 24), ("2", "a", "s")),
    "text": ((80, 24), ("2", "tab")),
    "slots": ((80, 24), ("2", "tab", "tab")),
    "step": ((120, 40), ("3", "n", "j", "j")),
    "step-80x24": ((80, 24), ("3", "n")),
    "step-wrong-ordering": ((120, 40), ("3", "n", "c")),
    "orderings": ((80, 24), ("4",)),
    "orderings-plot": ((120, 40), ("4", "a", "p")),
    "help": ((80, 24), ("3", "question_mark")),
    "wiring": ((80, 24), ("5",)),
    "accept": ((120, 40), ("6",)),
    "rounds": ((80, 24), ("6", "tab")),
    "tree": ((80, 24), ("6", "tab", "tab", "tab")),
    "serving": ((120, 40), ("7", "j")),
    "compare": ((80, 24), ("8",)),
    "doctor": ((120, 40), ("9",)),
    "log": ((80, 24), ("0",)),
}

AS_PNG = ("step", "orderings", "doctor")  # a picture weighs several times its SVG
COLOURS = 64  # of a PNG: enough for text in a handful of colours


async def settle(app: InspectorApp, pilot: Pilot[int]) -> None:
    """Wait until the engine has nothing left to do."""
    quiet = 0
    while quiet < 4:
        await asyncio.sleep(0.05)
        await pilot.pause()
        quiet = 0 if app.engine.busy else quiet + 1


async def shoot(name: str, size: tuple[int, int], keys: Keys) -> Path:
    with tempfile.TemporaryDirectory() as state:
        app = InspectorApp(Session(demo_options()), state_folder=Path(state))
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            for key in keys:
                await pilot.press(key)
                await settle(app, pilot)
            svg = app.export_screenshot(title="eagle3-tui demo")
    path = OUT / f"{name}.svg"
    # where this package lies on the machine that made the picture is nobody's business
    svg = re.sub(r"/[^<>]*?/eagle3_tui/demo", "…/eagle3_tui/demo", svg)
    assert str(OUT.parent)[:8] not in svg, f"{name}: a path of this machine"
    path.write_text(svg, encoding="utf-8")
    return path


def to_png(svg: Path) -> None:
    from PIL import Image

    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]
    size = f"{int(float(width)) + 1},{int(float(height)) + 1}"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
    target = f"--screenshot={svg.with_suffix('.png')}"
    subprocess.run(["chromium", *flags, target, svg.as_uri()], check=True, capture_output=True, timeout=120)
    png = svg.with_suffix(".png")
    with Image.open(png) as whole:
        whole.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(png, optimize=True)


async def main(png: bool, only: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    for name, (size, keys) in SHOTS.items():
        if only and name not in only:
            continue
        path = await shoot(name, size, keys)
        if png and name in AS_PNG:
            to_png(path)
        print(path.name)


if __name__ == "__main__":
    asyncio.run(main("--png" in sys.argv, [a for a in sys.argv[1:] if not a.startswith("-")]))
