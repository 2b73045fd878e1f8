"""Runs faults on a subject one after another and prints what was said of each; counts what was named."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drafter.checks.finding import ERROR, WARNING, Finding
from drafter.checks.run import Report
from tests.trials.faults import Fault
from tests.trials.subject import Subject, accuracy, checked, write

NOT_TOLD = "it-generalises"  # is of the drafter itself, whatever is put in
TOLERANCE = 0.002


@dataclass
class Tally:
    faults: int = 0
    first: int = 0
    second: int = 0
    missed: list[str] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)  # errors of other kinds beside
    other: list[str] = field(default_factory=list)  # than the recorded accuracy


def telling(report: Report) -> list[Finding]:
    """Errors and warnings, but for what is true of the drafter without a fault."""
    return [f for f in report.findings if f.severity in (ERROR, WARNING) and f.check != NOT_TOLD]


def run(subject: Subject, fault: Fault) -> tuple[tuple[float | None, ...], Report, float]:
    """(accuracy by group, report, seconds of the checks)."""
    trial = subject.fresh()
    fault.change(trial)
    with tempfile.TemporaryDirectory() as folder:
        session = write(trial, Path(folder))
        scored = accuracy(session)
        begun = time.monotonic()
        report = checked(session)
        return scored, report, time.monotonic() - begun


def report_of(subject: Subject, fault: Fault) -> Report:
    """What the checks say, and nothing else."""
    trial = subject.fresh()
    fault.change(trial)
    with tempfile.TemporaryDirectory() as folder:
        return checked(write(trial, Path(folder)))


def judge(fault: Fault, report: Report, tally: Tally) -> str:
    """A mark for what was not named, or wrongly; empty where all is well."""
    found = telling(report)
    kinds = set(fault.kinds) or {""}
    tally.faults += 1
    marks = []
    place = next((i for i, f in enumerate(found[:2]) if f.kind in kinds), None)
    tally.first += place == 0 or (place is None and "" in kinds and not found)
    tally.second += place == 1
    if place is None and not ("" in kinds and not found):
        tally.missed.append(fault.name)
        marks.append("NOT NAMED")
    strange = [f for f in found if f.severity == ERROR and f.kind not in kinds]
    if strange:
        tally.strange.append(fault.name)
        marks.append("ALSO " + " ".join(f"{f.kind}:{f.check}" for f in strange))
    if report.crashes:
        marks.append("CRASH " + report.crashes[0][1][-300:])
    return " ".join(marks)


def table(
    subject: Subject, faults: Sequence[Fault], long: bool, recorded: Mapping[str, tuple[float, float]] | None = None
) -> Tally:
    """Print one line a fault; with `long` what was found, in its own words. `recorded`: accuracies known elsewhere."""
    tally = Tally()
    print(f"{'fault':54} {'train held':>13} {'wanted':9} {'first two findings':76} {'verdict':18} s")
    for fault in faults:
        scored, report, took = run(subject, fault)
        mark = judge(fault, report, tally)
        known = (recorded or {}).get(fault.name)
        if fault.exact and known is not None and not _close(scored, known):
            tally.other.append(fault.name)
            mark += f" OTHER ACCURACY than {known[0]:.3f} {known[1]:.3f}"
        shown = ", ".join(f"{f.kind} {f.severity[0]} {f.check}" for f in telling(report)[:2]) or "-"
        said = " ".join("  -  " if one is None else f"{one:.3f}" for one in scored)
        kinds = "/".join(kind or "-" for kind in fault.kinds) or "-"
        line = f"{fault.name[:54]:54} {said:>13} {kinds:9} {shown[:112]:76} {report.verdict_kind:18} {took:.1f} {mark}"
        print(line.rstrip(), flush=True)
        if long:
            words(report)
    told = f"{tally.first} named first, {tally.second} second, of {tally.faults}"
    print(f"{told}; not named: {tally.missed}; with other errors: {tally.strange}")
    if tally.other:
        print(f"with another accuracy than was recorded: {tally.other}")
    return tally


def _close(scored: Sequence[float | None], known: Sequence[float]) -> bool:
    return all(a is not None and abs(a - b) <= TOLERANCE for a, b in zip(scored, known, strict=True))


def words(report: Report) -> None:
    print(f"      [{report.verdict_kind}] {report.verdict[:300]}")
    for finding in report.findings:
        if finding.severity != "ok":
            print(f"      {finding.kind} {finding.severity} {finding.check}: {finding.title[:260]}")
            if finding.severity in (ERROR, WARNING) and finding.fix:
                print(f"          fix: {finding.fix[:200]}")
