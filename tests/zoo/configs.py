"""The config.json of each producer, with the keys that it really writes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.tiny import Sizes, nested_config
from tests.zoo.kinds import Config

Tensors = dict[str, Tensor]
EARLY_IDS = [1, 3, 5]


def llama(s: Sizes) -> dict[str, Any]:
    """What every Llama config.json holds."""
    return {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": s.hidden,
        "initializer_range": 0.02,
        "intermediate_size": s.mlp,
        "max_position_embeddings": 512,
        "model_type": "llama",
        "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads,
        "num_hidden_layers": s.layers,
        "pad_token_id": 0,
        "rms_norm_eps": s.eps,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": s.vocab,
    }


def safeailab(**changes: Any) -> Config:
    """SafeAILab/EAGLE: a stock Llama config; nothing in it says EAGLE-3."""

    def config(_w: Tensors, s: Sizes) -> dict[str, Any]:
        out = llama(s) | {
            "architectures": ["LlamaForCausalLM"],
            "draft_vocab_size": s.draft_vocab,
            "rope_theta": s.rope_theta,
            "rope_scaling": None,
            "torch_dtype": "float16",
            "transformers_version": "4.46.0",
        }
        return out | ({"target_hidden_size": s.target_hidden} if s.target_hidden else {}) | changes

    return config


def specforge(**changes: Any) -> Config:
    """SpecForge: what its configs/*-eagle3.json hold; windows are named and switched off."""

    def config(_w: Tensors, s: Sizes) -> dict[str, Any]:
        out = llama(s) | {
            "architectures": ["LlamaForCausalLMEagle3"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "draft_vocab_size": s.draft_vocab,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": EARLY_IDS, "use_aux_hidden_state": True},
            "head_dim": s.head_dim,
            "max_window_layers": 36,
            "rope_scaling": None,
            "rope_theta": s.rope_theta,
            "sliding_window": 4,
            "transformers_version": "4.53.0",
            "use_sliding_window": False,
        }
        return out | ({"target_hidden_size": s.target_hidden} if s.target_hidden else {}) | changes

    return config


def sglang(**changes: Any) -> Config:
    """The least that SGLang reads; nothing in it tells who trained the drafter."""

    def config(_w: Tensors, s: Sizes) -> dict[str, Any]:
        return (
            llama(s)
            | {
                "architectures": ["LlamaForCausalLMEagle3"],
                "draft_vocab_size": s.draft_vocab,
                "head_dim": s.head_dim,
                "rope_scaling": None,
                "rope_theta": s.rope_theta,
            }
            | changes
        )

    return config


def vllm_flat(**changes: Any) -> Config:
    """The flat config that vLLM reads; ids are its own, and stand at the top."""

    def config(w: Tensors, s: Sizes) -> dict[str, Any]:
        ids = list(range(0, 2 * s.states, 2))
        return (
            llama(s)
            | {
                "architectures": ["Eagle3LlamaForCausalLM"],
                "attention_bias": "layers.0.self_attn.q_proj.bias" in w,
                "draft_vocab_size": s.draft_vocab,
                "eagle_aux_hidden_state_layer_ids": ids,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids},
                "head_dim": s.head_dim,
                "num_aux_hidden_states": s.states,
                "rope_parameters": {"rope_theta": s.rope_theta, "rope_type": "default"},
            }
            | changes
        )

    return config


def speculators(
    version: str, layer: dict[str, Any] | None = None, drop: tuple[str, ...] = (), **changes: Any
) -> Config:
    """The nested config; `drop` names top-level keys that this version did not write yet."""

    def config(w: Tensors, s: Sizes) -> dict[str, Any]:
        ids = tuple(range(0, 2 * s.states, 2))
        out = nested_config(w, s, layer_ids=ids, layer=layer) | {"speculators_version": version} | changes
        if changes.get("speculators_model_type") == "peagle":
            out["speculators_config"]["algorithm"] = "peagle"
        if layer is not None:
            out["transformer_layer_config"] = {k: v for k, v in out["transformer_layer_config"].items() if v is not ...}
        return {k: v for k, v in out.items() if k not in drop}

    return config


# keys of the nested config that came after 0.3
LATER = ("auto_map", "fc_norm", "norm_before_fc", "norm_output", "embed_requires_grad", "dtype")


def modelopt(aux: bool = True, last_norm: bool = True, ids: list[int] | None = None, **changes: Any) -> Config:
    """ModelOpt's Hugging Face export of a Llama drafter: every key of its template."""

    def config(w: Tensors, s: Sizes) -> dict[str, Any]:
        return (
            llama(s)
            | {
                "architectures": ["LlamaForCausalLMEagle3"],
                "attention_bias": "layers.0.self_attn.q_proj.bias" in w,
                "attention_dropout": 0.0,
                "draft_vocab_size": s.draft_vocab,
                "eagle_config": _modelopt_eagle(aux, last_norm, EARLY_IDS if ids is None else ids),
                "head_dim": s.head_dim,
                "mlp_bias": False,
                "pretraining_tp": 1,
                "rope_scaling": {"rope_theta": s.rope_theta, "rope_type": "default"},
                "rope_theta": s.rope_theta,
                "transformers_version": "5.8.1",
            }
            | changes
        )

    return config


def _modelopt_eagle(aux: bool, last_norm: bool, ids: list[int]) -> dict[str, Any]:
    return {
        "eagle_aux_hidden_state_layer_ids": ids,
        "next_layer_regular": True,
        "parallel_draft_heads_num_layers": 1,
        "parallel_draft_step": 1,
        "use_aux_hidden_state": aux,
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": last_norm,
        "use_mtp_layernorm": False,
    }


KIMI_ROPE = {
    "beta_fast": 1.0,
    "beta_slow": 1.0,
    "factor": 64.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn",
}


def latent(s: Sizes) -> dict[str, Any]:
    """What a DeepSeek-V3 config holds of a latent drafter, experts and all: the drafter's MLP is dense anyway."""
    a = s.latent
    assert a is not None
    return llama(s) | {
        "attention_bias": False,
        "first_k_dense_replace": 1,
        "kv_lora_rank": a.kv_rank,
        "max_position_embeddings": 262144,
        "model_type": "kimi_k2",
        "moe_intermediate_size": 16,
        "moe_layer_freq": 1,
        "n_group": 1,
        "n_routed_experts": 384,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_key_value_heads": s.heads,
        "num_nextn_predict_layers": 0,
        "q_lora_rank": s.query_rank,
        "qk_nope_head_dim": a.nope,
        "qk_rope_head_dim": a.rope,
        "rope_theta": s.rope_theta,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "v_head_dim": a.value,
    }


def modelopt_kimi(**changes: Any) -> Config:
    """ModelOpt's Kimi template, which has no draft_vocab_size."""

    def config(_w: Tensors, s: Sizes) -> dict[str, Any]:
        return (
            latent(s)
            | {
                "architectures": ["Eagle3DeepseekV2ForCausalLM"],
                "eagle_config": _modelopt_eagle(True, True, EARLY_IDS),
                "rope_scaling": KIMI_ROPE | {"rope_theta": s.rope_theta},
            }
            | changes
        )

    return config


def megatron(architecture: str, **changes: Any) -> Config:
    """ModelOpt's Megatron export: what it adds to the target's text config."""

    def config(_w: Tensors, s: Sizes) -> dict[str, Any]:
        return (
            llama(s)
            | {
                "architectures": [architecture],
                "draft_vocab_size": s.draft_vocab,
                "eagle_config": _modelopt_eagle(True, True, EARLY_IDS),
                "head_dim": s.head_dim,
                "rope_scaling": None,
                "rope_theta": s.rope_theta,
            }
            | changes
        )

    return config


def angelslim(**changes: Any) -> Config:
    """AngelSlim: it trains with base 10000 whatever rope_theta says."""

    def config(_w: Tensors, s: Sizes) -> dict[str, Any]:
        return (
            llama(s)
            | {
                "architectures": ["Eagle3LlamaForCausalLM"],
                "attention_bias": False,
                "draft_vocab_size": s.draft_vocab,
                "head_dim": s.head_dim,
                "modal_type": "LLM",
                "pretraining_tp": 1,
                "rope_scaling": None,
                "rope_theta": s.rope_theta,
                "target_model_type": "qwen3",
            }
            | changes
        )

    return config


def torchspec(architecture: str = "LlamaForCausalLMEagle3", **changes: Any) -> Config:
    """TorchSpec's convert_to_hf."""

    def config(w: Tensors, s: Sizes) -> dict[str, Any]:
        base = latent(s) if s.latent else llama(s) | {"head_dim": s.head_dim}
        return (
            base
            | {
                "_torchspec_version": "0.1.0",
                "architectures": [architecture],
                "draft_vocab_size": s.draft_vocab,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": EARLY_IDS, "use_aux_hidden_state": True},
                "fc_norm": "fc_norm.0.weight" in w,
                "norm_output": "fc_norm.0.weight" in w,
                "rope_scaling": None,
                "rope_theta": s.rope_theta,
            }
            | changes
        )

    return config


def nemo(**changes: Any) -> Config:
    """NeMo Automodel."""

    def config(w: Tensors, s: Sizes) -> dict[str, Any]:
        return (
            llama(s)
            | {
                "architectures": ["LlamaEagle3DraftModel"],
                "attention_bias": False,
                "draft_vocab_size": s.draft_vocab,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": EARLY_IDS, "use_aux_hidden_state": True},
                "fc_norm": "fc_norm.0.weight" in w,
                "head_dim": s.head_dim,
                "norm_output": "fc_norm.0.weight" in w,
                "num_aux_hidden_states": 3,
                "rope_parameters": {"rope_theta": s.rope_theta, "rope_type": "default"},
                "target_hidden_size": s.target_width,
            }
            | changes
        )

    return config


def tensorrt(**changes: Any) -> Config:
    """What TensorRT-LLM reads."""

    def config(_w: Tensors, s: Sizes) -> dict[str, Any]:
        return (
            llama(s)
            | {
                "architectures": ["EAGLE3LlamaForCausalLM"],
                "draft_vocab_size": s.draft_vocab,
                "eagle_config": {"next_layer_regular": True},
                "head_dim": s.head_dim,
                "rope_scaling": None,
                "rope_theta": s.rope_theta,
            }
            | changes
        )

    return config
