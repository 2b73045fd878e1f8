"""The engine without an app: events go into a queue, and the test is the UI thread that delivers them."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from textual.app import App

from drafter.errors import Cancelled
from eagle3_tui.worker import Engine, EngineEvent, Job


class Desk:
    """An engine, and the events it has posted."""

    def __init__(self) -> None:
        self.events: queue.Queue[EngineEvent] = queue.Queue()
        self.lost: list[tuple[str, str]] = []
        self.engine = Engine(self.events.put, lambda job, error: self.lost.append((job.name, str(error))))

    def deliver(self) -> None:
        assert self.engine.wait_idle(5)
        while not self.events.empty():
            self.events.get().deliver()


@pytest.fixture
def desk():
    desk = Desk()
    yield desk
    assert desk.engine.stop(2)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.002)


def endless(job: Job) -> None:
    while True:
        job.checkpoint()
        time.sleep(0.002)


def test_result_and_error_arrive(desk):
    results, errors = [], []

    def fail(job: Job) -> None:
        raise ValueError("a bad file")

    desk.engine.submit("good", lambda job: 41 + 1, group="a", on_done=results.append)
    failed = desk.engine.submit("bad", fail, group="b", on_error=errors.append)
    desk.engine.submit("worse", lambda job: sys.exit(3), group="c")
    desk.engine.submit("after", lambda job: "still here", group="d", on_done=results.append)
    desk.deliver()
    assert results == [42, "still here"]
    assert [str(error) for error in errors] == ["a bad file"]
    assert "in fail" in failed.trace
    assert desk.lost == [("worse", "SystemExit(3)")]


def test_newest_of_a_group_wins(desk):
    results = []
    first = desk.engine.submit("first", endless, group="row", on_done=results.append)
    until(lambda: desk.engine.running == ("first",))
    for number in range(5):
        desk.engine.submit(f"row {number}", lambda job, number=number: number, group="row", on_done=results.append)
    desk.deliver()
    assert results == [4]
    assert first.cancelled


def test_a_finished_result_is_dropped_when_its_job_was_replaced_before_delivery(desk):
    results = []
    desk.engine.submit("old", lambda job: "old", group="row", on_done=results.append)
    assert desk.engine.wait_idle(5)
    desk.engine.submit("new", lambda job: "new", group="row", on_done=results.append)
    desk.deliver()
    assert results == ["new"]


def test_cancel_one_group_then_all(desk):
    results = []
    running = desk.engine.submit("a", endless, group="a", on_done=results.append, on_error=results.append)
    until(lambda: desk.engine.running == ("a",))
    waiting = desk.engine.submit("b", lambda job: "b", group="b", on_done=results.append)
    desk.engine.cancel("b")
    assert waiting.cancelled and not running.cancelled and desk.engine.busy
    desk.engine.cancel()
    desk.deliver()
    assert results == [] and not desk.engine.busy


def test_urgent_jobs_run_inside_a_long_one_and_equal_ones_after_it(desk):
    order, release = [], threading.Event()

    def sweep(job: Job) -> str:
        order.append("sweep starts")
        release.wait(5)
        job.checkpoint()
        order.append("sweep goes on")
        return "sweep"

    def step(name: str, seen: list[tuple[str, ...]]) -> Callable[[Job], None]:
        def work(job: Job) -> None:
            seen.append(desk.engine.running)
            order.append(name)
            job.checkpoint()

        return work

    seen: list[tuple[str, ...]] = []
    desk.engine.submit("sweep", sweep, group="sweep", on_done=order.append)
    until(lambda: order == ["sweep starts"])
    desk.engine.submit("equal", step("equal", seen), group="equal")
    desk.engine.submit("soon", step("soon", seen), group="soon", priority=1)
    desk.engine.submit("now", step("now", seen), group="now", priority=9)
    release.set()
    desk.deliver()
    assert order == ["sweep starts", "now", "soon", "sweep goes on", "equal", "sweep"]
    assert seen == [("sweep", "now"), ("sweep", "soon"), ("equal",)]


def test_an_error_in_an_urgent_job_does_not_touch_the_one_it_interrupted(desk):
    results, started = [], threading.Event()

    def long(job: Job) -> str:
        started.set()
        until(lambda: desk.engine.busy and len(desk.engine._queue) > 0)
        job.checkpoint()
        return "long"

    desk.engine.submit("long", long, group="long", on_done=results.append)
    assert started.wait(5)
    desk.engine.submit("urgent", lambda job: 1 / 0, group="u", priority=1, on_error=lambda e: results.append(type(e)))
    desk.deliver()
    assert results == [ZeroDivisionError, "long"]


def test_progress_is_coalesced_and_the_last_value_arrives(desk):
    values, results = [], []

    def work(job: Job) -> str:
        for number in range(25_000):
            job.progress(number)
        return "done"

    desk.engine.submit("count", work, group="a", on_progress=values.append, on_done=results.append)
    desk.deliver()
    assert values[0] == 0 and values[-1] == 24_999 and len(values) < 20
    assert results == ["done"]


def test_cancelled_is_raised_in_the_work(desk):
    seen = []

    def work(job: Job) -> None:
        try:
            endless(job)
        except Cancelled as cancelled:
            seen.append(str(cancelled))
            raise

    job = desk.engine.submit("tokens", work, group="a")
    until(lambda: desk.engine.running == ("tokens",))
    job.cancel()
    desk.deliver()
    assert seen == ["tokens"]


def test_stop_is_quick_while_a_job_sleeps_in_small_steps_and_says_so_when_it_is_not():
    desk = Desk()
    desk.engine.submit("steps", endless, group="a")
    until(lambda: desk.engine.busy)
    start = time.monotonic()
    assert desk.engine.stop(1.0)
    assert time.monotonic() - start < 0.5
    assert desk.engine.submit("late", lambda job: 1, group="b").cancelled

    deaf, release = Desk(), threading.Event()
    deaf.engine.submit("deaf", lambda job: release.wait(5), group="a")
    until(lambda: deaf.engine.running == ("deaf",))
    assert not deaf.engine.stop(0.05)
    release.set()
    assert deaf.engine.stop(2)


def test_a_closed_app_does_not_kill_the_thread():
    def post(event: EngineEvent) -> None:
        raise RuntimeError("Event loop is closed")

    engine = Engine(post)
    engine.submit("a", lambda job: 1, group="a")
    engine.submit("b", lambda job: 2, group="b")
    assert engine.wait_idle(5) and engine.stop(2)


async def test_callbacks_run_on_the_apps_thread():
    class Window(App[None]):
        def on_engine_event(self, event: EngineEvent) -> None:
            event.deliver()

    app, threads = Window(), []
    engine = Engine(app.post_message)
    async with app.run_test() as pilot:
        engine.submit("a", lambda job: job, group="a", on_done=lambda _: threads.append(threading.current_thread()))
        assert engine.wait_idle(5)
        await pilot.pause()
    assert threads == [threading.main_thread()]
    assert engine.stop(2)


def test_importing_the_engine_imports_no_torch():
    code = "import sys, eagle3_tui.worker; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_warm_torch_is_a_job():
    code = """
import sys, threading
from eagle3_tui.worker import Engine, warm_torch
done, ready = [], threading.Event()
def post(event): event.deliver(); ready.set()
engine = Engine(post)
engine.submit("loading torch", warm_torch, group="torch", on_done=done.append, on_error=done.append)
assert ready.wait(60) and engine.wait_idle(5)
import torch
assert done == [torch.__version__], done
assert sys.getswitchinterval() < 0.002
assert engine.stop(2)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_hastened_goes_before_what_is_not(desk):
    order: list[str] = []
    desk.engine.submit("sweep", endless, group="sweep")
    until(lambda: desk.engine.running == ("sweep",))
    desk.engine.submit("tries", lambda job: order.append("tries"), group="tries", priority=-5)
    desk.engine.submit("choose", lambda job: order.append("choose"), group="choose", priority=11)
    until(lambda: order == ["choose"])
    time.sleep(0.02)
    assert order == ["choose"]  # the tries wait for the sweep
    desk.engine.hasten("tries", "choose")
    until(lambda: order == ["choose", "tries"])
    urgent = desk.engine.submit("urgent", endless, group="choose", priority=11)
    assert urgent.priority == 11  # urgent is urgent enough
    desk.engine.hasten("sweep")
    assert not desk.engine.submit("tries", endless, group="tries", priority=-5).priority > 0
    desk.engine.cancel()


def test_a_running_job_gives_way_when_another_group_is_hastened(desk):
    order: list[str] = []
    desk.engine.hasten("tries")
    desk.engine.submit("tries", endless, group="tries", priority=-5)
    until(lambda: desk.engine.running == ("tries",))
    desk.engine.submit("sweep", lambda job: order.append("sweep"), group="sweep")
    time.sleep(0.02)
    assert order == []
    desk.engine.hasten()
    until(lambda: order == ["sweep"])
    desk.engine.cancel()
