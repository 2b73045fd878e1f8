"""Drafters with a flat config: SafeAILab, SpecForge, SGLang, vLLM, every kind of RoPE."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from tests.reference import Rope
from tests.tiny import SIZES
from tests.zoo.configs import safeailab, sglang, specforge, vllm_flat
from tests.zoo.kinds import (
    Animal,
    aux_norms,
    beside_them,
    fused,
    legacy_bin,
    midlayer,
    prefixed,
    sglang_deep,
    sharded,
    sharded_bin,
    torch_bin,
    training_state,
    whole_numbers,
)
from tests.zoo.parts import (
    BOTH,
    FULL,
    HEADS,
    KEEP,
    LLAMA3,
    POST,
    RAW,
    TWO,
    WIDE,
    YARN,
    map_in_cache,
    resumable,
    states,
    with_rope,
)

specforged: Callable[..., Animal] = partial(
    Animal, producer="specforge", config=specforge(), rename=midlayer, fields={"id_convention": "depth = id + 1"}
)

FLAT: tuple[Animal, ...] = (
    # --- SafeAILab
    Animal("safeailab_bin", "safeailab", safeailab(), rename=midlayer, write_weights=torch_bin, dtype=torch.float16),
    Animal("safeailab_safetensors", "safeailab", safeailab(), rename=midlayer, dtype=torch.float16),
    Animal(
        "safeailab_full_vocab_without_d2t",
        "safeailab",
        safeailab(),
        sizes=FULL,
        make={"d2t": "none"},
        rename=midlayer,
        write_weights=torch_bin,
        fields={"draft_vocab_size": SIZES.vocab},
    ),
    Animal("safeailab_legacy_bin", "safeailab", safeailab(), rename=midlayer, write_weights=legacy_bin),
    Animal("safeailab_sharded_bin", "safeailab", safeailab(), rename=midlayer, write_weights=sharded_bin),
    Animal(
        "safeailab_map_in_cache",
        "safeailab",
        safeailab(),
        drop=("embed_tokens", "d2t", "t2d"),
        rename=midlayer,
        write_weights=torch_bin,
        beside=map_in_cache,
        side_map=True,
    ),
    Animal(
        "safeailab_other_target_width",
        "safeailab",
        safeailab(),
        sizes=WIDE,
        drop=KEEP,
        rename=midlayer,
        fields={"target_hidden_size": 24},
    ),
    # --- SpecForge, SGLang
    specforged("specforge_scripts", beside=resumable, fields={"sliding_window": None, "norm_before_residual": False}),
    specforged("specforge_training_state", write_weights=training_state),
    specforged("specforge_training_state_named", write_weights=training_state, opens="training_state.pt"),
    specforged("specforge_fc_norm", config=specforge(fc_norm=True), make={"fc_norm": True}),
    # norm_output has another meaning for SpecForge than for whoever serves it; this container is its own
    specforged(
        "specforge_norm_output",
        config=specforge(fc_norm=True, norm_output=True),
        make={"fc_norm": True},
        write_weights=training_state,
    ),
    specforged(
        "specforge_no_norm",
        config=specforge(norm_output=False),
        write_weights=training_state,
        switches={"final_norm": False},
    ),
    specforged(
        "specforge_exported_norm_output",
        config=specforge(fc_norm=True, norm_output=True),
        make={"fc_norm": True},
        warns=("norm_output", "SpecForge"),
    ),
    specforged("specforge_exported_no_norm", config=specforge(norm_output=False), switches={"final_norm": False}),
    # a config with keys of several producers is no one's: the meaning of those who serve stands, with a warning
    Animal(
        "flat_norm_output",
        "sglang",
        sglang(fc_norm=True, norm_before_residual=False, norm_output=True),
        make={"fc_norm": True},
        rename=midlayer,
        switches=POST,
        warns=("norm_output", "SpecForge"),
    ),
    Animal("flat_norm_output_false", "sglang", sglang(norm_before_residual=False, norm_output=False), rename=midlayer),
    Animal("flat_integer_types", "sglang", sglang(), rename=midlayer, store=whole_numbers),
    Animal("flat_direct_map", "sglang", sglang(), make={"d2t": "direct"}, rename=midlayer),
    Animal(
        "flat_old_leftovers",
        "sglang",
        sglang(),
        rename=midlayer,
        store=beside_them(
            ("layers.0.self_attn.rotary_emb.inv_freq", 4, 0),
            ("verifier_norm.weight", 32, 0),
            ("verifier_lm_head.weight", 40, 32),
        ),
    ),
    specforged("specforge_target_width", sizes=WIDE, drop=KEEP, fields={"target_hidden_size": 24}),
    specforged("specforge_head_dim", sizes=HEADS, fields={"head_dim": 10}),
    specforged("specforge_float32", dtype=torch.float32),
    specforged("specforge_float16", dtype=torch.float16),
    specforged("specforge_sharded", write_weights=sharded),
    specforged("specforge_module_prefix", rename=prefixed("module.", midlayer), write_weights=torch_bin),
    specforged("specforge_compiled_prefix", rename=prefixed("_orig_mod.", midlayer)),
    specforged("specforge_draft_model_prefix", rename=prefixed("draft_model.", midlayer)),
    specforged("specforge_both_prefixes", rename=prefixed("module._orig_mod.", midlayer)),
    Animal(
        "specforge_peagle",
        "specforge",
        specforge(architectures=["PEagleDraftModel"], norm_before_residual=True, mask_token_id=5),
        sizes=TWO,
        make={"mask_hidden": True},
        drop=KEEP,
        switches=RAW | {"mask_token": 5},
        fields={"parallel": True, "mask_token_id": 5},
    ),
    Animal("sglang_flat", "sglang", sglang(), rename=midlayer),
    Animal("sglang_two_layers", "sglang", sglang(), sizes=TWO, rename=sglang_deep, fields={"num_layers": 2}),
    Animal("sglang_fused", "sglang", sglang(), rename=midlayer, store=fused),
    Animal("sglang_aux_norms", "specforge", specforge(use_aux_norm=True), make={"fc_norm": True}, rename=aux_norms),
    Animal("fc_bias", "specforge", specforge(bias=True), make={"fc_bias": True}, rename=midlayer),
    # --- vLLM
    Animal("vllm_flat", "vllm", vllm_flat(), fields={"aux_ids": [0, 2, 4]}),
    Animal("vllm_biases", "vllm", vllm_flat(mlp_bias=True), make=BOTH, fields={"attention_bias": True}),
    Animal(
        "vllm_qkv_bias",
        "vllm",
        vllm_flat(),
        make={"attention_bias": True},
        drop=("embed_tokens", "layers.0.self_attn.o_proj.bias"),
    ),
    Animal(
        "vllm_logit_scale",
        "vllm",
        vllm_flat(logit_scale=0.25),
        switches={"logit_scale": 0.25},
        fields={"logit_scale": 0.25},
    ),
    Animal("vllm_one_state", "vllm", vllm_flat(), sizes=states(1)),
    Animal("vllm_two_states", "vllm", vllm_flat(), sizes=states(2)),
    Animal(
        "vllm_four_states_norm_before_fc",
        "vllm",
        vllm_flat(norm_before_fc=True),
        sizes=states(4),
        make={"input_norm": True},
    ),
    Animal("vllm_five_states", "vllm", vllm_flat(), sizes=states(5)),
    Animal("vllm_norm_before_residual", "vllm", vllm_flat(norm_before_residual=True), switches=RAW),
    Animal("vllm_qwen3_qk_norm", "vllm", vllm_flat(model_type="qwen3"), make={"qk_norm": True}),
    Animal("vllm_post_norm", "vllm", vllm_flat(norm_output=True), switches=POST),
    Animal(
        "vllm_tied_head",
        "vllm",
        vllm_flat(tie_word_embeddings=True),
        sizes=FULL,
        make={"d2t": "none"},
        drop=("lm_head",),
        switches={"head": "tied"},
    ),
    Animal("vllm_target_head", "vllm", vllm_flat(), drop=("embed_tokens", "lm_head"), head="target"),
    Animal("vllm_tied_target_head", "vllm", vllm_flat(), drop=("embed_tokens", "lm_head"), head="target, tied"),
    Animal(
        "vllm_target_head_full",
        "vllm",
        vllm_flat(),
        sizes=FULL,
        make={"d2t": "none"},
        drop=("embed_tokens", "lm_head"),
        head="target",
    ),
    # --- RoPE, both schemas
    Animal(
        "rope_parameters",
        "vllm",
        vllm_flat(rope_parameters={"rope_theta": 100.0, "rope_type": "default"}),
        switches={"rope": Rope(100.0)},
    ),
    Animal(
        "rope_inside_scaling",
        "specforge",
        specforge(rope_theta=None, rope_scaling={"rope_theta": 100.0, "rope_type": "default"}),
        rename=midlayer,
        switches={"rope": Rope(100.0)},
    ),
    Animal(
        "rope_linear",
        "specforge",
        specforge(rope_scaling={"type": "linear", "factor": 4.0}),
        rename=midlayer,
        switches=with_rope("linear", {"factor": 4.0}),
    ),
    Animal(
        "rope_dynamic",
        "specforge",
        specforge(rope_scaling={"type": "dynamic", "factor": 4.0}),
        rename=midlayer,
        switches=with_rope("dynamic", {"factor": 4.0}),
    ),
    Animal(  # of text alone, all three positions of a token are the same
        "rope_multimodal",
        "specforge",
        specforge(rope_scaling={"type": "mrope", "rope_type": "mrope", "mrope_section": [1, 1, 2]}),
        rename=midlayer,
    ),
    Animal(
        "rope_llama3",
        "specforge",
        specforge(rope_theta=100.0, rope_scaling=LLAMA3 | {"rope_type": "llama3"}),
        rename=midlayer,
        switches=with_rope("llama3", LLAMA3 | {"rope_theta": 100.0}),
    ),
    Animal(
        "rope_yarn",
        "vllm",
        vllm_flat(rope_parameters=YARN | {"rope_theta": 100.0, "rope_type": "yarn"}),
        switches=with_rope("yarn", YARN | {"rope_theta": 100.0}),
    ),
    Animal(
        "rope_partial",
        "vllm",
        vllm_flat(rope_parameters={"rope_theta": 100.0, "rope_type": "default", "partial_rotary_factor": 0.5}),
        switches={"rope": Rope(100.0, rotary_dim=4)},
    ),
    Animal(
        "rope_partial_on_top",
        "specforge",
        specforge(rope_theta=100.0, partial_rotary_factor=0.5),
        rename=midlayer,
        switches={"rope": Rope(100.0, rotary_dim=4)},
    ),
)
