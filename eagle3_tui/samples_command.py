"""The command `samples`: what recorded samples there are, or two recordings of the same tokens compared.

Decides nothing: the work is the Session's, the text `samples_report`'s. The group is given by `cli`, which calls
`register`; what all commands share is taken from there when that happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter.errors import DrafterError, PathError, SampleError

if TYPE_CHECKING:
    from drafter.session import SampleList, Session

Json = dict[str, Any]
NAME = "samples"
MOST = 20
# shared options that have a say here; the others are taken, as by every command, but not shown
_WITH_EFFECT = frozenset({"path", "samples", "against", "most", "slots", "keys", "target", "log", "no_log", "rows"})
_OUTPUT = frozenset({"as_json", "output"})
_OWN = (
    click.option("--against", type=click.Path(path_type=Path), metavar="PATH",
                 help="Another recording of the same tokens, a file or a folder: say which of its slots is which of "
                 "ours, and where rows differ."),
    click.option("--most", type=click.IntRange(min=1), metavar="N", default=MOST, show_default=True,
                 help="With --against and folders: how many pairs of samples are compared."),
)  # fmt: skip


def register(group: click.Group) -> None:
    """Add the command to `group`."""
    from eagle3_tui import cli

    shared = cli._takes(cli._WHERE, *_OWN, *cli._SHARED, *cli._WIRED, *cli._MACHINE)
    command = group.command(NAME, short_help="What the samples hold, or two recordings compared.")(
        shared(samples_command)
    )
    for option in command.params:
        if isinstance(option, click.Option):
            option.hidden = option.name not in _WITH_EFFECT | _OUTPUT


def samples_command(
    path: Path, against: Path | None, most: int, as_json: bool, output: Path | None, **asked: Any
) -> int:
    """What every recorded sample holds: format, tokens, supervised tokens, slots, width, dtype, size and problems.

    With --against, two recordings of the same tokens slot by slot, e.g. a server's capture and the training dump.
    Exit code 2 when no sample can be read, or nothing can be compared.
    """
    from eagle3_tui import cli, samples_report

    with cli._session(NAME, path, asked) as session:
        cli._choose_checkpoint(session)
        with cli._progress() as show:
            show("looking for samples")
            listed = session.list_samples()
        if not listed.paths:
            raise PathError(f"no samples: {listed.why}", hint="name a sample file or a folder of them with -s")
        cli._say(f"samples: {len(listed.paths)} ({listed.why})")
        data = _survey(session, listed) if against is None else _against(session, listed, against, most)
    if against is not None:
        cli._emit(data, samples_report.comparisons, as_json, output)
        return cli.OK
    cli._emit(data, samples_report.survey, as_json, output)
    if data["totals"]["readable"]:
        return cli.OK
    cli._say(f"{cli.PROG}: none of {data['totals']['unreadable']} samples can be read; {_first_error(data)}")
    return cli.REFUSED


def _first_error(data: Json) -> str:
    errors = data["totals"]["errors"]
    return f"the first: {errors[0]['error']}" if errors else "there is none"


def _survey(session: Session, listed: SampleList) -> Json:
    from drafter.sample.many.survey import survey_json
    from eagle3_tui import cli

    with cli._progress() as show:
        result = session.survey(
            listed.paths, found=lambda s: show(f"looked at {s.files} of {s.planned}, {s.unreadable} unreadable")
        )
    config, inputs = session.checkpoint.run_config, session.checkpoint.fc_inputs
    return {"why": listed.why, "drafter": {"width": config.target_hidden_size, "slots": inputs}, **survey_json(result)}


def _against(session: Session, listed: SampleList, against: Path, most: int) -> Json:
    from drafter.files.path import there
    from drafter.sample.folder import list_samples
    from eagle3_tui import cli

    if not there(against):
        raise PathError("no such file or folder", where=against, hint="check --against")
    theirs = list_samples([against])
    one = _single(session, listed.paths), _single(session, theirs)
    if one[0] is not None and one[1] is not None:
        return _compared(session, [(one[0], one[1])], {}, 0, alone=True)
    with cli._progress() as show:
        show("looking for the same tokens in both")
        partners = session.pair_recordings(listed.paths, theirs)
    rest: Json = {
        "only_ours": [str(path) for path in partners.only_ours],
        "only_theirs": [str(path) for path in partners.only_theirs],
        "unreadable": [{"path": str(path), "error": error} for path, error in partners.unreadable.items()],
    }
    if not partners.pairs:
        found = f"none of the {len(rest['only_ours'])} samples has the tokens of one of the {len(rest['only_theirs'])}"
        raise SampleError(
            f"{found}; {len(rest['unreadable'])} unreadable",
            expected="two recordings of the same tokens",
            where=against,
            hint="parts of a text are looked for between two single files: name them",
        )
    return _compared(session, partners.pairs[:most], rest, max(len(partners.pairs) - most, 0))


def _single(session: Session, paths: Sequence[Path]) -> Path | None:
    """The one sample there is, or None."""
    names = session.sample_paths(paths[0]) if len(paths) == 1 else []
    return names[0] if len(names) == 1 else None


def _compared(
    session: Session, pairs: Sequence[tuple[Path, Path]], rest: Json, left: int, *, alone: bool = False
) -> Json:
    """The comparison of each pair; a pair that is refused is kept with its reason, but raised if it is alone."""
    from drafter.sample.many.twins import comparison_json
    from eagle3_tui import cli

    done: list[Json] = []
    failed: list[Json] = []
    with cli._progress() as show:
        for number, (ours, theirs) in enumerate(pairs, 1):
            show(f"comparing {number} of {len(pairs)}")
            try:
                done.append(comparison_json(session.compare_recordings(ours, theirs)))
            except DrafterError as error:
                if alone:
                    raise
                failed.append({"ours": str(ours), "theirs": str(theirs), "error": str(error)})
    counted = Counter(tuple(one["ordering"]) if one["ordering"] else None for one in done)
    orderings = [{"ordering": list(o) if o else None, "samples": n} for o, n in counted.most_common()]
    empty: Json = {"only_ours": [], "only_theirs": [], "unreadable": []}
    return {"comparisons": done, "failed": failed, "orderings": orderings, "not_compared": left, **empty, **rest}
