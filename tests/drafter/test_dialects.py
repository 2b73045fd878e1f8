"""Who wrote a checkpoint, by config keys and by what lies beside them; what each producer means by the same key."""

from __future__ import annotations

from typing import Any

import pytest

from drafter.checkpoint.clues import NO_CLUES, Clues
from drafter.checkpoint.config import DrafterConfig, Mla, Rope
from drafter.checkpoint.dialects import read_config
from drafter.checkpoint.names import canonical
from drafter.errors import CheckpointError
from tests import tiny
from tests.drafter.helpers import refused

WEIGHTS = tiny.tiny_weights()
EAGLE = {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}


def clues(weights: dict[str, Any] = WEIGHTS, name: str = "midlayer.", **others: Any) -> Clues:
    written = {key.replace("layers.0.", name): tensor for key, tensor in weights.items()}
    shapes = {canonical(key): tuple(tensor.shape) for key, tensor in written.items()}
    return Clues(shapes, frozenset(written), **others)


def table(**changes: Any) -> dict[str, Any]:
    config = tiny.flat_config(WEIGHTS) | changes
    for key in ("norm_before_residual", "norm_output"):
        config.pop(key) if key not in changes else None
    return {key: value for key, value in config.items() if value is not None}


def read(config: dict[str, Any], given: Clues = NO_CLUES) -> DrafterConfig:
    return read_config(config, "config.json", given)


LLAMA = table(architectures=["LlamaForCausalLM"], eagle_config=None)
NEMO = Clues(written=frozenset({"model.fc.weight", "lm_head.weight", "d2t"}), files=frozenset({"eagle_meta.pt"}))
DEEP = {"architectures": ["LlamaForCausalLMEagle3Deep"]}


@pytest.mark.parametrize(
    ("config", "given", "dialect", "key"),
    [
        (table(), NO_CLUES, "flat", "architectures"),
        (table(), clues(), "flat", "architectures"),
        (LLAMA, clues(), "safeailab", "midlayer.*"),
        (LLAMA, NO_CLUES, "flat", "draft_vocab_size"),
        (table(architectures=["Eagle3LlamaForCausalLM"]), clues(), "vllm", "architectures"),
        (table(architectures=["Eagle3Qwen3vlForCausalLM"]), NO_CLUES, "vllm", "architectures"),
        (table(architectures=["Eagle3DeepseekV2ForCausalLM"]), NO_CLUES, "flat", "architectures"),
        (
            table(architectures=["Eagle3LlamaForCausalLM"], modal_type="LLM"),
            clues(),
            "angelslim",
            "modal_type",
        ),
        (table(target_model_type="qwen3"), NO_CLUES, "angelslim", "target_model_type"),
        (table(_torchspec_version="0.1"), clues(), "torchspec", "_torchspec_version"),
        (table(), clues(metadata={"torchspec_version": "0.1"}), "torchspec", "torchspec_version"),
        (table(eagle_config={"use_last_layernorm": True}), NO_CLUES, "modelopt", "eagle_config.use_last_layernorm"),
        (table(parallel_draft_step=2), NO_CLUES, "modelopt", "parallel_draft_step"),
        (table(), clues(files=frozenset({"hf_quant_config.json"})), "modelopt", "hf_quant_config.json"),
        (table(**DEEP), NO_CLUES, "modelopt", "architectures"),
        (table(architectures=["EAGLE3LlamaForCausalLM"]), NO_CLUES, "modelopt", "architectures"),
        (table(), NEMO, "nemo", "eagle_meta.pt"),
        (table(architectures=["LlamaEagle3DraftModel"]), NO_CLUES, "nemo", "architectures"),
        (table(), clues(state_keys=frozenset({"draft_state_dict"})), "specforge", "draft_state_dict"),
        (table(), clues(files=frozenset({"training_state.pt"})), "specforge", "training_state.pt"),
        (table(architectures=["PEagleDraftModel"]), NO_CLUES, "specforge", "architectures"),
        (table(norm_output=True), clues(), "specforge", "norm_output"),
        (table(norm_output=True, norm_before_residual=False), clues(), "flat", "architectures"),
        (table(norm_output=True), clues(name="layers.0."), "flat", "architectures"),
        (tiny.nested_config(WEIGHTS), clues(), "speculators", "speculators_version"),
    ],
)
def test_who_wrote_it_and_what_shows_it(config: dict[str, Any], given: Clues, dialect: str, key: str) -> None:
    one = read(config, given)
    assert (one.dialect, one.evidence["dialect"].key) == (dialect, key)
    for name, value, evidence in one.items():
        assert evidence is not None, name
        assert not evidence.is_default or evidence.note, name
        if name in ("final_norm", "double_norm", "parallel", "mask_token_id", "logit_scale", "mla"):
            assert evidence.value == value, name


@pytest.mark.parametrize(
    ("config", "given", "depths"),
    [
        (table(), clues(), (2, 4, 6)),
        (table(architectures=["Eagle3LlamaForCausalLM"]), clues(), (1, 3, 5)),
        (table(architectures=["Eagle3LlamaForCausalLM"], modal_type="LLM"), clues(), (2, 4, 6)),
        (table(_torchspec_version="1"), clues(), (2, 4, 6)),
        (table(_torchspec_version="1"), clues(name="layers.0."), (1, 3, 5)),
        (table(**DEEP), clues(), (2, 4, 6)),
        (table(architectures=["LlamaEagle3DraftModel"]), clues(), (2, 4, 6)),
        (LLAMA, clues(), None),
        (table(eagle_config={"eagle_aux_hidden_state_layer_ids": []}), clues(), ()),
    ],
)
def test_what_a_layer_id_means(config: dict[str, Any], given: Clues, depths: tuple[int, ...] | None) -> None:
    assert read(config, given).aux_depths == depths


def test_two_lists_of_layer_ids_are_compared_as_their_readers_read_them() -> None:
    top = "eagle_aux_hidden_state_layer_ids"
    assert not read(table(**{top: [2, 4, 6]})).warnings
    assert "vLLM reads" in read(table(**{top: [1, 3, 5]})).warnings[0]
    both = read(table(architectures=["Eagle3LlamaForCausalLM"], **{top: [2, 4, 6]}))
    assert both.aux_depths == (2, 4, 6) and not both.warnings
    assert "top level" in read(table(architectures=["Eagle3LlamaForCausalLM"])).warnings[0]


# --- one key, two meanings


def test_norm_output_of_specforge_is_the_norm_before_the_head() -> None:
    state = clues(files=frozenset({"training_state.pt"}))
    for stated, final in ((True, True), (False, False), (None, True)):
        one = read(table() | ({} if stated is None else {"norm_output": stated}), state)
        assert (one.final_norm, one.norm_output) == (final, False)
        assert bool(one.warnings) == (stated is not None)
        assert one.evidence["final_norm"].is_default == (stated is None)


def test_norm_output_of_the_others_is_what_is_fed_back() -> None:
    for config in (table(_torchspec_version="1"), table(architectures=["LlamaEagle3DraftModel"])):
        one = read(config | {"norm_output": True}, clues(name="layers.0."))
        assert (one.final_norm, one.norm_output, one.warnings) == (True, True, ())


def test_norm_output_of_nobody_known_is_the_servers_with_a_warning() -> None:
    one = read(table(norm_output=True))
    assert one.norm_output and "SpecForge" in one.warnings[0]


@pytest.mark.parametrize("name", ["layers.0.", "midlayer."])
@pytest.mark.parametrize("first", [True, False, None])
def test_modelopt_norms_twice_since_it_names_the_layer_layers_0(name: str, first: bool | None) -> None:
    inner = {"use_last_layernorm": False} | ({} if first is None else {"use_input_layernorm_in_first_layer": first})
    one = read(table(eagle_config=inner), clues(name=name))
    assert one.double_norm == (name == "layers.0." and first is not False)
    assert not one.final_norm and one.evidence["final_norm"].key == "eagle_config.use_last_layernorm"


def test_modelopts_parallel_heads_and_added_yarn_are_said() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0}
    one = read(table(eagle_config={"parallel_draft_step": 3}, rope_scaling=yarn), clues())
    assert not one.parallel and len(one.warnings) == 2 and one.rope.type == "yarn"


def test_trainers_that_pass_no_base_are_run_with_theirs() -> None:
    for kind in (None, {"type": "linear", "factor": 2.0}):
        one = read(table(modal_type="LLM", rope_scaling=kind))
        assert (one.rope.base, one.stated_rope.base) == (10000, tiny.SIZES.rope_theta)
        assert "50000" in one.warnings[0] and one.evidence["rope"].is_default
    llama3 = {"rope_type": "llama3", "factor": 2.0}
    assert read(table(modal_type="LLM", rope_scaling=llama3)).rope.base == tiny.SIZES.rope_theta
    assert read(table()).stated_rope == read(table()).rope == Rope(tiny.SIZES.rope_theta)


def test_safeailab_divides_whatever_head_dim_says() -> None:
    one = read(LLAMA | {"head_dim": 64}, clues())
    assert one.head_dim == 8 and one.evidence["head_dim"].is_default


@pytest.mark.parametrize(
    ("config", "parallel", "token"),
    [
        (tiny.nested_config(WEIGHTS) | {"speculators_model_type": "peagle", "mask_token_id": 0}, True, 0),
        (tiny.nested_config(WEIGHTS), False, None),
        (table(architectures=["PEagleDraftModel"], mask_token_id=5), True, 5),
        (table(architectures=["PeagleQwen3ForCausalLM"], mask_token_id=5), True, 5),
        (table(architectures=["LlamaEagle3DraftModel"], parallel_drafting=True, mask_token_id=5), True, 5),
    ],
)
def test_parallel_drafting(config: dict[str, Any], parallel: bool, token: int | None) -> None:
    one = read(config)
    assert (one.parallel, one.mask_token_id) == (parallel, token)


@pytest.mark.parametrize("value", [-1, True, "5", 2**40])
def test_what_is_no_mask_token_is_refused(value: Any) -> None:
    with refused(CheckpointError, "mask_token_id"):
        read(table(mask_token_id=value))


def test_modelopts_converter_is_not_believed_in_silence() -> None:
    one = read(tiny.nested_config(WEIGHTS, norm_before_residual=True) | {"speculators_version": "0.1.0.dev14"})
    assert one.norm_before_residual and "ModelOpt" in one.warnings[0] and one.id_convention == "depth = id + 1"


def test_speculators_take_the_sliding_variant_of_rope() -> None:
    nested = {"full_attention": {"rope_theta": 7.0}, "sliding_attention": {"rope_theta": 9.0}}
    config = tiny.nested_config(WEIGHTS)
    config["transformer_layer_config"]["rope_parameters"] = nested
    assert read(config).rope == Rope(9.0)
    assert "sliding_attention" in read(config).evidence["rope"].key
    assert read(table(rope_parameters=nested)).rope == Rope(7.0)


# --- latent attention

SIZES = {"kv_lora_rank": 12, "q_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5}
LATENT = {
    "layers.0.self_attn.q_a_proj.weight": (10, 64),
    "layers.0.self_attn.q_a_layernorm.weight": (10,),
    "layers.0.self_attn.kv_a_proj_with_mqa.weight": (16, 64),
    "layers.0.self_attn.kv_a_layernorm.weight": (12,),
    "layers.0.self_attn.o_proj.weight": (32, 20),
}


def test_latent_attention_by_config_or_by_tensors() -> None:
    expected = Mla(10, 12, 6, 4, 5)
    for given in (NO_CLUES, Clues(LATENT)):
        one = read(table(**SIZES), given)
        assert (one.attention, one.mla, one.rope.interleaved) == ("mla", expected, True)
    partly = {key: value for key, value in SIZES.items() if key not in ("kv_lora_rank", "q_lora_rank")}
    assert read(table(**partly), Clues(LATENT)).mla == expected
    assert read(table(**(SIZES | {"q_lora_rank": None}))).mla == Mla(None, 12, 6, 4, 5)


def test_the_tensors_of_ordinary_attention_win_over_a_latent_config() -> None:
    one = read(table(**SIZES), clues())
    assert (one.attention, one.mla, one.rope.interleaved) == ("gqa", None, False)
    assert "ordinary attention" in one.warnings[0]


@pytest.mark.parametrize("key", ["kv_lora_rank", "qk_nope_head_dim", "v_head_dim"])
@pytest.mark.parametrize("value", [0, -1, True, "12", 2**40, 1.5, []])
def test_malformed_sizes_of_latent_attention_are_refused(key: str, value: Any) -> None:
    with refused(CheckpointError, key):
        read(table(**(SIZES | {key: value})))


# --- other models, by their tensors


def test_what_the_tensors_show_is_named() -> None:
    old = {key: tuple(t.shape) for key, t in WEIGHTS.items() if "hidden_norm" not in key}
    old["fc.weight"] = (32, 64)
    old["layers.0.self_attn.q_proj.weight"] = (32, 32)
    with refused(CheckpointError, "EAGLE-1/2", "[32, 64]"):
        read(LLAMA, Clues(old, frozenset(old)))
    plain = {key: shape for key, shape in old.items() if key != "fc.weight"}
    with refused(CheckpointError, "a language model", "no fc, 1 decoder layers"):
        read(LLAMA, Clues(plain, frozenset(plain)))


def test_an_unknown_class_is_known_by_its_tensors() -> None:
    config = table(architectures=["Qwen3ForCausalLM"], eagle_config=None, draft_vocab_size=None)
    one = read(config, clues(name="layers.0."))
    assert one.dialect == "flat" and "Qwen3ForCausalLM" in one.warnings[0]
    with refused(CheckpointError, "Qwen3ForCausalLM"):
        read(config)
