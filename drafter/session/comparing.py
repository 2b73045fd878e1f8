"""Two checkpoints compared, and the epochs of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.checkpoint.checkpoint import open_checkpoint
from drafter.errors import SampleError
from drafter.files.find import Found
from drafter.log import Logged
from drafter.options import Options as Options

if TYPE_CHECKING:
    from drafter.checkpoint_compare.compare import Comparison as CheckpointComparison
    from drafter.checkpoint_compare.epochs import Run as EpochRun
    from drafter.checkpoint_compare.outcomes import Outcomes, Paired
from drafter.session.core import Poll, no_poll
from drafter.session.views import Views


class Comparing(Views):
    def compare_checkpoints(
        self,
        theirs: Found,
        on_progress: Callable[[int, int, str], None] = lambda done, planned, name: None,
        poll: Poll = no_poll,
    ) -> CheckpointComparison:
        """The current checkpoint and another: configs and tensors; `on_progress` is given tensors done and planned."""
        from drafter.checkpoint_compare.compare import compare, comparison_json

        inputs = {"ours": str(self.checkpoint.path), "theirs": str(theirs.path)}
        with Logged(self.log, "compare_checkpoints", inputs) as logged:
            found = compare(self.checkpoint, open_checkpoint(theirs), on_progress, poll)
            logged.result = {k: v for k, v in comparison_json(found).items() if k not in ("configs", "tensors")}
        return found

    def compare_outcomes(
        self,
        ours: Found,
        theirs: Found,
        paths: Sequence[Path],
        most: int = 20,
        on_progress: Callable[[Outcomes], None] = lambda outcomes: None,
        poll: Poll = no_poll,
    ) -> Paired:
        """Two checkpoints on the same samples, each under its own first ordering and trained wiring; at most `most`
        differing rows are listed. Raises SampleError where they have no sample in common."""
        from drafter.checkpoint_compare.outcomes import pair, paired_json

        inputs = {"ours": str(ours.path), "theirs": str(theirs.path), **self._outcome_inputs(paths)}
        with Logged(self.log, "compare_outcomes", inputs) as logged:
            one, two = (self._outcomes(side, paths, on_progress, poll) for side in (ours, theirs))
            found = pair(one, two, most)
            if found is None:
                raise SampleError("no sample that both checkpoints can take", where=theirs.path)
            logged.result = {k: v for k, v in paired_json(found, str).items() if k != "samples"}
        return found

    def run_epochs(
        self,
        found: Sequence[Found],
        paths: Sequence[Path],
        on_progress: Callable[[EpochRun], None] = lambda run: None,
        poll: Poll = no_poll,
    ) -> EpochRun:
        """Every checkpoint of `found` on the samples in the files `paths`, one after another, and what the trainer
        measured; `on_progress` is given the same growing run after each, so that it can be left at any."""
        from drafter.checkpoint_compare.epochs import Run, list_epochs, run_epochs, run_json

        options, inputs = self.options, {"checkpoints": [f.name for f in found], **self._outcome_inputs(paths)}
        with Logged(self.log, "run_epochs", inputs) as logged:
            run = Run(options.depth, options.mask, list_epochs(found, lambda f: open_checkpoint(f).metrics))
            run_epochs(run, lambda f: self._outcomes(f, paths, lambda o: None, poll), on_progress, poll)
            logged.result = {k: v for k, v in run_json(run).items() if k != "epochs"}
        return run

    def _outcome_inputs(self, paths: Sequence[Path]) -> dict[str, Any]:
        options = self.options
        asked = {"depth": options.depth, "mask": options.mask, "view": self.view_name, "orderings": options.orderings}
        return {"paths": [str(p) for p in paths], **asked}

    def _outcomes(
        self, found: Found, paths: Sequence[Path], on_progress: Callable[[Outcomes], None], poll: Poll
    ) -> Outcomes:
        """One checkpoint on all samples, beside what is open here and not in its place."""
        from drafter.checkpoint_compare.outcomes import Bench, Outcomes, collect

        other = type(self)(replace(self.options, path=found.path))  # what is open here stays open
        other._switches = dict(self._switches)
        other.choose_checkpoint(found)
        slots = len(other.choose_first(paths, poll).slots)
        ordering, why = other.first_ordering()
        warnings = other.load(poll).warnings
        outcomes = Outcomes(ordering, why, other.wiring, str(other.placement), tuple(warnings))
        bench = Bench(other.sample_paths, lambda path: other._run_for(path, slots, poll))
        return collect(outcomes, bench, paths, self.options.depth, self.options.mask, on_progress, poll)
