"""K06, without a sample: rotary embedding and positions, in both schemas, of training and serving, drafter and target.

On short samples a wrong base, scale or offset shows in no accuracy: only the files tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from drafter.checkpoint.config import Fields, Rope
from drafter.checkpoint.layer_fields import read_rope
from drafter.checkpoint.rope_base import stored_base
from drafter.checks.case import Case
from drafter.checks.files import is_nested, key_in, layer_of_table
from drafter.checks.finding import CKPT, ERROR, FILES, NOTE, OK, TCFG, WARNING, Finding
from drafter.checks.registry import check
from drafter.checks.rope_keys import in_new_schema, old_schema, rope_keys, text_of
from drafter.errors import DrafterError

KIND = "K06"
_SCHEMAS = ("NVIDIA-NeMo/Automodel#2920", "sgl-project/SpecForge#742")
# parameters that stretch positions; the others of a table are kept beside and change nothing
_SCALES = ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "mscale_all_dim")


@check("rope-schemas", KIND, (FILES,), _SCHEMAS)
def rope_schemas(case: Case) -> Iterable[Finding]:
    """`rope_parameters` and `rope_theta` with `rope_scaling`: only one of them, or both, and whether they agree."""
    layer = layer_of_table(case.files.table)
    new, old = layer.get("rope_parameters"), {key: layer.get(key) for key in ("rope_theta", "rope_scaling")}
    if not isinstance(new, Mapping) or not new:
        return
    kinds = {kind: table for kind, table in new.items() if isinstance(table, Mapping)}
    if kinds and "rope_type" not in new and "rope_theta" not in new:
        yield _by_layer_type(case, kinds)
        return
    has_old = any(value is not None for value in old.values())
    evidence = {"rope_parameters": dict(new), **old}
    if not has_old:
        plain = new.get("rope_type", "default") == "default"
        lost = f"base {new.get('rope_theta')}" if plain else f"{new.get('rope_type')}, base {new.get('rope_theta')}"
        title = f"only rope_parameters is there: SGLang before 0.5.10 reads the old keys alone and loses {lost}"
        fix = f"{case.files.table_name}, beside it: {text_of(old_schema(case.files.table, _read(layer)))}"
        if is_nested(case.files.table):
            fix = "SGLang loads no nested config: `eagle3-tui fix --for sglang` writes a flat one with both schemas"
        severity = NOTE
        if case.server is not None and case.server.name == "sglang" and case.server.before("0.5.10"):
            severity = ERROR
        yield Finding("rope-schemas", KIND, severity, title, evidence, fix, _SCHEMAS, weight=32)
        return
    ours, theirs = _read(layer, without=("rope_theta", "rope_scaling")), _read(layer, without=("rope_parameters",))
    told = _told_apart(ours, theirs, theta=layer.get("rope_theta") is not None or _inside(layer))
    if told:
        title = f"rope_parameters says {told[0]}, the old keys say {told[1]}: servers differ on which they read"
        theta = layer.get("rope_theta") is not None or _inside(layer)
        fix = _write_both(case, ours, theirs if theta else replace(theirs, base=ours.base))
        yield Finding("rope-schemas", KIND, ERROR, title, evidence, fix, _SCHEMAS, weight=53)
    else:
        yield Finding("rope-schemas", KIND, OK, "both schemas of RoPE agree", evidence, reports=_SCHEMAS)


def _write_both(case: Case, new: Rope, old: Rope) -> str:
    """Both schemas with what was trained, where training's own config tells it; else either of the two."""
    name, table = case.files.table_name, case.files.table
    trained = case.opened.trained_config if case.opened is not None else None
    if trained is not None:
        return f"{name}: {rope_keys(table, trained.rope)}"
    either = f"{name}, if the first was trained: {text_of(old_schema(table, new))}"
    return f"{either}; if the second: {key_in(table, 'rope_parameters')} = {json.dumps(in_new_schema(old))}"


def _inside(layer: Mapping[str, Any]) -> bool:
    scaling = layer.get("rope_scaling")
    return isinstance(scaling, Mapping) and scaling.get("rope_theta") is not None


def _read(layer: Mapping[str, Any], without: tuple[str, ...] = ()) -> Rope:
    return read_rope(Fields({key: value for key, value in layer.items() if key not in without}, "config.json"), "")


def _told_apart(ours: Rope, theirs: Rope, theta: bool = True) -> tuple[str, str] | None:
    """Both in words, where they differ; without `theta` the second states no base, and bases are not compared."""
    a, b = _words(ours, theta), _words(theirs, theta)
    return (a, b) if a != b else None


def _words(rope: Rope, theta: bool = True) -> str:
    kind = "default" if rope.type in ("default", "mrope") else rope.type
    scales = [f"{key} {rope.get(key):g}" for key in _SCALES if isinstance(rope.get(key), int | float)]
    scaled = "".join(f", {text}" for text in scales) if kind != "default" else ""
    return (f"base {rope.base:g}, " if theta else "") + (kind if kind != "default" else "unscaled") + scaled


def _by_layer_type(case: Case, kinds: Mapping[str, Any]) -> Finding:
    config = case.files.config
    taken = config.evidence["rope"].key.rpartition(".")[2] if config is not None else "none"
    title = f"RoPE is stated by layer type; {taken} is taken"
    evidence = {kind: dict(table) for kind, table in kinds.items()} | {"taken": taken}
    return Finding("rope-schemas", KIND, NOTE, title, evidence, reports=("vllm-project/speculators#921",))


@check("rope-trained", KIND, (CKPT,), ("sgl-project/SpecForge#265", "NVIDIA-NeMo/Automodel#2920"))
def rope_trained(case: Case) -> Iterable[Finding]:
    """The base that training used, where its code or its leftovers tell, against the one that servers read."""
    config = case.checkpoint.run_config
    reports = ("sgl-project/SpecForge#265", "NVIDIA-NeMo/Automodel#2920")
    stated, used = config.stated_rope, config.rope
    evidence: dict[str, Any] = {"stated": _words(stated), "used in training": _words(used)}
    if stated != used:
        why = config.evidence["rope"].note
        title = f"training used RoPE {_words(used)}, servers read {_words(stated)} ({why})"
        fix = f"{case.files.table_name}: {rope_keys(case.files.table, used)}, after comparing --rope-base "
        fix += f"{used.base:g} and {stated.base:g}"
        yield Finding("rope-trained", KIND, WARNING, title, evidence, fix, reports, "wiring", 51)
    left = stored_base(case.checkpoint.tensors)
    if left is not None and abs(left[1] / used.base - 1) > left[2]:
        name, base, _ = left
        title = f"{name} was made with a RoPE base of {base:.6g}, the config says {used.base:g}"
        fix = f"{case.files.table_name}: {rope_keys(case.files.table, replace(stated, base=float(f'{base:.6g}')))}, "
        fix += f"after comparing --rope-base {base:.6g}"
        evidence = {**evidence, name: base}
        yield Finding("rope-trained", KIND, WARNING, title, evidence, fix, reports, "wiring", 51)


@check("rope-of-target", KIND, (CKPT, TCFG), ("vllm-project/speculators#574", "sgl-project/SpecForge#265"))
def rope_of_target(case: Case) -> Iterable[Finding]:
    """The drafter's rotary embedding beside the target's."""
    table = case.target_table()
    if not any(table.get(key) is not None for key in ("rope_theta", "rope_parameters", "rope_scaling")):
        return
    try:
        theirs = _read(table)
    except DrafterError:
        return  # the target's own affair
    ours = case.checkpoint.config.stated_rope
    evidence = {
        "drafter": _words(ours),
        "target": _words(theirs),
        "target's config": str(case.target and case.target.path),
    }
    evidence["used here"] = _words(case.checkpoint.run_config.rope)
    reports = ("vllm-project/speculators#574", "sgl-project/SpecForge#265")
    told = _told_apart(ours, theirs)
    if told is None:
        yield Finding("rope-of-target", KIND, OK, f"drafter and target have the same RoPE: {_words(ours)}", evidence)
        return
    title = f"the drafter's RoPE is {told[0]}, the target's {told[1]}"
    scaled = theirs.type not in ("default", "mrope") and ours.type in ("default", "mrope")
    if scaled:
        title += ": the scaling may have been lost in a conversion, which shows only in long contexts"
    fix = f"if training used the target's: {case.files.table_name}: {rope_keys(case.files.table, theirs)}"
    yield Finding("rope-of-target", KIND, WARNING, title, evidence, fix, reports, "wiring", 50 if scaled else 48)


@check("max-positions", KIND, (CKPT, TCFG), ("vllm-project/vllm#48894", "vllm-project/vllm#23072"))
def max_positions(case: Case) -> Iterable[Finding]:
    """A drafter whose positions end before the target's."""
    ours, theirs = case.checkpoint.config.max_positions, case.target_table().get("max_position_embeddings")
    if ours is None or type(theirs) is not int:
        return
    evidence = {"drafter": ours, "target": theirs}
    reports = ("vllm-project/vllm#48894", "vllm-project/vllm#23072")
    if ours < theirs:
        title = f"max_position_embeddings is {ours}, the target's {theirs}: past {ours} a server reads beyond its table"
        fix = f"{case.files.table_name}: {case.files.key('max_position_embeddings')} = {theirs}"
        yield Finding("max-positions", KIND, WARNING, title, evidence, fix, reports, weight=47)
    else:
        yield Finding("max-positions", KIND, OK, f"positions reach to {ours}, as far as the target's", evidence)


@check("rope-type", KIND, (CKPT,))
def rope_type(case: Case) -> Iterable[Finding]:
    """A type of RoPE that is not computed here, so that nothing can be measured."""
    from drafter.model.rope import SUPPORTED

    rope = case.checkpoint.run_config.rope
    if rope.type not in SUPPORTED:
        title = f"RoPE of type {rope.type!r:.40} is not computed here: nothing can be measured with it"
        evidence = {"type": rope.type, "computed": list(SUPPORTED)}
        yield Finding("rope-type", KIND, NOTE, title, evidence, "compare with --rope-type default on short samples")
