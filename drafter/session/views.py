"""What every server version makes of the checkpoint, scored against what was trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.errors import WiringError
from drafter.log import Logged
from drafter.options import Options as Options
from drafter.serving.views import (
    WORTH,
    graph_ordering,
    ordering_difference,
    ordering_of,
)
from drafter.wiring import (
    Ordering,
    Wiring,
)

if TYPE_CHECKING:
    from drafter.drafting.context import SampleRun
    from drafter.serving.view_scores import ViewPlan
    from drafter.views import ViewsResult
from drafter.session.chains import Chains
from drafter.session.core import Poll, no_poll


class Views(Chains):
    def views(
        self,
        paths: Sequence[Path],
        names: Sequence[str] = (),
        on_progress: Callable[[int, int], None] = lambda done, planned: None,
        poll: Poll = no_poll,
        begun: Callable[[ViewsResult], None] = lambda result: None,
    ) -> ViewsResult:
        """The trained view against served ones (those worth a row if none is named), and what each difference costs,
        on the samples in `paths`, pooled. `on_progress` is given how many scores of how many are in;
        `begun` the result that grows meanwhile.

        Samples are left out as by `score`. Raises WiringError for what is no view of a server.
        """
        from drafter.serving.view_scores import Scores, collapsed, key_of
        from drafter.views import ViewPool, ViewsResult, views_json

        options = self.options
        if not self.has_sample:
            self.choose_first(paths, poll)
        inputs = {"paths": [str(p) for p in paths], "views": list(names), "depth": options.depth, "mask": options.mask}
        with Logged(self.log, "views", inputs) as logged:
            ordering, why = self._trained_ordering()
            trained = key_of(ordering, Wiring.trained(self.checkpoint.run_config))
            plans = [self._view_plan(text, trained) for text in dict.fromkeys(names or WORTH)]
            plans = plans if names else collapsed(plans)
            keys = dict.fromkeys([trained, *(key for plan in plans for key in plan.keys)])
            scores = Scores(tuple(keys), options.depth, options.mask)
            family = self.family()
            result = ViewsResult(
                trained, why, self._slot_depths(), plans, scores, family.name or "unknown", self.target_layers
            )
            result.warnings = self.load(poll).warnings
            slots, named = len(self.sample.slots), frozenset(options.samples)
            begun(result)

            def run(path: Path) -> SampleRun:
                return self._run_for(path, slots, poll)

            ViewPool(result, self.sample_paths, run, named, on_progress, poll).add(paths)
            logged.result = views_json(result)
        return result

    def _view_plan(self, text: str, trained: tuple[Ordering, Wiring]) -> ViewPlan:
        from drafter.serving.view_scores import plan_view

        view = self.served(text)
        if view is None:
            raise WiringError(f"the view {text!r:.60}", expected="a server's, which is held against the trained view")
        slots, inputs, layers = self.sample.slots, self.checkpoint.fc_inputs, self.target_layers
        fed = ordering_of(view, slots, inputs, layers)
        graph = graph_ordering(view, slots, inputs, layers) if view.graph_depths is not None else (None, "")
        difference = ordering_difference(view, self._case(text), trained[0], fed[0], self._slot_depths())
        return plan_view(view, trained, fed, difference, graph)

    def _trained_ordering(self) -> tuple[Ordering, str]:
        """What the trained view is fed: as asked, by the training's config, else by the config's own convention."""
        asked = [name for name in self.options.orderings if name != "all"]
        if asked:
            return self.orderings(asked)[0], "as asked"
        trained = self.trained()
        if trained is not None:
            return trained, "by the training's config"
        configured, why = self._configured_by_dialect()
        if configured is not None:
            producer = self.checkpoint.config.producer
            return configured, f"{why}, in {producer}'s own convention; no training config says (--ordering)"
        raise WiringError(f"no trained ordering: {why}", expected="what training fed", hint="name it with --ordering")

    def _slot_depths(self) -> dict[int, int]:
        """The depth of every slot of the current sample of which somebody says it."""
        from drafter.wiring import depth_of

        found = {slot.index: depth_of(slot, self.target_layers) for slot in self.sample.slots}
        return {slot: depth for slot, depth in found.items() if depth is not None}
