"""What the screens show: one value that the controller fills on the UI thread and every view reads.

Holds results as they are; how they look is the views' matter, how they come about is the session's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.wiring import Ordering
from eagle3_tui.controls.accept import AcceptState
from eagle3_tui.controls.compare import CompareState
from eagle3_tui.controls.doctor import DoctorState
from eagle3_tui.controls.serving import ServingState
from eagle3_tui.controls.wiring import Tries

if TYPE_CHECKING:
    from drafter.checkpoint.checkpoint import Checkpoint
    from drafter.checkpoint.statistics import TensorStatistics
    from drafter.drafting.readout import RowReadout
    from drafter.files.find import Found
    from drafter.results import ScoreResult, StepResult
    from drafter.sample.many.survey import Surveyed
    from drafter.sample.many.twins import Comparison
    from drafter.sample.probes.contradictions import Contradiction
    from drafter.sample.probes.probe import SlotProbe
    from drafter.sample.sample import Sample
    from drafter.scoring.groups import Grouping
    from drafter.scoring.tallies import SampleScore
    from drafter.session import SampleList


@dataclass(frozen=True)
class Scores:
    """A score at one moment of its sweep, with what follows from it.

    `shared` are the step-0 hits of every ordering on the rows that all of them have scored: what `best` was told by.
    """

    result: ScoreResult
    best: Ordering | None
    tied: tuple[Ordering, ...]
    pooled: bool
    shared: Mapping[Ordering, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every ordering is in on every sample: before that nothing may be concluded."""
        return self.result.done >= self.result.planned


def scores_of(result: ScoreResult, pooled: bool) -> Scores:
    """A copy that the sweep does not change any more, with its comparisons made: not for the UI thread."""
    copy = result.snapshot()
    best, tied = copy.best()
    rows = min((counts.row_hits.numel() for counts in copy.scores.values()), default=0)
    shared = {ordering: int(counts.row_hits[:rows].sum()) for ordering, counts in copy.scores.items()}
    return Scores(copy, best, tuple(tied), pooled, shared)


@dataclass
class State:
    """Everything is None or empty until it is known. `row` is the row under the cursor of the Step view; `counted` says
    which rows enter the scores at step 0. `scores` are of every ordering, `pool` is of one on all listed samples.
    `surveyed`, `sample_scores` and `skipped` (with the reason) hold what is known of listed samples so far, by their
    paths; `comparison` is of the
    sample marked first and the one after it. `problem` is what stands in the way of everything that is computed, until
    something succeeds; `view_said` is what a served view assumes; `message` is only what was said last.
    """

    found: list[Found] = field(default_factory=list)
    chosen: Found | None = None
    checkpoint: Checkpoint | None = None
    target: str = ""
    samples: SampleList | None = None
    surveyed: dict[Path, Surveyed] = field(default_factory=dict)
    survey_said: str = ""
    sample_scores: dict[Path, Mapping[Ordering, SampleScore]] = field(default_factory=dict)
    skipped: dict[Path, str] = field(default_factory=dict)
    grouping: Grouping | None = None
    marked: Path | None = None
    comparison: Comparison | None = None
    sample: Sample | None = None
    mask_facts: list[str] = field(default_factory=list)
    probes: list[SlotProbe] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    orderings: list[Ordering] = field(default_factory=list)
    orderings_note: str = ""
    ordering: Ordering | None = None
    ordering_why: str = ""
    user_ordered: bool = False
    configured: Ordering | None = None
    configured_why: str = ""
    trained: Ordering | None = None
    counted: list[bool] = field(default_factory=list)
    row: int = 0
    rows: dict[Ordering, dict[int, RowReadout]] = field(default_factory=dict)
    step: StepResult | None = None
    others: dict[int, dict[Ordering, int]] = field(default_factory=dict)
    scores: Scores | None = None
    pool: Scores | None = None
    statistics: TensorStatistics | None = None
    trained_switches: dict[str, str] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    tries: Tries = field(default_factory=Tries)
    accept: AcceptState = field(default_factory=AcceptState)
    serving: ServingState = field(default_factory=ServingState)
    compare: CompareState = field(default_factory=CompareState)
    doctor: DoctorState = field(default_factory=DoctorState)
    placement: str = ""
    vocab: list[str] = field(default_factory=list)
    view_said: list[str] = field(default_factory=list)
    ready: bool = False
    problem: str = ""
    message: str = ""
    message_kind: str = ""

    def forget_sample(self) -> None:
        """Drop what belongs to the sample, before another one is opened."""
        self.sample, self.probes, self.orderings, self.ordering = None, [], [], None
        self.contradictions, self.mask_facts, self.orderings_note = [], [], ""
        self.ordering_why, self.user_ordered, self.row, self.counted = "", False, 0, []
        self.configured, self.configured_why, self.trained = None, "", None
        self.forget_results()

    def forget_results(self) -> None:
        """Drop what was computed, before it is computed again on other weights."""
        self.rows, self.step, self.others, self.scores, self.ready = {}, None, {}, None, False
        self.accept = AcceptState()
        self.tries.forget()
        self.serving.forget_views()

    def forget_drafter(self) -> None:
        """Drop what belongs to the checkpoint's weights, before others are loaded."""
        self.placement, self.view_said, self.trained_switches, self.switches = "", [], {}, {}
        self.forget_sample_scores()
        self.forget_results()

    def forget_sample_scores(self) -> None:
        """Drop what every listed sample scored: other weights or rows count from now on."""
        self.sample_scores, self.skipped, self.pool = {}, {}, None

    def keep_sample_scores(self, result: ScoreResult) -> None:
        """Add the scores of some orderings to what is known of some samples, and why others have none."""
        for path, scores in result.per_sample.items():
            self.sample_scores[path] = {**self.sample_scores.get(path, {}), **scores}
        self.skipped.update(result.skipped)

    def group_of(self, path: Path) -> str:
        """The group of a sample; empty where there are no groups."""
        return self.grouping.of(path) if self.grouping is not None and self.grouping.any else ""

    @property
    def best(self) -> Ordering | None:
        """The best ordering, once all are scored."""
        return self.scores.best if self.scores is not None and self.scores.complete else None

    def slot_label(self, slot: int) -> str:
        """What a slot is: its claim, `embed` where only the data shows it, else `?`."""
        if self.sample is None or slot >= len(self.sample.slots):
            return "?"
        claim = self.sample.slots[slot].claim
        if claim is not None:
            return claim.label
        probe = next((p for p in self.probes if p.index == slot), None)
        return "embed" if probe is not None and probe.label == "embed" else "?"

    def label(self, ordering: Ordering) -> str:
        """`[embed,3,16]`: the slots of an ordering by what they are."""
        return "[" + ",".join(self.slot_label(slot) for slot in ordering) + "]"
