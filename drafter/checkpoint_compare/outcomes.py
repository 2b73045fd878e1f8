"""What each of several checkpoints predicts on the same rows of the same samples, and two of them held side by side.

Of every sample a few bytes a row are kept, so that one checkpoint can be run over all samples before the next is
loaded. Knows no session: how a sample is opened on a drafter is asked of the `Bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError
from drafter.scoring.compare import mcnemar
from drafter.scoring.counts import Truths, count, length_rows, next_token_hits, row_mask, rows_needed
from drafter.scoring.sweep import truths_of
from drafter.scoring.tallies import Count, Lengths, lengths_json
from drafter.wiring import Ordering, Wiring

Poll = Callable[[], None]
MOST = 20  # rows listed


@dataclass(frozen=True)
class SampleOutcome:
    """One checkpoint on one sample of `tokens` tokens. R = T - 1 rows.

    `rows` [n] int32 count at step 0; `right` [n] bool; `drafted` [n] int32, the target ids predicted, -1 for none.
    `longest` [m] int32 are the rows whose accept length counts, `accepted` [m] int16 the right drafts of each.
    `leading` [n] int16: right drafts in a row from each of `rows`, as far as the sample has tokens.
    `fed`, `truth` [n] int32: the token that the row is fed and the one that it predicts.
    """

    path: Path
    tokens: int
    rows: Tensor
    right: Tensor
    drafted: Tensor
    leading: Tensor
    longest: Tensor
    accepted: Tensor
    fed: Tensor
    truth: Tensor
    accuracy: Count
    lengths: Lengths


@dataclass
class Outcomes:
    """One checkpoint on all samples, under `ordering` (`why` says whose it is) and `wiring`; fills while it runs.

    `skipped` samples cannot be read or do not fit this checkpoint. `placed` is where it runs, in words; `warnings` are
    of its weights.
    """

    ordering: Ordering
    why: str
    wiring: Wiring
    placed: str = ""
    warnings: tuple[str, ...] = ()
    samples: dict[Path, SampleOutcome] = field(default_factory=dict)
    skipped: dict[Path, str] = field(default_factory=dict)

    def pooled(self) -> tuple[Count, Lengths] | None:
        return pooled(list(self.samples.values())) if self.samples else None


@dataclass(frozen=True)
class Bench:
    """What a session can do with samples: `names` are those in one file, `run` opens one on the drafter."""

    names: Callable[[Path], list[Path]]
    run: Callable[[Path], SampleRun]


def collect(
    outcomes: Outcomes,
    bench: Bench,
    paths: Sequence[Path],
    depth: int,
    mode: str,
    on_progress: Callable[[Outcomes], None] = lambda outcomes: None,
    poll: Poll = lambda: None,
) -> Outcomes:
    """Fill `outcomes` with every sample in the files `paths`. Raises the first refusal where none can be run."""
    first: DrafterError | None = None
    for path in paths:
        poll()
        for name in bench.names(path):
            if name in outcomes.samples:
                continue
            try:
                run = bench.run(name)
                outcomes.samples[name] = outcome_of(run, outcomes.ordering, outcomes.wiring, depth, mode, poll)
            except DrafterError as error:
                first = first or error
                outcomes.skipped[name] = str(error)
            on_progress(outcomes)
    if first is not None and not outcomes.samples:
        raise first
    return outcomes


def outcome_of(
    run: SampleRun, ordering: Ordering, wiring: Wiring, depth: int, mode: str, poll: Poll = lambda: None
) -> SampleOutcome:
    """What the drafter of `run` predicts on the rows that count in mask mode `mode`."""
    truths = truths_of(run, None, wiring)
    predicted = draft_ids(run, ordering, wiring, depth, rows_needed(truths.mask, mode, depth), poll=poll)  # [K, R]
    return _outcome(run.sample.path, predicted, truths, mode)


def _outcome(path: Path, predicted: Tensor, truths: Truths, mode: str) -> SampleOutcome:
    depth, ids = predicted.shape[0], truths.ids
    mapped = torch.where(predicted >= 0, truths.target_ids[predicted.clamp(min=0)], -1)  # [K, R]
    hits = next_token_hits(mapped, ids)
    mask = row_mask(truths.mask, mode, predicted.shape[1])
    rows = mask[:-1].nonzero().flatten()  # the last row has no truth
    longest = length_rows(mask, depth).nonzero().flatten()
    leading = hits.long().cumprod(0).sum(0)  # [R]
    counts = count(predicted, truths, mode)
    return SampleOutcome(
        path,
        ids.numel(),
        rows.int(),
        hits[0, rows],
        mapped[0, rows].int(),
        leading[rows].to(torch.int16),
        longest.int(),
        leading[longest].to(torch.int16),
        ids[rows + 1].int(),
        ids[rows + 2].int(),
        counts.accuracy,
        counts.lengths,
    )


# --- two side by side


@dataclass(frozen=True)
class Table:
    """Rows by who is right at step 0; `p` is McNemar's exact two-sided p that the two are equally often right."""

    both: int
    only_ours: int
    only_theirs: int
    neither: int
    p: float

    @property
    def rows(self) -> int:
        return self.both + self.only_ours + self.only_theirs + self.neither


@dataclass(frozen=True)
class DifferingRow:
    """Row `row` of a sample, on which one of the two is right. Accept lengths are right drafts in a row plus one."""

    path: Path
    row: int
    fed: int
    truth: int
    ours: int
    theirs: int
    length_ours: int
    length_theirs: int


@dataclass(frozen=True)
class SamplePair:
    path: Path
    tokens: int
    table: Table
    ours: Lengths
    theirs: Lengths


@dataclass(frozen=True)
class Paired:
    """Two checkpoints on the samples that both can take.

    `longer` counts the rows by whose accept length is greater, with the exact sign test's p; `differing` are at most as
    many rows as asked for, of `table.only_ours + table.only_theirs`: those whose accept lengths differ most first.
    """

    ours: Outcomes
    theirs: Outcomes
    table: Table
    accuracy: tuple[Count, Count]
    lengths: tuple[Lengths, Lengths]
    longer: Table
    samples: tuple[SamplePair, ...]
    differing: tuple[DifferingRow, ...]


def pair(ours: Outcomes, theirs: Outcomes, most: int = MOST) -> Paired | None:
    """The two side by side, None where they have no sample in common."""
    shared = [(ours.samples[path], theirs.samples[path]) for path in ours.samples if path in theirs.samples]
    if not shared:
        return None
    right = [torch.cat([both[side].right for both in shared]) for side in (0, 1)]
    accepted = [torch.cat([both[side].accepted for both in shared]) for side in (0, 1)]
    one, two = (pooled([both[side] for both in shared]) for side in (0, 1))
    return Paired(
        ours,
        theirs,
        _table(*right),
        (one[0], two[0]),
        (one[1], two[1]),
        longer(*accepted),
        tuple(SamplePair(a.path, a.tokens, _table(a.right, b.right), a.lengths, b.lengths)
              for a, b in shared),
        _most_telling(shared, most),
    )  # fmt: skip


def pooled(samples: Sequence[SampleOutcome]) -> tuple[Count, Lengths]:
    """Right predictions at step 0 and accept lengths, of all samples together."""
    accuracy, lengths = samples[0].accuracy, samples[0].lengths
    for one in samples[1:]:
        accuracy, lengths = accuracy + one.accuracy, lengths + one.lengths
    return accuracy, lengths


def _table(ours: Tensor, theirs: Tensor) -> Table:
    return Table(
        int((ours & theirs).sum()),
        int((ours & ~theirs).sum()),
        int((~ours & theirs).sum()),
        int((~ours & ~theirs).sum()),
        mcnemar(ours, theirs),
    )


def longer(ours: Tensor, theirs: Tensor) -> Table:
    """Rows by whose `accepted` [m] is greater: equal ones are `both`, and `neither` is 0; p of the exact sign test."""
    more, less = ours > theirs, ours < theirs
    return Table(int((ours == theirs).sum()), int(more.sum()), int(less.sum()), 0, mcnemar(more, less))


def _most_telling(shared: Sequence[tuple[SampleOutcome, SampleOutcome]], most: int) -> tuple[DifferingRow, ...]:
    """Rows that only one has right, by the difference of their accept lengths; then as they come."""
    found: list[tuple[int, int, int]] = []  # minus the difference, sample, place in it
    for number, (a, b) in enumerate(shared):
        places = (a.right != b.right).nonzero().flatten()
        apart = (a.leading[places].int() - b.leading[places].int()).abs()
        order = torch.argsort(apart, descending=True, stable=True)[:most]
        found += [(-int(apart[i]), number, int(places[i])) for i in order]
    return tuple(_row(*shared[number], place) for _, number, place in sorted(found)[:most])


def _row(a: SampleOutcome, b: SampleOutcome, at: int) -> DifferingRow:
    lengths = int(a.leading[at]) + 1, int(b.leading[at]) + 1
    ids = int(a.fed[at]), int(a.truth[at]), int(a.drafted[at]), int(b.drafted[at])
    return DifferingRow(a.path, int(a.rows[at]), *ids, *lengths)


# --- JSON


def paired_json(found: Paired, piece: Callable[[int], str]) -> dict[str, Any]:
    """`piece` gives the shown form of a token."""
    return {
        "ours": _side_json(found, 0),
        "theirs": _side_json(found, 1),
        "step0": _table_json(found.table),
        "longer": {
            "equal": found.longer.both,
            "ours": found.longer.only_ours,
            "theirs": found.longer.only_theirs,
            "p": found.longer.p,
        },
        "samples": [
            {
                "path": str(s.path),
                "tokens": s.tokens,
                "step0": _table_json(s.table),
                "length": {"ours": lengths_json(s.ours), "theirs": lengths_json(s.theirs)},
            }
            for s in found.samples
        ],
        "differing": [_differing_json(row, piece) for row in found.differing],
    }


def _side_json(found: Paired, side: int) -> dict[str, Any]:
    outcomes, accuracy = (found.ours, found.theirs)[side], found.accuracy[side]
    return {
        **outcomes_json(outcomes),
        "step0": {"hits": accuracy.hits, "total": accuracy.total},
        "length": lengths_json(found.lengths[side]),
    }


def outcomes_json(outcomes: Outcomes) -> dict[str, Any]:
    return {
        "ordering": list(outcomes.ordering),
        "ordering_why": outcomes.why,
        "view": outcomes.wiring.view,
        "placed": outcomes.placed,
        "warnings": list(outcomes.warnings),
        "samples": len(outcomes.samples),
        "skipped": [{"path": str(path), "error": error} for path, error in outcomes.skipped.items()],
    }


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "both": table.both,
        "only_ours": table.only_ours,
        "only_theirs": table.only_theirs,
        "neither": table.neither,
        "p": table.p,
    }


def _differing_json(row: DifferingRow, piece: Callable[[int], str]) -> dict[str, Any]:
    def token(i: int) -> dict[str, Any] | None:
        return None if i < 0 else {"id": i, "text": piece(i)}

    return {
        "path": str(row.path),
        "row": row.row,
        "at": row.row + 2,
        "input": token(row.fed),
        "truth": token(row.truth),
        "ours": token(row.ours),
        "theirs": token(row.theirs),
        "length": {"ours": row.length_ours, "theirs": row.length_theirs},
    }
