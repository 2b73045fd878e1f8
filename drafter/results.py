"""What a session answers with, as plain values, and their JSON: the shapes that scripts and bug reports rely on.

Knows how results look, not how they are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.facts import checkpoint_json
from drafter.drafting.readout import ChainLink, RowReadout, accepted
from drafter.sample.probe import SlotProbe
from drafter.sample.sample import Sample
from drafter.scoring.compare import best_ordering
from drafter.scoring.counts import OrderingCounts
from drafter.scoring.tallies import KINDS, METRICS, Count
from drafter.wiring import Ordering

Text = Mapping[int, str]


@dataclass
class ScoreResult:
    """Scores of several orderings over several samples; fills while a sweep runs.

    `configured` is what the config's layer ids select and `configured_why` how that was told; `trained` is what the
    training's own config selects. `done` of `planned` (sample, ordering) pairs are in.
    """

    depth: int
    mask: str
    view: str
    configured: Ordering | None
    configured_why: str
    trained: Ordering | None
    planned: int
    samples: list[dict[str, Any]] = field(default_factory=list)
    scores: dict[Ordering, OrderingCounts] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    done: int = 0

    def best(self) -> tuple[Ordering | None, list[Ordering]]:
        return best_ordering(self.scores)


@dataclass(frozen=True)
class StepResult:
    """One predicted token in full: what was fed, the truth, the ranked predictions, the chain from there."""

    at: int
    ordering: Ordering
    view: str
    readout: RowReadout
    chain: tuple[ChainLink, ...]

    @property
    def accept_length(self) -> int:
        return accepted(list(self.chain)) + 1


def count_json(count: Count) -> dict[str, int]:
    return {"hits": count.hits, "total": count.total}


def ordering_json(ordering: Ordering, counts: OrderingCounts) -> dict[str, Any]:
    steps = []
    for step in counts.steps:
        steps.append(
            {
                name: {kind: count_json(getattr(step[name], kind)) for kind in KINDS} if name in step else None
                for name in METRICS
            }
        )
    lengths = counts.lengths
    return {
        "slots": list(ordering),
        "rows": counts.accuracy.total,
        "steps": steps,
        "accept_length": {
            "mean": lengths.mean,
            "rows": lengths.rows,
            "histogram": list(lengths.histogram),
            "walk": {"rounds": lengths.rounds, "tokens": lengths.tokens, "length": lengths.walk},
        },
    }


def slots_json(sample: Sample, probes: list[SlotProbe]) -> list[dict[str, Any]]:
    return [
        {
            "index": slot.index,
            "claimed": slot.claim.label if slot.claim else None,
            "claimed_by": slot.claim.source if slot.claim else None,
            "probed": probe.label,
            "mean_norm": probe.mean_norm,
            "bad_rows": probe.bad_rows,
        }
        for slot, probe in zip(sample.slots, probes, strict=True)
    ]


def sample_json(sample: Sample, probes: list[SlotProbe]) -> dict[str, Any]:
    return {
        "path": str(sample.path),
        "format": sample.format,
        "tokens": sample.length,
        "rows": sample.length - 1,
        "supervised": int(sample.mask.sum()) if sample.mask is not None else None,
        "slots": slots_json(sample, probes),
        "warnings": list(sample.warnings),
    }


def score_json(checkpoint: Checkpoint, placement: Mapping[str, str], result: ScoreResult) -> dict[str, Any]:
    """`score --json`."""
    best, tied = result.best()
    first = next(iter(result.scores.values()), None)
    return {
        "checkpoint": checkpoint_json(checkpoint),
        "device": placement["device"],
        "dtype": placement["dtype"],
        "placement_reason": placement["reason"],
        "view": result.view,
        "depth": result.depth,
        "mask": result.mask,
        "samples": result.samples,
        "configured": list(result.configured) if result.configured else None,
        "trained": list(result.trained) if result.trained else None,
        "best": list(best) if best else None,
        "tied_with_best": [list(o) for o in tied],
        "orderings": [ordering_json(o, c) for o, c in result.scores.items()],
        "coverage": count_json(first.coverage) if first else None,
        "warnings": list(result.warnings),
        "reasons": {**result.reasons, **({} if result.configured else {"configured": result.configured_why})},
    }


def step_json(result: StepResult, text: Text) -> dict[str, Any]:
    """`step --json`; `text` gives the shown form of every id in it."""

    def token(i: int) -> dict[str, Any]:
        return {"id": i, "text": text[i]}

    readout = result.readout
    truth = None if readout.truth is None else {**token(readout.truth), "in_draft_vocab": readout.truth_in_vocab}
    return {
        "at": result.at,
        "row": readout.row,
        "ordering": list(result.ordering),
        "view": result.view,
        "input": token(readout.fed),
        "truth": truth,
        "truth_rank": readout.truth_rank,
        "predictions": [
            {"rank": p.rank, "draft_id": p.draft_id, **token(p.id), "logit": p.logit, "prob": p.prob}
            for p in readout.predictions
        ],
        "chain": [
            {**token(link.id), "truth": None if link.truth is None else token(link.truth), "hit": link.hit}
            for link in result.chain
        ],
        "accept_length": result.accept_length,
    }


def step_ids(result: StepResult) -> list[int]:
    """Every id that `step_json` shows."""
    readout = result.readout
    ids = [readout.fed, *(p.id for p in readout.predictions), *(link.id for link in result.chain)]
    return ids + [i for i in (readout.truth, *(link.truth for link in result.chain)) if i is not None]
