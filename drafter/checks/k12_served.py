"""K12, where a served accept length is given: drafter, wiring, flags, data or engine, by the offline number beside it.

What numbers say together is `drafter.serving.verdict`'s matter; the offline ones are `measure`'s, and what the server
computes is `served_view`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

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
from drafter.checks.measure import Option, measures
from drafter.checks.registry import FORWARD, check
from drafter.checks.served_fit import looks_like
from drafter.checks.served_view import AsServed, as_served, drafts_of, longest, made
from drafter.errors import DrafterError
from drafter.serving.verdict import (
    CONFIGURED,
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
    Verdict,
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
    compared = compare(case)
    if compared is None:
        return
    said, server, drafts = compared.said, compared.server, drafts_of(case)
    kind, severity, means, fix = _MEANS[said.kind]
    severity, means = (compared.severity, means) if compared.severity == severity else (compared.severity, "")
    evidence: dict[str, Any] = {
        "served": case.served,
        "offline": round(compared.offline[0].length, 3),
        "drafts a round": drafts,
    }
    evidence |= {f"{one.view} view": round(one.length, 3) for one in compared.offline[1:]}
    evidence |= {"reasons": said.reasons, "missing": said.missing}
    evidence["definition"] = f"{compared.offline[0].how} of the samples, mask {case.mask}, bonus counted"
    sentence = said.sentence
    if server is not None and server.why_not:
        sentence += f"; what {server.who} makes of it cannot be computed: {server.why_not}"
    if server is not None and server.cures and said.kind == WIRING:
        fix = "; ".join(server.cures)
    if longest(case) is None:
        severity = WARNING if severity == ERROR else severity
        sentence += f" (taken as {drafts} drafts a round, as --depth has it: --flags would tell)"
    fix = _named_by_position(case) or fix
    yield Finding("served-length", kind, severity, sentence, evidence, fix, _REPORTS, "serving", 33, means)


def _named_by_position(case: Case) -> str:
    """The one fault that the positions of the log show, to be mended first; empty where there is none."""
    try:
        likeness = looks_like(case) if case.rates else None
    except DrafterError:
        return ""  # served-looks-like says why
    if likeness is None or likeness.alone is None:
        return ""
    return f"see served-looks-like: {likeness.alone.label} is what the numbers by position show"


@dataclass(frozen=True)
class Compared:
    """`offline`: as the drafter works, then as the server computes it, or as the config says where none is named.

    `severity` is that of the verdict, a note where what was found in the files or samples comes first.
    """

    offline: tuple[Offline, ...]
    said: Verdict
    severity: str
    server: AsServed | None


def compare(case: Case) -> Compared | None:
    """None where no row of the samples can be drafted from."""
    return case.once("served length", lambda: _compare(case))


def _compare(case: Case) -> Compared | None:
    d, drafts = diagnosis(case), drafts_of(case)
    trained = _offline(case, TRAINED, d.last, drafts)
    if trained is None:
        return None
    server, other = as_served(case, d), None
    if server is not None and server.option is not None:
        try:
            other = _offline(case, SERVED, server.option, drafts, f"as {server.who} computes it")
        except DrafterError as error:  # what it takes from the target is not here
            server = replace(server, option=None, why_not=str(error))
    elif server is None and d.found:
        other = _offline(case, CONFIGURED, d.base, drafts)
    offline = (trained,) if other is None else (trained, other)
    said = verdict(offline, case.served, made(case))
    severity = _MEANS[said.kind][1]
    return Compared(offline, said, NOTE if d.found and severity == ERROR else severity, server)


def _offline(case: Case, view: str, option: Option, drafts: int, who: str = "") -> Offline | None:
    """The samples' accept length: of rounds, as a log's mean is, else of rows."""
    here = measures(case).measure(option, diagnosis(case).samples, drafts)
    lengths = here.counts.lengths
    length, how = (lengths.mean, "mean of rows") if lengths.walk is None else (lengths.walk, "walk")
    return None if length is None else Offline(length, drafts, view, rounds=here.rows, how=how, who=who)
