"""Plots: the one guarded way to plotext, and a widget that shows one.

plotext 6.1 aborts the whole process on a NaN in a line and eats memory on a point far outside its limits, so nothing
else in this code base may call it. Here only finite points inside explicit limits get through, a gap in the data
breaks the line, and text passes `safe`. There is no logarithmic scale: transform the data instead.

plotext is imported with the first plot (0.15 s). This module does NOT know what is plotted.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.cells import cell_len
from rich.text import Text
from textual.widget import Widget

from eagle3_tui.widgets.line_table import fit

Number = float | None
"""A value to plot; None and everything that is not finite leave a gap."""

Drawing = Callable[[int, int], str]
"""Makes a plot of (width, height) cells, as text with ANSI colours."""

MIN_WIDTH, MIN_HEIGHT = 10, 4
LARGEST = 1e300  # twice that is still finite, so that no span of limits overflows

GLYPHS: Final = ("braille", "x", "o", "+", "#")
ASCII_GLYPHS: Final = ("*", "x", "o", "+", "#")
COLOURS: Final = (6, 3, 5, 2, 4)  # the terminal's cyan, yellow, magenta, green, blue
TO_ASCII: Final = str.maketrans("┌┐└┘├┤┬┴┼─│█", "+++++++++-|#")

_figure_lock = threading.Lock()  # plotext has one figure; a new one for each plot leaks 6 kB


@dataclass(frozen=True)
class Series:
    """Values over x (0, 1, 2, … when not given); consecutive points are connected unless `lines` is False."""

    y: Sequence[Number]
    x: Sequence[Number] | None = None
    label: str = ""
    lines: bool = True


@dataclass(frozen=True)
class _Run:
    """Finite points without a gap between them."""

    x: list[float]
    y: list[float]


def draw(
    series: Sequence[Series],
    width: int,
    height: int,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    *,
    ascii: bool = False,
    colorless: bool = False,
    ylim: tuple[float, float] | None = None,
) -> str:
    """Lines in `width` x `height` cells. Values outside `ylim` are drawn at its edge.

    Series differ by glyph as well as by colour. Too little room or no finite value gives a line of text instead.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return _too_small(width, height)
    runs = [_runs(one.x, one.y, width) for one in series]
    points = [run for of_one in runs for run in of_one]
    if not points:
        return _nothing(title, width)
    glyphs = ASCII_GLYPHS if ascii else GLYPHS
    heading = _heading(title, [one.label for one in series], glyphs, width, colorless)
    x_limits = _limits(itertools.chain.from_iterable(run.x for run in points))
    y_limits = _limits(ylim if ylim is not None else itertools.chain.from_iterable(run.y for run in points))

    def paint(plt: Any) -> None:
        for number, (one, of_one) in enumerate(zip(series, runs, strict=True)):
            if of_one:
                _add_signal(plt, of_one, one.lines, _turn(glyphs, number), _turn(COLOURS, number), y_limits)
        whole = all(value.is_integer() for run in points for value in run.x)
        _set_ruler(plt, "x", x_limits, _ticks(*x_limits, max(2, width // 12), whole))
        _set_ruler(plt, "y", y_limits, _ticks(*y_limits, max(2, height // 3)))

    return heading + _build(paint, width, height - bool(heading), x_label, y_label, ascii, colorless)


def bars(
    heights: Sequence[Number],
    labels: Sequence[str] | None,
    width: int,
    height: int,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    *,
    ascii: bool = False,
    colorless: bool = False,
    ylim: tuple[float, float] | None = None,
) -> str:
    """A bar for each value (a histogram when the values are counts), named below as far as the names fit."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return _too_small(width, height)
    values = [_finite(value) for value in heights]
    if not any(value is not None for value in values):
        return _nothing(title, width)
    names = [fit(name, 12).rstrip() for name in (labels or map(str, range(len(values))))]
    stride = math.ceil(len(values) / width)
    if stride > 1:  # more bars than columns: the highest of each stretch stands for it
        stretches = [values[start : start + stride] for start in range(0, len(values), stride)]
        values = [max((value for value in stretch if value is not None), default=None) for stretch in stretches]
        names = names[::stride]
    y_limits = _limits(ylim if ylim is not None else [0.0, *(value for value in values if value is not None)])
    floor = _clamp(0.0, y_limits)
    heading = _heading(title, [], (), width, colorless)

    def paint(plt: Any) -> None:
        tops = [floor if value is None else _clamp(value, y_limits) for value in values]
        places = list(range(len(values)))
        marker = plt.marker("#" if ascii else "full", plt.pixel(foreground=COLOURS[0]))
        plt.figure.draw(plt.figure.bar(places, [floor] * len(tops), tops, marker=marker, width=0.8))
        step = _label_step(names, width)
        _set_ruler(plt, "x", (-0.5, len(values) - 0.5), (places[::step], names[: len(values) : step]))
        _set_ruler(plt, "y", y_limits, _ticks(*y_limits, max(2, height // 3)))

    return heading + _build(paint, width, height - bool(heading), x_label, y_label, ascii, colorless)


class PlotView(Widget):
    """Shows a drawing at the widget's own size, made anew when the size changes."""

    DEFAULT_CSS = """
    PlotView { width: 1fr; height: 1fr; }
    """
    ALLOW_SELECT = False

    def __init__(self, drawing: Drawing | None = None, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._drawing = drawing

    def show(self, drawing: Drawing | None) -> None:
        """Show this drawing, or nothing. A repaint costs 6 kB: not for every token."""
        self._drawing = drawing
        self.refresh()

    def render(self) -> Text:
        if self._drawing is None:
            return Text()
        text = Text.from_ansi(self._drawing(self.size.width, self.size.height))
        text.no_wrap = True
        text.overflow = "crop"
        return text


# Guards


def _finite(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return max(-LARGEST, min(number, LARGEST)) if math.isfinite(number) else None


def _clamp(value: float, limits: tuple[float, float]) -> float:
    return max(limits[0], min(value, limits[1]))


def _limits(values: Sequence[float] | itertools.chain[float]) -> tuple[float, float]:
    """The extremes of the values, widened until their ticks can be told apart."""
    finite = [value for value in map(_finite, values) if value is not None] or [0.0]
    low, high = min(finite), max(finite)
    size = max(abs(low), abs(high))
    if high - low <= 1e-6 * size or high - low < 1e-300:
        margin = 0.1 * size or 0.5
        low, high = low - margin, high + margin
    return low, high


def _runs(x: Sequence[Number] | None, y: Sequence[Number], width: int) -> list[_Run]:
    """The finite points, in runs that a line may connect, no more of them than the columns can show."""
    runs: list[_Run] = []
    open_run = False
    for place, value in zip(range(len(y)) if x is None else x, y, strict=False):
        across, up = _finite(place), _finite(value)
        if across is None or up is None:
            open_run = False
            continue
        if not open_run:
            runs.append(_Run([], []))
            open_run = True
        runs[-1].x.append(across)
        runs[-1].y.append(up)
    return [_thin(run, 4 * width) for run in runs]


def _thin(run: _Run, most: int) -> _Run:
    """The run with the lowest and the highest point of each stretch, in their order, when it has more than `most`."""
    stride = 2 * math.ceil(len(run.y) / most)
    if stride <= 2:
        return run
    kept: list[int] = []
    for start in range(0, len(run.y), stride):
        stretch = range(start, min(start + stride, len(run.y)))
        kept.extend(sorted({min(stretch, key=run.y.__getitem__), max(stretch, key=run.y.__getitem__)}))
    return _Run([run.x[i] for i in kept], [run.y[i] for i in kept])


def _ticks(low: float, high: float, most: int, whole: bool = False) -> tuple[list[float], list[str]]:
    """Round positions between the limits, at most about `most`, and how they are written; with `whole` no fractions."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999999)
    if whole:
        step = max(step, 1.0)
    places = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return places, [f"{place:.10g}" for place in places]


def _label_step(names: Sequence[str], width: int) -> int:
    longest = max(map(len, names), default=1) + 1
    return max(1, math.ceil(len(names) * longest / max(1, width - 8)))


def _too_small(width: int, height: int) -> str:
    return fit(f"plot needs {MIN_WIDTH}x{MIN_HEIGHT}", width).rstrip() if height > 0 else ""


def _nothing(title: str, width: int) -> str:
    return "\n".join(fit(line, width).rstrip() for line in (title, "no finite value to plot") if line)


def _turn(choices: Sequence[Any], number: int) -> Any:
    return choices[number % len(choices)]


def _heading(title: str, labels: Sequence[str], glyphs: Sequence[str], width: int, colorless: bool) -> str:
    """One line: the title, and what each glyph stands for; nothing when there is neither."""
    parts, used = ([fit(title, width).rstrip()], cell_len(title)) if title else ([], 0)
    for number, label in enumerate(labels):
        glyph = "⠶" if _turn(glyphs, number) == "braille" else _turn(glyphs, number)
        name = fit(label, 24).rstrip()
        used += cell_len(name) + 4
        if label and used <= width:
            mark = glyph if colorless else f"\x1b[38;5;{_turn(COLOURS, number)}m{glyph}\x1b[0m"
            parts.append(f"{mark} {name}")
    return "  ".join(parts) + "\n" if parts else ""


# plotext, called from nowhere else


def _build(
    paint: Callable[[Any], None], width: int, height: int, x_label: str, y_label: str, ascii: bool, colorless: bool
) -> str:
    import plotext as plt

    with _figure_lock:
        plt.terminal.limit(False, False)  # else the size is cut to what the terminal was at import
        figure = plt.figure
        figure.clear()
        figure.plot_size(width, height)
        figure.theme("colorless" if colorless else "simple")
        figure.canvas("default")  # the theme's own is a white background
        for text, axis in ((x_label, "x"), (y_label, "y")):
            if text:
                figure.label(fit(text, width // 2).rstrip(), axis)
        paint(plt)
        drawn = str(figure.build().string(colorless=colorless)).rstrip("\n")
    return drawn.translate(TO_ASCII) if ascii else drawn


def _add_signal(
    plt: Any, runs: Sequence[_Run], lines: bool, glyph: str, colour: int, y_limits: tuple[float, float]
) -> None:
    x = [value for run in runs for value in run.x]
    y = [_clamp(value, y_limits) for run in runs for value in run.y]
    signal = plt.figure.signal(x, y, marker=plt.marker(glyph, plt.pixel(foreground=colour)))
    signal.lines(lines)
    for start in itertools.accumulate(len(run.x) for run in runs[:-1]):
        signal.line(start, False)
    plt.figure.draw(signal)


def _set_ruler(plt: Any, axis: str, limits: tuple[float, float], ticks: tuple[Sequence[float], Sequence[str]]) -> None:
    ruler = plt.figure.ruler(axis)
    ruler.lim(*limits)
    ruler.ticks(list(ticks[0]), list(ticks[1]))
