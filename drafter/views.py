"""What `Session.views` answers with: the trained view, every served one, what each difference costs, and the cause.

Knows how views are pooled over samples, laid out and named, not how they are computed; it opens no file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError
from drafter.score_json import count_json
from drafter.scoring.compare import TIE
from drafter.serving.view_case import CANNOT
from drafter.serving.view_scores import Cost, Key, Scored, Scores, Step, ViewPlan, cost
from drafter.wiring import name


@dataclass
class ViewsResult:
    """`trained` is the pair that everything is held against, `trained_why` how its ordering was told; `depths` those
    of the slots, by slot, where they are known. `plans` are the served views, oldest first."""

    trained: Key
    trained_why: str
    depths: Mapping[int, int]
    plans: Sequence[ViewPlan]
    scores: Scores
    family: str
    layers: int | None
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    warnings: tuple[str, ...] = ()

    def cost(self, before: Key | None, after: Key | None) -> Cost | None:
        """None where one of the two could not be scored."""
        ours, theirs = self.scores.of(before), self.scores.of(after)
        return None if ours is None or theirs is None else cost(ours, theirs)

    def cause(self, plan: ViewPlan) -> Step | None:
        """The first difference that clearly costs, taken one after another."""
        for step in plan.steps:
            found = self.cost(step.before, step.together)
            if found is not None and found.costs:
                return step
        return None

    def sentence(self, plan: ViewPlan) -> str:
        """What the view comes to, in one sentence."""
        who = plan_name(plan)
        if plan.view.refused:
            return f"{who} would not load this checkpoint: {plan.view.refused}"
        step = self.cause(plan)
        if step is None:
            return _harmless(who, plan)
        before, after = self.scores.of(step.before), self.scores.of(step.together)
        assert before is not None and after is not None
        rest = [s.difference.name for s in plan.steps if s is not step and self._costs(s)]
        unknown = "" if plan.whole is not None else f" (what it feeds could not be computed: {plan.why})"
        more = f"; {', '.join(rest)} cost{'s' if len(rest) == 1 else ''} more on top" if rest else ""
        one = step.difference
        return (
            f"{who}: {one.name} costs first, {one.served} instead of {one.trained}: step 0 {_change(before, after)}"
            f"{more}{unknown}; {one.cure}"
        )

    def _costs(self, step: Step) -> bool:
        found = self.cost(step.before, step.together)
        return found is not None and found.costs


@dataclass
class ViewPool:
    """Fills the scores of `result`, sample by sample. `names` are the samples in one listed file, `run` opens one of
    them; `refused` are the paths that the user named one by one."""

    result: ViewsResult
    names: Callable[[Path], list[Path]]
    run: Callable[[Path], SampleRun]
    refused: frozenset[Path]
    on_progress: Callable[[int, int], None]
    poll: Callable[[], None]
    done: int = 0
    planned: int = 0

    def add(self, paths: Sequence[Path]) -> None:
        """Score every sample in the files `paths`, each once. Raises the first refusal where none can be scored."""
        first: DrafterError | None = None
        each, seen = len(self.result.scores.keys), set()
        self.planned = len(paths) * each
        for path in paths:
            names = self.names(path)
            self.planned += (len(names) - 1) * each
            for sample in names:
                self.poll()
                error = self._add_one(sample) if sample not in seen else None
                seen.add(sample)
                first = first or error
        if first is not None and not self.result.scores.samples:
            raise first

    def _add_one(self, sample: Path) -> DrafterError | None:
        try:
            self.result.scores.add(self.run(sample), self._count, self.poll)
        except DrafterError as error:
            if sample in self.refused:
                raise
            self.result.skipped.append((sample, str(error)))
            return error
        return None

    def _count(self) -> None:
        self.done += 1
        self.on_progress(self.done, self.planned)


def _harmless(who: str, plan: ViewPlan) -> str:
    if plan.whole is None:
        return f"{who}: what it feeds could not be computed ({plan.why}); no other difference clearly costs anything"
    if not plan.steps:
        return f"{who} computes what was trained"
    return f"{who} differs in {', '.join(s.difference.name for s in plan.steps)}, which clearly costs nothing here"


def _change(before: Scored, after: Scored) -> str:
    lengths = f"{_number(before.counts.lengths.mean, 2)} -> {_number(after.counts.lengths.mean, 2)}"
    ratios = f"{_number(before.counts.accuracy.ratio, 3)} -> {_number(after.counts.accuracy.ratio, 3)}"
    return f"{ratios}, accept length {lengths}"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def plan_name(plan: ViewPlan) -> str:
    """`sglang@0.5.9`, or `sglang@0.5.9 .. 0.5.11` for versions that compute the same."""
    first, last = plan.names[0], plan.names[-1]
    return first if first == last else f"{first} .. {last.partition('@')[2]}"


# --- JSON


def views_json(result: ViewsResult) -> dict[str, Any]:
    """The result as data; `eagle3_tui.views_report` says what each key is."""
    ordering = result.trained[0]
    return {
        "depth": result.scores.depth,
        "mask": result.scores.mask,
        "samples": result.scores.samples,
        "skipped": [{"path": str(path), "error": error} for path, error in result.skipped],
        "target": {"family": result.family, "layers": result.layers},
        "trained": {
            "slots": list(ordering),
            "why": result.trained_why,
            "depths": _depths(result, ordering),
            **_score_json(result, result.trained),
        },
        "views": [_plan_json(result, plan) for plan in result.plans],
        "warnings": list(result.warnings),
    }


def _plan_json(result: ViewsResult, plan: ViewPlan) -> dict[str, Any]:
    view, cause = plan.view, result.cause(plan)
    capture = view.capture
    return {
        "name": plan_name(plan),
        "versions": list(plan.names),
        "refused": view.refused or None,
        "captures": None if capture.depths is None else list(capture.depths),
        "ids": None if capture.ids is None else list(capture.ids),
        "ids_from": capture.source,
        "slots": None if plan.ordering is None else list(plan.ordering),
        "why": plan.why,
        **_score_json(result, plan.whole),
        "against_trained": _cost_json(result.cost(result.trained, plan.whole)),
        "cuda_graphs": _graph_json(result, plan),
        "differences": [_step_json(result, step) for step in plan.steps]
        if not view.refused
        else [_difference_json(step) for step in view.differences],
        "cause": None if cause is None else cause.difference.name,
        "sentence": result.sentence(plan),
        "notes": list(view.notes),
    }


def _graph_json(result: ViewsResult, plan: ViewPlan) -> dict[str, Any] | None:
    if plan.view.graph_depths is None or plan.view.refused:
        return None
    slots = None if plan.graph is None else list(plan.graph[0])
    return {
        "captures": list(plan.view.graph_depths),
        "slots": slots,
        "why": plan.graph_why,
        **_score_json(result, plan.graph),
    }


def _difference_json(one: Any) -> dict[str, Any]:
    return {
        "name": one.name,
        "trained": one.trained,
        "served": one.served,
        "why": one.why,
        "cure": one.cure,
        "curable": not one.cure.startswith(CANNOT),
        "computed": one.computed,
    }


def _step_json(result: ViewsResult, step: Step) -> dict[str, Any]:
    found = result.cost(step.before, step.together)
    return {
        **_difference_json(step.difference),
        "computed": step.together is not None and step.together not in result.scores.problems,
        "alone": _score_json(result, step.alone),
        "together": _score_json(result, step.together),
        "against_before": _cost_json(found),
    }


def _cost_json(found: Cost | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "p_accuracy": found.p_accuracy,
        "p_length": found.p_length,
        "verdict": "costs" if found.costs else "gains" if found.gains else f"cannot be told apart (p > {TIE:g})",
    }


def _score_json(result: ViewsResult, key: Key | None) -> dict[str, Any]:
    scored = result.scores.of(key)
    if scored is None:
        problem = result.scores.problems.get(key) if key is not None else None
        return {"accuracy": None, "accept_length": None, "problem": problem}
    counts, lengths = scored.counts, scored.counts.lengths
    return {
        "accuracy": count_json(counts.accuracy),
        "accept_length": {
            "mean": lengths.mean,
            "rows": lengths.rows,
            "histogram": list(lengths.histogram),
            "walk": {"rounds": lengths.rounds, "tokens": lengths.tokens, "length": lengths.walk},
        },
        "problem": None,
    }


def _depths(result: ViewsResult, ordering: Sequence[int]) -> list[int | None]:
    return [result.depths.get(slot) for slot in ordering]


def ordering_text(ordering: Sequence[int], depths: Mapping[int, int]) -> str:
    """`slots 1,2,3 (depths 3,16,28)`, the depths where all are known."""
    known = [depths[slot] for slot in ordering if slot in depths]
    text = f"slots {name(tuple(ordering))}"
    return text if len(known) < len(ordering) else f"{text} (depths {name(tuple(known))})"
