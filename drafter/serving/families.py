"""Target families, as far as servers treat them differently when they capture states (checkpoints.md 5.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ORDINARY, DEEPSEEK, GPT_OSS, MINIMAX_M3_VL = "ordinary", "deepseek_v2", "gpt_oss", "minimax_m3_vl"

# row of the table of 5.2 -> names of targets in it, as `model_type` writes them
FAMILIES: dict[str, tuple[str, ...]] = {
    ORDINARY: (
        *("llama", "llama4", "mllama4", "qwen2", "qwen2_moe", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_next"),
        *("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "glm4_moe", "glm5_next", "minimax_m2", "minimax_m3", "gemma3"),
        *("gemma3_text", "gemma4", "gemma4_text", "bailing_moe", "exaone_moe", "apertus", "longcat_flash"),
    ),
    DEEPSEEK: ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite"),
    GPT_OSS: ("gpt_oss",),
    MINIMAX_M3_VL: ("minimax_m3_vl",),
}
_ARCHITECTURE_ENDS = re.compile(r"for(causallm|conditionalgeneration).*$")


@dataclass(frozen=True)
class Family:
    """`rule` is the row of the tables; `assumed` when the target is not in them and the ordinary row is taken."""

    name: str
    rule: str
    assumed: bool = False

    @property
    def note(self) -> str:
        if not self.assumed:
            return ""
        who = f"the target family {self.name!r} is not in the tables" if self.name else "the target's family is unknown"
        return f"{who}: the ordinary rule is assumed"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_BY_NAME = {_plain(name): (name, rule) for rule, names in FAMILIES.items() for name in names}


def family_of(model_type: str = "", architectures: Sequence[str] = ()) -> Family:
    """The family of a target by its config's `model_type`, else by its `architectures`."""
    for said in (model_type, *(_ARCHITECTURE_ENDS.sub("", name.lower()) for name in architectures)):
        if _plain(said) in _BY_NAME:
            return Family(*_BY_NAME[_plain(said)])
    return Family(model_type or next(iter(architectures), ""), ORDINARY, assumed=True)
