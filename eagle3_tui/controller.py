"""Controller: what a key press sets in motion. It submits Session calls to the engine and puts results into the State.

Every method returns at once and is called on the UI thread; `changed(what)` tells the views which part of the state
is new. The session is touched by the engine's thread only. Knows no widget.

Priorities: choosing > the row under the cursor > the rows on screen > other orderings at the row > probes > a sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError
from drafter.safe import safe
from drafter.wiring import Ordering
from eagle3_tui.state import Scores, State
from eagle3_tui.worker import Engine, Job, warm_torch

if TYPE_CHECKING:
    from drafter.drafting.readout import RowReadout
    from drafter.files.find import Found
    from drafter.results import ScoreResult
    from drafter.session import SampleList, Session

CHOOSE, CURSOR, WINDOW, OTHERS, LOOK, SWEEP = 50, 40, 30, 20, 10, 0
_WORK = (
    "cursor",
    "rows",
    "others",
    "score",
    "probe",
    "miss",
)  # groups that end when another checkpoint or sample is chosen
_PROGRESS_SECONDS = 0.2
_SEARCH = 64  # rows drafted at once while looking for a miss


class Controller:
    def __init__(
        self, session: Session, engine: Engine, changed: Callable[[str], None], give_up: Callable[[str], None]
    ) -> None:
        """`give_up` is told, in one line, why there is nothing at all to show."""
        self.session, self.engine, self.state = session, engine, State()
        self._changed, self._give_up = changed, give_up
        engine.on_error = self._failed

    # ------------------------------------------------------------------ opening

    def start(self) -> None:
        """Find checkpoints, open one, list samples; torch is loaded only after that."""

        def work(job: Job) -> tuple[list[Found], Found, Any]:
            found = self.session.find(job.checkpoint)
            picked = self.session.pick(found)
            return found, picked, self.session.choose_checkpoint(picked)

        def done(result: tuple[list[Found], Found, Any]) -> None:
            self.state.found = result[0]
            self._changed("found")
            self._opened(result[1], result[2])

        def failed(error: Exception) -> None:
            self.state.found = self.session.last_found
            if not self.state.found:
                return self._give_up(str(error))
            # one checkpoint that cannot be opened must not hide the others
            self._changed("found")
            self._failed(None, error)
            self._list_samples()

        self._submit("looking for checkpoints", work, "choose", CHOOSE, done, failed)

    def choose_checkpoint(self, found: Found) -> None:
        self._stop_work()
        self.say("")

        def work(job: Job) -> Any:
            return self.session.choose_checkpoint(found)

        self._submit(f"opening {found.name}", work, "choose", CHOOSE, lambda result: self._opened(found, result))

    def _opened(self, found: Found, checkpoint: Any) -> None:
        state = self.state
        state.chosen, state.checkpoint, state.statistics, state.vocab = found, checkpoint, None, []
        target, why = self.session.target
        state.target = f"{target.path} ({why})" if target is not None else why
        state.forget_results()
        self._changed("checkpoint")
        if state.samples is None:
            self._list_samples()
        elif state.samples.paths:
            self.choose_sample(state.sample.path if state.sample is not None else state.samples.paths[0])

    def _list_samples(self) -> None:
        def done(samples: SampleList) -> None:
            self.state.samples = samples
            self._changed("samples")
            self._submit("loading torch", warm_torch, "torch", CHOOSE, lambda _: self._torch_ready())

        self._submit("listing samples", lambda job: self.session.list_samples(job.checkpoint), "list", CHOOSE, done)

    def _torch_ready(self) -> None:
        self._changed("busy")
        samples = self.state.samples
        if samples is not None and samples.paths and self.state.checkpoint is not None:
            self.choose_sample(samples.paths[0])

    def choose_sample(self, path: Path) -> None:
        if self.state.checkpoint is None:
            return self.say("choose a checkpoint first", "warn")
        self._stop_work()
        keep = self.state.ordering if self.state.user_ordered else None

        def work(job: Job) -> tuple[Any, ...]:
            session = self.session
            sample = session.choose_sample(path)
            orderings = session.orderings(["all"])
            first, why = (keep, "chosen") if keep in orderings and keep else session.first_ordering()
            return sample, orderings, first, why, session.counted(), session.configured(), session.trained()

        self._submit(f"opening {path.name}", work, "sample", CHOOSE, self._sample_opened)

    def _sample_opened(self, result: tuple[Any, ...]) -> None:
        state, user = self.state, self.state.user_ordered
        state.forget_sample()
        state.sample, state.orderings, state.ordering, state.ordering_why = result[:4]
        state.counted, (state.configured, state.configured_why), state.trained = result[4:]
        state.user_ordered = user and state.ordering_why == "chosen"
        # the first row that counts is where a person wants to look
        state.row = state.counted.index(True) if True in state.counted else 0
        self._changed("sample")
        self._load()

    def _load(self) -> None:
        def work(job: Job) -> tuple[str, list[str]]:
            drafter = self.session.load(job.checkpoint)
            self.session.run(job.checkpoint)
            vocab = drafter.vocab
            said = [f"read as {vocab.reading}", *map(str, vocab.tests)] + ([vocab.warning] if vocab.warning else [])
            return str(drafter.placement), said

        def done(result: tuple[str, list[str]]) -> None:
            state = self.state
            state.placement, state.vocab = result
            state.ready = True
            self._changed("ready")
            if self.session.vocab_warning:
                self.say(self.session.vocab_warning, "warn")
            self._probe()
            if state.sample is not None:
                self.score([state.sample.path])

        self._submit("loading weights", work, "load", CHOOSE, done)

    def _probe(self) -> None:
        def done(probes: Any) -> None:
            self.state.probes = probes
            self._changed("probes")

        self._submit("looking at the slots", lambda job: self.session.probe(job.checkpoint), "probe", LOOK, done)

    # ------------------------------------------------------------------ the step view

    def choose_ordering(self, ordering: Ordering, why: str = "chosen") -> None:
        """Make an ordering current everywhere."""
        self.state.ordering, self.state.ordering_why = ordering, why
        self.state.user_ordered = True
        self.state.step = None
        self._changed("ordering")

    def cycle_ordering(self, step: int) -> None:
        """The next ordering: trained, configured and best first, then the rest in order."""
        state = self.state
        if state.ordering is None:
            return
        special = [state.trained, state.configured, state.scores.best if state.scores else None]
        order = list(dict.fromkeys([o for o in special if o is not None] + state.orderings))
        where = order.index(state.ordering) if state.ordering in order else 0
        self.choose_ordering(order[(where + step) % len(order)])

    def look_at(self, row: int, window: Sequence[int]) -> None:
        """Compute what the step view shows: the cursor's row first, then the rows on screen, then other orderings."""
        state = self.state
        state.row = row
        ordering = state.ordering
        if not state.ready or ordering is None:
            return
        known = state.rows.setdefault(ordering, {})
        if state.step is None or state.step.readout.row != row or state.step.ordering != ordering:
            self._step(row, ordering)
        absent = [r for r in window if r not in known]
        if absent:
            self._rows(absent, ordering)
        if row not in state.others:
            self._others(row)

    def _step(self, row: int, ordering: Ordering) -> None:
        def done(result: Any) -> None:
            self.state.step = result
            self._changed("step")

        work = lambda job: self.session.step(row + 2, ordering, job.checkpoint)  # noqa: E731
        self._submit("drafting", work, "cursor", CURSOR, done)

    def _rows(self, rows: list[int], ordering: Ordering) -> None:
        def done(found: Any) -> None:
            self.state.rows.setdefault(ordering, {}).update({r.row: r for r in found})
            self._changed("rows")

        work = lambda job: self.session.rows(ordering, rows, job.checkpoint)  # noqa: E731
        self._submit("drafting", work, "rows", WINDOW, done)

    def _others(self, row: int) -> None:
        orderings = list(self.state.orderings)

        def done(found: dict[Ordering, int]) -> None:
            self.state.others[row] = found
            self._changed("others")

        work = lambda job: self.session.at_row(orderings, row, job.checkpoint)  # noqa: E731
        self._submit("other orderings", work, "others", OTHERS, done)

    def find_miss(self, start: int, step: int, found: Callable[[int | None], None]) -> None:
        """The next counted row after `start` (before it, for step -1) that is predicted wrongly; None if none is."""
        state, ordering = self.state, self.state.ordering
        if not state.ready or ordering is None or state.sample is None:
            return
        last = state.sample.length - 3
        rows = range(start + step, last + 1 if step > 0 else -1, step)
        candidates = [r for r in rows if 0 <= r <= last and state.counted[r]]

        def work(job: Job) -> tuple[int | None, dict[int, RowReadout]]:
            seen: dict[int, RowReadout] = {}
            for begin in range(0, len(candidates), _SEARCH):
                block = sorted(candidates[begin : begin + _SEARCH])
                seen |= {r.row: r for r in self.session.rows(ordering, block, job.checkpoint)}
                misses = [row for row in block if seen[row].hit is False]
                if misses:
                    return (misses[0] if step > 0 else misses[-1]), seen
            return None, seen

        def done(result: tuple[int | None, dict[int, RowReadout]]) -> None:
            state.rows.setdefault(ordering, {}).update(result[1])
            found(result[0])

        self._submit("looking for a miss", work, "miss", CURSOR, done)

    # ------------------------------------------------------------------ scores

    def score(self, paths: Sequence[Path]) -> None:
        """Score every ordering on `paths`; the table fills while it runs."""
        state = self.state
        if not state.ready:
            return self.say("the drafter is not loaded yet", "warn")
        orderings = self._promising_first()
        pooled = len(paths) > 1

        def work(job: Job) -> Scores:
            last = 0.0

            def progress(result: ScoreResult) -> None:
                nonlocal last
                if time.monotonic() - last >= _PROGRESS_SECONDS:
                    last = time.monotonic()
                    job.progress(_snapshot(result, pooled))

            return _snapshot(self.session.score(paths, orderings, progress, job.checkpoint), pooled)

        def show(scores: Scores) -> None:
            state.scores = scores
            self._changed("score")

        def done(scores: Scores) -> None:
            show(scores)
            known = state.user_ordered or state.trained is not None or self.session.asked_ordering
            if not known and scores.best is not None and scores.best != state.ordering:
                state.ordering, state.ordering_why, state.step = scores.best, "best of all, no config says which", None
                self._changed("ordering")

        state.scores = None
        self._submit("scoring", work, "score", SWEEP, done, progress=show)

    def _promising_first(self) -> list[Ordering]:
        """The orderings that a person asks about first are scored first."""
        state = self.state
        first = [o for o in (state.ordering, state.configured, state.trained) if o is not None]
        return list(dict.fromkeys(first + state.orderings))

    def score_all(self) -> None:
        samples = self.state.samples
        if samples is not None and samples.paths:
            self.score(samples.paths)

    def score_one(self) -> None:
        if self.state.sample is not None:
            self.score([self.state.sample.path])

    # ------------------------------------------------------------------ looking and leaving

    def statistics(self, name: str) -> None:
        def done(found: Any) -> None:
            self.state.statistics = found
            self._changed("statistics")

        work = lambda job: self.session.statistics(name, job.checkpoint)  # noqa: E731
        self._submit(f"reading {safe(name, 40)}", work, "statistics", LOOK, done)

    def export(self, folder: Path) -> None:
        def done(paths: list[Path]) -> None:
            self.say(f"exported {paths[0]} and .json beside it")

        self._submit("exporting", lambda job: self.session.export(folder), "export", CHOOSE, done)

    def cancel(self) -> bool:
        """Stop what takes long; True if there was something to stop."""
        if not self.engine.busy:
            return False
        for group in (*_WORK, "statistics", "export"):
            self.engine.cancel(group)
        self.say("cancelled")
        return True

    # ------------------------------------------------------------------ plumbing

    def say(self, text: str, kind: str = "") -> None:
        self.state.message, self.state.message_kind = text, kind
        self._changed("message")

    def _stop_work(self) -> None:
        for group in _WORK:
            self.engine.cancel(group)

    def _submit(
        self,
        name: str,
        work: Callable[[Job], Any],
        group: str,
        priority: int,
        done: Callable[[Any], None],
        failed: Callable[[Exception], None] | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> None:
        self.engine.submit(
            name, work, group=group, priority=priority, on_done=done, on_error=failed, on_progress=progress
        )
        self._changed("busy")

    def _failed(self, job: Job | None, error: Exception) -> None:
        if isinstance(error, DrafterError):
            return self.say(str(error), "bad")
        name = job.name if job is not None else "starting"
        self.session.note_failure(name, error, job.trace if job is not None else "")
        self.say(f"{name} failed: {type(error).__name__}: {safe(error, 200)}", "bad")


def _snapshot(result: ScoreResult, pooled: bool) -> Scores:
    """A copy that the sweep does not change any more, with the comparisons made here, off the UI thread."""
    copy = replace(result, scores=dict(result.scores), samples=list(result.samples), reasons=dict(result.reasons))
    best, tied = copy.best()
    return Scores(copy, best, tuple(tied), pooled)
