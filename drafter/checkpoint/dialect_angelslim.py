"""Tencent's AngelSlim: a flat config with `target_model_type` or `modal_type`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import read_flat
from drafter.checkpoint.layer_fields import read_layer_sizes, train_with_base

_BASE_LOST = ("default", "linear", "dynamic")  # types for which its trainer passes no base


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    keys = ("target_model_type", "modal_type")
    return next((("", key, table[key]) for key in keys if table.get(key) is not None), None)


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    sizes = read_layer_sizes(fields, "", clues)
    if sizes["rope"].type in _BASE_LOST:
        train_with_base(fields, sizes, 10000.0, "AngelSlim")
    return read_flat(
        fields,
        clues,
        "angelslim",
        "AngelSlim",
        mark,
        sizes=sizes,
        norm_output=fields.note("norm_output", "default", "", False, "AngelSlim feeds the state before the norm"),
        target_hidden_size=fields.note(
            "target_hidden_size", "default", "", sizes["hidden_size"], "AngelSlim has no other width"
        ),
    )
