"""The nested dialect of `speculators`: the layer's sizes lie in `transformer_layer_config`.

Layer id i means depth i from version 0.5 on (vLLM's own numbering), depth i + 1 before (its own generator).
"""

from __future__ import annotations

import re

from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.layer_fields import describe, read_layer_sizes, verifier_name

INNER = "transformer_layer_config."


def read_nested(fields: Fields) -> DrafterConfig:
    """The normal form of a speculators config. Raises CheckpointError for missing or malformed fields."""
    version = str(fields.raw("speculators_version") or "")
    # Qwen3Config fills in 128 whatever the width is; LlamaConfig divides
    model_type = fields.raw(f"{INNER}model_type")
    sizes = read_layer_sizes(fields, INNER, 128 if model_type == "qwen3" else None)
    ids = fields.layer_ids("eagle_aux_hidden_state_layer_ids", "not stated")
    marks = ("speculators_version", "speculators_model_type", "speculators_config")
    mark = next(key for key in marks if fields.raw(key) is not None)
    return DrafterConfig(
        **describe(fields, "speculators", f"speculators {version}".strip(), mark, fields.raw(mark)),
        **sizes,
        target_hidden_size=fields.take(
            "target_hidden_size", "target_hidden_size", int, sizes["hidden_size"], "as wide as the drafter"
        ),
        draft_vocab_size=fields.take("draft_vocab_size", "draft_vocab_size", int, 32000, "Eagle3SpeculatorConfig"),
        norm_before_residual=fields.take(
            "norm_before_residual", "norm_before_residual", bool, False, "Eagle3SpeculatorConfig (vLLM takes True)"
        ),
        norm_before_fc=fields.take("norm_before_fc", "norm_before_fc", bool, False, "Eagle3SpeculatorConfig"),
        fc_norm=fields.take("fc_norm", "fc_norm", bool, False, "Eagle3SpeculatorConfig"),
        norm_output=fields.take("norm_output", "norm_output", bool, False, "Eagle3SpeculatorConfig"),
        use_aux=fields.note("use_aux", "default", "", True, "speculators always feeds recorded states"),
        aux_ids=ids,
        id_convention=_convention(fields, version),
        tie_lm_head=fields.take("tie_lm_head", "tie_word_embeddings", bool, False, "not stated"),
        sliding_window=_window(fields),
        verifier=verifier_name(fields, "speculators_config.verifier.name_or_path"),
        evidence=fields.evidence,
    )


def _convention(fields: Fields, version: str) -> str:
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match:
        return str(fields.note("id_convention", "default", "speculators_version", "depth = id", "version not stated"))
    old = (int(match.group(1)), int(match.group(2))) < (0, 5)
    value = "depth = id + 1" if old else "depth = id"
    return str(fields.note("id_convention", fields.source, "speculators_version", value))


def _window(fields: Fields) -> int | None:
    """The sliding window, only where a layer uses it: the key is written for full attention too."""
    types = fields.raw(f"{INNER}layer_types")
    window = fields.raw(f"{INNER}sliding_window")
    if isinstance(types, list) and "sliding_attention" in types and isinstance(window, int):
        return int(fields.note("sliding_window", fields.source, f"{INNER}sliding_window", window))
    fields.note("sliding_window", "default", f"{INNER}layer_types", None, "full attention")
    return None
