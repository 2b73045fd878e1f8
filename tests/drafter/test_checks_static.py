"""Checks that need no sample: each fault is named with its evidence and cure, and what is whole is let be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter.checks.case import Case
from drafter.checks.finding import ERROR, KINDS, NOTE, OK, SEVERITIES, VERDICTS, WARNING, Finding, ranked
from drafter.checks.registry import CHECKS, Check
from drafter.checks.run import Report, all_checks, report_json, run_checks
from drafter.checks.untrained import initial_value, look_at, structured
from drafter.checks.verdict import verdict_of
from drafter.errors import Cancelled, WiringError
from drafter.files.find import find_checkpoints
from drafter.files.safetensors_file import read_header
from drafter.json_text import json_text
from drafter.session import Options, Session
from eagle3_tui import demo
from tests import tiny
from tests.drafter.static_faults import FAULTS, SIZES, TWO, Fault, config, put, target, trained, weights, whole, zeros
from tests.zoo import ANIMALS, BROKEN, REFUSED, Animal, Broken, Refused

torch.set_num_threads(1)
STATIC = ("static", "weights")
FULL = replace(SIZES, draft_vocab=SIZES.vocab)
WHOLE = Fault("", "", "", lambda folder: None)


def checked(folder: Path, target: Path | None = None, **asked: Any) -> Report:
    session = Session(Options(folder, target=target))
    return session.check(session.pick(session.find()), stages=asked.pop("stages", STATIC), **asked)


def said(report: Report, severity: str) -> list[str]:
    return [f"{finding.check}: {finding.title}" for finding in report.findings if finding.severity == severity]


def words(finding: Finding) -> str:
    return f"{finding.title} {json.dumps(report_json(Report((finding,), (), '', ''))['findings'][0])}"


# --- every fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_named(tmp_path: Path, fault: Fault) -> None:
    folder = whole(tmp_path / "drafter", fault)
    beside = target(tmp_path / "target", fault)
    before = checked(folder, beside)
    same = {(f.check, f.severity) for f in before.findings if f.severity in (ERROR, WARNING)}
    assert not same, "it is broken before it is broken"
    shutil.rmtree(folder)
    fault.breaks(whole(folder, fault))
    fault.breaks_target(beside)
    report = checked(folder, beside)
    named = [f for f in report.findings if (f.check, f.severity) == (fault.check, fault.severity)]
    assert named, [(f.severity, f.check, f.title) for f in report.findings if f.severity != OK]
    fitting = [f for f in named if all(word in words(f) for word in fault.words)]
    assert fitting, [words(f) for f in named]
    finding = fitting[0]
    assert fault.fix in finding.fix
    assert not fault.kind or finding.kind == fault.kind
    assert finding.severity in (NOTE, OK) or finding.fix
    others = {f.check for f in report.findings if f.severity == ERROR} - {fault.check, *fault.also}
    assert not others
    assert not report.crashes
    if fault.severity == ERROR:
        assert report.failed and report.verdict_kind not in ("healthy", "unknown")


@pytest.mark.parametrize(("norm", "server"), [(True, None), (False, None), (True, "vllm@0.33.0")])
def test_right_ids_leave_sglang_without_the_norm(tmp_path: Path, norm: bool, server: str | None) -> None:
    fault = next(fault for fault in FAULTS if fault.check == "layer-ids-differ")
    folder = whole(tmp_path / "drafter", fault)
    fault.breaks(folder)
    training = folder / "config_speculators.json"
    training.write_text(json.dumps({**json.loads(training.read_text()), "norm_before_residual": norm}))
    report = checked(folder, target(tmp_path / "target", fault), server=server)
    fix = next(f.fix for f in report.findings if f.check == "layer-ids-differ")
    assert ("SGLang has no norm_before_residual on top of that" in fix) == (norm and server is None)


def test_errors_come_with_a_verdict_of_their_kind(tmp_path: Path) -> None:
    by_name = {fault.name: fault for fault in FAULTS}
    kinds = {"empty_ids": "miswired", "nan": "broken-checkpoint", "never_trained": "untrained"}
    for name, kind in kinds.items():
        folder = whole(tmp_path / name, by_name[name])
        by_name[name].breaks(folder)
        report = checked(folder, target(tmp_path / f"{name} target", by_name[name]))
        assert report.verdict_kind == kind
        assert report.findings[0].title in report.verdict


# --- what is whole


@pytest.mark.parametrize("sizes", [SIZES, TWO], ids=["one layer", "two layers"])
@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_a_whole_one_has_neither_error_nor_warning(tmp_path: Path, sizes: tiny.Sizes, nested: bool) -> None:
    fault = Fault("", "", "", lambda folder: None, nested=nested, sizes=sizes)
    report = checked(whole(tmp_path / "drafter", fault), target(tmp_path / "target", fault))
    assert said(report, ERROR) == said(report, WARNING) == []
    assert {"vocab-map", "shapes", "numbers", "untrained", "files-whole"} <= {f.check for f in report.findings}
    needed = next(one.why for one in report.not_checked if one.check == "flags-needed")
    assert needed.startswith("no server flags") and "--speculative-algorithm EAGLE3" in needed
    assert "flags-needed" not in {f.check for f in report.findings}
    marks = next(f for f in report.findings if f.check == "fingerprints")
    assert "to be compared after an upgrade" in marks.title and marks.severity == OK and marks.evidence
    assert report.verdict_kind == "unknown" and "not measured" in report.verdict


# The zoo's drafters that really have a fault: what must be found of each, and nothing else of any.
# SafeAILab's scan leaves the map in a cache beside the weights, where no server looks; SpecForge's norm_output false
# is served with the norm that it left out; a map of target ids; a part of the target's head that no server picks out;
# AngelSlim's trainer passes no base and its templates tie a head that it trains.
REALLY = {
    "safeailab_map_in_cache": {"vocab-map-missing"},
    "specforge_no_norm": {"norm-flags"},
    "specforge_exported_no_norm": {"norm-flags"},
    "flat_direct_map": {"vocab-map-is-direct"},
    "angelslim_lost_base": {"rope-trained"},
    "vllm_target_head": {"head-missing"},
    "vllm_tied_target_head": {"head-missing"},
    "angelslim_tied_by_mistake": {"tied-head"},
}


@pytest.mark.parametrize("animal", ANIMALS, ids=lambda animal: animal.name)
def test_every_producers_drafter_is_let_be(tmp_path: Path, animal: Animal) -> None:
    folder = animal.write(tmp_path / "drafter")
    made = tiny.tiny_weights(animal.seed, animal.sizes, **animal.make)
    beside = tiny.write_target(tmp_path / "target", made, animal.sizes, lm_head=animal.head != "target, tied")
    _same_rope(tmp_path)
    report = checked(folder, beside)
    assert not report.crashes
    found = {f.check for f in report.findings if f.severity in (ERROR, WARNING)}
    assert found == REALLY.get(animal.name, set()), [*said(report, ERROR), *said(report, WARNING)]


def _same_rope(root: Path) -> None:
    """The target of an animal turns as its drafter does; where the layer's own type decides, it says nothing."""
    drafter = json.loads((root / "drafter/config.json").read_text())
    layer = drafter.get("transformer_layer_config", drafter)
    table = json.loads((root / "target/config.json").read_text())
    del table["rope_theta"]
    keys = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    table |= {key: layer[key] for key in keys if layer.get(key) is not None}
    if "full_attention" in table.get("rope_parameters", {}):
        del table["rope_parameters"]
    (root / "target/config.json").write_text(json.dumps(table))


def test_the_shipped_checkpoints_matrices_are_trained() -> None:
    """Really trained ones, small and after one epoch: none is taken for noise."""
    for epoch in ("0", "3", "7"):
        report = checked(demo.OUTPUT / epoch)
        found = {f.check: f.severity for f in report.findings}
        assert found["untrained"] == found["numbers"] == found["vocab-map"] == OK


@pytest.mark.parametrize("name", ["fc", "midlayer.self_attn.q_proj", "midlayer.mlp.down_proj", "lm_head"])
def test_one_matrix_of_the_shipped_one_made_anew_is_found(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "7"
    shutil.copytree(demo.OUTPUT / "7", folder)
    tensors = load_file(folder / "model.safetensors")
    rng = torch.Generator().manual_seed(4)
    fresh = torch.randn(tensors[f"{name}.weight"].shape, generator=rng) * 0.02
    save_file({**tensors, f"{name}.weight": fresh.bfloat16()}, folder / "model.safetensors")
    found = [f for f in checked(folder).findings if f.check == "untrained"]
    assert [f.severity for f in found] == [ERROR]
    assert name.removeprefix("midlayer.") in found[0].title


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_not_whole_is_a_finding(tmp_path: Path, broken: Broken) -> None:
    report = checked(broken.write(tmp_path / "drafter"))
    assert report.failed and not report.crashes
    assert any(broken.word in words(f) for f in report.findings if f.severity == ERROR)
    assert report.verdict_kind == "broken-checkpoint"


@pytest.mark.parametrize("other", REFUSED, ids=lambda other: other.name)
def test_what_is_no_drafter_is_named(tmp_path: Path, other: Refused) -> None:
    other.write(tmp_path / "drafter")
    report = checked(tmp_path / "drafter")
    assert not report.crashes
    shown = [f for f in report.findings if f.severity != OK]
    assert any(other.word.lower() in words(f).lower() for f in shown)
    assert any(n.why.startswith("the checkpoint cannot be opened") for n in report.not_checked) == report.failed


def test_a_drafter_whose_second_layer_adds_nothing_is_let_be(tmp_path: Path) -> None:
    fault = Fault("", "", "", lambda folder: None, sizes=TWO)
    folder = whole(tmp_path / "drafter", fault)
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        weights(put(f"layers.1.{name}.weight", torch.zeros_like))(folder)
    report = checked(folder, target(tmp_path / "target", fault))
    assert said(report, ERROR) == said(report, WARNING) == []
    assert any("adds nothing" in line for line in said(report, NOTE))


def test_rows_of_zeros_that_may_be_padding_are_let_be(tmp_path: Path) -> None:
    made = trained(tiny.tiny_weights(0, FULL, d2t="none"))
    folder = tiny.write_flat(tmp_path / "drafter", made, FULL, embed=True)
    for name in ("embed_tokens.weight", "lm_head.weight"):
        weights(put(name, zeros(280, 300)))(folder)
    assert not [f for f in checked(folder).findings if f.check == "rows-of-zeros"]


def test_a_whole_vocabulary_needs_no_marks(tmp_path: Path) -> None:
    """Trainers of a whole vocabulary leave d2t and t2d as they were made: all zeros."""
    made = trained(tiny.tiny_weights(0, FULL, d2t="none"))
    unset = {"d2t": torch.zeros(300, dtype=torch.int64), "t2d": torch.zeros(300, dtype=torch.bool)}
    folder = tiny.write_flat(tmp_path / "drafter", made | unset, FULL)
    assert said(checked(folder), ERROR) == said(checked(folder), WARNING) == []


def test_a_whole_head_that_is_tied_may_be_a_copy(tmp_path: Path) -> None:
    made = trained(tiny.tiny_weights(0, FULL, d2t="none"))
    folder = tiny.write_flat(tmp_path / "drafter", made, FULL, changes={"tie_word_embeddings": True})
    report = checked(folder)
    assert not report.failed and [f.check for f in report.findings if f.severity == WARNING] == ["tied-head"]


def test_a_drafters_class_that_was_not_read_is_no_targets(tmp_path: Path) -> None:
    folder = whole(tmp_path / "drafter", WHOLE)
    config(architectures=["Qwen3ForCausalLMEagle3"])(folder)
    report = checked(folder)
    assert not report.failed and any("Qwen3ForCausalLMEagle3" in line for line in said(report, NOTE))


# --- how a matrix looks


def stored(tmp_path: Path, t: torch.Tensor) -> Any:
    save_file({"x": t}, tmp_path / "x.safetensors")
    return read_header(tmp_path / "x.safetensors").tensors["x"]


@pytest.mark.parametrize("shape", [(64, 64), (48, 200), (300, 96)])
def test_looks_are_those_of_a_plain_computation(tmp_path: Path, shape: tuple[int, int]) -> None:
    rng = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=rng) * torch.linspace(0.1, 2, shape[1]) + 0.05
    look = look_at(stored(tmp_path, x), lambda: None)
    d = x.double()
    centred = d - d.mean()
    variance = centred.square().mean()
    kurtosis = float(centred.pow(4).mean() / variance**2)
    assert look.mean == pytest.approx(float(d.mean()), rel=1e-5)
    assert look.std == pytest.approx(float(variance.sqrt()), rel=1e-5)
    assert look.kurtosis == pytest.approx(kurtosis, rel=1e-4)
    assert look.largest == pytest.approx(float(d.abs().max()))
    for found, dim in ((look.rows, 1), (look.columns, 0)):
        norms = d.norm(dim=dim)
        expected = ((kurtosis - 1) / (4 * shape[dim])) ** 0.5
        scatter = float(norms.std() / norms.mean()) / expected - 1
        assert found == pytest.approx(scatter * (2 * norms.numel()) ** 0.5, rel=1e-3, abs=1e-3)
    assert structured(look) and not initial_value(look, 0.02)


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_an_initialiser_is_told(tmp_path: Path, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    normal = (torch.randn(96, 128, generator=rng) * 0.02).bfloat16()
    assert "N(0, 0.02)" in initial_value(look_at(stored(tmp_path, normal), lambda: None), 0.02)
    uniform = (torch.rand(96, 128, generator=rng) * 2 - 1) / 128**0.5
    assert "linear layer" in initial_value(look_at(stored(tmp_path, uniform), lambda: None), 0.02)
    other = torch.randn(96, 128, generator=rng) * 0.05  # small, and of no initialiser's spread
    assert not initial_value(look_at(stored(tmp_path, other), lambda: None), 0.02)


def test_numbers_that_are_none_are_counted(tmp_path: Path) -> None:
    x = torch.ones(8, 4, dtype=torch.bfloat16)
    x[0, 0], x[1, 1], x[2, 2], x[3, 3] = float("nan"), float("inf"), -float("inf"), 5.0
    look = look_at(stored(tmp_path, x), lambda: None)
    assert (look.nan, look.inf, look.largest) == (1, 2, 5.0)
    assert look_at(stored(tmp_path, torch.full((3, 3), 2.5)), lambda: None).constant == 2.5


# --- flags


def test_flags_that_draft_less_than_asked(tmp_path: Path) -> None:
    fault = FAULTS[0]
    folder = whole(tmp_path / "drafter", fault)
    line = "--speculative-algorithm EAGLE3 --speculative-num-steps 1 --speculative-eagle-topk 1 "
    report = checked(folder, flags=f"{line} --speculative-num-draft-tokens 16")
    changed = [f for f in report.findings if f.check == "flags" and f.severity == WARNING]
    assert changed and "16" in changed[0].title and "2" in changed[0].title
    assert "at most 2" in changed[0].title


def test_the_algorithm_of_another_head_is_an_error(tmp_path: Path) -> None:
    folder = whole(tmp_path / "drafter", FAULTS[0])
    flags = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1"
    report = checked(folder, flags=f"{flags} --speculative-num-draft-tokens 4")
    wrong = [f for f in report.findings if f.check == "flags" and f.severity == ERROR]
    assert wrong and "EAGLE3" in wrong[0].title + wrong[0].fix
    assert report.verdict_kind == "serving" and report.failed


def test_what_the_named_server_does_otherwise_is_an_error(tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "drafter", tiny.tiny_weights(0, SIZES), SIZES, norm_before_residual=True)
    assert not checked(folder).failed
    report = checked(folder, server="sglang@0.5.12")
    named = [f for f in report.findings if f.check == "served-otherwise" and f.severity == ERROR]
    assert any(f.evidence["switch"] == "norm_before_residual" for f in named)
    vllm = checked(folder, server="vllm")
    assert not [f for f in vllm.findings if f.evidence.get("switch") == "norm_before_residual"]


def test_an_embedding_equal_to_the_targets_may_be_replaced(tmp_path: Path) -> None:
    folder, beside = whole(tmp_path / "drafter", WHOLE), target(tmp_path / "target", WHOLE)
    assert not checked(folder, beside, server="sglang").failed
    weights(put("embed_tokens.weight", lambda t: t + torch.ones_like(t)))(folder)
    named = [f for f in checked(folder, beside, server="sglang").findings if f.severity == ERROR]
    assert [f.evidence["switch"] for f in named] == ["embedding"]


def test_flags_alone_name_no_drafter_and_a_launch_line_has_to(tmp_path: Path) -> None:
    folder = whole(tmp_path / "drafter", FAULTS[0])
    alone = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 "
    alone += "--speculative-num-draft-tokens 4"
    for flags, wrong in ((alone, False), (f"python -m sglang.launch_server --model-path t {alone}", True)):
        titles = [f.title for f in checked(folder, flags=flags).findings if f.check == "flags" and f.severity == ERROR]
        assert any("draft model" in title for title in titles) == wrong


def test_without_flags_the_check_is_listed_with_what_would_allow_it(tmp_path: Path) -> None:
    report = checked(whole(tmp_path / "drafter", FAULTS[0]))
    why = {n.check: n.why for n in report.not_checked}
    assert "--flags" in why["flags"]
    assert "--target" in why["rope-of-target"] and "--target" in why["embedding-of-target"]
    assert "--tokenizer" in why["tokenizer-ids"]


def test_flags_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    folder = whole(tmp_path / "drafter", FAULTS[0])
    with pytest.raises(WiringError):
        checked(folder, flags="--port 3000")
    with pytest.raises(WiringError):
        checked(folder, server="nobody@1")


# --- a served accept length beside the offline one, on the shipped drafter


def held_against(tmp_path: Path, served: float, flags: str | None) -> Report:
    """The shipped drafter, wired as it was trained, on some of its training samples."""
    folder = tmp_path / "7"
    shutil.copytree(demo.OUTPUT / "7", folder)
    (folder / "config_speculators.json").replace(folder / "config.json")
    paths = sorted((demo.OUTPUT.parent / "samples/train").glob("*.pt"))[:3]
    session = Session(Options(folder, target=demo.demo_options().target, samples=tuple(paths), device="cpu"))
    return session.check(session.pick(session.find()), paths, served=served, flags=flags, stages=("static", "forward"))


VLLM = '--speculative-config {"method":"eagle3","model":"d","num_speculative_tokens":3}'


def test_a_server_far_below_a_good_drafter_is_to_be_looked_at(tmp_path: Path) -> None:
    report = held_against(tmp_path, 1.3, f"vllm serve t {VLLM}".replace('{"', "'{\"").replace("}", "}'"))
    found = next(f for f in report.findings if f.check == "served-length")
    assert found.kind in ("K12", "K13") and "1.30" in found.title
    assert found.severity == ERROR and report.verdict_kind in ("serving", "miswired")
    assert found.evidence["offline"] > 2 and found.evidence["drafts a round"] == 3


def test_without_flags_the_number_of_drafts_is_said_to_be_assumed(tmp_path: Path) -> None:
    report = held_against(tmp_path, 1.3, None)
    found = next(f for f in report.findings if f.check == "served-length")
    assert "--flags" in found.title and "5 drafts" in found.title
    assert found.severity == WARNING and report.verdict_kind == "serving"


def test_a_server_as_good_as_offline_is_as_expected(tmp_path: Path) -> None:
    offline = held_against(tmp_path, 1.3, None)
    length = next(f for f in offline.findings if f.check == "served-length").evidence["offline"]
    shutil.rmtree(tmp_path / "7")
    report = held_against(tmp_path, round(length, 2), None)
    found = next(f for f in report.findings if f.check == "served-length")
    assert found.severity == NOTE and "as expected" in found.title
    assert report.verdict_kind == "healthy" and not report.failed


def test_without_a_served_length_it_is_listed(tmp_path: Path) -> None:
    report = checked(whole(tmp_path / "drafter", WHOLE), stages=("forward",))
    why = {n.check: n.why for n in report.not_checked}
    assert "-s" in why["served-length"]


# --- the framework


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Check]]:
    """No checks but those that the test adds."""
    all_checks()
    kept: list[Check] = []
    monkeypatch.setattr("drafter.checks.run.all_checks", lambda: kept)
    yield kept


def case(tmp_path: Path) -> Case:
    (found,) = find_checkpoints(whole(tmp_path / "drafter", FAULTS[0]))
    return Case(found)


def test_a_check_that_breaks_ends_no_other(tmp_path: Path, alone: list[Check]) -> None:
    def breaks(case: Case) -> list[Finding]:
        raise ZeroDivisionError("a slip")

    def finds(case: Case) -> list[Finding]:
        return [Finding("b", "K02", ERROR, "found")]

    alone += [Check("a", "K01", (), (), "static", breaks), Check("b", "K02", (), (), "static", finds)]
    seen: list[str] = []
    report = run_checks(case(tmp_path), lambda finding: seen.append(finding.check))
    assert [f.check for f in report.findings] == ["b", "own-fault"] and seen == ["own-fault", "b"]
    assert report.findings[1].severity == NOTE and "a slip" in str(report.findings[1].evidence)
    assert [name for name, trace in report.crashes if "ZeroDivisionError" in trace] == ["a"]


def test_cancelling_ends_the_run(tmp_path: Path, alone: list[Check]) -> None:
    def cancels(case: Case) -> list[Finding]:
        raise Cancelled

    alone.append(Check("a", "K01", (), (), "static", cancels))
    with pytest.raises(Cancelled):
        run_checks(case(tmp_path))


def test_a_need_that_is_not_met_is_listed(tmp_path: Path, alone: list[Check]) -> None:
    alone.append(Check("a", "K01", ("checkpoint",), (), "static", lambda case: []))
    report = run_checks(case(tmp_path))
    assert [(n.check, "cannot be opened" in n.why) for n in report.not_checked] == [("a", True)]


def test_ranked_by_severity_then_weight() -> None:
    made = [Finding("x", "K01", severity, "", weight=w) for severity in SEVERITIES for w in (1, 3, 2)]
    order = [(f.severity, f.weight) for f in ranked(list(reversed(made)))]
    assert order == [(severity, w) for severity in SEVERITIES for w in (3, 2, 1)]


def test_a_verdict_for_every_kind() -> None:
    for kind in KINDS:
        found, sentence = verdict_of([Finding("x", kind, ERROR, "it is so")])
        assert found in VERDICTS and "it is so" in sentence
    assert verdict_of([])[0] == "unknown"
    assert verdict_of([Finding("x", "K12", OK, "it predicts", means="healthy")])[0] == "healthy"


def test_ids_are_unique_and_json_is_json(tmp_path: Path) -> None:
    names = [check.id for check in all_checks()]
    assert len(set(names)) == len(names) == len(CHECKS) and {check.kind for check in CHECKS} <= set(KINDS)
    report = checked(whole(tmp_path / "drafter", FAULTS[0]))
    data = json.loads(json_text(report_json(report)))
    assert set(data) == {"findings", "verdict", "verdict_kind", "not_checked"}
    keys = {"check", "kind", "severity", "title", "evidence", "fix", "reports"}
    assert all(set(finding) == keys for finding in data["findings"])
