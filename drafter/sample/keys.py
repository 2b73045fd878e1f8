"""`--keys`: a layout that no reader knows, described by its user: which key holds the ids, the states, the mask.

Knows nothing of producers; what is described is believed, and its shapes are checked like everybody's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import FileError, SampleError, WiringError
from drafter.files.stored import StoredTensor
from drafter.sample.content import read_content
from drafter.sample.fields import flat, make_slots, read_mask
from drafter.sample.formats.int_lists import ids_of
from drafter.sample.formats.layouts import last_layout
from drafter.sample.formats.plain import named_states
from drafter.sample.sample import POST, PRE, Sample
from drafter.sample.source import Source

if TYPE_CHECKING:
    import torch

NAME = "described by --keys"
EXAMPLE = "ids=input_ids,states=hidden_states,mask=loss_mask"
ALL = "."  # the key of a file that is one bare tensor
MAX_JSON = 1 << 24  # bytes of a list of ids
_ONCE = ("ids", "mask", "last", "norm")
_SHOWN = 8  # keys in a refusal


@dataclass(frozen=True)
class Keys:
    """Where each field lies: dotted keys walk nested tables and list numbers; `ids` may be `@FILE`."""

    ids: str
    states: tuple[str, ...]
    mask: str = ""
    last: str = ""
    norm: str = ""


def parse_keys(text: str) -> Keys:
    """`ids=KEY,states=KEY[,states=KEY][,mask=KEY][,last=KEY][,norm=pre|post]`. Raises WiringError for all else."""
    once: dict[str, str] = {}
    states = []
    for item in text.split(","):
        name, _, key = (part.strip() for part in item.partition("="))
        if not key or name not in (*_ONCE, "states"):
            raise WiringError(f"{item!r:.80} in --keys", expected=EXAMPLE)
        if name == "states":
            states.append(key)
        elif name in once:
            raise WiringError(f"{name}= twice in --keys", expected="once; only states= may be repeated")
        else:
            once[name] = key
    keys = Keys(once.get("ids", ""), tuple(states), *(once.get(name, "") for name in _ONCE[1:]))
    _check(keys)
    return keys


def _check(keys: Keys) -> None:
    if not keys.ids or keys.ids == "@":
        raise WiringError("no ids= in --keys", expected=f"{EXAMPLE}, or ids=@FILE")
    if not keys.states and not keys.last:
        raise WiringError("neither states= nor last= in --keys", expected=EXAMPLE)
    if len(set(keys.states)) != len(keys.states):
        raise WiringError("the same states= twice in --keys", expected="each state once")
    if keys.norm and keys.norm not in (PRE, POST):
        raise WiringError(f"norm={keys.norm!r:.40} in --keys", expected="norm=pre or norm=post")
    if keys.norm and not keys.last:
        raise WiringError("norm= without last= in --keys", expected="last=KEY, the state that it speaks of")


def read_keys(source: Source, keys: Keys) -> Sample:
    """The sample that `keys` describe. Raises SampleError where a key is not there or shapes contradict each other."""
    content, path = source.content, source.path
    ids = _ids(source, keys.ids)
    length = ids.numel()
    values = {key: look_up(content, key, path) for key in keys.states}
    stored = [flat(look_up(content, keys.last, path), keys.last, path)] if keys.last else []
    width = source.width or (stored[0].shape[1] if stored else None)
    states, layouts = named_states(values, length, width, path, "--keys")
    layouts += [last_layout("--keys", keys.norm) for _ in stored]
    mask, warnings = read_mask(look_up(content, keys.mask, path) if keys.mask else None, length, path)
    return Sample(path, NAME, ids, mask, make_slots([*states, *stored], length, path, layouts), tuple(warnings))


def look_up(content: Any, key: str, path: Path) -> Any:
    """What lies under the dotted `key`; a key that itself holds dots is found too. Raises SampleError."""
    value, parts = content, [] if key == ALL else key.split(".")
    while parts:
        taken, value = _step(value, parts)
        if not taken:
            raise SampleError(f"no {key!r:.80}: nothing under {parts[0]!r:.40}", expected=_keys_of(value), where=path)
        parts = parts[taken:]
    return value


def _step(value: Any, parts: list[str]) -> tuple[int, Any]:
    """How many of `parts` lead one level down, the longest name first, and to what; (0, value) where none does."""
    if isinstance(value, list) and parts[0].isascii() and parts[0].isdecimal() and len(parts[0]) <= 6:
        index = int(parts[0])
        return (1, value[index]) if index < len(value) else (0, value)
    if isinstance(value, dict):
        for taken in range(len(parts), 0, -1):
            name = ".".join(parts[:taken])
            if name in value:
                return taken, value[name]
    return 0, value


def _keys_of(value: Any) -> str:
    if isinstance(value, dict):
        names = [f"{key!r:.40}" for key in list(value)[:_SHOWN]]
        return f"one of {', '.join(names)}" + (", ..." if len(value) > _SHOWN else "") if names else "a table with keys"
    if isinstance(value, list):
        return f"0 to {len(value) - 1}" if value else "a list that is not empty"
    return f"{ALL!r} for one bare tensor" if isinstance(value, StoredTensor) else "a table, a list or a tensor"


def _ids(source: Source, key: str) -> torch.Tensor:
    if not key.startswith("@"):
        return ids_of(look_up(source.content, key, source.path), key, source.path)
    file = source.file.parent / key[1:].replace("{stem}", _stem(source.file))
    return ids_of(_other_file(file), file.name, file)


def _stem(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).stem


def _other_file(path: Path) -> Any:
    """A stored tensor of ids, or a JSON list of them. Raises what `read_content` raises."""
    try:
        with path.open("rb") as file:
            start = file.read(64).lstrip()
    except OSError as error:
        raise FileError(f"cannot read the ids ({error.strerror})", where=path, hint="check --keys ids=@FILE") from error
    return _json_list(path) if start.startswith(b"[") and b"\0" not in start else read_content(path)


def _json_list(path: Path) -> list[Any]:
    with path.open("rb") as file:
        data = file.read(MAX_JSON + 1)
    if len(data) > MAX_JSON:
        raise FileError(f"a JSON file of more than {MAX_JSON} bytes", where=path)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileError(f"not JSON ({error})", where=path) from error
    if not isinstance(value, list):  # it began like one
        raise FileError("JSON that is no list", where=path)
    return value
