"""What is no EAGLE-3 drafter, named for what it is: by the config's own words, then by the tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, architecture
from drafter.errors import CheckpointError

EAGLE = "an EAGLE-1/2 drafter"
MTP = "a multi-token-prediction (MTP) head"
_TYPES = {
    "eagle": EAGLE,
    "dflash": "a DFlash drafter",
    "mtp": MTP,
    "medusa": "Medusa heads",
    "mlp_speculator": "an MLP speculator",
}
_ARCHITECTURES = (
    (r"(?i)^d?flash|dflash", "a DFlash drafter"),
    (r"(?i)medusa", "Medusa heads"),
    (r"(?i)mlpspeculator", "an MLP speculator"),
    (r"MTP|NextN", MTP),
    (r"(?i)^eagle(?!3)\w*forcausallm$|forcausallmeagle$|^eaglemodel$", EAGLE),
)
_TENSORS = (
    (r"(^|\.)medusa_heads?\.|^\d+\.\d+\.linear\.weight$", "Medusa heads"),
    (r"(^|\.)(emb|proj|ln|head)\.0\.weight$", "an MLP speculator"),
    (r"(^|\.)(mtp|mtp_block|eh_proj|shared_head)\.", MTP),
)


def refuse_other_models(table: Mapping[str, Any], clues: Clues, source: str) -> None:
    """Raises CheckpointError, in one line, for a checkpoint of another kind."""
    kind = table.get("speculators_model_type")
    if kind is not None and kind not in ("eagle3", "peagle"):
        raise _refusal(_TYPES.get(str(kind), "another speculator"), f"speculators_model_type {kind!r:.60}", source)
    name = architecture(table)
    for pattern, what in _ARCHITECTURES:
        if re.search(pattern, name):
            raise _refusal(what, name, source)
    if "medusa_num_heads" in table or table.get("model_type") in ("medusa", "mlp_speculator"):
        kind = "medusa" if "medusa_num_heads" in table else str(table["model_type"])
        raise _refusal(_TYPES[kind], name or "by its config", source)
    if clues.shapes and not clues.is_eagle3:
        _refuse_tensors(clues, source)


def _refuse_tensors(clues: Clues, source: str) -> None:
    fc, into = clues.shapes.get("fc.weight"), clues.attention_input
    alone = fc is not None and len(fc) == 2 and into == fc[0]  # the attention takes the hidden alone
    if alone and fc is not None and fc[1] == 2 * fc[0] and not any("hidden_norm" in name for name in clues.shapes):
        raise _refusal(EAGLE, f"fc.weight is {list(fc)}, and the attention takes the hidden alone", source)
    for pattern, what in _TENSORS:
        name = next((name for name in clues.written if re.search(pattern, name)), None)
        if name is not None and "fc.weight" not in clues.shapes:
            raise _refusal(what, f"tensors like {name!r:.60}", source)
    if alone and "hidden_norm.weight" in clues.shapes:
        raise _refusal("a DFlash drafter", "fc and hidden_norm before layers that take the hidden alone", source)
    if fc is None and into is not None:
        layers = len({name.split(".")[1] for name in clues.shapes if name.startswith("layers.")})
        raise _refusal("a language model", f"no fc, {layers} decoder layers", source)


def _refusal(what: str, because: str, source: str) -> CheckpointError:
    return CheckpointError(f"{what} ({because})", expected="an EAGLE-3 drafter", where=source)
