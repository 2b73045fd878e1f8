"""Controller: what a key press sets in motion. It submits Session calls to the engine and puts results into the State.

Every method returns at once and is called on the UI thread; `changed(what)` tells the views which part of the state
is new. Knows no widget.

The session belongs to the engine's thread. The UI thread reads of it only what is replaced whole and never changed in
place: options, last_found, target, tokens and tokens_why, piece (of the tokens that are open at that moment), the log's
records by number; and writes a failure into the log, which locks. Everything else comes back as a job's result.

Priorities: choosing > the row under the cursor > the rows on screen > other orderings at the row > what the view on
screen needs > probes > a sweep > single switches > a survey.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DeviceError, DrafterError, PathError, WiringError
from drafter.safe import safe
from drafter.scoring.tallies import MASK_MODES
from drafter.wiring import SWITCHES, Ordering, Wiring
from drafter.wiring import name as ordering_name
from eagle3_tui.controls import pool, wiring
from eagle3_tui.controls.accept import PARTS as ACCEPT
from eagle3_tui.controls.accept import AcceptControl
from eagle3_tui.controls.compare import GROUPS, PAIR, RUNS, TOKENS, CompareControl
from eagle3_tui.controls.doctor import GROUP as DOCTOR
from eagle3_tui.controls.doctor import DoctorControl
from eagle3_tui.controls.pool import PoolControl, scored
from eagle3_tui.controls.serving import ServingControl
from eagle3_tui.controls.wiring import WiringControl
from eagle3_tui.state import Scores, State
from eagle3_tui.worker import Engine, Job, warm_torch

if TYPE_CHECKING:
    from drafter.drafting.readout import RowReadout
    from drafter.files.find import Found
    from drafter.session import SampleList, Session

CHOOSE, CURSOR, WINDOW, OTHERS, LOOK, SWEEP, SURVEY = 50, 40, 30, 20, 10, 0, -10
# groups that end when another checkpoint, sample or wiring is chosen
_WORK = (
    "cursor",
    "rows",
    "others",
    "score",
    pool.GROUP,
    "probe",
    "miss",
    wiring.GROUP,
    *ACCEPT,
    "views",
    DOCTOR,
)
_STOPPABLE = (
    "score",
    pool.GROUP,
    wiring.GROUP,
    "miss",
    "statistics",
    "load",
    "compare",
    "survey",
    *GROUPS,
    *ACCEPT,
    "views",
    "server log",
    DOCTOR,
)  # what takes long and can be asked for again
# groups whose results a view shows, by the view's name: they go first while it is on screen
_SHOWN = {
    "checkpoints": ("statistics",),
    "samples": (pool.GROUP, "survey", "probe"),
    "orderings": ("score",),
    "wiring": (wiring.GROUP,),
    "accept": ACCEPT,
    "serving": ("views",),
    "compare": GROUPS,
    "doctor": (DOCTOR,),
}
_PROGRESS_SECONDS = 0.2
_MASK_WORDS = {
    "next": "the loss mask of the token fed, l[t+1]",
    "same": "the loss mask of the row's own token, l[t]",
    "predicted": "the loss mask of the token predicted, l[t+2]",
    "all": "nothing: all do",
}
SUPERVISED = ("recorded", "roles", "all")
_SUPERVISED_WORDS = {
    "recorded": "as recorded",
    "roles": "by the marks of the chat's roles",
    "all": "every token",
}
_SURVEY_UNASKED = 256  # samples up to which ids and masks of all are read without being asked for
_SEARCH = 64  # rows drafted at once while looking for a miss


class Controller:
    def __init__(
        self, session: Session, engine: Engine, changed: Callable[[str], None], give_up: Callable[[str], None]
    ) -> None:
        """`give_up` is told, in one line, why there is nothing at all to show."""
        self.session, self.engine, self.state = session, engine, State()
        self._changed, self._give_up = changed, give_up
        self._at_start = True  # until the user chooses something or something can be computed
        self._wanted: Path | None = None  # the sample that was asked for last
        self._wanted_row: tuple[Path, int] | None = None  # where to begin in the sample that is being opened
        self._asked: dict[str, object] = {}  # what the newest job of a group was asked for
        engine.on_error = self._failed
        self.accept, self.serving, self.compare_runs = AcceptControl(self), ServingControl(self), CompareControl(self)
        self.doctor, self.wiring, self.pool = DoctorControl(self), WiringControl(self), PoolControl(self)

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
            if not self.state.found or self._by_options(error):
                return self._give_up(str(error))
            # one checkpoint that cannot be opened must not hide the others
            self._changed("found")
            self.doctor.refused = self.session.pick(self.state.found)
            self._blocked("opening a checkpoint", error)
            self._list_samples()

        self.submit("looking for checkpoints", work, "choose", CHOOSE, done, failed)

    def choose_checkpoint(self, found: Found) -> None:
        self._at_start = False
        self._stop_work()
        self.say("")

        def work(job: Job) -> Any:
            return self.session.choose_checkpoint(found)

        def done(result: Any) -> None:
            self._opened(found, result)

        def failed(error: Exception) -> None:
            self.doctor.refused = found
            self._refused(error)

        self.submit(f"opening {found.name}", work, "choose", CHOOSE, done, failed)

    def _opened(self, found: Found, checkpoint: Any) -> None:
        state = self.state
        state.chosen, state.checkpoint, state.statistics, state.vocab = found, checkpoint, None, []
        target, why = self.session.target
        state.target = f"{target.path} ({why})" if target is not None else why
        state.problem = ""
        state.forget_drafter()
        self.doctor.forget()
        self._changed("checkpoint")
        if state.samples is None:
            self._list_samples()
        else:
            self._open_a_sample()

    def _list_samples(self) -> None:
        def done(samples: SampleList) -> None:
            self.state.samples, self.state.surveyed = samples, {}
            self.state.forget_sample_scores()
            self.state.grouping = self.session.grouping
            self._changed("samples")
            self.submit("loading torch", warm_torch, "torch", CHOOSE, lambda _: self._torch_ready())

        def failed(error: Exception) -> None:
            self._blocked("listing samples", error)

        self.submit(
            "listing samples", lambda job: self.session.list_samples(job.checkpoint), "list", CHOOSE, done, failed
        )

    def _torch_ready(self) -> None:
        self._changed("busy")
        if not self.engine.expects("sample"):  # else one was asked for meanwhile
            self._open_a_sample()

    def _open_a_sample(self) -> None:
        """The sample that was asked for last, else the first."""
        samples = self.state.samples
        if samples is None or self.state.checkpoint is None:
            return
        if samples.paths:
            self._open_sample(self._wanted)
        else:
            self.state.problem = f"no samples: {samples.why}"
            self._changed("problem")
            self.doctor.follow()

    def choose_sample(self, path: Path) -> None:
        self._at_start = False
        if self.state.checkpoint is None:
            return self.say("choose a checkpoint first", "warn")
        self._wanted, self._wanted_row = path, None
        self._open_sample(path)

    def go_to_row(self, path: Path, row: int) -> None:
        """Make a row of a sample the one under the cursor of the Step view, opening the sample where it is another."""
        if self.state.sample is not None and self.state.sample.path == path:
            self.state.row = row
            return self._changed("row")
        self.choose_sample(path)
        self._wanted_row = path, row

    def _open_sample(self, path: Path | None) -> None:
        """Open `path`, or the first listed sample that can be opened."""
        self._stop_work()
        keep = self.state.ordering if self.state.user_ordered else None
        listed: Sequence[Path] = self.state.samples.paths if self.state.samples is not None else []

        def work(job: Job) -> tuple[Any, ...]:
            session = self.session
            sample = session.choose_sample(path) if path else session.choose_first(listed, job.checkpoint)
            passed = str(session.misfit(listed[0])) if not path and sample.file != listed[0] else ""
            orderings = session.orderings([])
            first, why = (keep, "chosen") if keep in orderings and keep else session.first_ordering()
            known = session.counted(), session.configured(), session.trained()
            return sample, orderings, first, why, *known, session.orderings_note, session.mask_facts(), passed

        self.submit(
            f"opening {path.name if path else 'a sample'}", work, "sample", CHOOSE, self._sample_opened, self._refused
        )

    def _refused(self, error: Exception) -> None:
        """A checkpoint or sample cannot be had: what was open before goes on; where nothing was, that is a problem."""
        state = self.state
        if state.sample is None or not (state.ready or self.engine.expects("load")):
            state.forget_sample()
            self._changed("sample")
            return self._blocked("opening", error)
        self._wanted = state.sample.path
        self._go_on("opening", error)

    def _go_on(self, doing: str, error: Exception) -> None:
        """What was asked for cannot be had: say so, and take up again the work that was stopped for it."""
        state = self.state
        self.explain(doing, error)
        self._changed("ready")
        if state.ready and (state.scores is None or not state.scores.complete):
            self.score_one()
        self.doctor.follow()

    def _blocked(self, doing: str, error: Exception) -> None:
        """Nothing can be computed until the user chooses something else."""
        if self._at_start and self._by_options(error):
            return self._give_up(str(error))
        self.explain(doing, error)
        self.state.problem = self.state.message
        self._changed("problem")
        self.doctor.follow()

    def _by_options(self, error: Exception) -> bool:
        """Whether a refusal is due to what the user asked for on the command line, so that every choice meets it."""
        options = self.session.options
        given = [path for path in (options.target, options.tokenizer) if path is not None]
        if isinstance(error, (DeviceError, WiringError)):
            return True
        if not isinstance(error, DrafterError):
            return False
        where = Path(error.where)
        named = error.where in (", ".join(map(str, options.samples)), *map(str, options.samples))
        return (named and isinstance(error, PathError)) or any(where == p or p in where.parents for p in given)

    def _sample_opened(self, result: tuple[Any, ...]) -> None:
        state, user = self.state, self.state.user_ordered
        state.forget_sample()
        state.sample, state.orderings, state.ordering, state.ordering_why = result[:4]
        state.counted, (state.configured, state.configured_why), state.trained = result[4:7]
        state.orderings_note, state.mask_facts, passed = result[7:]
        self._list_parts(state.sample)
        state.user_ordered = user and state.ordering_why == "chosen"
        # the first row that counts is where a person wants to look
        state.row = state.counted.index(True) if True in state.counted else 0
        if self._wanted_row is not None and self._wanted_row[0] == state.sample.path:
            state.row = min(self._wanted_row[1], max(state.sample.length - 2, 0))
        self._wanted_row = None
        self._changed("sample")
        if passed:
            self.say(f"opened {state.sample.path.name}, the first that can be: {passed}", "warn")
        self._load()
        self.doctor.follow()

    def _list_parts(self, sample: Any) -> None:
        """A file that turns out to hold several samples is listed as all of them."""
        samples = self.state.samples
        if sample.parts == 1 or samples is None:
            return
        number = samples.paths.find(sample.file)
        if number is not None:
            self.state.samples = replace(samples, paths=samples.paths.expanded(number, sample.parts))
            self._changed("samples")

    def _load(self) -> None:
        def work(job: Job) -> tuple[str, list[str], list[str]]:
            drafter = self.session.load(job.checkpoint)
            self.session.run(job.checkpoint)
            vocab = drafter.vocab(self.session.wiring)
            said = [f"read as {vocab.reading}", *map(str, vocab.tests)] + ([vocab.warning] if vocab.warning else [])
            return str(drafter.placement), said, self.session.view_said()

        def done(result: tuple[str, list[str], list[str]]) -> None:
            state = self.state
            state.placement, state.vocab, state.view_said = result
            state.trained_switches = self._switches(self.session.trained_wiring)
            state.switches = self._switches(self.session.wiring)
            self.wiring.look()
            state.ready, state.problem, self._at_start = True, "", False
            self._changed("ready")
            if self.session.vocab_warning or state.view_said:
                self.say(self.session.vocab_warning or state.view_said[0], "warn")
            self._probe()
            if state.sample is not None:
                self.score([state.sample.path])
            if state.samples is not None and not state.surveyed and len(state.samples.paths) <= _SURVEY_UNASKED:
                self.survey()
            self.doctor.follow()

        self.submit("loading weights", work, "load", CHOOSE, done, lambda error: self._blocked("loading", error))

    def _probe(self) -> None:
        def work(job: Job) -> tuple[Any, Any]:
            return self.session.probe(job.checkpoint), self.session.contradictions(job.checkpoint)

        def done(result: tuple[Any, Any]) -> None:
            self.state.probes, self.state.contradictions = result
            self._changed("probes")

        self.submit("looking at the slots", work, "probe", LOOK, done)

    # ------------------------------------------------------------------ many samples

    def survey(self) -> None:
        """Read ids and masks of every listed sample, and say what cannot be read; the list fills while it runs."""
        samples = self.state.samples
        if samples is None or not samples.paths:
            return
        paths = samples.paths

        def work(job: Job) -> tuple[list[Any], str]:
            last, sent = 0.0, 0

            def found(survey: Any) -> None:
                nonlocal last, sent
                if time.monotonic() - last >= _PROGRESS_SECONDS:
                    last = time.monotonic()
                    job.progress((survey.samples[sent:], survey_said(survey, complete=False)))
                    sent = len(survey.samples)

            survey = self.session.survey(paths, job.checkpoint, found)
            return survey.samples[sent:], survey_said(survey, complete=True)

        def show(result: tuple[list[Any], str]) -> None:
            self.state.surveyed |= {one.path: one for one in result[0]}
            self.state.survey_said = result[1]
            self._changed("survey")

        self.submit("reading ids and masks", work, "survey", SURVEY, show, progress=show)

    def mark(self, path: Path) -> None:
        """Mark a sample for a comparison; the second one marked is compared with the first, the same one unmarks it."""
        state = self.state
        if state.marked is None or state.marked == path:
            state.marked = None if state.marked == path else path
            self.say("" if state.marked is None else "marked: space on another recording compares the two")
            return self._changed("survey")
        self.compare(state.marked, path)

    def compare(self, ours: Path, theirs: Path) -> None:
        """Which slot of `theirs` is which of `ours`; both hold the same tokens."""

        def done(found: Any) -> None:
            self.state.comparison, self.state.marked = found, None
            self._changed("comparison")

        def failed(error: Exception) -> None:
            self.state.marked = None
            self.explain("comparing", error)
            self._changed("survey")

        self.submit(
            "comparing recordings",
            lambda job: self.session.compare_recordings(ours, theirs, job.checkpoint),
            "compare",
            CURSOR,
            done,
            failed,
        )

    # ------------------------------------------------------------------ the step view

    def choose_ordering(self, ordering: Ordering, why: str = "chosen") -> None:
        """Make an ordering current everywhere."""
        self.state.user_ordered = True
        self._make_current(ordering, why)

    def _make_current(self, ordering: Ordering, why: str) -> None:
        self.engine.cancel("miss", wiring.GROUP, pool.GROUP)
        self.accept.forget()
        self.state.ordering, self.state.ordering_why = ordering, why
        self.state.step = None
        self.state.tries.forget()
        self._changed("ordering")

    def cycle_ordering(self, step: int) -> None:
        """The next ordering: trained, configured and best first, then the rest in order."""
        state = self.state
        if state.ordering is None:
            return
        special = [state.trained, state.configured, state.best]
        order = list(dict.fromkeys([o for o in special if o is not None] + state.orderings))
        where = order.index(state.ordering) if state.ordering in order else 0
        self.choose_ordering(order[(where + step) % len(order)])

    def look_at(self, row: int, window: Sequence[int]) -> None:
        """Compute what the step view shows: the cursor's row first, then the rows on screen, then other orderings.

        What is there, or already asked for, is not asked for again.
        """
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

        self.submit_once(
            "drafting",
            lambda job: self.session.step(row + 2, ordering, job.checkpoint),
            "cursor",
            CURSOR,
            done,
            (row, ordering),
        )

    def _rows(self, rows: list[int], ordering: Ordering) -> None:
        def done(found: Any) -> None:
            self.state.rows.setdefault(ordering, {}).update({r.row: r for r in found})
            self._changed("rows")

        self.submit_once(
            "drafting",
            lambda job: self.session.rows(ordering, rows, job.checkpoint),
            "rows",
            WINDOW,
            done,
            (rows, ordering),
        )

    def _others(self, row: int) -> None:
        orderings = list(self.state.orderings)

        def done(found: dict[Ordering, int]) -> None:
            self.state.others[row] = found
            self._changed("others")

        self.submit_once(
            "other orderings",
            lambda job: self.session.at_row(orderings, row, job.checkpoint),
            "others",
            OTHERS,
            done,
            row,
        )

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

        self.submit("looking for a miss", work, "miss", CURSOR, done)

    # ------------------------------------------------------------------ scores

    def score(self, paths: Sequence[Path]) -> None:
        """Score every ordering on `paths`; the table fills while it runs."""
        state = self.state
        if not state.ready:
            return self.say(state.problem or "the drafter is not loaded yet", "warn")
        orderings = self._promising_first()
        pooled = len(paths) > 1

        def work(job: Job) -> Scores:
            return scored(job, self.session, paths, orderings, pooled)

        def show(scores: Scores) -> None:
            state.scores = scores
            state.keep_sample_scores(scores.result)
            self._changed("score")

        def done(scores: Scores) -> None:
            show(scores)
            known = state.user_ordered or state.trained is not None or self.session.asked_ordering
            if not known and scores.best is not None and scores.best != state.ordering:
                self._make_current(scores.best, "best of all; no config says what was trained")
                if state.message_kind == "" or not state.message:
                    self.say(f"fc = {ordering_name(scores.best)}: {state.ordering_why}")

        def failed(error: Exception) -> None:
            self.explain("scoring", error)
            self._changed("score")

        state.scores = None
        self.submit("scoring", work, "score", SWEEP, done, failed, progress=show)
        self._changed("score")

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

    # ------------------------------------------------------------------ the wiring

    def set_switch(self, name: str, value: str | None) -> None:
        """Put one value of a switch in force; everything computed under the old wiring is dropped."""
        self._rewire(lambda: self.session.set_switch(name, value))

    def reset_switches(self) -> None:
        """Every switch as the view has it."""

        def work() -> None:
            for name in list(self.session.switched()):
                self.session.set_switch(name, None)

        self._rewire(work)

    def cycle_mask(self) -> None:
        """The next mask mode: which rows count."""
        mode = MASK_MODES[(MASK_MODES.index(self.session.options.mask) + 1) % len(MASK_MODES)]
        self._rewire(lambda: self.session.set_mask(mode))
        self.say(f"mask {mode}: rows count by {_MASK_WORDS[mode]}")

    def cycle_supervised(self) -> None:
        """The next source of the loss mask: as recorded, every token, by the marks of the chat's roles."""
        state, now = self.state, self.session.options.supervised
        if state.sample is None:
            return
        how = SUPERVISED[(SUPERVISED.index(now) + 1) % len(SUPERVISED)] if now in SUPERVISED else SUPERVISED[0]
        path = state.sample.path
        self._stop_work()

        def work(job: Job) -> Any:
            self.session.set_supervised(how)

        def done(_: Any) -> None:
            self.say(f"loss mask: {_SUPERVISED_WORDS[how]}")
            self._open_sample(path)

        self.submit("loss mask", work, "sample", CHOOSE, done, lambda error: self._go_on("loss mask", error))

    def _rewire(self, change: Callable[[], object]) -> None:
        self._stop_work()

        def work(job: Job) -> tuple[dict[str, str], list[bool]]:
            change()
            counted = self.session.counted() if self.session.has_sample else []
            return self._switches(self.session.wiring), counted

        def done(result: tuple[dict[str, str], list[bool]]) -> None:
            state = self.state
            state.forget_results()
            state.forget_sample_scores()
            state.switches, state.counted = result
            if not state.placement:
                return self._load()  # what stood in the way may have been a switch
            state.ready = True
            self._changed("wiring")
            self._changed("ordering")
            if state.sample is not None:
                self.score([state.sample.path])
            self.doctor.follow()

        self.submit("wiring", work, "wiring", CHOOSE, done, lambda error: self._go_on("wiring", error))

    @staticmethod
    def _switches(wiring: Wiring) -> dict[str, str]:
        return {name: wiring.value(name) for name in SWITCHES}

    # ------------------------------------------------------------------ looking and leaving

    def statistics(self, name: str) -> None:
        def done(found: Any) -> None:
            self.state.statistics = found
            self._changed("statistics")

        self.submit(
            f"reading {safe(name, 40)}",
            lambda job: self.session.statistics(name, job.checkpoint),
            "statistics",
            LOOK,
            done,
        )

    def export(self, folder: Path) -> None:
        def done(paths: list[Path]) -> None:
            self.say(f"exported {paths[0]} and .json beside it")

        self.submit("exporting", lambda job: self.session.export(folder), "export", CHOOSE, done)

    def cancel(self) -> bool:
        """Stop what takes long; True if there was something to stop."""
        stopped = self.engine.cancel(*_STOPPABLE)
        if not stopped:
            return False
        groups = {job.group for job in stopped}
        if "load" in groups:
            self.state.problem = "loading was stopped: enter on a checkpoint or sample begins it again"
            self._changed("problem")
        if "score" in groups:
            self._changed("score")
        self.accept.stopped(groups)
        self.wiring.stop(groups)
        if pool.GROUP in groups:
            self._changed("pool")
        self.doctor.stopped(groups)
        self.say(f"stopped: {', '.join(job.name for job in stopped)}")
        return True

    def look_from(self, view: str) -> None:
        """A view comes on screen: what it shows goes first."""
        self.engine.hasten(*_SHOWN.get(view, ()))

    def working(self) -> str:
        """What takes time at this moment, how far it is, and what esc does; empty while nothing runs."""
        jobs = self.engine.jobs
        if not jobs:
            return ""
        # a draft of some milliseconds in the middle of a sweep is no news
        long = [job for job in jobs if job.group in _STOPPABLE]
        job = (long or jobs)[-1]
        far, count = self._how_far(job.group), sum(map(self.engine.expects, _STOPPABLE))
        stops = f"  esc stops it{f' and {count - 1} more' * (count > 1)}" if long else ""
        far = f" {far}" if far and job.group == DOCTOR else f": {far}" if far else ""
        return f"{job.name}{far} …{stops}"

    def _how_far(self, group: str) -> str:
        state = self.state
        scores = {"score": state.scores, pool.GROUP: state.pool}.get(group)
        if scores is not None:
            return f"{scores.result.done} of {scores.result.planned}"
        said = {
            wiring.GROUP: state.tries.said,
            DOCTOR: state.doctor.checking,
            "views": f"{state.serving.done} of {state.serving.planned}" if state.serving.planned else "",
            "survey": f"{len(state.surveyed)} of {len(state.samples.paths)}" if state.samples is not None else "",
            RUNS: f"{state.compare.done} of {len(state.compare.lines)}" if state.compare.lines else "",
            PAIR: "{} of {}".format(*state.compare.read[:2]) if state.compare.read[1] else "",
            TOKENS: state.compare.ran,
            **{part: state.accept.how_far(part) for part in ACCEPT},
        }
        return said.get(group, "")

    # ------------------------------------------------------------------ plumbing

    def tell(self, what: str) -> None:
        """Tell the views which part of the state is new."""
        self._changed(what)

    def say(self, text: str, kind: str = "") -> None:
        self.state.message, self.state.message_kind = text, kind
        self._changed("message")

    def _stop_work(self) -> None:
        self.engine.cancel(*_WORK)

    def submit(
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

    def submit_once(
        self,
        name: str,
        work: Callable[[Job], Any],
        group: str,
        priority: int,
        done: Callable[[Any], None],
        asked: object,
    ) -> None:
        """Submit, unless the group's newest job is still wanted and was asked for the same."""
        if self.engine.expects(group) and self._asked.get(group) == asked:
            return

        def failed(error: Exception) -> None:
            self.explain(name, error)
            self._changed("step")

        self._asked[group] = asked
        self.submit(name, work, group, priority, done, failed)

    def _failed(self, job: Job, error: Exception) -> None:
        self.explain(job.name, error)

    def explain(self, doing: str, error: Exception) -> None:
        """A refusal says it all; anything else is a fault of ours, and goes into the log as well."""
        if isinstance(error, DrafterError):
            return self.say(str(error), "bad")
        self.session.note_failure(doing, error, "".join(traceback.format_exception(error)))
        self.say(f"{doing} failed: {type(error).__name__}: {safe(error, 200)}", "bad")


def survey_said(survey: Any, *, complete: bool) -> str:
    """What a survey counted, in one line."""
    unread = f", {survey.unreadable} cannot be read" if survey.unreadable else ""
    empty = f" ({survey.empty} of them empty)" if survey.empty else ""
    without = f", {survey.without_mask} without a loss mask" if survey.without_mask else ""
    none = f", {survey.unsupervised} without a supervised token" if survey.unsupervised else ""
    said = (
        f"{survey.readable} read: {survey.tokens} tokens, {survey.supervised} supervised{without}{none}{unread}{empty}"
    )
    return said if complete else f"so far {said}"
