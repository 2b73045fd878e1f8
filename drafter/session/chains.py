"""Chains of drafts: accept lengths, rounds as a server would decode them, where they break."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError
from drafter.log import Logged
from drafter.options import Options as Options
from drafter.wiring import (
    Ordering,
    check_ordering,
)

if TYPE_CHECKING:
    from drafter.drafting.rounds import Round
    from drafter.scoring.breaks import Breaks
    from drafter.scoring.chain_report import ChainReport
from drafter.session.core import Poll, no_poll
from drafter.session.scores import Scores


class Chains(Scores):
    def rounds(
        self,
        ordering: Ordering,
        depth: int | None = None,
        refresh: str = "target",
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        poll: Poll = no_poll,
    ) -> list[Round]:
        """The supervised text of the current sample decoded round by round, as a server would (`drafting.rounds`).

        `on_progress` is given tokens emitted and tokens to emit. Raises WiringError for what cannot be drafted.
        """
        from drafter.drafting.rounds import rounds, walk_json

        inputs = {**self._chain_inputs(ordering, depth), "sample": str(self.sample.path), "refresh": refresh}
        with Logged(self.log, "rounds", inputs) as logged:
            found = rounds(self.run(poll), ordering, self.wiring, inputs["depth"], refresh, on_progress, poll)
            logged.result = {**walk_json(found), "accepted": [one.accepted for one in found]}
        return found

    def breaks(self, ordering: Ordering, depth: int | None = None, poll: Poll = no_poll) -> Breaks:
        """Where and at which tokens the current sample's chains break."""
        from drafter.drafting.chains import draft_ids
        from drafter.scoring.breaks import breaks_json, find_breaks
        from drafter.scoring.counts import rows_needed
        from drafter.scoring.sweep import truths_of

        inputs = {**self._chain_inputs(ordering, depth), "sample": str(self.sample.path)}
        with Logged(self.log, "breaks", inputs) as logged:
            run, wiring, depth = self.run(poll), self.wiring, inputs["depth"]
            truths = truths_of(run, None, wiring)
            rows = rows_needed(truths.mask, self.options.mask, depth)
            drafted = draft_ids(run, ordering, wiring, depth, rows, poll=poll)
            found = find_breaks(drafted, truths, self.options.mask)
            logged.result = breaks_json(found, self.piece)
        return found

    def chain_report(
        self,
        ordering: Ordering,
        paths: Sequence[Path] | None = None,
        depth: int | None = None,
        on_progress: Callable[[ChainReport], None] = lambda report: None,
        poll: Poll = no_poll,
    ) -> ChainReport:
        """Chains from every row, both ways, over the samples in the files `paths`, pooled; the current one if None.

        One that cannot be read or does not fit is skipped, as by `score`. `on_progress` sees the report grow.
        """
        from drafter.scoring.chain_report import ChainReport, chain_report_json

        inputs = self._chain_inputs(ordering, depth)
        names = self._chain_samples(paths)
        with Logged(self.log, "chain_report", {**inputs, "samples": [str(path) for path in names]}) as logged:
            report = ChainReport(ordering, inputs["depth"], self.options.mask, self.view_name, len(names))
            for name in names:
                self._add_chains(report, name, poll)
                on_progress(report)
            logged.result = chain_report_json(report, self.piece)
        return report

    def _chain_inputs(self, ordering: Ordering, depth: int | None) -> dict[str, Any]:
        check_ordering(ordering, len(self.sample.slots), self.checkpoint.fc_inputs)
        asked = {"depth": self.options.depth if depth is None else depth, "mask": self.options.mask}
        return {
            "checkpoint": str(self.checkpoint.path),
            "ordering": list(ordering),
            **asked,
            "view": self.view_name,
            "switched": self.switched(),
        }

    def _chain_samples(self, paths: Sequence[Path] | None) -> list[Path]:
        if paths is None:
            return [self.sample.path]
        return list(dict.fromkeys(name for path in paths for name in self.sample_paths(path)))

    def _add_chains(self, report: ChainReport, name: Path, poll: Poll) -> None:
        """One sample, or the reason why not; that of one named by itself, or of the last where none fits, is raised."""
        poll()
        try:
            report.add(self._run_for(name, len(self.sample.slots), poll), self.wiring, poll)
        except DrafterError as error:
            last = len(report.samples) + len(report.skipped) + 1 == report.planned
            if name in self.options.samples or (last and not report.samples):
                raise
            report.skipped.append((name, str(error)))

    def chain_report_json(self, report: ChainReport, found: Sequence[Round], refresh: str, most: int) -> dict[str, Any]:
        """`accept --json`: a report of this session, with the rounds of the current sample."""
        from drafter.checkpoint.facts import checkpoint_json
        from drafter.drafting.rounds import rounds_json
        from drafter.scoring.chain_report import chain_report_json

        assert self._now.placement is not None
        placement = self._placement_json(self._now.placement)
        return {
            "checkpoint": checkpoint_json(self.checkpoint),
            "device": placement["device"],
            "dtype": placement["dtype"],
            "placement_reason": placement["reason"],
            "switched": self.switched(),
            **chain_report_json(report, self.piece, most),
            "rounds": {
                "sample": str(self.sample.path),
                **rounds_json(found, refresh, self.piece, self.sample.ids),
            },
            "warnings": list(self.load().warnings),
        }
