"""Opening checkpoints and targets: names, shards, what is missing; what cannot be run is refused before it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint.names import canonical
from drafter.checkpoint.target import open_target
from drafter.checkpoint.tensor_files import INDEX, TensorFiles
from drafter.errors import Cancelled, CheckpointError, FileError, PathError
from drafter.model.norm import rms_norm
from drafter.model.weights import build_drafter
from drafter.wiring import Wiring
from tests import tiny
from tests.drafter.helpers import built, opened, placed, refused, same

WEIGHTS = tiny.tiny_weights()


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> Path:
    """Change the tensors of a folder in place."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def shard(folder: Path, parts: int = 3) -> Path:
    """Split model.safetensors into shards with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    where = {}
    for i in range(parts):
        file = f"model-{i + 1:05d}-of-{parts:05d}.safetensors"
        save_file({name: tensors[name] for name in list(tensors)[i::parts]}, folder / file)
        where |= dict.fromkeys(list(tensors)[i::parts], file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


# --- opening


def test_both_layouts_hold_the_same_tensors(tmp_path: Path) -> None:
    flat = opened(tiny.write_flat(tmp_path / "flat", WEIGHTS, embed=True))
    nested = opened(tiny.write_nested(tmp_path / "nested", WEIGHTS))
    assert flat.tensors.keys() == nested.tensors.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        for one in (flat, nested):
            assert torch.equal(one.tensors[name].read().to(tensor.dtype), tensor), name
    for one in (flat, nested):
        assert (one.fc_inputs, one.draft_vocab_size, one.dtype) == (3, 40, "BF16")
        assert (one.missing, one.unused, one.warnings, one.disagreements) == ({}, {}, (), ())
        assert set(one.expected) == set(one.tensors) and one.misshapen == {}
        assert one.weight_bytes == sum(
            t.numel() * (2 if t.is_floating_point() else t.itemsize) for t in WEIGHTS.values()
        )


def test_the_storys_layout_is_opened_with_its_disagreement(tmp_path: Path) -> None:
    checkpoint = opened(tiny.write_flat(tmp_path / "x", WEIGHTS, speculators_config=True))
    assert [d.field for d in checkpoint.disagreements] == ["aux_depths"]
    assert checkpoint.trained_config is not None and checkpoint.trained_config.aux_depths == (0, 2, 4)


def test_a_broken_second_config_is_an_error_of_that_file(tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "x", WEIGHTS, speculators_config=True)
    edit(folder / "config.json", norm_output="yes")
    with refused(CheckpointError, "config.json"):
        opened(folder)


def test_metrics_beside_the_weights_are_read_where_they_can_be(tmp_path: Path) -> None:
    folder = tiny.write_nested(tmp_path / "x", WEIGHTS)
    (folder / "val_metrics.json").write_text('{"loss": 1.5}')
    assert opened(folder).metrics == {"loss": 1.5}
    (folder / "val_metrics.json").write_text("[")
    assert opened(folder).metrics == {}


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    checkpoint = opened(shard(tiny.write_nested(tmp_path / "x", WEIGHTS)))
    assert checkpoint.tensors.keys() == WEIGHTS.keys() and checkpoint.missing == {}
    assert len({t.path for t in checkpoint.tensors.values()}) == 3


@pytest.mark.parametrize(
    ("shard_name", "word"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/x.safetensors", "/etc"),
        (3, "3"),
        ("a/b.safetensors", "a/b"),
        ("x.bin", "x"),
    ],
)
def test_an_index_leads_nowhere_else(tmp_path: Path, shard_name: Any, word: str) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"fc.weight": shard_name}}))
    with refused(FileError, word):
        TensorFiles.of_folder(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": ["fc.weight"]}))
    with refused(FileError, "weight_map"):
        TensorFiles.of_folder(tmp_path)


def test_a_missing_shard_and_a_tensor_in_two_shards_are_errors(tmp_path: Path) -> None:
    folder = shard(tiny.write_nested(tmp_path / "x", WEIGHTS))
    (folder / "model-00002-of-00003.safetensors").unlink()
    with refused(FileError, "model-00002"):
        opened(folder)
    two = tiny.write_nested(tmp_path / "two", WEIGHTS)
    save_file({name: t.bfloat16() for name, t in WEIGHTS.items()}, two / "other.safetensors")
    with refused(FileError, "two files"):
        opened(two)


def test_of_two_files_the_one_with_the_drafter_is_read(tmp_path: Path) -> None:
    """accelerate's state folders hold other models' weights beside the drafter's."""
    folder = tiny.write_nested(tmp_path / "x", WEIGHTS)
    save_file({"norm.weight": torch.zeros(7), "lm_head.weight": torch.zeros(3, 3)}, folder / "model_1.safetensors")
    one = opened(folder)
    assert one.tensors.keys() == WEIGHTS.keys() and "model_1.safetensors is not read" in one.warnings[0]


# --- names


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("fc.weight", "fc.weight"),
        ("model.fc.weight", "fc.weight"),
        ("module._orig_mod.draft_model.fc.weight", "fc.weight"),
        ("model.eagle_module.midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight"),
        ("midlayer.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight"),
        ("midlayer.1.hidden_norm.weight", "layers.1.hidden_norm.weight"),
        ("model.layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"),
        ("aux_norm_mid.weight", "fc_norm.1.weight"),
        ("lm_head.weight", "lm_head.weight"),
    ],
)
def test_names_of_all_producers(written: str, normal: str) -> None:
    assert canonical(written) == normal


def test_two_tensors_of_one_name_are_an_error(tmp_path: Path) -> None:
    folder = rewrite(
        tiny.write_nested(tmp_path / "x", WEIGHTS), lambda t: t.update({"model.fc.weight": t["fc.weight"] + 1})
    )
    with refused(CheckpointError, "model.fc.weight", "both"):
        opened(folder)


def test_missing_and_unused_tensors_are_named(tmp_path: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["layers.0.mlp.upp.weight"] = tensors.pop("layers.0.mlp.up_proj.weight")
        tensors["fc_norm.0.weight"] = torch.ones(32)

    checkpoint = opened(rewrite(tiny.write_nested(tmp_path / "x", WEIGHTS), change))
    assert checkpoint.missing == {"layers.0.mlp.up_proj.weight": "nobody: the forward cannot run"}
    assert checkpoint.fatal == ("layers.0.mlp.up_proj.weight",)
    assert checkpoint.unused == {
        "layers.0.mlp.upp.weight": "should be used: it is no part of a layer as computed here, so another function was "
        "trained",
        "fc_norm.0.weight": "should be used: fc_norm is not set",
    }
    assert any("fc_norm.0.weight" in warning for warning in checkpoint.warnings)


@pytest.mark.parametrize(("flag", "tensor"), [("norm_before_fc", "input_norm.weight"), ("fc_norm", "fc_norm.2.weight")])
def test_a_norm_that_the_config_asks_for_is_missed(tmp_path: Path, flag: str, tensor: str) -> None:
    folder = tiny.write_nested(tmp_path / "x", WEIGHTS, changes={flag: True})
    assert tensor in opened(folder).missing
    with refused(CheckpointError, "norm"):
        built(folder)


# --- sizes against the weights


def test_a_head_size_that_is_only_a_default_gives_way_to_the_weights(tmp_path: Path) -> None:
    sizes = replace(tiny.SIZES, head_dim=12)
    folder = tiny.write_flat(tmp_path / "x", tiny.tiny_weights(0, sizes), sizes, changes={"head_dim": None})
    checkpoint = opened(folder)
    assert checkpoint.config.head_dim == 12 and "head_dim" in checkpoint.warnings[0]
    assert checkpoint.config.evidence["head_dim"].source == "weights"
    edit(folder / "config.json", head_dim=8)
    with refused(CheckpointError, "q_proj", "4 heads of 8"):
        opened(folder)


def test_a_head_of_another_size_than_stated_is_said(tmp_path: Path) -> None:
    checkpoint = opened(tiny.write_nested(tmp_path / "x", WEIGHTS, changes={"draft_vocab_size": 41}))
    assert "40" in checkpoint.warnings[0] and "41" in checkpoint.warnings[0]
    assert checkpoint.draft_vocab_size == 40


@pytest.mark.parametrize("shape", [(32, 95), (31, 96), (32,), (), (32, 3, 32)])
def test_an_fc_that_does_not_fit_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    folder = rewrite(tiny.write_nested(tmp_path / "x", WEIGHTS), lambda t: t.update({"fc.weight": torch.zeros(shape)}))
    with refused(CheckpointError, "fc.weight"):
        opened(folder)


EXTRAS = {"input_norm": True, "attention_bias": True, "mlp_bias": True, "qk_norm": True}


@pytest.mark.parametrize("shape", [(3,), (), (2, 3, 4), (10**12, 0)])
def test_any_tensor_of_another_shape_is_refused_by_name(tmp_path: Path, shape: tuple[int, ...]) -> None:
    weights = tiny.tiny_weights(0, **EXTRAS)
    weights["fc.bias"] = torch.zeros(32)
    original = load_file(tiny.write_nested(tmp_path / "x", weights) / "model.safetensors")
    for name in original:
        if name not in ("t2d", "fc.weight"):
            kind = torch.int64 if name == "d2t" else torch.bfloat16
            save_file(original | {name: torch.zeros(shape, dtype=kind)}, tmp_path / "x/model.safetensors")
            word = "embedding" if name == "embed_tokens.weight" else name.removesuffix(".weight").split(".")[-1]
            with refused(CheckpointError, word):
                built(tmp_path / "x")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("name", ["fc.weight", "fc_norm.2.weight", "lm_head.weight", "embed_tokens.weight"])
def test_quantised_weights_are_refused_by_name(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    folder = tiny.write_nested(tmp_path / "x", tiny.tiny_weights(0, fc_norm=True))
    with refused(CheckpointError, name, "plain floats"):
        built(rewrite(folder, lambda t: t.update({name: t[name].to(dtype)})))


@pytest.mark.parametrize(
    ("layer", "top", "word"),
    [
        ({"rope_parameters": {"rope_type": "longrope", "factor": 4, "rope_theta": 1e4}}, {}, "longrope"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, {}, "factor"),
        ({"hidden_act": "gelu"}, {}, "gelu"),
        ({"num_key_value_heads": 3}, {}, "3 key heads"),
        ({"vocab_size": 39}, {}, "vocabulary"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused_by_name(
    tmp_path: Path, layer: dict[str, Any], top: dict[str, Any], word: str
) -> None:
    config = tiny.nested_config(WEIGHTS)["transformer_layer_config"]
    folder = tiny.write_nested(tmp_path / "x", WEIGHTS, changes={"transformer_layer_config": config | layer, **top})
    with refused(CheckpointError, word):
        built(folder)


def test_other_refusals(tmp_path: Path) -> None:
    bare = tiny.write_nested(tmp_path / "bare", WEIGHTS)
    (bare / "model.safetensors").unlink()
    assert not opened(bare).has_weights
    with refused(CheckpointError, "without weights"):
        built(bare)


def test_loading_can_be_cancelled(tmp_path: Path) -> None:
    def stop() -> None:
        raise Cancelled

    checkpoint = opened(tiny.write_nested(tmp_path / "x", WEIGHTS))
    with pytest.raises(Cancelled):
        build_drafter(checkpoint, None, placed(), stop)


# --- what comes from the target


def test_the_embedding_comes_from_the_target_where_the_checkpoint_has_none(tmp_path: Path) -> None:
    folder, target = tiny.write_flat(tmp_path / "x", WEIGHTS), tiny.write_target(tmp_path / "target", WEIGHTS)
    drafter = built(folder, target=target)
    table = drafter.embedding(Wiring.trained(drafter.config))
    assert table.source == "the target's"
    assert torch.equal(table.rows(torch.tensor([5, 3, 5])).float(), WEIGHTS["embed_tokens.weight"][[5, 3, 5]])
    with refused(CheckpointError, "--target"):
        built(folder)
    with refused(CheckpointError, "[97, 24]"):
        other = replace(tiny.SIZES, target_hidden=24)
        thin = {"embed_tokens.weight": torch.zeros(97, 24)}
        built(folder, target=tiny.write_target(tmp_path / "thin", thin, other))


def test_a_head_comes_from_the_rows_of_the_target(tmp_path: Path) -> None:
    folder = rewrite(tiny.write_nested(tmp_path / "x", WEIGHTS), lambda t: t.pop("lm_head.weight"))
    drafter = built(folder, target=tiny.write_target(tmp_path / "target", WEIGHTS))
    hidden, wiring = torch.randn(2, 32), Wiring.trained(drafter.config)
    rows = tiny.target_weights(WEIGHTS)["lm_head.weight"][torch.arange(40) + WEIGHTS["d2t"]]
    normed = rms_norm(hidden, WEIGHTS["norm.weight"], 1e-5)
    assert torch.allclose(drafter.logits(hidden, wiring), normed @ rows.T, atol=1e-5)
    with refused(CheckpointError, "lm_head", "--target"):
        built(folder)


def test_a_target_is_opened_by_header(tmp_path: Path) -> None:
    truth = tiny.target_weights(WEIGHTS)
    for folder in (tiny.write_target(tmp_path / "a", WEIGHTS), shard(tiny.write_target(tmp_path / "b", WEIGHTS), 2)):
        target = open_target(folder)
        assert (target.num_layers, target.hidden_size, target.vocab_size, target.rms_norm_eps) == (8, 32, 97, 1e-5)
        stored = {
            "model.embed_tokens.weight": target.embed,
            "lm_head.weight": target.head,
            "model.norm.weight": target.norm,
        }
        for name, tensor in stored.items():
            assert tensor is not None and same(tensor.read(), truth[name].bfloat16())
        assert not target.tied and not target.norm_is_one_plus_weight


def test_a_tied_target_and_one_inside_a_larger_model(tmp_path: Path) -> None:
    tied = open_target(tiny.write_target(tmp_path / "tied", WEIGHTS, lm_head=False))
    assert tied.tied and tied.head == tied.embed
    folder = tiny.write_target(tmp_path / "vlm", WEIGHTS, norm=False)
    rewrite(folder, lambda t: t.update({f"language_model.{k}": t.pop(k) for k in list(t)}))
    edit(folder / "config.json", hidden_size=None, text_config={"hidden_size": 32, "model_type": "gemma3_text"})
    target = open_target(folder)
    assert target.hidden_size == 32 and target.norm_is_one_plus_weight and target.norm is None
    assert target.embed is not None and target.embed.name == "language_model.model.embed_tokens.weight"


def test_of_two_embeddings_the_one_of_the_right_shape_is_taken(tmp_path: Path) -> None:
    folder = rewrite(
        tiny.write_target(tmp_path / "x", WEIGHTS), lambda t: t.update({"tower.embed_tokens.weight": torch.zeros(4, 4)})
    )
    for one in (folder, shard(folder, 2)):
        embed = open_target(one).embed
        assert embed is not None and embed.name == "model.embed_tokens.weight"


def test_targets_that_are_none(tmp_path: Path) -> None:
    for name in ("absent", "x" * 300):
        with refused(PathError, "--target"):
            open_target(tmp_path / name)
    with refused(PathError, "config.json"):
        open_target(tmp_path)


@pytest.mark.parametrize("shape", [(), (3,), (4, 0), (2, 3, 4)])
@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"])
def test_a_target_with_other_shapes_is_refused(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    folder = tiny.write_target(tmp_path / "x", WEIGHTS)
    if name != "model.norm.weight" or shape != (3,):
        with refused(CheckpointError, name):
            open_target(rewrite(folder, lambda t: t.update({name: torch.zeros(shape)})))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "32"),
        ("vocab_size", -1),
        ("num_hidden_layers", True),
        ("rms_norm_eps", "x"),
        ("rms_norm_eps", []),
        ("rms_norm_eps", 10**400),
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", True),
    ],
)
def test_a_target_with_malformed_fields_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    folder = tiny.write_target(tmp_path / "x", WEIGHTS)
    edit(folder / "config.json", **{key: value})
    with refused(CheckpointError, key):
        open_target(folder)


def test_the_trained_function_is_what_training_wrote(tmp_path: Path) -> None:
    """A flattened config that lost norm_before_residual must not change what `trained` computes."""
    folder = tiny.write_flat(tmp_path / "x", WEIGHTS, speculators_config=True, norm_before_residual=True)
    config = json.loads((folder / "config.json").read_text())
    del config["norm_before_residual"]
    (folder / "config.json").write_text(json.dumps(config))
    one = opened(folder)
    assert not one.config.norm_before_residual and one.run_config.norm_before_residual
    assert any(d.field == "norm_before_residual" for d in one.disagreements)
    assert Wiring.trained(one.run_config).norm_before_residual


def test_a_broken_second_config_is_a_warning(tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "x", WEIGHTS, speculators_config=True)
    (folder / "config_speculators.json").write_text('{"speculators_model_type": "eagle3"}')
    one = opened(folder)
    assert one.trained_config is None and "what training wrote is not known" in one.warnings[0]


def test_a_layer_with_more_to_it_is_refused(tmp_path: Path) -> None:
    """NeMo's gated attention: its gate would be left out without a word, and every number be wrong."""
    gate = "layers.0.self_attn.g_proj.weight"
    folder = rewrite(tiny.write_nested(tmp_path / "x", WEIGHTS), lambda t: t.update({gate: torch.ones(4, 4)}))
    with refused(CheckpointError, gate, "another function was trained"):
        built(folder)
