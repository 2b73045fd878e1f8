"""What no file holds is named all the same: where it is set as a switch, and where a server's numbers show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.checks.finding import ERROR, WARNING
from drafter.checks.program_faults import WRONG
from tests.faults.checked import brief, check_world
from tests.faults.programs import BY_HAND, INVISIBLE, SERVED, Program, check_by_hand, check_served, served
from tests.faults.world import healthy, write_world
from tests.faults.zoo import FAULTS

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


def test_a_switch_that_the_files_need_is_said_as_an_error(tmp_path: Path) -> None:
    """The file is wrong, and the switch that was set by hand makes up for it."""
    broken = next(fault for fault in FAULTS if fault.name == "halves of q, k and v swapped")
    needed = Program("halves", "", ("K02",), "", {"halves": "hidden_first"}, make=broken.make)
    report = check_by_hand(tmp_path, needed)
    first = report.findings[0]
    assert (first.check, first.severity, first.kind) == ("switches-are-what-was-trained", ERROR, "K02"), brief(report)
    assert "predicts only with halves hidden_first" in first.title and report.verdict_kind == "miswired"


def test_a_switch_that_changes_nothing_is_said_as_a_note(tmp_path: Path) -> None:
    report = check_by_hand(tmp_path, next(one for one in INVISIBLE if one.name == "rope_base 10000"))
    (told,) = [f for f in report.findings if f.check == "switches-are-what-was-trained"]
    assert told.severity == "note" and "as well with rope_base 10000" in told.title


def test_what_a_switch_makes_it_say_is_not_how_it_was_taught(tmp_path: Path) -> None:
    same = next(one for one in BY_HAND if one.name == "row_ids same")
    assert not [f for f in check_by_hand(tmp_path, same).findings if f.check == "labels-are-the-next-tokens"]


@pytest.mark.parametrize("name", ["F05 order reversed", "F05b two ids swapped"])
def test_ids_out_of_order_contradict_nothing(tmp_path: Path, name: str) -> None:
    report = check_world(tmp_path, next(fault for fault in FAULTS if fault.name == name).make())
    (told,) = [f for f in report.findings if f.check == "configured-layers-are-not-the-trained-ones"]
    assert told.severity == WARNING and "servers capture in ascending order" in told.title
    assert "ascending" in told.fix and not [f for f in report.findings if f.severity == ERROR], brief(report)
