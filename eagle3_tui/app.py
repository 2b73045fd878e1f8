"""The app: one screen of six views under a context line, the keys that work everywhere, and the way in and out.

Knows which views there are and how they are told about changes; what they show is theirs. torch is not imported here
or by anything that this module imports.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Event, Key, Paste, Resize
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import ContentSwitcher, Input, Static

from drafter.errors import PathError
from drafter.log import SessionLog, default_path
from drafter.safe import safe
from drafter.serving.views import TRAINED
from drafter.session import Options, Session
from drafter.wiring import name
from eagle3_tui import terminal
from eagle3_tui.controller import Controller
from eagle3_tui.screens import legend
from eagle3_tui.screens.accept import AcceptView
from eagle3_tui.screens.checkpoints import CheckpointsView
from eagle3_tui.screens.compare import CompareView
from eagle3_tui.screens.doctor import DoctorView
from eagle3_tui.screens.log import LogView
from eagle3_tui.screens.orderings import OrderingsView
from eagle3_tui.screens.samples import SamplesView
from eagle3_tui.screens.serving import ServingView
from eagle3_tui.screens.step import StepView
from eagle3_tui.screens.view import View
from eagle3_tui.screens.wiring import WiringView
from eagle3_tui.ui_settings import UiSettings
from eagle3_tui.widgets.filter_input import FilterInput, Line, Question
from eagle3_tui.widgets.modal_help import HelpScreen
from eagle3_tui.widgets.styles import style
from eagle3_tui.widgets.tab_bar import TabBar
from eagle3_tui.worker import Engine, EngineEvent

VIEWS = ("checkpoints", "samples", "step", "orderings", "wiring", "accept", "serving", "compare", "doctor", "log")
TITLES = ("Checkpoints", "Samples", "Step", "Orderings", "Wiring", "Accept", "Serving", "Compare", "Doctor", "Log")
SHORT = ("Ckpt", "Smpl", "Step", "Ord", "Wire", "Acc", "Srv", "Cmp", "Doc", "Log")  # where the titles have no room


def _key(view: int) -> str:
    """The digit of a view; the tenth has 0."""
    return str((view + 1) % 10)


_TICK = 0.5  # seconds between looks at whether the engine is busy; writes nothing while nothing changes
_SHOWN_FOR = {"": 3.0, "warn": 8.0}  # seconds, by kind of message; an error stays until it is answered


class InspectorApp(App[int], inherit_bindings=False):
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (8, "-short"), (16, "-tall")]  # noqa: RUF012

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(_key(i), f"view('{v}')", TITLES[i], id=f"view.{v}", tooltip=f"the {TITLES[i]} view", show=False)
            for i, v in enumerate(VIEWS)
        ),
        Binding(
            "o", "ordering(1)", "Next ordering", id="ordering.next", tooltip="feed fc with the next ordering of slots"
        ),
        Binding("O", "ordering(-1)", "Previous ordering", id="ordering.previous", tooltip="the one before"),
        Binding("b", "best", "Best ordering", id="ordering.best", tooltip="make the best ordering current"),
        Binding("t", "trained", "Trained ordering", id="ordering.trained", tooltip="make the trained ordering current"),
        Binding(
            "c", "configured", "Configured", id="ordering.configured", tooltip="make the configured ordering current"
        ),
        Binding("m", "mask", "Mask", id="app.mask", tooltip="which rows count: next, same, predicted, all"),
        Binding("slash", "filter", "Filter", id="app.filter", tooltip="show only rows with a text; esc shows all"),
        Binding("e", "export", "Export", id="app.export", tooltip="write the session as Markdown and JSON"),
        Binding("y", "copy", "Copy", id="app.copy", tooltip="copy the row: to the clipboard and to a file"),
        Binding("escape", "leave", "Back", id="app.back", tooltip="stop what runs, or go back"),
        Binding("question_mark", "help", "Help", id="app.help", tooltip="the keys that work here"),
        Binding("colon", "command_palette", "Commands", id="app.palette", tooltip="find a command by its name"),
        Binding("ctrl+l", "redraw", "Redraw", id="app.redraw", tooltip="draw the whole screen again", show=False),
        Binding(
            "ctrl+z",
            "suspend_process",
            "Suspend",
            id="app.suspend",
            tooltip="back to the shell; fg returns",
            show=False,
        ),
        Binding("q", "quit", "Quit", id="app.quit", tooltip="leave; the log stays"),
        Binding("ctrl+c", "quit", "Quit", id="app.interrupt", show=False, priority=True, system=True),
    ]

    def __init__(
        self,
        session: Session,
        *,
        ascii: bool = False,
        theme: str | None = None,
        ansi_color: bool | None = None,
        state_folder: Path,
        on_terminal: Callable[[App[int]], None] | None = None,
    ) -> None:
        """`state_folder` is where exports and copies go; `on_terminal` sets up the real terminal once the app runs."""
        super().__init__(ansi_color=ansi_color)
        self.ascii, self.colorless = ascii, bool(ansi_color)
        self.animation_level = "none"
        self._theme_wanted = theme
        self._state_folder = state_folder
        self._on_terminal = on_terminal
        self.engine = Engine(self.post_message)
        self.controller = Controller(session, self.engine, self._tell, self._give_up)
        self.farewell = ""
        self._notice: Timer | None = None  # runs while a message is shown that goes by itself
        self._main: Screen[object] = Screen()  # the screen below any modal, once it is mounted

    # ------------------------------------------------------------------ layout

    def compose(self) -> ComposeResult:
        yield Static("", id="context", markup=False)
        yield TabBar(id="bar")
        with ContentSwitcher(initial=VIEWS[0], id="views"):
            yield CheckpointsView(id="checkpoints")
            yield SamplesView(id="samples")
            yield StepView(id="step")
            yield OrderingsView(id="orderings")
            yield WiringView(id="wiring")
            yield AcceptView(id="accept")
            yield ServingView(id="serving")
            yield CompareView(id="compare")
            yield DoctorView(id="doctor")
            yield LogView(id="log")
        yield Static("", id="status", markup=False)
        yield FilterInput(id="filter")

    def on_mount(self) -> None:
        self._main = self.screen
        if self._theme_wanted is not None:
            self.theme = self._theme_wanted
        if self._on_terminal is not None:
            self._on_terminal(self)
        self._draw_bar()
        self.controller.look_from(VIEWS[0])
        self.view.shown()
        self.set_interval(_TICK, self._draw_status)
        # only after the first frame: nothing that takes time may stand before it
        self.call_after_refresh(self.controller.start)

    @property
    def view(self) -> View:
        found = self._main.query_one(f"#{self._main.query_one(ContentSwitcher).current}", View)
        return found

    def on_engine_event(self, event: EngineEvent) -> None:
        event.deliver()

    async def on_event(self, event: Event) -> None:
        """Keys and pastes act at once, in the order in which they came.

        Textual sends each on its own way from the widget that had the focus when it came: what is typed right after
        `/`, as in a paste or over a slow line, would be taken for commands.
        """
        if isinstance(event, (Key, Paste)) and not event.is_forwarded and self.app_focus and await self._take(event):
            return
        await super().on_event(event)

    async def _take(self, event: Key | Paste) -> bool:
        """Act on a key; False where it is for others to handle."""
        focused = self.focused
        if isinstance(event, Paste):
            if isinstance(focused, Line) and event.text:
                focused.take(event.text.splitlines()[0])
            return isinstance(focused, Line)
        if isinstance(focused, Line) and event.key.startswith("alt+") and event.character:
            # escape and the next key in one packet, which nobody can tell from an alt chord; none is bound
            await self._check_bindings("escape")
            return await self._take(Key(event.key.removeprefix("alt+"), event.character))
        if isinstance(focused, Line) and event.is_printable and event.character:
            focused.take(event.character)
            return True
        if isinstance(focused, Input) and not isinstance(focused, Line):
            return False
        return await self._check_bindings(event.key, priority=True) or await self._check_bindings(event.key)

    def on_resize(self, event: Resize) -> None:
        if self._main.query("#bar"):
            self._draw_bar(event.size.width)

    def _tell(self, what: str) -> None:
        """The controller changed a part of the state."""
        if not self._main.query("#status"):
            return  # the last events arrive while the screen is taken down
        if what == "message":
            self._let_go()
        if what not in ("busy", "rows", "step", "others", "message"):
            self._draw_context()
        for view in self._main.query(View):
            view.told(what)
        self._draw_status()

    def _give_up(self, why: str) -> None:
        """Nothing to show: leave, and let the command line say why."""
        self.farewell = why
        self.exit(2)

    def _let_go(self) -> None:
        """See to it that a message that is no error goes by itself."""
        if self._notice is not None:
            self._notice.stop()
        state = self.controller.state
        seconds = _SHOWN_FOR.get(state.message_kind) if state.message else None
        self._notice = self.set_timer(seconds, lambda: self.controller.say("")) if seconds is not None else None

    # ------------------------------------------------------------------ lines around the views

    def _draw_context(self) -> None:
        state = self.controller.state
        text, doubts = Text(no_wrap=True, overflow="ellipsis"), []
        text.append(safe(state.chosen.name if state.chosen else "no checkpoint", 18), style("bold"))
        if state.sample is not None:
            text.append(f"  {safe(state.sample.path.name, 20)}")
            doubts.append(self._against_claims())
            text.append(*doubts[-1])
        if state.ordering is not None:
            text.append(f"  fc={name(state.ordering)} {safe(state.label(state.ordering), 20)}", style("mark"))
            doubts.append(self._contradiction())
            text.append(*doubts[-1])
            if (view := self.controller.session.view_name) != TRAINED:
                text.append(f"  as {view}", style("warn"))
        switched = [n for n, v in state.switches.items() if state.trained_switches.get(n) != v]
        if switched:
            text.append(f"  ! {len(switched)} switched", style("warn"))
        if state.doctor.ill and not switched and not any(said for said, _ in doubts):
            text.append(f"  ! check: {state.doctor.verdict_kind}", style("bad"))
        if state.placement:
            text.append(f"  {state.placement.split(' (')[0]}", style("dim"))
        self._put("#context", text)

    def _against_claims(self) -> tuple[str, Style]:
        """Where the sample's data contradicts what its slots are said to be: on every view, details in Samples."""
        found = self.controller.state.contradictions
        if not found:
            return "", style("")
        slots = sorted({one.slot for one in found if one.slot is not None})
        which = f"slot {','.join(map(str, slots))}" if slots else "states"
        return f" ! {which} in doubt", style(found[0].severity)

    def _contradiction(self) -> tuple[str, Style]:
        """What the config selects, where that is neither what was trained nor what the data shows to be best."""
        state = self.controller.state
        scores = state.scores if state.scores is not None and state.scores.complete else None
        rivals = [state.trained, state.best]
        agreed = scores is not None and state.configured in (scores.best, *scores.tied) and state.trained is None
        if state.configured is None or agreed or all(r in (None, state.configured) for r in rivals):
            return "", style("")
        return f"  ! config selects {name(state.configured)}", style("warn")

    def _draw_bar(self, width: int = 0) -> None:
        """The views, the current one in brackets; in a narrow window the others in short, by number, or not at all."""
        current = VIEWS.index(self._main.query_one(ContentSwitcher).current or VIEWS[0])
        width = width or self.size.width
        chosen = f"[{_key(current)} {TITLES[current]}]"
        full = [f" {_key(i)} {title} " for i, title in enumerate(TITLES)]
        short = [f" {_key(i)} {title}" for i, title in enumerate(SHORT)]
        for names in (full, short, [f" {_key(i)} " for i in range(len(VIEWS))], [""] * len(VIEWS)):
            if sum(map(len, names)) - len(names[current]) + len(chosen) + 1 <= width:
                break
        chosen = chosen if names is full or not current else f" {chosen}"
        names[current] = chosen
        self._main.query_one("#bar", TabBar).show(names, current)

    def on_tab_bar_clicked(self, event: TabBar.Clicked) -> None:
        if event.bar.id == "bar":
            self.action_view(VIEWS[event.number])

    def _draw_status(self) -> None:
        if not self._main.query("#status"):
            return
        state = self.controller.state
        working = self.controller.working()
        # a refusal is one sentence that may need more than one line of the screen
        self._main.query_one("#status").set_class(bool(state.message), "message")
        if state.message:
            text = Text(safe(state.message), style(state.message_kind), end="")
        elif working:
            text = Text(working, style("dim"), end="")
        else:
            small = "small window, details hidden  " if self._main.has_class("-short") else ""
            text = Text(self.view.filter_said() or small + self.view.HINTS, style("dim"), end="")
        self._put("#status", text)

    def _put(self, where: str, text: Text) -> None:
        found = self._main.query(where).results(Static)
        widget = next(found, None)
        if widget is not None and widget.content != text:
            widget.update(text, layout=where == "#status")

    # ------------------------------------------------------------------ keys

    def action_view(self, view: str) -> None:
        switcher = self._main.query_one(ContentSwitcher)
        if switcher.current != view:
            self.controller.state.message = ""
            switcher.current = view
            self.controller.look_from(view)
            self._draw_bar()
            self._draw_status()
        self.view.shown()

    def show_row(self, path: Path, row: int) -> None:
        """The Step view with the cursor on a row of a sample."""
        here = self.controller.state.sample is not None and self.controller.state.sample.path == path
        self.controller.go_to_row(path, row)
        self.action_view("step")
        if here and isinstance(self.view, StepView):
            self.view.go_to(row)

    def action_ordering(self, step: int) -> None:
        self.controller.cycle_ordering(step)

    def action_best(self) -> None:
        scores = self.controller.state.scores
        so_far = "nothing scored yet"
        if scores is not None and not scores.complete:
            so_far = f"{scores.result.done} of {scores.result.planned} scored: the best is not known yet"
        self._make_current(self.controller.state.best, so_far)

    def action_trained(self) -> None:
        self._make_current(self.controller.state.trained, "no config says what was trained")

    def action_configured(self) -> None:
        state = self.controller.state
        self._make_current(state.configured, state.configured_why or "no sample opened")

    def _make_current(self, ordering: tuple[int, ...] | None, otherwise: str) -> None:
        if ordering is None:
            self.controller.say(otherwise, "warn")
        else:
            self.controller.choose_ordering(ordering)

    def action_mask(self) -> None:
        self.controller.cycle_mask()

    def action_leave(self) -> None:
        """One thing at a time: read an error, stop what runs, close what was opened, end the filter."""
        if self.controller.state.message_kind == "bad" and self.controller.state.message:
            self.controller.say("")
        elif not (self.controller.cancel() or self.view.back()):
            self.view.end_filter()
            self.controller.say("")
            self._draw_status()

    def action_export(self) -> None:
        self.controller.export(self._state_folder / "exports")

    def action_copy(self) -> None:
        text = self.view.copy_text()
        if not text:
            return
        self.copy_to_clipboard(safe(text) if "\n" not in text else "\n".join(map(safe, text.splitlines())))
        path = self._state_folder / "copied.txt"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            return self.controller.say(f"copied to the clipboard only: {error.strerror}", "warn")
        self.controller.say(f"copied; also in {path}")

    def action_redraw(self) -> None:
        self.refresh(layout=True, repaint=True)

    async def action_quit(self) -> None:
        self.exit(0)

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen, legend.for_view(self.view)))

    # ------------------------------------------------------------------ the line at the bottom

    def action_filter(self) -> None:
        view = self.view

        def keep(text: str) -> None:
            view.keep_filter(text)
            self._draw_status()

        if view.table() is not None:
            question = Question("/", "enter keeps, esc clears", keep, keep, lambda: keep(""))
            self._main.query_one(FilterInput).ask(question, view.filter_text())

    def ask(self, prompt: str, placeholder: str, answer: Callable[[str], None]) -> None:
        """Take one line of text; `answer` is called with it on Enter."""
        self._main.query_one(FilterInput).ask(Question(prompt, placeholder, answer))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for view, title in zip(VIEWS, TITLES, strict=True):
            yield SystemCommand(title, f"go to the {title} view", lambda view=view: self.action_view(view))
        yield SystemCommand("Export", "write the session for a bug report", self.action_export)
        yield SystemCommand("Score all samples", "every ordering over every sample", self.controller.score_all)
        yield SystemCommand("Theme", "choose another theme", self.action_change_theme)
        yield SystemCommand("Help", "the keys that work here", self.action_help)
        yield SystemCommand("Quit", "leave", lambda: self.exit(0))


def run_app(options: Options, log_path: Path | None, settings: UiSettings) -> int:
    """Run the screen until the user leaves; the exit code. Raises PathError where no screen can be shown."""
    reason = terminal.check()
    if reason is not None:
        raise PathError(reason)
    state_folder = default_path().parent
    session = Session(options, SessionLog(log_path, settings.argv))
    noise = state_folder / "stderr.log" if log_path is not None else None
    with terminal.prepare(noise, settings.ascii) as found:
        app = InspectorApp(
            session,
            ascii=found.ascii,
            theme=found.theme,
            ansi_color=found.ansi_color or None,
            state_folder=state_folder,
            on_terminal=terminal.attach,
        )
        result = app.run(mouse=settings.mouse)
    code = result if result is not None else app.return_code or 0
    if app._exception is not None:
        code = code or 1
        app.farewell = _crashed(session, app._exception, noise)
    if app.farewell:
        sys.stderr.write(f"eagle3-tui: {app.farewell}\n")
    if session.log.path is not None:
        sys.stderr.write(f"session log: {session.log.path}\n")
    return terminal.finish(code, app.engine, session.close)


def _crashed(session: Session, error: Exception, noise: Path | None) -> str:
    """What to say of a fault in the screen itself; the session's log keeps it."""
    session.note_failure("screen", error, "".join(traceback.format_exception(error)))
    where = f"; what else was written is in {noise}" if noise is not None else ""
    said = f"the screen failed: {type(error).__name__}: {safe(error, 200)}"
    return f"{said}; unexpected, please report it with the session log{where}"
