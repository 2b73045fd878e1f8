"""The healthy world in other clothes: the same function by other tensors, configs and layouts.

Each keeps the drafter's predictions, so every check that complains of one is wrong.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.faults import toy
from tests.faults.world import SIZES, TRAINED_DEPTHS, World, healthy, with_last


def flat() -> World:
    """SGLang's layout with the training's config beside it, ids one below the depths."""
    return replace(
        healthy(),
        layout="flat",
        options={
            "layer_ids": [d - 1 for d in TRAINED_DEPTHS],
            "norm_before_residual": True,
            "speculators_config": True,
            "embed": True,
        },
        after=lambda folder: rewrite(folder / "config_speculators.json", eagle_aux_hidden_state_layer_ids=[2, 4, 6]),
    )


def rewrite(path: Path, **changes: Any) -> None:
    """Overwrite fields of a JSON table; None takes one away."""
    table = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in table.items() if value is not None}))


def flat_alone() -> World:
    """The same without the training's config."""
    options = {**flat().options, "speculators_config": False}
    return replace(flat(), options=options, after=lambda folder: None)


def whole_vocabulary() -> World:
    """D == V: every target token has a row in the head; those that the drafter never says are far below."""
    w = healthy()
    head = torch.zeros(toy.VOCAB, toy.WIDTH)
    ids = torch.arange(SIZES.draft_vocab) + w.weights["d2t"]
    head[ids] = w.weights["lm_head.weight"]
    rng = torch.Generator().manual_seed(4)
    spare = torch.ones(toy.VOCAB, dtype=torch.bool)
    spare[ids] = False
    head[spare] = 0.02 * torch.randn(int(spare.sum()), toy.WIDTH, generator=rng)
    weights = {n: t for n, t in w.weights.items() if n not in ("d2t", "t2d")} | {"lm_head.weight": head}
    return replace(w, weights=weights, sizes=replace(SIZES, draft_vocab=toy.VOCAB))


def two_layers() -> World:
    """A second layer whose outputs are nearly nothing, so that it passes on what it is given."""
    w = healthy()
    rng = torch.Generator().manual_seed(5)
    below, weights = "layers.0.", dict(w.weights)
    for name, tensor in w.weights.items():
        if not name.startswith(below) or "hidden_norm" in name:
            continue
        inner = name.removeprefix(below)
        if inner.split(".")[1] in ("q_proj", "k_proj", "v_proj"):
            tensor = tensor[:, toy.WIDTH :]
        if "o_proj" in name or "down_proj" in name:
            tensor = 1e-4 * torch.randn(tensor.shape, generator=rng)
        weights["layers.1." + inner] = tensor.clone()
    return replace(w, weights=weights, sizes=replace(SIZES, layers=2))


def split_layers() -> World:
    """The attention in one layer and the MLP in the next: what the first hands on is its residual alone."""
    both, weights = two_layers(), dict(two_layers().weights)
    for part in ("gate_proj", "up_proj", "down_proj"):
        below, above = f"layers.0.mlp.{part}.weight", f"layers.1.mlp.{part}.weight"
        weights[below], weights[above] = both.weights[above], both.weights[below]
    return replace(both, weights=weights)


def rounded() -> World:
    """A float32 file: the same numbers, stored wider."""
    return replace(healthy(), dtype=torch.float32)


def newer() -> World:
    """EAGLE-3.1: a norm over each state before fc, and the normed state fed back.

    Every state of a depth has one length, so the norm is a scale that fc takes back; with the final norm's weight moved
    into the head, what is fed back is normed twice, which is normed once.
    """
    w, weights = healthy(), dict(healthy().weights)
    fc = weights["fc.weight"].clone()
    for i, depth in enumerate(TRAINED_DEPTHS):
        fc[:, i * toy.WIDTH : (i + 1) * toy.WIDTH] *= toy.NORMS[depth] / toy.WIDTH**0.5
    scale = torch.linspace(0.75, 1.25, toy.WIDTH).bfloat16().float()
    for i in range(3):
        weights[f"fc_norm.{i}.weight"] = scale
    weights["fc.weight"] = fc / scale.repeat(3)
    weights["lm_head.weight"] = weights["lm_head.weight"] * weights["norm.weight"]
    rng = torch.Generator().manual_seed(6)
    weights["norm.weight"] = 1 + 0.02 * torch.randn(toy.WIDTH, generator=rng)  # all ones would look untrained
    return replace(w, weights=weights, options={**w.options, "norm_output": True})


def joint_norm() -> World:
    """norm_before_fc: one norm over all three states. The residual is normed after fc, so only its weight counts."""
    w, weights = healthy(), dict(healthy().weights)
    weight = torch.cat([torch.full((toy.WIDTH,), float(v)) for v in (3.0, 0.5, 1.5)])
    weights["input_norm.weight"] = weight
    weights["fc.weight"] = weights["fc.weight"] / weight
    return replace(w, weights=weights)


HEALTHY = {
    "speculators": healthy,
    "flat, with the training's config": flat,
    "flat": flat_alone,
    "whole vocabulary": whole_vocabulary,
    "two layers": two_layers,
    "attention and MLP in two layers": split_layers,
    "float32": rounded,
    "EAGLE-3.1": newer,
    "norm_before_fc": joint_norm,
    "with the verifier's last state": lambda: with_last(healthy()),
}
