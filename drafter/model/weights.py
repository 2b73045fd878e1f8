"""The drafter's weights from its checkpoint, cast to where it runs; what is not there and cannot be run is refused."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.fused import SCALES
from drafter.checkpoint.inventory import ANOTHER
from drafter.checkpoint.target import TargetFolder
from drafter.errors import CheckpointError
from drafter.files.stored import FLOATS
from drafter.model.dequantize import read_weight
from drafter.model.device import Placement
from drafter.model.drafter import Eagle3Drafter
from drafter.model.rope import SUPPORTED
from drafter.model.sources import CheckpointSources

_NOT_WEIGHTS = ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d")


def check_runnable(checkpoint: Checkpoint) -> None:
    """Refuse, by name, what this version would compute wrongly. Raises CheckpointError."""
    config, where = checkpoint.run_config, checkpoint.path
    if not checkpoint.has_weights:
        raise CheckpointError("a checkpoint without weights", expected="model.safetensors", where=where)
    refused = {
        checkpoint.quantised: bool(checkpoint.quantised),
        f"RoPE of type {config.rope.type!r}": config.rope.type not in SUPPORTED,
        f"the activation {config.hidden_act!r}": config.hidden_act not in ("silu", "swish"),
    }
    for what, present in refused.items():
        if present:
            raise CheckpointError(f"{what}, which this version does not compute", where=where)
    for name, stored in checkpoint.tensors.items():
        plain = stored.dtype in FLOATS or name in checkpoint.scales or name in ("d2t", "t2d")
        if not plain and name not in checkpoint.unused and not name.endswith(SCALES):
            raise CheckpointError(
                f"{name!r} is {stored.dtype}", expected="plain floats, or fp8 with its scales", where=where
            )
    if checkpoint.fatal:
        names = ", ".join(map(repr, checkpoint.fatal[:3]))
        raise CheckpointError(f"no {names} ({len(checkpoint.fatal)} missing)", where=where)
    if config.attention == "gqa" and config.num_heads % config.num_kv_heads:
        raise CheckpointError(f"{config.num_heads} heads over {config.num_kv_heads} key heads", where=where)
    strange = [name for name, why in checkpoint.unused.items() if why == ANOTHER]
    if strange:
        raise CheckpointError(
            f"{strange[0]!r} ({len(strange)} such), no part of a layer as computed here",
            expected="the drafter's layer without it: another function was trained",
            where=where,
        )
    if checkpoint.misshapen:
        name, said = next(iter(checkpoint.misshapen.items()))
        more = len(checkpoint.misshapen) - 1
        raise CheckpointError(f"{name!r} is {said}" + (f" ({more} more such)" if more else ""), where=where)


def load_weights(checkpoint: Checkpoint, placement: Placement, poll: Callable[[], None]) -> dict[str, Tensor]:
    """Everything but embedding, head and vocab map, by canonical name.

    `poll` is called between tensors and may raise Cancelled.
    """
    check_runnable(checkpoint)
    weights = {}
    for name in checkpoint.tensors:
        wanted = name not in checkpoint.unused or name == "norm.weight"  # a wiring may ask for the norm
        if wanted and name not in _NOT_WEIGHTS and not name.endswith(SCALES):
            poll()
            weights[name] = read_weight(checkpoint, name, placement)
    return weights


def build_drafter(
    checkpoint: Checkpoint, target: TargetFolder | None, placement: Placement, poll: Callable[[], None] = lambda: None
) -> Eagle3Drafter:
    """The drafter of `checkpoint`, ready to run; what the checkpoint does not hold comes from `target`.

    Raises CheckpointError for what is missing or not computed by this version, FileError for unreadable files.
    """
    weights = load_weights(checkpoint, placement, poll)
    sources = CheckpointSources(checkpoint, target, placement)
    # what is not there is said now, not when a step is first drafted
    sources.vocab("data")
    sources.embedding("own")
    poll()
    head = sources.head("own", "data")
    drafter = Eagle3Drafter(checkpoint.run_config, weights, sources, placement)
    drafter.warnings = tuple(_not_finite({**weights, "lm_head.weight": head}))
    return drafter


def _not_finite(weights: dict[str, Tensor]) -> list[str]:
    """One NaN in a weight makes every prediction worthless, and no argmax shows it."""
    spoiled = [name for name, tensor in weights.items() if not bool(tensor.sum(dtype=torch.float32).isfinite())]
    return [f"{name} holds values that are not finite: no prediction means anything" for name in spoiled]
