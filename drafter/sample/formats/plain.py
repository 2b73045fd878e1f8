"""Tables of tensors that no known producer wrote: one holds the ids, and those with a row for each token are states.

Read only where there is one way to read it; `--keys` describes the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter.errors import SampleError
from drafter.files.order import natural
from drafter.files.stored import FLOATS, INTEGERS, StoredTensor
from drafter.sample.fields import MAX_SLOTS, make_slots, read_ids, read_mask, split_states
from drafter.sample.formats.layouts import name_layout
from drafter.sample.sample import Claim, Sample, States
from drafter.sample.source import Reader, Source

NAME = "a table of tensors"
IDS = ("input_ids", "token_ids", "ids", "tokens")
MASKS = ("loss_mask", "mask")
BY_NAME = "its name in the file"


def fits(content: Any) -> bool:
    key = _ids_key(content) if isinstance(content, dict) else None
    return key is not None and bool(_state_keys(content, _tokens(content[key]), None))


def _length(value: Any) -> int | None:
    """T of what can be ids: integers [T] or [1, T]; None for all else."""
    if not isinstance(value, StoredTensor) or value.dtype not in INTEGERS:
        return None
    shape = value.shape[1:] if len(value.shape) == 2 and value.shape[0] == 1 else value.shape
    return shape[0] if len(shape) == 1 and shape[0] >= 3 else None


def _tokens(value: Any) -> int:
    return _length(value) or 0


def _ids_key(content: dict[Any, Any]) -> str | None:
    """The usual name, else the only tensor that can be ids; None where that is not told."""
    able = [key for key, value in content.items() if isinstance(key, str) and _length(value) is not None]
    named = [key for key in IDS if key in able]
    others = [key for key in able if "mask" not in key.lower()]
    return named[0] if named else others[0] if len(others) == 1 else None


def _state_keys(content: dict[Any, Any], length: int, width: int | None) -> list[str]:
    """Keys of floats with a row for each of `length` tokens, and of a width that the drafter can take."""

    def able(key: Any, value: Any) -> bool:
        if not isinstance(key, str) or not isinstance(value, StoredTensor) or value.dtype not in FLOATS:
            return False
        if "mask" in key.lower() or not 2 <= len(value.shape) <= 4 or not value.shape[-1]:
            return False
        return length in value.shape[:-1] and (width is None or value.shape[-1] % width == 0)

    return sorted((key for key, value in content.items() if able(key, value)), key=natural)


def read(source: Source) -> Sample:
    content, path = source.content, source.path
    key = _ids_key(content)
    assert key is not None  # `fits` has found it
    ids = read_ids(content[key], key, path)
    chosen = _state_keys(content, ids.numel(), source.width)
    if not chosen:
        raise SampleError("no state of the drafter's width", expected=f"floats [T, {source.width}]", where=path)
    states, layouts = named_states({name: content[name] for name in chosen}, ids.numel(), source.width, path)
    mask_key = next((name for name in MASKS if name in content), "")
    mask, warnings = read_mask(content.get(mask_key), ids.numel(), path)
    others = sorted(str(name) for name in content if name not in (key, mask_key, *chosen))
    said = [f"read as ids {key!r:.40}, states {', '.join(map(repr, chosen)):.200}; another reading takes --keys"]
    left = [f"left out: {', '.join(others):.200}"] if others else []
    slots = make_slots(states, ids.numel(), path, layouts)
    return Sample(path, NAME, ids, mask, slots, (*said, *left, *warnings))


def named_states(
    values: dict[str, Any], length: int, width: int | None, path: Path, source: str = BY_NAME
) -> tuple[list[States], list[Claim | None]]:
    """The states under each name, in any shape that `split_states` takes; a name of one state is its label."""
    states: list[States] = []
    layouts: list[Claim | None] = []
    for name, value in values.items():
        found = split_states(value, length, width or _own_width(values, length), name, path)
        states += found
        layouts += [name_layout(name.rpartition(".")[2], source)] if len(found) == 1 else [None] * len(found)
        if len(states) > MAX_SLOTS:
            raise SampleError(f"more than {MAX_SLOTS} recorded states", where=path)
    return states, layouts


def _own_width(values: dict[str, Any], length: int) -> int | None:
    """H where no drafter says it: the one width of all [T, H], each of which then is one state."""
    tensors = [value for value in values.values() if isinstance(value, StoredTensor)]
    flat = {value.shape[-1] for value in tensors if value.shape[:-1] in ((length,), (1, length))}
    return flat.pop() if len(flat) == 1 else None


READER = Reader(NAME, "one 1-D tensor of integer ids and floats [T, H] under any names", fits, read)
