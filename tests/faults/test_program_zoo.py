"""What no file holds is named all the same: where it is set as a switch, and where a server's numbers show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.checks.finding import ERROR, WARNING
from drafter.checks.program_faults import WRONG
from tests.faults.checked import brief
from tests.faults.programs import BY_HAND, INVISIBLE, SERVED, Program, check_by_hand, check_served, served
from tests.faults.world import healthy, write_world

NOTHING = ("1.0",)  # a server that accepts next to nothing does not tell why


@pytest.mark.parametrize("program", BY_HAND, ids=lambda one: one.name)
def test_a_switch_that_is_set_wrongly_is_named(tmp_path: Path, program: Program) -> None:
    report = check_by_hand(tmp_path, program)
    assert not report.crashes, report.crashes[0][1]
    right = [f for f in report.findings[:2] if f.kind in program.kinds and program.said in f.title]
    assert right and right[0].severity == ERROR and right[0].fix, brief(report)
    assert all(f.kind in program.kinds for f in report.findings if f.severity == ERROR), brief(report)
    assert report.verdict_kind == "serving", brief(report)


@pytest.mark.parametrize("program", INVISIBLE, ids=lambda one: one.name)
def test_a_switch_that_changes_nothing_is_no_error(tmp_path: Path, program: Program) -> None:
    report = check_by_hand(tmp_path, program)
    assert not report.crashes and not [f for f in report.findings if f.severity == ERROR], brief(report)


@pytest.mark.parametrize("program", SERVED, ids=lambda one: one.name)
def test_a_server_s_numbers_by_position_name_its_fault(tmp_path: Path, program: Program) -> None:
    report = check_served(tmp_path, program)
    assert not report.crashes, report.crashes[0][1]
    told = [f for f in report.findings if f.check == "served-looks-like"]
    assert told, brief(report)
    names = told[0].evidence["not told from what is served"]
    some = names if told[0].evidence["served"].startswith(NOTHING) else names[:2]
    assert any(program.said in name for name in some), brief(report) + str(told[0].evidence)
    errors = {f.check for f in report.findings if f.severity == ERROR}
    assert errors <= {"served-length", "served-looks-like"}, brief(report)  # the files are healthy
    if told[0].severity == ERROR:  # one fault alone: its cure comes first, and the length points to it
        length = next(f for f in report.findings if f.check == "served-length")
        assert report.findings.index(told[0]) < report.findings.index(length)
        assert program.said in length.fix and "served-looks-like" in length.fix
        name, _, value = program.name.partition(" ")
        assert told[0].fix == WRONG[name, value][1] if (name, value) in WRONG else told[0].fix


@pytest.mark.parametrize("program", SERVED, ids=lambda one: one.name)
def test_its_mean_alone_leaves_the_fault_among_the_candidates(tmp_path: Path, program: Program) -> None:
    report = check_served(tmp_path, program, positions=False)
    told = [f for f in report.findings if f.check == "served-looks-like"]
    assert told, brief(report)
    assert any(program.said in name for name in told[0].evidence["not told from what is served"]), brief(report)
    assert told[0].severity != WARNING


def test_a_server_that_does_what_the_drafter_does_looks_like_nothing(tmp_path: Path) -> None:
    plain = Program("healthy", "", (), "")
    report = check_served(tmp_path, plain)
    assert not [f for f in report.findings if f.check == "served-looks-like"], brief(report)
    length, rates = served(write_world(tmp_path / "again", healthy()), plain)
    assert length == pytest.approx(1 + sum(rates)) and list(rates) == sorted(rates, reverse=True)
