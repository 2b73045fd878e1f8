"""Checkpoints: found, opened, made current, their tensors looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drafter.checkpoint.checkpoint import Checkpoint, open_checkpoint
from drafter.errors import PathError, WiringError
from drafter.files.find import Found, find_checkpoints
from drafter.files.fingerprint import fingerprint
from drafter.locate import locate_target
from drafter.log import Logged
from drafter.options import Options as Options

if TYPE_CHECKING:
    from drafter.checkpoint.statistics import TensorStatistics
from drafter.session.core import Open, Poll, no_poll
from drafter.session.samples import Samples


class Checkpoints(Samples):
    def find(self, poll: Poll = no_poll) -> list[Found]:
        """Checkpoints at or below the path."""
        with Logged(self.log, "find", {"path": str(self.options.path)}) as logged:
            self.last_found = found = find_checkpoints(self.options.path, poll)
            logged.result = [{"name": f.name, "links": list(f.links), "state": f.state} for f in found]
        return found

    def pick(self, found: Sequence[Found]) -> Found:
        """The checkpoint to begin with: what `checkpoint_best` leads to, else the last one that has weights."""
        whole = [f for f in found if not f.state] or list(found)
        if not whole:
            raise PathError("no checkpoint", where=self.options.path)
        best = [f for f in whole if any("best" in link for link in f.links)]
        return best[0] if best else max(whole, key=lambda f: -1 if f.epoch is None else f.epoch)

    @staticmethod
    def pick_why(picked: Found) -> str:
        """The reason for which `pick` took `picked` among several."""
        best = [link for link in picked.links if "best" in link]
        if best:
            return f"to which {best[0]} leads"
        return "the last with weights" if not picked.state else f"the last, all have {picked.state}"

    def choose_checkpoint(self, found: Found) -> Checkpoint:
        """Open `found` by its headers and make it current; the target is looked for, the sample stays chosen."""
        inputs = {"path": str(found.path)}
        with Logged(self.log, "choose_checkpoint", inputs) as logged:
            from drafter.checkpoint.facts import facts_json

            checkpoint = open_checkpoint(found)
            target, why = locate_target(self.options.target, checkpoint)
            old = self._now
            self._now = Open(
                checkpoint,
                target,
                why,
                tokens=old.tokens,
                tokens_at=old.tokens_at,
                tokens_problem=old.tokens_problem,
            )
            if old.sample is not None:
                self._now.sample = self._claimed(old.sample)
            facts = facts_json(checkpoint, None)
            facts["fingerprints"] = {p.name: fingerprint(p) for p in found.weights}
            facts["target"] = {"path": str(target.path) if target else None, "why": why}
            logged.result = facts
        return checkpoint

    def statistics(self, name: str, poll: Poll = no_poll) -> TensorStatistics:
        """Statistics and histogram of one tensor of the checkpoint, by canonical name."""
        from drafter.checkpoint.statistics import statistics

        stored = self.checkpoint.tensors.get(name)
        if stored is None:
            raise WiringError(f"no tensor {name!r}", where=self.checkpoint.path)
        with Logged(self.log, "statistics", {"tensor": name}) as logged:
            found = statistics(stored, poll)
            logged.result = {k: getattr(found, k) for k in ("count", "nan", "inf", "zero", "mean", "std", "norm")}
        return found
