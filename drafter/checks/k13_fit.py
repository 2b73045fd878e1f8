"""What a served accept length that is too low looks like: the single faults that would give it, nearest first."""

from __future__ import annotations

from collections.abc import Iterator

from drafter.checks.case import Case
from drafter.checks.explain import diagnosis
from drafter.checks.finding import CKPT, ERROR, NOTE, REF, SERVING, SMP, WARNING, Finding
from drafter.checks.k12_served import compare
from drafter.checks.program_faults import WRONG
from drafter.checks.registry import FORWARD, check
from drafter.checks.served_fit import Fit, Fits, looks_like
from drafter.wiring import SWITCHES, Ordering

REPORTS = ("NickL77/BaldEagle#17", "vllm-project/vllm-ascend#2793")
NAMED = 5  # candidates that the evidence holds


@check("served-looks-like", "K13", (CKPT, SMP, REF), REPORTS, FORWARD)
def served_looks_like(case: Case) -> Iterator[Finding]:
    """Only where the drafter itself would do better than what is served."""
    likeness = looks_like(case)
    if likeness is None:
        return
    found, alone, first = likeness.fits, likeness.alone, likeness.fits.ranked[0]
    length, switch = found.as_trained.rounds.length, first.label.partition(" ")[0]
    yield Finding(
        "served-looks-like",
        "K13" if alone is None else first.kind,
        _severity(case, alone),
        f"{_said(case, found, alone)}; the drafter itself would reach {length:.2f}",
        {
            "switch": switch if switch in SWITCHES else "",
            "nearest": {one.label: _numbers(one) for one in found.ranked[:NAMED]},
            "served": _served(case),
            "the drafter itself": _numbers(found.as_trained),
            "drafts a round": likeness.drafts,
            "rounds": found.as_trained.rounds.rounds,
            "not told from what is served": [one.label for one in found.close],
            "tried": f"{len(found.ranked)} single changes",
        },
        _fix(case, alone),
        REPORTS,
        "orderings" if first.kind == "K01" else "wiring",
        32 if alone is None else 34,  # before served-length, which it explains
        "" if alone is None else SERVING,
    )


def _severity(case: Case, alone: Fit | None) -> str:
    """Of a fault that is named alone as bad as what it explains, so that its cure comes first."""
    if alone is None:
        return NOTE
    compared = compare(case)
    return ERROR if compared is not None and compared.severity == ERROR else WARNING


def _fix(case: Case, alone: Fit | None) -> str:
    """The cure of the one that is named, else how to tell the candidates apart."""
    if alone is not None:
        name, _, value = alone.label.partition(" ")
        _, cure = WRONG.get((name, value), ("", ""))
        if not cure and alone.kind == "K01":
            cure = f"the server feeds other layers: make it capture slots {','.join(map(str, _own(case)))}"
        return cure or f"whatever serves must not compute {alone.label}; set it in Wiring and compare by position"
    return (
        "set the nearest as a switch (Wiring, or its option) and compare by position; other text than the samples was "
        "served" + ("" if case.rates else ": a log with acceptance by position, as vLLM writes it, tells more")
    )


def _own(case: Case) -> Ordering:
    return diagnosis(case).last.ordering


def _said(case: Case, found: Fits, alone: Fit | None) -> str:
    served, nearest = f"a served accept length of {case.served:.2f}", [_words(one) for one in found.ranked[:2]]
    if alone is not None:
        return f"{served} looks like: {nearest[0]}, position by position"
    if not case.rates:
        return f"{served} alone does not tell its cause; nearest of {len(found.ranked)} single faults: " + ", ".join(
            nearest
        )
    if found.close:
        return f"{served} is what {len(found.close)} single faults would give, nearest: {', '.join(nearest)}"
    return f"{served} is what no single fault would give; nearest: {', '.join(nearest)}"


def _words(one: Fit) -> str:
    return f"{one.label} ({one.rounds.length:.2f})"


def _numbers(one: Fit) -> str:
    return f"{one.rounds.length:.2f}, by position {' '.join(f'{rate:.2f}' for rate in one.rounds.rates)}"


def _served(case: Case) -> str:
    rates = f", by position {' '.join(f'{rate:.2f}' for rate in case.rates)}" if case.rates else ""
    return f"{case.served:.2f}{rates}"
