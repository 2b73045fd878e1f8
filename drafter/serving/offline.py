"""The offline numbers that stand beside a server's: accept lengths as trained and as served, from `views --json`.

A `Curve` comes from whole counts of rows, so that it gives the accept length at any number of drafts up to its own.
Plain arithmetic; nothing is scored here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafter.errors import WiringError
from drafter.serving.effective import Effective
from drafter.serving.expect import curve_length
from drafter.serving.server import Server
from drafter.serving.verdict import HELD_OUT, SERVED, TRAINED, TRAINING, UNKNOWN, Offline, Verdict, verdict

Json = dict[str, Any]
OTHER = "other"  # samples of which no name says what they were to training
_SEEN = frozenset({"train", "training", "trained", "seen"})
_UNSEEN = frozenset({"held", "heldout", "holdout", "val", "valid", "validation", "test", "eval", "unseen"})


@dataclass(frozen=True)
class Curve:
    """`samples` in words. `joint[i]`: the share of `rows` whose first i + 1 drafts are all right. `walk` is the length
    of the `rounds` of the text with all its drafts: what a log counts."""

    name: str
    samples: str
    joint: tuple[float, ...]
    rows: int
    walk: float | None = None
    rounds: int = 0

    def joined(self, other: Curve, samples: str) -> Curve:
        """Of the rows and rounds of both, which must have as many drafts."""
        rows, rounds = self.rows + other.rows, self.rounds + other.rounds
        both = zip(self.joint, other.joint, strict=True)
        joint = tuple((round(a * self.rows) + round(b * other.rows)) / rows for a, b in both)
        tokens = sum(round(one.walk * one.rounds) for one in (self, other) if one.walk is not None)
        return Curve(self.name, samples, joint, rows, tokens / rounds if rounds else None, rounds)

    @property
    def drafts(self) -> int:
        return len(self.joint)

    def at(self, drafts: int | None) -> float | None:
        """The mean accept length over the rows, bonus counted; with all its drafts for None."""
        if drafts is None or drafts <= self.drafts:
            return curve_length(self.joint, self.drafts if drafts is None else drafts)
        return None


@dataclass(frozen=True)
class Group:
    """Samples that belong together. `kind`: what they were to training, `unknown` unless names say so of all."""

    name: str
    kind: str
    trained: Curve | None
    served: Curve | None
    why_not: str = ""


def kind_of(*names: str) -> str:
    """What samples were to training by the first of `names`, of groups, folders or files, that says it in a word."""
    for name in names:
        words = set(re.split(r"[^a-z]+", name.lower()))
        if words & _UNSEEN:
            return HELD_OUT
        if words & _SEEN:
            return TRAINING
    return UNKNOWN


def groups_of(paths: Iterable[Path], group_of: Callable[[Path], str] | None) -> list[tuple[str, str, list[Path]]]:
    """(name, kind, paths) of each group of samples; without `group_of` the groups are the kinds."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for path in paths:
        group = group_of(path) if group_of is not None else ""
        kind = kind_of(Path(group).name, path.parent.name, path.name)
        found.setdefault(group or (OTHER if kind == UNKNOWN else kind), []).append((kind, path))
    return [
        (name, kinds.pop() if len(kinds := {kind for kind, _ in members}) == 1 else UNKNOWN, [p for _, p in members])
        for name, members in found.items()
    ]


def pooled(curves: Iterable[Curve | None], samples: str) -> Curve | None:
    """All of the curves together; None where there is none."""
    whole: Curve | None = None
    for one in curves:
        if one is not None:
            whole = one if whole is None else whole.joined(one, samples)
    return whole


def curve(
    name: str, samples: str, histogram: Sequence[int], walk: float | None = None, rounds: int = 0
) -> Curve | None:
    """Of rows by accepted drafts; None where no row counts."""
    rows = sum(histogram)
    if not rows:
        return None
    return Curve(name, samples, tuple(sum(histogram[i:]) / rows for i in range(1, len(histogram))), rows, walk, rounds)


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
    if lengths is None:
        return None
    return curve(name, samples, lengths["histogram"], lengths["walk"]["length"], lengths["walk"]["rounds"])


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


def judge(
    trained: Curve | None,
    served: Curve | None,
    length: float,
    made: Effective | None,
    groups: Sequence[Group] = (),
) -> Verdict:
    """What the accept length that users got and the offline ones say together.

    `groups` are the same samples by group: those of one kind are judged together, `trained` and `served` then left
    aside, because text that was trained on says little of what users get.
    """
    known = [(TRAINED, UNKNOWN, trained), (SERVED, UNKNOWN, served)]
    kinds = dict.fromkeys(group.kind for group in groups)
    if set(kinds) - {UNKNOWN}:
        known = []
        for kind in kinds:
            of_kind = [group for group in groups if group.kind == kind]
            known.append((TRAINED, kind, pooled((group.trained for group in of_kind), kind)))
            known.append((SERVED, kind, pooled((group.served for group in of_kind), kind)))
    return verdict([_offline(view, kind, found) for view, kind, found in known if found is not None], length, made)


def _offline(view: str, kind: str, found: Curve) -> Offline:
    """A log's mean is one of rounds, not of rows: the walk, where there is one."""
    length, how = (sum(found.joint) + 1, "mean of rows") if found.walk is None else (found.walk, "walk")
    who = f"{found.name} computes it" if view == SERVED else ""
    return Offline(length, found.drafts, view, kind, found.rows, found.joint, how, who)


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
