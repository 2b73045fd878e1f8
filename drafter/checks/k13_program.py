"""What only a program gets wrong, and what was switched by hand: the change that predicts better, and what to mend.

No file says these. A drafter whose own function has one was trained by such a program; with the switch set, as a server
is suspected to compute, the check says whether that is what costs the acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from drafter.checks.case import Case
from drafter.checks.explain import Explanation, compared, diagnosis
from drafter.checks.finding import CKPT, ERROR, MISWIRED, NOTE, SERVING, SMP, Finding
from drafter.checks.measure import Measured, measures
from drafter.checks.options import KIND_OF, trained_wiring
from drafter.checks.program_faults import WRONG
from drafter.checks.registry import FORWARD, check

REPORTS = (
    "vllm-project/vllm#14464",
    "vllm-project/vllm#26164",
    "sgl-project/SpecForge#455",
    "vllm-project/vllm-ascend#2793",
)


@check("a-program-computes-something-else", "K13", (CKPT, SMP), REPORTS, FORWARD)
def program(case: Case) -> Iterator[Finding]:
    """Switches that no config holds, and those that were set: each that clearly predicts better in another position."""
    for one in diagnosis(case).of_program:
        yield _finding(case, one)


def _finding(case: Case, one: Explanation) -> Finding:
    name, _, value = one.option.label.partition(" ")
    was = case.switches.get(name)
    if was is not None:
        what, fix = WRONG.get((name, was), ("", f"whatever serves must compute {name} {value}"))
        title, between = f"with {name} {was} it predicts less than with {value}", "against"
    else:
        what, fix = WRONG.get((name, value), ("", f"it computes {name} {value}"))
        title, between = f"the weights were trained by a program with {name} {value}", "->"
        fix = f"mend the training: {fix}; or serve with a program that does the same"
    return Finding(
        "a-program-computes-something-else",
        one.option.kind,
        ERROR,
        f"{title}{f': {what}' if what else ''}; {_numbers(one.before, one.after, between)}",
        {"switch": name, "set by hand": dict(case.switches), **one.said()},
        fix,
        REPORTS,
        "wiring",
        66,
        SERVING if was is not None else MISWIRED,
    )


def _numbers(one: Measured, other: Measured, between: str) -> str:
    said = f"step 0 {one.accuracy:.3f} {between} {other.accuracy:.3f}"
    if one.length is not None and other.length is not None:
        said += f", accept length {one.length:.2f} {between} {other.length:.2f}"
    return said


@check("switches-are-what-was-trained", "K13", (CKPT, SMP), REPORTS, FORWARD)
def as_set(case: Case) -> Iterator[Finding]:
    """Switches set by hand that are no fault: whether they change anything, or are what the drafter needs."""
    d, plain = diagnosis(case), trained_wiring(case)
    names = [name for name, value in case.switches.items() if plain.value(name) != value]
    if not names or d.of_program:
        return
    words = ", ".join(f"{name} {case.switches[name]}" for name in names)
    trained = measures(case).measure(replace(d.base, wiring=plain), d.samples)
    needed = compared(trained, d.start, d.base, 1) is not None
    numbers = _numbers(trained, d.start, "->")
    title = f"it predicts as well with {words}, as set by hand, as without: {numbers}"
    if needed:
        title = f"it predicts only with {words}, which was set by hand and which its config does not say: {numbers}"
    fix = "the checkpoint alone, without the switch, says what to write: check it so" if needed else ""
    evidence = {"switch": names[0], "as the config says": trained.said(), "as set": d.start.said()}
    kind = KIND_OF.get(names[0], "K05") if needed else "K13"
    yield Finding(
        "switches-are-what-was-trained", kind, ERROR if needed else NOTE, title, evidence, fix, REPORTS, "wiring", 66,
        MISWIRED if needed else "",
    )  # fmt: skip
