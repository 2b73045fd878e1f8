"""The tensors of two checkpoints as rows: how far each moved, and what was not compared and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle3_tui.screens.compare_words import number
from eagle3_tui.widgets.line_table import Cells, Column

if TYPE_CHECKING:
    from drafter.checkpoint_compare.compare import Comparison
    from drafter.checkpoint_compare.tensors import Compared, NotCompared
    from drafter.files.stored import StoredTensor

MOST_CHANGED, BY_NAME = "by change", "by name"
SORTS = (MOST_CHANGED, BY_NAME)
CHANGED, SAME, ROUNDED, LEFT_OUT = "!", "=", "~", "-"
_NARROW = 64
_LOOKS = {CHANGED: "", SAME: "dim", ROUNDED: "dim", LEFT_OUT: "warn"}


@dataclass(frozen=True)
class Line:
    """One tensor, `compared` or `left` out."""

    compared: Compared | None = None
    left: NotCompared | None = None

    @property
    def name(self) -> str:
        found = self.compared or self.left
        return found.name if found is not None else ""

    @property
    def glyph(self) -> str:
        if self.compared is None:
            return LEFT_OUT
        change = self.compared.change
        return SAME if change.exact else ROUNDED if change.equal else CHANGED


def lines_of(comparison: Comparison, sort: str) -> list[Line]:
    """What was compared, from the largest relative change on, then what was not; or all by name."""
    lines = [Line(compared=one) for one in comparison.tensors.compared]
    lines += [Line(left=one) for one in comparison.tensors.not_compared]
    return sorted(lines, key=lambda line: line.name) if sort == BY_NAME else lines


def columns(width: int) -> list[Column]:
    moved, largest = Column("rel. L2", 8, "right"), Column("max", 8, "right")
    rest = [Column("cosine", 8, "right"), Column("changed %", 9, "right"), Column("about")]
    if width < _NARROW:
        return [Column("", 1), Column("tensor", max(8, min(24, width - 32)), cut="middle"), moved, *rest]
    name = max(22, min(40, width - 53))
    return [Column("", 1), Column("tensor", name, cut="middle"), moved, largest, *rest]


def cells(line: Line, width: int) -> Cells:
    look = _LOOKS[line.glyph]
    if line.left is not None:
        blank = ["-"] * (3 if width < _NARROW else 4)
        return [(text, look) for text in (line.glyph, line.name, *blank, line.left.why)]
    assert line.compared is not None
    change = line.compared.change
    largest = [] if width < _NARROW else [number(change.largest, "#.3g")]
    shared = f"{100 * change.changed / change.elements:.1f}" if change.elements else "-"
    numbers = [number(change.relative, "#.3g"), *largest, number(change.cosine, ".4f"), shared]
    bad = "bad" if any(change.not_finite) else look
    return [*((text, look) for text in (line.glyph, line.name, *numbers)), ("; ".join(_notes(line.compared)), bad)]


def _notes(line: Compared) -> list[str]:
    ours, theirs = line.change.not_finite
    notes = [f"not finite: {ours} | {theirs}"] if ours or theirs else []
    notes += [f"equal in {line.change.rounded_to}"] if line.change.equal and not line.change.exact else []
    return [*notes, line.note] if line.note else notes


def said(comparison: Comparison, line: Line | None) -> list[tuple[str, str]]:
    """The tensor under the cursor in full, then the verdict."""
    first = [] if line is None else [(_about(line), "warn" if line.left is not None else "")]
    tensors = comparison.tensors
    changed = sum(not c.change.equal for c in tensors.compared)
    counted = f"{len(tensors.compared)} compared, {changed} changed, {len(tensors.not_compared)} not compared"
    moved = tensors.fc_blocks
    blocks = f"; the column blocks of their fc are {','.join(map(str, moved))} of ours, to the bit" if moved else ""
    return [*first, (f"verdict: {comparison.verdict.sentence}", "mark"), (counted + blocks, "dim")]


def _about(line: Line) -> str:
    if line.left is not None:
        left = line.left
        where = f"only in {left.only_in}; " if left.only_in else ""
        return f"{left.name}: not compared: {where}{left.why}; {_both(left)}"
    assert line.compared is not None
    one, change = line.compared, line.compared.change
    rounded = f", both rounded to {change.rounded_to}" if change.rounded_to else ""
    counted = f"{change.changed} of {change.elements} elements differ{rounded}"
    numbers = f"|theirs - ours| / |ours| {number(change.relative, '.4g')}, largest {number(change.largest, '.4g')}"
    notes = "".join(f"; {note}" for note in _notes(one))
    return f"{one.name}: {counted}; {numbers}, cosine {number(change.cosine, '.6f')}{notes}; {_both(one)}"


def _both(one: Compared | NotCompared) -> str:
    return " | ".join(_stored(stored) for stored in (one.ours, one.theirs))


def _stored(stored: StoredTensor | None) -> str:
    return "none" if stored is None else f"{stored.dtype} {list(stored.shape)}"
