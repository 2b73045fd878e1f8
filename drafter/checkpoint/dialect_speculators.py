"""The nested dialect of `speculators`: the layer's sizes lie in `transformer_layer_config`.

Layer id i means depth i from version 0.5 on (vLLM's own numbering), depth i + 1 before (its own generator).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.clues import Clues, Mark
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.layer_fields import (
    LLAMA,
    QWEN3,
    describe,
    mask_token,
    read_layer_sizes,
    read_windows,
    verifier_name,
)
from drafter.errors import CheckpointError

INNER = "transformer_layer_config."
KINDS = ("eagle3", "peagle")
_CONVERTED = "0.1.0.dev14"  # what ModelOpt's convert_to_vllm_ckpt.py writes as the version


def recognise(table: Mapping[str, Any], clues: Clues) -> Mark | None:
    if table.get("speculators_model_type") not in (*KINDS, None):
        return None
    whole = table.get("speculators_model_type") is not None or (
        "speculators_config" in table and "transformer_layer_config" in table
    )
    marks = ("speculators_version", "speculators_model_type", "speculators_config")
    return next((("", key, table[key]) for key in marks if table.get(key) is not None), None) if whole else None


def read(fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig:
    """The normal form of a speculators config. Raises CheckpointError for missing or malformed fields."""
    if not isinstance(fields.raw("transformer_layer_config"), Mapping):
        raise CheckpointError("no 'transformer_layer_config'", expected="the layer's sizes", where=fields.source)
    version = str(fields.raw("speculators_version") or "")
    sizes = read_layer_sizes(fields, INNER, clues, _class_defaults(fields, version))
    parallel = fields.raw("speculators_model_type") == "peagle"
    owner = "PEagleSpeculatorConfig" if parallel else "Eagle3SpeculatorConfig"
    vllm = "vLLM takes False" if parallel else "vLLM takes True"
    ids = fields.layer_ids("eagle_aux_hidden_state_layer_ids", "not stated")
    _warn_converted(fields, version)
    return DrafterConfig(
        **describe(fields, "speculators", f"speculators {version}".strip(), mark),
        **sizes,
        target_hidden_size=fields.take(
            "target_hidden_size", "target_hidden_size", int, sizes["hidden_size"], "as wide as the drafter"
        ),
        draft_vocab_size=fields.take("draft_vocab_size", "draft_vocab_size", int, 32000, owner),
        norm_before_residual=fields.take(
            "norm_before_residual", "norm_before_residual", bool, False, f"{owner} ({vllm})"
        ),
        norm_before_fc=fields.take("norm_before_fc", "norm_before_fc", bool, False, owner),
        fc_norm=fields.take("fc_norm", "fc_norm", bool, False, owner),
        norm_output=fields.take("norm_output", "norm_output", bool, False, owner),
        use_aux=fields.note("use_aux", "default", "", True, "speculators always feeds recorded states"),
        aux_ids=ids,
        id_convention=_convention(fields, version),
        tie_lm_head=fields.take("tie_lm_head", "tie_word_embeddings", bool, False, "not stated"),
        **read_windows(fields, INNER, sizes["num_layers"]),
        verifier=verifier_name(fields, "speculators_config.verifier.name_or_path"),
        final_norm=fields.note("final_norm", "default", "", True, "speculators always norms before lm_head"),
        double_norm=fields.note("double_norm", "default", "", False, "only ModelOpt trains so"),
        parallel=fields.note("parallel", "default", "", False, "speculators_model_type is not peagle")
        if not parallel
        else fields.note("parallel", fields.source, "speculators_model_type", True),
        mask_token_id=mask_token(fields, "mask_token_id"),
        logit_scale=fields.take("logit_scale", "logit_scale", float, 1.0, "not stated"),
        evidence=fields.evidence,
        warnings=tuple(fields.warnings),
    )


def _class_defaults(fields: Fields, version: str) -> Mapping[str, Any]:
    """What absent keys mean: old versions wrote the layer's config as the difference to its class."""
    model_type = fields.raw(f"{INNER}model_type")
    if model_type is None:
        return QWEN3 if _number(version) >= (0, 6) else LLAMA
    return QWEN3 if model_type == "qwen3" else LLAMA


def _number(version: str) -> tuple[int, int]:
    match = re.match(r"(\d{1,6})\.(\d{1,6})", version)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def _convention(fields: Fields, version: str) -> str:
    if not re.match(r"\d{1,6}\.\d{1,6}", version):
        return str(fields.note("id_convention", "default", "speculators_version", "depth = id", "version not stated"))
    value = "depth = id + 1" if _number(version) < (0, 5) else "depth = id"
    return str(fields.note("id_convention", fields.source, "speculators_version", value))


def _warn_converted(fields: Fields, version: str) -> None:
    if version == _CONVERTED and fields.raw("norm_before_residual") is True:
        fields.warnings.append(
            f"speculators_version {_CONVERTED} is what ModelOpt's converter writes, with norm_before_residual true; "
            "ModelOpt trains with the raw residual: compare with norm_before_residual off"
        )
