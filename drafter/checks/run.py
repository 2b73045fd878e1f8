"""Runs the checks: the quick ones first, each told apart from the others, so that one that breaks ends no other.

Decides nothing about a drafter: what is found is the checks' matter, what it comes to is `verdict`'s.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from drafter.checks.case import Case
from drafter.checks.finding import (
    CKPT,
    FILES,
    NOTE,
    REF,
    SMP,
    SRV,
    TCFG,
    TOK,
    TW,
    Finding,
    NotChecked,
    finding_json,
    ranked,
)
from drafter.checks.registry import CHECKS, STAGES, Check
from drafter.checks.verdict import verdict_of
from drafter.errors import Cancelled, DrafterError

OWN_FAULT = "own-fault"


@dataclass(frozen=True)
class Report:
    """`findings` most severe first. `crashes`: the check that broke and its traceback, for the log, not for users."""

    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    verdict: str
    verdict_kind: str
    crashes: tuple[tuple[str, str], ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something was found that will hurt."""
        return any(finding.severity == "error" for finding in self.findings)


def all_checks() -> list[Check]:
    """Every check there is, in the order in which they run."""
    for module in sorted(module.name for module in iter_modules([str(Path(__file__).parent)])):
        if module.startswith("k") and module[1:3].isdecimal():
            import_module(f"{__package__}.{module}")
    return sorted(CHECKS, key=lambda check: (STAGES.index(check.stage), check.kind))


def run_checks(
    case: Case,
    on_finding: Callable[[Finding], None] = lambda finding: None,
    stages: Sequence[str] = STAGES,
    on_check: Callable[[Check], None] = lambda check: None,
) -> Report:
    """Every check of `stages` that `case` allows. `on_finding` sees each finding when it is made.

    `case.poll` may raise Cancelled, which is the one thing that ends the run.
    """
    findings: list[Finding] = []
    skipped: list[NotChecked] = []
    crashes: list[tuple[str, str]] = []
    for check in all_checks():
        if check.stage not in stages:
            continue
        why = lacking(check, case)
        if why:
            skipped.append(NotChecked(check.id, why))
            continue
        case.poll()
        on_check(check)
        try:
            for finding in check.run(case):
                findings.append(finding)
                on_finding(finding)
        except Cancelled:
            raise
        except DrafterError as error:
            skipped.append(NotChecked(check.id, str(error)))
        except Exception as error:
            crashes.append((check.id, traceback.format_exc()))
            findings.append(_own_fault(check, error))
            on_finding(findings[-1])
    order = ranked(findings)
    kind, sentence = verdict_of(order, skipped)
    return Report(tuple(order), tuple(skipped), sentence, kind, tuple(crashes))


def _own_fault(check: Check, error: Exception) -> Finding:
    said = " ".join(str(error).split())[:200]
    return Finding(
        OWN_FAULT,
        check.kind,
        NOTE,
        f"the check {check.id} broke: a fault of this tool, which says nothing about the drafter",
        {"check": check.id, "error": f"{type(error).__name__}: {said}"},
        "please report it with the session log",
    )


def lacking(check: Check, case: Case) -> str:
    """What `case` lacks for `check`, and what would supply it; empty where it has everything."""
    return next((why for need in check.needs if (why := _LACKS[need](case))), "")


def _no_checkpoint(case: Case) -> str:
    return "" if case.opened is not None else f"the checkpoint cannot be opened: {case.refusal}"


def _no_target(case: Case) -> str:
    return "" if case.target is not None else f"no target folder ({case.target_why or 'none given'}): name it, --target"


def _no_target_weights(case: Case) -> str:
    missing = _no_target(case)
    if missing or case.target is None or case.target.embed is not None or case.target.head is not None:
        return missing
    return "the target's folder has no embed_tokens and no lm_head: name a folder with its weights, --target"


def _no_sample(case: Case) -> str:
    return "" if case.samples else f"no sample ({case.samples_why or 'none given'}): name recorded samples with -s"


def _no_tokenizer(case: Case) -> str:
    return "" if case.tokens is not None else f"no tokenizer ({case.tokens_why or 'none found'}): name it, --tokenizer"


def _no_server(case: Case) -> str:
    return "" if case.asked is not None else "no server flags: give the launch line with --flags"


def _no_served_length(case: Case) -> str:
    return "" if case.served is not None else "no served accept length: give what the server's log says with --served"


_LACKS: dict[str, Callable[[Case], str]] = {
    FILES: lambda case: "",
    CKPT: _no_checkpoint,
    TCFG: _no_target,
    TW: _no_target_weights,
    SMP: _no_sample,
    TOK: _no_tokenizer,
    SRV: _no_server,
    REF: _no_served_length,
}


def report_json(report: Report) -> dict[str, Any]:
    """`check --json`."""
    return {
        "findings": [finding_json(finding) for finding in report.findings],
        "verdict": report.verdict,
        "verdict_kind": report.verdict_kind,
        "not_checked": [{"check": skipped.check, "why": skipped.why} for skipped in report.not_checked],
    }
