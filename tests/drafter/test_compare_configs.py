"""Two configs field by field: what is equal, written otherwise, different; and the raw keys of each file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafter.checkpoint_compare.configs import (
    DIFFERENT,
    EQUAL,
    MAX_SHOWN,
    ONE_SIDED,
    ORIGIN,
    SPELLED,
    Face,
    FieldPair,
    compare_configs,
    faces_json,
)
from drafter.json_text import json_text
from tests import tiny
from tests.drafter.helpers import opened

WEIGHTS = tiny.tiny_weights()


def face(ours: Path, theirs: Path) -> Face:
    (only,) = compare_configs(opened(ours), opened(theirs))
    return only


def field(found: Face, name: str) -> FieldPair:
    (pair,) = [pair for pair in found.fields if pair.field == name]
    return pair


def test_a_copy_is_equal_in_every_field(tmp_path: Path) -> None:
    found = face(tiny.write_flat(tmp_path / "a", WEIGHTS), tiny.write_flat(tmp_path / "b", WEIGHTS))
    assert {pair.kind for pair in found.fields} == {EQUAL}
    assert found.keys == ()
    assert (found.ours, found.theirs) == (tmp_path / "a/config.json", tmp_path / "b/config.json")


def test_two_dialects_of_one_meaning(tmp_path: Path) -> None:
    flat = tiny.write_flat(tmp_path / "a", WEIGHTS, layer_ids=(1, 3, 5))
    nested = tiny.write_nested(tmp_path / "b", WEIGHTS, layer_ids=(2, 4, 6))
    found = face(flat, nested)
    assert found.of_kind(DIFFERENT) == []
    assert {pair.field for pair in found.of_kind(ORIGIN)} == {"dialect", "producer", "architecture"}
    depths = field(found, "aux_depths")
    assert (depths.kind, depths.ours.value, depths.theirs.value) == (SPELLED, (2, 4, 6), (2, 4, 6))
    assert depths.ours.written == "[1, 3, 5] (depth = id + 1)"
    assert depths.theirs.written == "[2, 4, 6] (depth = id)"
    rope = field(found, "rope")
    assert (rope.kind, rope.ours.key) == (SPELLED, "rope_theta")
    assert rope.theirs.key == "transformer_layer_config.rope_parameters"
    assert field(found, "hidden_size").theirs.key == "transformer_layer_config.hidden_size"
    assert field(found, "verifier").kind == ONE_SIDED
    assert not [pair for pair in found.fields if pair.field in ("aux_ids", "id_convention", "stated_rope")]


@pytest.mark.parametrize(
    ("changes", "name", "values"),
    [
        ({"rope_theta": 10000.0}, "rope", (50000.0, 10000.0)),
        ({"norm_before_residual": True}, "norm_before_residual", (False, True)),
        ({"rms_norm_eps": 1e-6}, "rms_norm_eps", (1e-5, 1e-6)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}}, "aux_depths", ((2, 4, 6), (2, 4, 5))),
    ],
)
def test_one_field_differs_and_only_it(tmp_path: Path, changes: dict[str, Any], name: str, values: Any) -> None:
    ours = tiny.write_flat(tmp_path / "a", WEIGHTS)
    found = face(ours, tiny.write_flat(tmp_path / "b", WEIGHTS, changes=changes))
    assert {pair.field for pair in found.of_kind(DIFFERENT)} - {"stated_rope"} == {name}
    pair = field(found, name)
    got = tuple(v.base if name == "rope" else v for v in (pair.ours.value, pair.theirs.value))
    assert got == values
    assert pair.ours.source == pair.theirs.source == "config.json"


def test_a_default_beside_a_stated_value_is_said(tmp_path: Path) -> None:
    ours = tiny.write_flat(tmp_path / "a", WEIGHTS)
    found = face(ours, tiny.write_flat(tmp_path / "b", WEIGHTS, changes={"hidden_act": None}))
    pair = field(found, "hidden_act")
    assert (pair.kind, pair.ours.is_default, pair.theirs.is_default) == (SPELLED, False, True)
    assert pair.theirs.note == "LlamaConfig"


def test_raw_keys_of_one_side_and_those_nobody_reads(tmp_path: Path) -> None:
    changes = {"my_own": {"deep": [1, 2]}, "torch_dtype": "float32", "rope_theta": 10000.0, "bos_token_id": None}
    ours = tiny.write_flat(tmp_path / "a", WEIGHTS)
    found = face(ours, tiny.write_flat(tmp_path / "b", WEIGHTS, changes=changes))
    keys = {key.key: key for key in found.keys}
    assert set(keys) == {"my_own.deep", "torch_dtype", "bos_token_id"}  # rope_theta is told by its field
    assert (keys["my_own.deep"].has_ours, keys["my_own.deep"].theirs) == (False, [1, 2])
    assert (keys["torch_dtype"].ours, keys["torch_dtype"].theirs) == ("bfloat16", "float32")
    assert (keys["bos_token_id"].has_theirs, keys["bos_token_id"].read) == (False, False)


def test_the_trainings_own_config_makes_a_second_face(tmp_path: Path) -> None:
    flat = tiny.write_flat(tmp_path / "a", WEIGHTS, speculators_config=True)
    nested = tiny.write_nested(tmp_path / "b", WEIGHTS)
    configured, trained = compare_configs(opened(flat), opened(nested))
    assert (configured.name, trained.name) == ("configured", "trained")
    assert [pair.field for pair in configured.of_kind(DIFFERENT)] == ["aux_depths"]  # the story's fault
    assert trained.of_kind(DIFFERENT) == []
    assert trained.ours == tmp_path / "a/config_speculators.json"


def test_json_is_small_whatever_a_file_holds(tmp_path: Path) -> None:
    ours = tiny.write_flat(tmp_path / "a", WEIGHTS)
    theirs = tiny.write_flat(tmp_path / "b", WEIGHTS, changes={"note": "x" * 100_000, "many": list(range(50_000))})
    (data,) = faces_json(compare_configs(opened(ours), opened(theirs)))
    assert len(json_text(data)) < 60_000
    (long,) = [key for key in data["keys"] if key["key"] == "note"]
    assert "ours" not in long and len(long["theirs"]) == MAX_SHOWN + 3
    assert json.loads(json_text(data))["fields"][0]["field"] == "dialect"


def test_a_config_that_vanished_has_no_keys(tmp_path: Path) -> None:
    ours, theirs = tiny.write_flat(tmp_path / "a", WEIGHTS), tiny.write_flat(tmp_path / "b", WEIGHTS)
    a, b = opened(ours), opened(theirs)
    (theirs / "config.json").write_text("{")
    (found,) = compare_configs(a, b)
    assert {pair.kind for pair in found.fields} == {EQUAL}
    assert all(key.has_ours and not key.has_theirs for key in found.keys)
