"""The offline numbers that stand beside a server's: accept lengths as trained, as served and of the current ordering.

A `Curve` comes from whole counts of rows, so that it gives the accept length at any number of drafts up to its own.
Plain arithmetic on what the state holds; nothing is scored here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter.errors import WiringError
from drafter.serving.expect import curve_length
from drafter.serving.server import Server
from drafter.serving.verdict import SERVED, TRAINED, Offline, Verdict, verdict
from drafter.wiring import name
from eagle3_tui.state import State

Json = dict[str, Any]
_EAGER = "--disable-cuda-graph"


@dataclass(frozen=True)
class Curve:
    """`samples` in words. `joint[i]`: the share of `rows` whose first i + 1 drafts are all right."""

    name: str
    samples: str
    joint: tuple[float, ...]
    rows: int

    @property
    def drafts(self) -> int:
        return len(self.joint)

    def at(self, drafts: int | None) -> float | None:
        """The mean accept length over the rows, bonus counted; with all its drafts for None."""
        if drafts is None or drafts <= self.drafts:
            return curve_length(self.joint, self.drafts if drafts is None else drafts)
        return None


def curve(name: str, samples: str, histogram: Sequence[int]) -> Curve | None:
    """Of rows by accepted drafts; None where no row counts."""
    rows = sum(histogram)
    if not rows:
        return None
    return Curve(name, samples, tuple(sum(histogram[i:]) / rows for i in range(1, len(histogram))), rows)


def current(state: State) -> Curve | None:
    """The current ordering under the wiring in force, once all are scored."""
    scores, ordering = state.scores, state.ordering
    if scores is None or ordering is None or not scores.complete or ordering not in scores.result.scores:
        return None
    what = f"{len(scores.result.samples)} samples" if scores.pooled else "this sample"
    return curve(f"fc={name(ordering)}", what, scores.result.scores[ordering].lengths.histogram)


def trained(state: State) -> Curve | None:
    views = state.serving.views
    return None if views is None else _scored(state, "as trained", views["trained"])


def served(state: State) -> tuple[Curve | None, str]:
    """The server that the flags or the log name, as the served views have it, and why it is not known."""
    made = state.serving.round
    if made is None:
        return None, "no server is named: f, v or l"
    views = state.serving.views
    row = None if views is None else view_of(views, made.server)
    if row is None:
        return None, "the served views are not scored" if views is None else f"{made.server} is none of the views"
    if row["refused"]:
        return None, f"{row['name']} would not load the checkpoint"
    asked = state.serving.asked
    graphs = row["cuda_graphs"] if asked is None or _EAGER not in asked.ignored else None
    found = _scored(state, f"as {row['name']}", graphs or row)
    return found, "" if found is not None else _why_not(row, graphs)


def _why_not(row: Json, graphs: Json | None) -> str:
    who = f"{row['name']} in CUDA graphs" if graphs else row["name"]
    scored = graphs or row
    if scored["slots"] is None:
        return f"{who} feeds states that were not recorded"
    return f"{who}: {scored['problem'] or 'not scored yet'}"


def view_of(views: Json, server: str) -> Json | None:
    """The row of the newest version that is not newer than `server`: rows stand for where something changes."""
    try:
        wanted = Server.parse(server)
    except WiringError:
        return None
    found = None
    for row in views["views"]:
        first = Server.parse(row["versions"][0])
        if first.name == wanted.name and (found is None or first.version <= wanted.version):
            found = row
    return found


def _scored(state: State, name: str, scored: Json) -> Curve | None:
    lengths, views = scored["accept_length"], state.serving.views
    what = f"{views['samples']} samples" if views is not None and state.serving.views_pooled else "this sample"
    return None if lengths is None else curve(name, what, lengths["histogram"])


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
    found = [(TRAINED, trained(state)), (SERVED, served(state)[0])]
    offline = [Offline(sum(c.joint) + 1, c.drafts, v, rounds=c.rows, joint=c.joint) for v, c in found if c is not None]
    return verdict(offline, length, state.serving.round)
