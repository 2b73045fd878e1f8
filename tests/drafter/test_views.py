"""Served views: every switch against the plain reference, every version's switches against a table written by hand,
and what the differences cost against counts made here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.drafting.chains import draft_ids
from drafter.errors import CheckpointError, DrafterError, WiringError
from drafter.options import Options
from drafter.scoring.compare import mcnemar
from drafter.serving.unserved import unserved
from drafter.serving.view_case import CANNOT, ORDERING
from drafter.serving.view_scores import Scored, cost
from drafter.serving.views import WORTH, parse_view
from drafter.session import Session
from drafter.views import plan_name, views_json
from drafter.wiring import SWITCHES, Wiring, depth_of
from tests import reference, tiny
from tests.drafter.helpers import refused
from tests.drafter.static_faults import drop
from tests.drafter.static_faults import weights as edit_weights
from tests.tiny_world import V1_SLOTS, World, tiny_world

torch.set_num_threads(1)
S, K = tiny.SIZES, 4
Weights = dict[str, Tensor]
EVERYTHING: dict[str, Any] = {
    "input_norm": True,
    "fc_norm": True,
    "attention_bias": True,
    "fc_bias": True,
    "qk_norm": True,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("views"), count=3)


def session(folder: Path, weights: Weights, sizes: tiny.Sizes = S, nested: bool = False, **options: Any) -> Session:
    """A session on a float32 checkpoint of `weights` and one sample; `options` of `write_flat` or `write_nested`."""
    write = tiny.write_nested if nested else tiny.write_flat
    own = {k: options.pop(k) for k in ("view", "slots", "family", "layers", "orderings") if k in options}
    depths = options.pop("depths", tiny.V1_DEPTHS)
    write(folder / "output/7", weights, sizes, dtype=torch.float32, **options)
    target = tiny.write_target(folder / "target", weights, sizes, dtype=torch.float32)
    sample = tiny.write_v1_sample(folder / "s/data_0.pt", tiny.tiny_sample(0, weights, sizes, depths=depths))
    asked = {"samples": (sample,), "target": target, "device": "cpu", "dtype": "float32", "depth": K, **own}
    made = Session(Options(folder / "output", **asked))
    made.choose_checkpoint(made.pick(made.find()))
    made.choose_sample(sample)
    return made


def without(*ends: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: t for name, t in weights.items() if not name.endswith(ends)}


def ones(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {**weights, name: torch.ones(S.hidden)}


# --- the switches, against the reference with those tensors taken away

TWO = replace(S, layers=2)
QKV = tuple(f"layers.0.self_attn.{part}_proj.bias" for part in "qkv")
# switch, value, sizes, options of the weights, what is left of them for the reference
LEFT_OUT: dict[str, tuple[str, str, tiny.Sizes, dict[str, Any], Callable[[Weights], Weights]]] = {
    "qkv_bias": ("qkv_bias", "off", TWO, {"attention_bias": True}, without(*QKV)),
    "qk_norm": ("qk_norm", "off", TWO, {"qk_norm": True}, without("q_norm.weight", "k_norm.weight")),
    "fc_norm": ("fc_norm", "off", S, EVERYTHING, without(*(f"fc_norm.{i}.weight" for i in range(3)))),
    "norm_before_fc": ("norm_before_fc", "off", S, EVERYTHING, without("input_norm.weight")),
    "fc_bias": ("fc_bias", "off", S, {"fc_bias": True}, without("fc.bias")),
    "upper_norms": ("upper_norms", "ones", TWO, {}, ones("layers.1.input_layernorm.weight")),
    "fc": ("fc", "skipped", replace(S, states=1), {}, without("fc.weight")),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_tensor_that_a_view_leaves_out(tmp_path: Path, name: str) -> None:
    switch, value, sizes, made, left = LEFT_OUT[name]
    weights = tiny.tiny_weights(4, sizes, **made)
    opened = session(tmp_path, weights, sizes, nested=True, slots=V1_SLOTS, layer_ids=None)
    run, ordering = opened.run(), tuple(range(sizes.states))
    plain = draft_ids(run, ordering, opened.wiring, K)
    ours = draft_ids(run, ordering, opened.wiring.switched(switch, value), K)
    text = tiny.tiny_sample(0, weights, sizes)
    for drafted, kept in ((plain, weights), (ours, left(weights))):
        forced = tiny.reference(kept, sizes).teacher_forced(text.ids, text.slots[:, list(ordering)], K)
        truth = reference.predictions(forced)
        for k, row in enumerate(truth):
            assert [int(i) for i in drafted[k]] == [-1 if i is None else i for i in row], (name, k)
    assert not torch.equal(plain, ours)  # else the comparison says nothing
    assert torch.equal(draft_ids(run, ordering, opened.wiring, K), plain)  # and nothing of it stays


def test_what_stands_in_for_tokens_not_drafted_yet_is_fused_the_same_way(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(4, fc_norm=True, mask_hidden=True)
    changes = {"speculators_model_type": "peagle", "mask_token_id": 5}
    opened = session(tmp_path, weights, nested=True, changes=changes)
    text, run = tiny.tiny_sample(0, weights), opened.run()
    drafted = {}
    for value, kept in (("on", weights), ("off", without(*(f"fc_norm.{i}.weight" for i in range(3)))(weights))):
        forced = tiny.reference(kept, mask_token=5).parallel(text.ids, text.slots[:, :3], K)
        ours = draft_ids(run, (0, 1, 2), opened.wiring.switched("fc_norm", value), K)
        for k, row in enumerate(reference.predictions(forced)):
            known = [(int(i), truth) for i, truth in zip(ours[k], row, strict=True) if truth is not None]
            assert [a for a, _ in known] == [b for _, b in known]
        drafted[value] = ours
    assert not torch.equal(drafted["on"][1:], drafted["off"][1:])


def test_a_lost_final_norm_is_ones_in_a_server(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(4)
    lost = {name: t for name, t in weights.items() if name != "norm.weight"}
    changes = {"eagle_config": {"use_aux_hidden_state": True, "use_last_layernorm": False}, "norm_output": None}
    opened = session(tmp_path, lost, changes=changes)
    served = opened.served("sglang@0.5.23")
    assert served is not None and served.wiring.final_norm and served.wiring.lost_norm == "ones"
    assert not opened.wiring.final_norm
    text = tiny.tiny_sample(0, weights)
    forced = tiny.reference(ones("norm.weight")(weights)).teacher_forced(text.ids, text.slots[:, :3], 1)
    ours = draft_ids(opened.run(), (0, 1, 2), served.wiring, 1)[0].tolist()
    assert ours == reference.predictions(forced)[0]
    with refused(CheckpointError, "norm.weight"):
        draft_ids(opened.run(), (0, 1, 2), replace(served.wiring, lost_norm="refused"), 1)


@pytest.mark.parametrize(
    ("window", "windows", "moving"), [("none", [None], False), ("still", [3], False), ("moving", [3], True)]
)
def test_a_window_that_a_view_does_not_have(
    tmp_path: Path, window: str, windows: list[int | None], moving: bool
) -> None:
    weights = tiny.tiny_weights(4)
    layer = {"layer_types": ["sliding_attention"], "sliding_window": 3}
    opened = session(tmp_path, weights, nested=True, layer=layer)
    text = tiny.tiny_sample(0, weights)
    truth = tiny.reference(weights, windows=windows, moving_windows=moving)
    forced = reference.predictions(truth.teacher_forced(text.ids, text.slots[:, :3], K))
    ours = draft_ids(opened.run(), (0, 1, 2), opened.wiring.switched("window", window), K)
    if window == "moving":  # the reference never leaves out a row's own steps; within the window nobody does
        forced, ours = forced[:3], ours[:3]
    assert [[int(i) for i in row] for row in ours] == [[-1 if i is None else i for i in row] for row in forced]


# --- names


def test_views_by_name() -> None:
    assert parse_view("trained") is None
    for text, name in {"sglang": "sglang@0.5.23", "vllm": "vllm@0.33.0", "SGLang@v0.5.9": "sglang@0.5.9"}.items():
        assert str(parse_view(text)) == name
    assert all(parse_view(name) is not None for name in WORTH)


@pytest.mark.parametrize("text", ["", "Trained", "trtllm", "trtllm@main", "sglang@", "sglang@x", "llama", "x\x1b[1m"])
def test_what_is_no_view_is_refused(text: str) -> None:
    with refused(WiringError):
        parse_view(text)
    with refused(WiringError):
        Options(Path("x"), view=text)


# --- the switches of each version, by hand (checkpoints.md 4.10)

EACH = {
    "sglang@0.5.9": {"rope_base": "10000", "fc_norm": "off", "norm_output": "off", "positions": "late"},
    "sglang@0.5.10": {"fc_norm": "off", "norm_output": "off", "positions": "late"},
    "sglang@0.5.11": {"fc_norm": "off", "norm_output": "off", "positions": "late"},
    "sglang@0.5.11.post1": {"fc_norm": "off", "norm_output": "off", "positions": "late"},
    "sglang@0.5.12": {},
    "sglang@0.5.13": {},
    "sglang@0.5.14": {},
    "sglang@0.5.17": {"norm_before_fc": "on"},
    "sglang@0.5.23": {"norm_before_fc": "on"},
}
ALWAYS = {"norm_before_residual": "off", "qkv_bias": "off", "qk_norm": "off", "embedding": "target", "fc_bias": "off"}


@pytest.mark.parametrize("version", EACH)
def test_what_each_version_of_sglang_changes(tmp_path: Path, version: str) -> None:
    weights = tiny.tiny_weights(4, **EVERYTHING)
    rope = {"rope_theta": None, "rope_parameters": {"rope_theta": S.rope_theta, "rope_type": "default"}}
    opened = session(tmp_path, weights, embed=True, norm_before_residual=True, norm_output=True, changes=rope)
    view = opened.served(version)
    assert view is not None and not view.refused
    trained = Wiring.trained(opened.checkpoint.run_config)
    changed = {n: view.wiring.value(n) for n in SWITCHES if view.wiring.value(n) != trained.value(n)}
    expected = {**ALWAYS, "norm_before_fc": "off", **EACH[version]}
    assert changed == {n: v for n, v in expected.items() if trained.value(n) != v}
    assert view.wiring.view == version == view.name
    names = [difference.name for difference in view.differences]
    assert len(names) == len(set(names)) and {n.replace("rope", "rope_base") for n in names} == set(changed)
    for difference in view.differences:  # each says what, why and how
        assert difference.trained != difference.served and difference.why and difference.cure and difference.computed
    # and the list that `fix` shows of what a server leaves out tells the same
    elsewhere = {"fc_bias", "positions", "rope"}
    assert len(unserved(opened.checkpoint, view.server)) == len(set(names) - elsewhere)


def test_what_vllm_changes(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(4, **EVERYTHING)
    opened = session(tmp_path, weights, embed=True, norm_before_residual=True, norm_output=True)
    view = opened.served("vllm@0.33.0")
    assert view is not None and {d.name: d.served for d in view.differences} == {"fc_bias": "off", "qk_norm": "off"}
    qwen = session(tmp_path / "q", weights, nested=True, norm_before_residual=True).served("vllm")
    assert qwen is not None and [d.name for d in qwen.differences] == ["fc_bias"] and not qwen.refused


@pytest.mark.parametrize("kind", ["eagle3", "peagle"])
def test_vllm_has_its_own_default_of_the_residual(tmp_path: Path, kind: str) -> None:
    weights = tiny.tiny_weights(4, mask_hidden=True)
    changes = {"norm_before_residual": None, "speculators_model_type": kind, "mask_token_id": 5}
    opened = session(tmp_path, weights, nested=True, changes=changes)
    view = opened.served("vllm")
    assert view is not None and not opened.wiring.norm_before_residual
    assert view.wiring.norm_before_residual is (kind == "eagle3")
    sglang = opened.served("sglang")
    assert sglang is not None and ("P-EAGLE" in sglang.refused) is (kind == "peagle")


def test_a_key_that_specforge_means_otherwise(tmp_path: Path) -> None:
    changes = {"norm_before_residual": None}
    opened = session(tmp_path, tiny.tiny_weights(4), norm_output=True, changes=changes)
    assert opened.checkpoint.run_config.dialect == "specforge" and not opened.wiring.norm_output
    for name, served in {"sglang@0.5.11": False, "sglang@0.5.12": True, "vllm@0.33.0": True}.items():
        view = opened.served(name)
        assert view is not None and view.wiring.norm_output is served
        cures = [d.cure for d in view.differences if d.name == "norm_output"]
        assert cures == (["config.json: norm_output = false"] if served else [])


def test_rope_is_read_from_the_schema_that_the_version_knows(tmp_path: Path) -> None:
    yarn = {"rope_type": "linear", "factor": 4.0, "rope_theta": 700.0}
    opened = session(tmp_path, tiny.tiny_weights(4), changes={"rope_parameters": yarn, "rope_theta": 30000.0})
    bases = {"sglang@0.5.9": ("default", 30000.0), "sglang@0.5.10": ("linear", 700.0), "vllm": ("linear", 700.0)}
    for name, (kind, base) in bases.items():
        view = opened.served(name)
        assert view is not None and (view.wiring.rope.type, view.wiring.rope.base) == (kind, base)
        found = [d for d in view.differences if d.name == "rope"]
        assert len(found) == (name == "sglang@0.5.9")
        if found:
            assert "rope_theta = 700" in found[0].cure and (found[0].trained, found[0].served) == (
                "linear, base 700",
                "default, base 30000",
            )


def test_a_base_that_training_ignored(tmp_path: Path) -> None:
    opened = session(tmp_path, tiny.tiny_weights(4), changes={"target_model_type": "qwen3"})
    assert opened.wiring.rope.base == 10000.0  # AngelSlim passes none to its trainer
    for name in ("sglang@0.5.9", "sglang", "vllm"):
        view = opened.served(name)
        assert view is not None and view.wiring.rope.base == S.rope_theta
        assert "rope_theta = 10000" in next(d.cure for d in view.differences if d.name == "rope")
    assert opened.family().name == "llama"  # the target's own config comes first


@pytest.mark.parametrize(("tie", "head"), [(True, "tied"), (False, "own")])
def test_a_tied_head(tmp_path: Path, tie: bool, head: str) -> None:
    opened = session(tmp_path, tiny.tiny_weights(4), changes={"tie_word_embeddings": tie})
    sglang, vllm = opened.served("sglang"), opened.served("vllm")
    assert sglang is not None and sglang.wiring.head == head and vllm is not None and vllm.wiring.head == "own"
    assert [d.cure for d in sglang.differences if d.name == "head"] == [
        "config.json: tie_word_embeddings = false"
    ] * tie


@pytest.mark.parametrize("part", [True, False])
def test_no_server_takes_the_targets_rows_at_the_mapped_ids(tmp_path: Path, part: bool) -> None:
    sizes = S if part else replace(S, draft_vocab=S.vocab)
    first = session(tmp_path, tiny.tiny_weights(4, sizes, d2t="offsets" if part else "none"), sizes)
    edit_weights(drop("lm_head.weight"))(tmp_path / "output/7")
    opened = Session(first.options)
    opened.choose_checkpoint(opened.pick(opened.find()))
    cure = (
        f"lm_head.weight = the target's rows at arange({S.draft_vocab}) + d2t" if part else "leave draft_vocab_size out"
    )
    for name, found in (("sglang", True), ("vllm", part)):
        view = opened.served(name)
        assert view is not None
        differences = [d for d in view.differences if d.name == "head"]
        assert len(differences) == found and all(cure in d.cure and not d.computed for d in differences)


def test_direct_ids_are_read_as_offsets_by_servers(tmp_path: Path) -> None:
    opened = session(tmp_path, tiny.tiny_weights(4, d2t="direct"))
    assert opened.vocab_map().reading == "direct ids"
    for name in ("sglang", "vllm"):
        view = opened.served(name)
        assert view is not None and view.wiring.d2t == "offset" and "d2t" in [d.name for d in view.differences]


def test_a_norm_above_the_first_layer_under_another_name(tmp_path: Path) -> None:
    sizes = replace(S, layers=2)
    opened = session(tmp_path, tiny.tiny_weights(4, sizes), sizes)
    sglang, vllm = opened.served("sglang"), opened.served("vllm")
    assert sglang is not None and sglang.wiring.upper_norms == "ones"
    assert vllm is not None and vllm.wiring.upper_norms == "own"
    weights = tiny.tiny_weights(4, sizes)
    weights["layers.1.hidden_norm.weight"] = weights.pop("layers.1.input_layernorm.weight")
    other = session(tmp_path / "other", weights, sizes)
    sglang, vllm = other.served("sglang"), other.served("vllm")
    assert sglang is not None and sglang.wiring.upper_norms == "own"
    assert vllm is not None and vllm.wiring.upper_norms == "ones"


def test_a_double_norm_is_trained_only(tmp_path: Path) -> None:
    changes = {"eagle_config": {"use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True}}
    opened = session(tmp_path, tiny.tiny_weights(4), changes=changes)
    assert not opened.wiring.double_norm  # midlayer: an older export
    stored = load_file(opened.checkpoint.path / "model.safetensors")
    named = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in stored.items()}
    save_file(named, opened.checkpoint.path / "model.safetensors")
    opened.choose_checkpoint(opened.pick(opened.find()))
    assert opened.wiring.double_norm
    for name in ("sglang", "vllm"):
        view = opened.served(name)
        assert view is not None and not view.wiring.double_norm
        assert [d.cure.startswith(CANNOT) for d in view.differences if d.name == "double_norm"] == [True]
        assert any("midlayer" in note for note in view.notes) is (name == "sglang")


# --- what would not load

LATENT = {"kv_lora_rank": 12, "q_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5}

REFUSED: dict[str, tuple[tiny.Sizes, dict[str, Any], dict[str, Any], str, str | None]] = {
    "two layers": (replace(S, layers=2), {}, {}, "one layer only", "sglang@0.5.12"),
    "two states": (replace(S, states=2), {}, {"layer_ids": [1, 3]}, "three states", "sglang@0.5.12"),
    "latent": (
        replace(S, latent=reference.Latent(6, 4, 5, 12), query_rank=10),
        {},
        {"changes": LATENT},
        "latent attention",
        "sglang@0.5.12",
    ),
    "no class of a drafter": (S, {}, {"changes": {"architectures": ["LlamaForCausalLM"]}}, "LlamaForCausalLM", None),
    "more layers than weights": (S, {}, {"changes": {"num_hidden_layers": 40}}, "40", None),
    "no draft_vocab_size": (S, {}, {"changes": {"draft_vocab_size": None}}, "97 rows, the file has 40", None),
    "past the end": (S, {}, {"layer_ids": [1, 3, 8]}, "captured 2 of 3 states", None),
    "an empty list": (S, {}, {"layer_ids": []}, "names no states", None),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_version_would_not_load(tmp_path: Path, name: str) -> None:
    sizes, made, options, why, since = REFUSED[name]
    opened = session(tmp_path, tiny.tiny_weights(4, sizes, **made), sizes, slots=V1_SLOTS, **options)
    old = opened.served("sglang@0.5.11")
    assert old is not None and why in old.refused
    assert "\n" not in old.refused
    if since is not None:
        new = opened.served(since)
        assert new is not None and not new.refused
    options |= {"slots": V1_SLOTS, "view": "sglang@0.5.11"}
    asked = session(tmp_path / "asked", tiny.tiny_weights(4, sizes, **made), sizes, **options)
    assert asked.configured()[0] is None and "would not load" in asked.configured()[1]
    assert any(why in said for said in asked.view_said())
    with refused(WiringError, "would not load"):
        asked.load()


def test_a_view_that_would_not_load_is_an_answer_too(world: World) -> None:
    config = world.session(slots=V1_SLOTS).checkpoint.path / "config.json"
    text = config.read_text()
    config.write_text(text.replace('"num_hidden_layers": 1', '"num_hidden_layers": 2'))
    try:
        result = world.session(slots=V1_SLOTS).views([world.samples[0]], ["sglang@0.5.11", "sglang@0.5.12"])
    finally:
        config.write_text(text)
    for plan in result.plans:
        assert plan.keys == [] and "would not load" in result.sentence(plan)
    data = views_json(result)["views"][0]
    assert "one layer only" in data["refused"] and data["accuracy"] is None and data["against_trained"] is None
    assert [d["name"] for d in data["differences"]] == ["norm_before_residual", "positions"]


def test_a_nested_config_is_not_read_by_sglang(tmp_path: Path) -> None:
    view = session(tmp_path, tiny.tiny_weights(4), nested=True).served("sglang")
    assert view is not None and "fix" in view.refused


def test_ids_that_are_none_are_refused(tmp_path: Path) -> None:
    changes = {"eagle_config": {"use_aux_hidden_state": True}, "eagle_aux_hidden_state_layer_ids": [0, 2, 4]}
    opened = session(tmp_path, tiny.tiny_weights(4), changes=changes, view="vllm", slots=V1_SLOTS)
    assert opened.configured()[0] == (0, 1, 2)
    config = opened.checkpoint.path / "config.json"
    table = json.loads(config.read_text()) | {"eagle_aux_hidden_state_layer_ids": ["0", 2, 4]}
    config.write_text(json.dumps(table))
    again = Session(opened.options)
    with refused(CheckpointError, "layer ids"):
        again.choose_checkpoint(again.pick(again.find()))
        again.served()


def test_what_is_missing_is_said_and_not_computed(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(4)
    tiny.write_flat(tmp_path / "output/7", weights, embed=True, dtype=torch.float32)
    sample = tiny.write_v1_sample(tmp_path / "s/data_0.pt", tiny.tiny_sample(0, weights))
    opened = Session(Options(tmp_path / "output", samples=(sample,), slots=V1_SLOTS, device="cpu"))
    opened.choose_checkpoint(opened.pick(opened.find()))
    opened.choose_sample(sample)
    view = opened.served("sglang")
    assert view is not None and view.wiring.embedding == "own"
    assert any("--target" in note for note in view.notes)
    assert [d.computed for d in view.differences if d.name == "embedding"] == [False]
    assert any("family is unknown" in note for note in view.notes)


# --- orderings


def test_the_ordering_follows_the_view(world: World) -> None:
    for view, ordering, why in (
        ("trained", (1, 2, 3), "the config's layer ids"),
        ("sglang@0.5.9", (1, 2, 3), "sglang@0.5.9 captures depths [2, 4, 6]"),
        ("vllm", None, "captures depths [2, 4, 5]; depth 5 is not among"),
    ):
        opened = world.session(slots=V1_SLOTS, view=view)
        assert opened.configured()[0] == ordering and why in opened.configured()[1]
        first, said = opened.first_ordering()
        assert first == ((1, 2, 3) if view.startswith("sglang") else (0, 1, 2)) and said
        assert opened.trained() == (0, 1, 2)
        assert opened.view_name == {"vllm": "vllm@0.33.0"}.get(view, view)


def test_the_last_state_counts_as_the_last_layer(tmp_path: Path) -> None:
    slots, depths = "embed,2,4,last", (0, 2, 4, 8)
    opened = session(tmp_path, tiny.tiny_weights(4), slots=slots, depths=depths, layer_ids=[1, 3, 7], view="sglang")
    assert opened.configured()[0] == (1, 2, 3)
    assert [depth_of(slot, 8) for slot in opened.sample.slots] == [0, 2, 4, 8]
    assert depth_of(opened.sample.slots[3], None) is None
    made: dict[str, Any] = {"depths": depths, "layer_ids": [1, 3, 7], "view": "sglang"}
    after = session(tmp_path / "post", tiny.tiny_weights(4), slots=f"{slots}:post", **made)
    assert after.configured()[0] is None  # after the norm it is another state


def test_one_state_after_the_norm(tmp_path: Path) -> None:
    sizes = replace(S, states=1)
    changes = {"eagle_config": {"use_aux_hidden_state": False}}
    weights = tiny.tiny_weights(4, sizes, fc=False)
    for slots, ordering in (("embed,2,4,last:post", (3,)), ("embed,2,4,last", None)):
        opened = session(tmp_path / slots[-4:], weights, sizes, slots=slots, changes=changes, view="sglang")
        assert opened.configured()[0] == ordering and "after the final norm" in opened.configured()[1]


def test_the_family_and_the_layers_of_the_target(tmp_path: Path) -> None:
    made: dict[str, Any] = {"slots": V1_SLOTS, "layer_ids": [2, 4, 6], "layers": 30}
    for family, ordering in (("kimi_k25", (1, 2, 3)), ("llama", None)):
        opened = session(tmp_path / family, tiny.tiny_weights(4), family=family, view="sglang@0.5.13", **made)
        assert opened.configured()[0] == ordering and opened.target_layers == 30
    old = session(tmp_path / "old", tiny.tiny_weights(4), family="kimi_k25", view="sglang@0.5.9", **made)
    view = old.served()
    assert view is not None and "0.5.10" in view.refused


def test_replayed_steps_capture_the_default(tmp_path: Path) -> None:
    depths = (2, 4, 5, 6)  # the default of 8 layers, and the config's 2, 4, 6
    opened = session(tmp_path, tiny.tiny_weights(4), slots="2,4,5,6", depths=depths)
    result = opened.views(list(opened.options.samples), ["sglang@0.5.10", "sglang@0.5.11"])
    old, new = result.plans
    assert old.view.graph_depths == (2, 4, 5) and old.graph is not None and old.graph[0] == (0, 1, 2)
    assert new.view.graph_depths is None and new.graph is None
    data = views_json(result)["views"]
    assert data[0]["cuda_graphs"]["slots"] == [0, 1, 2] and data[1]["cuda_graphs"] is None
    alone = opened.score_wiring((0, 1, 2), old.view.wiring)
    assert data[0]["cuda_graphs"]["accuracy"]["hits"] == alone.accuracy.hits


# --- what it costs


def hits(right: list[int], accepted: list[int]) -> Scored:
    """A score of which only the rows are looked at."""
    from drafter.scoring.counts import OrderingCounts
    from drafter.scoring.tallies import Count, Lengths, StepCounts

    flags = torch.tensor(right, dtype=torch.bool)
    steps = ({"next_token": StepCounts(Count(sum(right), len(right)))},)
    return Scored(OrderingCounts(steps, Lengths((len(accepted),)), Count(), flags), torch.tensor(accepted))


def sign_test(ours: list[int], theirs: list[int]) -> float:
    """Exact two-sided p by adding up binomial terms."""
    up, down = (
        sum(a < b for a, b in zip(ours, theirs, strict=True)),
        sum(a > b for a, b in zip(ours, theirs, strict=True)),
    )
    n = up + down
    tail = sum(math.comb(n, i) for i in range(min(up, down) + 1)) / 2**n
    return min(1.0, 2 * tail) if n else 1.0


@pytest.mark.parametrize(
    ("before", "after", "costs", "gains"),
    [
        ([3] * 20, [3] * 20, False, False),
        ([3] * 20, [2] * 6 + [3] * 14, True, False),
        ([3] * 20, [2] * 5 + [3] * 15, False, False),
        ([0] * 20, [2] * 6 + [0] * 14, False, True),
        ([2] * 10 + [0] * 10, [0] * 10 + [2] * 10, False, False),
    ],
)
def test_a_cost_is_an_exact_test_of_the_rows_that_differ(
    before: list[int], after: list[int], costs: bool, gains: bool
) -> None:
    same = [1] * 20
    found = cost(hits(same, before), hits(same, after))
    assert found.p_length == pytest.approx(sign_test(before, after)) and found.p_accuracy == 1.0
    assert (found.costs, found.gains) == (costs, gains)
    right = [int(n > 0) for n in before], [int(n > 0) for n in after]
    found = cost(hits(right[0], [1] * 20), hits(right[1], [1] * 20))
    assert found.p_accuracy == pytest.approx(sign_test(*right))


def test_scores_are_those_of_each_wiring_and_add_up(world: World) -> None:
    opened = world.session(slots=V1_SLOTS, depth=3)
    result = opened.views(list(world.samples), ["sglang@0.5.11"])
    plan = result.plans[0]
    assert result.trained[0] == (0, 1, 2) and plan.ordering == (1, 2, 3) and result.scores.samples == 3
    assert [step.difference.name for step in plan.steps] == [ORDERING, "norm_before_residual", "positions"]
    assert plan.steps[-1].together == plan.whole  # all of them make the view
    for before, after in zip(plan.steps, plan.steps[1:], strict=False):
        assert after.before == before.together
    for key in result.scores.keys:
        wanted = None
        for path in world.samples:
            opened.choose_sample(path)
            one = opened.score_wiring(key[0], key[1])
            wanted = one if wanted is None else wanted + one
        scored = result.scores.of(key)
        assert wanted is not None and scored is not None
        assert scored.counts.accuracy == wanted.accuracy and scored.counts.lengths == wanted.lengths
        accepted = torch.bincount(scored.accepted, minlength=4).tolist()
        assert tuple(accepted) == wanted.lengths.histogram
    step = plan.steps[0]
    ours, theirs = result.scores.of(step.before), result.scores.of(step.together)
    assert ours is not None and theirs is not None
    assert cost(ours, theirs).p_accuracy == mcnemar(ours.counts.row_hits, theirs.counts.row_hits)


def test_the_options_view_is_scored_by_everything_else_too(world: World) -> None:
    opened = world.session(slots=V1_SLOTS, depth=3, view="sglang@0.5.11")
    whole = world.session(slots=V1_SLOTS, depth=3).views([world.samples[0]], ["sglang@0.5.11"])
    scored = whole.scores.of(whole.plans[0].whole)
    result = opened.score([world.samples[0]], [(1, 2, 3)])
    assert scored is not None and result.scores[1, 2, 3].lengths == scored.counts.lengths
    assert result.view == "sglang@0.5.11" and opened.switched() == {}
    assert opened.set_switch("norm_before_residual", "on").norm_before_residual
    assert opened.switched() == {"norm_before_residual": "on"}  # against the view


def test_versions_that_compute_the_same_share_a_row(world: World) -> None:
    result = world.session(slots=V1_SLOTS).views([world.samples[0]])
    names = [plan_name(plan) for plan in result.plans]
    assert names == ["sglang@0.5.9 .. 0.5.10", "sglang@0.5.11", "sglang@0.5.12 .. 0.5.23", "vllm@0.33.0"]
    named = world.session(slots=V1_SLOTS).views([world.samples[0]], ["sglang@0.5.12", "sglang@0.5.13"])
    assert [plan.names for plan in named.plans] == [("sglang@0.5.12",), ("sglang@0.5.13",)]
    cures = [plan.steps[0].difference.cure for plan in result.plans]
    assert "[-1, 1, 3]" in cures[0] and "patch" in cures[0] and "[-1, 1, 3]" in cures[2] and "patch" not in cures[2]
    assert any(note.startswith("up to sglang@0.5.13") for note in result.plans[2].view.notes)


def test_an_ordering_that_no_server_can_give(world: World) -> None:
    result = world.session(slots=V1_SLOTS, orderings=("1,0,2",)).views([world.samples[0]], ["sglang"])
    step = result.plans[0].steps[0]
    assert step.difference.cure.startswith(CANNOT) and "column blocks" in step.difference.cure
    assert result.trained_why == "as asked"


def test_slots_that_nobody_names(world: World) -> None:
    opened = world.session(slots="?,?,?,?", orderings=("0,1,2",))
    result = opened.views([world.samples[0]], ["sglang@0.5.12"])
    plan = result.plans[0]
    assert plan.ordering is None and plan.whole is None and "--slots" in plan.why
    assert not plan.steps[0].difference.cure.startswith("config") and plan.steps[0].together is None
    assert plan.steps[1].together is not None  # the rest is computed on the trained ordering
    assert result.scores.of(plan.steps[1].together) is not None
    with refused(WiringError, "--ordering"):
        world.session(slots="?,?,?,?").views([world.samples[0]])


def test_bad_samples_are_left_out_and_said(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    good = tiny.write_v1_sample(folder / "data_1.pt", world.texts[1])
    bad = tiny.write_truncated(folder / "data_0.pt", world.samples[0])
    opened = Session(Options(world.output, samples=(folder,), target=world.target, slots=V1_SLOTS, device="cpu"))
    opened.choose_checkpoint(opened.pick(opened.find()))
    result = opened.views([bad, good, good], ["sglang"])
    assert result.scores.samples == 1 and [path for path, _ in result.skipped] == [bad]
    with pytest.raises(DrafterError):
        opened.views([bad], ["sglang"])


def test_it_can_be_cancelled_and_tells_how_far_it_is(world: World) -> None:
    opened = world.session(slots=V1_SLOTS)
    seen: list[tuple[int, int]] = []
    opened.views(list(world.samples), ["sglang"], lambda done, planned: seen.append((done, planned)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1)) and seen[-1][0] == seen[-1][1]

    class Stop(Exception):
        pass

    def poll() -> None:
        raise Stop

    with pytest.raises(Stop):
        world.session(slots=V1_SLOTS).views(list(world.samples), ["sglang"], poll=poll)
