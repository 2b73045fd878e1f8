"""The filter line: hidden until `open` is called, then one line at the bottom that takes the keys.

Enter keeps the text and gives the focus back, escape clears it and gives the focus back. It does NOT know what is
filtered; the view acts on the messages. The cursor does not blink: that alone would write 1.5 kB a second.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static


class _Line(Input):
    """A pasted escape sequence must not reach the terminal."""

    def validate_value(self, value: str) -> str:
        return value if value.isprintable() else "".join(filter(str.isprintable, value))


class FilterInput(Horizontal):
    """A filter text. `open` shows the line; `text` is what filters now, shown or not."""

    DEFAULT_CSS = """
    FilterInput { dock: bottom; height: 1; display: none; }
    FilterInput > Static { width: auto; padding: 0 1 0 0; }
    FilterInput > Input { width: 1fr; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "Clear", id="filter.clear", tooltip="show everything again"),
    ]

    class _About(Message):
        def __init__(self, filter_input: FilterInput, text: str) -> None:
            super().__init__()
            self.filter_input = filter_input
            self.text = text

        @property
        def control(self) -> FilterInput:
            return self.filter_input

    class Changed(_About):
        """The text is another one."""

    class Kept(_About):
        """Enter: the text filters on, the line is hidden."""

    class Cleared(_About):
        """Escape, or enter on an empty line: nothing is filtered, the line is hidden. `text` is empty."""

    def __init__(
        self, prompt: str = "/", placeholder: str = "enter keeps, esc clears", *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._prompt = prompt
        self._input = _Line(placeholder=placeholder, compact=True, select_on_focus=False)
        self._input.cursor_blink = False
        self._focus_before: Widget | None = None
        self._told = ""

    def compose(self) -> ComposeResult:
        yield Static(self._prompt, markup=False)
        yield self._input

    @property
    def text(self) -> str:
        return self._input.value

    def open(self, text: str | None = None) -> None:
        """Show the line and take the focus; `text` replaces what it says."""
        if text is not None:
            self._input.value = text
        if not self.display:
            self._focus_before = self.screen.focused
        self.display = True
        self._input.focus()

    def action_clear(self) -> None:
        self._input.value = self._told = ""
        self._close()
        self.post_message(self.Cleared(self, ""))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self._told:
            self._told = event.value
            self.post_message(self.Changed(self, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not event.value:
            self.action_clear()
            return
        self._close()
        self.post_message(self.Kept(self, event.value))

    def _close(self) -> None:
        self.display = False
        if self._focus_before is not None and self._focus_before.is_attached:
            self._focus_before.focus()
        self._focus_before = None
