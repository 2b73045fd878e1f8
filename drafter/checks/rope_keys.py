"""How a rotary embedding is written into a config so that every server reads the same: all schemas that stand there.

Writes nothing: it gives keys and values as text, for fixes. Knows no check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.config import Rope
from drafter.checks.files import key_in, layer_of_table

_BESIDE = ("partial_rotary_factor", "rotary_dim")  # keys of the layer itself, whatever the schema


def rope_keys(table: Mapping[str, Any], rope: Rope) -> str:
    """The keys of `table` that say `rope`, as `key = value, ...`: the new schema where it stands, the old one where
    that stands or nothing does."""
    layer, new = layer_of_table(table), layer_of_table(table).get("rope_parameters")
    said = []
    if isinstance(new, Mapping) and new:
        kinds = [kind for kind, value in new.items() if isinstance(value, Mapping)]
        paths = [f".{kind}" for kind in kinds] if kinds and "rope_theta" not in new else [""]
        said = [(key_in(table, "rope_parameters") + path, in_new_schema(rope)) for path in paths]
    if not said or any(layer.get(key) is not None for key in ("rope_theta", "rope_scaling")):
        said += old_schema(table, rope)
    return text_of(said)


def old_schema(table: Mapping[str, Any], rope: Rope) -> list[tuple[str, Any]]:
    """`rope_theta` and `rope_scaling`, by the path that they have in `table`."""
    parameters = dict(rope.parameters)
    beside = [(key_in(table, key), parameters.pop(key)) for key in _BESIDE if key in parameters]
    scaling = None if rope.type == "default" else {"rope_type": rope.type, **parameters}
    return [(key_in(table, "rope_theta"), _number(rope.base)), (key_in(table, "rope_scaling"), scaling), *beside]


def in_new_schema(rope: Rope) -> dict[str, Any]:
    return {"rope_theta": _number(rope.base), "rope_type": rope.type, **dict(rope.parameters)}


def text_of(keys: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{key} = {json.dumps(value)}" for key, value in keys)


def _number(base: float) -> float | int:
    return int(base) if base.is_integer() else base
