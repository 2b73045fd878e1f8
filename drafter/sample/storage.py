"""Whether a file carries more bytes than its tensors need: torch saves the whole storage of every view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drafter.files.stored import StoredTensor

SMALL = 1_000_000  # bytes of a file below which nobody cares
RATIO = 1.5


def check_storage(content: Any) -> list[str]:
    """A warning for a file that is much larger than all tensors in it together; nothing for what was inflated."""
    stored = {(tensor.offset, tensor.shape, tensor.strides, tensor.dtype): tensor for tensor in _tensors(content)}
    tensors = list(stored.values())
    if not tensors or any(tensor.held is not None for tensor in tensors):
        return []
    size, needed = tensors[0].stamp.size, max(sum(tensor.nbytes for tensor in tensors), 1)
    if size <= SMALL or size <= RATIO * needed:
        return []
    return [f"the file is {size / needed:.1f} times as large as what it holds (whole storages of views were saved)"]


def _tensors(value: Any) -> Iterator[StoredTensor]:
    if isinstance(value, StoredTensor):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)
