"""The command `compare`: two checkpoints held against each other, or all checkpoints of a run in a row.

Decides nothing: the work is the Session's, the text `compare_report`'s. The group is given by `cli`, which calls
`register`; what all commands share is taken from there when that happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter.errors import DrafterError, PathError

if TYPE_CHECKING:
    from drafter.checkpoint_compare.epochs import Run
    from drafter.checkpoint_compare.outcomes import Outcomes
    from drafter.files.find import Found
    from drafter.session import Session

Json = dict[str, Any]
NAME = "compare"
MOST = 20
_OWN = (
    click.argument("other", type=click.Path(path_type=Path), required=False),
    click.option("--most", type=click.IntRange(min=0), metavar="N", default=MOST, show_default=True,
                 help="How many rows are listed that only one of two checkpoints has right."),
)  # fmt: skip


def register(group: click.Group) -> None:
    """Add the command to `group`."""
    from eagle3_tui import cli

    shared = cli._takes(cli._WHERE, *_OWN, *cli._SHARED, *cli._WIRED, *cli._MACHINE)
    group.command(NAME, short_help="Two checkpoints, or all epochs of a run.")(shared(compare_command))


def compare_command(
    path: Path, other: Path | None, most: int, as_json: bool, output: Path | None, **asked: Any
) -> int:  # fmt: skip
    """Two checkpoints: configs, tensors, and with -s their predictions on the same samples, token by token.

    Without OTHER every checkpoint below PATH on the samples, with the trainer's own numbers beside it. Each runs as it
    was trained, under the ordering that it was trained with, unless options say otherwise. Exit code 2 when what was
    asked for could not be compared.
    """
    from eagle3_tui import cli, compare_report

    with cli._session(NAME, path, asked) as session:
        if other is None:
            data = _epochs(session)
            cli._emit(data, compare_report.epochs, as_json, output)
            return cli.OK
        data = _two(session, other, most)
    cli._emit(data, compare_report.comparison, as_json, output)
    if not data["outcomes_problem"]:
        return cli.OK
    cli._say(f"{cli.PROG}: {data['outcomes_problem']}")
    return cli.REFUSED


# --- two checkpoints


def _two(session: Session, other: Path, most: int) -> Json:
    from drafter.checkpoint_compare.compare import comparison_json
    from eagle3_tui import cli

    ours = cli._choose_checkpoint(session)
    theirs = _other(session, other)
    with cli._progress() as show:
        found = session.compare_checkpoints(theirs, lambda done, planned, name: show(f"{done} of {planned}: {name}"))
    data: Json = {**comparison_json(found), "outcomes": None, "outcomes_problem": ""}
    data["warnings"] = cli._view_warnings(session)
    if not session.options.samples:
        cli._say("samples: none asked for (-s), so predictions are not compared")
        return data
    try:
        data["outcomes"] = _outcomes(session, ours, theirs, most)
    except DrafterError as error:
        data["outcomes_problem"] = str(error)
    return data


def _other(session: Session, path: Path) -> Found:
    from drafter.files.find import find_checkpoints
    from eagle3_tui import cli, demo

    found = find_checkpoints(demo.OUTPUT if str(path) == demo.NAME else path)
    picked = session.pick(found)
    if len(found) > 1:
        cli._say(f"other: {picked.path}, {session.pick_why(picked)}; 1 of {len(found)}")
    return picked


def _outcomes(session: Session, ours: Found, theirs: Found, most: int) -> Json:
    from drafter.checkpoint_compare.outcomes import paired_json
    from eagle3_tui import cli

    paths = cli._choose_sample(session)
    with cli._progress() as show:

        def on_progress(outcomes: Outcomes) -> None:
            show(f"ran {len(outcomes.samples) + len(outcomes.skipped)} of {len(paths)}")

        found = session.compare_outcomes(ours, theirs, paths, most, on_progress)
    for side in (found.ours, found.theirs):
        cli._say(f"device: {side.placed}; ordering: {','.join(map(str, side.ordering))} ({side.why})")
    return {"depth": session.options.depth, "mask": session.options.mask, **paired_json(found, session.piece)}


# --- all of a run


def _epochs(session: Session) -> Json:
    from drafter.checkpoint_compare.epochs import run_json
    from eagle3_tui import cli

    found = session.find()
    paths = _samples(session)
    with cli._progress() as show:

        def on_progress(run: Run) -> None:
            show(f"{run.done} of {len(run.epochs)} checkpoints")

        run = session.run_epochs(found, paths, on_progress)
    return {"path": str(session.options.path), **run_json(run), "warnings": cli._view_warnings(session)}


def _samples(session: Session) -> Sequence[Path]:
    from eagle3_tui import cli

    listed = session.list_samples()
    if not listed.paths:
        raise PathError(f"no samples: {listed.why}", hint="name a sample file or a folder of them with -s")
    cli._say(f"samples: {len(listed.paths)} ({listed.why})")
    return listed.paths
