"""What the command `check` found, as text: its JSON in, lines out. Knows no session and no tensor.

`check --json`; findings most severe first, among equals the one that explains the others first:
```
{"checkpoint": path, "samples": [path, ...], "mask", "depth", "server": null where none is named,
 "served": the accept length that was given or read, or null, "switched": {switch: value},
 "findings": [{"check": id, "kind": "K01|...|K14", "severity": "error|warning|note|ok", "title",
               "evidence": {name: number, word, list or another object, ...}, "fix": "" where there is none,
               "reports": ["owner/repository#number", ...]}],
 "verdict": one sentence,
 "verdict_kind": "miswired|broken-checkpoint|broken-sample|untrained|generalisation|serving|healthy|unknown",
 "not_checked": [{"check": id, "why": what it lacks and what would supply it}]}
```
The text leaves out evidence that is empty; an `error` among the findings makes the exit code 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drafter.safe import safe

Json = dict[str, Any]
EVIDENCE_WIDTH, MOST_EVIDENCE, INDENT = 300, 12, "    "


def report(path: str, data: Json) -> str:
    """The verdict first, then every finding, then what could not be checked."""
    lines = [f"checkpoint {safe(path)}", f"verdict    {safe(data['verdict'])} [{data['verdict_kind']}]"]
    told = [finding for finding in data["findings"] if finding["severity"] != "ok"]
    for finding in told:
        lines += ["", *_finding(finding)]
    right = [finding for finding in data["findings"] if finding["severity"] == "ok"]
    if right:
        lines += ["", f"looked at and right: {len(right)}"]
        lines += [f"  {finding['kind']} {safe(finding['title'])}" for finding in right]
    if data["not_checked"]:
        lines += ["", f"not checked: {len(data['not_checked'])}"]
        lines += [f"  {names}: {safe(why)}" for why, names in _by_reason(data["not_checked"])]
    return "\n".join(lines) + "\n"


def _finding(finding: Json) -> list[str]:
    lines = [f"{finding['severity']:8}{finding['kind']} {finding['check']}: {safe(finding['title'])}"]
    shown = [(name, value) for name, value in finding["evidence"].items() if not _is_empty(value)]
    lines += [f"{INDENT}{safe(str(name))}: {value_said(value)}" for name, value in shown[:MOST_EVIDENCE]]
    if len(shown) > MOST_EVIDENCE:
        lines.append(f"{INDENT}and {len(shown) - MOST_EVIDENCE} more, in --json")
    if finding["fix"]:
        lines.append(f"{INDENT}fix: {safe(finding['fix'])}")
    if finding["reports"]:
        lines.append(f"{INDENT}like {', '.join(safe(one) for one in finding['reports'])}")
    return lines


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | Mapping | Sequence) and not value)


def value_said(value: Any) -> str:
    """A value of the evidence in words, cut where it is very long."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{name} {value_said(inner)}" for name, inner in value.items())
    elif isinstance(value, str):
        text = value
    elif isinstance(value, Sequence):
        text = ", ".join(value_said(inner) for inner in value)
    else:
        text = (
            {None: "none", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)
        )
    text = safe(text)
    return text if len(text) <= EVIDENCE_WIDTH else f"{text[: EVIDENCE_WIDTH - 3]}..."


def _by_reason(skipped: Sequence[Json]) -> list[tuple[str, str]]:
    """Each reason once, with the checks that it kept from being made."""
    found: dict[str, list[str]] = {}
    for one in skipped:
        found.setdefault(one["why"], []).append(one["check"])
    return [(why, ", ".join(names)) for why, names in found.items()]
