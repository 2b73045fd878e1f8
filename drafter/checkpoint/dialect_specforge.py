"""SpecForge, where it is known to be the writer: its training state beside or as the weights, or its P-EAGLE class.

Its `norm_output` is another switch than the servers': whether `norm` stands before lm_head, true unless stated. What
it feeds to the next step is always the state before the norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark, architecture
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import read_flat

STATE = "training_state.pt"


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    if architecture(table) == "PEagleDraftModel":
        return "", "architectures", table["architectures"]
    if "draft_state_dict" in clues.state_keys:
        return "weights", "draft_state_dict", STATE
    if STATE in clues.files:
        return "folder", STATE, "a file that SpecForge writes"
    # by elimination: the others that write the key leave a mark, or say norm_before_residual too
    alone = "norm_output" in table and "norm_before_residual" not in table and clues.wrote("midlayer.")
    if alone and architecture(table) == "LlamaForCausalLMEagle3":
        return "", "norm_output", table["norm_output"]
    return None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    parallel = architecture(fields.table) == "PEagleDraftModel"
    stated = fields.raw("norm_output")
    if stated is True:
        fields.warnings.append(
            "norm_output is SpecForge's switch for the norm before lm_head; servers read it as feeding the state after "
            "the norm back, which training did not: compare norm_output on"
        )
    elif stated is False:
        fields.warnings.append(
            "norm_output is false, by which SpecForge means no norm before lm_head; servers always norm there: compare "
            "final_norm on"
        )
    return read_flat(
        fields,
        clues,
        "specforge",
        "SpecForge",
        mark,
        final_norm=fields.take("final_norm", "norm_output", bool, True, "SpecForge: norm before lm_head"),
        norm_output=fields.note("norm_output", "default", "", False, "SpecForge feeds the state before the norm"),
        **(
            {"parallel": fields.note("parallel", fields.source, "architectures", True, "PEagleDraftModel")}
            if parallel
            else {}
        ),
    )
