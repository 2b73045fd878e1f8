"""The text of a sample with its supervised spans marked, in a pane that scrolls."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from drafter.safe import safe
from drafter.sample.sample import Sample
from drafter.sample.text.tokens import TokenText, running
from eagle3_tui.widgets.styles import style

MAX_SHOWN = 20_000  # tokens of text laid out at once
BEGIN, END = "«", "»"  # around supervised text: colour alone carries no meaning


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
    return "\\n\n".join(safe(line) for line in running(tokens, ids).split("\n"))
