"""Rotary embeddings as transformers defines them: default, linear, dynamic, llama3, yarn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rope:
    """`rotary_dim`: how many leading elements of a head turn (None: all). `interleaved`: pairs are (x[2i], x[2i+1])
    instead of (x[i], x[i + n/2]). `max_positions`: the config's max_position_embeddings, which `dynamic` starts from.
    """

    theta: float
    kind: str = "default"
    params: Mapping[str, Any] = field(default_factory=dict)
    rotary_dim: int | None = None
    interleaved: bool = False
    max_positions: int = 512

    def frequencies(self, n: int, length: int) -> Tensor:
        """The n/2 angles that one position step turns by; `length` is that of the whole forward."""
        theta = self.theta
        if self.kind == "dynamic":
            length = max(length, self.max_positions)
            factor = self.params["factor"]
            theta *= (factor * length / self.max_positions - (factor - 1)) ** (n / (n - 2))
        plain = [theta ** (-2 * i / n) for i in range(n // 2)]
        if self.kind == "linear":
            plain = [f / self.params["factor"] for f in plain]
        elif self.kind == "llama3":
            plain = [self._llama3(f) for f in plain]
        elif self.kind == "yarn":
            low, high = self._yarn_range(n)
            for i, f in enumerate(plain):
                slow = min(max((i - low) / (high - low), 0.0), 1.0)  # 0: as trained, 1: stretched by the factor
                plain[i] = f * (1 - slow) + f / self.params["factor"] * slow
        return torch.tensor(plain, dtype=torch.float32)

    def _llama3(self, f: float) -> float:
        """Short wavelengths stay, long ones are stretched by the factor, those between are mixed."""
        original = self.params["original_max_position_embeddings"]
        low, high = self.params["low_freq_factor"], self.params["high_freq_factor"]
        turns = original * f / (2 * math.pi)  # full turns within the original length
        if turns > high:
            return f
        if turns < low:
            return f / self.params["factor"]
        stay = (turns - low) / (high - low)
        return stay * f + (1 - stay) * f / self.params["factor"]

    def _yarn_range(self, n: int) -> tuple[float, float]:
        """The pairs between which yarn goes over from turning as trained to turning slower."""
        original = self.params["original_max_position_embeddings"]

        def pair_with(turns: float) -> float:
            return n * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        low, high = pair_with(self.params.get("beta_fast") or 32), pair_with(self.params.get("beta_slow") or 1)
        if self.params.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, n - 1)
        return low, high if high != low else high + 0.001

    @property
    def size(self) -> float:
        """What cosine and sine are multiplied by; only yarn has other than 1."""
        if self.kind != "yarn":
            return 1.0
        p = self.params
        if p.get("attention_factor") is not None:
            return float(p["attention_factor"])
        if p.get("mscale") and p.get("mscale_all_dim"):
            return mscale(p["factor"], p["mscale"]) / mscale(p["factor"], p["mscale_all_dim"])
        return mscale(p["factor"], 1.0)

    @property
    def latent_scale(self) -> float:
        """What DeepSeek's attention multiplies its softmax scale by."""
        all_dim = self.params.get("mscale_all_dim") if self.kind == "yarn" else None
        return mscale(self.params["factor"], all_dim) ** 2 if all_dim else 1.0

    def turn(self, x: Tensor, position: int, length: int) -> Tensor:
        """x [heads, hd], turned as far as `position` asks."""
        n = self.rotary_dim or x.shape[-1]
        angle = position * self.frequencies(n, length)
        cos, sin = angle.cos() * self.size, angle.sin() * self.size
        out = x.clone()
        for i in range(n // 2):
            a, b = (2 * i, 2 * i + 1) if self.interleaved else (i, i + n // 2)
            out[..., a] = x[..., a] * cos[i] - x[..., b] * sin[i]
            out[..., b] = x[..., b] * cos[i] + x[..., a] * sin[i]
        return out


def mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def rope(x: Tensor, position: int, theta: float) -> Tensor:
    """Turn x [heads, hd]: pair i is (x[i], x[i + hd/2]) (NeoX halves), its angle position * theta^(-2i/hd)."""
    return Rope(theta).turn(x, position, position + 1)
