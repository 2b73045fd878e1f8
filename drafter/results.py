"""What a session answers with, as plain values, and their JSON: the shapes that scripts and bug reports rely on.

Knows how results look, not how they are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.target import TargetFolder
from drafter.checkpoint.vocab_map import VocabMap
from drafter.drafting.readout import ChainLink, RowReadout, accepted
from drafter.files.find import Found
from drafter.sample.probe import SlotProbe
from drafter.sample.sample import Sample
from drafter.scoring.compare import best_ordering
from drafter.scoring.counts import KINDS, METRICS, Count, OrderingCounts
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


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    c = checkpoint.config
    return {
        "path": str(checkpoint.path),
        "dialect": c.dialect,
        "producer": c.producer,
        "hidden_size": c.hidden_size,
        "target_hidden_size": c.target_hidden_size,
        "fc_inputs": checkpoint.fc_inputs,
        "draft_vocab_size": checkpoint.draft_vocab_size,
        "vocab_size": c.vocab_size,
        "num_layers": c.num_layers,
        "attention": c.attention,
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


def facts_json(checkpoint: Checkpoint, vocab: VocabMap | None) -> dict[str, Any]:
    """Everything that the checkpoint's files say, with the evidence for each field."""
    return {
        **checkpoint_json(checkpoint),
        "architecture": checkpoint.config.architecture,
        "config": {
            name: {
                "value": _plain(value),
                "source": evidence.source if evidence else None,
                "key": evidence.key if evidence else None,
                "note": evidence.note if evidence else "",
            }
            for name, value, evidence in checkpoint.config.items()
        },
        "aux_depths": _plain(checkpoint.config.aux_depths),
        "disagreements": [
            {
                "field": d.field,
                d.configured_source: _plain(d.configured),
                d.trained_source: _plain(d.trained),
            }
            for d in checkpoint.disagreements
        ],
        "tensors": [
            {"name": name, "written": t.name, "dtype": t.dtype, "shape": list(t.shape), "bytes": t.nbytes}
            for name, t in checkpoint.tensors.items()
        ],
        "missing": list(checkpoint.missing),
        "unused": list(checkpoint.unused),
        "warnings": list(checkpoint.warnings),
        "vocab_map": None if vocab is None else vocab_json(vocab),
        "metrics": checkpoint.metrics,
    }


def vocab_json(vocab: VocabMap | None, problem: str = "") -> dict[str, Any]:
    """How d2t is read and how both readings do; `problem` where it cannot be read."""
    if vocab is None:
        return {"reading": None, "tests": [], "warning": problem}
    return {"reading": vocab.reading, "tests": [str(t) for t in vocab.tests], "warning": vocab.warning}


def found_json(found: Found, picked: bool) -> dict[str, Any]:
    return {
        "name": found.name,
        "path": str(found.path),
        "bytes": found.size,
        "links": list(found.links),
        "state": found.state,
        "picked": picked,
    }


def target_json(target: TargetFolder | None, why: str) -> dict[str, Any]:
    """What the target's folder holds of what an inspector needs."""
    if target is None:
        return {"path": None, "why": why}
    return {
        "path": str(target.path),
        "why": why,
        "model_type": target.model_type,
        "num_layers": target.num_layers,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "embed": target.embed is not None,
        "norm": target.norm is not None,
        "head": "tied to the embedding" if target.tied else target.head is not None,
    }


def _plain(value: Any) -> Any:
    if hasattr(value, "base") and hasattr(value, "type"):
        return {"type": value.type, "base": value.base, **dict(value.parameters)}
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
