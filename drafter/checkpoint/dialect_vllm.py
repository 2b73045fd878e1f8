"""Flat configs written for vLLM: its class names, and layer ids in its own numbering (id i is depth i)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark, architecture
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import BEFORE, NESTED_IDS, TOP_IDS, convention, read_flat
from drafter.checkpoint.layer_fields import read_layer_sizes, read_windows


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    name = architecture(table)
    ours = re.fullmatch(r"Eagle3(?!Deepseek)\w+ForCausalLM|Peagle\w+ForCausalLM", name)  # Deepseek: several producers
    return ("", "architectures", table["architectures"]) if ours else None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    sizes = read_layer_sizes(fields, "", clues)
    own: dict[str, Any] = {"sizes": sizes}
    if architecture(fields.table).startswith("Peagle"):
        own["parallel"] = fields.note("parallel", fields.source, "architectures", True, "vLLM's P-EAGLE class")
    if fields.raw(TOP_IDS) is None and fields.raw(NESTED_IDS) is not None:
        fields.warnings.append(
            f"layer ids only under {NESTED_IDS}: vLLM's default runner reads the top level and takes 2, n//2, n-3"
        )
    return read_flat(
        fields,
        clues,
        "vllm",
        "vLLM layout",
        mark,
        aux_ids=fields.layer_ids(f"{TOP_IDS} {NESTED_IDS}", "not stated: vLLM takes depths 2, n//2, n-3"),
        id_convention=convention(fields, BEFORE, "vLLM: before layer i"),
        norm_output=fields.take("norm_output", "norm_output", bool, False, "vLLM"),
        **{**read_windows(fields, "", sizes["num_layers"]), **own},
    )
