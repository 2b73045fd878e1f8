"""`check` on tiny files: findings and verdict as text and JSON, its exit status, and one line for every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from eagle3_tui import check_report
from tests.drafter.static_faults import FAULTS, Fault, target, whole
from tests.eagle3_tui.command import Run

torch.set_num_threads(1)
NAMED = {fault.name: fault for fault in FAULTS}
WHOLE = Fault("", "", "", lambda folder: None)
FLAGS = "--speculative-algorithm EAGLE3 --speculative-num-steps 1 --speculative-eagle-topk 1"


def made(root: Path, fault: Fault) -> Path:
    folder = whole(root / "run/drafter", fault)
    fault.breaks(folder)
    target(root / "run/target", fault)
    return folder


def test_help(run: Run) -> None:
    code, out, _ = run("check", "--help")
    assert code == 0
    for word in ("--flags", "--server", "--samples", "--json", "--static", "--target"):
        assert word in out
    assert "--rope-base" in out and "--ordering" not in out and "--server-log" in out
    assert "check" in run("--help").out


def test_a_whole_one_without_samples_exits_0(run: Run, tmp_path: Path) -> None:
    code, out, err = run("check", made(tmp_path, WHOLE), "--no-log")
    assert (code, "Traceback" in err) == (0, False)
    lines = out.splitlines()
    assert lines[0] == f"checkpoint {tmp_path / 'run/drafter'}"
    assert lines[1].startswith("verdict    ") and lines[1].endswith("[unknown]")
    assert not any(line.startswith(("error", "warning")) for line in lines)
    assert any(line.startswith("looked at and right: ") for line in lines)
    assert any(line.startswith("not checked: ") for line in lines)
    assert any("-s" in line for line in lines)  # what would allow the rest


def test_an_error_exits_1_and_comes_first(run: Run, tmp_path: Path) -> None:
    fault = NAMED["direct_map"]
    code, out, _ = run("check", made(tmp_path, fault), "--no-log")
    assert code == 1
    lines = out.splitlines()
    first = next(line for line in lines if line.startswith(("error", "warning", "note")))
    assert first.startswith("error   K03 vocab-map-is-direct: ")
    assert any(line.startswith("    fix: weights: d2t = d2t - arange") for line in lines)
    assert any("SafeAILab/EAGLE#222" in line for line in lines)
    assert lines[1].endswith("[broken-checkpoint]")


def test_json(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("check", made(tmp_path, NAMED["empty_ids"]), "--no-log", "--json")
    data = json.loads(out)
    about = {"checkpoint", "samples", "mask", "depth", "server", "served", "switched"}
    assert code == 1 and set(data) == about | {"findings", "verdict", "verdict_kind", "not_checked"}
    assert (data["samples"], data["mask"], data["server"], data["switched"]) == ([], "next", None, {})
    first = data["findings"][0]
    assert set(first) == {"check", "kind", "severity", "title", "evidence", "fix", "reports"}
    assert (first["check"], first["kind"], first["severity"]) == ("layer-ids", "K01", "error")
    assert data["verdict_kind"] == "miswired" and first["title"] in data["verdict"]
    order = [finding["severity"] for finding in data["findings"]]
    assert order == sorted(order, key=["error", "warning", "note", "ok"].index)
    assert all(set(skipped) == {"check", "why"} for skipped in data["not_checked"])


def test_to_a_file(run: Run, tmp_path: Path) -> None:
    folder, to = made(tmp_path, NAMED["null"]), tmp_path / "found.json"
    code, out, _ = run("check", folder, "--no-log", "--json", "-o", to)
    assert (code, out) == (1, "")
    assert any(finding["check"] == "nulls" for finding in json.loads(to.read_text())["findings"])


def test_static_reads_no_weights(run: Run, tmp_path: Path) -> None:
    """A NaN in the weights is found by reading them, which --static does not."""
    folder = made(tmp_path, NAMED["nan"])
    assert run("check", folder, "--no-log", "--static").code == 0
    code, out, _ = run("check", folder, "--no-log")
    assert code == 1 and "1 NaN" in out


def test_what_does_not_open_is_looked_at_all_the_same(run: Run, tmp_path: Path) -> None:
    code, out, err = run("check", made(tmp_path, NAMED["three_faults_at_once"]), "--no-log")
    assert code == 1 and "Traceback" not in err
    assert "transposed" in out and "norm.weight" in out and "spare" in out


def test_a_truncated_file(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("check", made(tmp_path, NAMED["truncated"]), "--no-log")
    assert code == 1 and "model.safetensors is cut: 1000 of" in out


def test_flags(run: Run, tmp_path: Path) -> None:
    folder, file = made(tmp_path, WHOLE), tmp_path / "launch.sh"
    file.write_text(f"python -m sglang.launch_server {FLAGS} --speculative-num-draft-tokens 16\n")
    for text in (f"{FLAGS} --speculative-num-draft-tokens 16", f"@{file}"):
        out = run("check", folder, "--no-log", "--flags", text).out
        assert "warning K10 flags: " in out and "16" in out
    code, out, _ = run("check", folder, "--no-log", "--flags", FLAGS.replace("EAGLE3", "EAGLE") + " ")
    assert code == 1 and "error   K10 flags: " in out


def test_refusals_are_one_line(run: Run, tmp_path: Path) -> None:
    folder = made(tmp_path, WHOLE)
    (tmp_path / "empty").mkdir()
    for words in (
        ("check", tmp_path / "nowhere"),
        ("check", tmp_path / "empty"),
        ("check", folder, "--flags", "--port 1"),
        ("check", folder, "--flags", f"@{tmp_path / 'no.sh'}"),
        ("check", folder, "--server", "nobody"),
        ("check", folder, "-s", tmp_path / "no samples"),
        ("check", folder, "--target", tmp_path / "no target"),
    ):
        code, out, err = run(*words, "--no-log")
        assert (code, out) == (2, ""), words
        said = [line for line in err.splitlines() if line.startswith("eagle3-tui: ")]
        assert len(said) == 1 and "Traceback" not in err


def test_a_crash_is_in_the_log_and_ends_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from drafter.checks.registry import Check
    from drafter.checks.run import all_checks

    def breaks(case: object) -> list[object]:
        raise KeyError("a slip")

    kept = [*all_checks(), Check("slips", "K01", (), (), "static", breaks)]  # type: ignore[arg-type]
    monkeypatch.setattr("drafter.checks.run.all_checks", lambda: kept)
    log = tmp_path / "log.jsonl"
    code, out, err = run("check", made(tmp_path, WHOLE), "--log", log)
    assert code == 0 and "broken checks" in err and "slips" in err
    assert "own-fault" in out and "Traceback" not in out + err
    assert any("KeyError" in str(json.loads(line).get("trace")) for line in log.read_text().splitlines())


def test_text_of_a_stranger_is_made_harmless() -> None:
    evil = "\x1b[31m[/]\u202e"
    finding = {"check": "x", "kind": "K02", "severity": "error", "title": evil, "evidence": {evil: [evil, None, True]}}
    data = {"findings": [{**finding, "fix": evil, "reports": [evil]}], "verdict": evil, "verdict_kind": "unknown"}
    text = check_report.report(evil, {**data, "not_checked": [{"check": "y", "why": evil}]})
    assert all(line.isprintable() for line in text.splitlines())


def test_long_evidence_is_cut_and_reasons_are_said_once() -> None:
    evidence: dict[str, object] = {"key a": "", "key b": [], "key c": {}, "key d": None}
    evidence |= {f"key {i}": "x" * 1000 for i in range(30)}
    finding = {
        "check": "x",
        "kind": "K02",
        "severity": "note",
        "title": "t",
        "evidence": evidence,
        "fix": "",
        "reports": [],
    }
    skipped = [{"check": name, "why": "no sample"} for name in ("a", "b")]
    data = {"findings": [finding], "verdict": "v", "verdict_kind": "unknown", "not_checked": skipped}
    lines = check_report.report("p", data).splitlines()
    assert max(map(len, lines)) < 400 and sum("key" in line for line in lines) == check_report.MOST_EVIDENCE
    assert not any(f"key {name}" in line for name in "abcd" for line in lines) and "    and 18 more, in --json" in lines
    assert "  a, b: no sample" in lines
