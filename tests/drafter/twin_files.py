"""Recordings of chosen tokens and states on disk, and what two of them have in common, computed the plain way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from drafter.sample.open import open_sample
from drafter.sample.sample import Sample
from tests import tiny

WIDTH = 16


def tokens(count: int, seed: int = 0, vocab: int = 5000) -> list[int]:
    return torch.randint(3, vocab, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def states(count: int, slots: int = 4, width: int = WIDTH, seed: int = 0) -> Tensor:
    """Independent noise [count, slots, width] whose slots differ in length."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([1.0, 20.0, 60.0, 100.0]).repeat(slots // 4 + 1)[:slots]
    return (torch.randn(count, slots, width, generator=rng) * lengths[:, None]).bfloat16()


def recorded(path: Path, ids: Sequence[int], slots: Tensor) -> Sample:
    """A v1 file of `slots` [T, S, H], opened."""
    return open_sample(written(path, ids, slots))


def written(path: Path, ids: Sequence[int], slots: Tensor, mask: Sequence[int] | None = None) -> Path:
    whole = tiny.TinySample(list(ids), list(mask or [1] * len(ids)), slots, tuple(range(slots.shape[1])))
    return tiny.write_v1_sample(path, whole)


def brute_cosine(a: Tensor, b: Tensor) -> float:
    """Mean cosine of the rows of [R, H] and [R, H], in float64, of whole tensors."""
    a, b = a.double(), b.double()
    return float(((a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))).mean())


def brute_ratio(a: Tensor, b: Tensor) -> float:
    return float((b.double().norm(dim=1) / a.double().norm(dim=1)).mean())
