"""The Accept view's part of the controller: chains, rounds and trees under the current ordering, and their lengths.

Nothing is computed before the view asks for it. Every part is a job of its own; what is there, refused or stopped is
not computed again until something changes or `again` is called. The depth, rule and sizes that were chosen stay when
results are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.drafting.tree import RULES, TreePlan, tree_plan
from drafter.errors import DrafterError
from eagle3_tui.screens.accept_branches import TreeLine, tree_lines

if TYPE_CHECKING:
    from drafter.drafting.rounds import Round
    from drafter.drafting.tree import Tree
    from drafter.scoring.chain_report import ChainReport
    from drafter.scoring.tree_counts import TreeCounts
    from eagle3_tui.controller import Controller
    from eagle3_tui.worker import Job

CHAINS, ROUNDS, TREE, LENGTHS = "accept", "rounds", "tree", "lengths"  # parts, by the groups of their jobs
PARTS = (CHAINS, ROUNDS, TREE, LENGTHS)
DEEPEST = 16
REFRESHES = ("target", "drafted")
TOKENS = 200  # tokens at which chains break that are listed
_CURSOR, _LOOK, _SWEEP = 40, 10, 0  # priorities: as what is under the cursor, as probes, as a sweep
_SAY, _SHOW = 0.2, 2.0  # seconds between words of progress, and between results that are not complete


@dataclass(frozen=True)
class Chains:
    """A chain report as the JSON of `accept` has it; complete when all `planned` samples are in or skipped."""

    data: dict[str, Any]
    done: int
    planned: int

    @property
    def complete(self) -> bool:
        return self.done >= self.planned


@dataclass(frozen=True)
class Rounds:
    """The text `ids` decoded round by round; `walk` is their JSON, `none` numbers the rounds that accepted no draft."""

    each: tuple[Round, ...]
    ids: list[int]
    none: tuple[int, ...]
    walk: dict[str, Any]
    refresh: str


@dataclass(frozen=True)
class GrownTree:
    """A tree, the lines in which it is drawn (all candidates, or those that are kept), and the sample's own tokens from
    the root's on."""

    tree: Tree
    text: list[int]
    lines: list[TreeLine]
    kept: list[TreeLine]


@dataclass
class AcceptState:
    """What the Accept view shows; everything is empty until it is known.

    `rounds` are by their refresh; `pooled` chains are of all listed samples. `problems` say why a part cannot be had,
    `stopped` are parts that the user stopped, `progress` says how far one is.
    """

    chains: Chains | None = None
    rounds: dict[str, Rounds] = field(default_factory=dict)
    tree: GrownTree | None = None
    lengths: TreeCounts | None = None
    pooled: bool = False
    wants_lengths: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    progress: dict[str, str] = field(default_factory=dict)

    def how_far(self, part: str) -> str:
        """How much of a part is done, in words; empty where nobody knows."""
        found = {CHAINS: self.chains, LENGTHS: self.lengths}.get(part)
        if found is None:
            return self.progress.get(part, "")
        return f"{'sample' if part == CHAINS else 'row'} {found.done} of {found.planned}"

    def forget(self, *parts: str) -> None:
        for part in parts:
            self.problems.pop(part, None)
            self.stopped.discard(part)
            self.progress.pop(part, None)
        if CHAINS in parts:
            self.chains = None
        if ROUNDS in parts:
            self.rounds = {}
        if LENGTHS in parts:
            self.lengths = None
        if TREE in parts:
            self.tree = None


class AcceptControl:
    """Submits jobs through the controller and puts their results into `state.accept`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._depth: int | None = None
        self._tree_asked: object = None
        self.refresh = REFRESHES[0]
        self.plan = tree_plan(RULES[0], 5, 4, 16)

    @property
    def depth(self) -> int:
        """K, the drafts of a chain."""
        return self._controller.session.options.depth if self._depth is None else self._depth

    # ------------------------------------------------------------------ what is asked for

    def ask(self, parts: Sequence[str]) -> None:
        """Compute those of `parts` that are not there; `accept` is told when one is."""
        controller, state = self._controller, self._controller.state
        if not state.ready or state.ordering is None or state.sample is None:
            return
        start = {CHAINS: self._chains, ROUNDS: self._rounds, TREE: self._tree, LENGTHS: self._lengths}
        for part in parts:
            if self._absent(part) and not (controller.engine.expects(part) and self._as_asked(part)):
                start[part]()

    def _absent(self, part: str) -> bool:
        accept = self._controller.state.accept
        if part in accept.problems or part in accept.stopped:
            return False
        if part == ROUNDS:
            return self.refresh not in accept.rounds
        if part == TREE:
            return accept.tree is None or (accept.tree.tree.row, accept.tree.tree.plan) != self._tree_wanted()
        found = accept.chains if part == CHAINS else accept.lengths
        return found is None or found.done < found.planned

    def _as_asked(self, part: str) -> bool:
        """Whether the running job of a part is the one that is wanted now; others are cancelled when that changes."""
        return part != TREE or self._tree_asked == self._tree_wanted()

    def _tree_wanted(self) -> tuple[int, TreePlan]:
        return self._controller.state.row, self.plan

    # ------------------------------------------------------------------ jobs

    def _submit(
        self, part: str, name: str, work: Callable[[Job], Any], put: Callable[[Any], None], priority: int
    ) -> None:
        def show(found: Any) -> None:
            if isinstance(found, str):
                self._controller.state.accept.progress[part] = found
            else:
                put(found)
            self._controller.tell("accept")

        failed = self._refusal(part, name)
        self._controller.submit(name, work, part, priority, show, failed, show)

    def _refusal(self, part: str, name: str) -> Callable[[Exception], None]:
        """Keep why a part cannot be had where its rows would be; only a fault of ours is a message as well."""

        def failed(error: Exception) -> None:
            self._controller.state.accept.problems[part] = str(error) or type(error).__name__
            if not isinstance(error, DrafterError):
                self._controller.explain(name, error)
            self._controller.tell("accept")

        return failed

    def _chains(self) -> None:
        state, session, depth = self._controller.state, self._controller.session, self.depth
        ordering, samples = state.ordering, state.samples
        assert ordering is not None
        paths: Sequence[Path] | None = samples.paths if state.accept.pooled and samples is not None else None

        def made(report: ChainReport) -> Chains:
            from drafter.scoring.chain_report import chain_report_json

            done = len(report.samples) + len(report.skipped)
            return Chains(chain_report_json(report, session.piece, TOKENS), done, report.planned)

        def work(job: Job) -> Chains:
            say, show = _Every(_SAY), _Every(_SHOW)

            def progress(report: ChainReport) -> None:
                done = len(report.samples) + len(report.skipped)
                if report.samples and done < report.planned and show.due():
                    job.progress(made(report))
                elif say.due():
                    job.progress(f"sample {done} of {report.planned}")

            return made(session.chain_report(ordering, paths, depth, progress, job.checkpoint))

        def put(found: Chains) -> None:
            state.accept.chains = found

        # all samples take long: what is asked for meanwhile comes first
        self._submit(CHAINS, f"chains of {depth}", work, put, _LOOK if paths is None else _SWEEP)

    def _rounds(self) -> None:
        state, session, depth, refresh = self._controller.state, self._controller.session, self.depth, self.refresh
        ordering = state.ordering
        assert ordering is not None

        def work(job: Job) -> Rounds:
            from drafter.drafting.rounds import walk_json

            say = _Every(_SAY)

            def progress(done: int, total: int) -> None:
                if say.due():
                    job.progress(f"token {done} of {total}")

            found = session.rounds(ordering, depth, refresh, progress, job.checkpoint)
            none = tuple(i for i, one in enumerate(found) if not one.accepted)
            return Rounds(tuple(found), session.sample.ids.tolist(), none, walk_json(found), refresh)

        def put(found: Rounds) -> None:
            state.accept.rounds[refresh] = found

        self._submit(ROUNDS, f"rounds, refresh {refresh}", work, put, _LOOK)

    def _tree(self) -> None:
        """The tree from the Step view's row."""
        state, session, (row, plan) = self._controller.state, self._controller.session, self._tree_wanted()
        ordering = state.ordering
        assert ordering is not None
        self._tree_asked = (row, plan)

        def work(job: Job) -> GrownTree:
            sizes = plan.steps, plan.topk, plan.tokens
            tree = session.tree(row + 2, ordering, plan.rule, *sizes, poll=job.checkpoint)
            text = session.sample.ids[row + 1 : row + 2 + plan.levels].tolist()
            return GrownTree(tree, text, tree_lines(tree, text), tree_lines(tree, text, only_kept=True))

        def put(found: GrownTree) -> None:
            state.accept.tree = found

        self._submit(TREE, "growing a tree", work, put, _CURSOR)

    def _lengths(self) -> None:
        state, session, plan = self._controller.state, self._controller.session, self.plan
        ordering = state.ordering
        assert ordering is not None

        def work(job: Job) -> TreeCounts:
            say = _Every(_SAY)

            def progress(counts: TreeCounts) -> None:
                if say.due():
                    job.progress(counts)

            sizes = plan.steps, plan.topk, plan.tokens
            return session.tree_lengths(ordering, plan.rule, *sizes, on_progress=progress, poll=job.checkpoint)

        def put(found: TreeCounts) -> None:
            state.accept.lengths = found

        self._submit(LENGTHS, "trees of all rows", work, put, _SWEEP)

    # ------------------------------------------------------------------ keys

    def change_depth(self, step: int) -> None:
        """Other chains: of one draft more or less."""
        depth = max(1, min(self.depth + step, max(DEEPEST, self._controller.session.options.depth)))
        if depth == self.depth:
            return self._controller.say(f"chains of {depth} drafts: expected 1..{DEEPEST}", "warn")
        self._depth = depth
        self._drop(CHAINS, ROUNDS)

    def change_refresh(self) -> None:
        """What the rows of accepted drafts hold in the next round."""
        self.refresh = REFRESHES[(REFRESHES.index(self.refresh) + 1) % len(REFRESHES)]
        accept = self._controller.state.accept
        self._controller.engine.cancel(ROUNDS)
        accept.problems.pop(ROUNDS, None)
        accept.stopped.discard(ROUNDS)
        accept.progress.pop(ROUNDS, None)
        self._controller.tell("accept")

    def pool(self) -> None:
        """Chains over all listed samples."""
        self._controller.state.accept.pooled = True
        self._drop(CHAINS)

    def again(self, part: str) -> None:
        """Compute a part once more, also where it was stopped; chains of the current sample alone."""
        if part == CHAINS:
            self._controller.state.accept.pooled = False
        self._drop(part)

    def cycle_rule(self) -> None:
        plan = self.plan
        rule = RULES[(RULES.index(plan.rule) + 1) % len(RULES)]
        self._use(tree_plan(rule, plan.steps, plan.topk, plan.tokens))

    def set_sizes(self, text: str) -> None:
        """Steps, topk and tokens of the tree, as a server's options have them."""
        words = text.replace(",", " ").split()
        if len(words) != 3 or not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
            return self._controller.say(f"tree {text!r}: expected steps, topk and tokens, e.g. 5 4 16", "warn")
        steps, topk, tokens = map(int, words)
        try:
            plan = tree_plan(self.plan.rule, steps, topk, tokens)
        except DrafterError as error:
            return self._controller.say(str(error), "warn")
        self._use(plan)

    def _use(self, plan: TreePlan) -> None:
        self.plan = plan
        self._controller.state.accept.wants_lengths = False
        self._drop(TREE, LENGTHS)
        self._controller.say("")  # a refusal of other sizes is answered

    def measure(self) -> None:
        """Accept lengths of the trees from all rows, beside the chain's."""
        self._controller.state.accept.wants_lengths = True
        self._drop(LENGTHS)

    def move(self, step: int) -> None:
        """The tree from another row, which becomes the Step view's too."""
        state = self._controller.state
        last = state.sample.length - 2 if state.sample is not None else 0
        row = max(0, min(state.row + step, last))
        if state.sample is not None and row != state.row:
            # another row may have a tree where one was refused or stopped
            state.accept.problems.pop(TREE, None)
            state.accept.stopped.discard(TREE)
            self._controller.go_to_row(state.sample.path, row)

    # ------------------------------------------------------------------ dropping

    def _drop(self, *parts: str) -> None:
        self._controller.engine.cancel(*parts)
        self._controller.state.accept.forget(*parts)
        self._controller.tell("accept")

    def forget(self) -> None:
        """Another ordering: everything is of the one before."""
        self._controller.engine.cancel(*PARTS)
        self._controller.state.accept = AcceptState()

    def stopped(self, groups: set[str]) -> None:
        """The user stopped jobs of these groups."""
        parts = groups & set(PARTS)
        if parts:
            self._controller.state.accept.stopped |= parts
            self._controller.tell("accept")


class _Every:
    """`due` is true at most once in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._last = seconds, time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True
