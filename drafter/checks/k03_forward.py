"""The vocabulary map, told by scores: another reading that predicts, a head that speaks of other rows, and coverage."""

from __future__ import annotations

from collections.abc import Iterator

from drafter.checks.case import Case
from drafter.checks.explain import diagnosis, foreign_map
from drafter.checks.finding import CKPT, ERROR, OK, SMP, WARNING, Finding
from drafter.checks.measure import measures
from drafter.checks.registry import FORWARD, SAMPLE, check
from drafter.checks.signature import ROWS
from drafter.checks.vocab_size import wrong_vocab_size

REPORTS = ("SafeAILab/EAGLE#222", "NVIDIA-NeMo/Automodel#2447")


@check("vocab-map-predicts-in-another-reading", "K03", (CKPT, SMP), REPORTS, FORWARD)
def another_reading(case: Case) -> Iterator[Finding]:
    """d2t as every server reads it against the other ways in which it could be meant."""
    d = diagnosis(case)
    for one in d.of("K03") if wrong_vocab_size(case) is None else []:
        yield Finding(
            "vocab-map-predicts-in-another-reading",
            "K03",
            ERROR,
            f"d2t does not name the tokens of lm_head's rows; {_reading(one.option.map_name)[0]} does: step 0 "
            f"{one.before.accuracy:.3f} -> {one.after.accuracy:.3f}",
            one.said(),
            _fix(one.option.map_name, case.checkpoint.draft_vocab_size),
            REPORTS,
            "checkpoint",
            70,
        )


_READINGS = {  # what predicts, as a sentence's subject, and the d2t that every server then reads right
    "d2t holds target ids": ("d2t read as target ids", "d2t = d2t - arange(D)"),
    "draft ids are target ids": ("row i for token i", "d2t = zeros(D)"),
    "d2t holds offsets": ("d2t read as offsets, row + d2t,", "keep d2t as it is, servers read it so"),
    "the ids that t2d marks, ascending": (
        "the list of the ids that t2d marks, ascending,",
        "d2t = nonzero(t2d) - arange(D)",
    ),
    "its ids, ascending": ("the list of its own ids, ascending,", "d2t = sort(arange(D) + d2t) - arange(D)"),
    "offsets, one row up": ("d2t moved by one row", "d2t = roll(arange(D) + d2t, 1) - arange(D)"),
    "offsets, one row down": ("d2t moved by one row", "d2t = roll(arange(D) + d2t, -1) - arange(D)"),
}


def _reading(map_name: str) -> tuple[str, str]:
    return _READINGS.get(map_name, (map_name, "write the target ids minus arange(D)"))


def _fix(map_name: str, rows: int) -> str:
    return f"weights: {_reading(map_name)[1]}, with D = {rows}; every server adds d2t[i] to the draft id i"


@check("head-and-vocab-map-do-not-belong-together", "K03", (CKPT, SMP), REPORTS, FORWARD)
def another_map(case: Case) -> Iterator[Finding]:
    """Nothing is right, yet the same draft id stands for the same token again and again."""
    told, d = foreign_map(case), diagnosis(case)
    if told is None or wrong_vocab_size(case) is not None:
        return
    ours = told.same
    yield Finding(
        "head-and-vocab-map-do-not-belong-together",
        "K03",
        ERROR,
        f"the head's rows and the vocabulary map do not belong together: as mapped {d.start.accuracy:.3f} are right, "
        f"but a draft id stands for the same token elsewhere in {ours.hits} of {ours.total} rows",
        {
            **d.start.said(),
            "same draft id, same token": f"{ours.hits} of {ours.total} rows, each left out of what it is judged by",
            "most frequent token alone": f"{told.chance.hits} of {told.chance.total}",
            "draft ids with a token of their own": f"{told.distinct.hits} of {told.distinct.total}",
        },
        "take d2t and t2d from the run that trained lm_head (the map of another data set or vocabulary was exported)",
        REPORTS,
        "checkpoint",
        70,
    )


@check("draft-vocabulary-covers-the-text", "K03", (CKPT, SMP), ("sgl-project/SpecForge#492",), SAMPLE)
def coverage(case: Case) -> Iterator[Finding]:
    """The share of supervised tokens that can be drafted at all."""
    m = measures(case)
    told, poor = m.coverage(), m.uncovered
    hits, total = told.hits, told.total
    if total < ROWS or wrong_vocab_size(case) is not None:
        return
    yield Finding(
        "draft-vocabulary-covers-the-text",
        "K03",
        WARNING if poor else OK,
        f"the draft vocabulary holds {hits} of {total} supervised tokens ({hits / total:.1%})",
        {"in the draft vocabulary": f"{hits} of {total}", "draft vocabulary": case.vocab().size},
        "choose the draft vocabulary by the token counts of this kind of text, and train again" if poor else "",
        ("sgl-project/SpecForge#492", "sgl-project/SpecForge#218"),
        "sample",
    )
