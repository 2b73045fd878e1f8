"""The command `check`: what is wrong with a checkpoint and its samples, most severe first, with the cure.

Decides nothing: what is found is `drafter.checks`' matter, the text `check_report`'s. The group is given by `cli`,
which calls `register`; what all commands share is taken from there when that happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter.errors import DrafterError, WiringError

if TYPE_CHECKING:
    from drafter.files.find import Found
    from drafter.serving.flags import Asked
    from drafter.session import Session

NAME = "check"
FOUND = 1  # the exit status where a finding is an error
_WITHOUT_EFFECT = frozenset({"ordering", "view"})
_SERVER_LOG = click.Path(path_type=Path)
_OWN = (
    click.option("--flags", metavar="TEXT|@FILE",
                 help="The server's launch line, or its speculative flags alone; @FILE reads them from a file."),
    click.option("--server", metavar="NAME@VERSION",
                 help="The server that is really used, e.g. sglang@0.5.12: what it does otherwise than training is "
                 "then an error.  [default: the engine of --flags, the newest version known]"),
    click.option("--family", metavar="NAME",
                 help="The target's model_type, e.g. qwen3, kimi_k25, gpt_oss.  [default: the target's config, else "
                 "the verifier that the checkpoint names]"),
    click.option("--layers", type=click.IntRange(min=1, max=100_000), metavar="N",
                 help="How many layers the target has.  [default: the target's config]"),
    click.option("--served", type=click.FloatRange(min=1), metavar="LENGTH",
                 help="The accept length that the server shows, with the bonus token: held against the offline one."),
    click.option("--server-log", type=_SERVER_LOG, metavar="FILE",
                 help="The server's log, metrics page or JSON instead of --served: its accept length, what it says by "
                 "position, its flags and version where --flags and --server name none."),
    click.option("--static", is_flag=True, help="Only what needs no sample; weights are not read."),
)  # fmt: skip


def register(group: click.Group) -> None:
    """Add the command to `group`."""
    from eagle3_tui import cli

    shared = cli._takes(cli._WHERE, *_OWN, *cli._SHARED, *cli._WIRED, *cli._MACHINE)
    command = group.command(NAME, short_help="What is wrong, and the cure.")(shared(check_command))
    for option in command.params:
        if isinstance(option, click.Option) and option.name in _WITHOUT_EFFECT:
            option.hidden = True


def check_command(
    path: Path,
    flags: str | None,
    server: str | None,
    served: float | None,
    server_log: Path | None,
    static: bool,
    as_json: bool,
    output: Path | None,
    **asked: Any,
) -> int:
    """What is wrong with a checkpoint, its samples and a server's flags: findings, most severe first, and a verdict.

    Works without samples. A switch (--fed-ids draft) is set on what was trained first: what is checked is that
    function. Exit code 1 where a finding is an error, 2 where there was nothing to look at.
    """
    from drafter.checks.run import report_json
    from eagle3_tui import check_report, cli

    with cli._session(NAME, path, asked) as session:
        found = session.find()
        picked = _pick(session, found)
        paths, why = ([], "--static leaves them out") if static else _samples(session)
        log = _server_log(session, server_log, server, served)
        with cli._progress() as show:
            report = session.check(
                picked,
                paths,
                on_check=lambda check: show(f"checking {check}"),
                flags=flags if flags is not None or log is None else log.flags,
                server=server if server is not None or log is None else log.server,
                served=served if log is None else log.length,
                rates=() if log is None else log.rates,
                stages=("static",) if static else None,
                samples_why=why,
            )
        if report.crashes:
            broken = ", ".join(name for name, _ in report.crashes)
            cli._say(f"broken checks, a fault of this tool: {broken}; tracebacks are in the session log")
        data = {**_asked(session, picked, paths, server, served if log is None else log.length), **report_json(report)}
    cli._emit(data, lambda found: check_report.report(str(picked.path), found), as_json, output)
    return FOUND if report.failed else cli.OK


def _asked(
    session: Session, picked: Found, paths: Sequence[Path], server: str | None, served: float | None
) -> dict[str, Any]:
    """What the findings are about."""
    options = session.options
    return {
        "checkpoint": str(picked.path),
        "samples": [str(path) for path in paths],
        "mask": options.mask,
        "depth": options.depth,
        "server": server,
        "served": served,
        "switched": dict(options.switches),
    }


@dataclass(frozen=True)
class _Log:
    """What a server's log says, as the checks take it."""

    length: float
    rates: tuple[float, ...]
    flags: Asked | None
    server: str


def _server_log(session: Session, path: Path | None, server: str | None, served: float | None) -> _Log | None:
    """Read, and said. Raises DrafterError where it says no accept length, and for two answers to one question."""
    from eagle3_tui import cli

    if path is None:
        return None
    if served is not None:
        raise WiringError("--served beside --server-log", expected="one of the two")
    found = session.server_log(path, server or "")
    named = f"{found.engine}@{found.version}" if found.version else found.engine
    cli._say(f"server log: accept length {found.mean:.2f} of {found.length.count} lines, {named}")
    for warning in found.warnings:
        cli._say(f"server log: {warning}")
    asked = found.asked if found.asked is not None and found.asked.speculates else None
    return _Log(found.mean, found.per_position, asked, named)


def _pick(session: Session, found: Sequence[Found]) -> Found:
    """The checkpoint to look at: as by every command, but a single broken one is looked at too."""
    from eagle3_tui import cli

    picked = session.pick(found)
    if len(found) > 1:
        cli._say(f"checkpoint: {picked.path}, {session.pick_why(picked)}; 1 of {len(found)}")
    return picked


def _samples(session: Session) -> tuple[Sequence[Path], str]:
    """The sample files, and what to say where there are none. Raises PathError for a name that the user gave."""
    from eagle3_tui import cli

    try:
        listed = session.list_samples()
    except DrafterError:
        if session.options.samples:
            raise
        return [], "none beside the checkpoint"
    if listed.paths:
        cli._say(f"samples: {len(listed.paths)} ({listed.why})")
    return listed.paths, listed.why
