"""K12, where a served accept length is given: drafter, wiring, flags, data or engine, by the offline number beside it.

What numbers say together is `drafter.serving.verdict`'s matter; the offline one is `measure`'s.
"""

from __future__ import annotations

from collections.abc import Iterator

from drafter.checks.case import Case
from drafter.checks.explain import diagnosis
from drafter.checks.finding import (
    CKPT,
    ERROR,
    GENERALISATION,
    MISWIRED,
    NOTE,
    REF,
    SERVING,
    SMP,
    WARNING,
    Finding,
)
from drafter.checks.k10_serving import made_of
from drafter.checks.measure import Option, measures
from drafter.checks.registry import FORWARD, check
from drafter.serving.effective import Effective
from drafter.serving.verdict import (
    DRAFTER,
    ENGINE,
    FLAGS,
    NONE,
    SERVED,
    SERVER,
    SHIFT,
    TRAINED,
    WIRING,
    Offline,
    verdict,
)

_REPORTS = ("NickL77/BaldEagle#17", "vllm-project/vllm-ascend#2793", "vllm-project/vllm#26191")
# verdict -> the heading, how bad, what it comes to, and what to do
_MEANS = {
    FLAGS: ("K10", ERROR, SERVING, "change the flags that limit the draft: `eagle3-tui serving` calculates them"),
    WIRING: (
        "K01",
        ERROR,
        MISWIRED,
        "serve with a version that computes what was trained: `eagle3-tui views` shows which",
    ),
    SERVER: ("K13", ERROR, SERVING, "compare the served views: `eagle3-tui views`; the drafter is not what is wrong"),
    ENGINE: ("K13", ERROR, SERVING, "report it to the engine with the fingerprints and this number"),
    SHIFT: ("K12", ERROR, GENERALISATION, "train on text like the traffic"),
    DRAFTER: ("K12", WARNING, "", "train longer, or on more text"),
    NONE: ("K12", NOTE, "", ""),
}


@check("served-length", "K12", (CKPT, SMP, REF), _REPORTS, FORWARD)
def served_length(case: Case) -> Iterator[Finding]:
    """The served accept length beside that of the same number of drafts on the samples."""
    assert case.served is not None
    made, drafts, known = _made(case), drafts_of(case), _longest(case) is not None
    found = diagnosis(case)
    # as the drafter works, and, where that is not as it is configured, as the config says
    runs = {TRAINED: found.last, **({SERVED: found.base} if found.found else {})}
    offline = [one for view, option in runs.items() if (one := _offline(case, view, option, drafts)) is not None]
    if not offline:
        return
    length = offline[0].length
    said = verdict(offline, case.served, made)
    kind, severity, means, fix = _MEANS[said.kind]
    if found.found and severity == ERROR:
        severity, means = NOTE, ""  # what was found in the files or samples comes first
    evidence = {"served": case.served, "offline": round(length, 3), "drafts a round": drafts, "reasons": said.reasons}
    evidence["missing"] = said.missing
    evidence["definition"] = f"{offline[0].how} of the samples, mask {case.mask}, bonus counted"
    sentence = said.sentence
    if not known:
        severity = WARNING if severity == ERROR else severity
        sentence += f" (taken as {drafts} drafts a round, as --depth has it: --flags would tell)"
    yield Finding("served-length", kind, severity, sentence, evidence, fix, _REPORTS, "serving", 33, means)


def drafts_of(case: Case) -> int:
    """How many drafts a round of the server makes: by its flags, by the positions of its log, else the case's depth."""
    longest = _longest(case)
    return case.depth if longest is None else max(longest - 1, 1)


def _made(case: Case) -> Effective | None:
    return None if case.asked is None else made_of(case)


def _longest(case: Case) -> int | None:
    made = _made(case)
    longest = None if made is None or made.varies else made.max_accept_length
    return len(case.rates) + 1 if longest is None and case.rates else longest


def _offline(case: Case, view: str, option: Option, drafts: int) -> Offline | None:
    """The samples' accept length: of rounds, as a log's mean is, else of rows."""
    here = measures(case).measure(option, diagnosis(case).samples, drafts)
    lengths = here.counts.lengths
    length, how = (lengths.mean, "mean of rows") if lengths.walk is None else (lengths.walk, "walk")
    return None if length is None else Offline(length, drafts, view, rounds=here.rows, how=how)
