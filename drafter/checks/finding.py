"""What a check answers with, as plain values: knows neither files nor screens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ERROR, WARNING, NOTE, OK = "error", "warning", "note", "ok"  # will hurt, may, worth knowing, looked at and right
SEVERITIES = (ERROR, WARNING, NOTE, OK)

# what a check may need; FILES is there even where the checkpoint cannot be opened
FILES, CKPT, TCFG, TW = "files", "checkpoint", "target config", "target weights"
SMP, TOK, SRV, REF = "sample", "tokenizer", "server", "served accept length"
NEEDS = (FILES, CKPT, TCFG, TW, SMP, TOK, SRV, REF)

# what is wrong with the whole: the kinds of verdict that a finding may stand for
HEALTHY, MISWIRED, BROKEN_CHECKPOINT, BROKEN_SAMPLE = "healthy", "miswired", "broken-checkpoint", "broken-sample"
UNTRAINED, GENERALISATION, SERVING, UNKNOWN = "untrained", "generalisation", "serving", "unknown"
VERDICTS = (HEALTHY, MISWIRED, BROKEN_CHECKPOINT, BROKEN_SAMPLE, UNTRAINED, GENERALISATION, SERVING, UNKNOWN)

KINDS = {
    "K01": "wiring",
    "K02": "tensors",
    "K03": "vocabulary",
    "K04": "config",
    "K05": "norms",
    "K06": "RoPE and positions",
    "K07": "shapes",
    "K08": "samples",
    "K09": "loss mask",
    "K10": "serving flags",
    "K11": "numbers",
    "K12": "training against serving",
    "K13": "engine",
    "K14": "files",
}


@dataclass(frozen=True)
class Finding:
    """`check` is the id of the check, `kind` the heading of its reports (K01 wiring ... K14 files).

    `title` says the fault in a sentence, `evidence` the numbers, tensors, keys and files that show it, by name; `fix`
    what to do, in the words of the engine concerned (the exact key and value to write). `view` names the view of the
    screen that shows it. `weight` orders findings of equal severity: what explains the others comes first. `means` is
    the kind of verdict that it stands for, where that is not the usual one of its `kind`.
    """

    check: str
    kind: str
    severity: str
    title: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    fix: str = ""
    reports: tuple[str, ...] = ()
    view: str = ""
    weight: int = 0
    means: str = ""


@dataclass(frozen=True)
class NotChecked:
    """A check that could not be made, and what would allow it."""

    check: str
    why: str


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Most severe first; among equals the one that explains the others first."""
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.weight))


def finding_json(finding: Finding) -> dict[str, Any]:
    """One entry of `check --json`."""
    return {
        "check": finding.check,
        "kind": finding.kind,
        "severity": finding.severity,
        "title": finding.title,
        "evidence": plain(finding.evidence),
        "fix": finding.fix,
        "reports": list(finding.reports),
    }


def plain(value: Any) -> Any:
    """`value` as what JSON has; what it has not is said in words."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
