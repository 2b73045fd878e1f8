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
from drafter.checks.measure import measures
from drafter.checks.registry import FORWARD, check
from drafter.serving.verdict import DRAFTER, ENGINE, FLAGS, NONE, SERVER, SHIFT, WIRING, Offline, verdict

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
    made = None if case.asked is None else made_of(case)
    longest = None if made is None or made.varies else made.max_accept_length
    drafts = case.depth if longest is None else max(longest - 1, 1)
    found = diagnosis(case)
    here = measures(case).measure(found.base, found.samples, drafts)
    lengths = here.counts.lengths
    length = lengths.mean if lengths.walk is None else lengths.walk  # a log's mean is one of rounds, not of rows
    if length is None:
        return
    offline = Offline(length, drafts, rounds=here.rows)
    said = verdict([offline], case.served, made)
    kind, severity, means, fix = _MEANS[said.kind]
    if found.found and severity == ERROR:
        severity, means = NOTE, ""  # what was found in the files or samples comes first
    evidence = {"served": case.served, "offline": round(length, 3), "drafts a round": drafts, "reasons": said.reasons}
    evidence["missing"] = said.missing
    sentence = said.sentence
    if longest is None:
        severity = WARNING if severity == ERROR else severity
        sentence += f" (taken as {drafts} drafts a round, as --depth has it: --flags would tell)"
    yield Finding("served-length", kind, severity, sentence, evidence, fix, _REPORTS, "serving", 33, means)
