"""The Doctor view's part of the controller: what is wrong with the checkpoint, its samples and a server's flags.

Begins by itself: the quick checks of the files once a sample is open or cannot be had, the others after everything
else. What was stopped stays stopped until `again`. A checkpoint that cannot be opened is looked at all the same, as
long as no other one is open.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.checks.finding import HEALTHY, UNKNOWN, Finding, NotChecked, ranked
from drafter.checks.verdict import verdict_of
from drafter.errors import DrafterError
from eagle3_tui.worker import warm_torch

if TYPE_CHECKING:
    from drafter.files.find import Found
    from drafter.serving.flags import Asked as Flags
    from drafter.serving.server_log import ServerLog
    from eagle3_tui.controller import Controller
    from eagle3_tui.worker import Job

GROUP = "checks"  # of its jobs
_FILES, _ALL = 1, 2  # parts that are done
_QUICK, _LAST = 1, -20  # priorities: just before a sweep, and after everything
_STATIC, _MEASURED = ("static",), ("sample", "forward", "weights")
_PROGRESS_SECONDS = 0.2


@dataclass(frozen=True)
class Asked:
    """What the checks are about; other findings follow from another one. `sample` is None for all listed ones.

    `flags` are those that the server's log tells where no line was typed, `server` is the log's where none was named.
    `switches` are those that were set on the trained wiring when the user asked: trying one elsewhere begins no checks.
    """

    found: Found
    sample: Path | None
    mask: str
    supervised: str
    line: str
    server: str
    served: float | None
    rates: tuple[float, ...] = ()
    flags: Flags | None = None
    switches: tuple[tuple[str, str], ...] = field(default=(), compare=False)


@dataclass
class DoctorState:
    """What the Doctor view shows; everything is empty until it is known.

    `findings` are most severe first; `done` counts the parts that are: the files, then all. `checking` is the check
    that runs, `samples` how many were given to the checks, `problem` why no check could be made. `unopened`: it is
    about a checkpoint that cannot be opened.
    """

    asked: Asked | None = None
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    verdict: str = ""
    verdict_kind: str = ""
    samples: int = 0
    unopened: bool = False
    done: int = 0
    checking: str = ""
    stopped: bool = False
    problem: str = ""

    @property
    def complete(self) -> bool:
        return self.done == _ALL

    @property
    def ill(self) -> bool:
        """Whether the verdict is that something is wrong."""
        return self.verdict_kind not in ("", HEALTHY, UNKNOWN)


@dataclass(frozen=True)
class _News:
    """How far a run of checks is."""

    checking: str
    findings: tuple[Finding, ...]


class DoctorControl:
    """Submits jobs through the controller and puts their results into `state.doctor`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._all_samples = False
        self.refused: Found | None = None  # the checkpoint that could not be opened last

    @property
    def _state(self) -> DoctorState:
        return self._controller.state.doctor

    # ------------------------------------------------------------------ when

    def follow(self) -> None:
        """Check what is open now: anew if that is something else, or what is not checked yet."""
        asked, doctor = self._asked(), self._state
        if asked is None:
            return
        if asked != doctor.asked:
            first = doctor.asked is None  # what the command line sets is what the user asked for
            self._begin(replace(asked, switches=self._controller.session.options.switches if first else ()))
        elif not (doctor.complete or doctor.stopped or doctor.problem or self._controller.engine.expects(GROUP)):
            self._run(doctor.done)

    def forget(self) -> None:
        """Another checkpoint is open."""
        self._controller.engine.cancel(GROUP)
        self._controller.state.doctor = DoctorState()
        self.refused = None

    def again(self) -> None:
        """Check once more, with the sample that is open and the switches that are set."""
        pooled = self._all_samples and self._state.asked is not None
        self._restart(all_samples=False)
        sample = self._controller.state.sample
        if pooled and sample is not None:
            self._controller.say(f"checking with {sample.path.name} alone: a checks all listed samples")

    def check_all(self) -> None:
        """Check with all listed samples, as many as the checks take."""
        self._restart(all_samples=True)

    def _restart(self, all_samples: bool) -> None:
        state = self._controller.state
        if all_samples and (state.samples is None or not len(state.samples.paths)):
            return self._controller.say(state.problem or "no samples", "warn")
        self._all_samples = all_samples
        asked = self._asked()
        if asked is None:
            return self._controller.say(state.problem or "no checkpoint opened yet", "warn")
        self._begin(replace(asked, switches=self._switched()))

    def stopped(self, groups: set[str]) -> None:
        """The user stopped jobs of these groups."""
        if GROUP in groups:
            self._state.stopped, self._state.checking = True, ""
            self._controller.tell("checks")

    def _asked(self) -> Asked | None:
        state, options = self._controller.state, self._controller.session.options
        found = state.chosen or self.refused
        if found is None or not (state.sample is not None or state.problem):
            return None  # the sample is on its way
        sample = state.sample.path if state.sample is not None and not self._all_samples else None
        serving, log = state.serving, state.serving.log
        line = serving.line if serving.asked is not None and serving.asked.speculates else ""
        served, rates = (log.mean, log.per_position) if log is not None else (None, ())
        server = serving.server or _server_of(log, line)
        flags = log.asked if log is not None and not line else None
        if flags is not None and not flags.speculates:
            flags = None
        return Asked(found, sample, options.mask, options.supervised, line, server, served, rates, flags)

    def _switched(self) -> tuple[tuple[str, str], ...]:
        """The switches in force that are not as trained."""
        state = self._controller.state
        return tuple((n, v) for n, v in state.switches.items() if state.trained_switches.get(n) != v)

    # ------------------------------------------------------------------ jobs

    def _begin(self, asked: Asked) -> None:
        self._controller.engine.cancel(GROUP)
        self._controller.state.doctor = DoctorState(asked)
        self._run(0)

    def _run(self, done: int) -> None:
        """The part after the first `done`."""
        controller, state, doctor = self._controller, self._controller.state, self._state
        asked = doctor.asked
        assert asked is not None
        listed: Sequence[Path] = state.samples.paths if state.samples is not None else ()
        doctor.unopened = state.chosen is None
        paths = [] if doctor.unopened else [asked.sample] if asked.sample is not None else listed
        why = state.samples.why if state.samples is not None else state.problem
        before, before_skipped = (doctor.findings, doctor.not_checked) if done else ((), ())
        doctor.samples = len(paths)

        def work(job: Job) -> tuple[list[Finding], tuple[NotChecked, ...], str, str]:
            if "torch" not in sys.modules:
                warm_torch(job)
            news = _Reporter(job, before)
            report = controller.session.check(
                asked.found,
                paths,
                news.poll,
                on_finding=news.found,
                on_check=news.check,
                flags=asked.line or asked.flags,
                server=asked.server or None,
                served=asked.served,
                rates=asked.rates,
                switches=dict(asked.switches),
                stages=_MEASURED if done else _STATIC,
                samples_why=why,
            )
            findings, skipped = ranked((*before, *report.findings)), (*before_skipped, *report.not_checked)
            kind, verdict = verdict_of(findings, skipped)
            return findings, skipped, kind, verdict

        def put(result: tuple[list[Finding], tuple[NotChecked, ...], str, str]) -> None:
            found, doctor.not_checked, doctor.verdict_kind, doctor.verdict = result
            doctor.findings, doctor.done, doctor.checking = tuple(found), done + 1, ""
            controller.tell("checks")
            if not doctor.complete:
                self._run(doctor.done)

        def show(news: _News) -> None:
            new = news.findings != doctor.findings
            doctor.checking, doctor.findings = news.checking, news.findings
            if new:  # the status line looks by itself
                controller.tell("checks")

        def failed(error: Exception) -> None:
            doctor.problem, doctor.checking = str(error) or type(error).__name__, ""
            if not isinstance(error, DrafterError):
                controller.explain("checking", error)
            controller.tell("checks")

        priority = _LAST if done else _QUICK
        controller.submit("checking", work, GROUP, priority, put, failed, show)
        controller.tell("checks")


def _server_of(log: ServerLog | None, line: str) -> str:
    """The server that wrote the log: its version, else the engine alone; a launch line tells its engine itself."""
    if log is None:
        return ""
    if log.version:
        return f"{log.engine}@{log.version}"
    return log.engine if not line else ""


class _Reporter:
    """Tells of checks and findings while they are made, now and then."""

    def __init__(self, job: Job, before: Sequence[Finding]) -> None:
        self._job, self._findings, self._checking = job, list(before), ""
        self._last, self._told = 0.0, True

    def check(self, name: str) -> None:
        self._checking, self._told = name, False
        self._tell()

    def found(self, finding: Finding) -> None:
        self._findings.append(finding)
        self._told = False
        self._tell()

    def poll(self) -> None:
        self._tell()
        self._job.checkpoint()

    def _tell(self) -> None:
        now = time.monotonic()
        if not self._told and now - self._last >= _PROGRESS_SECONDS:
            self._last, self._told = now, True
            self._job.progress(_News(self._checking, tuple(ranked(self._findings))))
