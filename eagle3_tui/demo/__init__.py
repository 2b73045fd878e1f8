"""The small trained checkpoint, target and samples that ship with the package: what `demo` means in place of a path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from drafter.checkpoint.checkpoint import read_configs
from drafter.errors import DrafterError
from drafter.session import Options

NAME = "demo"
DATA = Path(__file__).parent / "data"
OUTPUT, TARGET = DATA / "output", DATA / "target"
SAMPLES = (DATA / "samples" / "held_out", DATA / "samples" / "train")


def demo_options(asked: Options | None = None) -> Options:
    """`asked` with the demo's path, and its samples, target and slots where nothing else was asked for."""
    options = asked if asked is not None else Options(OUTPUT)
    return replace(
        options,
        path=OUTPUT,
        samples=options.samples or SAMPLES,
        target=options.target or TARGET,
        slots=options.slots or (None if options.samples else slot_labels()),
    )


def slot_labels() -> str | None:
    """The recorded depths: the recordings hold what training was fed and what the server was told, in depth order."""
    depths: set[int] = set()
    for config in sorted(OUTPUT.glob("*/config.json"))[:1]:
        try:
            served, trained, _, _ = read_configs(config.parent)
        except DrafterError:
            return None  # opening it says what is wrong
        depths |= {*(served.aux_depths or ()), *((trained.aux_depths or ()) if trained else ())}
    return ",".join("embed" if depth == 0 else str(depth) for depth in sorted(depths)) or None
