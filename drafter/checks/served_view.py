"""How the server that is named, by flags, a log or --server, runs the drafter, and how many drafts its rounds have.

The rules are `drafter.serving`'s, the numbers `views` prints. Knows no accept length and makes no finding.
"""

from __future__ import annotations

from dataclasses import dataclass

from drafter.checks.case import Case
from drafter.checks.explain import Diagnosis
from drafter.checks.k10_serving import made_of
from drafter.checks.k13_engine import views
from drafter.checks.measure import Option
from drafter.errors import DrafterError
from drafter.serving.effective import Effective
from drafter.serving.view_case import CANNOT
from drafter.serving.views import ServedView, graph_ordering, ordering_of

_EAGER = "--disable-cuda-graph"


@dataclass(frozen=True)
class AsServed:
    """`option` is what `who` (`sglang@0.5.14`) runs, None where that cannot be computed, and `why_not` says why.
    `cures`: each difference from training that is computed, and what helps."""

    who: str
    option: Option | None
    why_not: str = ""
    cures: tuple[str, ...] = ()


def as_served(case: Case, d: Diagnosis) -> AsServed | None:
    """None where no server is named, or one whose views were not read."""
    if case.server is None:
        return None
    try:
        view = next(iter(views(case)), None)
    except DrafterError as error:
        return AsServed(str(case.server), None, str(error))
    if view is None:
        return None
    fed, why = _fed(case, view, d)
    if view.refused or fed is None:
        return AsServed(view.name, None, why)
    cures = [f"{one.name}: {one.cure.removeprefix(CANNOT)}" for one in view.differences if one.computed]
    cures += ["the layer ids: as served-layers says"] if fed != d.last.ordering else []
    return AsServed(view.name, Option(fed, view.wiring), cures=tuple(cures))


def _fed(case: Case, view: ServedView, d: Diagnosis) -> tuple[tuple[int, ...] | None, str]:
    """The slots that it feeds; those of steps replayed from CUDA graphs where these are others."""
    slots, inputs = d.samples[0].slots, case.checkpoint.fc_inputs
    replayed = view.graph_depths is not None and (case.asked is None or _EAGER not in case.asked.ignored)
    find = graph_ordering if replayed and not view.refused else ordering_of
    fed, why = find(view, slots, inputs, case.target_layers)
    unrecorded = fed is None and not view.refused and view.capture.depths is not None
    return fed, f"it feeds states that are not recorded ({why})" if unrecorded else why


def made(case: Case) -> Effective | None:
    """What the server makes of the flags, None without any."""
    return None if case.asked is None else made_of(case)


def longest(case: Case) -> int | None:
    """The longest accept length: by the flags, else by the positions of the log."""
    found = made(case)
    length = None if found is None or found.varies else found.max_accept_length
    return len(case.rates) + 1 if length is None and case.rates else length


def drafts_of(case: Case) -> int:
    """How many drafts a round of the server makes: by its flags, by the positions of its log, else the case's depth."""
    found = longest(case)
    return case.depth if found is None else max(found - 1, 1)
