"""The Samples view's part of the controller: the ordering in force scored on every listed sample.

One ordering tells which samples are bad; that of all orderings, pooled, is the Orderings view's sweep and another job.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from eagle3_tui.state import Scores, scores_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from drafter.results import ScoreResult
    from drafter.session import Session
    from drafter.wiring import Ordering
    from eagle3_tui.controller import Controller
    from eagle3_tui.worker import Job

GROUP = "pool"  # of its job
_PRIORITY = 3  # before what nobody asked for by a key
_PROGRESS_SECONDS = 0.2


def scored(job: Job, session: Session, paths: Sequence[Path], orderings: Sequence[Ordering], pooled: bool) -> Scores:
    """The scores of `orderings` on `paths`; now and then the job tells what is there so far."""
    last = 0.0

    def progress(result: ScoreResult) -> None:
        nonlocal last
        if time.monotonic() - last >= _PROGRESS_SECONDS:
            last = time.monotonic()
            job.progress(scores_of(result, pooled))

    return scores_of(session.score(paths, orderings, progress, job.checkpoint), pooled)


class PoolControl:
    """Submits the job through the controller and puts its results into `state.pool` and `state.sample_scores`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def start(self) -> None:
        """Score the current ordering on every listed sample; the list fills while it runs."""
        controller, state = self._controller, self._controller.state
        ordering, samples = state.ordering, state.samples
        if samples is None or not samples.paths:
            return controller.say(state.problem or "no samples", "warn")
        if not state.ready or ordering is None:
            return controller.say(state.problem or "the drafter is not loaded yet", "warn")
        paths = samples.paths

        def work(job: Job) -> Scores:
            return scored(job, controller.session, paths, [ordering], pooled=True)

        def show(scores: Scores) -> None:
            state.pool = scores
            state.keep_sample_scores(scores.result)
            controller.tell("pool")

        def failed(error: Exception) -> None:
            controller.explain("scoring samples", error)
            controller.tell("pool")

        state.pool = None
        controller.submit("scoring every sample", work, GROUP, _PRIORITY, show, failed, show)
