"""K13, measured: what a server cannot compute of the trained function whatever the config says, and what that costs.

Only servers that would load the checkpoint are asked. Of what a key can cure nothing is said here, `views` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from drafter.checks.case import Case
from drafter.checks.explain import Diagnosis, compared, diagnosis
from drafter.checks.finding import CKPT, ERROR, MISWIRED, NOTE, SMP, Finding
from drafter.checks.k13_engine import KIND, KINDS, same_embedding, views
from drafter.checks.measure import Measured, measures
from drafter.checks.registry import FORWARD, check
from drafter.errors import DrafterError
from drafter.serving.view_case import CANNOT, Difference
from drafter.serving.views import ServedView


@check("server-cannot-compute-it", KIND, (CKPT, SMP), ("vllm-project/vllm#26191",), FORWARD)
def cannot(case: Case) -> Iterator[Finding]:
    """Each server that loads the checkpoint, with what no key cures, on the states that were trained."""
    yield from case.once("cannot", lambda: list(_findings(case)))


def said_of(case: Case) -> set[str]:
    """The servers of which this is said."""
    return {str(finding.evidence["server"]) for finding in cannot(case)}


def _findings(case: Case) -> Iterator[Finding]:
    d = diagnosis(case)
    if d.last.map_name:
        return  # the map is the fault, and what is predicted under another one is not measured
    for view in views(case):
        lost = [] if view.refused else [one for one in view.differences if _matters(case, one)]
        if not lost:
            continue
        there = _there(case, d, lost)
        if there is not None and compared(d.end, there, d.last, 1) is None and compared(there, d.end, d.last, 1):
            yield _finding(case, d, view, lost, there)


def _matters(case: Case, one: Difference) -> bool:
    """Whether it is computed, no key cures it, and it changes what is computed."""
    return one.computed and one.cure.startswith(CANNOT) and not (one.name == "embedding" and same_embedding(case))


def _there(case: Case, d: Diagnosis, lost: Sequence[Difference]) -> Measured | None:
    """The drafter as it works, but for what is `lost`; None where the target's part of it is not here."""
    changes: dict[str, Any] = {name: value for one in lost for name, value in one.change}
    try:
        return measures(case).measure(replace(d.last, wiring=d.last.wiring.changed(**changes)), d.samples)
    except DrafterError:
        return None


def _finding(case: Case, d: Diagnosis, view: ServedView, lost: Sequence[Difference], there: Measured) -> Finding:
    names = ", ".join(f"{one.name} {one.trained}, there {one.served}" for one in lost)
    numbers = f"step 0 {d.end.accuracy:.3f} -> {there.accuracy:.3f}"
    if d.end.length is not None and there.length is not None:
        numbers = f"accept length {d.end.length:.2f} -> {there.length:.2f}, {numbers}"
    even = ", even with everything else right" if d.found else ""
    cures = "; ".join(dict.fromkeys(one.cure.removeprefix(CANNOT) for one in lost))
    named = case.server is not None
    return Finding(
        "server-cannot-compute-it",
        KINDS.get(lost[0].name, KIND),
        ERROR if named else NOTE,  # whoever trains it so may serve with another
        f"{view.name} cannot compute what was trained{even} ({names}): {numbers}",
        {
            "server": view.name,
            "switch": lost[0].name,
            "why": [one.why for one in lost],
            "as trained": d.end.said(),
            f"as {view.name} computes it": there.said(),
        },
        f"no key cures it: {cures}",
        ("vllm-project/vllm#26191",),
        "serving",
        63,  # before served-otherwise, which has no number
        MISWIRED if named else "",
    )
