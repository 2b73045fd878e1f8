"""The Serving view's part of the controller: its jobs, and what they found.

The served views are of the sample that is open and go with it; the launch line, the log and the speeds that somebody
typed stay for the session, and are read again when another checkpoint, or one of them, changes what they mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError, FileError, PathError, WiringError
from drafter.files.path import there

if TYPE_CHECKING:
    from drafter.serving.effective import Effective
    from drafter.serving.expect import Expectation
    from drafter.serving.flags import Asked
    from drafter.serving.server_log import ServerLog
    from eagle3_tui.controller import Controller
    from eagle3_tui.worker import Job

Json = dict[str, Any]
_PRIORITY, _SWEEP = 50, 0  # of what was typed, and of the views: as choosing, and as a sweep
_PROGRESS_SECONDS = 0.2
_QUOTES = "'\""


@dataclass
class ServingState:
    """What the Serving view shows; everything is None or empty until it is known.

    `views` is what `views --json` says, of what has been scored so far: `done` of `planned` scores; `views_problem` is
    why there is none. `line` and `server` are as typed; `asked` and `made` are of the line, `log_made` of the flags
    that the log itself tells. `speeds` is as typed, `expected` what follows from it.
    """

    views: Json | None = None
    views_asked: bool = False
    views_pooled: bool = False
    views_problem: str = ""
    done: int = 0
    planned: int = 0
    line: str = ""
    server: str = ""
    asked: Asked | None = None
    made: Effective | None = None
    log_path: Path | None = None
    log: ServerLog | None = None
    log_asked: Asked | None = None
    log_made: Effective | None = None
    speeds: str = ""
    expected: Expectation | None = None
    read_for: Path | None = None  # the checkpoint that `made` and `log_made` are for

    @property
    def round(self) -> Effective | None:
        """What a round of the server is: by the line that was typed, else by the log."""
        return self.made or self.log_made

    @property
    def drafts(self) -> int | None:
        """How many draft steps a round has, where that is fixed and known."""
        return None if self.round is None or self.round.varies else self.round.steps

    @property
    def longest(self) -> int | None:
        """The longest accept length that the flags allow, where that is fixed and known."""
        return None if self.round is None or self.round.varies else self.round.max_accept_length

    def forget_views(self) -> None:
        """Drop what belongs to the sample and the weights."""
        self.views, self.views_asked, self.views_pooled, self.views_problem = None, False, False, ""
        self.done = self.planned = 0


class ServingControl:
    """Submits jobs through the controller and puts their results into `state.serving`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def _state(self) -> ServingState:
        return self._controller.state.serving

    # ------------------------------------------------------------------ served views

    def start(self, again: bool = False) -> None:
        """Score the served views on this sample, if nobody asked for any yet; with `again` also those that were stopped
        halfway."""
        whole, state = self._controller.state, self._state
        halfway = again and not state.views_problem and (state.views is None or state.done < state.planned)
        wanted = (halfway or not state.views_asked) and not self._controller.engine.expects("views")
        if wanted and whole.ready and whole.sample is not None:
            self._score([whole.sample.path], pooled=False)

    def score_one(self) -> None:
        """The served views on this sample."""
        sample = self._controller.state.sample
        if self._can_score() and sample is not None:
            self._score([sample.path], pooled=False)

    def score_all(self) -> None:
        """The served views on every listed sample, pooled."""
        samples = self._controller.state.samples
        if self._can_score() and samples is not None:
            self._score(samples.paths, pooled=True)

    def _can_score(self) -> bool:
        whole = self._controller.state
        if not whole.ready:
            self._controller.say(whole.problem or "the drafter is not loaded yet", "warn")
        return whole.ready

    def _score(self, paths: Sequence[Path], pooled: bool) -> None:
        state = self._state
        state.forget_views()
        state.views_asked, state.views_pooled = True, pooled

        def work(job: Job) -> tuple[Json, int, int]:
            from drafter.views import ViewsResult, views_json

            growing: list[ViewsResult] = []
            last = 0.0

            def progress(done: int, planned: int) -> None:
                nonlocal last
                if time.monotonic() - last >= _PROGRESS_SECONDS:
                    last = time.monotonic()
                    job.progress((views_json(growing[0]), done, planned))

            def begun(result: ViewsResult) -> None:
                growing.append(result)
                progress(0, len(paths) * len(result.scores.keys))

            found = self._controller.session.views(paths, (), progress, job.checkpoint, begun)
            return views_json(found), 1, 1

        def show(result: tuple[Json, int, int]) -> None:
            state.views, state.done, state.planned = result
            self._controller.tell("served views")

        def failed(error: Exception) -> None:
            state.views_problem = str(error) if isinstance(error, DrafterError) else "see the message below"
            self._controller.explain("scoring served views", error)
            self._controller.tell("served views")

        self._controller.submit("scoring served views", work, "views", _SWEEP, show, failed, progress=show)
        self._controller.tell("served views")

    # ------------------------------------------------------------------ what was typed

    def set_line(self, text: str) -> None:
        """A launch line, or `@FILE` with one in it."""
        text = text.strip()
        if text.endswith("\\"):
            said = "the line ends in a backslash: of a paste only the first line arrives; make it one line, or @FILE"
            return self._controller.say(said, "warn")
        self._read_flags("@" + str(_path(text[1:])) if text.startswith("@") else text, self._state.server)

    def set_server(self, text: str) -> None:
        """The server and its version, from now on."""
        self._read_flags(self._state.line, text.strip().lower())

    def checkpoint_changed(self) -> None:
        """What a server makes of flags depends on the drafter: read them again if another one is open."""
        state, chosen = self._state, self._controller.state.chosen
        if state.round is not None and (chosen.path if chosen is not None else None) != state.read_for:
            self._read_flags(state.line, state.server)

    def _read_flags(self, line: str, server: str) -> None:
        state, chosen = self._state, self._controller.state.chosen

        def work(job: Job) -> tuple[Any, ...]:
            from drafter.serving.flags import Asked

            if line.startswith("@"):
                _check_file(Path(line[1:]))
            session, told = self._controller.session, state.log_asked
            if server and not line:
                session.serving_flags(Asked(), server)  # which refuses one without rules
            found = session.serving_flags(line, server) if line else (None, None)
            from_log = session.serving_flags(told, server)[1] if told is not None and not line else None
            return *found, from_log

        def done(result: tuple[Any, ...]) -> None:
            state.line, state.server = line, server
            state.asked, state.made, state.log_made = result
            state.read_for = chosen.path if chosen is not None else None
            self._controller.tell("serving")
            if state.log_path is not None:
                self._read_log(state.log_path)  # the flags and the version say what its numbers mean
            else:
                self._expect(state.speeds)

        self._submit("reading the flags", work, "serving flags", done)

    def read_log(self, text: str) -> None:
        """A server's log, a saved /metrics page, or its JSON."""
        self._read_log(_path(text))

    def _read_log(self, path: Path) -> None:
        state, chosen = self._state, self._controller.state.chosen

        def work(job: Job) -> tuple[Any, ...]:
            _check_file(path)
            session, made, server = self._controller.session, state.made, state.server
            known = server or (made.server.partition("@")[0] if made is not None else "")
            log = session.server_log(path, known, made.draft_tokens if made is not None else None, job.checkpoint)
            if log.asked is None or made is not None:
                return log, None
            own = f"{log.engine}@{log.version}" if log.version else log.engine
            return log, session.serving_flags(log.asked, server or own)[1]

        def done(result: tuple[Any, ...]) -> None:
            state.log_path, (state.log, state.log_made) = path, result
            state.log_asked = state.log.asked if state.log is not None else None
            if state.made is None:
                state.read_for = chosen.path if chosen is not None else None
            self._controller.tell("serving")
            self._expect(state.speeds)

        self._submit(f"reading {path.name}", work, "server log", done)

    def set_speeds(self, text: str) -> None:
        """`90 46.7@1.9/1`: the speed without drafts, then measured points; `cost=0.1` for that of one draft step."""
        self._expect(text)

    def _expect(self, text: str) -> None:
        state = self._state
        if not text:
            return

        def work(job: Job) -> Expectation:
            base, points, cost = _speeds(text, state)
            return self._controller.session.expect(base, points, state.longest, cost)

        def done(result: Expectation) -> None:
            state.speeds, state.expected = text, result
            self._controller.tell("serving")

        self._submit("expecting a speed", work, "expected speed", done)

    def _submit(self, name: str, work: Callable[[Job], Any], group: str, done: Callable[[Any], None]) -> None:
        """What was typed before stays in force where the new cannot be had."""
        self._controller.submit(name, work, group, _PRIORITY, done, lambda error: self._controller.explain(name, error))


def _path(text: str) -> Path:
    """A path as it was typed or pasted: quotes and `~` as a shell takes them."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in _QUOTES:
        text = text[1:-1]
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user
        return Path(text)


def _check_file(path: Path) -> None:
    """Refuse what is not there, and what reading would wait at for ever, such as a pipe that nobody writes to."""
    if not there(path):
        raise PathError("no such file", where=path)
    if not (path.is_file() or path.is_dir()):
        raise FileError("not a file", expected="a text file", where=path)


def _speeds(text: str, state: ServingState) -> tuple[float, list[Any], float | None]:
    """Base speed, points and the cost of a draft step of what was typed. Raises WiringError."""
    from drafter.serving.expect import Measured, parse_point

    first, *rest = text.replace(",", " ").split() or [""]
    costs = [word.partition("=")[2] for word in rest if word.startswith("cost=")]
    try:
        base, cost = float(first), float(costs[-1]) if costs else None
    except ValueError as error:
        expected = "tokens/s without drafts, then points, e.g. 90 46.7@1.9/1; cost=0.2 for a draft step"
        raise WiringError(f"the speeds {text!r:.60}", expected=expected) from error
    points = [parse_point(word, state.drafts) for word in rest if not word.startswith("cost=")]
    log = state.log
    if not points and log is not None and log.speed is not None:
        points = [Measured(log.speed, log.mean, state.drafts)]
    if not points:
        raise WiringError(
            "no point", expected="TOK/S@LENGTH[/DRAFTS] after the base speed, or a log of one request at a time"
        )
    return base, points, cost
