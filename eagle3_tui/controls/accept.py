"""The Accept view's part of the controller: chains, rounds and trees under the current ordering, and their lengths.

Nothing is computed before the view asks for it, one part after the other; what is there, refused or stopped is not
computed again until something changes or `again` is called. Which drafts, rule and sizes are asked for stays when
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
from eagle3_tui.screens.accept_tree import TreeLine, tree_lines

if TYPE_CHECKING:
    from drafter.drafting.rounds import Round
    from drafter.drafting.tree import Tree
    from drafter.scoring.chain_report import ChainReport
    from drafter.scoring.tree_counts import TreeCounts
    from eagle3_tui.controller import Controller
    from eagle3_tui.worker import Job

CHAINS, ROUNDS, LENGTHS, TREE = "chains", "rounds", "lengths", "tree"
DEEPEST = 16
REFRESHES = ("target", "drafted")
TOKENS = 200  # tokens at which chains break that are listed
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
    """The text `ids` decoded round by round; `walk` is their JSON, `words` say what the refresh means."""

    each: tuple[Round, ...]
    ids: list[int]
    walk: dict[str, Any]
    words: str


@dataclass(frozen=True)
class GrownTree:
    """A tree, and the lines in which it is drawn."""

    tree: Tree
    lines: list[TreeLine]


@dataclass
class AcceptState:
    """What the Accept view shows; everything is empty until it is known.

    `rounds` are by their refresh; `pooled` chains are of all listed samples. `problems` say why a part cannot be had,
    `stopped` are parts that the user stopped, `progress` is how far the running one is.
    """

    chains: Chains | None = None
    rounds: dict[str, Rounds] = field(default_factory=dict)
    tree: GrownTree | None = None
    lengths: TreeCounts | None = None
    pooled: bool = False
    wants_lengths: bool = False
    problems: dict[str, str] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    progress: str = ""

    def forget(self, *parts: str) -> None:
        for part in parts:
            self.problems.pop(part, None)
            self.stopped.discard(part)
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
        self._running = ""
        self.refresh = REFRESHES[0]
        self.plan = tree_plan(RULES[0], 5, 4, 16)

    @property
    def depth(self) -> int:
        """K, the drafts of a chain."""
        return self._controller.session.options.depth if self._depth is None else self._depth

    def expects(self, part: str) -> bool:
        """Whether the part is being computed."""
        if part == TREE:
            return self._controller.engine.expects("tree")
        return self._running == part and self._controller.engine.expects("accept")

    # ------------------------------------------------------------------ what is asked for

    def ask(self, parts: Sequence[str]) -> None:
        """Compute the first of `parts` that is not there; `accept` is told when it is, and the next may be asked for.

        A part that nobody asks for any more makes room for those that are.
        """
        controller, state = self._controller, self._controller.state
        if not state.ready or state.ordering is None or state.sample is None:
            return
        if controller.engine.expects("accept"):
            if self._running in parts:
                return
            controller.engine.cancel("accept")
        part = next((part for part in parts if self._absent(part)), None)
        if part is not None:
            self._running, state.accept.progress = part, ""
            {CHAINS: self._chains, ROUNDS: self._rounds, LENGTHS: self._lengths}[part]()

    def _absent(self, part: str) -> bool:
        accept = self._controller.state.accept
        if part in accept.problems or part in accept.stopped:
            return False
        if part == ROUNDS:
            return self.refresh not in accept.rounds
        found = accept.chains if part == CHAINS else accept.lengths
        return found is None or found.done < found.planned

    def ask_tree(self) -> None:
        """The tree from the Step view's row."""
        state = self._controller.state
        accept, ordering, row, plan = state.accept, state.ordering, state.row, self.plan
        known = accept.tree is not None and (accept.tree.tree.row, accept.tree.tree.plan) == (row, plan)
        if not state.ready or ordering is None or state.sample is None or known or TREE in accept.problems:
            return
        if TREE in accept.stopped:
            return
        session = self._controller.session

        def work(job: Job) -> GrownTree:
            sizes = plan.steps, plan.topk, plan.tokens
            tree = session.tree(row + 2, ordering, plan.rule, *sizes, poll=job.checkpoint)
            return GrownTree(tree, tree_lines(tree, session.sample.ids[row + 1 :].tolist()))

        def done(found: GrownTree) -> None:
            state.accept.tree = found
            self._controller.tell("accept")

        from eagle3_tui.controller import CURSOR

        failed = self._refusal(TREE, "growing a tree")
        self._controller.submit_once("growing a tree", work, "tree", CURSOR, done, (row, ordering, plan), failed)

    # ------------------------------------------------------------------ jobs

    def _submit(
        self,
        part: str,
        name: str,
        work: Callable[[Job], Any],
        put: Callable[[Any], None],
    ) -> None:
        from eagle3_tui.controller import LOOK

        def show(found: Any) -> None:
            if isinstance(found, str):
                self._controller.state.accept.progress = found
            else:
                put(found)
            self._controller.tell("accept")

        failed = self._refusal(part, name)
        self._controller.submit(name, work, "accept", LOOK, show, failed, show)

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

        self._submit(CHAINS, f"chains of {depth}", work, put)

    def _rounds(self) -> None:
        state, session, depth, refresh = self._controller.state, self._controller.session, self.depth, self.refresh
        ordering = state.ordering
        assert ordering is not None

        def work(job: Job) -> Rounds:
            from drafter.drafting.rounds import REFRESH_WORDS, walk_json

            say = _Every(_SAY)

            def progress(done: int, total: int) -> None:
                if say.due():
                    job.progress(f"token {done} of {total}")

            found = session.rounds(ordering, depth, refresh, progress, job.checkpoint)
            return Rounds(tuple(found), session.sample.ids.tolist(), walk_json(found), REFRESH_WORDS[refresh])

        def put(found: Rounds) -> None:
            state.accept.rounds[refresh] = found

        self._submit(ROUNDS, f"rounds, refresh {refresh}", work, put)

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

        self._submit(LENGTHS, "trees of all rows", work, put)

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
        accept.problems.pop(ROUNDS, None)
        accept.stopped.discard(ROUNDS)
        if self._running == ROUNDS:
            self._controller.engine.cancel("accept")
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

    def measure(self) -> None:
        """Accept lengths of the trees from all rows, beside the chain's."""
        self._controller.state.accept.wants_lengths = True
        self._drop(LENGTHS)

    def move(self, step: int) -> None:
        """The tree from another row, which becomes the Step view's too."""
        state = self._controller.state
        last = state.sample.length - 2 if state.sample is not None else 0
        row = max(0, min(state.row + step, last))
        if row != state.row:
            self._controller.goto_row(row)

    # ------------------------------------------------------------------ dropping

    def _drop(self, *parts: str) -> None:
        if self._running in parts:
            self._controller.engine.cancel("accept")
        if TREE in parts:
            self._controller.engine.cancel("tree")
        self._controller.state.accept.forget(*parts)
        self._controller.tell("accept")

    def row_changed(self) -> None:
        """Another row may have a tree where one was refused or stopped."""
        accept = self._controller.state.accept
        accept.problems.pop(TREE, None)
        accept.stopped.discard(TREE)

    def forget(self) -> None:
        """Another ordering: everything is of the one before."""
        self._controller.engine.cancel("accept", "tree")
        self._controller.state.accept = AcceptState()

    def stopped(self, groups: set[str]) -> None:
        """The user stopped jobs of these groups."""
        accept = self._controller.state.accept
        if "accept" in groups:
            accept.stopped.add(self._running)
        if "tree" in groups:
            accept.stopped.add(TREE)
        if groups & {"accept", "tree"}:
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
