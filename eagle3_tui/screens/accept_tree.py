"""A tree of drafts as rows, and what is said of it. Knows no widget and no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eagle3_tui.screens.accept_branches import TreeLine
from eagle3_tui.screens.accept_chains import Line, number
from eagle3_tui.widgets.line_table import Cells, Column

if TYPE_CHECKING:
    from drafter.drafting.tree import Tree
    from drafter.scoring.tree_counts import TreeCounts
    from eagle3_tui.controls.accept import GrownTree

Piece = Callable[[int], str]
ACCEPTED, LOST, CUT = "=", "!", "."
TO_ASCII = str.maketrans("│├└─", "|+`-")


def columns(tree: Tree | None) -> list[Column]:
    logs = tree is not None and tree.plan.sums_logs
    head = [Column("", 1), Column("p", 5, "right")]
    return [*head, Column("sum log" if logs else "cumul.", 7, "right"), Column("token")]


def cells(tree: Tree, line: TreeLine, piece: Piece, ascii: bool) -> Cells:
    node = line.node
    glyph, look = mark(line)
    if node.depth == 0:
        return [("", ""), ("", ""), ("", ""), (f"{piece(node.id)} token {tree.at - 1}, known", "bold")]
    guide = line.guide.translate(TO_ASCII) if ascii else line.guide
    score = f"{node.score:.3f}" if tree.plan.sums_logs else f"{node.score:.4f}"
    return [(glyph, look), (f"{node.prob:.3f}", look), (score, look), (guide + piece(node.id), look)]


def mark(line: TreeLine) -> tuple[str, str]:
    """Glyph and style name of a node."""
    if line.node.accepted:
        return ACCEPTED, "good"
    if not line.node.kept:
        return (LOST, "warn") if line.right else (CUT, "dim")
    return "", ""


def detail(grown: GrownTree, piece: Piece) -> list[Line]:
    """What was searched, what the text accepts of it, and what was lost by leaving candidates out."""
    tree, plan, length = grown.tree, grown.tree.plan, grown.tree.accept_length
    kept, found = sum(node.kept for node in tree.nodes) - 1, len(tree.nodes) - 1
    sizes = f"{plan.rule} steps {plan.steps} topk {plan.topk} tokens {plan.tokens}"
    lines: list[Line] = [[(f"token {tree.at}: ", "bold"), (f"{sizes}; {kept} of {found} candidates kept", "")]]
    if not found:
        return [*lines, [("! the drafter gave no numbers here", "warn")]]
    then = f"; then the text says {piece(grown.text[length])}" if length < len(grown.text) else "; the text ends"
    said = f"accept length {length}, bonus counted: {length - 1} accepted"
    lines.append([(said, "good" if length > 1 else "bad"), (then if length <= plan.levels else "", "")])
    lost = next((line for line in grown.lines if line.right and not line.node.kept), None)
    if lost is not None:
        what = f"{LOST} {piece(lost.node.id)} was a candidate at depth {lost.node.depth}"
        lines.append([(f"{what} and right, but is not kept", "warn")])
    return [*lines, *([(note, "warn")] for note in plan.notes)]


def lengths_said(counts: TreeCounts, mask: str) -> list[Line]:
    """Trees beside the greedy chain of as many drafts, on the same rows."""
    trees, chain = counts.lengths, counts.chain
    first = f"trees {number(trees.mean)}, chains of {counts.plan.levels} drafts {number(chain.mean)}"
    how = f": {trees.rows} rows, bonus counted, mask {mask}"
    if counts.done < counts.planned:
        return [[(first, "bold"), (how, "")], [(f"{counts.done} of {counts.planned} rows searched", "warn")]]
    walks = f"walk {number(trees.walk)} tokens a round, chains {number(chain.walk)}"
    odd = f"; {counts.not_finite} rows gave no numbers" if counts.not_finite else ""
    return [[(first, "bold"), (how, "")], [(walks + odd, "")]]
