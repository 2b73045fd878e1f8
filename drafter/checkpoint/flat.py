"""The flat dialect of SGLang and SpecForge: `LlamaForCausalLMEagle3`, sizes at the top, ids under `eagle_config`.

Layer id i means depth i + 1 there: the state after layer i.
"""

from __future__ import annotations

from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.layer_fields import describe, read_layer_sizes, verifier_name


def read_flat(fields: Fields) -> DrafterConfig:
    """The normal form of a flat config. Raises CheckpointError for missing or malformed fields."""
    sizes = read_layer_sizes(fields, "", None)
    ids = fields.layer_ids(
        "eagle_config.eagle_aux_hidden_state_layer_ids eagle_aux_hidden_state_layer_ids",
        "not stated: servers take depths 2, n//2, n-3",
    )
    return DrafterConfig(
        **describe(fields, "flat", "SGLang / SpecForge layout", "architectures", fields.raw("architectures")),
        **sizes,
        target_hidden_size=fields.take(
            "target_hidden_size", "target_hidden_size", int, sizes["hidden_size"], "as wide as the drafter"
        ),
        draft_vocab_size=fields.take("draft_vocab_size", "draft_vocab_size", int, None, "not stated: lm_head's rows"),
        norm_before_residual=fields.take(
            "norm_before_residual", "norm_before_residual", bool, False, "flat producers train with the raw residual"
        ),
        norm_before_fc=fields.take(
            "norm_before_fc", "eagle_config.norm_before_fc norm_before_fc", bool, False, "not stated"
        ),
        fc_norm=fields.take("fc_norm", "fc_norm use_aux_norm", bool, False, "not stated"),
        norm_output=fields.take("norm_output", "norm_output", bool, False, "not stated"),
        use_aux=fields.take("use_aux", "eagle_config.use_aux_hidden_state", bool, True, "not stated"),
        aux_ids=ids,
        id_convention=fields.note("id_convention", "default", "", "depth = id + 1", "SGLang, SpecForge: after layer i"),
        tie_lm_head=fields.take("tie_lm_head", "tie_word_embeddings", bool, False, "not stated"),
        sliding_window=fields.note("sliding_window", "default", "sliding_window", None, "full attention"),
        verifier=verifier_name(fields, "target_model_name_or_path"),
        evidence=fields.evidence,
    )
