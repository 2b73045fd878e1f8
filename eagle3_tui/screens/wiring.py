"""View 5: every switch of the wiring with its values; what the score would be with each, and which is in force.

A row is one value of one switch; its numbers are those of the current ordering on the current sample with that one
switch changed. Enter puts a value in force everywhere, so the other views show what it does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from drafter.wiring import SWITCHES, name
from eagle3_tui.screens.view import Detail, Rows, View, percent
from eagle3_tui.widgets.line_table import Cells, Column, LineTable

if TYPE_CHECKING:
    from drafter.scoring.counts import OrderingCounts

LEGEND = [
    (">", "the value in force"),
    ("t", "the value of the view: what was trained"),
]
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
    """One value of one switch."""

    switch: str
    value: str


class WiringView(View):
    HINTS = "enter in force  x as trained  r score each  e export  ? help  q quit"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "reset", "As trained", id="wiring.reset", tooltip="give every switch back to the trained wiring"),
        Binding("r", "score", "Score each", id="wiring.score", tooltip="score every single change of a switch"),
    ]

    def compose(self) -> ComposeResult:
        columns = [
            Column("", 2),
            Column("switch", 20),
            Column("value", 11),
            Column("step 0", 6, "right"),
            Column("length", 6, "right"),
            Column("what it is"),
        ]
        yield LineTable(columns, empty="no checkpoint opened", id="wiring-table")
        yield Detail(classes="detail")

    def table(self) -> LineTable:
        return self.query_one(LineTable)

    def changed(self, what: str) -> None:
        if what in ("all", "wiring", "tried", "checkpoint", "ready", "ordering", "sample", "problem"):
            self.table().empty = self.state.problem or "the drafter is not loaded yet"
            choices = self._choices()
            self.table().set_rows(Rows(choices, lambda i: self._cells(choices[i]), lambda i: choices[i]))
        if what in ("all", "ready", "ordering", "wiring"):
            self.controller.try_switches()
        if what not in ("busy", "message", "rows", "step", "others"):
            self._show_detail()

    def _choices(self) -> list[Choice]:
        """Every value of every switch; for the RoPE base those in use and the usual ones."""
        trained, current = self.state.trained_switches, self.state.switches
        found = []
        for switch, values in SWITCHES.items():
            if not values:
                usual = [trained.get(switch, ""), current.get(switch, ""), "10000", "500000", "1000000"]
                values = tuple(dict.fromkeys(value for value in usual if value))
            found += [Choice(switch, value) for value in values] if trained else []
        return found

    def _cells(self, choice: Choice) -> Cells:
        state = self.state
        in_force = state.switches.get(choice.switch) == choice.value
        trained = state.trained_switches.get(choice.switch) == choice.value
        marks = (">" if in_force else " ") + ("t" if trained else " ")
        tried = state.tried.get((choice.switch, choice.value))
        look = "mark" if in_force and not trained else "" if in_force else "dim"
        if isinstance(tried, str):
            head = [(marks, look), (choice.switch, look), (choice.value, look)]
            return [*head, ("", ""), ("", ""), (needs(tried), "dim")]
        return [
            (text, look) for text in (marks, choice.switch, choice.value, *_numbers(tried)[:2], _WHAT[choice.switch])
        ]

    def _show_detail(self) -> None:
        """The score before (as trained) and after (as wired now)."""
        state = self.state
        if state.ordering is None or not state.ready:
            return self.query_one(Detail).say(self.problem_lines("no sample opened", 2))
        changed = {s: v for s, v in state.switches.items() if state.trained_switches.get(s) != v}
        before, after = state.tried.get(("", "trained")), state.tried.get(("", "now"))
        first = [(f"ordering {name(state.ordering)} on this sample: as trained {_said(before)}", "")]
        if not changed:
            return self.query_one(Detail).say([first, [("no switch is changed", "dim")]])
        what = ", ".join(f"{s} {state.trained_switches.get(s)} -> {v}" for s, v in changed.items())
        self.query_one(Detail).say([first, [(f"with {what}: {_said(after)}", "warn")]])

    # ------------------------------------------------------------------ keys

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        choice = event.key
        if not isinstance(choice, Choice):
            return
        if choice.switch == "rope_base" and self.state.switches.get("rope_base") == choice.value:
            self.inspector.ask("RoPE base:", "a number, e.g. 10000", lambda text: self._set("rope_base", text))
        else:
            self._set(choice.switch, choice.value)

    def _set(self, switch: str, value: str) -> None:
        self.controller.set_switch(switch, value)

    def action_reset(self) -> None:
        self.controller.reset_switches()

    def action_score(self) -> None:
        self.controller.try_switches(again=True)


def needs(refusal: str) -> str:
    """A refusal in the room of a row: of a scaling that the config has no parameter for, only the parameter."""
    found = re.fullmatch(r"RoPE '\w+' with (\w+) None", refusal)
    return f"needs {found[1]}" if found else refusal


def _numbers(tried: OrderingCounts | None) -> tuple[str, str, str]:
    if tried is None or isinstance(tried, str):
        return "", "", ""
    accuracy, length = tried.accuracy, tried.lengths.mean
    return percent(accuracy.ratio), "-" if length is None else f"{length:.2f}", f"{accuracy.hits}/{accuracy.total}"


def _said(tried: OrderingCounts | str | None) -> str:
    if tried is None:
        return "…"
    if isinstance(tried, str):
        return tried
    share, length, rows = _numbers(tried)
    return f"{share} % ({rows}), accept length {length}"
