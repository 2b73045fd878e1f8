"""Plots: what they show, and that no data ends the process. Hostile data run in a subprocess, since plotext aborts."""

from __future__ import annotations

import math
import subprocess
import sys
import time

import pytest
from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult

from eagle3_tui.widgets.plot import PlotView, Series, bars, draw

HOSTILE = """
import itertools, resource
from eagle3_tui.widgets.plot import Series, bars, draw
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # a line drawn outside the limits allocates all its cells
nan, inf = float("nan"), float("inf")
DATA = [
    [], [None], [nan] * 5, [1, nan, 3, 4, nan], [nan, 1, 2], [inf, 1, -inf, 2], [1e30, -1e30, 1], [1e308, -1e308],
    [3], [7, 7, 7], [0, 0], [1.0, 1.0 + 1e-15], [5e-324, 0], [10**400, 1], ["x", None, 2], [1e16, 1e16 + 2],
    [0, 1, 1e6, 2],
]
LIMITS = [None, (0, 1), (nan, 1), (3, 3), (5, -5), (-inf, inf), (0, 1e-300)]
for data, ylim, size in itertools.product(DATA, LIMITS, [(10, 4), (13, 5), (60, 15)]):
    for lines in (True, False):
        draw([Series(data, lines=lines), Series([1, 2], data, lines=lines)], *size, ylim=ylim)
        draw([Series(data, lines=lines)], *size, ylim=ylim)
    bars(data, None, *size, ylim=ylim)
for size in [(0, 0), (1, 1), (9, 40), (40, 3), (-1, -1)]:
    draw([Series([1, nan])], *size)
    bars([1, nan], None, *size)
print("alive")
"""


def test_no_data_ends_the_process():
    done = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


def plain(drawn: str) -> list[str]:
    return Text.from_ansi(drawn).plain.split("\n")


def test_a_plot_has_the_size_it_was_asked_for():
    series = [Series([1, 3, 2], label="a"), Series([2, None, 5], [0, 1, 2], label="漢字")]
    for width, height in ((10, 4), (40, 10), (78, 18)):
        for drawn in (draw(series, width, height, "title"), bars([1, 2, 3], None, width, height, "title")):
            lines = plain(drawn)
            assert len(lines) == height
            assert all(cell_len(line) <= width for line in lines)
        assert len(plain(draw([Series([1, 2])], width, height))) == height


def test_lines_break_at_gaps():
    whole = draw([Series([1.0] * 9)], 40, 8, colorless=True)
    broken = draw([Series([1.0, 1, 1, None, None, math.nan, 1, 1, 1])], 40, 8, colorless=True)
    assert whole.count("⠤") > broken.count("⠤") > 0


def test_values_outside_the_limits_are_drawn_at_the_edge():
    lines = plain(draw([Series([0, 9, 0])], 40, 10, ylim=(0, 1)))
    assert lines[1].strip().startswith("1┤") and any(char in lines[1] for char in "⠁⠈⠉⠤⣀⡠⢄")


def test_ascii_and_colourless_are_what_they_say():
    series = [Series([1, 5, 2], label="one"), Series([2, 2, 4], label="two")]
    for drawn in (
        draw(series, 60, 12, "t", "x", "y", ascii=True, colorless=True),
        bars([1, 2], ["a", "b"], 40, 8, "t", ascii=True, colorless=True),
    ):
        assert drawn.isascii() and "\x1b" not in drawn
    assert "* one  x two" in draw(series, 60, 12, ascii=True, colorless=True)
    assert "\x1b" not in draw(series, 60, 12, colorless=True)


def test_text_is_harmless():
    bad = "[/foo]\x1b[31m\u202e"
    drawn = draw([Series([1, 2], label=bad)], 78, 10, bad, bad, bad, colorless=True)
    drawn += bars([1, 2], [bad, bad], 78, 10, bad, bad, bad, colorless=True)
    assert "\x1b" not in drawn and "\u202e" not in drawn
    assert "[/foo]\\x1b[31m" in drawn


def test_too_small_or_nothing_is_said_in_words():
    assert draw([Series([1, 2])], 9, 4) == "plot nee…"
    assert draw([Series([1, 2])], 40, 3) == "plot needs 10x4"
    assert draw([Series([None, math.nan])], 40, 10, "loss") == "loss\nno finite value to plot"
    assert bars([], None, 40, 10) == "no finite value to plot"


def test_bars_are_as_high_as_their_values():
    lines = plain(bars([4, 2, None, 0], ["a", "b", "c", "d"], 45, 11, colorless=True, ylim=(0, 4)))
    heights = [sum(line[column] == "█" for line in lines) for column in (7, 17, 27, 37)]
    assert heights in ([8, 4, 0, 0], [8, 5, 0, 0])
    assert lines[-1].split() == ["a", "b", "c", "d"]
    assert len(plain(bars(list(range(5000)), None, 45, 11))) == 11


@pytest.mark.parametrize(("points", "seconds"), [(500, 0.06), (100_000, 0.5)])
def test_a_plot_is_quick(points, seconds):
    series = [Series([math.sin(i / 40) for i in range(points)])]
    draw(series, 78, 18)  # imports plotext
    start = time.perf_counter()
    draw(series, 78, 18)
    assert time.perf_counter() - start < seconds


def test_importing_the_module_imports_no_plotext():
    code = "import sys, eagle3_tui.widgets.plot; assert not {'plotext', 'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_the_widget_draws_at_its_own_size():
    sizes = []

    def drawing(width: int, height: int) -> str:
        sizes.append((width, height))
        return draw([Series([1, 2, 3])], width, height, "title")

    class Window(App[None]):
        def compose(self) -> ComposeResult:
            yield PlotView(id="plot")

    app = Window()
    async with app.run_test(size=(40, 12)) as pilot:
        view = app.query_one(PlotView)
        assert sizes == []
        view.show(drawing)
        await pilot.pause()
        assert sizes[-1] == (40, 12)
        await pilot.resize_terminal(8, 3)
        await pilot.pause()
        assert sizes[-1] == (8, 3)
