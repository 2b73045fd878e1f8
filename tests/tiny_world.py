"""A tiny training run on disk, as the inspector meets one: checkpoint, target and samples of one layout.

A random drafter has no best wiring; what is tested on it is that every way of asking gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from drafter.log import SessionLog
from drafter.session import Options, Session
from tests import tiny

V1_SLOTS = "embed,2,4,6"


@dataclass(frozen=True)
class World:
    """`output` holds the checkpoints; `samples` are the files, `texts` what was recorded in them."""

    folder: Path
    weights: Mapping[str, Tensor]
    output: Path
    target: Path
    samples: tuple[Path, ...]
    texts: tuple[tiny.TinySample, ...]

    def session(self, log: SessionLog | None = None, **options: Any) -> Session:
        """A session with the checkpoint that `pick` takes, and the first sample; everything named, float32."""
        asked = {"samples": self.samples, "target": self.target, "device": "cpu", "dtype": "float32", **options}
        session = Session(Options(self.output, **asked), log)
        session.choose_checkpoint(session.pick(session.find()))
        session.choose_sample(self.samples[0])
        return session


def tiny_world(folder: Path, config: str = "flat", layout: str = "v1", count: int = 2) -> World:
    """`config`: "flat" (with the training's config beside it) or "nested". `layout`: "v1" or "arrow"."""
    weights = tiny.tiny_weights(3)
    output = folder / "output"
    if config == "flat":
        tiny.write_flat(output / "7", weights, speculators_config=True, norm_before_residual=True)
    else:
        tiny.write_nested(output / "7", weights, norm_before_residual=True)
    target = tiny.write_target(folder / "target", weights, tokenizer=True)
    depths = tiny.V1_DEPTHS if layout == "v1" else tiny.ARROW_DEPTHS
    texts = tuple(tiny.tiny_sample(seed, weights, depths=depths) for seed in range(count))
    if layout == "v1":
        samples = tuple(tiny.write_v1_sample(folder / f"samples/data_{i}.pt", t) for i, t in enumerate(texts))
    else:
        states = tiny.write_arrow_samples(folder / "samples", dict(enumerate(texts))) / "hidden_states"
        samples = tuple(states / f"hs_{i}.safetensors" for i in range(count))
    return World(folder, weights, output, target, samples, texts)
