"""What the inspector costs a terminal: time to the first frame, time from key to frame, bytes a key, under a real pty.

    python benchmarks/keys.py PATH -s SAMPLES [--target FOLDER]

Prints medians and the 95th percentile: with the engine idle, and while every ordering is being scored. Absolute
times, to be read beside the budgets in mind (first frame 0.8 s, idle key 50 ms, key during a sweep 150 ms, 2 kB).
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.eagle3_tui.pty_harness import Terminal

KEYS = 40


def press(terminal: Terminal, key: bytes, count: int) -> tuple[list[float], list[int]]:
    """Seconds from key to first byte, and bytes until quiet, for each of `count` presses."""
    times, sizes = [], []
    for _ in range(count):
        start = time.perf_counter()
        terminal.send(key)
        first = b""
        while not first:
            first = terminal.read(quiet=0.005, most=0.01)
        times.append(time.perf_counter() - start)
        sizes.append(len(first) + len(terminal.read(quiet=0.15)))
    return times, sizes


def report(what: str, times: list[float], sizes: list[int]) -> None:
    late = sorted(times)[int(0.95 * (len(times) - 1))]
    print(
        f"{what}: median {1000 * statistics.median(times):.0f} ms, p95 {1000 * late:.0f} ms, "
        f"{statistics.mean(sizes):.0f} bytes a key"
    )


def main(arguments: list[str]) -> None:
    argv = [sys.executable, "-m", "eagle3_tui", *arguments, "--no-log"]
    start = time.perf_counter()
    with Terminal(argv) as terminal:
        terminal.read_until(b"Checkpoints", 20)
        print(f"first frame {time.perf_counter() - start:.2f} s")
        terminal.send(b"4")
        while "config" not in terminal.lines[-2] and "best" not in terminal.lines[-2]:
            terminal.read(quiet=0.2)
            assert time.perf_counter() - start < 300
        print(f"all orderings of the first sample scored after {time.perf_counter() - start:.1f} s")
        terminal.press(b"3", 1.0)
        report("Step, down, idle", *press(terminal, b"j", KEYS))
        report("Step, next ordering, idle", *press(terminal, b"o", 10))
        terminal.press(b"4", 0.5)
        terminal.press(b"a", 0.0)
        terminal.press(b"3", 0.2)
        report("Step, up, during a sweep", *press(terminal, b"k", KEYS))
        terminal.press(b"\x1b", 1.0)
        print(f"idle for two seconds: {len(terminal.read(quiet=2.0))} bytes")
        start = time.perf_counter()
        terminal.send(b"q")
        status = terminal.wait()
        print(f"quit after {time.perf_counter() - start:.2f} s, status {status}")


if __name__ == "__main__":
    main(sys.argv[1:])
