"""The shape of the accuracies by draft step, where nothing that can be switched explains it, and the part it points to.

The same shape has several causes. What the weights look like, and whether the recording vouches for itself, decides
between them as far as they can; where they cannot, the title names all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drafter.checks.case import Case
from drafter.checks.explain import Diagnosis, diagnosis, foreign_map
from drafter.checks.finding import (
    BROKEN_CHECKPOINT,
    BROKEN_SAMPLE,
    CKPT,
    ERROR,
    MISWIRED,
    NOTE,
    SMP,
    UNKNOWN,
    UNTRAINED,
    Finding,
)
from drafter.checks.k03_head import head_rows
from drafter.checks.k08_samples import foreign_embeddings
from drafter.checks.k08_text import out_of_scale
from drafter.checks.k12_gap import only_seen_works
from drafter.checks.k12_labels import labelled_otherwise
from drafter.checks.measure import measures
from drafter.checks.registry import FORWARD, check
from drafter.checks.signature import DEAD_ALL, DYING, FLAT_LOW, RISING, Signature
from drafter.checks.untrained import even, looks, mostly_trained, noise_among
from drafter.checks.vocab_size import wrong_vocab_size
from drafter.checks.witness import witness
from drafter.checks.written import written
from drafter.errors import CheckpointError
from drafter.sample.probes.contradictions import BAD

REPORTS = ("SafeAILab/EAGLE#222", "vllm-project/speculators#1114")
FC = "fc.weight"
NAMED = 3
LOST = 0.5  # a trained drafter that a switch mends is right more often than this


@dataclass(frozen=True)
class Part:
    """What a shape comes to: `means` is the kind of verdict."""

    kind: str
    means: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Hints:
    """`noise`: matrices that look random among trained ones; `fc`: it is one of them; `constant`: that hold one value;
    `even`: that may be random, or little trained; `trained`: most are trained; `head_fits`: lm_head is the target's at
    the mapped ids; `target`: there is one; `vouched`, `scale`: what the recording says for itself, and of slots out of
    proportion; empty for nothing. All by their names in the file.
    """

    noise: tuple[str, ...]
    fc: bool
    constant: tuple[str, ...]
    even: tuple[str, ...]
    trained: bool
    head_fits: bool
    target: bool
    vouched: str
    scale: str


@check("scores-point-to-a-part", "K02", (CKPT, SMP), REPORTS, FORWARD)
def shape(case: Case) -> Iterator[Finding]:
    """The shape of the accuracies by draft step, where nothing that can be switched explains it."""
    if wrong_vocab_size(case) is not None:
        return  # the ids are another vocabulary's: no score tells anything
    d = diagnosis(case)
    told = d.signature
    if d.found:
        yield from _rather(case, d)
    if d.found or told.name not in _PARTS or only_seen_works(case, d):
        return
    m = measures(case)
    if foreign_map(case) is not None or foreign_embeddings(m) or labelled_otherwise(case):
        return  # said by other checks, and enough to make the numbers what they are
    if m.off_policy or m.uncovered:
        yield _excused(d, "the text is not the target's" if m.off_policy else "the draft vocabulary lacks much of it")
        return
    if told.name == DEAD_ALL and d.end.counts.not_finite >= 0.9 * d.end.rows:
        yield _no_numbers(d)
        return
    hints = _hints(case, d)
    part = _scaled(hints.scale) if hints.scale else _PARTS[told.name](hints)
    steps = ", ".join(f"{a:.2f}" for a in told.steps)
    evidence = {**d.end.said(), "tried": _tried(d), "look random": list(hints.noise), "states": hints.vouched}
    yield Finding(
        "scores-point-to-a-part", part.kind, ERROR, f"{_words(told)} ({steps}): {part.cause}",
        {name: value for name, value in evidence.items() if value}, part.fix, REPORTS, "step", 10, part.means,
    )  # fmt: skip


def _words(told: Signature) -> str:
    """Its shape in words; a first step that is poor itself is not called right."""
    if told.name == DYING and told.steps[0] < LOST:
        return "the first step is the best, and poor; the ones fed with the drafter's own state are worse still"
    return told.words


def lost(case: Case) -> bool:
    """Whether a change that helps is no fault, since a matrix was lost, or a slot is out of scale, and stays so."""
    d = diagnosis(case)
    return bool(d.found) and any(_instead(case, d))


def _instead(case: Case, d: Diagnosis) -> tuple[str, tuple[str, ...]]:
    """What is said of a slot out of scale, and the matrices that look random, where changes leave the drafter poor."""
    if d.end.accuracy >= LOST:
        return "", ()
    scale = out_of_scale(measures(case), d.samples[0])
    if scale or any(one.option.kind not in ("K05", "K06") for one in d.of_files):
        return scale, ()
    return "", _hints(case, d).noise


def _rather(case: Case, d: Diagnosis) -> Iterator[Finding]:
    """A change that helps a little, of a drafter whose matrix was lost or whose slots are out of scale, is no fault."""
    scale, noise = _instead(case, d)
    if not scale and not noise:
        return
    part = _scaled(scale) if scale else _noise(noise)
    change, steps = d.found[0].option.label, ", ".join(f"{a:.2f}" for a in d.signature.steps)
    title = f"{part.cause}; another {change}" if change == "ordering" else f"{part.cause}; {change}"
    evidence = {**d.end.said(), **({"look random": list(noise)} if noise else {})}
    yield Finding(
        "scores-point-to-a-part", part.kind, ERROR, f"{title} helps, but leaves {steps}", evidence, part.fix, REPORTS,
        "checkpoint" if noise else "sample", 66, part.means,
    )  # fmt: skip


def _excused(d: Diagnosis, why: str) -> Finding:
    steps = ", ".join(f"{a:.2f}" for a in d.signature.steps)
    title = f"{d.signature.words} ({steps}), which is not held against the drafter: {why}"
    return Finding("scores-point-to-a-part", "K12", NOTE, title, d.end.said(), view="step", means=UNKNOWN)


def _no_numbers(d: Diagnosis) -> Finding:
    return Finding(
        "scores-point-to-a-part", "K11", ERROR, "the drafter gives no numbers: its forward overflows",
        {**d.end.said(), "rows without numbers": d.end.counts.not_finite},
        "look for NaN or Inf in the weights; try --dtype float32", ("vllm-project/vllm#55250",), "step", 30,
    )  # fmt: skip


def _hints(case: Case, d: Diagnosis) -> Hints:
    used = {name: look for name, look in looks(case).items() if name in case.checkpoint.expected}
    m = measures(case)
    # of a recording that contradicts itself one good slot vouches for nothing
    found = None if any(c.severity == BAD for s in d.samples for c in m.contradictions(s)) else witness(m, d.samples)
    named = written(case)
    matrices = {name: look for name, look in used.items() if look.is_matrix}
    noise = noise_among(used)
    return Hints(
        tuple(map(named, noise)),
        FC in noise,
        tuple(named(name) for name, look in matrices.items() if look.constant is not None),
        tuple(named(name) for name, look in matrices.items() if even(look) and name not in noise),
        mostly_trained(used),
        _head_fits(case),
        case.target is not None,
        found.words if found is not None else "",
        out_of_scale(m, d.samples[0]),
    )


def _head_fits(case: Case) -> bool:
    """Whether lm_head is known to be the target's rows at the mapped ids."""
    try:
        found = head_rows(case)
    except CheckpointError:
        return False
    return found is not None and 2 * found.known >= found.looked and not found.others


def _tried(d: Diagnosis) -> str:
    return f"{len(d.sweep)} orderings, every switch of the forward, every reading of the map: none is clearly better"


def _many(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _noise(names: Sequence[str]) -> Part:
    look = "looks" if len(names) == 1 else "look"
    cause = f"{_many(names)} {look} like random numbers, where others are clearly trained"
    fix = "check these names in the trainer's own file: the export lost what a loader filled in; export again"
    return Part("K02", BROKEN_CHECKPOINT, cause, fix)


def _one_value(names: Sequence[str]) -> Part:
    holds = "holds one value" if len(names) == 1 else "hold one value each"
    return Part(
        "K02", BROKEN_CHECKPOINT, f"{_many(names)} {holds}", "export the weights again: a tensor was not filled"
    )


def _scaled(said: str) -> Part:
    fix = "record these states again, or train with fc_norm (one RMSNorm for each state)"
    return Part("K05", BROKEN_SAMPLE, f"{said}: one slot drowns the others", fix)


def _dead(hints: Hints) -> Part:
    if hints.noise or hints.constant:
        return _noise(hints.noise) if hints.noise else _one_value(hints.constant)
    cause = "lm_head's rows are another vocabulary's, or lm_head, fc or another tensor is not the trained one"
    fix = "compare lm_head, norm and fc with an earlier epoch; export again"
    if hints.head_fits:
        cause = "lm_head is the target's at the mapped ids, so norm, fc or a tensor of the layer is not the trained one"
        fix = "compare norm, fc and the layer with an earlier epoch; export again"
    return Part("K02", BROKEN_CHECKPOINT if hints.trained else UNTRAINED, cause, fix)


def _low(hints: Hints) -> Part:
    if hints.noise or hints.constant:
        return _noise(hints.noise) if hints.noise else _one_value(hints.constant)
    fix = "look at the tensors' statistics; check which layers training recorded; compare with an earlier epoch"
    if not hints.trained:
        cause = "fc or another tensor is not trained, or the states that it was trained on are not recorded"
        return Part("K02", UNTRAINED, cause, fix)
    places = "some are another run's or stand in the wrong place (heads, halves, names)"
    layers = "or the layers that it was trained on are not recorded"
    trained = "the weights are trained"
    if hints.even:
        trained = f"most matrices are trained ({_many(hints.even)} cannot be told from random numbers)"
        fix = f"compare {_many(hints.even)} with an earlier epoch first; check which layers training recorded"
    cause = f"{trained}, but {places}, {layers}"
    return Part("K02", BROKEN_CHECKPOINT, cause, fix)


def _rising(hints: Hints) -> Part:
    if hints.fc:
        return _noise(hints.noise)
    if hints.constant:
        return _one_value(hints.constant)
    if hints.vouched:
        cause = f"{hints.vouched}, so they stand at their tokens: fc was trained on other layers, or is not all trained"
        fix = "record the layers that training fed, or take the fc that was trained on these"
        return Part("K01", MISWIRED, cause, fix)
    cause = "the states do not belong to these tokens or to this target, or it was trained on layers that are not here"
    fix = "record the states again with the target that the drafter was trained on, and pair them row by row"
    return Part("K08", BROKEN_SAMPLE, cause, fix)


def _dying(hints: Hints) -> Part:
    if hints.noise:
        return _noise(hints.noise)
    cause = "the embedding or a tensor of the decoder layer is not the trained one, or what is fed back is"
    fix = "compare the layer and the embedding with an earlier epoch"
    if not hints.target:
        fix = f"name the target with --target so that its embedding can be tried; {fix}"
    return Part("K02", BROKEN_CHECKPOINT, cause, fix)


_PARTS = {DEAD_ALL: _dead, FLAT_LOW: _low, RISING: _rising, DYING: _dying}
