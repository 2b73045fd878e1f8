"""The plain EAGLE-2 search: one node after another, each with its whole path, and an exhaustive one beside it.

A node's row takes the node's token and its parent's feedback, stands where a chain's draft of its depth stands, and
sees the committed rows and its ancestors' (or, `by_slot`, those of the nodes that stood in its place of the beam).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from torch import Tensor

from tests.reference.drafter import ReferenceDrafter, Row, to_target


@dataclass(frozen=True)
class Draft:
    """A candidate: its draft ids from the root on, its own probability and the cumulative score."""

    path: tuple[int, ...]
    prob: float
    score: float
    parent: Beamed


@dataclass(frozen=True)
class Beamed:
    """A node that was computed: its score, its row, and its ancestors' rows with its own (the root has none)."""

    path: tuple[int, ...]
    score: float
    row: Row
    own: list[Row]


@dataclass(frozen=True)
class PlainTree:
    """All candidates in the order of the search, and the kept ones' places among them, ascending."""

    drafts: list[Draft]
    kept: list[int]


class TreeSearch:
    """Trees from one row of a text: `ids`, recorded `states` [T, A, Ht], the map's offsets `d2t`."""

    def __init__(
        self, model: ReferenceDrafter, ids: Sequence[int], states: Tensor, row: int, d2t: Sequence[int], logs: bool
    ) -> None:
        self.model, self.row, self.d2t, self.logs, self.length = model, row, d2t, logs, len(ids) - 1
        self.committed = model.step0(ids, states, row + 1)
        self.root = Beamed((), 0.0 if logs else 1.0, self.committed[-1], [])

    def search(self, levels: int, topk: int, keep: int, by_slot: bool = False) -> PlainTree:
        beam, drafts = [self.root], []
        slots: list[list[Row]] = [[] for _ in range(topk)]
        for depth in range(1, levels + 1):
            children = [child for node in beam for child in self._children(node, topk)]
            drafts += children
            if depth == levels:
                break
            best = sorted(children, key=lambda child: -child.score)[:topk]
            beam = []
            for slot, child in enumerate(best):
                beam.append(self._compute(child, slots[slot] if by_slot else child.parent.own))
                slots[slot].append(beam[-1].row)
        order = sorted(range(len(drafts)), key=lambda place: -drafts[place].score)
        return PlainTree(drafts, sorted(order[:keep]))

    def every_path(self, levels: int) -> list[Draft]:
        """All nodes of all paths: D + D^2 + ... of them."""
        beam, found = [self.root], []
        for depth in range(1, levels + 1):
            children = [child for node in beam for child in self._children(node, len(node.row.logits))]
            found += children
            if depth < levels:
                beam = [self._compute(child, child.parent.own) for child in children]
        return found

    def _children(self, node: Beamed, topk: int) -> list[Draft]:
        logits = node.row.logits.tolist()
        top = max(logits)
        total = top + log(sum(exp(x - top) for x in logits))
        best = sorted(range(len(logits)), key=lambda d: (-logits[d], d))[:topk]
        probs = [exp(logits[d] - total) for d in best]
        score = [node.score + log(p) if self.logs else node.score * p for p in probs]
        return [Draft((*node.path, d), p, s, node) for d, p, s in zip(best, probs, score, strict=True)]

    def _compute(self, child: Draft, before: list[Row]) -> Beamed:
        k, model = len(child.path), self.model
        at = self.row + k if model.moving_windows else self.row
        seen = model._seen(self.committed, before, at)
        token = to_target(child.path[-1], self.d2t)
        out = model.forward(token, child.parent.row.feedback, model._position(self.row, k), seen, self.length + k)
        return Beamed(child.path, child.score, out, [*before, out])
