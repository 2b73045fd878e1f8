"""The command `accept`: what a server's log would say of chains of K drafts, without a server.

Decides nothing: the work is the Session's, the text `accept_report`'s. The group is given by `cli`, which calls
`register`; what all commands share is taken from there when that happens.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter.errors import WiringError

if TYPE_CHECKING:
    from drafter.drafting.rounds import Round
    from drafter.session import Session
    from drafter.wiring import Ordering

NAME = "accept"
_OWN = (
    click.option("--refresh", type=click.Choice(["target", "drafted"]), default="target", show_default=True,
                 help="What the rows of accepted drafts hold in the next round: the recorded target states, as servers "
                 "do, or what the drafter made, as an engine would that forgets the extend step."),
    click.option("--rounds", "shown", type=click.IntRange(min=0), metavar="N", default=8, show_default=True,
                 help="Rounds of the first sample that are shown; the JSON has them all."),
    click.option("--most", type=click.IntRange(min=0), metavar="N", default=10, show_default=True,
                 help="Tokens at which chains break that are shown."),
    click.option("--ascii", is_flag=True, help="Draw in ASCII.  [default: where the output speaks no Unicode]"),
)  # fmt: skip


def register(group: click.Group) -> None:
    """Add the command to `group`."""
    from eagle3_tui import cli

    shared = cli._takes(cli._WHERE, *_OWN, *cli._SHARED, *cli._WIRED, *cli._MACHINE)
    group.command(NAME, short_help="Accept length of chains, where they break, rounds.")(shared(accept_command))


def accept_command(
    path: Path, refresh: str, shown: int, most: int, ascii: bool, as_json: bool, output: Path | None, **asked: Any
) -> None:
    """Accept length of greedy chains of --depth drafts under one ordering, without a server.

    Accuracy per draft step fed the sample's tokens and fed its own, the histogram of accept lengths, what the
    accuracies imply, where and at which tokens chains break, and the first rounds of the text as a server would decode
    it. Samples are pooled; the rounds are those of the first.
    """
    from eagle3_tui import accept_report, cli

    with cli._session(NAME, path, asked) as session:
        cli._choose_checkpoint(session)
        paths = cli._choose_sample(session)
        cli._say(f"tokenizer: {session.tokens_why}")
        cli._load(session)
        ordering = _ordering(session)
        with cli._progress() as show:
            report = session.chain_report(
                ordering, paths, on_progress=lambda r: show(f"sample {len(r.samples) + len(r.skipped)} of {r.planned}")
            )
            found = _rounds(session, ordering, refresh, show)
        data = session.chain_report_json(report, found, refresh, most)
        data["warnings"] += cli._view_warnings(session)
    from eagle3_tui import text_report

    for line in text_report.skipped_lines(data["skipped"]):
        cli._say(line)
    plain = ascii or (output is None and not _speaks_unicode())
    cli._emit(data, lambda done: accept_report.accept(done, shown, plain), as_json, output)


def _ordering(session: Session) -> Ordering:
    from eagle3_tui import cli

    asked = list(dict.fromkeys(session.options.orderings))
    if len(asked) > 1 or asked == ["all"]:
        raise WiringError(f"--ordering {', '.join(asked)}", expected="one ordering", hint="score compares several")
    return cli._step_ordering(session, session.sample.path)


def _rounds(session: Session, ordering: Ordering, refresh: str, show: Any) -> list[Round]:
    return session.rounds(ordering, refresh=refresh, on_progress=lambda n, of: show(f"token {n} of {of}"))


def _speaks_unicode() -> bool:
    try:
        "█▌".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
