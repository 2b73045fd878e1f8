"""Both dialects in one normal form, with the evidence for every field; what is malformed or no EAGLE-3 is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drafter.checkpoint.config import DrafterConfig, Rope, disagreements
from drafter.checkpoint.dialects import read_config
from drafter.errors import CheckpointError
from tests import tiny
from tests.drafter.helpers import refused

WEIGHTS = tiny.tiny_weights()
LAYER = "transformer_layer_config"
# what only the dialect or the producer decides
OWN = {"dialect", "producer", "architecture", "aux_ids", "id_convention", "verifier"}


def flat(**changes: Any) -> dict[str, Any]:
    return {k: v for k, v in {**tiny.flat_config(WEIGHTS), **changes}.items() if v is not None}


def nested(layer: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    config = tiny.nested_config(WEIGHTS) | changes
    inner = {k: v for k, v in {**config[LAYER], **(layer or {})}.items() if v is not None}
    return {k: v for k, v in (config | {LAYER: inner}).items() if v is not None}


def read(table: Mapping[str, Any]) -> DrafterConfig:
    return read_config(table, "config.json")


# --- the normal form


@pytest.mark.parametrize("options", [{}, {"norm_before_residual": True}, {"norm_output": True}])
@pytest.mark.parametrize("optional", [{}, {"input_norm": True}, {"fc_norm": True}, {"attention_bias": True}])
def test_both_dialects_have_one_normal_form(options: dict[str, bool], optional: dict[str, bool]) -> None:
    weights = tiny.tiny_weights(0, **optional)
    one, other = read(tiny.flat_config(weights, **options)), read(tiny.nested_config(weights, **options))
    differing = [name for name, value, _ in one.items() if value != getattr(other, name) and name not in OWN]
    assert differing == []
    assert (one.norm_before_residual, one.norm_output) == tuple(
        options.get(k, False) for k in ("norm_before_residual", "norm_output")
    )
    assert (one.norm_before_fc, one.fc_norm, one.attention_bias) == tuple(
        optional.get(k, False) for k in ("input_norm", "fc_norm", "attention_bias")
    )
    assert one.rope == Rope(50000.0)
    assert (one.dialect, other.dialect) == ("flat", "speculators")
    assert (one.aux_depths, other.aux_depths) == ((2, 4, 6), (0, 2, 4))


MINIMAL_LAYER = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 97}
MINIMAL = {
    "flat": {"architectures": ["LlamaForCausalLMEagle3"], **MINIMAL_LAYER},
    "nested": {"speculators_model_type": "eagle3", LAYER: MINIMAL_LAYER},
}


@pytest.mark.parametrize(
    "table", [flat(), nested(), *MINIMAL.values()], ids=["flat", "nested", "bare flat", "bare nested"]
)
def test_every_field_has_its_evidence(table: dict[str, Any]) -> None:
    for name, value, evidence in read(table).items():
        assert evidence is not None, name
        if evidence.is_default:
            assert evidence.note, f"{name} is {value!r} by default, and nothing says whose default that is"
        else:
            assert evidence.source == "config.json" and evidence.key, name
            there: Any = table
            for part in evidence.key.split("."):
                there = there[part]
        if (
            name not in ("dialect", "producer", "architecture", "id_convention", "attention", "max_positions")
            and "rope" not in name
        ):
            assert evidence.value == value, name


@pytest.mark.parametrize("dialect", MINIMAL)
def test_defaults_of_a_bare_config(dialect: str) -> None:
    config = read(MINIMAL[dialect])
    assert (config.num_kv_heads, config.head_dim, config.num_layers, config.target_hidden_size) == (4, 8, 1, 32)
    assert (config.rope, config.rms_norm_eps, config.hidden_act) == (Rope(10000.0), 1e-6, "silu")
    assert config.draft_vocab_size == (None if dialect == "flat" else 32000)
    assert config.aux_ids is None and config.aux_depths is None
    defaults = {name for name, _, evidence in config.items() if evidence is not None and evidence.is_default}
    assert {"head_dim", "rope", "rms_norm_eps", "norm_before_residual", "norm_output", "verifier"} <= defaults


def test_qwen3_fills_in_its_own_head_size() -> None:
    config = read(nested({"head_dim": None, "model_type": "qwen3"}))
    assert config.head_dim == 128 and "Qwen3Config" in config.evidence["head_dim"].note
    assert read(nested({"head_dim": None})).head_dim == 8


@pytest.mark.parametrize(
    ("version", "depths"),
    [("0.3.0", (1, 3, 5)), ("0.4.0.1", (1, 3, 5)), ("0.5.0", (0, 2, 4)), ("0.10.1", (0, 2, 4)), ("1.0", (0, 2, 4))],
)
def test_layer_ids_mean_what_the_version_meant(version: str, depths: tuple[int, ...]) -> None:
    config = read(nested(speculators_version=version))
    assert config.aux_depths == depths and version in config.producer
    assert config.evidence["id_convention"].key == "speculators_version"


def test_without_a_version_the_convention_is_a_named_default() -> None:
    config = read(nested(speculators_version=None))
    assert config.aux_depths == (0, 2, 4) and config.evidence["id_convention"].is_default


def test_minus_one_is_the_embedding_where_ids_count_from_layers() -> None:
    config = flat(eagle_config={"eagle_aux_hidden_state_layer_ids": [-1, 2, 30]})
    assert read(config).aux_depths == (0, 3, 31)


# --- rope


@pytest.mark.parametrize(
    ("fields", "rope"),
    [
        ({"rope_theta": 5e5}, Rope(5e5)),
        ({"rope_theta": 500000, "rope_scaling": None}, Rope(5e5)),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
            Rope.of(5e5, "linear", {"factor": 2.0}),
        ),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, Rope.of(1e4, "linear", {"factor": 2.0})),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": 7}},
            Rope.of(7.0, "linear", {"factor": 2}),
        ),
        ({"rope_scaling": {"rope_type": None, "type": "linear", "factor": 2}}, Rope.of(1e4, "linear", {"factor": 2})),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}, "rope_theta": 1e4}, Rope(5e5)),
        ({"rope_parameters": {"rope_theta": None, "rope_type": "default"}, "rope_theta": 3e4}, Rope(3e4)),
        ({"rope_parameters": {"full_attention": {"rope_theta": 5e5, "rope_type": "default"}}}, Rope(5e5)),
        ({"rope_parameters": {}, "rope_scaling": {}}, Rope(1e4)),
        ({"rope_theta": 5e5, "partial_rotary_factor": 0.5}, Rope.of(5e5, "default", {"partial_rotary_factor": 0.5})),
        ({}, Rope(1e4)),
    ],
)
def test_rope_in_every_schema(fields: dict[str, Any], rope: Rope) -> None:
    bare = {"rope_theta": None, "rope_scaling": None, "rope_parameters": None}
    for config in (read(flat(**(bare | fields))), read(nested(bare | fields))):
        assert config.rope == rope
        assert config.evidence["rope"].is_default == (not any(fields.values()))


def test_a_base_that_nothing_states_is_said_to_be_a_default() -> None:
    config = read(flat(rope_theta=None, rope_scaling={"rope_type": "linear", "factor": 2.0}))
    assert "10000" in config.evidence["rope"].note and "default" in config.evidence["rope"].note


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": "10000"},
        {"rope_theta": True},
        {"rope_theta": 0},
        {"rope_theta": -1.0},
        {"rope_theta": float("nan")},
        {"rope_theta": float("inf")},
        {"rope_theta": 10**400},
        {"rope_theta": [1]},
        {"rope_parameters": {"rope_theta": "x"}},
        {"rope_parameters": {"rope_theta": True}},
        {"rope_parameters": {"rope_theta": 10**400}},
        {"rope_scaling": {"rope_theta": [1]}},
    ],
)
def test_malformed_rope_is_refused(fields: dict[str, Any]) -> None:
    with refused(CheckpointError, "config.json"):
        read(flat(**fields))


# --- malformed values


BAD_SIZES = ["32", -4, 0, True, [32], {}, 1.5, float("nan"), float("inf"), 10**400, 2**33]


@pytest.mark.parametrize("value", BAD_SIZES, ids=lambda v: repr(v)[:12])
@pytest.mark.parametrize(
    "key",
    ["hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "num_hidden_layers"],
)
def test_what_is_no_size_is_refused(key: str, value: Any) -> None:
    for table in (flat(**{key: value}), nested({key: value})):
        with refused(CheckpointError, key, "config.json"):
            read(table)


@pytest.mark.parametrize("value", BAD_SIZES, ids=lambda v: repr(v)[:12])
@pytest.mark.parametrize("key", ["draft_vocab_size", "target_hidden_size"])
def test_what_is_no_size_at_the_top_is_refused(key: str, value: Any) -> None:
    for table in (flat(**{key: value}), nested(None, **{key: value})):
        with refused(CheckpointError, key):
            read(table)


@pytest.mark.parametrize(("key", "value"), [("num_hidden_layers", 2**31), ("vocab_size", 2**31), ("head_dim", 7)])
def test_sizes_that_no_drafter_has_are_refused(key: str, value: int) -> None:
    with refused(CheckpointError, key):
        read(flat(**{key: value}))


@pytest.mark.parametrize("value", ["1e-5", -1e-5, float("nan"), float("inf"), True, [1e-5], 10**400])
def test_what_is_no_epsilon_is_refused(value: Any) -> None:
    with refused(CheckpointError, "rms_norm_eps"):
        read(flat(rms_norm_eps=value))


@pytest.mark.parametrize("value", ["true", 1, 0.0, [], "yes"])
@pytest.mark.parametrize("key", ["norm_before_residual", "norm_output", "fc_norm", "tie_word_embeddings"])
def test_what_is_no_switch_is_refused(key: str, value: Any) -> None:
    for table in (flat(**{key: value}), nested(None, **{key: value})):
        with refused(CheckpointError, key):
            read(table)


@pytest.mark.parametrize("value", ["1,2,3", 3, [1, "2", 3], [1.0], [True], [[1]], list(range(65)), {"0": 1}])
def test_what_are_no_layer_ids_is_refused(value: Any) -> None:
    for table in (
        flat(eagle_config={"eagle_aux_hidden_state_layer_ids": value}),
        nested(None, eagle_aux_hidden_state_layer_ids=value),
    ):
        with refused(CheckpointError, "eagle_aux_hidden_state_layer_ids"):
            read(table)


@pytest.mark.parametrize("key", list(MINIMAL_LAYER))
def test_what_no_reader_can_guess_is_missing(key: str) -> None:
    with refused(CheckpointError, f"no '{key}'"):
        read(flat(**{key: None}))


@pytest.mark.parametrize(
    ("model_type", "version", "owner"),
    [
        ("llama", "0.9.0", "LlamaConfig"),
        ("qwen3", "0.3.0", "Qwen3Config"),
        (None, "0.5.0", "LlamaConfig"),
        (None, "0.9.0", "Qwen3Config"),
    ],
)
def test_speculators_leave_out_what_the_class_fills_in(model_type: str | None, version: str, owner: str) -> None:
    keys = {"intermediate_size": None, "vocab_size": None, "num_key_value_heads": None, "model_type": model_type}
    config = read(nested(keys, speculators_version=version))
    sizes = {"LlamaConfig": (11008, 32000, 4), "Qwen3Config": (22016, 151936, 32)}
    assert (config.intermediate_size, config.vocab_size, config.num_kv_heads) == sizes[owner]
    assert owner in config.evidence["vocab_size"].note


def test_odd_tables_are_refused_or_ignored() -> None:
    with refused(CheckpointError):
        read(nested() | {LAYER: "text"})
    with refused(CheckpointError):
        read(nested() | {LAYER: None})
    assert read(flat(eagle_config="text")).aux_ids is None
    assert read(flat(architectures="text", eagle_config={})).architecture == ""
    assert read(nested(None, speculators_config=[1])).verifier == ""
    assert read(flat(hidden_size=32.0)).hidden_size == 32  # JSON writers that know one kind of number


# --- not EAGLE-3


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"speculators_model_type": "eagle"}, "EAGLE-1/2"),
        ({"speculators_model_type": "dflash"}, "DFlash"),
        ({"speculators_model_type": "medusa"}, "Medusa"),
        ({"speculators_model_type": "mlp_speculator"}, "MLP speculator"),
        ({"architectures": ["EAGLELlamaForCausalLM"], "hidden_size": 32}, "EAGLE-1/2"),
        ({"architectures": ["LlamaForCausalLMEagle"], "hidden_size": 32}, "EAGLE-1/2"),
        ({"architectures": ["DeepSeekMTPModel"], "hidden_size": 32}, "multi-token"),
        ({"medusa_num_heads": 3}, "Medusa"),
        ({"speculators_model_type": "mtp"}, "multi-token"),
        ({"speculators_model_type": "something\x1b[1m"}, "something"),
        ({"speculators_model_type": ["eagle3"]}, "eagle3"),
        ({"speculators_model_type": {"a": "x" * 5000}}, "speculator"),
        ({"architectures": ["LlamaForCausalLM"], "hidden_size": 32}, "LlamaForCausalLM"),
        ({"architectures": ["DFlashDraftModel"], "hidden_size": 32}, "DFlashDraftModel"),
        ({"model_type": "gpt2"}, "gpt2"),
        ({}, "unnamed"),
    ],
)
def test_other_models_are_refused_by_name(table: dict[str, Any], word: str) -> None:
    with refused(CheckpointError, word, "EAGLE-3"):
        read(table)


@pytest.mark.parametrize("name", ["LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"])
def test_flat_names(name: str) -> None:
    assert read(flat(architectures=[name])).architecture == name


# --- disagreements


def test_the_story_is_one_disagreement_about_depths() -> None:
    """SGLang's config names 1, 3, 5 and means depths 2, 4, 6; training recorded 0, 2, 4. Nothing else differs."""
    configured, trained = read(flat()), read_config(nested(), "config_speculators.json")
    (only,) = disagreements(configured, trained, "config_speculators.json")
    assert (only.field, only.configured, only.trained) == ("aux_depths", (2, 4, 6), (0, 2, 4))
    assert (only.configured_source, only.trained_source) == ("config.json", "config_speculators.json")


def test_equal_depths_under_other_ids_are_no_disagreement() -> None:
    ids = {"eagle_aux_hidden_state_layer_ids": [-1, 1, 3]}
    assert disagreements(read(flat(eagle_config=ids)), read(nested()), "x") == []


def test_every_switch_that_differs_is_named() -> None:
    changes = {"norm_before_residual": True, "norm_output": True, "rope_theta": 1e4, "draft_vocab_size": 41}
    ids = {"eagle_aux_hidden_state_layer_ids": [-1, 1, 3]}
    found = disagreements(read(flat(eagle_config=ids, **changes)), read(nested()), "x")
    assert {d.field for d in found} == {"norm_before_residual", "norm_output", "rope", "draft_vocab_size"}
