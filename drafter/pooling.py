"""Scores pooled over samples: each is opened when its turn comes, scored under every ordering, and added up.

A sample that cannot be read or does not fit is left out whole, with its reason; one that the user named by itself is
refused instead. Knows no session: how a sample is opened, and what is known of it, is asked of the `Bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError, FileError, PathError, SampleError
from drafter.results import ScoreResult
from drafter.sample.sample import split_part
from drafter.scoring.counts import OrderingCounts, Truths
from drafter.scoring.groups import Grouping
from drafter.scoring.sweep import score_sample
from drafter.wiring import Ordering, Wiring


@dataclass(frozen=True)
class Bench:
    """What a session can do with one sample. `names` are the samples in one listed file.

    `run` opens one of them; `known` is its JSON and what it is held against; `drafted` is given the step-0 draft ids
    [R] of every ordering. Where one of these refuses the sample or its file it is left out.
    """

    names: Callable[[Path], list[Path]]
    run: Callable[[Path], SampleRun]
    known: Callable[[SampleRun], tuple[dict[str, Any], Truths]]
    drafted: Callable[[SampleRun, Ordering, Tensor], None]


@dataclass
class Pool:
    """Fills `result` with `orderings` over samples; `refused` are the paths that the user named one by one.

    `on_progress` is given the same growing result after every (sample, ordering), and for every sample left out.
    """

    result: ScoreResult
    orderings: Sequence[Ordering]
    wiring: Wiring
    bench: Bench
    grouping: Grouping
    refused: frozenset[Path]
    on_progress: Callable[[ScoreResult], None]
    poll: Callable[[], None]

    def add(self, paths: Sequence[Path]) -> None:
        """Score every sample in the files `paths`. Raises the first refusal where none can be scored."""
        first: DrafterError | None = None
        for path in paths:
            self.poll()
            for name in self._names(path):
                error = self._add_one(name)
                first = first or error
        if first is not None and not self.result.samples:
            raise first

    def _names(self, path: Path) -> list[Path]:
        """The samples in one file, now that its turn has come; `planned` has counted one."""
        names = self.bench.names(path)
        self.result.planned += (len(names) - 1) * len(self.orderings)
        return names

    def _add_one(self, name: Path) -> DrafterError | None:
        """The sample `name`, or nothing of it and the reason."""
        result = self.result
        scores, groups, reasons = dict(result.scores), dict(result.groups), dict(result.reasons)
        done, count = result.done, len(result.samples)
        try:
            self._score(self.bench.run(name))
        except (SampleError, FileError, PathError) as error:
            at_fault = isinstance(error, SampleError) or str(split_part(name)[0]) in error.where
            if name in self.refused or not at_fault:  # another file, say the checkpoint's, is the same for all
                raise
            # rows of one ordering that another has not scored would spoil every paired comparison from here on
            result.scores, result.groups, result.reasons = scores, groups, reasons
            for added in result.samples[count:]:
                result.per_sample.pop(Path(added["path"]), None)
            del result.samples[count:]
            result.skipped.append((name, str(error)))
            self._count(done + len(self.orderings))
            return error
        return None

    def _score(self, run: SampleRun) -> None:
        result, path = self.result, run.sample.path
        if path in result.per_sample:
            result.repeated += 1
            return self._count(result.done + len(self.orderings))
        (facts, truths), group = self.bench.known(run), self._group(path)
        result.samples.append(facts)
        if group is not None:
            result.groups[group] = result.group(group).joined()

        def found(ordering: Ordering, counts: OrderingCounts, ids: Tensor) -> None:
            self.bench.drafted(run, ordering, ids[0])
            result.add(path, group, ordering, counts)
            self._count(result.done + 1)

        score_sample(run, truths, self.orderings, self.wiring, result.depth, result.mask, found, self.poll)

    def _group(self, path: Path) -> str | None:
        return self.grouping.of(path) if self.grouping.any else None

    def _count(self, done: int) -> None:
        self.result.done = done
        self.on_progress(self.result)
