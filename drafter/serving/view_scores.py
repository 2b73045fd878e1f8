"""What a served view costs: the trained view against it, and its differences one by one, pooled over samples.

`plan_view` lays out which (ordering, wiring) pairs have to be scored; `Scores` collects them sample by sample; `cost`
compares two of them row by row. Knows no session and opens no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError, SampleError
from drafter.scoring.compare import TIE, mcnemar
from drafter.scoring.counts import OrderingCounts, Truths, count, length_rows, next_token_hits, row_mask, rows_needed
from drafter.scoring.sweep import truths_of
from drafter.serving.view_case import Difference
from drafter.serving.views import ServedView
from drafter.wiring import Ordering, Wiring

Key = tuple[Ordering, Wiring]


def key_of(ordering: Ordering, wiring: Wiring) -> Key:
    """The pair, without the name of the view: what is the same function is scored once."""
    return ordering, replace(wiring, view="")


# --- what to score


@dataclass(frozen=True)
class Step:
    """One difference on the way from the trained view to the served one.

    `alone`: trained but for this; `together`: with this and all before it, `before` without this. None where it is not
    computed.
    """

    difference: Difference
    before: Key
    alone: Key | None = None
    together: Key | None = None


@dataclass(frozen=True)
class ViewPlan:
    """`names` are the versions that compute the same, oldest first; `view` is that of the last of them.

    `whole` is the view itself, None where it is refused or feeds what is not recorded, which `why` says; `graph` the
    same in steps that are replayed from CUDA graphs, where those capture other states, which `graph_why` says.
    """

    names: tuple[str, ...]
    view: ServedView
    ordering: Ordering | None
    why: str
    steps: tuple[Step, ...]
    whole: Key | None
    graph: Key | None = None
    graph_why: str = ""

    @property
    def keys(self) -> list[Key]:
        found = [self.whole, self.graph]
        for step in self.steps:
            found += [step.alone, step.together]
        return [key for key in found if key is not None]


def plan_view(
    view: ServedView,
    trained: Key,
    fed: tuple[Ordering | None, str],
    difference: Difference | None,
    graph: tuple[Ordering | None, str],
) -> ViewPlan:
    """What to score for `view`, which feeds the slots `fed`; `difference` is that of its ordering, where it has one."""
    ordering, why = fed
    steps = [] if view.refused else list(_steps(view, trained, ordering, difference))
    whole = key_of(ordering, view.wiring) if ordering is not None and not view.refused else None
    replayed = key_of(graph[0], view.wiring) if graph[0] is not None and not view.refused else None
    return ViewPlan((view.name,), view, ordering, why, tuple(steps), whole, replayed, graph[1])


def _steps(view: ServedView, trained: Key, ordering: Ordering | None, difference: Difference | None) -> Iterable[Step]:
    before = trained
    if difference is not None:
        moved = None if ordering is None else key_of(ordering, trained[1])
        yield Step(difference, before, moved, moved)
        before = moved or before
    for one in view.differences:
        if not one.computed:
            yield Step(one, before)
            continue
        change = dict(one.change)
        together = key_of(before[0], before[1].changed(**change))
        yield Step(one, before, key_of(trained[0], trained[1].changed(**change)), together)
        before = together


def collapsed(plans: Sequence[ViewPlan]) -> list[ViewPlan]:
    """The plans, those that compute the same as the one before them joined to it."""
    found: list[ViewPlan] = []
    for plan in plans:
        if found and found[-1].view.same_function(plan.view):
            found[-1] = _joined(found[-1], plan)
        else:
            found.append(plan)
    return found


def _joined(older: ViewPlan, newer: ViewPlan) -> ViewPlan:
    """The newer plan for both; what cures a difference otherwise in the older version becomes a note."""
    cures = {step.difference.name: step.difference.cure for step in newer.steps}
    other = [
        f"up to {older.names[-1]}, {step.difference.name}: {step.difference.cure}"
        for step in older.steps
        if cures.get(step.difference.name, step.difference.cure) != step.difference.cure
    ]
    kept = [note for note in older.view.notes if note not in newer.view.notes and note.startswith("up to ")]
    view = replace(newer.view, notes=(*newer.view.notes, *kept, *other))
    return replace(newer, names=(*older.names, *newer.names), view=view)


# --- scores


@dataclass(frozen=True)
class Scored:
    """Counts of one pair, and `accepted` [n]: the leading right drafts of each row that counts for the length."""

    counts: OrderingCounts
    accepted: Tensor = field(repr=False)

    def __add__(self, other: Scored) -> Scored:
        return Scored(self.counts + other.counts, torch.cat([self.accepted, other.accepted]))


@dataclass(frozen=True)
class Cost:
    """Two pairs on the same rows. `p_accuracy`, `p_length`: exact two-sided tests of the rows that differ in step 0,
    in the accept length. `costs`: one of the two is clearly worse than before."""

    p_accuracy: float
    p_length: float
    costs: bool
    gains: bool


def cost(before: Scored, after: Scored) -> Cost:
    """What it costs to go from `before` to `after`."""
    p_accuracy = mcnemar(before.counts.row_hits, after.counts.row_hits)
    longer, shorter = after.accepted > before.accepted, after.accepted < before.accepted
    p_length = mcnemar(longer, shorter)
    fewer = after.counts.accuracy.hits - before.counts.accuracy.hits
    less = int(longer.sum()) - int(shorter.sum())
    worse = (p_accuracy <= TIE and fewer < 0) or (p_length <= TIE and less < 0)
    better = (p_accuracy <= TIE and fewer > 0) or (p_length <= TIE and less > 0)
    return Cost(p_accuracy, p_length, worse, better and not worse)


@dataclass
class Scores:
    """Pooled scores of `keys`; a key that cannot be computed has its reason in `problems` instead."""

    keys: tuple[Key, ...]
    depth: int
    mask: str
    found: dict[Key, Scored] = field(default_factory=dict)
    problems: dict[Key, str] = field(default_factory=dict)
    samples: int = 0

    def add(self, run: SampleRun, done: Callable[[], None], poll: Callable[[], None]) -> None:
        """One more sample. Raises SampleError, and adds nothing of it, where it does not suit the drafter.

        What a wiring asks for in vain (a head of the target's) is a problem of its key alone. The first sample is seen
        score by score, others only whole: scores of different samples cannot be compared.
        """
        fresh: dict[Key, Scored] = {} if self.samples else self.found
        for key in self.keys:
            if key not in self.problems:
                try:
                    fresh[key] = score_one(run, key, self.depth, self.mask, poll)
                except SampleError:
                    fresh.clear()
                    raise
                except DrafterError as error:
                    self.problems[key] = str(error)
            done()
        for key, scored in fresh.items() if self.samples else ():
            self.found[key] = scored if key not in self.found else self.found[key] + scored
        self.samples += 1

    def of(self, key: Key | None) -> Scored | None:
        return None if key is None or key in self.problems else self.found.get(key)


def score_one(run: SampleRun, key: Key, depth: int, mode: str, poll: Callable[[], None]) -> Scored:
    """One pair on one sample."""
    ordering, wiring = key
    truths = truths_of(run, None, wiring)
    rows = rows_needed(truths.mask, mode, depth)
    predicted = draft_ids(run, ordering, wiring, depth, rows, poll=poll)
    return Scored(count(predicted, truths, mode), _accepted(predicted, truths, mode))


def _accepted(predicted: Tensor, truths: Truths, mode: str) -> Tensor:
    depth, rows = predicted.shape
    mapped = torch.where(predicted >= 0, truths.target_ids[predicted.clamp(min=0)], -1)
    right = next_token_hits(mapped, truths.ids)
    return right.long().cumprod(0).sum(0)[length_rows(row_mask(truths.mask, mode, rows), depth)]
