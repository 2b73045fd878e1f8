"""What a session answers with, as plain values, and their JSON: the shapes that scripts and bug reports rely on.

Knows how results look, not how they are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from drafter.drafting.readout import ChainLink, RowReadout, accepted
from drafter.drafting.verifier import last_norm
from drafter.sample.probes.contradictions import contradictions, contradictions_json
from drafter.sample.probes.probe import SlotProbe, probe_json
from drafter.sample.sample import Sample
from drafter.scoring.compare import best_ordering
from drafter.scoring.counts import OrderingCounts
from drafter.scoring.tallies import GroupScore, SampleScore
from drafter.wiring import Ordering

Text = Mapping[int, str]


@dataclass(frozen=True)
class GroupScores:
    """A group of samples, pooled. A value: what is added makes another, so that copies of a table stay as they are."""

    samples: int = 0
    orderings: Mapping[Ordering, GroupScore] = field(default_factory=dict)

    def joined(self) -> GroupScores:
        """With one more sample, of which nothing is scored yet."""
        return replace(self, samples=self.samples + 1)

    def plus(self, ordering: Ordering, counts: OrderingCounts) -> GroupScores:
        new, old = GroupScore(counts.accuracy, counts.lengths), self.orderings.get(ordering)
        return replace(self, orderings={**self.orderings, ordering: new if old is None else old + new})


@dataclass
class ScoreResult:
    """Scores of several orderings over several samples; fills while a sweep runs.

    `configured` is what the config's layer ids select and `configured_why` how that was told; `trained` is what the
    training's own config selects. `done` of `planned` (sample, ordering) pairs are in; `planned` grows where a file
    turns out to hold several samples.

    `scores` are pooled over all rows; `per_sample` has each sample by itself, by its path; `groups` the samples by
    group, empty where there are no groups. `skipped` samples could not be read or do not fit, and enter nothing;
    `repeated` ones were listed twice and count once.
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
    per_sample: dict[Path, Mapping[Ordering, SampleScore]] = field(default_factory=dict)
    groups: dict[str, GroupScores] = field(default_factory=dict)
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    repeated: int = 0

    def best(self) -> tuple[Ordering | None, list[Ordering]]:
        return best_ordering(self.scores)

    def add(self, path: Path, group: str | None, ordering: Ordering, counts: OrderingCounts) -> None:
        """One ordering on one sample."""
        old = self.scores.get(ordering)
        self.scores[ordering] = counts if old is None else old + counts
        self.per_sample[path] = {**self.per_sample.get(path, {}), ordering: counts.summary}
        if group is not None:
            self.groups[group] = self.group(group).plus(ordering, counts)

    def group(self, name: str) -> GroupScores:
        return self.groups.get(name, GroupScores())

    def mean_of_samples(self, ordering: Ordering) -> tuple[float | None, int]:
        """The mean of the samples' own step-0 accuracies, and how many have rows: each sample weighs the same here."""
        ratios = [score.ratio for one in self.per_sample.values() if (score := one.get(ordering)) is not None]
        known = [ratio for ratio in ratios if ratio is not None]
        return (sum(known) / len(known) if known else None), len(known)

    def snapshot(self) -> ScoreResult:
        """A copy that the sweep does not change any more."""
        return replace(
            self,
            samples=list(self.samples),
            scores=dict(self.scores),
            reasons=dict(self.reasons),
            per_sample=dict(self.per_sample),
            groups=dict(self.groups),
            skipped=list(self.skipped),
        )


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


def slots_json(sample: Sample, probes: list[SlotProbe], facts: bool = False) -> list[dict[str, Any]]:
    """What each slot is said to be and what was measured; with `facts` also in words."""
    return [
        {
            "index": slot.index,
            "claimed": slot.claim.label if slot.claim else None,
            "claimed_by": slot.claim.source if slot.claim else None,
            "probed": probe.label,
            "mean_norm": probe.mean_norm,
            "bad_rows": probe.bad_rows,
            **probe_json(probe),
            **({"facts": [list(fact) for fact in probe.facts()]} if facts else {}),
        }
        for slot, probe in zip(sample.slots, probes, strict=True)
    ]


def sample_json(sample: Sample, probes: list[SlotProbe], facts: bool = False) -> dict[str, Any]:
    assumed = last_norm(sample, probes)[1]
    return {
        "path": str(sample.path),
        "format": sample.format,
        "tokens": sample.length,
        "rows": sample.length - 1,
        "supervised": int(sample.mask.sum()) if sample.mask is not None else None,
        "slots": slots_json(sample, probes, facts),
        "contradictions": contradictions_json(contradictions(sample, probes)),
        "warnings": [*sample.warnings, *([assumed] if assumed else [])],
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
