"""K10, where server flags are given: what the server makes of them with this drafter; else the flags that it needs.

The rules of each engine are `drafter.serving`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, FILES, NOTE, OK, SERVING, SRV, WARNING, Finding
from drafter.checks.registry import check
from drafter.errors import WiringError
from drafter.serving.effective import CHANGED, REFUSED, UNKNOWN, WRONG, Effective, Override
from drafter.serving.serve import drafter_facts, effective
from drafter.serving.verdict import NOTHING_ACCEPTED

KIND = "K10"
_SEVERITY = {REFUSED: ERROR, WRONG: ERROR, CHANGED: WARNING}
_MEANS = {ERROR: SERVING, WARNING: "", NOTE: ""}
_REPORTS = ("sgl-project/sglang#21272", "sgl-project/sglang#8228", "Tencent/AngelSlim#15")


def made_of(case: Case) -> Effective:
    """What the case's server makes of its flags. Raises WiringError where the engine cannot be told."""
    assert case.asked is not None
    facts = UNKNOWN if case.opened is None else drafter_facts(case.opened)
    asked = case.asked
    if asked.draft_model is None and asked.model is None:  # the speculative flags alone, no launch line
        asked = replace(asked, draft_model=str(case.found.path))
    return effective(asked, case.server if case.server is not None else "", facts)


@check("flags", KIND, (FILES, SRV), _REPORTS)
def flags(case: Case) -> Iterable[Finding]:
    """Each thing that is not as asked, and what a round comes to."""
    made = made_of(case)
    numbers: dict[str, Any] = {
        name: getattr(made, name) for name in ("server", "steps", "topk", "draft_tokens", "drafted", "verified")
    }
    numbers |= {"max_accept_length": made.max_accept_length, "conversion": made.conversion}
    for override in made.overrides:
        yield _finding(case, override, made)
    said = f"{made.steps} step(s), {made.verified} tokens to verify, accept length at most {made.max_accept_length}"
    if not any(override.kind in _SEVERITY for override in made.overrides):
        yield Finding("flags", KIND, OK, f"{made.server}: {said}", numbers, reports=_REPORTS)
    elif not made.refused and made.steps is not None:
        yield Finding("flags", KIND, NOTE, f"{made.server} really runs {said}", numbers, reports=_REPORTS)


def _finding(case: Case, override: Override, made: Effective) -> Finding:
    evidence = {"what": override.what, "asked": override.asked, "really": override.effective, "source": override.source}
    severity = _SEVERITY.get(override.kind, NOTE)
    # flags under which nothing of the drafter's is used hide whatever else is wrong
    weight = {REFUSED: 68, WRONG: 96}.get(override.kind, 20)
    title, fix = _title(case, override, made), _fix(override)
    return Finding("flags", KIND, severity, title, evidence, fix, _REPORTS, "serving", weight, means=_MEANS[severity])


def _title(case: Case, override: Override, made: Effective) -> str:
    really = "" if override.asked == override.effective else f", really {override.effective}"
    title = f"{override.what}: asked {override.asked}{really}; {override.why}"
    if override.kind == WRONG and case.served is not None and case.served <= NOTHING_ACCEPTED:
        title += f"; the served {case.served:.2f} is just that"
    if override.kind == CHANGED and override.cure and made.max_accept_length is not None:
        title += f"; the accept length is then at most {made.max_accept_length}"
    return title


def _fix(override: Override) -> str:
    if override.cure:
        return override.cure
    if override.kind in (REFUSED, WRONG):
        return f"change {override.what}: {override.why}"
    return f"ask for what is meant: {override.what} {override.effective}" if override.kind == CHANGED else ""


@check("flags-needed", KIND, (CKPT,), ("Tencent/AngelSlim#15", "sgl-project/sglang#21272"))
def flags_needed(case: Case) -> Iterable[Finding]:
    """Not made without flags: it then names those that each engine needs. With flags, `flags` tells what is wrong."""
    if case.asked is not None:
        return ()
    needed = """--speculative-config '{"method": "eagle3", "model": "DRAFTER", "num_speculative_tokens": 3}' (vLLM)"""
    if not case.checkpoint.run_config.parallel:
        sglang = (
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path DRAFTER --speculative-num-steps 3 "
            "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 (SGLang)"
        )
        needed = f"{sglang} or {needed}"
    raise WiringError(
        "no server flags",
        expected=f"{needed}, as an EAGLE-3 drafter needs; EAGLE leaves out fc without a word",
        hint="give the launch line with --flags",
    )
