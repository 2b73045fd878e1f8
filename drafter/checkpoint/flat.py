"""What the flat dialects share: sizes at the top, layer ids under `eagle_config`, and the meaning of absent keys.

Layer id i means depth i + 1 unless a dialect says otherwise: the state after layer i.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark, architecture
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.layer_fields import describe, mask_token, no_window, read_layer_sizes, verifier_name

ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
NESTED_IDS = "eagle_config.eagle_aux_hidden_state_layer_ids"
TOP_IDS = "eagle_aux_hidden_state_layer_ids"
AFTER, BEFORE = "depth = id + 1", "depth = id"


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    """A flat config of no known producer; its weights decide where its keys say nothing."""
    name = architecture(table)
    if name in ARCHITECTURES or "Eagle3" in name or "EAGLE3" in name:
        return "", "architectures", table["architectures"]
    key = next((key for key in ("eagle_config", "draft_vocab_size") if key in table), None)
    if key is not None:
        return "", key, table[key]
    if clues.is_eagle3:
        return "weights", "layers.0.self_attn.*", f"attention over {clues.attention_input}"
    return None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    """The normal form of a flat config whose producer is not known."""
    name = architecture(fields.table)
    if name and mark[1] != "architectures":
        fields.warnings.append(f"the architecture {name!r} is no drafter's: servers load another class for it")
    return read_flat(fields, clues, "flat", "SGLang / SpecForge layout", mark)


def read_flat(fields: Fields, clues: Clues, dialect: str, producer: str, mark: Mark, **own: Any) -> DrafterConfig:
    """The normal form of a flat config. Raises CheckpointError for missing or malformed fields.

    `own` are the fields that a dialect has read (and noted) itself; the others are read as all flat readers do.
    """
    sizes = own.pop("sizes", None) or read_layer_sizes(fields, "", clues)
    values = {name: own[name] if name in own else read(fields) for name, read in _READERS.items()}
    if "full_layers" in own:
        values["sliding_window"], values["full_layers"] = own["sliding_window"], own["full_layers"]
    else:
        values |= no_window(fields)
    if "target_hidden_size" not in own:
        values["target_hidden_size"] = fields.take(
            "target_hidden_size", "target_hidden_size", int, sizes["hidden_size"], "as wide as the drafter"
        )
    described = describe(fields, dialect, producer, mark)
    warnings = tuple(fields.warnings)
    return DrafterConfig(**described, **{**values, **sizes, "evidence": fields.evidence, "warnings": warnings})


def ids_after(fields: Fields) -> tuple[int, ...] | None:
    """Layer ids where i is the state after layer i; a second list at the top, which vLLM reads, is compared."""
    nested, top = fields.raw(NESTED_IDS), fields.raw(TOP_IDS)
    ids = fields.layer_ids(f"{NESTED_IDS} {TOP_IDS}", "not stated: servers take depths 2, n//2, n-3")
    if isinstance(nested, list) and isinstance(top, list) and ids is not None and top != [i + 1 for i in ids]:
        fields.warnings.append(
            f"{TOP_IDS} {top!r:.80} is what vLLM reads (depth = id), eagle_config has {nested!r:.80} for SGLang "
            "(depth = id + 1): they select different states"
        )
    return ids


def convention(fields: Fields, value: str, why: str) -> str:
    return str(fields.note("id_convention", "default", "", value, why))


def off(name: str, why: str) -> Callable[[Fields], Any]:
    """A reader of a switch that these producers do not have."""
    return lambda fields: fields.note(name, "default", "", False, why)


def _served_norm_output(fields: Fields) -> bool:
    value = bool(fields.take("norm_output", "norm_output", bool, False, "not stated"))
    if value:
        fields.warnings.append(
            "norm_output is true and the producer is not known: servers feed the state after the final norm back, "
            "SpecForge trains with the state before it and means the norm before lm_head: compare norm_output off"
        )
    return value


def _use_aux(fields: Fields) -> Any:
    return fields.take("use_aux", "eagle_config.use_aux_hidden_state", bool, True, "not stated")


_READERS: dict[str, Callable[[Fields], Any]] = {
    "draft_vocab_size": lambda f: f.take("draft_vocab_size", "draft_vocab_size", int, None, "not stated: lm_head rows"),
    "norm_before_residual": lambda f: f.take(
        "norm_before_residual", "norm_before_residual", bool, False, "flat producers train with the raw residual"
    ),
    "norm_before_fc": lambda f: f.take(
        "norm_before_fc", "eagle_config.norm_before_fc norm_before_fc", bool, False, "not stated"
    ),
    "fc_norm": lambda f: f.take("fc_norm", "fc_norm use_aux_norm", bool, False, "not stated"),
    "norm_output": _served_norm_output,
    "use_aux": _use_aux,
    "aux_ids": ids_after,
    "id_convention": lambda f: convention(f, AFTER, "SGLang, SpecForge: after layer i"),
    "tie_lm_head": lambda f: f.take("tie_lm_head", "tie_word_embeddings", bool, False, "not stated"),
    "verifier": lambda f: verifier_name(f, "target_model_name_or_path"),
    "final_norm": lambda f: f.note("final_norm", "default", "", True, "norm before lm_head"),
    "double_norm": off("double_norm", "only ModelOpt trains so"),
    "parallel": off("parallel", "no mark of parallel drafting"),
    "mask_token_id": lambda f: mask_token(f, "mask_token_id"),
    "logit_scale": lambda f: f.take("logit_scale", "logit_scale", float, 1.0, "not stated"),
    "target_hidden_size": lambda f: None,
}
