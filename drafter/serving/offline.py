"""The offline numbers that stand beside a server's: accept lengths as trained and as served, from `views --json`.

A `Curve` comes from whole counts of rows, so that it gives the accept length at any number of drafts up to its own.
Plain arithmetic; nothing is scored here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter.errors import WiringError
from drafter.serving.effective import Effective
from drafter.serving.expect import curve_length
from drafter.serving.server import Server
from drafter.serving.verdict import SERVED, TRAINED, Offline, Verdict, verdict

Json = dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """`samples` in words. `joint[i]`: the share of `rows` whose first i + 1 drafts are all right. `walk` is the length
    of the rounds of the text with all its drafts: what a log counts."""

    name: str
    samples: str
    joint: tuple[float, ...]
    rows: int
    walk: float | None = None

    @property
    def drafts(self) -> int:
        return len(self.joint)

    def at(self, drafts: int | None) -> float | None:
        """The mean accept length over the rows, bonus counted; with all its drafts for None."""
        if drafts is None or drafts <= self.drafts:
            return curve_length(self.joint, self.drafts if drafts is None else drafts)
        return None


def curve(name: str, samples: str, histogram: Sequence[int], walk: float | None = None) -> Curve | None:
    """Of rows by accepted drafts; None where no row counts."""
    rows = sum(histogram)
    if not rows:
        return None
    return Curve(name, samples, tuple(sum(histogram[i:]) / rows for i in range(1, len(histogram))), rows, walk)


def trained_curve(views: Json, samples: str) -> Curve | None:
    """The trained view of `views --json`."""
    return _scored(views["trained"], "as trained", samples)


def served_curve(views: Json, server: str, samples: str, *, graphs: bool = True) -> tuple[Curve | None, str]:
    """What `server` makes of the checkpoint, replayed from CUDA graphs unless they are off, and why it is not known."""
    row = view_of(views, server)
    if row is None:
        return None, f"{server} is none of the views"
    if row["refused"]:
        return None, f"{row['name']} would not load the checkpoint"
    replayed = row["cuda_graphs"] if graphs else None
    found = _scored(replayed or row, f"as {row['name']}", samples)
    return found, "" if found is not None else _why_not(row, replayed)


def _scored(scored: Json, name: str, samples: str) -> Curve | None:
    lengths = scored["accept_length"]
    return None if lengths is None else curve(name, samples, lengths["histogram"], lengths["walk"]["length"])


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


def judge(trained: Curve | None, served: Curve | None, length: float, made: Effective | None) -> Verdict:
    """What the accept length that users got and the offline ones say together."""
    known = [(TRAINED, trained), (SERVED, served)]
    return verdict([_offline(view, found) for view, found in known if found is not None], length, made)


def _offline(view: str, found: Curve) -> Offline:
    """A log's mean is one of rounds, not of rows: the walk, where there is one."""
    length, how = (sum(found.joint) + 1, "mean of rows") if found.walk is None else (found.walk, "walk")
    return Offline(length, found.drafts, view, rounds=found.rows, joint=found.joint, how=how)


def curve_json(found: Curve | None, drafts: int | None) -> Json | None:
    """`length` is at `drafts` a round where the curve reaches so far, else at all of its own."""
    if found is None:
        return None
    at = found.drafts if drafts is None else min(drafts, found.drafts)
    said = {
        "name": found.name,
        "samples": found.samples,
        "rows": found.rows,
        "joint": list(found.joint),
        "walk": found.walk,
    }
    return {**said, "drafts": at, "length": found.at(at)}
