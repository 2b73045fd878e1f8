"""The Doctor view's findings as rows and lines. Knows no widget and no session."""

from __future__ import annotations

from collections.abc import Sequence

from drafter.checks.finding import ERROR, KINDS, NOTE, OK, SEVERITIES, WARNING, Finding, NotChecked
from drafter.safe import safe
from eagle3_tui.check_report import value_said
from eagle3_tui.controls.doctor import DoctorState
from eagle3_tui.screens.serving_text import Line, wrapped
from eagle3_tui.widgets.line_table import Cells, Column

GLYPHS = {ERROR: "!", WARNING: "?", NOTE: "i", OK: "="}
LOOKS = {ERROR: "bad", WARNING: "warn", NOTE: "", OK: "good"}
LEGEND = [
    ("!", "an error: it will hurt"),
    ("?", "a warning: it may hurt"),
    ("i", "a note: worth knowing"),
    ("=", "ok: looked at and right"),
]
# what `f` shows, by its name
SHOWN = {"all": SEVERITIES, "without ok": (ERROR, WARNING, NOTE), "errors and warnings": (ERROR, WARNING)}
_PLURALS = {ERROR: "errors", WARNING: "warnings", NOTE: "notes", OK: "ok"}
_INSTEAD = (  # what the command line takes, and the key that takes it here
    ("--flags", "here: F takes the launch line, V the server, l in Serving a log that tells both"),
    ("--served", "here: l in Serving reads the server's log"),
)
_NARROW = 60  # columns below which a title needs the room of its kind


def columns(width: int) -> list[Column]:
    return [Column("", 1), Column("kind", 18 if width >= _NARROW else 8), Column("finding")]


def skipped_columns(width: int) -> list[Column]:
    return [Column("check", 28 if width >= _NARROW else 16, cut="middle"), Column("why not")]


def cells(finding: Finding) -> Cells:
    look = LOOKS[finding.severity]
    title = "" if finding.severity in (NOTE, OK) else look
    return [(GLYPHS[finding.severity], look), (KINDS.get(finding.kind, finding.kind), "dim"), (finding.title, title)]


def skipped_cells(skipped: NotChecked) -> Cells:
    return [(skipped.check, ""), (skipped.why, "dim")]


def verdict(doctor: DoctorState) -> tuple[str, str]:
    """The verdict with its kind, and its look."""
    kind, said = doctor.verdict_kind, safe(doctor.verdict, 2000)
    if doctor.problem:
        return f"! not checked: {safe(doctor.problem)}", "bad"
    if not said:
        return "", ""
    severest = doctor.findings[0].severity if doctor.findings else NOTE
    look = {ERROR: "bad", WARNING: "warn"}.get(severest, "good" if kind == "healthy" else "")
    glyph = {"bad": "!", "warn": "?", "good": "="}.get(look, "?")
    so_far = "" if doctor.complete else "so far: "
    return f"{glyph} {so_far}{said if said.startswith(kind) else f'{kind}: {said}'}", look


def summary(doctor: DoctorState, shown: str) -> str:
    """How many findings there are of each severity, on what was measured, and by which convention."""
    asked = doctor.asked
    if asked is None or doctor.problem:
        return ""
    numbers = [(s, sum(finding.severity == s for finding in doctor.findings)) for s in SEVERITIES]
    counts = ", ".join(f"{n} {s if n == 1 else _PLURALS[s]}" for s, n in numbers if n) or "nothing found yet"
    first = "" if shown == "all" else f"{shown}: "
    if not doctor.complete:
        first = f"stopped, r again: {first}" if doctor.stopped else f"checking: {first}"
    if doctor.unopened:
        return f"{asked.found.name}, which cannot be opened: {first}{counts}"
    what = asked.sample.name if asked.sample is not None else f"{doctor.samples} listed samples pooled"
    if not doctor.samples:
        return f"{first}{counts}, without a sample"
    switched = "".join(f", {name} {value}" for name, value in asked.switches)
    told = ", server of the launch line" if asked.line else ", server of the log" if asked.flags else ""
    server = f", server {asked.server}" if asked.server else told
    return f"{first}{counts} on {what}, mask {asked.mask}, bonus token counted{server}{switched}"


def lines(finding: Finding, where: str, width: int, most: int) -> list[Line]:
    """All of a finding in at most `most` lines: where there is no room for all evidence, the cure still stands."""
    head: Line = [
        (f"{GLYPHS[finding.severity]} {finding.severity}", LOOKS[finding.severity]),
        (f" {finding.kind} {safe(finding.check)}", "bold"),
        (f"  enter: {where}" * bool(where), "dim"),
    ]
    top = [head, *wrapped(safe(finding.title, 2000), "", width, 3)]
    end = wrapped(f"fix: {safe(finding.fix, 2000)}" * bool(finding.fix), "mark", width, 3, "  ")
    end += wrapped(f"like {', '.join(map(safe, finding.reports))}" * bool(finding.reports), "dim", width, 1)
    room = most - len(top) - len(end)
    return [*top, *_evidence(finding, width, room), *end][:most]


def _evidence(finding: Finding, width: int, room: int) -> list[Line]:
    """`name: value` lines; what has no room is counted."""
    shown: list[Line] = []
    items = [(name, value) for name, value in finding.evidence.items() if value != ""]
    for number, (name, value) in enumerate(items):
        more = wrapped(f"{safe(str(name))}: {value_said(value)}", "", width, 2 if room < 99 else 99, "  ")
        left = len(items) - number
        if len(shown) + len(more) > room - (left > 1):
            return [*shown, [(f"and {left} more: y copies all", "dim")]] if room > 0 else []
        shown += more
    return shown


def skipped_lines(skipped: NotChecked, all_of: Sequence[NotChecked], width: int, most: int) -> list[Line]:
    """Why a check was not made, what would allow it, and which others wait for the same."""
    others = [one.check for one in all_of if one.why == skipped.why and one is not skipped]
    found = [[(f"{safe(skipped.check)} was not checked", "bold")], *wrapped(safe(skipped.why, 2000), "", width, 5)]
    found += [[(said, "mark")] for option, said in _INSTEAD if option in skipped.why]
    if others:
        found += wrapped(f"nor, for the same reason: {', '.join(map(safe, others))}", "dim", width, most - len(found))
    return found[:most]
