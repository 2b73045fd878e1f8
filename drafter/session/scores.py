"""Scores of orderings, on one sample or pooled over many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import SampleError
from drafter.log import Logged
from drafter.options import Options as Options
from drafter.scoring.groups import Grouping, parse_groups
from drafter.wiring import (
    Ordering,
    Wiring,
)

if TYPE_CHECKING:
    from torch import Tensor

    from drafter.drafting.context import SampleRun
    from drafter.drafting.verifier import VerifierChoice
    from drafter.pooling import Bench
    from drafter.results import ScoreResult
    from drafter.sample.sample import Sample
    from drafter.scoring.counts import OrderingCounts, Truths
    from drafter.scoring.tree_counts import TreeCounts
from drafter.session.core import Poll, no_poll
from drafter.session.drafting import Drafting


class Scores(Drafting):
    def try_switch(
        self, ordering: Ordering, name: str, value: str, depth: int | None = None, poll: Poll = no_poll
    ) -> OrderingCounts:
        """Score `ordering` on the current sample as if one more switch were set; nothing is changed by it."""
        inputs = {"ordering": list(ordering), "switch": name, "value": value}
        with Logged(self.log, "try_switch", inputs) as logged:
            counts = self.score_wiring(ordering, self.wiring.switched(name, value), depth, poll)
            accuracy = counts.accuracy
            logged.result = {"hits": accuracy.hits, "total": accuracy.total, "length": counts.lengths.mean}
        return counts

    def score_wiring(
        self, ordering: Ordering, wiring: Wiring, depth: int | None = None, poll: Poll = no_poll
    ) -> OrderingCounts:
        """Score `ordering` on the current sample under any wiring; `next_token` only."""
        from drafter.drafting.chains import draft_ids
        from drafter.scoring.counts import count, rows_needed
        from drafter.scoring.sweep import truths_of

        run = self.run(poll)
        depth = self.options.depth if depth is None else depth
        truths = truths_of(run, None, wiring)
        rows = rows_needed(truths.mask, self.options.mask, depth)
        return count(draft_ids(run, ordering, wiring, depth, rows, poll=poll), truths, self.options.mask)

    def tree_lengths(
        self,
        ordering: Ordering,
        rule: str,
        steps: int,
        topk: int,
        tokens: int | None = None,
        rows: int | None = None,
        on_progress: Callable[[TreeCounts], None] = lambda counts: None,
        poll: Poll = no_poll,
    ) -> TreeCounts:
        """Accept lengths of the tree search on the current sample, beside the chain's: over all rows that count, or at
        most `rows` of them spread evenly; `on_progress` sees them grow. Raises WiringError as `tree` does.
        """
        from drafter.drafting.tree import tree_plan
        from drafter.scoring.sweep import truths_of
        from drafter.scoring.tree_counts import count_trees, tree_counts_json

        mode = self.options.mask
        inputs = {**self._tree_inputs(ordering, rule, steps, topk, tokens), "rows": rows, "mask": mode}
        with Logged(self.log, "tree_lengths", inputs) as logged:
            plan = tree_plan(rule, steps, topk, tokens)
            run, wiring = self.run(poll), self.wiring
            truths = truths_of(run, None, wiring)
            counts = count_trees(run, ordering, wiring, plan, truths, mode, rows, on_progress, poll)
            logged.result = tree_counts_json(counts)
        return counts

    @property
    def grouping(self) -> Grouping:
        """Which group a sample belongs to: by `--group`, else by the `--samples` under which it lies.

        Files that were named one by one are no groups: the scores of single samples say the same.
        """
        given = self.options.samples
        return Grouping(parse_groups(self.options.groups), given if any(path.is_dir() for path in given) else ())

    def score(
        self,
        paths: Sequence[Path],
        orderings: Sequence[Ordering] | None = None,
        on_progress: Callable[[ScoreResult], None] = lambda result: None,
        poll: Poll = no_poll,
        *,
        depth: int | None = None,
    ) -> ScoreResult:
        """Score `orderings` on the samples in `paths`, pooled; orderings and `depth` are those of the options if None.

        Each is opened when its turn comes. One that cannot be read or does not fit is skipped, with its reason in the
        result; refused are those that the options name one by one, and the first of all where none can be scored.
        `on_progress` is given the same growing result after every (sample, ordering).
        """
        from drafter.pooling import Pool
        from drafter.results import ScoreResult
        from drafter.score_json import logged_score

        options = self.options
        if not self.has_sample:
            self.choose_first(paths, poll)
        chosen = list(orderings) if orderings is not None else self.orderings()
        depth = options.depth if depth is None else depth
        configured, why = self.configured()
        result = ScoreResult(
            depth, options.mask, self.view_name, configured, why, self.trained(), len(paths) * len(chosen)
        )
        inputs = {
            "paths": [str(p) for p in paths],
            "orderings": [list(o) for o in chosen],
            "depth": depth,
            "mask": options.mask,
            "view": self.view_name,
        }
        with Logged(self.log, "score", inputs) as logged:
            result.warnings = self.load(poll).warnings
            bench, named = self._bench(result, poll), frozenset(options.samples)
            Pool(result, chosen, self.wiring, bench, self.grouping, named, on_progress, poll).add(paths)
            logged.result = logged_score(self.score_json(result))
        return result

    def _bench(self, result: ScoreResult, poll: Poll) -> Bench:
        """What `drafter.pooling` asks of this session, sample by sample."""
        from drafter.pooling import Bench
        from drafter.results import sample_json
        from drafter.scoring.sweep import truths_of

        slots = len(self.sample.slots)

        def known(run: SampleRun) -> tuple[dict[str, Any], Truths]:
            probes = self.probe(poll) if run is self._now.run else self._probe(run.sample, poll)
            choice = self._verifier(run.sample, result, poll)
            return sample_json(run.sample, probes), truths_of(run, choice, self.wiring)

        def drafted(run: SampleRun, ordering: Ordering, ids: Tensor) -> None:
            if run is self._now.run:
                self._now.drafted[ordering] = ids

        return Bench(
            names=self.sample_paths,
            run=lambda path: self._run_for(path, slots, poll),
            known=known,
            drafted=drafted,
        )

    def _run_for(self, path: Path, slots: int, poll: Poll) -> SampleRun:
        from drafter.drafting.context import SampleRun

        if self._now.sample is not None and self._now.sample.path == path:
            return self.run(poll)
        sample = self.open_sample(path)
        if len(sample.slots) != slots:
            raise SampleError(
                f"{len(sample.slots)} recorded states", expected=f"{slots}, as in the sample that is open", where=path
            )
        return SampleRun(self.load(poll), sample)

    def _verifier(self, sample: Sample, result: ScoreResult, poll: Poll) -> VerifierChoice | None:
        from drafter.drafting.verifier import last_norm, recorded_choice, verifier_choice, why_not

        drafter, target = self.load(poll), self._now.target
        vocab = drafter.vocab(self.wiring)
        recorded, reason = recorded_choice(sample, vocab)
        if recorded is not None:
            result.reasons |= dict.fromkeys(("verifier_strict", "in_vocab"), reason)
            return recorded
        probes = self.probe(poll) if sample is self._now.sample else self._probe(sample, poll)
        norm = last_norm(sample, probes)[0]
        cannot = why_not(sample, target, norm)
        if cannot is not None:
            said = reason if sample.verifier_draft is not None else cannot
            result.reasons |= dict.fromkeys(("verifier_strict", "verifier_draft_vocab", "in_vocab"), said)
            return None
        assert target is not None
        return verifier_choice(sample, target, vocab, drafter.placement, poll, norm)

    def score_json(self, result: ScoreResult) -> dict[str, Any]:
        """`score --json` of a result of this session."""
        from drafter.score_json import score_json

        assert self._now.placement is not None
        return {
            **score_json(self.checkpoint, self._placement_json(self._now.placement), result),
            "switched": self.switched(),
        }
