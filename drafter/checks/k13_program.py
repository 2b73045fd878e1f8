"""What only a program gets wrong, and what was switched by hand: the change that predicts better, and what to mend.

No file says these. A drafter whose own function has one was trained by such a program; with the switch set, as a server
is suspected to compute, the check says whether that is what costs the acceptance.
"""

from __future__ import annotations

from collections.abc import Iterator

from drafter.checks.case import Case
from drafter.checks.explain import Explanation, diagnosis
from drafter.checks.finding import CKPT, ERROR, MISWIRED, SERVING, SMP, Finding
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
        title = f"with {name} {was} it predicts less than with {value}"
    else:
        what, fix = WRONG.get((name, value), ("", f"it computes {name} {value}"))
        title = f"the weights were trained by a program with {name} {value}"
        fix = f"mend the training: {fix}; or serve with a program that does the same"
    numbers = f"step 0 {one.before.accuracy:.3f} -> {one.after.accuracy:.3f}"
    if one.before.length is not None and one.after.length is not None:
        numbers += f", accept length {one.before.length:.2f} -> {one.after.length:.2f}"
    return Finding(
        "a-program-computes-something-else",
        one.option.kind,
        ERROR,
        f"{title}{f': {what}' if what else ''}; {numbers}",
        {"switch": name, "set by hand": dict(case.switches), **one.said()},
        fix,
        REPORTS,
        "wiring",
        66,
        SERVING if was is not None else MISWIRED,
    )
