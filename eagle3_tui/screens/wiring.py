"""View 5: every switch of the wiring with its values; what the score would be with each, and which is in force.

A row is one value of one switch; its numbers are those of the current ordering on the current sample with that one
switch changed. Enter puts a value in force everywhere, so the other views show what it does. Switches that do not
apply to the checkpoint come last, a row each, and are not scored.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from drafter.serving.views import TRAINED as VIEW
from eagle3_tui.controls.wiring import NOW, TRAINED
from eagle3_tui.screens.view import Detail, Rows, View, convention, percent
from eagle3_tui.widgets.line_table import Cells, Column, LineTable

if TYPE_CHECKING:
    from drafter.scoring.counts import OrderingCounts

LEGEND = [
    (">", "the value in force"),
    ("t", "the value that was trained; of a served view (--view): what that server computes"),
    ("-", "the switch changes nothing: what it is about is not in this checkpoint"),
]
LISTED, BEST, WORST = "as listed", "best first", "worst first"
_SORTS = (LISTED, BEST, WORST)
_NARROW = 60  # columns below which the words give way
_WHAT = {
    "norm_before_residual": "residual is hidden_norm(g), not g; SGLang and TRT-LLM always take g",
    "norm_output": "next step is fed the state after the final norm (EAGLE-3.1)",
    "double_norm": "hidden passes input_layernorm too, as ModelOpt trains; servers never do",
    "final_norm": "norm before lm_head",
    "rope_base": "enter asks for another base",
    "rope_type": "scaling of the rotary embedding",
    "rope_pairs": "which dimensions are rotated together; MLA drafters interleave",
    "embedding": "SGLang replaces a trained embedding by the target's",
    "head": "tied: the embedding's first rows, as SGLang does for tie_word_embeddings",
    "d2t": "every server reads offsets",
    "window": "a sliding window moves with the draft in vLLM, stays in training; SGLang has none",
    "positions": "late: one too many from the second draft on, SGLang up to 0.5.11",
    "norm_before_fc": "input_norm before fc; SGLang only since 0.5.17",
    "fc_norm": "a norm for each state before fc (EAGLE-3.1); SGLang only since 0.5.12",
    "fc_bias": "SGLang adds it only with bias: true, vLLM never",
    "qkv_bias": "biases of q, k, v in the first layer; SGLang never adds them",
    "qk_norm": "norms of q and k; SGLang never applies them, vLLM for qwen3",
    "upper_norms": "ones: SGLang reads hidden_norm above the first layer, vLLM input_layernorm",
    "lost_norm": "ones: what a server's norm is when its weight is not in the file",
    "fc": "SGLang skips fc where its input is as wide as the drafter",
    "mlp_gate": "swapped: gate_proj and up_proj in each other's place, as by a fused tensor cut wrongly",
    "halves": "hidden_first: q, k, v take concat(hidden, embedding)",
    "row_ids": "same: the ids of the prompt are not shifted by one",
    "feedback": "through_fc, first: what comes back to the next step is not the drafter's own state",
    "fed_ids": "draft: d2t is not applied to the token that the next step is fed",
    "draft_keys": "forgotten: no key of an earlier draft; alone: no key of the text before",
    "residual": "lost: a layer hands on its MLP's output alone",
}


@dataclass(frozen=True)
class Choice:
    """One value of one switch; without a value the switch does not apply."""

    switch: str
    value: str


class WiringView(View):
    HINTS = "enter in force  x as trained  s sort  r score the rest  e export  ? help"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "reset", "As trained", id="wiring.reset", tooltip="give every switch back to the trained wiring"),
        Binding("s", "sort", "Sort", id="wiring.sort", tooltip="as listed, or by the score: best or worst first"),
        Binding("r", "score", "Score", id="wiring.score", tooltip="score what esc stopped; or every value once more"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sort = LISTED

    def compose(self) -> ComposeResult:
        yield LineTable(_columns(80), empty="no checkpoint opened", id="wiring-table")
        yield Detail(classes="detail")

    def table(self) -> LineTable:
        return self.query_one(LineTable)

    def changed(self, what: str) -> None:
        if what in ("all", "wiring", "tried", "checkpoint", "ready", "ordering", "sample", "problem", "sort", "size"):
            self.table().empty = self.state.problem or "the drafter is not loaded yet"
            columns = _columns(self.size.width or 80)
            if columns != self.table().columns:
                self.table().set_columns(columns)
            choices = self._choices()
            self.table().set_rows(Rows(choices, lambda i: self._cells(choices[i]), lambda i: choices[i]))
        if what in ("all", "ready", "ordering", "wiring"):
            self.controller.wiring.start()
        if what not in ("busy", "message", "rows", "step", "others"):
            self._show_detail()

    def _choices(self) -> list[Choice]:
        """Every value of every switch that applies, then the switches that do not."""
        if not self.state.trained_switches:
            return []
        found = [Choice(*pair) for pair in self.controller.wiring.pairs()]
        if self._sort != LISTED:
            found.sort(key=self._rank)
        return found + [Choice(switch, "") for switch in self.state.tries.absent]

    def _rank(self, choice: Choice) -> tuple[bool, float]:
        """What is not scored comes last."""
        tried = self.state.tries.found.get((choice.switch, choice.value))
        if tried is None or isinstance(tried, str):
            return True, 0.0
        ratio = tried.accuracy.ratio or 0.0
        return False, -ratio if self._sort == BEST else ratio

    def _cells(self, choice: Choice) -> Cells:
        state = self.state
        if not choice.value:
            why = state.tries.absent.get(choice.switch, "")
            return [(text, "dim") for text in ("", choice.switch, "-", "", "", why)]
        in_force, trained = self._is(choice)
        marks = (">" if in_force else " ") + ("t" if trained else " ")
        tried = state.tries.found.get((choice.switch, choice.value))
        look = "mark" if in_force and not trained else "" if in_force else "dim"
        what = needs(tried) if isinstance(tried, str) else _WHAT.get(choice.switch, "")
        return [(text, look) for text in (marks, choice.switch, choice.value, *_numbers(tried)[:2], what)]

    def _is(self, choice: Choice) -> tuple[bool, bool]:
        """Whether a value is in force, and whether it is the trained one."""
        switch, value = choice.switch, choice.value
        return self.state.switches.get(switch) == value, self.state.trained_switches.get(switch) == value

    # ------------------------------------------------------------------ the detail

    def _show_detail(self) -> None:
        """The row under the cursor in full; the scores as trained and as wired now; what all of them are of."""
        state = self.state
        if state.ordering is None or state.sample is None or not state.ready:
            return self.query_one(Detail).say(self.problem_lines("no sample opened", 4))
        tries, key = state.tries, self.table().key
        changed = {s: v for s, v in state.switches.items() if state.trained_switches.get(s) != v}
        lines = [(line, "") for line in self._row_lines(key)] if isinstance(key, Choice) else []
        view = self.controller.session.view_name
        trained = f"{f'as {view}' if view != VIEW else 'as trained'} {_said(tries.found.get(TRAINED), tries.stopped)}"
        if changed:
            what = ", ".join(f"{s} {state.trained_switches.get(s)} -> {v}" for s, v in changed.items())
            lines.append((f"with {what}: {_said(tries.found.get(NOW), tries.stopped)}; {trained}", "warn"))
        else:
            lines.append((f"{trained}; no switch is changed", ""))
        if tries.stopped and tries.missing:
            lines[-1] = (f"stopped after {tries.said}: r scores the rest; {lines[-1][0]}", lines[-1][1])
        lines.append((f"{convention(self.controller)}, {state.sample.path.name}", "dim"))
        lines += [(said, "warn") for said in state.view_said[:1]]
        self.query_one(Detail).set_class(bool(state.view_said), "more")
        self.query_one(Detail).say([[line] for line in lines])

    def _row_lines(self, choice: Choice) -> list[str]:
        """What the row says, in two lines."""
        state, width = self.state, max(self.size.width, 20)
        what = _WHAT.get(choice.switch, "")
        tried = state.tries.found.get((choice.switch, choice.value))
        if not choice.value:
            head = f"{choice.switch}: {state.tries.absent.get(choice.switch, '')}"
        elif isinstance(tried, str):
            head = f"{choice.switch} {choice.value}: {tried}"
        else:
            head = f"{choice.switch} {choice.value}: {_said(tried, state.tries.stopped)}{self._against(tried)}"
        return [head, *(textwrap.wrap(what, width) or [""])[:1]]

    def _against(self, tried: OrderingCounts | None) -> str:
        now = self.state.tries.found.get(NOW)
        if tried is None or tried is now or now is None or isinstance(now, str):
            return ""
        return f" ({tried.accuracy.hits - now.accuracy.hits:+d} hits)"

    # ------------------------------------------------------------------ keys

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        if self.display:
            self._show_detail()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        choice = event.key
        if not isinstance(choice, Choice):
            return
        if not choice.value:
            self.controller.say(f"{choice.switch}: {self.state.tries.absent.get(choice.switch)}", "warn")
        elif choice.switch == "rope_base" and self.state.switches.get("rope_base") == choice.value:
            self.inspector.ask("RoPE base:", "a number, e.g. 10000", lambda text: self._set("rope_base", text))
        else:
            self._set(choice.switch, choice.value)

    def _set(self, switch: str, value: str) -> None:
        self.controller.set_switch(switch, value)

    def action_reset(self) -> None:
        self.controller.reset_switches()

    def action_sort(self) -> None:
        self._sort = _SORTS[(_SORTS.index(self._sort) + 1) % len(_SORTS)]
        self.changed("sort")
        self.controller.say(f"sorted {self._sort}")

    def action_score(self) -> None:
        self.controller.wiring.again()

    def on_resize(self) -> None:
        if self.display:
            self.changed("size")


def _columns(width: int) -> list[Column]:
    narrow = width < _NARROW
    return [
        Column("", 2),
        Column("switch", max(8, min(20, width - 31)) if narrow else 20, cut="middle"),
        Column("value", 11),
        Column("step 0", 6, "right"),
        Column("length", 6, "right"),
        Column("what it is"),
    ]


def needs(refusal: str) -> str:
    """A refusal in the room of a row: of a scaling that the config has no parameter for, only the parameter."""
    found = re.fullmatch(r"RoPE '\w+' with (\w+) None", refusal)
    return f"needs {found[1]}" if found else refusal


def _numbers(tried: OrderingCounts | str | None) -> tuple[str, str, str]:
    if tried is None or isinstance(tried, str):
        return "", "", ""
    accuracy, length = tried.accuracy, tried.lengths.mean
    return percent(accuracy.ratio), "-" if length is None else f"{length:.2f}", f"{accuracy.hits}/{accuracy.total}"


def _said(tried: OrderingCounts | str | None, stopped: bool = False) -> str:
    if tried is None:
        return "not scored" if stopped else "…"
    if isinstance(tried, str):
        return tried
    share, length, rows = _numbers(tried)
    return f"{share} % ({rows}), accept length {length}"
