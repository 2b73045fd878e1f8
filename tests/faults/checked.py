"""A world written to disk and checked: what the checks say of it, without the command line in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checks.case import Case
from drafter.checks.run import Report, run_checks
from drafter.errors import DrafterError
from drafter.files.find import find_checkpoints
from drafter.sample.sample import Sample
from drafter.session import Session
from tests.faults.world import World, write_world


def case_of(session: Session, folder: Path, served: float | None = None) -> Case:
    """What `check` looks at: the checkpoint, the target, and every sample that opens."""
    (found,) = find_checkpoints(folder / "draft")
    samples: list[Sample] = []
    unread: dict[Path, str] = {}
    for path in session.list_samples().paths:
        try:
            samples.append(session.open_sample(path))
        except DrafterError as error:
            unread[path] = str(error)
    checkpoint: Checkpoint = session.checkpoint
    target, why = session.target
    return Case(
        found,
        checkpoint,
        target,
        session.tokens,
        samples,
        target_why=why,
        family=session.family(),
        target_layers=session.target_layers,
        depth=session.options.depth,
        mask=session.options.mask,
        unread=unread,
        served=served,
    )


def check_world(
    folder: Path, world: World, stages: Sequence[str] = ("static", "sample", "forward", "weights")
) -> Report:
    try:
        session = write_world(folder, world)
    except DrafterError as error:
        (found,) = find_checkpoints(folder / "draft")
        return run_checks(Case(found, None, refusal=error), stages=stages)
    return run_checks(case_of(session, folder, world.served), stages=stages)


def brief(report: Report) -> str:
    shown = [f"{f.kind} {f.severity:7} {f.check}: {f.title}" for f in report.findings if f.severity != "ok"]
    crashes = [f"CRASH {name}: {trace}" for name, trace in report.crashes]
    return "\n".join([f"[{report.verdict_kind}] {report.verdict}", *shown, *crashes])
