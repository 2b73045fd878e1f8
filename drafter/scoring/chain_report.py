"""Everything that chains of K drafts say about one ordering, pooled over samples: accuracies per step both ways, accept
lengths, the lengths that accuracies imply, and where the chains break.

Counts are added up; ratios are made where they are shown, and `CONVENTIONS` says in words what each number counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafter.drafting.context import SampleRun
from drafter.drafting.free import both_ways
from drafter.scoring.breaks import MOST, Breaks, breaks_json, find_breaks
from drafter.scoring.counts import OrderingCounts, Truths, count, length_rows, next_token_hits, row_mask, rows_needed
from drafter.scoring.expected import length_of_conditionals, length_of_joints
from drafter.scoring.sweep import truths_of
from drafter.scoring.tallies import Count, Lengths, lengths_json
from drafter.wiring import Ordering, Wiring

Poll = Callable[[], None]
ROWS = {
    "next": "rows whose fed token x[t+1] is supervised",
    "same": "rows whose recorded token x[t] is supervised",
    "predicted": "rows whose predicted token x[t+2] is supervised",
    "all": "all rows",
}
CONVENTIONS = {
    "teacher_forced": "right at step k, each step fed the sample's own tokens (marginal; what trainers print)",
    "free_running": "right at step k, each step fed the drafter's own tokens (marginal; falls off after a miss)",
    "joint": "right at steps 0..k at once, over the rows of the marginal (vLLM's acceptance per position)",
    "conditional": "right at step k among the rows that were right at 0..k-1",
    "accept_length": "1 + leading right drafts, the bonus token counted, over the rows with all K truths; rows pooled",
    "mean_of_samples": "the mean of the samples' own accept lengths: each sample weighs the same",
    "walk": "tokens emitted a round, the bonus token counted, when the supervised text is decoded round by round: what "
    "a server logs for greedy chains; rounds pooled",
    "expected.conditional": "1 + sum of products of the conditional accuracies, pooled (rows near the end of a run "
    "enter only some steps, so it is not quite the accept length)",
    "expected.joint": "1 + sum of the joint accuracies, pooled (likewise)",
    "expected.marginal": "1 + sum of products of the MARGINAL accuracies: the usual mistake, shown to be recognised",
    "breaks": "chains whose first wrong draft is at that step or token; one place of the text may break up to K chains",
    "ceiling": "the accept length of a drafter that is right wherever the draft vocabulary holds the true token",
}


@dataclass(frozen=True)
class SampleChains:
    """One sample's part: `lengths` are its accept lengths, `unequal` of its rows free and forced chains disagree on."""

    path: Path
    format: str
    tokens: int
    lengths: Lengths
    unequal: int


@dataclass
class ChainReport:
    """Grows sample by sample. `forced` and `free` are the counts of the two ways; `rows` are, of the first sample, the
    accept length of each row, None where it does not count. Of `planned` samples those in `samples` are in.

    `unequal` rows have another accept length free-running than teacher-forced: 0 but for ties that rounding split.
    """

    ordering: Ordering
    depth: int
    mask: str
    view: str
    planned: int = 0
    forced: OrderingCounts | None = None
    free: OrderingCounts | None = None
    breaks: Breaks = field(default_factory=Breaks)
    samples: list[SampleChains] = field(default_factory=list)
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    rows: list[int | None] = field(default_factory=list, repr=False)

    @property
    def unequal(self) -> int:
        return sum(sample.unequal for sample in self.samples)

    def add(self, run: SampleRun, wiring: Wiring, poll: Poll = lambda: None) -> None:
        """One more sample, whole or (where this raises) not at all."""
        truths = truths_of(run, None, wiring)
        both = both_ways(run, self.ordering, wiring, self.depth, rows_needed(truths.mask, self.mask, self.depth), poll)
        forced, free = count(both.forced, truths, self.mask), count(both.free, truths, self.mask)
        lengths, others = (_row_lengths(ids, truths, self.mask) for ids in (both.forced, both.free))
        breaks = find_breaks(both.forced, truths, self.mask)
        self.forced = forced if self.forced is None else self.forced + forced
        self.free = free if self.free is None else self.free + free
        self.breaks.add(breaks)
        unequal = sum(a != b for a, b in zip(lengths, others, strict=True))
        sample = run.sample
        self.samples.append(SampleChains(sample.path, sample.format, sample.length, forced.lengths, unequal))
        self.rows = self.rows or lengths

    def mean_of_samples(self) -> tuple[float | None, int]:
        """The mean of the samples' own accept lengths, and how many have rows that count."""
        means = [mean for sample in self.samples if (mean := sample.lengths.mean) is not None]
        return (sum(means) / len(means) if means else None), len(means)


def _row_lengths(predicted: Tensor, truths: Truths, mode: str) -> list[int | None]:
    """[R] accept lengths with the bonus token, None where a row does not count."""
    depth, size = predicted.shape
    mapped = torch.where(predicted >= 0, truths.target_ids[predicted.clamp(min=0)], -1)
    lengths = next_token_hits(mapped, truths.ids).long().cumprod(0).sum(0) + 1
    counted = length_rows(row_mask(truths.mask, mode, size), depth)
    return [n if here else None for n, here in zip(lengths.tolist(), counted.tolist(), strict=True)]


# As JSON


def chain_report_json(report: ChainReport, text: Callable[[int], str], most: int = MOST) -> dict[str, Any]:
    """The report's part of `accept --json`, of at least one sample; `most` tokens at which chains break."""
    forced, free = report.forced, report.free
    assert forced is not None and free is not None
    mean, samples = report.mean_of_samples()
    return {
        "ordering": list(report.ordering),
        "view": report.view,
        "depth": report.depth,
        "mask": report.mask,
        "samples": [_sample_json(one) for one in report.samples],
        "lengths": report.rows,
        "skipped": [{"path": str(path), "error": error} for path, error in report.skipped],
        "steps": _steps(forced, free),
        "accept_length": {
            **lengths_json(forced.lengths),
            "mean_of_samples": {"mean": mean, "samples": samples},
            "free_running": {"mean": free.lengths.mean, "rows_that_differ": report.unequal},
        },
        "expected": expected_json(forced),
        "breaks": breaks_json(report.breaks, text, most),
        "not_finite": forced.not_finite,
        "conventions": {"rows": ROWS[report.mask], **CONVENTIONS},
    }


def _sample_json(sample: SampleChains) -> dict[str, Any]:
    return {
        "path": str(sample.path),
        "format": sample.format,
        "tokens": sample.tokens,
        "accept_length": lengths_json(sample.lengths),
        "rows_that_differ": sample.unequal,
    }


def _steps(forced: OrderingCounts, free: OrderingCounts) -> list[dict[str, Any]]:
    ways = zip(forced.steps, free.steps, strict=True)
    return [
        {
            "step": k,
            "teacher_forced": _count(ours["next_token"].marginal),
            "free_running": _count(own["next_token"].marginal),
            "joint": _count(ours["next_token"].joint),
            "conditional": _count(ours["next_token"].conditional),
        }
        for k, (ours, own) in enumerate(ways)
    ]


def expected_json(counts: OrderingCounts) -> dict[str, float | None]:
    """The accept lengths that the accuracies imply; `marginal` is the mistake."""
    steps = [step["next_token"] for step in counts.steps]
    return {
        "conditional": length_of_conditionals([step.conditional.ratio for step in steps]),
        "joint": length_of_joints([step.joint.ratio for step in steps]),
        "marginal": length_of_conditionals([step.marginal.ratio for step in steps]),
    }


def _count(count: Count) -> dict[str, int]:
    return {"hits": count.hits, "total": count.total}
