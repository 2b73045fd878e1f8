"""`data_{i}.pt` of speculators 0.3 to 0.7: a list of [T, H] states, ids and loss mask in one torch file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter.errors import SampleError
from drafter.files.stored import StoredTensor
from drafter.sample.sample import Sample, make_slots, read_ids, read_mask

NAME = "speculators v1 (data_{i}.pt)"


def fits(content: Any) -> bool:
    return isinstance(content, dict) and "input_ids" in content and isinstance(content.get("hidden_states"), list)


def read(path: Path, content: dict[str, Any]) -> Sample:
    """The sample in `content`, which `read_torch_file` gave for `path`. Raises SampleError."""
    ids = read_ids(content["input_ids"], "input_ids", path)
    mask, warnings = read_mask(content.get("loss_mask"), ids.numel(), path)
    states = [_state(value, index, path) for index, value in enumerate(content["hidden_states"])]
    return Sample(path, NAME, ids, mask, make_slots(states, ids.numel(), path), tuple(warnings))


def _state(value: Any, index: int, path: Path) -> StoredTensor:
    if not isinstance(value, StoredTensor):
        raise SampleError(f"hidden_states[{index}] is a {type(value).__name__}", expected="a tensor", where=path)
    if len(value.shape) == 3 and value.shape[0] == 1:
        return value.select(0, 0)
    return value
