"""K08: samples that cannot be opened. What is in the others is for the checks that read them."""

from __future__ import annotations

from collections.abc import Iterable

from drafter.checks.case import Case
from drafter.checks.finding import ERROR, FILES, WARNING, Finding
from drafter.checks.registry import SAMPLE, check

KIND = "K08"
_SHOWN = 5
_REPORTS = ("vllm-project/speculators#743", "vllm-project/speculators#527", "airllm#137")


@check("samples-open", KIND, (FILES,), _REPORTS, SAMPLE)
def samples_open(case: Case) -> Iterable[Finding]:
    """Which samples are unreadable, and why the first of them is."""
    if not case.unread:
        return
    first = next(iter(case.unread.items()))
    evidence = {str(path): why for path, why in list(case.unread.items())[:_SHOWN]}
    total = len(case.unread) + len(case.samples)
    title = f"{len(case.unread)} of {total} samples cannot be read; {first[0].name}: {first[1]}"
    severity = WARNING if case.samples else ERROR
    fix = "record or copy them again, or leave them out"
    yield Finding("samples-open", KIND, severity, title, evidence, fix, _REPORTS, "samples", 65)
