"""The offline numbers that stand beside a server's: accept lengths as trained, as served and of the current ordering.

Plain arithmetic on what the state holds (`drafter.serving.offline`); nothing is scored here.
"""

from __future__ import annotations

from drafter.serving.offline import Curve, curve, judge, served_curve, trained_curve
from drafter.serving.verdict import Verdict
from drafter.wiring import name
from eagle3_tui.state import State

_EAGER = "--disable-cuda-graph"


def current(state: State) -> Curve | None:
    """The current ordering under the wiring in force, once all are scored."""
    scores, ordering = state.scores, state.ordering
    if scores is None or ordering is None or not scores.complete or ordering not in scores.result.scores:
        return None
    what = f"{len(scores.result.samples)} samples" if scores.pooled else "this sample"
    return curve(f"fc={name(ordering)}", what, scores.result.scores[ordering].lengths.histogram)


def trained(state: State) -> Curve | None:
    views = state.serving.views
    return None if views is None else trained_curve(views, _samples(state))


def served(state: State) -> tuple[Curve | None, str]:
    """The server that the flags or the log name, as the served views have it, and why it is not known."""
    made, views, asked = state.serving.round, state.serving.views, state.serving.asked
    if made is None:
        return None, "no server is named: f, v or l"
    if views is None:
        return None, "the served views are not scored"
    graphs = asked is None or _EAGER not in asked.ignored
    return served_curve(views, made.server, _samples(state), graphs=graphs)


def _samples(state: State) -> str:
    views = state.serving.views
    return f"{views['samples']} samples" if views is not None and state.serving.views_pooled else "this sample"


def served_length(state: State) -> float | None:
    """What users got: by the log, else by the first point that was typed."""
    serving = state.serving
    if serving.log is not None:
        return serving.log.mean
    return None if serving.expected is None else serving.expected.points[0].length


def judged(state: State) -> Verdict | None:
    """What served and offline numbers say together, where there is a served one."""
    length = served_length(state)
    if length is None:
        return None
    return judge(trained(state), served(state)[0], length, state.serving.round)
