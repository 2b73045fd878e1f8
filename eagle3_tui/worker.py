"""Engine: one thread for everything that takes time, so that the screen never waits and quitting never hangs.

Jobs are queued by group and priority. In a group only the newest job counts: submitting again cancels the one before,
and nothing of a cancelled job reaches the screen. Work calls `job.checkpoint()` often; there it is cancelled, and
there more urgent jobs run before it goes on, so the row under the cursor is answered in the middle of a long sweep
(whatever a work function shares with other jobs must be consistent at its checkpoints). Of the jobs that are not
urgent, those of hastened groups come first: what is on screen goes before what was looked at earlier.

Callbacks run where `EngineEvent.deliver` is called, the UI thread. It does NOT know sessions, tensors or widgets.
An own daemon thread, because Textual's thread workers keep the process alive for as long as they compute.
"""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from textual.message import Message

from drafter.errors import Cancelled

T = TypeVar("T")
Kind = Literal["done", "error", "progress"]

PROGRESS_SECONDS = 0.1
URGENT = 11  # priorities from here on are as they are; below, `hasten` adds _HASTE
_HASTE = 25


class Job:
    """One piece of work: what its function is given, and what `submit` returns to whoever wants to cancel it."""

    def __init__(self, engine: Engine, name: str, work: Callable[[Job], Any], group: str, priority: int, number: int):
        self.name = name
        self.group = group
        self._given_priority = priority
        self.trace = ""  # the traceback of a failed job, for a log file
        self._engine = engine
        self._work = work
        self._number = number
        self._cancelled = False
        self._progress: object = None
        self._progress_waits = False
        self._progress_at = 0.0
        self._on_done: Callable[[Any], None] | None = None
        self._on_error: Callable[[Exception], None] | None = None
        self._on_progress: Callable[[Any], None] | None = None

    def __repr__(self) -> str:
        return f"<Job {self.name!r} of {self.group!r}{', cancelled' if self._cancelled else ''}>"

    @property
    def priority(self) -> int:
        """How urgent it is at this moment: it may change while the job waits, or runs."""
        given = self._given_priority
        return given + _HASTE if given < URGENT and self.group in self._engine.hastened else given

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted."""
        return self._cancelled

    def cancel(self) -> None:
        """Nothing of this job is delivered from now on; if it runs, its next checkpoint ends it."""
        self._engine._cancel_job(self)

    def checkpoint(self) -> None:
        """To be called every few milliseconds of work: raises `Cancelled`, or runs what is more urgent and returns."""
        if not self._cancelled:
            self._send_progress()
            self._engine._run_urgent(self)
        if self._cancelled:
            raise Cancelled(self.name)

    def progress(self, value: object) -> None:
        """Tell `on_progress`, at most ten times a second; the last value always arrives."""
        self._progress = value
        self._progress_waits = True
        self._send_progress()

    def _send_progress(self, last: bool = False) -> None:
        now = time.monotonic()
        if self._progress_waits and (last or now - self._progress_at >= PROGRESS_SECONDS):
            self._progress_waits = False
            self._progress_at = now
            if self._on_progress is not None:
                self._engine._send(self, "progress", self._progress)


class EngineEvent(Message, bubble=False):
    """News of a job, posted from the engine's thread; the app's handler is `event.deliver()`."""

    def __init__(self, job: Job, kind: Kind, payload: object) -> None:
        super().__init__()
        self.job = job
        self.kind = kind
        self.payload = payload

    def deliver(self) -> None:
        """Call the job's callback, unless the job was cancelled or replaced since."""
        job = self.job
        if job.cancelled:
            return
        if self.kind == "progress":
            if job._on_progress is not None:
                job._on_progress(self.payload)
            return
        job._engine._forget(job)
        if self.kind == "done" and job._on_done is not None:
            job._on_done(self.payload)
        elif self.kind == "error" and isinstance(self.payload, Exception):
            if job._on_error is not None:
                job._on_error(self.payload)
            elif job._engine.on_error is not None:
                job._engine.on_error(job, self.payload)


class Engine:
    """The thread and its queue. Every method may be called from any thread and returns at once, except the waits."""

    def __init__(
        self, post: Callable[[EngineEvent], object], on_error: Callable[[Job, Exception], None] | None = None
    ) -> None:
        """`post` hands an event to the UI thread, from any thread. `on_error` is told of failed jobs without their own
        `on_error`."""
        self.on_error = on_error
        self.hastened: frozenset[str] = frozenset()  # replaced whole, by `hasten`
        self._post = post
        self._changed = threading.Condition(threading.RLock())
        self._queue: list[Job] = []
        self._newest: dict[str, Job] = {}
        self._stack: list[Job] = []  # running jobs, each interrupted by the one after it
        self._numbers = itertools.count()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def submit(
        self,
        name: str,
        work: Callable[[Job], T],
        *,
        group: str,
        priority: int = 0,
        on_done: Callable[[T], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> Job:
        """Queue `work` in place of the group's job before it. A greater `priority` is taken first, then the older.

        After `stop` the job comes back cancelled.
        """
        job = Job(self, name, work, group, priority, next(self._numbers))
        job._on_done, job._on_error, job._on_progress = on_done, on_error, on_progress
        with self._changed:
            self.cancel(group)
            if self._stopping:
                job._cancelled = True
                return job
            self._newest[group] = job
            self._queue.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return job

    def cancel(self, *groups: str) -> list[Job]:
        """Cancel the jobs of these groups, or every job; returns those that there were."""
        with self._changed:
            jobs = [job for group, job in self._newest.items() if not groups or group in groups]
            for job in jobs:
                self._cancel_job(job)
        return jobs

    def hasten(self, *groups: str) -> None:
        """From now on jobs of these groups, and of no others, go before all that are not urgent."""
        self.hastened = frozenset(groups)

    def expects(self, group: str) -> bool:
        """Whether a job of the group waits, runs, or has a result that is not delivered yet."""
        with self._changed:
            return group in self._newest

    @property
    def busy(self) -> bool:
        """Whether a job runs or waits."""
        with self._changed:
            return bool(self._queue or self._stack)

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the running jobs; each was interrupted by the one after it."""
        return tuple(job.name for job in self.jobs)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The running jobs themselves."""
        with self._changed:
            return tuple(self._stack)

    def wait_idle(self, timeout: float = 10.0) -> bool:
        """Wait until no job runs or waits (its events may still be on their way); False when time is up."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queue or self._stack), timeout)

    def stop(self, timeout: float = 1.0) -> bool:
        """Cancel everything and wait for the thread to end.

        False when it still computes: then leave by `os._exit`, since a daemon thread inside torch aborts the
        interpreter's shutdown.
        """
        with self._changed:
            self._stopping = True
            self.cancel()
            self._changed.notify_all()
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # On the engine's thread

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if self._stopping:
                    return
                job = self._take()
            if job is not None:
                self._execute(job)

    def _take(self, above: int | None = None) -> Job | None:
        """The most urgent job of the queue, put on the stack; with `above`, only one more urgent than that."""
        with self._changed:
            job = max(self._queue, key=lambda job: (job.priority, -job._number), default=None)
            if job is None or (above is not None and job.priority <= above):
                return None
            self._queue.remove(job)
            self._stack.append(job)
            return job

    def _run_urgent(self, interrupted: Job) -> None:
        if threading.current_thread() is not self._thread:
            return  # a helper thread of the work: it may only ask whether it is cancelled
        while not interrupted.cancelled and (job := self._take(above=interrupted.priority)) is not None:
            self._execute(job)

    def _execute(self, job: Job) -> None:
        try:
            kind, payload = self._outcome(job)
            if kind is not None:
                job._send_progress(last=True)
                self._send(job, kind, payload)
        finally:
            with self._changed:
                self._stack.remove(job)
                self._changed.notify_all()

    def _outcome(self, job: Job) -> tuple[Kind | None, object]:
        try:
            return "done", job._work(job)
        except Cancelled:
            self._forget(job)
            return None, None
        except BaseException as error:  # this thread serves every screen: no job may end it, whatever it raises
            job.trace = traceback.format_exc()
            traceback.clear_frames(error.__traceback__)  # the frames hold tensors for as long as the error is kept
            return "error", error if isinstance(error, Exception) else RuntimeError(repr(error))

    def _send(self, job: Job, kind: Kind, payload: object) -> None:
        if job.cancelled:
            return
        try:
            self._post(EngineEvent(job, kind, payload))
        except RuntimeError:  # the app's loop is closed: nobody is left to be told
            job._cancelled = True

    # Bookkeeping

    def _cancel_job(self, job: Job) -> None:
        with self._changed:
            job._cancelled = True
            if job in self._queue:
                self._queue.remove(job)
            self._forget(job)
            self._changed.notify_all()

    def _forget(self, job: Job) -> None:
        with self._changed:
            if self._newest.get(job.group) is job:
                del self._newest[job.group]


def cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def warm_torch(job: Job) -> str:
    """Work that makes torch ready for use without stalling the screen; returns its version.

    The libraries are read first, since reading releases the GIL and `dlopen` of cold files does not (0.5 s stalls).
    One core is left to the screen. What torch brought is frozen out of garbage collection (86 ms pauses).
    """
    if "torch" not in sys.modules:
        for library in _torch_libraries():
            _read_through(library, job)
    job.checkpoint()
    import torch

    torch.set_num_threads(max(1, cores() - 1))
    sys.setswitchinterval(0.001)
    gc.collect()
    gc.freeze()
    return str(torch.__version__)


def _torch_libraries() -> list[Path]:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    return sorted(Path(spec.origin).parent.glob("lib/*.so*"))


def _read_through(path: Path, job: Job) -> None:
    buffer = bytearray(1 << 22)
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return  # only a warm-up: the import itself says what is wrong
    try:
        while os.readv(handle, [buffer]):
            job.checkpoint()
    except OSError:
        return
    finally:
        os.close(handle)
