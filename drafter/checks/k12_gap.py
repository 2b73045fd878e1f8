"""Training against serving: what the scores come to where no single change explains them.

A shape that points to a part (signature.py), a drafter that only knows its training texts, one that is hardly trained,
one that works offline, so that a worse server is the server's matter, and what servers compute otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from drafter.checks.case import Case
from drafter.checks.explain import Diagnosis, compared, diagnosis, foreign_map, marginals
from drafter.checks.finding import (
    BROKEN_CHECKPOINT,
    BROKEN_SAMPLE,
    CKPT,
    ERROR,
    GENERALISATION,
    HEALTHY,
    NOTE,
    OK,
    SMP,
    UNTRAINED,
    WARNING,
    Finding,
)
from drafter.checks.k08_samples import foreign_embeddings
from drafter.checks.k12_labels import labelled_otherwise
from drafter.checks.measure import Measured, Option, measures
from drafter.checks.registry import FORWARD, check
from drafter.checks.signature import DEAD_ALL, DYING, FLAT_LOW, LOW, RISING, ROWS, WHOLE, above, signature
from drafter.sample.sample import Sample
from drafter.serving.offline import kind_of
from drafter.serving.verdict import HELD_OUT, TRAINING, good_length

SHAPE = ("SafeAILab/EAGLE#222", "vllm-project/speculators#1114")
OVERFIT, GAP = 0.5, 0.12  # of the accuracy on training texts: half of it lost is a fault, this much a warning
HARDLY = 1.3  # an accept length below which serving gains nothing


@check("scores-point-to-a-part", "K02", (CKPT, SMP), SHAPE, FORWARD)
def shape(case: Case) -> Iterator[Finding]:
    """The shape of the accuracies by draft step, where nothing that can be switched explains it."""
    d = diagnosis(case)
    told = d.signature
    if d.found or told.name not in _SHAPES or _only_seen_works(case, d):
        return
    m = measures(case)
    if (
        foreign_map(case) is not None
        or m.off_policy
        or m.uncovered
        or foreign_embeddings(m)
        or labelled_otherwise(case)
    ):
        return  # said by other checks, and enough to make the numbers what they are
    if told.name == DEAD_ALL and d.end.counts.not_finite >= 0.9 * d.end.rows:
        yield Finding(
            "scores-point-to-a-part", "K11", ERROR, "the drafter gives no numbers: its forward overflows",
            {**d.end.said(), "rows without numbers": d.end.counts.not_finite},
            "look for NaN or Inf in the weights; try --dtype float32", ("vllm-project/vllm#55250",), "step", 30,
        )  # fmt: skip
        return
    kind, means, cause, fix = _SHAPES[told.name]
    yield Finding(
        "scores-point-to-a-part",
        kind,
        ERROR,
        f"{told.words} ({', '.join(f'{a:.2f}' for a in told.steps)}): {cause}",
        {**d.end.said(), "tried": _tried(d)},
        fix,
        SHAPE,
        "step",
        10,
        means,
    )


_SHAPES: dict[str, tuple[str, str, str, str]] = {
    DEAD_ALL: (
        "K02",
        UNTRAINED,
        "lm_head is not trained, or its rows are another vocabulary's",
        "compare lm_head and norm with an earlier epoch; train, or export again",
    ),
    FLAT_LOW: (
        "K02",
        UNTRAINED,
        "fc or another tensor is not trained, or the states that it was trained on are not recorded",
        "look at the tensors' statistics; check which layers training recorded; compare with an earlier epoch",
    ),
    DYING: (
        "K02",
        BROKEN_CHECKPOINT,
        "the embedding or a tensor of the decoder layer is not the trained one, or what is fed back is",
        "name the target with --target so that its embedding can be tried; compare the layer with an earlier epoch",
    ),
    RISING: (
        "K08",
        BROKEN_SAMPLE,
        "the states do not belong to these tokens or to this target",
        "record the states again with the target that the drafter was trained on, and pair them row by row",
    ),
}


def _tried(d: Diagnosis) -> str:
    return f"{len(d.sweep)} orderings, every switch of the forward, every reading of the map: none is clearly better"


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
    said = "half of what it does is lost on new text" if severity == ERROR else "it does worse on new text"
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


def _only_seen_works(case: Case, d: Diagnosis) -> bool:
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
    if d.found or d.mispaired or d.signature.name != WHOLE:
        return
    seen, unseen = seen_and_unseen(case, d.samples)
    used = unseen if seen and unseen else d.samples
    here = measures(case).measure(d.base, unseen) if used is unseen else d.start
    length = here.length
    if length is None or length < HARDLY:
        return
    walk, good = here.counts.lengths.walk, good_length(case.depth)
    yield Finding(
        "it-works-offline",
        "K12",
        OK,
        f"step 0 {here.accuracy:.3f}, accept length {length:.2f} with {case.depth} drafts"
        + (f" ({walk:.2f} as a server's log would say)" if walk is not None else "")
        + (f"; good is {good:.2f}" if length < good else "")
        + "; a server well below that is miswired or at fault itself",
        {**here.said(), **_measured_on(case, used, "held-out" if used is unseen else "sound")},
        "",
        ("NickL77/BaldEagle#17", "vllm-project/vllm-ascend#2793"),
        "orderings",
        5,
        HEALTHY,
    )


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
    for view, option, names in server_views(case, d):
        before, after = d.start, measures(case).measure(option, d.samples)
        worse = compared(after, before, d.base, 1)
        asked = case.server is not None and str(case.server) == view
        if worse is None and before.accuracy - after.accuracy < 0.1:
            continue
        yield Finding(
            "servers-compute-the-same",
            "K12",
            ERROR if asked else NOTE,
            f"{view} would score worse than trained ({names}): step 0 {before.accuracy:.3f} -> {after.accuracy:.3f}",
            {"trained": before.said(), view: after.said()},
            f"see `views` for each difference and its cure: {names}",
            ("vllm-project/vllm#26191", "NickL77/BaldEagle#17"),
            "serving",
            20,
            "serving" if asked else "",
        )


def server_views(case: Case, d: Diagnosis) -> Iterator[tuple[str, Option, str]]:
    """name, how it would run, and its differences in words; those that load this and feed what is recorded."""
    from drafter.errors import DrafterError
    from drafter.fix.configs import configured_table
    from drafter.serving.server import READ, SGLANG, VLLM, Server
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
