"""NeMo Automodel: `eagle_meta.pt` beside weights whose names all begin with `model.`; the embedding is saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark, architecture
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import read_flat

META = "eagle_meta.pt"
_ARCHITECTURE = "LlamaEagle3DraftModel"


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    if architecture(table) == _ARCHITECTURE:
        return "", "architectures", table["architectures"]
    bare = ("lm_head.", "d2t", "t2d", "mask_hidden")
    prefixed = all(name.startswith(("model.", *bare)) for name in clues.written)
    return ("folder", META, "a file that NeMo writes") if META in clues.files and prefixed else None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    return read_flat(
        fields,
        clues,
        "nemo",
        "NeMo Automodel",
        mark,
        norm_output=fields.take("norm_output", "norm_output", bool, False, "NeMo"),
        parallel=fields.take("parallel", "parallel_drafting", bool, False, "not stated"),
    )
