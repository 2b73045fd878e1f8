"""Whether the drafter was taught to say the right token: its predictions against the tokens around the one meant.

Row t is fed x[t+1] and is meant to predict x[t+2]. Labels that were not shifted teach it to say what it is fed; labels
that were shifted twice teach it to leave one out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from drafter.checks.case import Case
from drafter.checks.finding import BROKEN_CHECKPOINT, CKPT, ERROR, SMP, Finding
from drafter.checks.measure import Measures, Option, measures
from drafter.checks.options import base_wiring, configured, trained
from drafter.checks.registry import FORWARD, check
from drafter.checks.signature import LOW, ROWS
from drafter.sample.sample import Sample
from drafter.scoring.compare import mcnemar

REPORTS = ("sgl-project/SpecForge#455", "SafeAILab/EAGLE#222")
MEANT, OTHERS = 2, (0, 1, 3, 4)  # of x[t + n]
GAIN, P = 0.1, 0.001  # what another token must be right more often by, and how unlikely that is by chance
_WORDS = {
    0: "the token before the one that it is fed",
    1: "the token that it is fed",
    3: "the token after next",
    4: "the token two after next",
}


@check("labels-are-the-next-tokens", "K12", (CKPT, SMP), REPORTS, FORWARD)
def labels(case: Case) -> Iterator[Finding]:
    """Only where the states belong to their tokens (a sample whose rows are shifted looks alike, and is K08's), and of
    the drafter's own function: a switch may make it say anything."""
    if case.switches:
        return
    m = measures(case)
    for option in _options(case, m.sane):
        rights = [_right(m, sample, option) for sample in m.sane]
        hits = {n: torch.cat([right[n] for right in rights]) for n in (MEANT, *OTHERS)}
        found = _better(hits)
        if found is not None:
            yield _finding(option, hits, found)
            return


def labelled_otherwise(case: Case) -> bool:
    """Whether the drafter says another token than the one meant, so that nothing else explains its scores."""
    return case.once("labelled otherwise", lambda: any(True for _ in labels(case)))


def _options(case: Case, samples: Sequence[Sample]) -> list[Option]:
    slots, wiring = samples[0].slots, base_wiring(case)
    named = [trained(case, slots), configured(case, slots)[0], tuple(range(case.checkpoint.fc_inputs))]
    return [Option(ordering, wiring) for ordering in dict.fromkeys(o for o in named if o is not None)]


def _right(m: Measures, sample: Sample, option: Option) -> dict[int, Tensor]:
    """n -> [rows] bool: whether the first draft of each row that counts is x[t + n]."""
    ids, truths = sample.ids, m.truths(sample, option)
    predicted = m.predicted(sample, option, m.case.depth)[0]  # [R]
    rows = [t for t in range(len(ids) - max(OTHERS)) if predicted[t] >= 0]
    said = truths.target_ids[predicted[rows]]
    return {n: said == ids[[t + n for t in rows]] for n in (MEANT, *OTHERS)}


def _better(hits: dict[int, Tensor]) -> int | None:
    meant = hits[MEANT]
    if meant.numel() < ROWS:
        return None
    best = max(OTHERS, key=lambda n: int(hits[n].sum()))
    share, gain = float(hits[best].float().mean()), int(hits[best].sum()) - int(meant.sum())
    clear = gain >= GAIN * meant.numel() and mcnemar(meant, hits[best]) * len(OTHERS) < P
    return best if share >= LOW and clear else None


def _finding(option: Option, hits: dict[int, Tensor], best: int) -> Finding:
    total, counts = hits[MEANT].numel(), {n: int(right.sum()) for n, right in sorted(hits.items())}
    taught = "that were not shifted" if best < MEANT else "shifted too far"
    return Finding(
        "labels-are-the-next-tokens",
        "K12",
        ERROR,
        f"the drafter says {_WORDS[best]} (x[t+{best}]) in {counts[best]} of {total} rows, the one meant (x[t+2]) in "
        f"{counts[MEANT]}: it was trained on labels {taught}",
        {
            "right of the first drafts": {f"x[t+{n}]": f"{count} of {total}" for n, count in counts.items()},
            "ordering": ",".join(map(str, option.ordering)),
        },
        "train again with the label of row t two tokens after its state: x[t+2]; a server cannot mend this",
        REPORTS,
        "step",
        72,
        BROKEN_CHECKPOINT,
    )
