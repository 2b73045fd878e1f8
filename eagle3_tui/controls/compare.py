"""The Compare view's part of the controller: all checkpoints of the folder on the same samples, and the open one held
against another.

What is shown belongs to a `Scope` (samples, mask, wiring) and to a pair of checkpoints: when either is another one now,
`catch_up` drops what was found and begins anew, where that costs little; else it is left to a key. Knows no widget.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError

if TYPE_CHECKING:
    from drafter.checkpoint_compare.compare import Comparison
    from drafter.checkpoint_compare.epochs import Best, Epoch, Run
    from drafter.checkpoint_compare.outcomes import Outcomes, Paired
    from drafter.files.find import Found
    from drafter.scoring.tallies import Count, Lengths
    from eagle3_tui.controller import Controller
    from eagle3_tui.worker import Job

RUNS, PAIR, TOKENS, ELSEWHERE = "runs", "pair", "tokens", "elsewhere"  # groups of jobs; what the views are told
GROUPS = (RUNS, PAIR, TOKENS, ELSEWHERE)
LISTED = 500  # rows that only one of two has right
UNASKED = 2 << 30  # bytes of weights up to which checkpoints are loaded without being asked for
_PRIORITY = 5  # above a sweep, below what is under a cursor
_SECONDS = 0.2  # between two words of progress


@dataclass(frozen=True)
class Scope:
    """What outcomes were computed on: one sample, or all listed for None, and how."""

    sample: Path | None
    mask: str
    supervised: str
    switched: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EpochLine:
    """One checkpoint of the folder with its pooled outcomes; they are None where it was not run (yet)."""

    epoch: Epoch
    accuracy: Count | None = None
    lengths: Lengths | None = None


@dataclass
class CompareState:
    """What the Compare view shows; everything is empty until it is known.

    `done` checkpoints of `lines` have been run in `scope` or passed over. `theirs` is held against the open checkpoint:
    `comparison` and `paired` are of the two, `paired_scope` says on what. `read` is (done, planned, next) of tensors,
    `ran` how far the samples are.
    """

    lines: list[EpochLine] = field(default_factory=list)
    best: Best | None = None
    depth: int = 0
    scope: Scope | None = None
    samples: int = 0
    done: int = 0
    runs_problem: str = ""
    theirs: Found | None = None
    theirs_why: str = ""
    compared: tuple[Path, Path] | None = None
    read: tuple[int, int, str] = (0, 0, "")
    comparison: Comparison | None = None
    pair_problem: str = ""
    paired: Paired | None = None
    paired_of: tuple[Path, Path] | None = None
    paired_scope: Scope | None = None
    paired_problem: str = ""
    ran: str = ""

    def forget_pair(self) -> None:
        """Drop what was found of two checkpoints, not which they are."""
        self.compared, self.comparison, self.read, self.pair_problem = None, None, (0, 0, ""), ""
        self.forget_tokens()

    def forget_tokens(self) -> None:
        self.paired, self.paired_of, self.paired_scope, self.paired_problem, self.ran = None, None, None, "", ""

    def forget_runs(self) -> None:
        """Drop the outcomes; the checkpoints stay listed."""
        self.lines = [
            EpochLine(replace(line.epoch, outcomes=None, problem=line.epoch.found.state)) for line in self.lines
        ]
        self.best, self.scope, self.samples, self.done, self.runs_problem = None, None, 0, 0, ""


class CompareControl:
    """Submits jobs through the controller and puts their results into `state.compare`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._listing = False  # whether the checkpoints were asked for

    # ------------------------------------------------------------------ what is wanted now

    def scope(self, whole: bool) -> Scope | None:
        """The current sample, or all that are listed, under what is in force; None where there is none."""
        state, options = self._controller.state, self._controller.session.options
        if (state.sample is None and not whole) or state.samples is None or not state.samples.paths:
            return None
        switched = tuple((n, v) for n, v in state.switches.items() if state.trained_switches.get(n) != v)
        return Scope(
            None if whole or state.sample is None else state.sample.path, options.mask, options.supervised, switched
        )

    def runs(self, group: str) -> bool:
        """Whether a job of the group runs or waits."""
        return self._controller.engine.expects(group)

    def drop_outdated(self) -> None:
        """Stop and drop what was computed on another sample or under another wiring."""
        state, mine = self._controller.state, self._controller.state.compare
        if not state.ready:
            return  # the wiring in force is not known
        if mine.scope is not None and mine.scope != self.scope(mine.scope.sample is None):
            self._controller.engine.cancel(RUNS)
            mine.forget_runs()
        if mine.paired_scope is not None and mine.paired_scope != self.scope(mine.paired_scope.sample is None):
            self._controller.engine.cancel(TOKENS)
            mine.forget_tokens()

    def catch_up(self) -> None:
        """See to it that what the view shows is of what is open; begin what costs little, and nothing twice."""
        controller, state, mine = self._controller, self._controller.state, self._controller.state.compare
        self.drop_outdated()
        if not state.found or not (state.samples is not None or state.problem):
            return
        ours, theirs = state.chosen, mine.theirs
        if ours is not None and theirs is not None and ours.path == theirs.path:
            self._unmark(f"{ours.name} is open now: mark another one to compare it with")
        affordable = state.ready and _size(state.found) <= UNASKED
        if not self._listing or (mine.scope is None and affordable and not self.runs(RUNS)):
            self.run(False, asked=False) if affordable and state.sample is not None else self._list()
        if state.checkpoint is None or controller.engine.expects("choose"):
            return
        pair = self._pair()
        if pair is not None and mine.compared != pair:
            self._compare_again()
        elif pair is not None and mine.paired_of != pair and not self.runs(PAIR) and mine.comparison is not None:
            self._pair_tokens(False, asked=False)

    def _pair(self) -> tuple[Path, Path] | None:
        ours, theirs = self._controller.state.chosen, self._controller.state.compare.theirs
        return None if ours is None or theirs is None else (ours.path, theirs.path)

    # ------------------------------------------------------------------ all checkpoints

    def _list(self) -> None:
        """The checkpoints with what their folders say of them; nothing is run."""
        if self._listing:
            return
        self._listing = True
        found, controller = self._controller.state.found, self._controller

        def done(run: Run) -> None:
            self._show_run(_lines(run, {}), None, run)

        controller.submit("listing checkpoints", lambda job: self._listed(found, job), RUNS, _PRIORITY, done)

    def run(self, whole: bool, asked: bool = True) -> None:
        """Every checkpoint on the current sample, or on all listed; the table fills one by one."""
        controller, state, mine = self._controller, self._controller.state, self._controller.state.compare
        scope = self.scope(whole)
        if scope is None or not state.found:
            return controller.say(state.problem or "no sample to run the checkpoints on", "warn") if asked else None
        found, paths = state.found, self._paths(scope)
        self._listing = True
        mine.forget_runs()
        mine.scope, mine.samples = scope, len(paths)

        def work(job: Job) -> tuple[list[EpochLine], Best | None, Run]:
            listed = self._listed(found, job)
            known: dict[int, EpochLine] = {}
            job.progress((_lines(listed, {}), None, listed))

            def progress(run: Run) -> None:
                job.progress(_snapshot(run, known))

            return _snapshot(controller.session.run_epochs(found, paths, progress, job.checkpoint), known)

        def failed(error: Exception) -> None:
            mine.runs_problem = str(error)
            self._failed("running checkpoints", error, asked)
            controller.tell(RUNS)

        def show(result: tuple[list[EpochLine], Best | None, Run]) -> None:
            self._show_run(*result)

        controller.submit("running checkpoints", work, RUNS, _PRIORITY, show, failed, show)
        controller.tell(RUNS)

    def _listed(self, found: Sequence[Found], job: Job) -> Run:
        from drafter.checkpoint.checkpoint import open_checkpoint
        from drafter.checkpoint_compare.epochs import Run, list_epochs

        def metrics(one: Found) -> dict[str, Any]:
            job.checkpoint()
            return open_checkpoint(one).metrics

        options = self._controller.session.options
        return Run(options.depth, options.mask, list_epochs(found, metrics))

    def _show_run(self, lines: list[EpochLine], best: Best | None, run: Run) -> None:
        mine = self._controller.state.compare
        mine.lines, mine.best, mine.depth, mine.done = lines, best, run.depth, run.done
        self._controller.tell(RUNS)

    def _paths(self, scope: Scope) -> Sequence[Path]:
        samples = self._controller.state.samples
        if scope.sample is not None:
            return [scope.sample]
        return samples.paths if samples is not None else []

    # ------------------------------------------------------------------ two of them

    def mark(self, found: Found) -> None:
        """Hold `found` against the open checkpoint; the same one again unmarks it."""
        state, mine = self._controller.state, self._controller.state.compare
        if state.chosen is None or state.checkpoint is None:
            return self._controller.say("choose a checkpoint first: enter opens one", "warn")
        if found.path == state.chosen.path:
            return self._controller.say("this one is open: space on another one compares the two", "warn")
        if mine.theirs is not None and mine.theirs.path == found.path:
            return self._unmark("")
        self._set_theirs(found, "")

    def _unmark(self, said: str) -> None:
        mine = self._controller.state.compare
        self._controller.engine.cancel(PAIR, TOKENS)
        mine.forget_pair()
        mine.theirs, mine.theirs_why = None, ""
        self._controller.say(said)
        self._controller.tell(PAIR)

    def _set_theirs(self, found: Found, why: str) -> None:
        mine = self._controller.state.compare
        self._controller.engine.cancel(TOKENS)
        mine.theirs, mine.theirs_why = found, why
        self.compare()

    def another(self, text: str) -> None:
        """The checkpoint at a path that was typed, or the one to begin with of those below it."""
        from eagle3_tui import demo

        controller = self._controller
        path = demo.OUTPUT if text.strip() == demo.NAME else Path(text.strip()).expanduser()
        if controller.state.chosen is None or controller.state.checkpoint is None:
            return controller.say("choose a checkpoint first: enter opens one", "warn")

        def work(job: Job) -> tuple[Found, str]:
            from drafter.files.find import find_checkpoints

            found = find_checkpoints(path, job.checkpoint)
            picked = controller.session.pick(found)
            why = f"{controller.session.pick_why(picked)}; 1 of {len(found)}" if len(found) > 1 else ""
            return picked, why

        def done(result: tuple[Found, str]) -> None:
            chosen = controller.state.chosen
            if chosen is not None and chosen.path.resolve() == result[0].path.resolve():
                return controller.say(f"{result[0].path} is the one that is open", "warn")
            self._set_theirs(*result)

        def failed(error: Exception) -> None:
            self._failed("looking for checkpoints", error, True)
            controller.tell(PAIR)

        controller.submit("looking for checkpoints", work, ELSEWHERE, _PRIORITY, done, failed)

    def _compare_again(self) -> None:
        """The open checkpoint is another one: what was found of the last is dropped, and found anew if it is cheap."""
        mine, chosen = self._controller.state.compare, self._controller.state.chosen
        assert chosen is not None and mine.theirs is not None
        self._controller.engine.cancel(PAIR, TOKENS)
        if _size([chosen, mine.theirs]) <= UNASKED:
            return self.compare(asked=False)
        mine.forget_pair()
        mine.compared = self._pair()

    def compare(self, asked: bool = True) -> None:
        """Configs and tensors of the two; then, where that costs little, what they predict."""
        controller, mine = self._controller, self._controller.state.compare
        pair, theirs = self._pair(), mine.theirs
        if pair is None or theirs is None:
            return controller.say("mark one first: space on a checkpoint, or n for a path", "warn")
        mine.forget_pair()
        mine.compared = pair

        def work(job: Job) -> Comparison:
            last = 0.0

            def progress(done: int, planned: int, name: str) -> None:
                nonlocal last
                if time.monotonic() - last >= _SECONDS:
                    last = time.monotonic()
                    job.progress((done, planned, name))

            return controller.session.compare_checkpoints(theirs, progress, job.checkpoint)

        def show(read: tuple[int, int, str]) -> None:
            mine.read = read
            controller.tell(PAIR)

        def done(found: Comparison) -> None:
            if self._pair() != pair:
                return
            mine.comparison = found
            controller.tell(PAIR)

        def failed(error: Exception) -> None:
            mine.pair_problem = str(error)
            self._failed("comparing checkpoints", error, asked)
            controller.tell(PAIR)

        controller.submit("comparing checkpoints", work, PAIR, _PRIORITY, done, failed, show)
        controller.tell(PAIR)

    def _pair_tokens(self, whole: bool, asked: bool) -> None:
        state, mine = self._controller.state, self._controller.state.compare
        if not state.ready or state.sample is None or state.chosen is None or mine.theirs is None:
            return
        if asked or _size([state.chosen, mine.theirs]) <= UNASKED:
            self.tokens(whole, asked)

    def tokens(self, whole: bool, asked: bool = True) -> None:
        """What the two predict on the current sample, or on all listed."""
        controller, state, mine = self._controller, self._controller.state, self._controller.state.compare
        pair, ours, theirs, scope = self._pair(), state.chosen, mine.theirs, self.scope(whole)
        if pair is None or ours is None or theirs is None:
            return controller.say("mark one first: space on a checkpoint, or n for a path", "warn")
        if scope is None:
            return controller.say(state.problem or "no sample to run the two on", "warn")
        paths = self._paths(scope)
        mine.forget_tokens()
        mine.paired_of, mine.paired_scope = pair, scope

        def work(job: Job) -> Paired:
            last = 0.0
            seen: list[int] = []  # which of the two runs

            def progress(outcomes: Outcomes) -> None:
                nonlocal last
                if id(outcomes) not in seen:
                    seen.append(id(outcomes))
                if time.monotonic() - last >= _SECONDS:
                    last = time.monotonic()
                    count = len(outcomes.samples) + len(outcomes.skipped)
                    job.progress(f"{'ours' if len(seen) == 1 else 'theirs'} on {count} of {len(paths)}")

            return controller.session.compare_outcomes(ours, theirs, paths, LISTED, progress, job.checkpoint)

        def show(said: str) -> None:
            mine.ran = said
            controller.tell(TOKENS)

        def done(found: Paired) -> None:
            mine.paired = found
            controller.tell(TOKENS)

        def failed(error: Exception) -> None:
            mine.paired_problem = str(error)
            self._failed("comparing predictions", error, asked)
            controller.tell(TOKENS)

        controller.submit("comparing predictions", work, TOKENS, _PRIORITY, done, failed, show)
        controller.tell(TOKENS)

    def _failed(self, doing: str, error: Exception, asked: bool) -> None:
        """A refusal of what nobody asked for is said in its pane only."""
        if asked or not isinstance(error, DrafterError):
            self._controller.explain(doing, error)


def _size(found: Sequence[Found]) -> int:
    return sum(one.size for one in found)


def _lines(run: Run, known: dict[int, EpochLine]) -> list[EpochLine]:
    """Copies, since the run goes on growing; the sums are made here, off the UI thread, and kept in `known`."""
    for i, epoch in enumerate(run.epochs):
        pooled = epoch.outcomes.pooled() if epoch.outcomes is not None and i not in known else None
        if pooled is not None:
            known[i] = EpochLine(epoch, *pooled)
    return [known.get(i) or EpochLine(replace(epoch)) for i, epoch in enumerate(run.epochs)]


def _snapshot(run: Run, known: dict[int, EpochLine]) -> tuple[list[EpochLine], Best | None, Run]:
    return _lines(run, known), run.best(), replace(run, epochs=[])
