"""The order and the branches in which a tree of drafts is drawn. Knows neither widgets nor what a token says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafter.drafting.tree import Node, Tree


@dataclass(frozen=True)
class TreeLine:
    """A node and what is drawn before it. `right`: it and all before it are the sample's own tokens."""

    guide: str
    node: Node
    right: bool


def tree_lines(tree: Tree, text: Sequence[int], only_kept: bool = False) -> list[TreeLine]:
    """The root and everything below it; `text` are the sample's tokens from the root's on, as far as there are any."""
    nodes = tree.nodes
    children: dict[int, list[int]] = {}
    right = [False] * len(nodes)
    for place, node in enumerate(nodes):
        if only_kept and not node.kept:
            continue
        here = node.depth < len(text) and node.id == text[node.depth]
        right[place] = node.parent < 0 or (here and right[node.parent])
        children.setdefault(node.parent, []).append(place)
    lines: list[TreeLine] = []
    waiting = [(place, "", "") for place in children.get(-1, [])]  # (node, its guide, that of its children)
    while waiting:
        place, guide, below = waiting.pop()
        lines.append(TreeLine(guide, nodes[place], right[place]))
        ranked = sorted(children.get(place, []), key=lambda child: -nodes[child].score)
        last = ranked[-1:]
        for child in reversed(ranked):
            here = [child] == last
            waiting.append((child, below + ("└─ " if here else "├─ "), below + ("   " if here else "│  ")))
    return lines
