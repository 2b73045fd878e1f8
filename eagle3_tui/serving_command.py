"""The command `serving`: what a server really does with its flags, what its log says, and the speed to expect.

Decides nothing: the rules and the arithmetic are `drafter.serving`'s, the text `serving_report`'s. Every part works
alone. The group is given by `cli`, which calls `register`. Imports no torch: of a checkpoint only headers are read,
unless samples are given to score it on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter.errors import WiringError

if TYPE_CHECKING:
    from drafter.serving.effective import DrafterFacts, Effective
    from drafter.serving.expect import Expectation, Measured
    from drafter.serving.flags import Asked
    from drafter.serving.offline import Curve
    from drafter.serving.server import Server
    from drafter.serving.server_log import ServerLog
    from eagle3_tui.serving_scores import Asks, Offline

Json = dict[str, Any]
NAME = "serving"
STDIN = "-"
_OWN = (
    click.argument("path", type=click.Path(path_type=Path), required=False),
    click.option("--flags", metavar="TEXT|@FILE",
                 help="The server's launch line, or its speculative flags alone; @FILE reads them from a file."),
    click.option("--server", metavar="NAME@VERSION",
                 help="The server, e.g. sglang@0.5.9 or vllm@0.33.0.  [default: the engine that flags or log name, "
                 "the version of the log, else the newest known]"),
    click.option("--server-log", type=click.Path(path_type=Path), metavar="FILE",
                 help="The server's log, a saved /metrics page, /get_server_info or responses as JSON; - is stdin."),
    click.option("--base-speed", type=click.FloatRange(min=0, min_open=True), metavar="TOK/S",
                 help="Tokens per second of one request without drafts."),
    click.option("--point", "points", multiple=True, metavar="TOK/S@LENGTH[/DRAFTS]",
                 help="A measured speed, the accept length it was measured at, and the drafts a round; repeatable.  "
                 "[default: from the log, drafts from the flags]"),
    click.option("--draft-cost", type=click.FloatRange(min=0), metavar="STEPS",
                 help="What one draft step costs, in steps of the server without drafts.  [default: told by points at "
                 "two numbers of drafts, else half of what a round costs above one step]"),
    click.option("--accept-length", metavar="LENGTH[/DRAFTS]",
                 help="An accept length, e.g. an offline one: the speed to expect at it."),
    click.option("--joint", metavar="P1,P2,...",
                 help="How often the first, the first two, ... drafts are all right: how many drafts are best.  "
                 "[default: from vLLM's log, else from the samples]"),
    click.option("-s", "--samples", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
                 help="Samples to score PATH on, as trained and as the server computes it: the offline accept lengths "
                 "beside the server's, and the verdict; repeatable."),
    click.option("--group", "groups", multiple=True, metavar="NAME=GLOB",
                 help="A group of samples, scored by itself; repeatable.  [default: a group for each -s, if several "
                 "with a folder among them, else those whose folder or file is named train, held_out, val, test ...]"),
    click.option("--slots", metavar="LABELS", help="What the recorded slots are, as for score."),
    click.option("--target", type=click.Path(path_type=Path), metavar="PATH", help="The target's folder."),
)  # fmt: skip


def register(group: click.Group) -> None:
    """Add the command to `group`."""
    from eagle3_tui import cli

    command = cli._takes(*_OWN, *cli._MACHINE)(serving_command)
    group.command(NAME, short_help="What a server makes of its flags, and the speed to expect.")(command)


def serving_command(
    path: Path | None,
    flags: str | None,
    server: str | None,
    server_log: Path | None,
    base_speed: float | None,
    points: Sequence[str],
    draft_cost: float | None,
    accept_length: str | None,
    joint: str | None,
    samples: Sequence[Path],
    groups: Sequence[str],
    slots: str | None,
    target: Path | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """What a server really does with its flags, what its log says, and the speed to expect.

    Any part works alone. PATH is a checkpoint, which tells what the rules depend on; it is not needed. Every accept
    length counts the bonus token, as SGLang and vLLM print it.
    """
    if flags is None and server_log is None and base_speed is None:
        raise click.UsageError("Nothing to do: give --flags, --server-log or --base-speed", _context())
    if samples and path is None:
        raise click.UsageError("--samples need a checkpoint: PATH", _context())
    if base_speed is None and (points or draft_cost is not None):
        raise click.UsageError("--point and --draft-cost need --base-speed", _context())
    from eagle3_tui import cli, serving_report
    from eagle3_tui.serving_scores import Asks

    scored = None if path is None or not samples else Asks(path, tuple(samples), slots, target, tuple(groups))
    data = _answer(path, flags, server, server_log, base_speed, points, draft_cost, accept_length, joint, scored)
    cli._emit(data, serving_report.serving, as_json, output)


def _context() -> click.Context:
    return click.get_current_context()


def _answer(
    path: Path | None,
    flags: str | None,
    server: str | None,
    server_log: Path | None,
    base_speed: float | None,
    points: Sequence[str],
    draft_cost: float | None,
    accept_length: str | None,
    joint: str | None,
    scored: Asks | None,
) -> Json:
    """The command's JSON; see `serving_report` for its shape."""
    from drafter.serving.expect import choice_at, expectation, expectation_json, parse_point
    from drafter.serving.flags import flags_text, parse_flags
    from drafter.serving.server import Server
    from eagle3_tui.serving_scores import score

    facts, checkpoint = _facts(path)
    named = Server.parse(server) if server is not None else None
    asked = parse_flags(flags_text(flags)) if flags is not None else None
    made = _effective(asked, named, facts) if asked is not None else None
    log = _log(server_log, named, made) if server_log is not None else None
    conflict = _conflict(asked, made, log)
    if asked is None and log is not None and log.asked is not None:
        asked = log.asked
        made = _effective(asked, named or _server_of(log), facts)
    drafts = None if made is None or made.varies else made.steps
    measured = [parse_point(text, drafts) for text in points] or _point_of(log, drafts)
    expected, why = None, ""
    if base_speed is not None and measured:
        most = None if made is None or made.varies else made.max_accept_length
        expected = expectation(base_speed, measured, most=most, draft_cost=draft_cost)
    elif base_speed is not None:
        why = "no point: give --point, or a log of one request at a time with its speed"
    offline = score(scored, asked, made, drafts) if scored is not None else None
    best = offline.best if offline is not None else None
    length, length_drafts = _length(accept_length)
    if length is None and best is not None:
        length, length_drafts = best.at(_reach(best, drafts)), _reach(best, drafts)
    rates = _rates(joint, log)
    if not rates and best is not None:
        rates = best.joint
    at = None if length is None or expected is None else choice_at(expected, length, length_drafts)
    if length is not None and expected is not None and at is None:
        why = f"accept length {length:g} is more than these flags allow: give its drafts too, as LENGTH/DRAFTS"
        why = why if expected.model is not None or length_drafts is None else expected.why
    return {
        "checkpoint": checkpoint,
        "flags": None if asked is None else _asked_json(asked, from_log=flags is None),
        "effective": None if made is None else _effective_json(made),
        "log": None if log is None else _log_json(log, made, conflict),
        "expectation": None if expected is None else expectation_json(expected, at, rates),
        "why_no_expectation": why,
        "offline": None if offline is None else offline.json(drafts),
        "verdict": _judged(offline, made, log, expected)
        if offline is not None and best is not None
        else _verdict(made, log, expected, length, length_drafts),
    }


def _judged(
    offline: Offline, made: Effective | None, log: ServerLog | None, expected: Expectation | None
) -> Json | None:
    """What the server's length and the offline ones say together, where there is one of the server."""
    from drafter.serving.verdict import verdict_json

    found = offline.judged(_served(log, expected), made)
    return None if found is None else verdict_json(found)


def _served(log: ServerLog | None, expected: Expectation | None) -> float | None:
    """What users got: by the log, else by the first measured point."""
    return log.mean if log is not None else expected.points[0].length if expected is not None else None


def _reach(curve: Curve, drafts: int | None) -> int:
    return curve.drafts if drafts is None else min(drafts, curve.drafts)


def _facts(path: Path | None) -> tuple[DrafterFacts, Json | None]:
    """What the rules need of the checkpoint at `path`, and a short form of it."""
    from drafter.serving.effective import UNKNOWN

    if path is None:
        return UNKNOWN, None
    from drafter.checkpoint.checkpoint import open_checkpoint
    from drafter.checkpoint.facts import checkpoint_json
    from drafter.serving.serve import drafter_facts
    from drafter.session import Options, Session
    from eagle3_tui import demo

    session = Session(Options(demo.OUTPUT if str(path) == demo.NAME else path))
    picked = session.pick(session.find())
    checkpoint = open_checkpoint(picked)
    return drafter_facts(checkpoint), checkpoint_json(checkpoint)


def _effective(asked: Asked, server: Server | None, facts: DrafterFacts) -> Effective:
    from drafter.serving.serve import effective

    return effective(asked, server if server is not None else "", facts)


def _server_of(log: ServerLog) -> Server:
    from drafter.serving.server import Server

    return Server.parse(f"{log.engine}@{log.version}" if log.version else log.engine)


def _log(path: Path, server: Server | None, made: Effective | None) -> ServerLog:
    from drafter.serving.log_file import log_lines, stream_lines
    from drafter.serving.server import Server
    from drafter.serving.server_log import read_log
    from eagle3_tui import cli

    lines = stream_lines(sys.stdin.buffer) if str(path) == STDIN else log_lines(path)
    known = server if server is not None or made is None else Server.parse(made.server.partition("@")[0])
    with cli._progress() as show:
        show("reading the server's log")
        return read_log(lines, server=known, draft_tokens=None if made is None else made.draft_tokens)


def _point_of(log: ServerLog | None, drafts: int | None) -> list[Measured]:
    """The log's own point: its speed at its accept length, where one request ran at a time."""
    from drafter.serving.expect import Measured

    return [] if log is None or log.speed is None else [Measured(log.speed, log.mean, drafts)]


def _length(text: str | None) -> tuple[float | None, int | None]:
    """`2.9` or `2.9/5`: an accept length and the drafts a round that it is of."""
    if text is None:
        return None, None
    number, _, drafts = text.partition("/")
    try:
        length, count = float(number), int(drafts) if drafts else None
    except ValueError:
        length, count = 0.0, None
    if not 1 <= length <= (1025 if count is None else count + 1):
        raise WiringError(f"--accept-length {text!r:.40}", expected="a number >= 1, or LENGTH/DRAFTS, e.g. 2.9/5")
    return length, count


def _rates(text: str | None, log: ServerLog | None) -> tuple[float, ...]:
    from drafter.serving.expect import check_joint

    if text is None:
        return () if log is None else log.per_position
    try:
        return check_joint([float(part) for part in text.split(",")])
    except ValueError as error:
        raise WiringError(f"--joint {text!r:.60}", expected="numbers 0..1, e.g. 0.7,0.5,0.3") from error


def _verdict(
    made: Effective | None,
    log: ServerLog | None,
    expected: Expectation | None,
    length: float | None,
    drafts: int | None,
) -> Json | None:
    """What served and offline numbers say together, where there is a served one."""
    from drafter.serving.verdict import Offline, verdict, verdict_json

    served = _served(log, expected)
    if served is None:
        return None
    longest = None if made is None or made.varies else made.max_accept_length
    offline = []
    if length is not None:
        known = drafts or (longest - 1 if longest is not None and length <= longest else None)
        offline = [] if known is None else [Offline(length, known)]
    return verdict_json(verdict(offline, served, made)) if offline or made is not None else None


def _asked_json(asked: Asked, from_log: bool) -> Json:
    told = {name: value for name, value in asdict(asked).items() if value not in (None, "", (), False)}
    return {**told, "source": "log" if from_log else "flags"}


def _effective_json(made: Effective) -> Json:
    from drafter.serving.effective import effective_json

    return effective_json(made)


def _conflict(asked: Asked | None, made: Effective | None, log: ServerLog | None) -> str:
    """Where the flags that were given and those that the log tells differ, in words; overrides are no difference."""
    if asked is None or log is None or log.asked is None:
        return ""
    told = log.asked
    known = {
        "steps": (told.steps, {asked.steps, made.steps if made else None}),
        "topk": (told.topk, {asked.topk, made.topk if made else None}),
        "draft tokens": (told.draft_tokens, {asked.draft_tokens, made.draft_tokens if made else None}),
    }
    differ = [f"{what} {theirs}" for what, (theirs, ours) in known.items() if theirs is not None and theirs not in ours]
    return f"the log is of a server with {', '.join(differ)}: not of these flags" if differ else ""


def _log_json(log: ServerLog, made: Effective | None, conflict: str) -> Json:
    from drafter.serving.server_log import check_against, log_json

    data = log_json(log)
    longest = None if made is None or made.varies else made.max_accept_length
    return {**data, "warnings": [*data["warnings"], *filter(None, [conflict, check_against(log, longest)])]}
