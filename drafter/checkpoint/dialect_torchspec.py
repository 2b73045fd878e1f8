"""TorchSpec: marked by its version in the config or in the metadata of the weights.

Its exports for vLLM (`layers.0.*` names) have one added to each layer id; `midlayer.*` names go with ids as trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import AFTER, BEFORE, convention, read_flat
from drafter.checkpoint.layer_fields import read_layer_sizes, train_with_base


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    if table.get("_torchspec_version") is not None:
        return "", "_torchspec_version", table["_torchspec_version"]
    version = clues.metadata.get("torchspec_version")
    return ("metadata", "torchspec_version", version) if version else None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    sizes = read_layer_sizes(fields, "", clues)
    if sizes["mla"] is not None and sizes["rope"].type == "yarn":
        train_with_base(fields, sizes, 10000.0, "TorchSpec's latent attention")
    return read_flat(
        fields,
        clues,
        "torchspec",
        f"TorchSpec {mark[2]!s:.40}",
        mark,
        sizes=sizes,
        id_convention=_convention(fields, clues),
        norm_output=fields.take("norm_output", "norm_output", bool, False, "TorchSpec"),
    )


def _convention(fields: Fields, clues: Clues) -> str:
    if clues.wrote("layers.") and not clues.wrote("midlayer."):
        return str(
            fields.note("id_convention", "weights", "layers.0.*", BEFORE, "an export for vLLM: ids are one higher")
        )
    return convention(fields, AFTER, "TorchSpec: after layer i")
