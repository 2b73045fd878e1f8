"""Rotary position embedding as transformers defines it: `default`, `linear`, `dynamic`, `llama3` and `yarn`.

The first `dims` of a head are rotated, in pairs (i, i + dims/2), or (2i, 2i+1) where they are interleaved. `mrope` is
`default` here: its three positions are one and the same for text, and a sample records text. `dynamic` takes its base
from a length: here that of a training pass over the whole sample, R rows at step 0 and R + k at step k, for every row.
(A server's cache holds keys of several bases instead.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from drafter.checkpoint.config import Rope, finite
from drafter.errors import CheckpointError

SUPPORTED = ("default", "linear", "dynamic", "llama3", "yarn", "mrope")


@dataclass(frozen=True)
class Rotary:
    """One rotation, ready to apply.

    frequencies: [dims / 2] float32.
    scaling: what yarn multiplies cos and sin by.
    softmax: what MLA multiplies the softmax scale by (yarn with `mscale_all_dim`).
    """

    frequencies: Tensor
    interleaved: bool = False
    scaling: float = 1.0
    softmax: float = 1.0

    def to(self, device: torch.device) -> Rotary:
        return replace(self, frequencies=self.frequencies.to(device))

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn x [n, heads, hd] by `positions` [n]; angles and products in float32, the result as x came."""
        dims = 2 * self.frequencies.numel()
        angles = positions.float()[:, None] * self.frequencies[None, :]  # [n, dims / 2]
        cos, sin = angles.cos()[:, None, :], angles.sin()[:, None, :]  # [n, 1, dims / 2]
        if self.scaling != 1.0:
            cos, sin = cos * self.scaling, sin * self.scaling
        turned = x[..., :dims].float()
        if self.interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
            pairs = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
            result = pairs.flatten(-2).to(x.dtype)
        else:
            first, second = turned.chunk(2, dim=-1)
            result = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
        return result if dims == x.shape[-1] else torch.cat([result, x[..., dims:]], dim=-1)


def make_rotary(rope: Rope, dims: int, length: int, max_positions: int | None) -> Rotary:
    """The rotation of `dims` numbers in a pass over `length` rows, on the CPU.

    Raises CheckpointError for a type that is not computed here or parameters that make no rotation.
    """
    plain = _frequencies(rope.base, dims)
    if rope.type in ("default", "mrope"):
        return Rotary(plain, rope.interleaved)
    if rope.type == "linear":
        return Rotary(plain / _number(rope, "factor"), rope.interleaved)
    if rope.type == "dynamic":
        return Rotary(_frequencies(_stretched(rope, dims, length, max_positions), dims), rope.interleaved)
    if rope.type == "llama3":
        return Rotary(_llama3(rope, plain), rope.interleaved)
    if rope.type == "yarn":
        factor = _yarn_factor(rope, max_positions)
        frequencies = _yarn(rope, plain, factor, _original_length(rope, max_positions))
        return Rotary(frequencies, rope.interleaved, _yarn_scaling(rope, factor), _yarn_softmax(rope, factor))
    raise CheckpointError(f"RoPE of type {rope.type!r}", expected=f"one of {', '.join(SUPPORTED)}")


def rotary_dims(rope: Rope, head_dim: int) -> int:
    """How many of a head's numbers are rotated: `rotary_dim`, or `partial_rotary_factor` of them, else all.

    Raises CheckpointError where that is no even number within the head.
    """
    stated: Any = rope.get("rotary_dim")
    dims = stated if type(stated) is int else 0
    if stated is None:
        stated = rope.get("partial_rotary_factor")
        share = 1.0 if stated is None else finite(stated)
        dims = int(head_dim * share) if share is not None and 0 < share <= 1 else 0
    if dims % 2 or not 0 < dims <= head_dim:
        raise CheckpointError(
            f"RoPE over {stated!r:.40} of {head_dim} dimensions", expected="an even share of the head"
        )
    return dims


def _frequencies(base: float, dims: int) -> Tensor:
    exponents = torch.arange(0, dims, 2, dtype=torch.int64).float() / dims
    return 1.0 / (base**exponents)


def _number(rope: Rope, key: str, default: float | None = None) -> float:
    value = rope.get(key)
    number = default if value is None and default is not None else finite(value)
    if number is None or number <= 0:
        raise CheckpointError(f"RoPE {rope.type!r} with {key} {value!r:.40}", expected="a number > 0")
    return number


def _original_length(rope: Rope, max_positions: int | None) -> float:
    """The length before scaling: the parameter, else `max_position_embeddings`."""
    return _number(rope, "original_max_position_embeddings", max_positions)


def _stretched(rope: Rope, dims: int, length: int, max_positions: int | None) -> float:
    """The base of `dynamic` (NTK) over `length` rows; up to `max_position_embeddings` it is the stated one."""
    known = max_positions or _original_length(rope, None)
    factor = _number(rope, "factor")
    if length <= known:
        return rope.base
    try:
        base = float(rope.base * (factor * length / known - (factor - 1)) ** (dims / (dims - 2)))
    except (OverflowError, ZeroDivisionError, TypeError):
        base = math.inf
    if not 0 < base < math.inf:
        raise CheckpointError(f"RoPE 'dynamic' with factor {factor:g} at {length} rows", expected="a finite base")
    return base


def _llama3(rope: Rope, frequencies: Tensor) -> Tensor:
    factor, low, high = (_number(rope, k) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    old_length = _number(rope, "original_max_position_embeddings")
    if high <= low:
        raise CheckpointError(f"RoPE 'llama3' with high_freq_factor {high:g}", expected=f"more than {low:g}")
    wavelengths = 2 * math.pi / frequencies
    share = (old_length / wavelengths - low) / (high - low)
    smooth = (1 - share) * frequencies / factor + share * frequencies
    scaled = torch.where(wavelengths > old_length / low, frequencies / factor, smooth)
    return torch.where(wavelengths < old_length / high, frequencies, scaled)


def _yarn_factor(rope: Rope, max_positions: int | None) -> float:
    """`factor`, else how far `max_position_embeddings` exceeds the original length."""
    if rope.get("factor") is None and max_positions and rope.get("original_max_position_embeddings") is not None:
        return max_positions / _number(rope, "original_max_position_embeddings")
    return _number(rope, "factor")


def _yarn(rope: Rope, frequencies: Tensor, factor: float, length: float) -> Tensor:
    """Frequencies that turn often within the original length stay; slow ones are divided; a ramp between them."""
    if rope.base <= 1:
        raise CheckpointError(f"RoPE 'yarn' with base {rope.base:g}", expected="a base > 1")
    dims = 2 * frequencies.numel()

    def dimension(turns: float) -> float:
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low, high = dimension(_number(rope, "beta_fast", 32.0)), dimension(_number(rope, "beta_slow", 1.0))
    if rope.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    width = high - low or 0.001
    slow = ((torch.arange(dims // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return frequencies / factor * slow + frequencies * (1 - slow)


def _yarn_scaling(rope: Rope, factor: float) -> float:
    if rope.get("attention_factor") is not None:
        return _number(rope, "attention_factor")
    one, all_dims = _magnitude(rope, factor, "mscale"), _magnitude(rope, factor, "mscale_all_dim")
    if one is not None and all_dims is not None:
        return one / all_dims
    return _grown(factor, 1.0)


def _yarn_softmax(rope: Rope, factor: float) -> float:
    magnitude = _magnitude(rope, factor, "mscale_all_dim")
    return 1.0 if magnitude is None else magnitude**2


def _magnitude(rope: Rope, factor: float, key: str) -> float | None:
    return _grown(factor, _number(rope, key)) if rope.get(key) else None


def _grown(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
