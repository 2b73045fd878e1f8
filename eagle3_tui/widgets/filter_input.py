"""The line at the bottom that takes text: a filter, or the answer to a question. Hidden until `ask` opens it.

Enter keeps the text and gives the focus back, escape drops it and gives the focus back. Whoever asks is told by being
called, at once: the next key of a paste or of a slow line may already mean something else. It does NOT know what is
filtered or asked. The cursor does not blink: that alone would write 1.5 kB a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static


def _nothing(text: str = "") -> None:
    pass


@dataclass(frozen=True)
class Question:
    """What stands before and in the empty line, and who is told: `changed` of every text, then `kept` or `cleared`."""

    prompt: str
    placeholder: str
    kept: Callable[[str], object] = _nothing
    changed: Callable[[str], object] = _nothing
    cleared: Callable[[], object] = _nothing


class Line(Input):
    """The input itself; `take` is a key or a paste."""

    def __init__(self, owner: FilterInput) -> None:
        super().__init__(compact=True, select_on_focus=False)
        self.cursor_blink = False
        self._owner = owner

    def validate_value(self, value: str) -> str:
        """A pasted escape sequence must not reach the terminal."""
        return value if value.isprintable() else "".join(filter(str.isprintable, value))

    def watch_value(self, value: str) -> None:
        self._owner.changed(value)

    def take(self, text: str) -> None:
        """Put text in place of what is selected."""
        self.replace("".join(filter(str.isprintable, text)), *self.selection)

    async def action_submit(self) -> None:
        self._owner.keep()


class FilterInput(Horizontal):
    DEFAULT_CSS = """
    FilterInput { dock: bottom; height: 1; display: none; }
    FilterInput > Static { width: auto; padding: 0 1 0 0; }
    FilterInput > Input { width: 1fr; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "Clear", id="filter.clear", tooltip="show everything again"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._input = Line(self)
        self._question: Question | None = None
        self._focus_before: Widget | None = None

    def compose(self) -> ComposeResult:
        yield Static("", markup=False)
        yield self._input

    @property
    def text(self) -> str:
        return self._input.value

    def ask(self, question: Question, text: str = "") -> None:
        """Show the line with `text` and take the focus."""
        self._question = None  # what was typed for another question is no answer to this one
        self.query_one(Static).update(question.prompt)
        self._input.placeholder = question.placeholder
        self._input.value = text
        self._input.cursor_position = len(self._input.value)
        self._question = question
        if not self.display:
            self._focus_before = self.screen.focused
        self.display = True
        self.screen.set_focus(self._input)

    def changed(self, text: str) -> None:
        if self._question is not None:
            self._question.changed(text)

    def keep(self) -> None:
        """Enter; on an empty line the same as escape."""
        if not self.text:
            return self.action_clear()
        question = self._close()
        if question is not None:
            question.kept(self.text)

    def action_clear(self) -> None:
        question = self._close()
        if question is not None:
            question.cleared()

    def _close(self) -> Question | None:
        question, self._question = self._question, None
        if self._focus_before is not None and self._focus_before.is_attached:
            self.screen.set_focus(self._focus_before)
        self._focus_before = None
        self.display = False
        return question
