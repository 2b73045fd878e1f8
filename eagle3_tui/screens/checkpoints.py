"""View 1: the checkpoints found as a tree of runs and epochs, the config with evidence, tensors with statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.statistics import TensorStatistics
from drafter.files.find import Found
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.view import Rows, megabytes
from eagle3_tui.widgets.line_table import Cells, Column, LineTable
from eagle3_tui.widgets.plot import PlotView, bars

RUNS, CONFIG, TENSORS = range(3)


@dataclass(frozen=True)
class TreeLine:
    """One line of the tree: a folder above checkpoints, or a checkpoint."""

    name: str
    depth: int
    found: Found | None


def tree_lines(found: list[Found], root: str) -> list[TreeLine]:
    """The checkpoints under the folders that lead to them, in the order in which they were found."""
    lines, folders = [TreeLine(f"{root}/", 0, None)], set()
    for entry in found:
        parts = PurePosixPath(entry.name).parts
        for depth in range(1, len(parts)):
            folder = parts[:depth]
            if folder not in folders:
                folders.add(folder)
                lines.append(TreeLine(f"{folder[-1]}/", depth, None))
        lines.append(TreeLine(parts[-1], len(parts), entry))
    return lines


class CheckpointsView(PanesView):
    PANES = ("runs", "config", "tensors")
    HINTS = "enter open  tab pane  / filter  e export  ? help  q quit"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._placed = False  # whether the cursor was put on the first chosen checkpoint

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable(
            [Column("", 1), Column("checkpoint", 26, cut="middle"), Column("size", 8, "right"), Column("")],
            empty="looking for checkpoints",
            id="runs",
        )
        yield LineTable(
            [Column("", 1), Column("field", 20), Column("value", 22, cut="middle"), Column("from")],
            empty="no checkpoint opened",
            id="config",
        )
        yield TensorsPane(id="tensors")

    def changed(self, what: str) -> None:
        if what in ("all", "found", "checkpoint"):
            self._show_runs()
        if what in ("all", "checkpoint", "ready", "sample"):
            self._show_config()
        if what in ("all", "checkpoint"):
            self.query_one(TensorsPane).show(self.state.checkpoint)
        if what in ("all", "statistics", "checkpoint"):
            self.query_one(TensorsPane).show_statistics(self.state.statistics)
        self._show_detail()

    def _show_runs(self) -> None:
        state = self.state
        lines = tree_lines(state.found, self.controller.session.options.path.name or "/") if state.found else []
        table = self.query_one("#runs", LineTable)
        table.set_rows(Rows(lines, lambda i: self._run_cells(lines[i]), lambda i: (lines[i].name, lines[i].depth, i)))
        if state.chosen is not None and not self._placed:
            self._placed = True
            where = next((i for i, line in enumerate(lines) if line.found is state.chosen), 0)
            table.move_to_row(where)

    def _run_cells(self, line: TreeLine) -> Cells:
        indent = "  " * line.depth
        found = line.found
        if found is None:
            return [("", ""), (f"{indent}{line.name}", "bold"), ("", ""), ("", "")]
        chosen = found is self.state.chosen
        notes = [found.state] if found.state else []
        notes += [f"<- {PurePosixPath(link).name}" for link in found.links]
        look = "mark" if chosen else "dim" if found.state else ""
        size = megabytes(found.size) if found.size else ""
        return [(">" if chosen else "", "mark"), (f"{indent}{line.name}", look), (size, look), ("  ".join(notes), look)]

    def _show_config(self) -> None:
        rows = config_rows(
            self.state.checkpoint, self.state.target, self.state.vocab, self.controller.session.tokens_why
        )
        table = self.query_one("#config", LineTable)
        table.set_rows(Rows(rows, lambda i: rows[i], lambda i: (rows[i][1][0], i)))

    def _show_detail(self) -> None:
        table = self.table()
        row = table.row if table is not None else None
        if table is None or row is None:
            return self.detail.say([])
        if self.current == TENSORS:
            return self.detail.say(self.query_one(TensorsPane).detail_lines(row))
        cells = [text for text, _ in table.source.cells(row)]
        if self.current == CONFIG:
            return self.detail.say([[(f"{cells[1]} = {cells[2]}", "")], [(cells[3], "dim")]], cut=(0,))
        chosen = self.state.checkpoint
        summary = checkpoint_summary(chosen) if chosen is not None else ""
        target = f"target: {self.state.target}" if self.state.target else ""
        self.detail.say([[(summary, "")], [(target, "dim")]], cut=(1,))

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        self._show_detail()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        if event.table.id == "runs":
            lines = tree_lines(self.state.found, "")
            found = lines[event.index].found if event.index < len(lines) else None
            if found is not None:
                self.controller.choose_checkpoint(found)
        elif self.current == TENSORS:
            self.controller.statistics(str(event.key))

    def back(self) -> bool:
        if self.current == TENSORS and self.query_one(TensorsPane).hide_statistics():
            return True
        return super().back()


class TensorsPane(Vertical):
    """The tensor table, and below it the histogram of the tensor that was asked for."""

    def compose(self) -> ComposeResult:
        yield LineTable(
            [Column("tensor", 38, cut="middle"), Column("dtype", 5), Column("shape", 15), Column("size")],
            empty="no weights",
            id="tensor-table",
        )
        yield PlotView(id="histogram")

    def on_mount(self) -> None:
        self._names: list[str] = []
        self._checkpoint: Checkpoint | None = None
        self._statistics: TensorStatistics | None = None

    def show(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint
        self._names = list(checkpoint.tensors) if checkpoint is not None else []
        names = self._names
        rows = [tensor_cells(checkpoint, name) for name in names] if checkpoint is not None else []
        self.query_one(LineTable).set_rows(Rows(names, lambda i: rows[i], lambda i: names[i]))

    def show_statistics(self, found: TensorStatistics | None) -> None:
        self._statistics = found
        plot = self.query_one(PlotView)
        plot.set_class(found is not None and bool(found.histogram), "shown")
        if found is not None and found.histogram:
            plot.show(lambda w, h: histogram(found, w, h, self.app))

    def hide_statistics(self) -> bool:
        plot = self.query_one(PlotView)
        was = plot.has_class("shown")
        plot.remove_class("shown")
        return was

    def detail_lines(self, row: int) -> list[list[tuple[str, str]]]:
        if self._checkpoint is None or row >= len(self._names):
            return []
        tensor = self._checkpoint.tensors[self._names[row]]
        found = self._statistics
        if found is None or found.name != tensor.name:
            return [[(f"in the file: {tensor.name}", "")], [("enter: statistics and histogram", "dim")]]
        return statistics_lines(found)


def tensor_cells(checkpoint: Checkpoint, name: str) -> Cells:
    tensor = checkpoint.tensors[name]
    look = "warn" if name in checkpoint.unused else ""
    shape = ",".join(map(str, tensor.shape))
    note = f"  {checkpoint.unused[name]}" if look else ""
    return [(name, look), (tensor.dtype, look), (f"[{shape}]", look), (megabytes(tensor.nbytes) + note, look)]


def histogram(found: TensorStatistics, width: int, height: int, app: Any) -> str:
    start = found.minimum if found.minimum is not None else 0.0
    labels = [f"{start + (i + 0.5) * found.bin_width:.2g}" for i in range(len(found.histogram))]
    return bars(found.histogram, labels, width, height, found.name, ascii=app.ascii, colorless=app.colorless)


def statistics_lines(found: TensorStatistics) -> list[list[tuple[str, str]]]:
    """Two lines: what is no number first, since that is what kills a drafter."""
    bad = found.nan or found.inf
    first = [
        (f"NaN {found.nan}  Inf {found.inf}", "bad" if bad else "good"),
        (f"  zero {found.zero} of {found.count}", ""),
    ]
    if found.minimum is None or found.maximum is None or found.mean is None or found.std is None:
        return [first, [("no finite value", "bad")]]
    first.append(
        (f"  min {found.minimum:.4g}  max {found.maximum:.4g}  mean {found.mean:.4g}  std {found.std:.4g}", "")
    )
    said = "  ".join(f"{100 * share:g}% {value:.3g}" for share, value in found.quantiles)
    return [first, [(f"norm {found.norm:.5g}  quantiles (to one of 48 bins): {said}", "dim")]]


def checkpoint_summary(checkpoint: Checkpoint) -> str:
    c = checkpoint.config
    state = "" if checkpoint.has_weights else "no weights; "
    return (
        f"{state}{c.dialect} ({c.producer}), H {c.hidden_size}, fc takes {checkpoint.fc_inputs} x "
        f"{c.target_hidden_size}, D {checkpoint.draft_vocab_size} of V {c.vocab_size}"
    )


def config_rows(checkpoint: Checkpoint | None, target: str, vocab: list[str], tokens: str) -> list[Cells]:
    """Disagreements and warnings first, then every field with the key or default that supplied it."""
    if checkpoint is None:
        return []
    rows: list[Cells] = []
    for d in checkpoint.disagreements:
        said = f"{d.trained_source} says {shown(d.trained)}; {d.configured_source} is what a server reads"
        rows.append([("!", "warn"), (d.field, "warn"), (shown(d.configured), "warn"), (said, "warn")])
    rows += [[("!", "warn"), ("warning", "warn"), (value, "warn"), ("", "")] for value in checkpoint.warnings]
    for name, source in checkpoint.missing.items():
        glyph, look = ("!", "bad") if name in checkpoint.fatal else ("", "")
        rows.append([(glyph, look), ("missing tensor", look), (name, look), (f"from {source}", look)])
    rows += [
        [("!", "warn"), ("unused tensor", "warn"), (name, "warn"), (why, "warn")]
        for name, why in checkpoint.unused.items()
    ]
    for name, value, evidence in checkpoint.config.items():
        source = ""
        if evidence is not None:
            source = f"default: {evidence.note}" if evidence.is_default else f"{evidence.source}: {evidence.key}"
        rows.append([("", ""), (name, ""), (shown(value), ""), (source, "dim")])
    depths = checkpoint.config.aux_depths
    rows.append([("", ""), ("aux_depths", ""), (shown(depths), ""), ("layers passed, by id_convention", "dim")])
    rows += [[("", ""), ("vocab map", ""), (said, ""), ("d2t and t2d", "dim")] for said in vocab]
    rows.append([("", ""), ("target", ""), (target, ""), ("", "")])
    rows.append([("", ""), ("tokenizer", ""), (tokens, ""), ("", "")])
    rows += [
        [("", ""), (name, ""), (shown(value), ""), ("val_metrics.json", "dim")]
        for name, value in checkpoint.metrics.items()
    ]
    return rows


def shown(value: Any) -> str:
    if hasattr(value, "base") and hasattr(value, "type"):
        rest = "".join(f", {k} {v}" for k, v in value.parameters)
        return f"{value.type}, base {value.base:g}{rest}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value is None else str(value)
