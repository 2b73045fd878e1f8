"""Token ids that are written as plain numbers, not as a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import SampleError
from drafter.sample.fields import MAX_TOKENS, read_ids

if TYPE_CHECKING:
    import torch

_LARGEST = 1 << 62


def ids_of(value: Any, key: str, path: Path) -> torch.Tensor:
    """Token ids from a tensor or from a list of numbers: [T] int64. Raises SampleError."""
    import torch

    if not isinstance(value, list):
        return read_ids(value, key, path)
    if not 3 <= len(value) <= MAX_TOKENS:
        raise SampleError(f"{len(value)} tokens", expected=f"3 to {MAX_TOKENS}", where=path)
    if not all(type(token) is int and -_LARGEST < token < _LARGEST for token in value):
        raise SampleError(f"{key!r} holds what is no whole number", expected="integer token ids", where=path)
    return torch.tensor(value, dtype=torch.int64)
