"""A fix of `check` cures when it is written into config.json literally: what was found is gone, and nothing is new."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter.checkpoint.checkpoint import open_checkpoint
from drafter.checks.case import Case
from drafter.checks.finding import ERROR, NOTE, OK, WARNING, Finding
from drafter.checks.k05_forward import fix_of_norm, fix_of_rope
from drafter.checks.run import Report
from drafter.files.find import find_checkpoints
from drafter.serving.layer_ids import NESTED, TOP, WIDTH, set_key
from drafter.session import Options, Session
from eagle3_tui import demo
from tests.drafter.static_faults import FAULTS, Fault, config, target, training_config, whole
from tests.drafter.test_checks_static import checked

_WRITTEN = re.compile(r"([a-z_][\w.]*) = (\[[^]]*\]|\{[^}]*\}|\"[^\"]*\"|[^\s,;()]+)")
VLLM, SGLANG = "vllm@0.33.0", "sglang@0.5.23"
DEMO = demo.DATA / "output/7"


def written(fix: str) -> dict[str, Any]:
    """The keys and values of a fix as somebody reads them who writes them down."""
    return {key: json.loads(value.replace("'", '"')) for key, value in _WRITTEN.findall(fix)}


def apply(folder: Path, fix: str) -> dict[str, Any]:
    keys = written(fix)
    assert keys, fix
    table = json.loads((folder / "config.json").read_text())
    for key, value in keys.items():
        set_key(table, key, value)
    (folder / "config.json").write_text(json.dumps(table))
    return keys


def of(report: Report, check: str, *severities: str) -> list[Finding]:
    wanted = severities or (ERROR, WARNING, NOTE)
    return [f for f in report.findings if f.check == check and f.severity in wanted]


def measured(folder: Path, server: str | None = None, fast: bool = False) -> Report:
    """Everything about a copy of the shipped drafter, on some of the shipped samples."""
    samples = demo.SAMPLES[0]
    session = Session(
        Options(
            folder, (samples,), target=demo.DATA / "target", slots="embed,2,4,last:pre", device="cpu", dtype="float32"
        )
    )
    return session.check(session.pick(session.find()), [] if fast else session.list_samples().paths, server=server)


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    folder = tmp_path / "drafter"
    shutil.copytree(DEMO, folder)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


# --- layer ids


@pytest.mark.parametrize("server", [VLLM, SGLANG])
def test_ids_written_for_a_server_are_judged_by_what_it_captures(drafter: Path, server: str) -> None:
    before = measured(drafter, server)
    (found,) = of(before, "layer-ids-differ")
    assert found.severity == ERROR and server in found.title
    keys = apply(drafter, found.fix.split("; ")[0])
    assert keys == ({TOP: [0, 2, 4], WIDTH: 3} if server == VLLM else {NESTED: [-1, 1, 3]})
    after = measured(drafter, server)
    assert not [f.title for f in after.findings if f.kind == "K01" and f.severity == ERROR]
    assert not of(after, "layer-ids-differ") and not of(after, "served-layers")
    if server == VLLM:
        assert after.verdict_kind == "healthy" and not after.failed
    else:
        limits = {"served-otherwise", "server-cannot-compute-it"}  # SGLang has no norm_before_residual
        assert {f.check for f in after.findings if f.severity == ERROR} <= limits


@pytest.mark.parametrize("server", [VLLM, SGLANG])
def test_a_folder_that_fix_wrote_is_right_for_its_server(drafter: Path, tmp_path: Path, server: str) -> None:
    from drafter import fix
    from drafter.serving.families import family_of
    from drafter.serving.server import Server
    from tests.drafter.helpers import opened

    made = fix.plan(opened(drafter), (0, 1, 2), (0, 2, 4, 6), [Server.parse(server)], family_of("llama"), 6)
    report = measured(fix.write(made, tmp_path / "fixed"), server)
    assert not [f.title for f in report.findings if f.kind == "K01" and f.severity == ERROR]
    assert (report.verdict_kind == "healthy") == (server == VLLM)


def test_two_lists_of_which_one_is_right_are_each_judged_by_their_engine(tmp_path: Path) -> None:
    fault = Fault("", "", "", lambda folder: None)
    folder, beside = whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault)
    training_config()(folder)  # depths 2, 6, 9
    config(**{"eagle_config__" + TOP: [2, 6, 9], TOP: [2, 6, 9], WIDTH: 3})(folder)
    (found,) = of(checked(folder, beside), "layer-ids-differ")
    assert found.severity == WARNING
    assert "sglang@0.5.23 feed fc the states at depths 3, 7, 10" in found.title
    assert "vllm@0.33.0 captures these" in found.title
    assert written(found.fix) == {NESTED: [1, 5, 8]}  # the right list is let be
    assert not of(checked(folder, beside, server=VLLM), "layer-ids-differ")
    assert [f.severity for f in of(checked(folder, beside, server=SGLANG), "layer-ids-differ")] == [ERROR]
    config(**{"eagle_config__" + TOP: [1, 5, 8], TOP: [1, 5, 8]})(folder)
    (found,) = of(checked(folder, beside), "layer-ids-differ")
    assert (found.severity, written(found.fix)) == (WARNING, {TOP: [2, 6, 9], WIDTH: 3})


def test_one_wrong_list_is_one_error_and_is_praised_nowhere(tmp_path: Path) -> None:
    fault = Fault("", "", "", lambda folder: None)
    folder, beside = whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault)
    training_config()(folder)
    config(**{"eagle_config__" + TOP: [2, 6, 9]})(folder)
    for server in (None, SGLANG):
        report = checked(folder, beside, server=server)
        assert [f.check for f in report.findings if f.kind == "K01" and f.severity == ERROR] == ["layer-ids-differ"]
        assert not of(report, "layer-ids", OK) and not of(report, "id-convention", OK)
    assert [f.severity for f in of(checked(folder, beside, server=SGLANG), "served-layers")] == [NOTE]


@pytest.mark.parametrize(
    ("server", "words"),
    [(None, "up to 0.5.14"), ("sglang@0.5.12", "raises TypeError here"), ("sglang@0.5.23", "")],
)
def test_every_fix_to_depth_0_says_which_sglang_raises(drafter: Path, server: str | None, words: str) -> None:
    report = measured(drafter, server)
    fixes = [f.fix for f in report.findings if "[-1, 1, 3]" in f.fix]
    assert len(fixes) > 1
    assert all((words in fix) if words else ("TypeError" not in fix) for fix in fixes), fixes


def test_sglang_is_advised_no_key_of_a_nested_config(tmp_path: Path) -> None:
    fault = Fault("", "", "", lambda folder: None, nested=True)
    folder, beside = whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault)
    config(**{TOP: ...})(folder)
    (found,) = of(checked(folder, beside), "layer-ids")
    assert "eagle_config" not in found.fix and "eagle3-tui fix --for sglang@0.5.23" in found.fix


def test_a_guess_that_names_a_state_twice_is_not_advised(drafter: Path) -> None:
    (drafter / "config_speculators.json").unlink()
    config(**{"eagle_config__" + TOP: ...})(drafter)
    (found,) = of(measured(drafter, fast=True), "layer-ids")
    assert "2 states of so small a target" in found.title
    assert "captured once" not in found.fix and TOP in found.fix and NESTED in found.fix


@pytest.mark.parametrize("server", [None, VLLM])
def test_a_list_that_is_written_for_vllm_is_read_as_vllm_does(drafter: Path, server: str | None) -> None:
    (drafter / "config_speculators.json").unlink()
    config(**{"eagle_config__" + TOP: ...})(drafter)
    (found,) = of(measured(drafter, server), "configured-layers-are-not-recorded")
    keys = next(part for part in found.fix.split("; ") if VLLM in part)
    apply(drafter, keys)
    assert not [f.title for f in measured(drafter, server).findings if f.kind == "K01" and f.severity == ERROR]


def test_a_list_that_is_not_there_is_one_error(drafter: Path) -> None:
    config(**{"eagle_config__" + TOP: ...})(drafter)
    for server in (None, VLLM, SGLANG):
        report = measured(drafter, server, fast=True)
        assert [f.check for f in report.findings if f.kind == "K01" and f.severity == ERROR] == ["layer-ids"]


def test_columns_that_must_move_are_moved_by_the_named_command(drafter: Path) -> None:
    (drafter / "config_speculators.json").unlink()
    config(norm_before_residual=True, **{"eagle_config__" + TOP: [-1, 1, 3], TOP: [0, 2, 4], WIDTH: 3})(drafter)
    tensors = load_file(drafter / "model.safetensors")
    a, b, c = tensors["fc.weight"].chunk(3, -1)
    save_file({**tensors, "fc.weight": torch.cat([b, a, c], -1).contiguous()}, drafter / "model.safetensors")
    (found,) = of(measured(drafter), "configured-layers-are-not-the-trained-ones")
    assert found.severity == ERROR
    assert "the layer ids select these already" in found.fix and "eagle3-tui fix --ordering 1,0,2" in found.fix
    assert not written(found.fix)


# --- fields of the config, by the path that they have in it

YARN = {"rope_theta": 50000, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
OLD_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}  # no base: 10000 is taken
ROTARY = {"rope_theta": 50000, "rope_type": "default"}
LAYER = "transformer_layer_config__"


@pytest.mark.parametrize(
    ("check", "nested", "changes", "of_target"),
    [
        ("rope-of-target", False, {"rope_theta": 1e6}, {}),
        ("rope-of-target", True, {f"{LAYER}rope_parameters": {**ROTARY, "rope_theta": 1e6}}, {}),
        ("rope-of-target", True, {f"{LAYER}rope_theta": ..., f"{LAYER}rope_parameters": ROTARY}, {"rope_theta": 7e4}),
        ("rope-of-target", False, {"rope_parameters": ROTARY}, {"rope_theta": 7e4}),
        ("rope-of-target", False, {}, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}}),
        ("rope-schemas", False, {"rope_theta": ..., "rope_parameters": ROTARY}, {}),
        ("rope-schemas", False, {"rope_theta": ..., "rope_parameters": YARN}, {}),
        ("rope-schemas", False, {"rope_theta": ..., "rope_parameters": {**OLD_YARN, "rope_theta": 50000.0}}, {}),
        ("rope-schemas", False, {"rope_theta": ..., "rope_parameters": OLD_YARN}, {}),
        ("max-positions", False, {}, {"max_position_embeddings": 4096}),
        ("max-positions", True, {}, {"max_position_embeddings": 4096}),
        ("norm-eps", False, {"rms_norm_eps": 0.1}, {}),
        ("norm-eps", True, {f"{LAYER}rms_norm_eps": 0.1}, {}),
        ("layers-count", True, {f"{LAYER}num_hidden_layers": 12}, {}),
    ],
)
def test_keys_are_written_where_they_are_read(
    tmp_path: Path, check: str, nested: bool, changes: dict[str, Any], of_target: dict[str, Any]
) -> None:
    fault = Fault("", "", "", lambda folder: None, nested=nested)
    folder, beside = whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault)
    config(**changes)(folder)
    config(**of_target)(beside)
    before = checked(folder, beside)
    (found,) = of(before, check)
    keys = apply(folder, found.fix.split("; if the second")[0])
    assert all(key.startswith("transformer_layer_config.") == nested for key in keys), keys
    after = checked(folder, beside)
    assert not of(after, check)
    new = {(f.check, f.title) for f in after.findings if f.severity in (ERROR, WARNING)}
    assert new <= {(f.check, f.title) for f in before.findings}


def test_sglang_loads_no_nested_rope(tmp_path: Path) -> None:
    fault = Fault("", "", "", lambda folder: None, nested=True)
    folder, beside = whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault)
    config(**{f"{LAYER}rope_theta": ..., f"{LAYER}rope_parameters": ROTARY})(folder)
    (found,) = of(checked(folder, beside), "rope-schemas")
    assert not written(found.fix) and "eagle3-tui fix --for sglang" in found.fix


@pytest.mark.parametrize("part", ["first", "second"])
def test_schemas_that_disagree_are_made_one(tmp_path: Path, part: str) -> None:
    fault = Fault("", "", "", lambda folder: None)
    folder, beside = whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault)
    config(rope_parameters={**YARN, "rope_theta": 7e4})(folder)
    (found,) = of(checked(folder, beside), "rope-schemas", ERROR)
    first, second = found.fix.split("; if the second")
    apply(folder, first if part == "first" else second)
    assert not of(checked(folder, beside), "rope-schemas")


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_before_residual": False},
        {"rope_theta": 1e6},
        {"rope_theta": ..., "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
        {"rms_norm_eps": 1e-3},
        {"hidden_act": "gelu"},
        {"max_position_embeddings": 99},
        {"norm_output": True},
    ],
)
def test_two_configs_are_made_one(drafter: Path, changes: dict[str, Any]) -> None:
    config(**changes)(drafter)
    (found,) = of(measured(drafter, fast=True), "two-configs")
    apply(drafter, found.fix)
    after = measured(drafter, fast=True)
    assert not of(after, "two-configs") and not of(after, "rope-schemas", ERROR)


def test_flags_of_a_nested_config_are_speculators_own(tmp_path: Path) -> None:
    fault = Fault("", "", "", lambda folder: None, nested=True)
    folder, beside = whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault)
    add = next(fault for fault in FAULTS if fault.name == "norm_without_flag")
    add.breaks(folder)
    (found,) = of(checked(folder, beside), "norm-flags")
    assert apply(folder, found.fix) == {"norm_before_fc": True}
    assert not of(checked(folder, beside), "norm-flags")


def case_of(folder: Path, **changes: Any) -> Case:
    config(**changes)(folder)
    (found,) = find_checkpoints(folder)
    return Case(found, open_checkpoint(found))


@pytest.mark.parametrize("nested", [False, True])
def test_switches_that_predict_better_are_written_as_keys(tmp_path: Path, nested: bool) -> None:
    fault = Fault("", "", "", lambda folder: None, nested=nested)
    window = {f"{LAYER if nested else ''}layer_types": ["sliding_attention"]}
    window[f"{LAYER if nested else ''}sliding_window"] = 8
    case = case_of(whole(tmp_path / "drafter", fault), **window)
    layer = "transformer_layer_config." if nested else ""
    assert written(fix_of_rope(case, "window", "none")) == {
        f"{layer}layer_types": ["full_attention"],
        f"{layer}sliding_window": None,
    }
    keys = written(fix_of_rope(case, "rope_base", "1000000"))
    said = keys.get(f"{layer}rope_theta") or keys[f"{layer}rope_parameters"]["rope_theta"]
    assert said == 1_000_000 and all(key.startswith(layer) for key in keys)
    assert written(fix_of_norm(case, "rms_norm_eps 1e-06")) == {f"{layer}rms_norm_eps": 1e-6}
    assert written(fix_of_norm(case, "norm_before_residual on")) == {"norm_before_residual": True}
    fc = {"norm_before_fc": True} | ({} if nested else {"eagle_config.norm_before_fc": True})
    assert written(fix_of_norm(case, "norm_before_fc on")) == fc
    assert not written(fix_of_norm(case, "final_norm off")) and "no key" in fix_of_norm(case, "final_norm off")
