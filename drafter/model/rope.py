"""Rotary position embedding, half-split pairs (neox), of the transformers types `default`, `linear` and `llama3`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from drafter.checkpoint.config import Rope, finite
from drafter.errors import CheckpointError

SUPPORTED = ("default", "linear", "llama3")


def inverse_frequencies(rope: Rope, head_dim: int) -> Tensor:
    """[head_dim / 2] float32. Raises CheckpointError for a type that is not computed here."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.base**exponents)
    if rope.type == "default":
        return frequencies
    if rope.type == "linear":
        return frequencies / _number(rope, "factor")
    if rope.type == "llama3":
        return _llama3(rope, frequencies)
    raise CheckpointError(f"RoPE of type {rope.type!r}", expected=f"one of {', '.join(SUPPORTED)}")


def _number(rope: Rope, key: str) -> float:
    value = rope.parameters.get(key)
    number = finite(value)
    if number is None or number <= 0:
        raise CheckpointError(f"RoPE {rope.type!r} with {key} {value!r:.40}", expected="a number > 0")
    return number


def _llama3(rope: Rope, frequencies: Tensor) -> Tensor:
    factor, low, high = (_number(rope, k) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    old_length = _number(rope, "original_max_position_embeddings")
    wavelengths = 2 * math.pi / frequencies
    share = (old_length / wavelengths - low) / (high - low)
    smooth = (1 - share) * frequencies / factor + share * frequencies
    scaled = torch.where(wavelengths > old_length / low, frequencies / factor, smooth)
    return torch.where(wavelengths < old_length / high, frequencies, scaled)


def rotate(x: Tensor, positions: Tensor, frequencies: Tensor) -> Tensor:
    """Rotate x [n, heads, head_dim] by `positions` [n]; angles and products in float32, the result as x came."""
    angles = positions.float()[:, None] * frequencies[None, :]  # [n, head_dim / 2]
    cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]  # [n, 1, head_dim / 2]
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
