"""Trees of drafts from many rows at once, searched as EAGLE-2 does: one pass a level over the beams of all rows.

A node takes its own token and what its parent feeds back, stands where a chain's draft of its depth stands, and sees
the step-0 keys of rows <= its row and its ancestors' keys. Rows do not know of each other, so as many are searched
together as the memory bound allows. Of equal scores the one that was found first is taken: a server's own choice among
them is not defined. Shapes: B rows, K = topk, M candidates a row, D draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.drafting.chains import Poll, forward
from drafter.drafting.context import BLOCK, Context, SampleRun
from drafter.drafting.tree import Node, Tree, TreePlan
from drafter.errors import WiringError
from drafter.model.drafter import Eagle3Drafter
from drafter.wiring import Ordering, Wiring

MAX_BYTES = 1 << 26  # of one level's scores and logits
NEVER = float("-inf")  # the score of what is no number: it is never kept


@dataclass(frozen=True)
class Forest:
    """The trees of `rows` [B], all on the CPU. Candidates stand level by level; `depths` [M].

    draft_ids, ids (of the target), probs, scores, parents [B, M]: `parents` are places among the candidates, -1 the
    root. kept [B, M] bool: with a node its parent is kept.
    """

    plan: TreePlan
    rows: Tensor
    depths: Tensor
    draft_ids: Tensor
    ids: Tensor
    probs: Tensor
    scores: Tensor
    parents: Tensor
    kept: Tensor

    def right(self, tokens: Tensor) -> Tensor:
        """[B, M] bool: the kept nodes whose whole path from the root is the text `tokens` [T]."""
        where = self.rows[:, None] + 1 + self.depths  # [B, M]
        there = where < tokens.numel()
        right = self.kept & there & (self.ids >= 0) & (self.ids == tokens[where.clamp(max=tokens.numel() - 1)])
        for depth in range(2, self.plan.levels + 1):
            level = self.depths == depth
            right[:, level] &= right.gather(1, self.parents[:, level])
        return right

    def accepted(self, tokens: Tensor) -> Tensor:
        """[B] drafts that the text accepts; the accept length is one more (the bonus token)."""
        return (self.right(tokens) * self.depths).amax(1)

    @property
    def finite(self) -> Tensor:
        """[B] bool: the rows from which there is anything to draft."""
        return self.kept.any(1)


def forests(
    run: SampleRun, ordering: Ordering, wiring: Wiring, rows: Tensor, plan: TreePlan, poll: Poll = lambda: None
) -> Iterator[Forest]:
    """The trees of the ascending `rows` [n] (on the CPU), block by block.

    Raises WiringError for a drafter that grows no trees and a beam wider than its vocabulary.
    """
    check_tree(run.drafter, plan, wiring)
    for block in rows.split(_block_rows(run, plan, wiring)):
        if block.numel():
            yield _search(run, run.context(ordering, wiring, int(block[-1]) + 1, poll), block, plan, poll)


def check_tree(drafter: Eagle3Drafter, plan: TreePlan, wiring: Wiring) -> None:
    """Raises WiringError where `plan` cannot be searched with `drafter`."""
    if drafter.config.parallel:
        raise WiringError(
            "a tree for a P-EAGLE drafter", expected="a chain: it drafts all depths at once and feeds no token back"
        )
    size = drafter.vocab(wiring).size
    if plan.topk > size:
        raise WiringError(f"a tree with topk {plan.topk}", expected=f"at most the draft vocabulary of {size}")


def _block_rows(run: SampleRun, plan: TreePlan, wiring: Wiring) -> int:
    """How many rows are searched at once: by the scores over all keys and the logits, some copies of each."""
    numbers = run.drafter.config.num_heads * (run.rows + plan.levels) + run.drafter.vocab(wiring).size
    return max(1, min(BLOCK, MAX_BYTES // (3 * 4 * plan.topk * numbers)))


@dataclass(frozen=True)
class _Level:
    """The candidates of one level, [B, n]; `parents` are places among all candidates of the row."""

    draft_ids: Tensor
    probs: Tensor
    scores: Tensor
    parents: Tensor


def _search(run: SampleRun, context: Context, rows: Tensor, plan: TreePlan, poll: Poll) -> Forest:
    drafter, wiring, topk = run.drafter, context.wiring, plan.topk
    here = places = rows.to(drafter.placement.device)
    given, seen = run.given(context, here), context.seen(len(rows))
    beam = here.new_full((len(rows), 1), -1)  # [B, F] the nodes that are expanded: at first the root alone
    scores = torch.full(beam.shape, 0.0 if plan.sums_logs else 1.0, device=here.device)
    levels: list[_Level] = []
    for k in range(plan.levels):
        poll()
        hidden, seen = forward(drafter, given, run.place(places, k, wiring), seen, k)
        level = _expand(drafter.logits(hidden, wiring), beam, scores, plan)
        levels.append(level)
        if k + 1 == plan.levels:
            break
        best = _best_first(level.scores)[:, :topk]  # [B, K] places in this level
        source = _sources(best // topk, beam.shape[1])
        places = here.repeat_interleave(topk)
        tokens = run.drafted(level.draft_ids.gather(1, best).flatten(), wiring)  # beams hold the same ones often
        given = run.fed(context, places, hidden[source], tokens)
        if k == 0 or not plan.keeps_slots:
            seen = [layer.take(source) for layer in seen]
        before = sum(x.scores.shape[1] for x in levels[:-1])
        beam, scores = best + before, level.scores.gather(1, best)
    return _forest(run, wiring, rows, plan, levels)


def _sources(slots: Tensor, width: int) -> Tensor:
    """[B * K] rows of the last pass, of B beams of `width`, from which the nodes at `slots` [B, K] go on."""
    first = torch.arange(len(slots), device=slots.device) * width  # [B]
    return (first[:, None] + slots).flatten()


def _expand(logits: Tensor, beam: Tensor, scores: Tensor, plan: TreePlan) -> _Level:
    """The K children of each node of the beam [B, F], by their logits [B * F, D]; `scores` [B, F] are the nodes'."""
    rows, width = beam.shape
    values, ids = best_tokens(logits, plan.topk)  # [B * F, K]
    logs = values - logits.logsumexp(-1, keepdim=True)
    logs, ids = logs.view(rows, width, plan.topk), ids.view(rows, width * plan.topk)
    before = scores[:, :, None]
    found = before + logs if plan.sums_logs else before * logs.exp()  # [B, F, K]
    found = found.masked_fill(found.isnan() | (before == NEVER), NEVER)
    parents = beam[:, :, None].expand(-1, -1, plan.topk).reshape(rows, -1)
    return _Level(ids, logs.exp().flatten(1), found.flatten(1), parents)


def best_tokens(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best logits of [n, D] and their ids, [n, count]; of equals the lowest id, as in a chain."""
    values, ids = logits.topk(count, dim=-1)
    tied = (logits >= values[:, -1:]).sum(-1) > count  # topk may have left out a lower id
    if bool(tied.any()):
        ids[tied] = logits[tied].sort(dim=-1, descending=True, stable=True).indices[:, :count]
    ids = ids.sort(-1).values
    values, order = logits.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)


def _best_first(scores: Tensor) -> Tensor:
    """Places [B, n] by falling score; parents before children of the same score, for they stand before them."""
    return scores.sort(dim=1, descending=True, stable=True).indices


def _forest(run: SampleRun, wiring: Wiring, rows: Tensor, plan: TreePlan, levels: list[_Level]) -> Forest:
    draft_ids, probs, scores, parents = (
        torch.cat([getattr(level, name) for level in levels], 1) for name in ("draft_ids", "probs", "scores", "parents")
    )
    best = _best_first(scores)[:, : plan.drafts]
    kept = torch.zeros_like(scores, dtype=torch.bool).scatter(1, best, True) & (scores > NEVER)
    depths = torch.cat([torch.full((level.scores.shape[1],), k + 1) for k, level in enumerate(levels)])
    ids = run.drafter.to_target(draft_ids, wiring)
    return Forest(plan, rows, depths, *(x.cpu() for x in (draft_ids, ids, probs, scores, parents, kept)))


def read_tree(
    run: SampleRun, ordering: Ordering, wiring: Wiring, row: int, plan: TreePlan, poll: Poll = lambda: None
) -> Tree:
    """The tree from `row`, held against the sample's own tokens. Raises WiringError."""
    if not 0 <= row < run.rows:
        raise WiringError(f"row {row}", expected=f"0..{run.rows - 1}", where=run.sample.path)
    forest = next(forests(run, ordering, wiring, torch.tensor([row]), plan, poll))
    return Tree(plan, row, tuple(_nodes(forest, run.ids)))


def _nodes(forest: Forest, tokens: Tensor) -> list[Node]:
    """The root of the first row, and its candidates as far as they are numbers."""
    root = Node(-1, 0, int(tokens[forest.rows[0] + 1]), -1, 1.0, 0.0 if forest.plan.sums_logs else 1.0, True, True)
    nodes, places, path = [root], {-1: 0}, _longest(forest, tokens)
    columns = (forest.parents, forest.ids, forest.draft_ids, forest.probs, forest.scores, forest.kept)
    for place, values in enumerate(zip(*(x[0].tolist() for x in columns), strict=True)):
        parent, token, draft, prob, score, kept = values
        if score > NEVER:
            places[place] = len(nodes)
            depth = int(forest.depths[place])
            nodes.append(Node(places[parent], depth, token, draft, prob, score, kept, place in path))
    return nodes


def _longest(forest: Forest, tokens: Tensor) -> set[int]:
    """The places of the first row's longest right path; of equally long ones the first."""
    right = forest.right(tokens)[0] * forest.depths
    place, path = int(right.argmax()) if bool(right.any()) else -1, set()
    while place >= 0:
        path.add(place)
        place = int(forest.parents[0, place])
    return path
