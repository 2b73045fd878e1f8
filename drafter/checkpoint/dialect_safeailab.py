"""SafeAILab's EAGLE and the yuhuili checkpoints: the class of a plain Llama, `midlayer.*` names, no layer ids.

Its target keeps depths 2, n//2 and n-3, fixed in code. `head_dim` is ignored: the width is divided by the heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark, architecture
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import BEFORE, convention, read_flat
from drafter.checkpoint.layer_fields import read_layer_sizes


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    named = architecture(table) in ("LlamaForCausalLM", "")
    if named and "fc.weight" in clues.shapes and clues.wrote("midlayer.") and clues.is_eagle3:
        return "weights", "midlayer.*", architecture(table) or "no architecture"
    return None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    return read_flat(
        fields,
        clues,
        "safeailab",
        "SafeAILab EAGLE",
        mark,
        sizes=read_layer_sizes(fields, "", clues, head_dim=False),
        aux_ids=fields.note("aux_ids", "default", "", None, "fixed in SafeAILab's target: depths 2, n//2, n-3"),
        id_convention=convention(fields, BEFORE, "SafeAILab: before layer i"),
        norm_before_residual=fields.note("norm_before_residual", "default", "", False, "SafeAILab: raw residual"),
        norm_output=fields.note("norm_output", "default", "", False, "SafeAILab feeds the state before the norm"),
    )
