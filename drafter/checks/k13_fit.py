"""What a served accept length that is too low looks like: the single faults that would give it, nearest first."""

from __future__ import annotations

from collections.abc import Iterator

from drafter.checks.case import Case
from drafter.checks.explain import diagnosis
from drafter.checks.finding import CKPT, NOTE, REF, SERVING, SMP, WARNING, Finding
from drafter.checks.k12_served import drafts_of
from drafter.checks.registry import FORWARD, check
from drafter.checks.served_fit import Fit, Fits, fits
from drafter.serving.verdict import near
from drafter.wiring import SWITCHES

REPORTS = ("NickL77/BaldEagle#17", "vllm-project/vllm-ascend#2793")
NAMED = 5  # candidates that the evidence holds
CLEAR = 2.0  # a second one that is so many times as far leaves the first alone


@check("served-looks-like", "K13", (CKPT, SMP, REF), REPORTS, FORWARD)
def looks_like(case: Case) -> Iterator[Finding]:
    """Only where the drafter itself would do better than what is served."""
    assert case.served is not None
    d = diagnosis(case)
    drafts = len(case.rates) or drafts_of(case)
    found = fits(case, d, case.served, case.rates, drafts)
    length = found.as_trained.rounds.length
    if case.served >= length or near(case.served, length):
        return
    alone = bool(case.rates) and _clearly(found)
    first = found.ranked[0]
    yield Finding(
        "served-looks-like",
        first.kind if alone else "K13",
        WARNING if alone else NOTE,
        f"{_said(case, found, alone)}; the drafter itself would reach {length:.2f}",
        {
            "switch": first.label.partition(" ")[0] if first.label.partition(" ")[0] in SWITCHES else "",
            "nearest": {one.label: _numbers(one) for one in found.ranked[:NAMED]},
            "served": _served(case),
            "the drafter itself": _numbers(found.as_trained),
            "drafts a round": drafts,
            "rounds": found.as_trained.rounds.rounds,
            "not told from what is served": [one.label for one in found.close],
            "tried": f"{len(found.ranked)} single changes",
        },
        "set the nearest as a switch (Wiring, or its option) and compare by position; other text than the samples was "
        "served" + ("" if case.rates else ": a log with acceptance by position, as vLLM writes it, tells more"),
        REPORTS,
        "orderings" if first.kind == "K01" else "wiring",
        32,
        SERVING if alone else "",
    )


def _said(case: Case, found: Fits, alone: bool) -> str:
    served, nearest = f"a served accept length of {case.served:.2f}", [_words(one) for one in found.ranked[:2]]
    if alone:
        return f"{served} looks like: {nearest[0]}, position by position"
    if not case.rates:
        return f"{served} alone does not tell its cause; nearest of {len(found.ranked)} single faults: " + ", ".join(
            nearest
        )
    if found.close:
        return f"{served} is what {len(found.close)} single faults would give, nearest: {', '.join(nearest)}"
    return f"{served} is what no single fault would give; nearest: {', '.join(nearest)}"


def _clearly(found: Fits) -> bool:
    """Whether one is close, and the next differs much more from what is served; what computes the same is one."""
    if not found.close:
        return False
    first = found.close[0]
    others = [one for one in found.close[1:] if one.rounds.rates != first.rounds.rates]
    return not others or others[0].distance > CLEAR * max(first.distance, 0.02)


def _words(one: Fit) -> str:
    return f"{one.label} ({one.rounds.length:.2f})"


def _numbers(one: Fit) -> str:
    return f"{one.rounds.length:.2f}, by position {' '.join(f'{rate:.2f}' for rate in one.rounds.rates)}"


def _served(case: Case) -> str:
    rates = f", by position {' '.join(f'{rate:.2f}' for rate in case.rates)}" if case.rates else ""
    return f"{case.served:.2f}{rates}"
