"""`score --json`: the shape that scripts and bug reports rely on.

Knows how scores look, not how they are computed. Counts stay counts: their ratios are made by whoever shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.facts import checkpoint_json
from drafter.results import GroupScores, ScoreResult
from drafter.scoring.counts import OrderingCounts
from drafter.scoring.tallies import KINDS, METRICS, Count, SampleScore, bucket, lengths_json
from drafter.wiring import Ordering

MOST_LOGGED = 50  # samples whose own scores go into the session log


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
    return {
        "slots": list(ordering),
        "rows": counts.accuracy.total,
        "steps": steps,
        "positions": positions_json(counts),
        "accept_length": lengths_json(counts.lengths),
    }


def positions_json(counts: OrderingCounts) -> list[dict[str, int]]:
    """Step 0 by the place of the row: `from` and `to` are rows, both counted."""
    return [
        {"from": first, "to": last, **count_json(count)}
        for count, (first, last) in ((c, bucket(i)) for i, c in enumerate(counts.positions))
    ]


def mean_json(result: ScoreResult, ordering: Ordering) -> dict[str, Any]:
    mean, samples = result.mean_of_samples(ordering)
    return {"accuracy": mean, "samples": samples}


def sample_scores_json(result: ScoreResult, sample: dict[str, Any]) -> dict[str, Any]:
    """One sample's facts with its own scores, and a warning where some of its rows gave no numbers."""
    scores = result.per_sample.get(Path(sample["path"]), {})
    orderings = [
        {
            "slots": list(ordering),
            **count_json(Count(score.hits, score.total)),
            "accept_length": {"mean": score.length, "rows": score.length_rows},
            "not_finite": score.not_finite,
        }
        for ordering, score in scores.items()
    ]
    warnings = [*sample["warnings"], *not_finite_warnings(scores)]
    return {**sample, "warnings": warnings, "orderings": orderings}


def not_finite_warnings(scores: Mapping[Ordering, SampleScore]) -> list[str]:
    """At most one line: how many rows that count are misses only because nothing could be computed."""
    bad = {ordering: score for ordering, score in scores.items() if score.not_finite}
    if not bad:
        return []
    ordering = max(bad, key=lambda o: bad[o].not_finite)
    worst, slots = bad[ordering], ",".join(map(str, ordering))
    return [
        f"NaN: with slots {slots}, {worst.not_finite} of the {worst.total} rows that count gave no numbers and are "
        f"misses for that reason alone; so under {len(bad)} of {len(scores)} orderings"
    ]


def groups_json(groups: Mapping[str, GroupScores]) -> list[dict[str, Any]] | None:
    """None where there is only one group, or none: then it is all the samples."""
    return [{"name": name, **group_json(group)} for name, group in groups.items()] if len(groups) > 1 else None


def group_json(group: GroupScores) -> dict[str, Any]:
    orderings = []
    for ordering, score in group.orderings.items():
        lengths = score.lengths
        length = {"mean": lengths.mean, "rows": lengths.rows, "histogram": list(lengths.histogram)}
        orderings.append({"slots": list(ordering), **count_json(score.accuracy), "accept_length": length})
    return {"samples": group.samples, "orderings": orderings}


def repeated_warnings(result: ScoreResult) -> list[str]:
    return [f"{result.repeated} samples were listed more than once and count once"] if result.repeated else []


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
        "samples": [sample_scores_json(result, sample) for sample in result.samples],
        "skipped": [{"path": str(path), "error": error} for path, error in result.skipped],
        "groups": groups_json(result.groups),
        "configured": list(result.configured) if result.configured else None,
        "trained": list(result.trained) if result.trained else None,
        "best": list(best) if best else None,
        "tied_with_best": [list(o) for o in tied],
        "orderings": [
            {**ordering_json(o, c), "mean_of_samples": mean_json(result, o)} for o, c in result.scores.items()
        ],
        "coverage": count_json(first.coverage) if first else None,
        "warnings": [*result.warnings, *repeated_warnings(result)],
        "reasons": {**result.reasons, **({} if result.configured else {"configured": result.configured_why})},
    }


def logged_score(data: dict[str, Any]) -> dict[str, Any]:
    """What the session log keeps of `score --json`: without the samples' own scores where there are many."""
    if len(data["samples"]) <= MOST_LOGGED:
        return data
    return {**data, "samples": [{k: v for k, v in s.items() if k != "orderings"} for s in data["samples"]]}
