"""A tree of drafts as plain data: how it is searched, what was proposed from one row, what is kept, what is right.

Knows no tensors and no drafter; `drafter.drafting.tree_eagle2` grows these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from drafter.errors import WiringError

RULES = ("sglang", "sglang-slots", "safeailab")
MAX_STEPS, MAX_TOPK, MAX_CANDIDATES = 64, 64, 1 << 16


@dataclass(frozen=True)
class TreePlan:
    """One search, as `tree_plan` checked it. Each level after the first expands the `topk` best nodes of the one before
    by `topk` children each; the best `tokens` - 1 of all candidates are kept, the root being the first token.

    rule: `sglang`: probabilities multiplied, `steps` levels. `sglang-slots`: the same with the keys that SGLang's cache
        really holds: those of a node's place in the beam, also where its parent stood in another place. `safeailab`:
        log-probabilities summed, `steps` + 1 levels (its `depth` loop comes after the first).
    notes: what was changed or cannot be reached, for the user.
    """

    rule: str
    steps: int
    topk: int
    tokens: int
    notes: tuple[str, ...] = ()

    @property
    def levels(self) -> int:
        """The longest path of drafts; an accept length is at most one more."""
        return self.steps + 1 if self.rule == "safeailab" else self.steps

    @property
    def candidates(self) -> int:
        return self.topk + (self.levels - 1) * self.topk**2

    @property
    def drafts(self) -> int:
        """How many candidates are kept."""
        return min(self.tokens - 1, self.candidates)

    @property
    def sums_logs(self) -> bool:
        return self.rule == "safeailab"

    @property
    def keeps_slots(self) -> bool:
        """Whether earlier keys stay with the place in the beam instead of following the parent."""
        return self.rule == "sglang-slots"


def tree_plan(rule: str, steps: int, topk: int, tokens: int | None = None) -> TreePlan:
    """A search with the server's adjustments, named in its notes. Without `tokens` only a chain is known.

    Raises WiringError for a rule or size that cannot be meant.
    """
    if rule not in RULES:
        raise WiringError(f"the tree rule {rule!r}", expected=f"one of {', '.join(RULES)}")
    for name, value, most in (("steps", steps, MAX_STEPS), ("topk", topk, MAX_TOPK)):
        if not 1 <= value <= most:
            raise WiringError(f"a tree with {name} {value}", expected=f"1..{most}")
    chain = topk == 1 and rule != "safeailab"
    if tokens is None and not chain:
        raise WiringError(f"a tree with topk {topk} and no number of tokens", expected="how many the target verifies")
    asked = steps + 1 if tokens is None else tokens
    if asked < 2:
        raise WiringError(f"a tree of {asked} tokens", expected="at least 2: the root and one draft")
    plan = TreePlan(rule, steps, topk, steps + 1 if chain else asked)
    if plan.candidates > MAX_CANDIDATES:
        raise WiringError(f"a tree of {plan.candidates} candidates", expected=f"at most {MAX_CANDIDATES}")
    return replace(plan, notes=tuple(_notes(plan, asked)))


def _notes(plan: TreePlan, asked: int) -> list[str]:
    notes = []
    if plan.tokens != asked:
        notes.append(f"with topk 1 SGLang verifies steps + 1 = {plan.tokens} tokens, whatever is asked ({asked})")
    if plan.tokens - 1 > plan.candidates:
        notes.append(f"{plan.tokens} tokens cannot be reached: the search has only {plan.candidates} candidates")
    if plan.drafts < plan.levels:
        notes.append(f"a path of {plan.levels} drafts does not fit into {plan.tokens} tokens")
    return notes


@dataclass(frozen=True, slots=True)
class Node:
    """A candidate of the search; the root is the last known token, with depth 0 and no draft id (-1).

    `parent` is its parent's place in the tuple that holds both (-1: none), `prob` the drafter's probability of this
    token after its parent, `score` the cumulative one of the rule. `accepted`: on the longest path of the sample's own
    tokens.
    """

    parent: int
    depth: int
    id: int
    draft_id: int
    prob: float
    score: float
    kept: bool
    accepted: bool


@dataclass(frozen=True)
class Tree:
    """What was searched from row `row`, whose first draft stands for token `row` + 2.

    `nodes` are the root and then all candidates, level by level, in the order in which the search scored them; without
    candidates the drafter gave no numbers there.
    """

    plan: TreePlan
    row: int
    nodes: tuple[Node, ...]

    @property
    def at(self) -> int:
        return self.row + 2

    @property
    def accept_length(self) -> int:
        """Accepted drafts and the bonus token."""
        return sum(node.accepted for node in self.nodes)  # the root, too, is accepted

    def kept(self) -> tuple[Node, ...]:
        """The nodes that the target verifies, as a server lays them out: the root first, parents before children."""
        places = {-1: -1}
        for place, node in enumerate(self.nodes):
            if node.kept:
                places[place] = len(places) - 1
        return tuple(replace(node, parent=places[node.parent]) for node in self.nodes if node.kept)


def leaf_paths(nodes: tuple[Node, ...]) -> list[list[int]]:
    """Places in `nodes` from the root to each node without children, in the order of these."""
    inner = {node.parent for node in nodes}
    return [_path(nodes, place) for place in range(len(nodes)) if place not in inner]


def _path(nodes: tuple[Node, ...], place: int) -> list[int]:
    path = []
    while place >= 0:
        path.append(place)
        place = nodes[place].parent
    return path[::-1]


def seen_by(nodes: tuple[Node, ...]) -> list[list[bool]]:
    """For each node which nodes it sees when the target verifies the tree: itself and its ancestors."""
    return [
        [other in path for other in range(len(nodes))] for path in (set(_path(nodes, i)) for i in range(len(nodes)))
    ]


def plan_json(plan: TreePlan) -> dict[str, Any]:
    return {
        "rule": plan.rule,
        "steps": plan.steps,
        "topk": plan.topk,
        "tokens": plan.tokens,
        "candidates": plan.candidates,
        "notes": list(plan.notes),
    }


def tree_json(tree: Tree) -> dict[str, Any]:
    """The kept tree; `parent` is a place in `nodes`."""
    nodes = [
        {
            "parent": node.parent,
            "depth": node.depth,
            "id": node.id,
            "draft_id": node.draft_id,
            "prob": node.prob,
            "score": node.score,
            "accepted": node.accepted,
        }
        for node in tree.kept()
    ]
    return {
        **plan_json(tree.plan),
        "at": tree.at,
        "row": tree.row,
        "nodes": nodes,
        "accept_length": tree.accept_length,
    }
