"""The part of the command `serving` that runs the drafter: samples scored as trained and as the server computes it,
group by group, because users bring text that was not trained on.

What the numbers mean is `drafter.serving.offline`'s matter. Imports torch where something is scored, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError

if TYPE_CHECKING:
    from drafter.serving.effective import Effective
    from drafter.serving.flags import Asked
    from drafter.serving.offline import Curve, Group
    from drafter.serving.verdict import Verdict
    from drafter.session import Session

Json = dict[str, Any]
_EAGER = "--disable-cuda-graph"
_DEPTH, _DEEPEST = 5, 16  # drafts that are scored where the server's are not known, and at most


@dataclass(frozen=True)
class Asks:
    """What is to be scored on what: the options of the command that say so."""

    path: Path
    samples: tuple[Path, ...]
    slots: str | None = None
    target: Path | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offline:
    """The curves over all samples and of each group; `groups` is one where nothing tells samples apart."""

    trained: Curve | None
    served: Curve | None
    why_not: str
    groups: Sequence[Group]
    warnings: Sequence[str] = field(default=())

    @property
    def best(self) -> Curve | None:
        """What comes nearest to the server's own function."""
        return self.served or self.trained

    def judged(self, length: float | None, made: Effective | None) -> Verdict | None:
        """What these and the `length` of users say together, None where that is not known."""
        from drafter.serving.offline import judge

        return None if length is None else judge(self.trained, self.served, length, made, self.groups)

    def json(self, drafts: int | None) -> Json:
        from drafter.serving.offline import curve_json

        groups = [
            {
                "name": group.name,
                "kind": group.kind,
                "trained": curve_json(group.trained, drafts),
                "served": curve_json(group.served, drafts),
                "why_not_served": group.why_not,
            }
            for group in self.groups
        ]
        return {
            "trained": curve_json(self.trained, drafts),
            "served": curve_json(self.served, drafts),
            "why_not_served": self.why_not,
            "groups": groups,
            "warnings": list(self.warnings),
        }


def score(asks: Asks, asked: Asked | None, made: Effective | None, drafts: int | None) -> Offline:
    """The checkpoint on the samples, as trained and as the server of the flags or the log computes it."""
    from drafter.serving.offline import groups_of, pooled
    from drafter.session import Options, Session
    from eagle3_tui import cli, demo

    depth = min(drafts or _DEPTH, _DEEPEST)
    options = Options(
        asks.path, samples=asks.samples, slots=asks.slots, target=asks.target, depth=depth, groups=asks.groups
    )
    session = Session(demo.demo_options(options) if str(asks.path) == demo.NAME else options)
    cli._choose_checkpoint(session)
    paths = cli._choose_sample(session)
    cli._load(session)
    grouping = session.grouping
    split = groups_of(paths, grouping.of if grouping.any else None)
    graphs = asked is None or _EAGER not in asked.ignored
    groups, skipped = _groups(session, split, made, graphs)
    words = _many(sum(count for _, count in groups))
    found = [group for group, _ in groups]
    return Offline(
        pooled((group.trained for group in found), words),
        pooled((group.served for group in found), words),
        next((group.why_not for group in found if group.why_not), ""),
        found,
        [*skipped, *grouping.without_samples(paths)],
    )


def _groups(
    session: Session, split: Sequence[tuple[str, str, list[Path]]], made: Effective | None, graphs: bool
) -> tuple[list[tuple[Group, int]], list[str]]:
    """Each group with how many of its samples were scored, and what was left out. Raises where nothing is left."""
    found: list[tuple[Group, int]] = []
    skipped: list[str] = []
    first: DrafterError | None = None
    for name, kind, paths in split:
        try:
            group, count, left_out = _group(session, name, kind, paths, made, graphs)
        except DrafterError as error:
            if any(path in session.options.samples for path in paths):
                raise
            first = first or error
            skipped.append(f"none of the samples of group {name} could be scored; the first: {error}")
            continue
        found.append((group, count))
        skipped += left_out
    if first is not None and not found:
        raise first
    return found, skipped


def _group(
    session: Session, name: str, kind: str, paths: Sequence[Path], made: Effective | None, graphs: bool
) -> tuple[Group, int, list[str]]:
    from drafter.serving.offline import Group, served_curve, trained_curve
    from drafter.serving.verdict import UNKNOWN
    from drafter.views import views_json
    from eagle3_tui import cli

    names = (made.server,) if made is not None else ()
    with cli._progress() as show:
        views = views_json(session.views(paths, names, _telling(show, name)))
    words = _many(views["samples"], "" if kind == UNKNOWN else f"{kind} ")
    served, why_not = None, "no server is named: --server or --flags"
    if made is not None:
        served, why_not = served_curve(views, made.server, words, graphs=graphs)
    skipped = [f"skipped {one['path']}: {one['error']}" for one in views["skipped"]]
    return Group(name, kind, trained_curve(views, words), served, why_not), views["samples"], skipped


def _telling(show: Callable[[str], None], name: str) -> Callable[[int, int], None]:
    return lambda done, of: show(f"group {name}: scored {done} of {of}")


def _many(count: int, kind: str = "") -> str:
    return f"{count} {kind}sample{'' if count == 1 else 's'}"
