"""Weights as they run: plain floats cast, fp8 with its scales multiplied out.

A scale stands beside its weight: `weight_scale` is one number, one a row, or one a block; `weight_scale_inv` one a
block. Both are factors: the weight is the stored number times its scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.errors import CheckpointError
from drafter.model.device import Placement


def read_weight(checkpoint: Checkpoint, name: str, placement: Placement) -> Tensor:
    """The tensor `name` on the placement's device, in its dtype. Raises CheckpointError for scales that do not fit."""
    stored = checkpoint.tensors[name]
    scale = checkpoint.scales.get(name)
    if scale is None:
        return stored.read().to(placement.device, placement.dtype)
    factors = scale.read().to(placement.device).float()
    whole = stored.read().to(placement.device).float()  # [out, in]
    if factors.numel() == 1:
        return (whole * factors.reshape(())).to(placement.dtype)
    if factors.shape in ((whole.shape[0],), (whole.shape[0], 1)):
        return (whole * factors.reshape(-1, 1)).to(placement.dtype)
    if factors.dim() != 2 or whole.dim() != 2:
        raise _unfit(checkpoint, name, factors, whole.shape)
    return (whole * _spread(checkpoint, name, factors, whole)).to(placement.dtype)


def _spread(checkpoint: Checkpoint, name: str, factors: Tensor, whole: Tensor) -> Tensor:
    """Block scales [rows, columns] as one factor an element [out, in]; the last block may be cut short."""
    for dim in (0, 1):
        block = _block_size(checkpoint, name, factors, whole.shape, dim)
        factors = factors.repeat_interleave(block, dim).narrow(dim, 0, whole.shape[dim])
    return factors


def read_rows(checkpoint: Checkpoint, name: str, rows: range | Sequence[int]) -> Tensor:
    """Some rows of the tensor `name`, on the CPU: as stored, fp8 with its scales multiplied out in float32.

    What is compared or measured in pieces reads so; the numbers are those of `read_weight`. Raises CheckpointError for
    scales that do not fit.
    """
    stored, scale = checkpoint.tensors[name], checkpoint.scales.get(name)
    part = stored.rows(rows.start, rows.stop) if isinstance(rows, range) else stored.gather(rows)
    if scale is None:
        return part
    factors, whole = scale.read().float(), part.float()
    if factors.numel() == 1:
        return whole * factors.reshape(())
    here = torch.tensor(list(rows), dtype=torch.long)
    if factors.shape in ((stored.shape[0],), (stored.shape[0], 1)):
        return whole * factors.reshape(-1, 1)[here]
    if factors.dim() != 2 or len(stored.shape) != 2:
        raise _unfit(checkpoint, name, factors, stored.shape)
    down, across = (_block_size(checkpoint, name, factors, stored.shape, dim) for dim in (0, 1))
    return whole * factors[here // down][:, torch.arange(stored.shape[1]) // across]


def _block_size(checkpoint: Checkpoint, name: str, factors: Tensor, shape: Sequence[int], dim: int) -> int:
    """Elements of one scale along `dim`; the last block may be cut short."""
    size, blocks = shape[dim], factors.shape[dim]
    block = checkpoint.block_size[dim] if checkpoint.block_size else _block(size, blocks)
    if not blocks or -(-size // block) != blocks:
        raise _unfit(checkpoint, name, factors, shape)
    return block


def _block(size: int, blocks: int) -> int:
    if blocks and -(-size // 128) == blocks:
        return 128
    return -(-size // blocks) if blocks else 1


def _unfit(checkpoint: Checkpoint, name: str, factors: Tensor, shape: Sequence[int]) -> CheckpointError:
    return CheckpointError(
        f"{name!r} of {list(shape)} with scales of {list(factors.shape)}",
        expected="one scale, one a row, or one a block",
        where=checkpoint.path,
    )
