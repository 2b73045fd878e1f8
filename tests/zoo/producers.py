"""Drafters whose files name their producer: speculators, ModelOpt, AngelSlim, TorchSpec, NeMo, TensorRT-LLM."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.reference import Rope
from tests.zoo.configs import (
    KIMI_ROPE,
    LATER,
    angelslim,
    megatron,
    modelopt,
    modelopt_kimi,
    nemo,
    speculators,
    tensorrt,
    torchspec,
)
from tests.zoo.kinds import Animal, deep, float8, midlayer, nemo_names, prefixed, sharded, with_metadata
from tests.zoo.parts import (
    KEEP,
    MLA,
    MLA_FULL,
    MLA_PLAIN,
    NO_T2D,
    POST,
    RAW,
    THETA,
    TWICE,
    TWO,
    YARN,
    eagle_meta,
    quantised,
    states,
    trap,
    with_rope,
)

nested: Callable[..., Animal] = partial(Animal, producer="speculators", drop=KEEP)
optimised: Callable[..., Animal] = partial(
    Animal, producer="modelopt", config=modelopt(), drop=NO_T2D, make={"d2t": "unsorted"}, switches=TWICE
)


PRODUCERS: tuple[Animal, ...] = (
    # --- speculators
    nested(
        "speculators_0.3",
        config=speculators(
            "0.3.0",
            {"rope_parameters": ..., "rope_theta": THETA, "rope_scaling": None},
            LATER,
            architectures=["Eagle3Speculator"],
        ),
        fields={"id_convention": "depth = id + 1"},
    ),
    nested(
        "speculators_0.3_no_model_type",
        config=speculators(
            "0.3.0",
            {"rope_parameters": ..., "model_type": ..., "layer_types": ..., "rope_theta": THETA},
            LATER,
            architectures=["Eagle3Speculator"],
        ),
    ),
    nested(
        "speculators_0.5",
        config=speculators("0.5.0", norm_before_residual=True, architectures=["Eagle3Speculator"]),
        drop=("embed_tokens",),
        switches=RAW,
        fields={"aux_ids": [0, 2, 4], "id_convention": "depth = id"},
    ),
    nested(
        "speculators_0.9",
        config=speculators(
            "0.9.0",
            {"layer_types": ["sliding_attention"], "sliding_window": 2048},
            norm_before_residual=True,
            norm_output=True,
        ),
        make={"input_norm": True, "qk_norm": True},
        beside=trap,
        switches=RAW | POST,
        fields={"norm_before_fc": True, "norm_output": True, "sliding_window": 2048},
    ),
    nested(
        "speculators_0.9_fc_norm", config=speculators("0.9.0", norm_output=True), make={"fc_norm": True}, switches=POST
    ),
    nested(
        "speculators_window",
        config=speculators("0.9.0", {"layer_types": ["sliding_attention"], "sliding_window": 5}),
        make={"qk_norm": True},
        switches={"windows": [5]},
    ),
    nested(
        "speculators_window_below_full",
        config=speculators("0.9.0", {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}),
        sizes=TWO,
        switches={"windows": [5, None]},
    ),
    nested(
        "speculators_window_named_unused",
        config=speculators("0.9.0", {"sliding_window": 5, "use_sliding_window": False}),
        make={"qk_norm": True},
    ),
    nested(
        "speculators_two_layers",
        config=speculators("0.9.0", norm_before_residual=True),
        sizes=TWO,
        make={"attention_bias": True},
        switches=RAW,
    ),
    nested("speculators_four_states", config=speculators("0.9.0"), sizes=states(4)),
    nested(
        "speculators_nested_rope",
        config=speculators(
            "0.9.0",
            {
                "layer_types": ["sliding_attention"],
                "sliding_window": 64,
                "rope_parameters": {
                    "sliding_attention": {"rope_theta": 100.0, "rope_type": "default"},
                    "full_attention": {"rope_theta": 7.0, "rope_type": "default"},
                },
            },
        ),
        switches={"rope": Rope(100.0)},
    ),
    nested(
        "speculators_yarn_partial",
        config=speculators(
            "0.9.0",
            {"rope_parameters": YARN | {"rope_theta": 100.0, "rope_type": "yarn", "partial_rotary_factor": 0.5}},
        ),
        switches=with_rope("yarn", YARN | {"rope_theta": 100.0}, rotary_dim=4),
    ),
    nested(
        "speculators_peagle",
        config=speculators(
            "0.9.0",
            speculators_model_type="peagle",
            architectures=["PEagleSpeculator"],
            mask_token_id=5,
            norm_before_residual=False,
        ),
        sizes=TWO,
        make={"mask_hidden": True, "input_norm": True},
        switches={"mask_token": 5},
        fields={"parallel": True, "mask_token_id": 5},
    ),
    # --- ModelOpt
    Animal(
        "modelopt_early",
        "modelopt",
        modelopt(),
        rename=midlayer,
        drop=NO_T2D,
        make={"d2t": "unsorted"},
        fields={"double_norm": False},
    ),
    optimised("modelopt_not_exported", rename=prefixed("eagle_module.")),
    optimised("modelopt_in_its_target", rename=prefixed("model.eagle_module."), write_weights=sharded),
    optimised("modelopt_late", fields={"double_norm": True}),
    optimised(
        "modelopt_injected_yarn",
        config=modelopt(rope_scaling=YARN | {"rope_type": "yarn"}, rope_theta=100.0),
        switches=TWICE | with_rope("yarn", YARN | {"rope_theta": 100.0}),
    ),
    optimised(
        "modelopt_no_last_norm",
        config=modelopt(last_norm=False),
        drop=(*NO_T2D, "norm."),
        switches=TWICE | {"final_norm": False},
        fields={"final_norm": False},
    ),
    Animal(
        "modelopt_no_aux",
        "modelopt",
        modelopt(aux=False, ids=[]),
        sizes=states(1),
        make={"fc": False, "d2t": "unsorted"},
        rename=midlayer,
        drop=NO_T2D,
        fields={"use_aux": False},
    ),
    optimised(
        "modelopt_kimi",
        config=modelopt_kimi(),
        sizes=MLA_FULL,
        drop=("embed_tokens",),
        make={"d2t": "none"},
        switches=TWICE | with_rope("yarn", KIMI_ROPE, interleaved=True),
        fields={"attention": "mla"},
    ),
    optimised("modelopt_fp8", beside=quantised, store=float8(False)),
    optimised("modelopt_fp8_rows", beside=quantised, store=float8(True)),
    Animal(
        "megatron",
        "modelopt",
        megatron("LlamaForCausalLMEagle3"),
        rename=midlayer,
        drop=NO_T2D,
        make={"d2t": "unsorted"},
    ),
    Animal(
        "megatron_deep",
        "modelopt",
        megatron("LlamaForCausalLMEagle3Deep"),
        sizes=TWO,
        rename=deep,
        drop=NO_T2D,
        make={"d2t": "unsorted"},
        fields={"num_layers": 2, "double_norm": False},
    ),
    # --- the rest
    Animal("angelslim", "angelslim", angelslim(rope_theta=10000.0), rename=midlayer, switches={"rope": Rope(10000.0)}),
    Animal(
        "angelslim_lost_base",
        "angelslim",
        angelslim(rope_theta=100.0),
        rename=midlayer,
        switches={"rope": Rope(10000.0)},
    ),
    Animal(
        "torchspec",
        "torchspec",
        torchspec(),
        rename=midlayer,
        drop=KEEP,
        make={"fc_norm": True},
        write_weights=with_metadata(torchspec_version="0.1.0"),
        switches=POST,
    ),
    Animal(
        "torchspec_kimi",
        "torchspec",
        torchspec("Eagle3DeepseekV2ForCausalLM"),
        sizes=MLA,
        rename=midlayer,
        drop=KEEP,
        make={"fc_norm": True},
        write_weights=with_metadata(torchspec_version="0.1.0"),
        switches=POST,
        fields={"attention": "mla"},
    ),
    Animal(
        "torchspec_one_query_matrix",
        "torchspec",
        torchspec("Eagle3DeepseekV2ForCausalLM"),
        sizes=MLA_PLAIN,
        drop=KEEP,
        write_weights=with_metadata(torchspec_version="0.1.0"),
        fields={"attention": "mla"},
    ),
    Animal(
        "nemo_peagle",
        "nemo",
        nemo(mask_token_id=5, num_depths=4, parallel_drafting=True),
        sizes=TWO,
        make={"mask_hidden": True},
        rename=nemo_names,
        drop=KEEP,
        switches={"mask_token": 5},
        beside=eagle_meta,
        fields={"parallel": True, "mask_token_id": 5},
    ),
    Animal("nemo", "nemo", nemo(), rename=nemo_names, drop=KEEP, make={"d2t": "unsorted"}, beside=eagle_meta),
    Animal(
        "nemo_fc_norm",
        "nemo",
        nemo(),
        rename=nemo_names,
        drop=KEEP,
        make={"fc_norm": True},
        switches=POST,
        beside=eagle_meta,
    ),
    Animal("tensorrt_llm", "tensorrt", tensorrt(), sizes=TWO, rename=deep, drop=NO_T2D),
    Animal(
        "angelslim_tied_by_mistake",  # its templates tie the head and yet train one of its own
        "angelslim",
        angelslim(rope_theta=10000.0, tie_word_embeddings=True),
        rename=midlayer,
        switches={"rope": Rope(10000.0)},
    ),
)
