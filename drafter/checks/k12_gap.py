"""Training against serving: what the scores come to where no single change explains them.

A drafter that only knows its training texts, one that works offline, so that a worse server is the server's matter, and
what servers compute otherwise. A shape that points to a part is k12_shape's matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from drafter.checks.case import Case
from drafter.checks.explain import Diagnosis, compared, diagnosis, marginals
from drafter.checks.finding import (
    CKPT,
    ERROR,
    GENERALISATION,
    HEALTHY,
    NOTE,
    OK,
    SMP,
    UNKNOWN,
    WARNING,
    Finding,
)
from drafter.checks.k13_cannot import said_of
from drafter.checks.measure import Measured, Option, measures
from drafter.checks.registry import FORWARD, check
from drafter.checks.signature import LOW, ROWS, UNTOLD, WHOLE, above, signature
from drafter.sample.sample import Sample
from drafter.serving.offline import kind_of
from drafter.serving.server import SGLANG, VLLM, Server
from drafter.serving.verdict import HELD_OUT, TRAINING, good_length

OVERFIT, GAP = 0.5, 0.12  # of the accuracy on training texts: half of it lost is a fault, this much a warning
HARDLY = 1.3  # an accept length below which serving gains nothing


# --- groups


@check("it-generalises", "K12", (CKPT, SMP), ("sgl-project/SpecForge#128", "vllm-project/speculators#751"), FORWARD)
def generalises(case: Case) -> Iterator[Finding]:
    """Texts that were trained on against others, where both are told apart by group or file name."""
    d = diagnosis(case)
    seen, unseen = seen_and_unseen(case, d.samples)
    if not seen or not unseen:
        return
    m = measures(case)
    ours, theirs = m.measure(d.last, seen), m.measure(d.last, unseen)
    if min(ours.rows, theirs.rows) < ROWS:
        return
    severity = _gap(ours, theirs)
    lengths = f"accept length {ours.length or 0:.2f} and {theirs.length or 0:.2f}"
    said = "half of what it does is lost on new text" if severity == ERROR else "it does clearly worse on new text"
    said = "it does as well on new text" if severity == OK else said
    yield Finding(
        "it-generalises",
        "K12",
        severity,
        f"{said}: step 0 {ours.accuracy:.3f} on {len(seen)} seen texts, {theirs.accuracy:.3f} on {len(unseen)} others; "
        f"{lengths}",
        {"training": ours.said(), "others": theirs.said()},
        "" if severity == OK else "train on more text of the kind that is served, and for fewer epochs",
        ("sgl-project/SpecForge#128", "vllm-project/speculators#751", "sgl-project/SpecForge#252"),
        "orderings",
        35,
        "" if severity == OK else GENERALISATION,
    )


def _gap(seen: Measured, unseen: Measured) -> str:
    if not above(seen.counts.accuracy, unseen.counts.accuracy, GAP):
        return OK
    return ERROR if seen.accuracy >= LOW and unseen.accuracy < OVERFIT * seen.accuracy else WARNING


def seen_and_unseen(case: Case, samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Samples that were trained on and those that were not, by the name of their group, folder or file."""

    def kind(sample: Sample) -> str:
        return kind_of(Path(case.group_of(sample.path)).name, sample.path.parent.name, sample.path.name)

    return [s for s in samples if kind(s) == TRAINING], [s for s in samples if kind(s) == HELD_OUT]


def only_seen_works(case: Case, d: Diagnosis) -> bool:
    """A drafter that works on its training texts is trained, whatever the pool says."""
    seen, unseen = seen_and_unseen(case, d.samples)
    if not seen or not unseen:
        return False
    ours = measures(case).measure(d.last, seen)
    return ours.accuracy >= LOW and signature(marginals(ours)).name == WHOLE


# --- what serving should reach


@check("it-works-offline", "K12", (CKPT, SMP), ("NickL77/BaldEagle#17", "vllm-project/vllm-ascend#2793"), FORWARD)
def works(case: Case) -> Iterator[Finding]:
    """The accept length that a chain should reach, where nothing is wrong with the drafter."""
    d = diagnosis(case)
    if d.signature.name == UNTOLD and not d.found and not d.mispaired:
        yield _too_few(d)
    if d.found or d.mispaired or d.signature.name != WHOLE:
        return
    seen, unseen = seen_and_unseen(case, d.samples)
    used = unseen if seen and unseen else d.samples
    here = measures(case).measure(d.base, unseen) if used is unseen else d.start
    length = here.length
    if length is None or length < HARDLY:
        return
    yield Finding(
        "it-works-offline",
        "K12",
        OK,
        _works(here, length, case.depth) + _in_its_engine(case),
        {**here.said(), **_measured_on(case, used, "held-out" if used is unseen else "sound")},
        "",
        ("NickL77/BaldEagle#17", "vllm-project/vllm-ascend#2793"),
        "orderings",
        5,
        HEALTHY,
    )


def _works(here: Measured, length: float, depth: int) -> str:
    walk, good = here.counts.lengths.walk, good_length(depth)
    below = f"the drafter is healthy, but below what is good ({good:.2f}): " if length < good else ""
    served = f" ({walk:.2f} as a server's log would say)" if walk is not None else ""
    said = f"step 0 {here.accuracy:.3f}, accept length {length:.2f} with {depth} drafts{served}"
    return f"{below}{said}; a server well below that is miswired or at fault itself"


def _in_its_engine(case: Case) -> str:
    """What the engine that the checkpoint's layout is for makes of it, where that is less."""
    engine = VLLM if case.checkpoint.config.dialect == "speculators" else SGLANG
    found = next((one for one in worse_views(case) if Server.parse(one[0]).name == engine), None)
    if found is None or found[1].length is None:
        return ""
    return f"; {found[0]} would reach only {found[1].length:.2f} on these samples ({found[2]})"


def _too_few(d: Diagnosis) -> Finding:
    told = d.start.counts.accuracy
    title = f"too few rows to tell: only {told.total} rows count, {ROWS} are needed ({told.hits} are right at step 0)"
    fix = "give more samples, or longer ones; --mask all counts the prompt's rows too"
    return Finding("it-works-offline", "K12", NOTE, title, d.start.said(), fix, view="orderings", means=UNKNOWN)


def _measured_on(case: Case, used: Sequence[Sample], word: str) -> dict[str, str]:
    """How many of the samples that were given the numbers are of, where not all, and by which mask and metric."""
    given = len(case.samples) + len(case.unread)
    fewer = {"samples": f"{len(used)} of {given}"} if len(used) < given else {}
    return {"on": f"{len(used)} {word} samples", **fewer, "mask": case.mask, "metric": "next_token"}


@check("servers-compute-the-same", "K12", (CKPT, SMP), ("vllm-project/vllm#26191",), FORWARD)
def servers(case: Case) -> Iterator[Finding]:
    """The newest servers, and the one that is asked about: what each of their differences costs here."""
    d = diagnosis(case)
    if d.found:
        return
    known = said_of(case)  # with what no key cures
    for view, after, names in worse_views(case):
        if view in known:
            continue
        asked = case.server is not None and str(case.server) == view
        yield Finding(
            "servers-compute-the-same",
            "K12",
            ERROR if asked else NOTE,
            f"{view} would score worse than trained ({names}): step 0 {d.start.accuracy:.3f} -> {after.accuracy:.3f}, "
            f"accept length {d.start.length or 0:.2f} -> {after.length or 0:.2f}",
            {"trained": d.start.said(), view: after.said()},
            f"see `views` for each difference and its cure: {names}",
            ("vllm-project/vllm#26191", "NickL77/BaldEagle#17"),
            "serving",
            20,
            "serving" if asked else "",
        )


def worse_views(case: Case) -> list[tuple[str, Measured, str]]:
    """(server, its score, its differences) of each that scores clearly worse than what was trained."""
    return case.once("worse views", lambda: list(_worse_views(case)))


def _worse_views(case: Case) -> Iterator[tuple[str, Measured, str]]:
    d = diagnosis(case)
    for view, option, names in [] if d.found else server_views(case, d):
        after = measures(case).measure(option, d.samples)
        if compared(after, d.start, d.base, 1) is not None or d.start.accuracy - after.accuracy >= 0.1:
            yield view, after, names


def server_views(case: Case, d: Diagnosis) -> Iterator[tuple[str, Option, str]]:
    """name, how it would run, and its differences in words; those that load this and feed what is recorded."""
    from drafter.errors import DrafterError
    from drafter.fix.configs import configured_table
    from drafter.serving.server import READ
    from drafter.serving.view_case import Case as ViewCase
    from drafter.serving.views import ordering_of, served_view

    servers = [Server.parse(f"{name}@{READ[name][1]}") for name in (SGLANG, VLLM)]
    if case.server is not None and case.server.name in (SGLANG, VLLM):
        servers = [case.server, *(s for s in servers if str(s) != str(case.server))]
    reading = case.vocab().reading
    for server in servers:
        try:
            table: Any = configured_table(case.checkpoint)
            view = served_view(
                ViewCase(case.checkpoint, table, server, case.family, case.target_layers, case.target, reading)
            )
        except DrafterError:
            continue
        slots, inputs = d.samples[0].slots, case.checkpoint.fc_inputs
        fed, _ = ordering_of(view, slots, inputs, case.target_layers)
        if view.refused or fed is None:
            continue
        names = [one.name for one in view.differences]
        names += ["ordering"] if fed != d.base.ordering else []
        if names:
            yield str(server), Option(fed, view.wiring), ", ".join(names)
