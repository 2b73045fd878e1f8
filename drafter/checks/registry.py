"""The list of all checks: each with an id, the reports it answers, and what it needs. Runs none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from drafter.checks.case import Case
from drafter.checks.finding import NEEDS, Finding

STATIC, WEIGHTS, SAMPLE, FORWARD = "static", "weights", "sample", "forward"
STAGES = (STATIC, SAMPLE, FORWARD, WEIGHTS)  # in this order: what reads every byte of the weights comes last

CheckFunction = Callable[[Case], Iterable[Finding]]


@dataclass(frozen=True)
class Check:
    """`needs` are those of `finding.NEEDS` without which it cannot be made; `stage` is one of STAGES."""

    id: str
    kind: str
    needs: tuple[str, ...]
    reports: tuple[str, ...]
    stage: str
    run: CheckFunction


CHECKS: list[Check] = []


def check(
    id: str, kind: str, needs: tuple[str, ...], reports: tuple[str, ...] = (), stage: str = STATIC
) -> Callable[[CheckFunction], CheckFunction]:
    """Register a function as a check; ids are unique."""

    def add(function: CheckFunction) -> CheckFunction:
        assert all(known.id != id for known in CHECKS), id
        assert stage in STAGES and all(need in NEEDS for need in needs), id
        CHECKS.append(Check(id, kind, needs, reports, stage, function))
        return function

    return add
