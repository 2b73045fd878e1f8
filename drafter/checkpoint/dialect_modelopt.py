"""NVIDIA's Model-Optimizer and what it exports for TensorRT-LLM, the Megatron multi-layer kind included.

Since December 2025 its layer 0 norms the hidden twice in training (`input_layernorm`, then `hidden_norm`); every
server norms it once. Those exports name the layer `layers.0`, the older ones, normed once, `midlayer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark, architecture, eagle_config
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.flat import off, read_flat

_TRTLLM = ("EAGLE3LlamaForCausalLM", "Eagle3DeepSeekV3ForCausalLM")
_KEYS = ("use_input_layernorm_in_first_layer", "use_last_layernorm", "next_layer_regular", "parallel_draft_step")
_FIRST = "eagle_config.use_input_layernorm_in_first_layer"
_HEADS = ("parallel_draft_step", "parallel_draft_heads_num_layers")


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    inner, name = eagle_config(table), architecture(table)
    key = next((key for key in _KEYS if key in inner), None)
    if key is not None:
        return "", f"eagle_config.{key}", inner[key]
    top = next((key for key in _HEADS if table.get(key) is not None), None)
    if top is not None:
        return "", top, table[top]
    if name in (*_TRTLLM, "LlamaForCausalLMEagle3Deep"):
        return "", "architectures", table["architectures"]
    if "hf_quant_config.json" in clues.files:
        return "folder", "hf_quant_config.json", "a file that ModelOpt writes"
    return None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    name = architecture(fields.table)
    producer = "TensorRT-LLM layout" if name in _TRTLLM else "ModelOpt"
    _warn(fields)
    config = read_flat(
        fields,
        clues,
        "modelopt",
        f"{producer} (Megatron)" if name.endswith("Deep") else producer,
        mark,
        final_norm=fields.take("final_norm", "eagle_config.use_last_layernorm", bool, True, "not stated"),
        norm_output=off("norm_output", "ModelOpt feeds the state before the norm")(fields),
        double_norm=_double_norm(fields, clues),
    )
    return config


def _double_norm(fields: Fields, clues: Clues) -> bool:
    stated = fields.take("double_norm", _FIRST, bool, False, "not stated")
    if not clues.written:
        return bool(stated)
    if stated is False and not fields.evidence["double_norm"].is_default:
        return False
    if clues.wrote("midlayer."):
        return bool(fields.note("double_norm", "weights", "midlayer.*", False, "older exports norm the hidden once"))
    fields.warnings.append(
        "ModelOpt exports with layers.0 names were trained with the hidden normed twice; every server norms it once: "
        "compare double_norm on and off"
    )
    return bool(fields.note("double_norm", "weights", "layers.0.*", True, "trained with the hidden normed twice"))


def _warn(fields: Fields) -> None:
    steps = [fields.raw(f"{prefix}{key}") for key in _HEADS for prefix in ("", "eagle_config.")]
    if any(type(value) is int and value > 1 for value in steps):
        fields.warnings.append("ModelOpt's parallel draft heads are not computed: this is the drafter without them")
    scaling = fields.raw("rope_scaling")
    if isinstance(scaling, Mapping) and (scaling.get("rope_type") or scaling.get("type")) == "yarn":
        fields.warnings.append(
            "ModelOpt trains with plain RoPE and may add yarn only at export, which changes short contexts too: "
            "compare with rope_type default"
        )
