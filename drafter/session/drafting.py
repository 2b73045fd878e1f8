"""The drafter at work on the current sample: rows, steps, trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from drafter.errors import WiringError
from drafter.log import Logged
from drafter.options import Options as Options
from drafter.wiring import (
    Ordering,
)

if TYPE_CHECKING:
    from drafter.drafting.context import SampleRun
    from drafter.drafting.readout import RowReadout
    from drafter.drafting.tree import Tree
    from drafter.model.drafter import Eagle3Drafter
    from drafter.results import StepResult
from drafter.session.core import Poll, no_poll
from drafter.session.probes import Probes

TOP = 5  # predictions of a step


class Drafting(Probes):
    def load(self, poll: Poll = no_poll) -> Eagle3Drafter:
        """The current checkpoint's drafter, its weights read when first asked for."""
        if self._now.drafter is None:
            from drafter.model.device import choose
            from drafter.model.weights import build_drafter

            checkpoint, options = self.checkpoint, self.options
            with Logged(self.log, "load", {"device": options.device, "dtype": options.dtype}) as logged:
                placement = choose(options.device, options.dtype, checkpoint.dtype, checkpoint.weight_bytes)
                drafter = build_drafter(checkpoint, self._now.target, placement, poll)
                logged.result = {
                    **self._placement_json(placement),
                    "vocab_map": drafter.vocab(self.wiring).reading,
                    "embedding": drafter.embedding(self.wiring).source,
                }
            self._now.placement, self._now.drafter = placement, drafter
        return self._now.drafter

    def run(self, poll: Poll = no_poll) -> SampleRun:
        """The current sample on the current drafter."""
        if self._now.run is None:
            from drafter.drafting.context import SampleRun

            self._now.run = SampleRun(self.load(poll), self.sample)
        return self._now.run

    def rows(self, ordering: Ordering, rows: list[int], poll: Poll = no_poll) -> list[RowReadout]:
        """Step 0 of some rows with the best prediction each: a screen's worth of the token table."""
        from drafter.drafting.readout import read_rows

        found = read_rows(self.run(poll), ordering, self.wiring, rows, 1, poll)
        shown = [[r.row, r.predictions[0].id, r.truth_rank] for r in found]
        span = [rows[0], rows[-1]] if rows else []
        self.log.call("rows", {"ordering": list(ordering), "rows": span}, shown, keep=False)
        return found

    def at_row(self, orderings: Sequence[Ordering], row: int, poll: Poll = no_poll) -> dict[Ordering, int]:
        """The token predicted at one row under each of several orderings; what a sweep has drafted is not redone."""
        from drafter.drafting.readout import read_rows

        run, wiring, found = self.run(poll), self.wiring, {}
        for ordering in orderings:
            drafted = self._now.drafted.get(ordering)
            if drafted is not None and drafted[row] >= 0:
                found[ordering] = int(run.drafter.vocab(wiring).target_ids[drafted[row]])
            else:
                poll()
                found[ordering] = read_rows(run, ordering, wiring, [row], 1, poll)[0].predictions[0].id
        return found

    def check_token(self, at: int) -> None:
        """Raises WiringError for a token that no row of the current sample predicts."""
        last = self.sample.length
        if not 2 <= at <= last:
            raise WiringError(f"token {at}", expected=f"2..{last}: the first two have no row", where=self.sample.path)

    def step(self, at: int, ordering: Ordering, poll: Poll = no_poll, *, top: int = TOP) -> StepResult:
        """What is predicted for token `at` (row at - 2), and the chain of drafts from there.

        Raises WiringError for a token that no row predicts.
        """
        from drafter.drafting.readout import read_chain, read_rows
        from drafter.results import StepResult

        self.check_token(at)
        run, wiring, depth = self.run(poll), self.wiring, self.options.depth
        inputs = {
            "checkpoint": str(self.checkpoint.path),
            "sample": str(self.sample.path),
            "at": at,
            "ordering": list(ordering),
            "depth": depth,
            "view": self.view_name,
        }
        with Logged(self.log, "step", inputs) as logged:
            readout = read_rows(run, ordering, wiring, [at - 2], top, poll)[0]
            chain = read_chain(run, ordering, wiring, at - 2, depth, poll)
            result = StepResult(at, ordering, self.view_name, readout, tuple(chain))
            logged.result = self.step_json(result)
        return result

    def step_json(self, result: StepResult) -> dict[str, Any]:
        """`step --json` of a result of this session."""
        from drafter.results import step_ids, step_json

        shown = {i: self.piece(i) for i in step_ids(result)}
        return {"sample": str(self.sample.path), **step_json(result, shown), "switched": self.switched()}

    def tree(
        self,
        at: int,
        ordering: Ordering,
        rule: str,
        steps: int,
        topk: int,
        tokens: int | None = None,
        poll: Poll = no_poll,
    ) -> Tree:
        """The tree of drafts whose first level stands for token `at` (row at - 2), held against the sample's tokens.

        Raises WiringError for a token that no row predicts, a search that cannot be meant, a drafter without trees.
        """
        from drafter.drafting.tree import tree_json, tree_plan
        from drafter.drafting.tree_eagle2 import read_tree

        with Logged(self.log, "tree", {"at": at, **self._tree_inputs(ordering, rule, steps, topk, tokens)}) as logged:
            self.check_token(at)
            plan = tree_plan(rule, steps, topk, tokens)
            result = read_tree(self.run(poll), ordering, self.wiring, at - 2, plan, poll)
            logged.result = tree_json(result)
        return result

    def _tree_inputs(self, ordering: Ordering, rule: str, steps: int, topk: int, tokens: int | None) -> dict[str, Any]:
        asked = {"rule": rule, "steps": steps, "topk": topk, "tokens": tokens, "view": self.view_name}
        return {
            "checkpoint": str(self.checkpoint.path),
            "sample": str(self.sample.path),
            "ordering": list(ordering),
            **asked,
        }
