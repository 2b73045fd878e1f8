"""One sentence about two checkpoints: the same weights exported twice, two states of one run, or unrelated.

Judged by the contents of the trained matrices alone: norms lie near one in every drafter, and embedding and head often
come from one target. What could not be compared is said in the same sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint_compare.configs import DIFFERENT, Face
from drafter.checkpoint_compare.tensors import EMBEDDING, FC, HEAD, Compared, NotCompared, TensorComparison, is_weight

SAME, MOVED, ROUNDED, PARTLY = "same weights", "same weights, fc moved", "same weights, rounded", "partly the same"
ONE_RUN, AKIN, UNRELATED, UNKNOWN = "one run", "akin", "unrelated", "not comparable"
# a median cosine of trained matrices above which two grew out of one start, and below which they have nothing in
# common: a run's first and eighth epoch, measured, have 0.65; independent ones of the smallest drafters 0.02
_RUN, _CHANCE = 0.3, 0.1
# relative L2 error that rounding to eight bits makes, with room for blocks whose values are far below their scale
_ROUNDING = {"F8_E4M3": 0.04, "F8_E4M3FNUZ": 0.04, "F8_E5M2": 0.08, "F8_E5M2FNUZ": 0.08}
_SHARED = frozenset({EMBEDDING, HEAD, "d2t", "t2d"})  # what a target or a file beside the weights can supply


@dataclass(frozen=True)
class Verdict:
    """`kind` is one of the constants above; `cosine` the median over the trained matrices, None where there are none.

    `differing` are the fields of the trained function on which the configs differ.
    """

    kind: str
    sentence: str
    cosine: float | None
    differing: tuple[str, ...]


def judge(ours: Checkpoint, theirs: Checkpoint, faces: Sequence[Face], tensors: TensorComparison) -> Verdict:
    differing = tuple(pair.field for pair in faces[-1].of_kind(DIFFERENT) if pair.field != "stated_rope")
    kind, cosine = _kind(ours, theirs, tensors)
    parts = [_words(kind, cosine, ours, theirs, tensors), _lacking(tensors), _config_words(faces, differing)]
    return Verdict(kind, "; ".join(part for part in parts if part), cosine, differing)


def _kind(ours: Checkpoint, theirs: Checkpoint, tensors: TensorComparison) -> tuple[str, float | None]:
    weights = [c for c in tensors.compared if is_weight(c)]
    matrices = [c for c in weights if _is_trained_matrix(c.name) and len(c.ours.shape) == 2]
    cosines = [c.change.cosine for c in matrices if c.change.cosine is not None]
    cosine = median(cosines) if cosines else None
    if not ours.has_weights or not theirs.has_weights or not matrices:
        other = ours.has_weights and theirs.has_weights and any(_is_trained_matrix(n.name) for n in _shaped(tensors))
        return (UNRELATED if other else UNKNOWN), cosine
    changed = [c for c in weights if not c.change.equal]
    maps = [c.name for c in tensors.compared if not is_weight(c) and not c.change.equal]
    same_maps = tensors.same_map is True or (tensors.same_map is None and not maps)
    if not changed:
        return (SAME if same_maps and not _essential(tensors) else PARTLY), cosine
    if same_maps and not _essential(tensors):
        rest = [c for c in changed if c.name != FC and not c.name.startswith(("fc_norm.", "input_norm."))]
        if tensors.fc_blocks is not None and not rest:
            return MOVED, cosine
        if all(_is_rounding(c) for c in changed):
            return ROUNDED, cosine
    if all(c.change.equal for c in matrices) and not any(_is_trained_matrix(n.name) for n in tensors.not_compared):
        return PARTLY, cosine
    if cosine is None or abs(cosine) < _CHANCE:
        return UNRELATED, cosine
    return (ONE_RUN if cosine >= _RUN else AKIN), cosine


def _is_trained_matrix(name: str) -> bool:
    """Whether a drafter's training makes the tensor from nothing."""
    return name == FC or (name.startswith("layers.") and name.endswith("_proj.weight"))


def _shaped(tensors: TensorComparison) -> list[NotCompared]:
    return [n for n in tensors.not_compared if n.ours is not None and n.theirs is not None]


def _essential(tensors: TensorComparison) -> list[NotCompared]:
    """What was not compared though the forward reads it, and nobody else supplies it."""
    return [n for n in tensors.not_compared if n.name not in _SHARED and (not n.only_in or _is_part(n.name))]


def _is_part(name: str) -> bool:
    parts = ("fc.", "layers.", "norm.", "input_norm.", "fc_norm.", "mask_hidden")
    return name.startswith(parts) and "rotary_emb" not in name


def _is_rounding(compared: Compared) -> bool:
    bounds = [_ROUNDING[t.dtype] for t in (compared.ours, compared.theirs) if t.dtype in _ROUNDING]
    relative = compared.change.relative
    return bool(bounds) and relative is not None and relative <= max(bounds)


def _words(kind: str, cosine: float | None, ours: Checkpoint, theirs: Checkpoint, tensors: TensorComparison) -> str:
    changed = [c for c in tensors.compared if not c.change.equal]
    count, by = (
        len(tensors.compared),
        "" if cosine is None else f" (median cosine of the trained matrices {cosine:.4f})",
    )
    rounded = sorted({c.change.rounded_to for c in tensors.compared if c.change.equal and not c.change.exact})
    digits = f", some after rounding to {', '.join(rounded)}" if rounded else ""
    moved = ",".join(map(str, tensors.fc_blocks or ()))
    lacks = " and ".join(side for side, c in (("ours", ours), ("theirs", theirs)) if not c.has_weights)
    nothing = f"no weights in {lacks}" if lacks else "no trained matrix could be compared"
    return {
        SAME: f"the same weights exported twice: {_equal(changed, count)}{digits}",
        MOVED: f"the same weights exported twice, the column blocks of fc moved: theirs are {moved} of ours",
        ROUNDED: f"the same weights, {len(changed)} of {count} rounded to eight bits",
        PARTLY: f"the same trained matrices as far as both have them; {len(changed)} of {count} differ",
        ONE_RUN: f"another state of the same run, or of one with the same start: {len(changed)} of {count} tensors "
        f"moved, {_apart(changed)}{by}",
        AKIN: f"little in common, as one start and a long way between would leave: {len(changed)} of {count} tensors "
        f"moved, {_apart(changed)}{by}",
        UNRELATED: f"unrelated weights: {len(changed)} of {count} shared tensors differ{by}",
        UNKNOWN: f"nothing to judge by: {nothing}",
    }[kind]


def _equal(changed: Sequence[Compared], count: int) -> str:
    """A d2t in the other reading is another tensor and the same map."""
    if not changed:
        return f"all {count} shared tensors are equal"
    names = " and ".join(c.name for c in changed)
    return f"{count - len(changed)} of {count} shared tensors are equal, {names} written otherwise for the same map"


def _apart(changed: Sequence[Compared]) -> str:
    moved = [c.change.relative for c in changed if c.change.relative is not None and _is_trained_matrix(c.name)]
    return f"the trained matrices by {median(moved):.3g} of their norm" if moved else "the trained matrices not"


def _lacking(tensors: TensorComparison) -> str:
    names = [n.name for n in tensors.not_compared]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"not compared: {', '.join(names[:4])}{more}" if names else ""


def _config_words(faces: Sequence[Face], differing: Sequence[str]) -> str:
    served = [pair.field for pair in faces[0].of_kind(DIFFERENT)]
    if differing:
        return f"the trained functions differ in {', '.join(differing)}"
    if served and len(faces) > 1:
        return f"trained alike, but config.json differs in {', '.join(served)}"
    return "the configs mean the same" if not served else f"the configs differ in {', '.join(served)}"
