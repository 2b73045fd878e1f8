"""The rounds of a text as rows, and the one under the cursor as lines. Knows no widget and no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eagle3_tui.screens.accept_chains import Line, number, wrapped
from eagle3_tui.widgets.line_table import Cells, Column, RowSource

if TYPE_CHECKING:
    from drafter.drafting.rounds import Round
    from eagle3_tui.controls.accept import Rounds

ACCEPTED, REJECTED, UNSEEN, BONUS = "=", "x", "-", "+"
BEFORE, AFTER = 12, 40  # tokens of text shown before and after the last known one
REFRESH_WORDS = {
    "target": "rows of accepted drafts are made again from the recorded target states, as servers do",
    "drafted": "rows of accepted drafts keep the drafter's own keys and values, as in an engine without the extend "
    "step; the bonus token's is recorded",
}
Piece = Callable[[int], str]
Running = Callable[[list[int]], str]


def columns(width: int) -> list[Column]:
    room = max(width - 22, 12)
    return [
        Column("after", 6, "right"),
        Column("acc.", 5, "right"),
        Column("emits", 5, "right"),
        Column("known", room // 5),
        Column("accepted", 2 * room // 5),
        Column("bonus", room // 5),
        Column("rejected"),
    ]


class RoundRows(RowSource):
    """One row a round; the text of its tokens is made when it is drawn."""

    def __init__(self, rounds: Rounds, piece: Piece) -> None:
        self._rounds, self._piece = rounds, piece
        self._texts: list[str] = []

    def __len__(self) -> int:
        return len(self._rounds.each)

    def key(self, i: int) -> object:
        return self._rounds.each[i].known

    def texts(self) -> list[str]:
        """What a filter looks at, in lower case."""
        if not self._texts:
            rows = (self.cells(i) for i in range(len(self)))
            self._texts = ["  ".join(text for text, _ in row).lower() for row in rows]
        return self._texts

    def cells(self, i: int) -> Cells:
        one, piece = self._rounds.each[i], self._piece
        accepted, rejected = drafts(one, piece)
        bonus = "end of run" if one.bonus is None else f"{BONUS}{piece(one.bonus)}"
        share = f"{one.accepted}/{len(one.drafted)}" if one.drafted else "no row"
        return [
            (str(one.known), ""),
            (share, "" if one.accepted else "bad"),
            (str(one.emitted), ""),
            (piece(self._rounds.ids[one.known]), "dim"),
            (" ".join(accepted), "good"),
            (bonus, "mark" if one.bonus is not None else "dim"),
            (" ".join(rejected), "bad"),
        ]


def drafts(one: Round, piece: Piece) -> tuple[list[str], list[str]]:
    """The accepted drafts and the rest, each with its glyph."""
    said = [piece(token) if token >= 0 else "(no numbers)" for token in one.drafted]
    accepted = [f"{ACCEPTED}{text}" for text in said[: one.accepted]]
    rest = said[one.accepted :]
    # where the run ends nothing was wrong with the next draft: nobody looked at it
    wrong = REJECTED if one.bonus is not None else UNSEEN
    return accepted, [f"{UNSEEN if k else wrong}{text}" for k, text in enumerate(rest)]


def lines(rounds: Rounds, i: int | None, piece: Piece, running: Running, width: int) -> list[Line]:
    """Six lines: the text around the round, its drafts, its place, the walk, and what the refresh is."""
    walk = rounds.walk
    said = f"walk {number(walk['length'])} tokens a round, bonus counted"
    more = f" ({walk['tokens']} in {walk['rounds']} rounds); {len(rounds.none)} accepted none"
    end: list[Line] = [[(said, "bold"), (more, "")]]
    end += wrapped(f"R refresh {rounds.refresh}: {REFRESH_WORDS[rounds.refresh]}", width, 2, "dim")
    if i is None:
        return end
    one = rounds.each[i]
    accepted, rejected = drafts(one, piece)
    drafted: Line = [("drafts ", "dim"), (" ".join(accepted) + " " * bool(accepted), "good")]
    drafted.append((" ".join(rejected) if one.drafted else "none: the first token has no row", "bad"))
    where = f"round {i + 1} of {len(rounds.each)}, after token {one.known}: "
    bonus = f", bonus {BONUS}{piece(one.bonus)}" if one.bonus is not None else ", no bonus: the run ends"
    fate = f"{one.accepted} of {len(one.drafted)} accepted{bonus}, {one.emitted} emitted"
    return [_around(rounds, one, running, width), drafted, [(where + fate, "")], *end]


def _around(rounds: Rounds, one: Round, running: Running, width: int) -> Line:
    """The text before, what was accepted and the bonus token between marks, the text after."""
    ids, first = rounds.ids, one.known + 1
    before = running(ids[max(0, first - BEFORE) : first])
    room = max(width // 3, 8)
    before = before if len(before) <= room else "…" + before[-room:]
    taken = running(ids[first : first + one.accepted])
    bonus = running(ids[first + one.accepted : first + one.emitted])
    after = running(ids[first + one.emitted : first + one.emitted + AFTER])
    return [
        (before, "dim"),
        (f"[{ACCEPTED}{taken}]" if taken else f"[{ACCEPTED}]", "good"),
        (f"[{BONUS}{bonus}]" if bonus else "", "mark"),
        (after, "dim"),
    ]
