"""Which dialect a config is written in; each dialect has its own reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import read_flat
from drafter.checkpoint.nested import read_nested
from drafter.errors import CheckpointError

OTHER_SPECULATORS = {
    "eagle": "an EAGLE-1/2 drafter",
    "dflash": "a DFlash drafter",
    "mtp": "a multi-token-prediction head",
    "medusa": "Medusa heads",
    "peagle": "a P-EAGLE (parallel) drafter",
    "mlp_speculator": "an MLP speculator",
}
FLAT_ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")


def read_config(table: Mapping[str, Any], source: str) -> DrafterConfig:
    """The normal form of one config file.

    Raises CheckpointError when it is no EAGLE-3 drafter's config, naming what it is instead.
    """
    kind = table.get("speculators_model_type")
    if kind is not None and kind != "eagle3":
        what = OTHER_SPECULATORS.get(str(kind), "another speculator")
        said = f"{what} (speculators_model_type {kind!r:.60})"
        raise CheckpointError(said, expected="an EAGLE-3 drafter", where=source)
    if kind == "eagle3" or ("speculators_config" in table and "transformer_layer_config" in table):
        return read_nested(Fields(table, source))
    architecture = _architecture(table)
    if architecture.lower().startswith("peagle"):
        said = f"{OTHER_SPECULATORS['peagle']} ({architecture})"
        raise CheckpointError(said, expected="an EAGLE-3 drafter", where=source)
    if architecture in FLAT_ARCHITECTURES or "eagle_config" in table or "draft_vocab_size" in table:
        return read_flat(Fields(table, source))
    raise CheckpointError(
        f"the config of {architecture or table.get('model_type') or 'an unnamed model'!r}",
        expected=f"an EAGLE-3 drafter ({', '.join(FLAT_ARCHITECTURES)}, or speculators_model_type 'eagle3')",
        where=source,
    )


def _architecture(table: Mapping[str, Any]) -> str:
    names = table.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""
