"""Pane 2 of the Serving view: what a launch line asks for, and what the server really does.

What is not as asked comes first, the worst at the top; then what is.
"""

from __future__ import annotations

from dataclasses import dataclass

from drafter.serving.effective import CHANGED, NOTE, REFUSED, WRONG, Effective, shown
from drafter.serving.flags import Asked
from eagle3_tui.controls.serving import ServingState
from eagle3_tui.screens.serving_text import NARROW, Line, wrapped
from eagle3_tui.widgets.line_table import Cells, Column

EMPTY = "f takes a launch line (or @FILE), v the server; l reads the flags out of a log"
_SIGNS = {REFUSED: ("x", "bad"), WRONG: ("!", "bad"), CHANGED: ("*", "warn"), NOTE: ("", "dim")}
_PLAIN = (("steps", "steps"), ("topk", "topk"), ("draft tokens", "draft_tokens"))


def columns(width: int) -> list[Column]:
    value = 14 if width >= NARROW else 10
    return [
        Column("", 1),
        Column("what", 20),
        Column("asked", value, cut="middle"),
        Column("effective", value, cut="middle"),
        Column("why"),
    ]


@dataclass(frozen=True)
class Told:
    """One row: something that was asked for or assumed, what became of it, and the rule."""

    what: str
    asked: str
    effective: str
    why: str
    source: str = ""
    kind: str = ""


def rows(serving: ServingState) -> list[Told]:
    made = serving.round
    if made is None:
        return []
    asked = serving.asked if serving.made is not None else serving.log_asked
    found = [Told(o.what, o.asked, o.effective, o.why, o.source, o.kind) for o in made.overrides]
    found += _plain(asked, made, {one.what for one in found}) if asked is not None else []
    return found + [Told("note", "", "", note) for note in made.notes]


def _plain(asked: Asked, made: Effective, told: set[str]) -> list[Told]:
    """The numbers of a round that no rule changed."""
    found = []
    for what, field in _PLAIN:
        wanted, real = getattr(asked, field), getattr(made, field)
        if field == "draft_tokens" and asked.speculative_tokens is not None:
            what, wanted = "speculative tokens", asked.speculative_tokens
        if what not in told and (wanted is not None or real is not None):
            why = "as asked" if wanted == real else "by the other numbers" if real is not None else ""
            found.append(Told(what, shown(wanted), "-" if real is None else str(real), why))
    return found


def cells(row: Told) -> Cells:
    sign, look = _SIGNS.get(row.kind, ("", ""))
    return [(sign, look), *((text, look) for text in (row.what, row.asked, row.effective, row.why))]


def lines(serving: ServingState, row: Told | None, width: int, most: int) -> list[Line]:
    """What a round is, then the row's own reason with the rule that it comes from."""
    made = serving.round
    if made is None:
        named = f"server {serving.server}; " if serving.server else ""
        return [[(f"{named}no flags yet: f takes a launch line, @FILE one of several lines", "dim")]]
    of = "as the log tells them" if serving.made is None else serving.line if serving.line.startswith("@") else ""
    head = f"{made.server} {made.algorithm}{f', {of}' if of else ''}: {round_said(made)}"
    found = wrapped(head, "bad" if made.refused or made.wrong else "", width, 2)
    log = serving.log
    if log is not None and log.version and not serving.server and made.server != f"{log.engine}@{log.version}":
        found += wrapped(f"the log is of {log.engine}@{log.version}: v reads the flags by its rules", "warn", width, 1)
    if row is not None:
        found += wrapped(f"{row.what}: {row.why}", _SIGNS.get(row.kind, ("", ""))[1], width, most - len(found) - 1)
        found += wrapped(f"rule: {row.source}" if row.source else "", "dim", width, most - len(found))
    found += wrapped(made.conversion, "dim", width, most - len(found))
    ignored = len(serving.asked.ignored) if serving.asked is not None and serving.made is not None else 0
    said = f"{ignored} other flag{'s say' if ignored > 1 else ' says'} nothing about drafting" if ignored else ""
    return (found + wrapped(said, "dim", width, most - len(found)))[:most]


def round_said(made: Effective) -> str:
    """Steps, topk, tokens, verified per round, and the longest accept length."""
    if made.max_accept_length is None:
        return "the server does not start" if made.refused else "how a round looks is not known"
    most = "at most, moving at run time: " if made.varies else ""
    if (made.topk or 1) > 1:
        what = f"a tree of {made.steps} steps, topk {made.topk}, {made.drafted} of {made.tree_nodes} nodes"
    else:
        what = f"a chain of {made.drafted} draft{'' if made.drafted == 1 else 's'}"
    return f"{most}{what}, {made.verified} tokens verified, accept length at most {made.max_accept_length} (with bonus)"
