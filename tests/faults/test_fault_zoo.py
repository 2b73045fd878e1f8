"""Every fault is named by the right check, first or second; nothing healthy, and nothing that changes nothing, is."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.checks.finding import ERROR, SEVERITIES, WARNING, Finding
from drafter.checks.run import Report
from tests.faults.checked import brief, check_world
from tests.faults.variants import HEALTHY
from tests.faults.zoo import FAULTS, INVISIBLE, PENDING, Fault


def right(fault: Fault, finding: Finding) -> bool:
    told = not fault.checks or finding.check in fault.checks
    severe = SEVERITIES.index(finding.severity) <= SEVERITIES.index(fault.severity)
    return finding.kind in fault.kinds and told and severe


def errors(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity == ERROR]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_is_named_first_or_second_and_nothing_else_is(fault: Fault, tmp_path: Path) -> None:
    report = check_world(tmp_path, fault.make())
    assert not report.crashes, report.crashes[0][1]
    assert any(right(fault, finding) for finding in report.findings[:2]), brief(report)
    strange = [f for f in errors(report) if f.kind not in fault.kinds + fault.beside]
    assert not strange, brief(report)
    assert fault.verdict in ("", report.verdict_kind), brief(report)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_drafter_has_no_error_and_no_warning(name: str, tmp_path: Path) -> None:
    report = check_world(tmp_path, HEALTHY[name]())
    assert not report.crashes, report.crashes[0][1]
    bad = [f.check for f in report.findings if f.severity in (ERROR, WARNING)]
    beside = ["server-cannot-compute-it"] * name.startswith("flat")  # SGLang has no norm_before_residual
    assert bad == beside, brief(report)
    assert report.verdict_kind == "healthy", brief(report)


@pytest.mark.parametrize("name", INVISIBLE)
def test_what_changes_nothing_is_no_error(name: str, tmp_path: Path) -> None:
    report = check_world(tmp_path, INVISIBLE[name](), ("sample", "forward"))
    assert not report.crashes and not errors(report), brief(report)


def test_the_list_is_long_and_its_names_are_unique() -> None:
    assert len(FAULTS) >= 70
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    kinds = {kind for fault in FAULTS for kind in fault.kinds}
    assert kinds >= {"K01", "K02", "K03", "K04", "K05", "K06", "K07", "K08", "K09", "K11", "K12", "K14"}


def test_what_is_not_injected_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    reports = {fault.report for fault in FAULTS}
    for report, why in PENDING.items():
        print(f"not injected: {report}: {why}")
        assert why and report not in reports
    assert len(capsys.readouterr().out.splitlines()) == len(PENDING)
