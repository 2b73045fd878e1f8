"""Tiny drafters of every kind on texts that agree with them: chains of every length, without any training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafter.drafting.context import SampleRun
from drafter.model.drafter import Eagle3Drafter
from drafter.sample.open import open_sample
from drafter.wiring import Wiring
from tests import tiny
from tests.drafter.helpers import placed
from tests.drafter.test_variants import VARIANTS, MemorySources, Variant, _truth, drafter_config, model_weights
from tests.reference import ReferenceDrafter
from tests.reference.rounds import PlainServer, agreeable_text
from tests.tiny_world import World, tiny_world

K = 4
WINDOW = 5
NAMES = ("plain", "two layers", "norm_before_residual", "late", "mla", "mla, two layers, biases", "dynamic", "p-eagle")
WINDOWS = ("window moving", "window still")


@dataclass(frozen=True)
class ChainCase:
    run: SampleRun
    wiring: Wiring
    truth: ReferenceDrafter
    sample: tiny.TinySample
    d2t: list[int]
    parallel: bool
    ordering: tuple[int, ...] = (2, 0, 1)

    @property
    def states(self) -> Tensor:
        return self.sample.slots[:, list(self.ordering)]

    def server(self, keep: bool = False, steps: int = K) -> PlainServer:
        return PlainServer(self.truth, self.states, steps, self.d2t, keep, self.parallel)


def chain_case(
    folder: Path, name: str, *, tokens: int = 40, start: int = 4, keep: bool = False, mask: list[int] | None = None
) -> ChainCase:
    """The variant `name` on a text that agrees with a server which keeps drafted rows (`keep`) or does not."""
    variant, wiring_changes, switches = _variant(name)
    weights = tiny.tiny_weights(8, variant.sizes, **variant.weights)
    config = drafter_config(variant, weights)
    truth = _truth(replace(variant, switches=variant.switches | switches), weights, config)
    sample = tiny.tiny_sample(8, weights, variant.sizes, tokens=tokens)
    ordering = tuple(slot % 4 for slot in range(variant.sizes.states))[::-1]
    d2t, parallel = weights["d2t"].tolist(), bool(variant.config.get("parallel"))
    server = PlainServer(truth, sample.slots[:, list(ordering)], K, d2t, keep, parallel)
    ids = agreeable_text(server, start, variant.sizes.vocab, 3)
    sample = replace(sample, ids=ids, mask=mask or [int(t >= start) for t in range(tokens)])
    drafter = Eagle3Drafter(config, model_weights(weights), MemorySources(weights, torch.float32), placed())
    run = SampleRun(drafter, open_sample(tiny.write_v1_sample(folder / "data_0.pt", sample)))
    wiring = replace(Wiring.trained(config), **variant.wiring | wiring_changes)
    return ChainCase(run, wiring, truth, sample, d2t, parallel, ordering)


def _variant(name: str) -> tuple[Variant, dict[str, Any], dict[str, Any]]:
    if name not in WINDOWS:
        return VARIANTS[name], {}, {"moving_windows": True}
    variant = replace(VARIANTS["two layers"], config={"sliding_window": WINDOW, "full_layers": (1,)})
    moving = name == "window moving"
    return variant, {"window": "moving" if moving else "still"}, {"windows": [WINDOW, None], "moving_windows": moving}


def agreeable_world(folder: Path, count: int = 2, tokens: int = 60) -> World:
    """A tiny run on disk whose samples agree with its drafter on slots 0,1,2; every sample is another text."""
    world = tiny_world(folder, count=count)
    model = tiny.reference(world.weights, norm_before_residual=True)
    texts = []
    for seed, path in enumerate(world.samples):
        sample = tiny.tiny_sample(seed, world.weights, tokens=tokens)
        server = PlainServer(model, sample.slots[:, [0, 1, 2]], K, world.weights["d2t"].tolist(), keep=False)
        ids = agreeable_text(server, 5, tiny.SIZES.vocab, seed)
        texts.append(replace(sample, ids=ids, mask=[int(t >= 5) for t in range(tokens)]))
        tiny.write_v1_sample(path, texts[-1])
    return replace(world, texts=tuple(texts))
