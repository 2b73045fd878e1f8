"""View 2: the sample files, the text of the chosen one with its loss mask marked, and its slots, claimed and probed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from drafter.safe import safe
from drafter.sample.sample import Sample, Slot
from drafter.sample.tokens import TokenText
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.view import Rows
from eagle3_tui.widgets.line_table import Cells, Column, LineTable, RowSource
from eagle3_tui.widgets.styles import style

FILES, TEXT, SLOTS = range(3)
MAX_SHOWN = 20_000  # tokens of text laid out at once
BEGIN, END = "«", "»"  # around supervised text: colour alone carries no meaning


class FileRows(RowSource):
    """Sample files by name; nothing is opened to list them."""

    def __init__(self, paths: Sequence[Path], view: SamplesView) -> None:
        self._paths, self._view = paths, view
        self._texts: list[str] = []

    def texts(self) -> list[str]:
        if not self._texts:
            self._texts = [str(path).lower().rpartition("/")[2] for path in self._paths]
        return self._texts

    def __len__(self) -> int:
        return len(self._paths)

    def key(self, i: int) -> object:
        return self._paths[i]

    def cells(self, i: int) -> Cells:
        path = self._paths[i]
        chosen = self._view.state.sample is not None and self._view.state.sample.path == path
        look = "mark" if chosen else ""
        return [(">" if chosen else "", "mark"), (path.name, look), (str(path.parent), "dim")]


class SamplesView(PanesView):
    PANES = ("files", "text", "slots")
    HINTS = "enter open  tab pane  / filter  e export  ? help  q quit"

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable(
            [Column("", 1), Column("sample", 34, cut="middle"), Column("folder", cut="middle")],
            empty="looking for samples",
            id="files",
        )
        yield TextPane(id="text")
        columns = [
            Column("slot", 4, "right"),
            Column("fc", 3),
            Column("claimed", 9),
            Column("probed", 9),
            Column("mean norm", 10, "right"),
            Column("bad rows", 8, "right"),
            Column("claimed by"),
        ]
        yield LineTable(columns, empty="no sample opened", id="slots")

    def changed(self, what: str) -> None:
        state = self.state
        if what in ("all", "samples", "sample"):
            self._show_files()
        if what in ("all", "sample"):
            self.query_one(TextPane).show(state.sample, self.controller.session.tokens)
        if what in ("all", "sample", "probes", "ordering"):
            slots = list(state.sample.slots) if state.sample is not None else []
            self.query_one("#slots", LineTable).set_rows(Rows(slots, lambda i: self._slot_cells(slots[i]), lambda i: i))
        self._show_detail()

    def _show_files(self) -> None:
        samples = self.state.samples
        table = self.query_one("#files", LineTable)
        if samples is not None:
            table.empty = samples.why
            table.set_rows(FileRows(samples.paths, self))

    def _slot_cells(self, slot: Slot) -> Cells:
        state, i = self.state, slot.index
        probe = next((p for p in state.probes if p.index == i), None)
        place = str(state.ordering.index(i) + 1) if state.ordering is not None and i in state.ordering else "-"
        claimed = slot.claim.label if slot.claim else "?"
        probed = "…" if probe is None else probe.label or "?"
        clash = (claimed == "embed") != (probed == "embed") and "?" not in (claimed, probed) and probe is not None
        norm = "…" if probe is None else "-" if probe.mean_norm is None else f"{probe.mean_norm:.2f}"
        bad = "" if probe is None else str(probe.bad_rows)
        look = "bad" if clash or (probe is not None and probe.bad_rows) else ""
        by = ("! contradicts the data; " if clash else "") + (slot.claim.source if slot.claim else "nobody (--slots)")
        return [(str(i), look), (place, look), (claimed, look), (probed, look), (norm, look), (bad, look), (by, look)]

    def _show_detail(self) -> None:
        state = self.state
        if self.current == FILES or state.sample is None:
            count = len(state.samples.paths) if state.samples is not None else 0
            where = state.samples.why if state.samples is not None else ""
            return self.detail.say([[(f"{count} sample{'' if count == 1 else 's'}", "")], [(where, "dim")]], cut=(1,))
        sample = state.sample
        supervised = "no loss mask" if sample.mask is None else f"{int(sample.mask.sum())} supervised"
        facts = f"{sample.length} tokens, {supervised}, {len(sample.slots)} states of {sample.width}"
        told = "; ".join(sample.warnings) or sample.format
        self.detail.say([[(facts, "")], [(told, "warn" if sample.warnings else "dim")]])

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        if event.table.id == "files" and isinstance(event.key, Path):
            self.controller.choose_sample(event.key)


class TextPane(VerticalScroll, can_focus=True, inherit_bindings=False):
    """Running text; supervised spans stand between « and » and in colour."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False, id="text.up", tooltip="one line up"),
        Binding("down,j", "scroll_down", "Down", show=False, id="text.down", tooltip="one line down"),
        Binding("pageup", "page_up", "Page up", show=False, id="text.page_up", tooltip="one page up"),
        Binding("pagedown", "page_down", "Page down", show=False, id="text.page_down", tooltip="one page down"),
        Binding("ctrl+u", "half(-1)", "Half page up", show=False, id="text.half_up", tooltip="half a page up"),
        Binding("ctrl+d", "half(1)", "Half page down", show=False, id="text.half_down", tooltip="half a page down"),
        Binding("g,home", "scroll_home", "Start", show=False, id="text.start", tooltip="where the text begins"),
        Binding("G,end", "scroll_end", "End", show=False, id="text.end", tooltip="where it ends"),
    ]

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)

    def show(self, sample: Sample | None, tokens: TokenText | None) -> None:
        text = sample_text(sample, tokens) if sample is not None else Text("no sample opened", style("dim"))
        self.query_one(Static).update(text)
        self.scroll_home(animate=False)

    def action_half(self, direction: int) -> None:
        self.scroll_relative(y=direction * max(1, self.size.height // 2), animate=False)


def sample_text(sample: Sample, tokens: TokenText | None) -> Text:
    """The sample's text with supervised spans marked; line breaks are shown as \\n and taken."""
    ids = sample.ids[:MAX_SHOWN].tolist()
    mask = sample.mask[:MAX_SHOWN].tolist() if sample.mask is not None else [True] * len(ids)
    text = Text()
    start = 0
    for i in range(1, len(ids) + 1):
        if i == len(ids) or mask[i] != mask[start]:
            span = readable(tokens, ids[start:i])
            text.append(f"{BEGIN}{span}{END}" if mask[start] else span, style("good" if mask[start] else "dim"))
            start = i
    if sample.length > MAX_SHOWN:
        text.append(f"\n… {sample.length - MAX_SHOWN} more tokens are not shown here", style("warn"))
    return text


def readable(tokens: TokenText | None, ids: list[int]) -> str:
    """Text of some tokens: bytes joined before they are decoded, everything unprintable escaped, line breaks kept."""
    if tokens is None:
        return " ".join(map(str, ids)) + " "
    data = b"".join(tokens.raw(i) or f"<id {i}>".encode() for i in ids)
    lines = data.decode("utf-8", errors="backslashreplace").split("\n")
    return "\\n\n".join(safe(line) for line in lines)
