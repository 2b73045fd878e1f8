"""The trained toy drafter with its target and recorded samples, as values that a fault changes, and written to disk.

`healthy()` is made once; a fault is a function from one world to another. Writing goes through the tiny writers, so
every layout that they know can be written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.session import Options, Session
from tests import tiny
from tests.faults import toy

DATA = Path(__file__).parents[1] / "data/fault_fixture"
SIZES = tiny.Sizes(
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    mlp=144,
    vocab=toy.VOCAB,
    draft_vocab=toy.COMMON * 16,
    target_layers=toy.LAYERS,
    eps=toy.EPS,
    rope_theta=50_000.0,
)
TRAINED_DEPTHS = (2, 4, 6)
SLOTS = (0, 2, 4, 6)  # depths that are recorded
TRAIN_SEEDS, HELD_OUT_SEEDS = (0, 1), (9000, 9001)
PROMPT = 4  # tokens without loss


@dataclass(frozen=True)
class Recorded:
    """One text and the states of every depth, [9, T, H] float32; `kept` are the depths that are written."""

    name: str
    ids: list[int]
    mask: list[int]
    states: Tensor
    kept: tuple[int, ...] = SLOTS
    dtype: torch.dtype = torch.bfloat16
    extra: Mapping[str, Any] = field(default_factory=dict)  # keys of the file that replace what is written

    def edited(self, depth: int, states: Tensor) -> Recorded:
        """With other states at one depth."""
        changed = self.states.clone()
        changed[depth] = states
        return replace(self, states=changed)


@dataclass(frozen=True)
class World:
    """`layout` is "nested" (speculators) or "flat" (SGLang); `options` go to the tiny writer, `changes` overwrite
    fields of the config, `target` holds the target's tensors, `target_config` overwrites its config.

    `labels` are what the user says of the slots; `written` maps a file of the checkpoint's folder to its text.
    """

    weights: dict[str, Tensor]
    samples: tuple[Recorded, ...]
    target: dict[str, Tensor]
    layout: str = "nested"
    options: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    target_config: Mapping[str, Any] = field(default_factory=dict)
    labels: str = "embed,2,4,6"
    sizes: tiny.Sizes = SIZES
    dtype: torch.dtype = torch.bfloat16
    layer: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)  # options of the session
    after: Callable[[Path], None] = lambda folder: None  # what happens to the checkpoint's folder once it is written
    served: float | None = None  # the accept length that a server shows

    def weight(self, name: str, tensor: Tensor | None) -> World:
        """With another tensor of that name, or without it."""
        weights = {n: t for n, t in self.weights.items() if n != name}
        return replace(self, weights=weights if tensor is None else {**weights, name: tensor})

    def ids(self, *layer_ids: int) -> World:
        """With other layer ids in the config."""
        return replace(self, options={**self.options, "layer_ids": list(layer_ids)})

    def configured(self, **changes: Any) -> World:
        """With other fields of the config (None: without them)."""
        return replace(self, changes={**self.changes, **changes})

    def each(self, change: Callable[[Recorded], Recorded]) -> World:
        """With `change` made to every sample."""
        return replace(self, samples=tuple(change(sample) for sample in self.samples))


@cache
def target() -> toy.ToyTarget:
    return toy.load_target(DATA / "target.safetensors")


@cache
def drafter_weights(name: str = "drafter") -> dict[str, Tensor]:
    """Float32 weights with the embedding and the map."""
    stored = {n: t.float() for n, t in load_file(DATA / f"{name}.safetensors").items()}
    ids = target().common
    t2d = torch.zeros(toy.VOCAB, dtype=torch.bool)
    t2d[ids] = True
    return {
        **stored,
        "embed_tokens.weight": target().embed,
        "d2t": ids - torch.arange(len(ids)),
        "t2d": t2d,
    }


def record(seed: int, length: int = 72, name: str | None = None) -> Recorded:
    topic, ids = toy.write_text(target(), seed, length)
    mask = [int(t >= PROMPT) for t in range(length)]
    kind = "train" if seed < 5000 else "heldout"
    return Recorded(name or f"{kind}_{seed}", ids, mask, toy.states(target(), topic, ids).bfloat16().float())


@cache
def healthy() -> World:
    """speculators' layout, two texts that were trained on and two that were not."""
    samples = tuple(record(seed) for seed in (*TRAIN_SEEDS, *HELD_OUT_SEEDS))
    tensors = {
        "model.embed_tokens.weight": target().embed,
        "model.norm.weight": target().norm,
        "lm_head.weight": target().head,
    }
    options = {"layer_ids": list(TRAINED_DEPTHS), "norm_before_residual": True}
    return World(dict(drafter_weights()), samples, tensors, options=options)


def with_last(world: World) -> World:
    """With the verifier's last state, before the final norm, recorded as well."""
    return replace(world.each(lambda s: replace(s, kept=(*s.kept, toy.LAYERS))), labels=f"{world.labels},last")


def write_sample(folder: Path, sample: Recorded) -> Path:
    """speculators' data_{i}.pt, one list entry for each slot."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{sample.name}.pt"
    record = {
        "input_ids": torch.tensor(sample.ids),
        "hidden_states": [sample.states[depth].to(sample.dtype) for depth in sample.kept],
        "loss_mask": torch.tensor(sample.mask),
    }
    torch.save({**record, **sample.extra}, path)
    return path


def write_target(folder: Path, world: World) -> Path:
    tiny.write_target(folder, {"embed_tokens.weight": world.weights.get("embed_tokens.weight", target().embed)}, SIZES)
    save_file({n: t.bfloat16().contiguous() for n, t in world.target.items()}, folder / "model.safetensors")
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **world.target_config}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return folder


def write_world(folder: Path, world: World) -> Session:
    """Everything on disk, opened."""
    writers: dict[str, Any] = {"nested": tiny.write_nested, "flat": tiny.write_flat}
    options = dict(world.options)
    if world.layout == "nested":
        options |= {"verifier": folder / "target", "layer": dict(world.layer)}
    write = writers[world.layout]
    write(folder / "draft", world.weights, world.sizes, dtype=world.dtype, changes=dict(world.changes), **options)
    world.after(folder / "draft")
    write_target(folder / "target", world)
    samples = [write_sample(folder / "samples", sample) for sample in world.samples]
    return opened(folder, world, samples)


def opened(folder: Path, world: World, samples: Sequence[Path]) -> Session:
    asked = {
        "samples": tuple(samples),
        "target": folder / "target",
        "slots": world.labels,
        "device": "cpu",
        "dtype": "float32",
        **world.asked,
    }
    session = Session(Options(folder / "draft", **asked))
    session.choose_checkpoint(session.pick(session.find()))
    return session
