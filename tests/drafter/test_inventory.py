"""Three lists of tensors: expected and there, missing with who supplies them, unused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.names import canonical
from drafter.errors import CheckpointError
from tests import tiny
from tests.drafter.helpers import built, opened, refused

WEIGHTS = tiny.tiny_weights()
TWO = replace(tiny.SIZES, layers=2)
Tensors = dict[str, Tensor]


def changed(folder: Path, change: Callable[[Tensors], Any]) -> Checkpoint:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return opened(folder)


def nested(folder: Path, weights: Tensors = WEIGHTS, sizes: tiny.Sizes = tiny.SIZES, **changes: Any) -> Path:
    return tiny.write_nested(folder / "x", weights, sizes, changes=changes)


# --- names


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("model.eagle_module.midlayer.3.hidden_norm.weight", "layers.3.hidden_norm.weight"),
        ("some.where.d2t", "d2t"),
        ("model.t2d", "t2d"),
        ("aux_norm_high.weight", "fc_norm.2.weight"),
        ("mask_hidden", "mask_hidden"),
    ],
)
def test_more_names(written: str, normal: str) -> None:
    assert canonical(written) == normal


def test_the_norm_of_later_layers_has_two_names(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(0, TWO)
    folder, name = nested(tmp_path, weights, TWO), "layers.1.input_layernorm.weight"
    one = opened(folder)
    assert name in one.tensors and any("SGLang" in warning and "layers.1" in warning for warning in one.warnings)
    other = changed(folder, lambda t: t.update({"layers.1.hidden_norm.weight": t.pop(name)}))
    assert name in other.tensors and not any("SGLang" in warning for warning in other.warnings)
    assert other.missing == {}
    both = changed(folder, lambda t: t.update({name: torch.ones(32).bfloat16()}))
    assert both.unused == {
        "layers.1.hidden_norm.weight": "SGLang's name for the norm before this layer; input_layernorm is taken"
    }


# --- layers


def test_layers_that_the_config_does_not_count(tmp_path: Path) -> None:
    one = opened(nested(tmp_path, tiny.tiny_weights(0, TWO)))
    assert "layers.1.mlp.up_proj.weight" in one.unused and one.config.num_layers == 1
    assert any("num_hidden_layers 1" in warning for warning in one.warnings)


def test_layers_that_the_weights_do_not_have(tmp_path: Path) -> None:
    layer = tiny.nested_config(WEIGHTS)["transformer_layer_config"] | {"num_hidden_layers": 48}
    one = opened(nested(tmp_path, transformer_layer_config=layer))
    assert one.config.num_layers == 1 and one.config.evidence["num_layers"].source == "weights"
    assert "48" in one.warnings[0] and one.missing == {}


# --- who supplies what is missing


def test_who_supplies_what_is_missing(tmp_path: Path) -> None:
    def change(tensors: Tensors) -> None:
        for name in ("embed_tokens.weight", "lm_head.weight", "d2t", "norm.weight"):
            del tensors[name]

    one = changed(nested(tmp_path), change)
    assert one.missing["embed_tokens.weight"] == "the target's embed_tokens"
    assert "mapped ids" in one.missing["lm_head.weight"] and "nobody" in one.missing["d2t"]
    assert one.fatal == ("norm.weight",)
    wide = opened(nested(tmp_path, target_hidden_size=16))
    assert wide.fc_inputs == 6
    thin = changed(nested(tmp_path, target_hidden_size=16), lambda t: t.pop("embed_tokens.weight"))
    assert "nobody" in thin.missing["embed_tokens.weight"]


def test_what_only_some_drafters_need(tmp_path: Path) -> None:
    peagle = opened(nested(tmp_path, speculators_model_type="peagle"))
    assert peagle.fatal == ("mask_hidden",)
    last = {"eagle_config": {"use_last_layernorm": False}}
    no_norm = tiny.write_flat(tmp_path / "flat", WEIGHTS, embed=True, changes=last)
    assert changed(no_norm, lambda t: t.pop("norm.weight")).missing == {}
    plain = {"eagle_config": {"use_aux_hidden_state": False}}
    no_aux = tiny.write_flat(tmp_path / "noaux", WEIGHTS, embed=True, changes=plain)
    one = changed(no_aux, lambda t: [t.pop("fc.weight"), t.pop("midlayer.hidden_norm.weight")])
    assert (one.missing, one.fc_inputs) == ({}, 1)


# --- why the others are left


def test_every_unused_tensor_has_its_reason(tmp_path: Path) -> None:
    extra = {
        "verifier_lm_head.weight": "training only",
        "layers.0.self_attn.rotary_emb.inv_freq": "compared",
        "parallel_draft_heads.0.lm_head.weight": "another scheme",
        "eh_proj.weight": "TensorRT-LLM",
        "mask_hidden": "should be used",
        "input_norm.weight": "should be used",
        "zzz": "not read",
    }

    def change(tensors: Tensors) -> None:
        tensors |= {name: torch.ones(4) for name in extra}

    one = changed(nested(tmp_path), change)
    assert one.unused.keys() == extra.keys()
    for name, word in extra.items():
        assert word in one.unused[name], name
    neglected = [warning for warning in one.warnings if "in the file, but" in warning]
    assert len(neglected) == 2 and any("norm_before_fc" in warning for warning in neglected)


def test_all_faults_are_listed_at_once(tmp_path: Path) -> None:
    def change(tensors: Tensors) -> None:
        tensors["layers.0.mlp.up_proj.weight"] = tensors["layers.0.mlp.up_proj.weight"].T.contiguous()
        tensors["norm.weight"] = torch.ones(7)
        del tensors["layers.0.post_attention_layernorm.weight"]

    folder = nested(tmp_path)
    one = changed(folder, change)
    assert one.misshapen == {
        "layers.0.mlp.up_proj.weight": "[32, 48], expected [48, 32]",
        "norm.weight": "[7], expected [32]",
    }
    assert one.fatal == ("layers.0.post_attention_layernorm.weight",)
    with refused(CheckpointError, "post_attention"):
        built(folder)


def test_biases_and_their_flag(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(0, attention_bias=True)
    layer = tiny.nested_config(weights)["transformer_layer_config"]
    one = opened(nested(tmp_path, weights, transformer_layer_config=layer | {"attention_bias": False}))
    assert "computed with them" in one.warnings[0]
    other = opened(nested(tmp_path, WEIGHTS, transformer_layer_config=layer))
    assert "no biases" in other.warnings[0]


def test_a_tied_flag_beside_an_own_head_is_said(tmp_path: Path) -> None:
    one = opened(nested(tmp_path, tie_word_embeddings=True))
    assert "SGLang drops it" in one.warnings[0] and one.missing == {}


def test_an_embedding_of_another_length_is_said(tmp_path: Path) -> None:
    one = changed(nested(tmp_path), lambda t: t.update({"embed_tokens.weight": torch.zeros(99, 32).bfloat16()}))
    assert "99" in one.warnings[0] and "97" in one.warnings[0]


# --- fused projections


def fused(tensors: Tensors) -> None:
    at = "layers.0.self_attn."
    tensors[f"{at}qkv_proj.weight"] = torch.cat([tensors.pop(f"{at}{p}_proj.weight") for p in "qkv"])
    at = "layers.0.mlp."
    tensors[f"{at}gate_up_proj.weight"] = torch.cat([tensors.pop(f"{at}{p}_proj.weight") for p in ("gate", "up")])


def test_fused_projections_are_views_of_their_parts(tmp_path: Path) -> None:
    one = changed(nested(tmp_path), fused)
    assert one.missing == one.unused == one.misshapen == {}
    for name, tensor in WEIGHTS.items():
        assert torch.equal(one.tensors[name].read().to(tensor.dtype), tensor), name


def test_fused_projections_of_other_sizes_are_refused(tmp_path: Path) -> None:
    def short(tensors: Tensors) -> None:
        fused(tensors)
        tensors["layers.0.mlp.gate_up_proj.weight"] = torch.zeros(95, 32)

    with refused(CheckpointError, "gate_up_proj", "48 (up_proj)"):
        changed(nested(tmp_path), short)
    with refused(CheckpointError, "both by itself"):
        changed(
            nested(tmp_path), lambda t: [fused(t), t.update({"layers.0.self_attn.q_proj.weight": torch.zeros(32, 64)})]
        )


# --- the base that old files tell


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("base", [50000.0, 10000.0, 500.0])
def test_the_base_of_stored_frequencies_is_compared(tmp_path: Path, base: float, dtype: torch.dtype) -> None:
    frequencies = base ** (-torch.arange(0, 8, 2) / 8)
    one = changed(nested(tmp_path), lambda t: t.update({"rotary_emb.inv_freq": frequencies.to(dtype)}))
    said = [warning for warning in one.warnings if "inv_freq" in warning]
    # a bfloat16 frequency is too rough to tell 10000 from 50000
    assert bool(said) == (base == 500 or (base == 10000 and dtype != torch.bfloat16))


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [1.0, 2.0], [float("nan"), 1.0], [1.0], [float("inf"), 1.0], [1, 1e-44]]
)
def test_frequencies_that_are_none_say_nothing(tmp_path: Path, values: list[float]) -> None:
    one = changed(nested(tmp_path), lambda t: t.update({"rotary_emb.inv_freq": torch.tensor(values)}))
    assert not any("inv_freq" in warning for warning in one.warnings)
