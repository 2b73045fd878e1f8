"""The command line: commands, options and exit codes. What is computed is a Session's matter, how it reads as text
`text_report`'s.

stdout carries data only; notes and progress go to stderr. torch and Textual are imported by the commands that need
them, so that help, version and refusals are quick.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from drafter.errors import DrafterError, FileError, PathError
from drafter.options import MAX_DEPTH
from drafter.safe import safe
from drafter.wiring import SWITCHES
from eagle3_tui import __version__
from eagle3_tui.progress import progress
from eagle3_tui.suggest import command_meant, no_such_option

if TYPE_CHECKING:
    from drafter.files.find import Found
    from drafter.session import Options, Session
    from drafter.wiring import Ordering

PROG = "eagle3-tui"
OK, REFUSED, INTERRUPTED = 0, 2, 130
_LATER = ("replay",)  # commands of later versions; a path of that name still opens
OPEN = ""  # the command that runs when the first word is no command; no word can name it

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


# Entry


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; a refusal is one line on stderr, never a traceback."""
    words = list(sys.argv[1:] if args is None else args)
    # threads that spin while they wait make torch several times slower on cores that others use too
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _never_fail_to_print()
    try:
        with cli.make_context(PROG, list(words), obj=[PROG, *words]) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read stdout has what it wanted; the interpreter must not complain when it flushes at exit
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        _say(f"{PROG}: {_one_line(error)}")
        return REFUSED


def _one_line(error: Exception) -> str:
    if isinstance(error, DrafterError):
        return str(error)
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path.strip() if error.ctx else PROG
        said = error.format_message().rstrip(".")
        said = no_such_option(error, cli.commands) if isinstance(error, click.NoSuchOption) else said
        return f"{said} See {where} --help" if said.endswith("?") else f"{said}; see {where} --help"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f"; in {error.filename}" if error.filename else "")
    said = " ".join(str(error).split())[:300]
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return f"out of memory ({said or type(error).__name__}); try --rows, a smaller --dtype or another --device"
    return f"{type(error).__name__}: {said}; unexpected, please report it with the session log"


def _never_fail_to_print() -> None:
    """A terminal of another encoding shows escapes instead of ending the command."""
    with contextlib.suppress(AttributeError, ValueError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _say(text: str) -> None:
    """One line on stderr, if there is still somebody to read it."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(safe(text) + "\n")
        sys.stderr.flush()


# Options


class _Commands(click.Group):
    """A group whose first word may also be a PATH, which opens the inspector; options may stand before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self._first_word(args)
        if "--version" in args:
            args = ["--version"]
        elif at is not None and args[at] in _LATER and not Path(args[at]).exists():
            raise click.UsageError(f"{args[at]!r} is not in this version", ctx)
        elif at is not None and args[at] in self.commands:
            args = [args[at], *args[:at], *args[at + 1 :]]
        elif not {"-h", "--help"}.isdisjoint(args):
            args = ["--help"]
        else:
            if at is not None:
                self._refuse_no_command(ctx, args, at)
            args = [OPEN, *args]
        return super().parse_args(ctx, args)

    def _refuse_no_command(self, ctx: click.Context, args: list[str], at: int) -> None:
        """Refuse a first word that can only be a command's, because no file has that name. Raises UsageError."""
        word, names = args[at], self.list_commands(ctx)
        if os.path.lexists(word) or Path(word).name != word or not self._known(args[:at]):
            return
        said = f"{word!r} is no command, file or folder"
        meant = command_meant(word, names)
        if meant is not None:
            raise click.UsageError(f"{said}: did you mean {meant}?", ctx)
        if self._first_word(args[at + 1 :]) is not None:  # only commands take a second word
            raise click.UsageError(f"{said}; commands are {', '.join(names)}", ctx)

    def _known(self, args: list[str]) -> bool:
        """Whether every option in `args` is one of some command: else `word` may be the value of a misspelt one."""
        every = {name for command in self.commands.values() for option in command.params for name in option.opts}
        return all(arg.partition("=")[0] in every for arg in args if arg.startswith("--"))

    def _first_word(self, args: list[str]) -> int | None:
        """Where the first word is that is neither an option nor an option's value; None after `--`."""
        options = [o for c in self.commands.values() for o in c.params if isinstance(o, click.Option) and not o.is_flag]
        with_value = {name for option in options for name in option.opts}
        at = 0
        while at < len(args):
            if args[at] == "--":
                return None
            if not args[at].startswith("-") or args[at] == "-":
                return at
            at += 2 if args[at] in with_value else 1
        return None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in self.commands if name != OPEN]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(PROG, "PATH [OPTIONS]")
        formatter.write_usage(PROG, "COMMAND PATH [OPTIONS]", prefix="       ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        options = [p for p in [*self.commands[OPEN].params, *self.params] if isinstance(p, click.Option)]
        records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl([*records, ("-h, --help", "Show this message, or that of a COMMAND.")])


_SHARED = (
    click.option("-s", "--samples", multiple=True, type=_PATH, metavar="PATH",
                 help="A sample file, or a folder of them; repeatable.  [default: what lies beside the checkpoints]"),
    click.option("--target", type=_PATH, metavar="PATH",
                 help="The target model's folder.  [default: the config's verifier if it is here, else one beside the "
                 "checkpoint whose sizes fit]"),
    click.option("--tokenizer", type=_PATH, metavar="PATH",
                 help="A tokenizer file, or a folder with one.  [default: beside checkpoint, sample or target, or "
                 "where their files say; else ids are shown]"),
    click.option("--slots", metavar="LABELS",
                 help="What the recorded slots are, e.g. embed,3,31,last: layers passed, embed = 0, last = the "
                 "verifier's (last:pre, last:post: before or after its final norm), ? = not known.  "
                 "[default: sidecar files, else what the training's config implies, else what the layout says, "
                 "else ?]"),
    click.option("--keys", metavar="KEYS",
                 help="Where an unknown layout holds what, e.g. ids=tokens,states=aux,last=final,norm=pre,mask=loss; "
                 "states may be repeated, a.0.b walks tables and lists, ids=@{stem}.json is another file.  "
                 "[default: told by keys and shapes]"),
    click.option("--ordering", multiple=True, metavar="SLOTS",
                 help="Slots that feed fc, in order, e.g. 0,1,2, or all; repeatable.  [default: screen and step: the "
                 "trained one if known, else the best; fix: the trained one; score: all]"),
    click.option("--view", metavar="NAME", default="trained", show_default=True,
                 help="How the forward is wired: trained, or as a server computes it, e.g. sglang@0.5.12 or vllm."),
    click.option("--depth", type=click.IntRange(min=1, max=MAX_DEPTH), metavar="K", default=5, show_default=True,
                 help="Draft steps."),
    click.option("--mask", type=click.Choice(["next", "same", "predicted", "all"]), default="next", show_default=True,
                 help="Rows that count: by the loss mask of the token fed, one before, one after, or all."),
    click.option("--supervised", metavar="HOW", default="recorded", show_default=True,
                 help="Tokens that count as supervised: recorded (the loss mask), all, roles (the assistant's turns by "
                 "chat-template marks), or token spans such as 40:212,260:"),
    click.option("--rows", type=click.IntRange(min=1), metavar="N", help="At most N rows of each sample.  "
                 "[default: all]"),
    click.option("--group", multiple=True, metavar="NAME=GLOB",
                 help="Score the samples whose path or name matches GLOB as a group too; repeatable, the first that "
                 "matches counts, the rest is the group other.  [default: a group for each -s, if several with a "
                 "folder among them]"),
    click.option("--device", metavar="NAME", default="auto", show_default=True,
                 help="auto, cpu, cuda, cuda:N or mps; auto is cuda where there is one, else cpu."),
    click.option("--dtype", type=click.Choice(["auto", "float32", "bfloat16", "float16"]), default="auto",
                 show_default=True, help="auto is as stored on a GPU; on a CPU float32, or bfloat16 where the weights "
                 "exceed 1 GB and the CPU multiplies it natively."),
    click.option("--log", type=_PATH, metavar="FILE",
                 help="Where the session log goes.  [default: a file in the user's state folder]"),
    click.option("--no-log", is_flag=True, help="Write no session log."),
)  # fmt: skip
_SWITCH_HELP = {
    "norm_before_residual": "The residual is the normed hidden instead of fc's raw output.",
    "norm_output": "The next draft step is fed the state after the final norm.",
    "double_norm": "The hidden passes input_layernorm before hidden_norm, as ModelOpt trains.",
    "final_norm": "The final norm stands before lm_head.",
    "rope_base": "Base of the rotary embedding.",
    "rope_type": "Type of the rotary embedding.",
    "rope_pairs": "Which dimensions are rotated together.",
    "embedding": "The checkpoint's own embedding, or the target's as SGLang takes it.",
    "head": "The checkpoint's own head, the target's rows, or the embedding's first rows (tied).",
    "d2t": "How d2t is read: as the data supports, as offsets, or as target ids.",
    "window": "A sliding window moves on with the draft steps (vLLM), stays (speculators), or is none (SGLang).",
    "positions": "Positions of draft steps >= 1: advancing, constant, or one late as in SGLang up to 0.5.11.",
    "norm_before_fc": "input_norm before fc is applied where there is one.",
    "fc_norm": "The norms of the single states before fc are applied where there are any.",
    "fc_bias": "The bias of fc is added where there is one.",
    "qkv_bias": "The first layer's biases of q, k and v are added where there are any.",
    "qk_norm": "The norms of q and k are applied where there are any.",
    "upper_norms": "The norms before the layers above the first: the checkpoint's own, or ones.",
    "lost_norm": "A final norm that the checkpoint lacks: refused, or ones as in a server.",
    "fc": "fc is applied, or skipped where its input is as wide as the drafter already.",
    "mlp_gate": "silu stands after gate_proj, or after up_proj (the two swapped).",
    "halves": "The first projections take the embedding before the hidden, or after it.",
    "row_ids": "A recorded row is fed the token after its state, or its own (ids that a program did not shift).",
    "feedback": "A later step is fed the drafter's own state, that state through fc once more, or what step 0 was fed.",
    "fed_ids": "A draft is fed by its target id, or by its number in the draft vocabulary (d2t forgotten).",
    "draft_keys": "A later step sees its row's past and the chain's drafts (kept), no earlier draft (forgotten), or "
    "only the chain's drafts (alone).",
    "residual": "A layer's MLP output is handed on with the residual, without it between layers, or without it at the "
    "end.",
}


def _switch_option(name: str) -> Callable[[F], F]:
    values = SWITCHES[name]
    shown = "|".join(values) if values else "NUMBER"
    kind = click.Choice(values) if values else click.STRING
    text = f"{_SWITCH_HELP[name]}  [default: as trained]"
    return click.option(f"--{name.replace('_', '-')}", f"switch_{name}", type=kind, metavar=shown, help=text)


_WIRED = tuple(_switch_option(name) for name in SWITCHES)
_MACHINE = (
    click.option("--json", "as_json", is_flag=True, help="Machine output.  [default: text]"),
    click.option("-o", "output", type=_PATH, metavar="FILE", help="Write to FILE, atomically.  [default: stdout]"),
)
_SCREEN = (
    click.option("--ascii", is_flag=True, help="Draw in ASCII."),
    click.option("--no-mouse", is_flag=True, help="Leave the mouse to the terminal."),
)
_SORTED = (
    click.option("--sort", type=click.Choice(["worst", "best", "name"]), default="worst", show_default=True,
                 help="How the table of samples is ordered."),
)  # fmt: skip
_WHERE = click.argument("path", type=_PATH)


def _takes(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _options(path: Path, asked: dict[str, Any]) -> Options:
    """The session's options; in place of a path the word `demo` means the data that ship with the package."""
    from drafter.session import Options
    from eagle3_tui import demo

    options = Options(
        path=path,
        samples=asked["samples"],
        target=asked["target"],
        tokenizer=asked["tokenizer"],
        slots=asked["slots"],
        keys=asked["keys"],
        orderings=asked["ordering"],
        view=asked["view"],
        depth=asked["depth"],
        mask=asked["mask"],
        rows=asked["rows"],
        supervised=asked["supervised"],
        device=asked["device"],
        dtype=asked["dtype"],
        switches=tuple((n, asked[f"switch_{n}"]) for n in SWITCHES if asked[f"switch_{n}"] is not None),
        groups=asked["group"],
        family=asked.get("family"),
        layers=asked.get("layers"),
    )
    return demo.demo_options(options) if str(path) == demo.NAME else options


def _log_path(asked: dict[str, Any]) -> Path | None:
    from drafter.log import default_path

    if asked["no_log"]:
        return None
    given: Path | None = asked["log"]
    return given if given is not None else default_path()


# Commands


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name=PROG, message="%(prog)s %(version)s")
def cli() -> None:
    """Inspect EAGLE-3 draft checkpoints on recorded samples: is the drafter broken, or is it wired wrongly?

    PATH is a checkpoint, or a folder that holds checkpoints at any depth; the word demo means the checkpoint that
    ships with the package. A path that is named like a command is written ./score.
    """


@cli.command(OPEN)
@_takes(_WHERE, *_SHARED, *_WIRED, *_SCREEN)
def open_command(path: Path, ascii: bool, no_mouse: bool, **asked: Any) -> int:
    """Open the inspector."""
    return _open_screen(path, ascii, no_mouse, asked)


@cli.command("demo", short_help="The same on what ships with the package.")
@_takes(*_SHARED, *_WIRED, *_SCREEN)
def demo_command(ascii: bool, no_mouse: bool, **asked: Any) -> int:
    """Open the inspector on the checkpoint and samples that ship with the package."""
    return _open_screen(Path("demo"), ascii, no_mouse, asked)


def _open_screen(path: Path, ascii: bool, no_mouse: bool, asked: dict[str, Any]) -> int:
    from eagle3_tui.ui_settings import UiSettings

    options = _options(path, asked)
    if not options.path.exists():
        hint = "check the path, or see --help for the commands"
        raise PathError("no such file or folder", where=options.path, hint=hint)
    from eagle3_tui.app import run_app

    settings = UiSettings(ascii, not no_mouse, list(click.get_current_context().obj))
    return run_app(options, _log_path(asked), settings)


@cli.command("score", short_help="Accuracy and accept length of every ordering.")
@_takes(_WHERE, *_SORTED, *_SHARED, *_WIRED, *_MACHINE)
def score_command(path: Path, sort: str, as_json: bool, output: Path | None, **asked: Any) -> None:
    """Accuracy and accept length of every ordering, or of those named.

    Samples are pooled, and shown one by one; in a folder those that cannot be read or do not fit are skipped and named.
    """
    with _session("score", path, asked) as session:
        _choose_checkpoint(session)
        paths = _choose_sample(session)
        _load(session)
        with _progress() as show:
            result = session.score(paths, on_progress=lambda r: show(f"scored {r.done} of {r.planned}"))
        data = session.score_json(result)
        data["verifier"] = None if "verifier_draft_vocab" in data["reasons"] else _verifier_said(session)
        data["warnings"] += _view_warnings(session)
        data["warnings"] += session.grouping.without_samples(
            [Path(one["path"]) for one in (*data["samples"], *data["skipped"])]
        )
    formats = sorted({sample["format"] for sample in data["samples"]})
    if len(formats) > 1:
        _say(f"samples: of several formats ({'; '.join(formats)}), pooled although their slots may not be the same")
    from eagle3_tui import score_report, text_report

    for line in text_report.skipped_lines(data["skipped"]):
        _say(line)
    _emit(data, lambda scored: score_report.score(scored, sort, asked["rows"]), as_json, output)


@cli.command("step", short_help="What is predicted for one token.")
@_takes(_WHERE, click.option("--at", type=int, required=True, metavar="I", help="The token predicted: row I-2."),
        *_SHARED, *_WIRED, *_MACHINE)  # fmt: skip
def step_command(path: Path, at: int, as_json: bool, output: Path | None, **asked: Any) -> None:
    """What the drafter predicts for token I of the first sample."""
    with _session("step", path, asked) as session:
        _choose_checkpoint(session)
        _choose_sample(session)
        _say(f"tokenizer: {session.tokens_why}")
        session.check_token(at)
        _load(session)
        data = session.step_json(session.step(at, _step_ordering(session, session.sample.path)))
        data["warnings"] = _view_warnings(session)
    from eagle3_tui import text_report

    _emit(data, text_report.step, as_json, output)


@cli.command("show", short_help="Facts about checkpoint, target and sample.")
@_takes(_WHERE, *_SHARED, *_WIRED, *_MACHINE)
def show_command(path: Path, as_json: bool, output: Path | None, **asked: Any) -> None:
    """What checkpoint, target and sample say of themselves, and what their data show."""
    with _session("show", path, asked) as session:
        picked = _choose_checkpoint(session)
        listed = session.list_samples()
        try:
            if listed.paths:
                session.choose_sample(listed.paths[0])
        except DrafterError as error:
            if session.options.samples:
                raise
            _say(f"no sample: {error}")
        with _progress() as show:
            show("looking at the data")
            data = session.show_json(picked, listed)
        data["warnings"] = _view_warnings(session)
    from eagle3_tui import text_report

    _emit(data, text_report.show, as_json, output)


@cli.command("log", short_help="A session log as Markdown.")
@_takes(click.argument("log", type=_PATH), *_MACHINE)
def log_command(log: Path, as_json: bool, output: Path | None) -> None:
    """A session log as Markdown, ready to paste into an issue."""
    from drafter.export import markdown, shorten
    from drafter.log import read_log

    records = read_log(log)
    try:
        text = markdown(records)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        found = f"records that do not fit each other ({type(error).__name__}: {error})"
        raise FileError(found, expected="a log of this version", where=log) from error
    _emit(shorten(records), lambda _: text, as_json, output)


# What the headless commands share


@contextlib.contextmanager
def _session(command: str, path: Path, asked: dict[str, Any]) -> Iterator[Session]:
    """A session with its log, closed at the end; an unexpected failure is kept in the log with its traceback."""
    from drafter.log import SessionLog
    from drafter.session import Session

    options = _options(path, asked)
    session = Session(options, SessionLog(_log_path(asked), list(click.get_current_context().obj)))
    if session.log.path or session.log.problem:
        _say(session.log.problem or f"log: {session.log.path}")
    try:
        yield session
    except (DrafterError, click.ClickException):
        raise
    except Exception as error:
        session.note_failure(command, error, traceback.format_exc())
        raise
    finally:
        session.close()
        if session.log.problem and session.log.path:
            _say(session.log.problem)


_progress = progress


def _choose_checkpoint(session: Session) -> Found:
    found = session.find()
    picked = session.pick(found)
    if len(found) > 1:
        _say(f"checkpoint: {picked.path}, {session.pick_why(picked)}; 1 of {len(found)}")
    session.choose_checkpoint(picked)
    target, why = session.target
    _say(f"target: {target.path} ({why})" if target else f"target: none ({why})")
    for said in session.view_said():
        _say(f"view {said}")
    return picked


def _verifier_said(session: Session) -> str:
    """Where the verifier's choices on the current sample come from: whose head, and whether a final norm is applied."""
    from drafter.drafting.verifier import last_norm
    from drafter.sample.sample import POST

    target, _ = session.target
    if session.sample.verifier_draft is not None:
        return "as recorded"
    if target is None:
        return ""
    norm, _ = last_norm(session.sample, session.probe())
    passed = "the recorded last state has passed the target's final norm: none is applied"
    applied = "the target's final norm is applied to the recorded last state"
    return f"head of {target.path}; {passed if norm == POST else applied}"


def _view_warnings(session: Session) -> list[str]:
    """Whose rules stand in for those of a server version that nobody has read, for the report itself."""
    from drafter.serving.views import parse_view

    server = parse_view(session.options.view)
    return [f"view {server}: {server.unread}"] if server is not None and server.unread else []


def _choose_sample(session: Session) -> Sequence[Path]:
    with _progress() as show:
        show("looking for samples")
        listed = session.list_samples()
    if not listed.paths:
        raise PathError(f"no samples: {listed.why}", hint="name a sample file or a folder of them with -s")
    _say(f"samples: {len(listed.paths)} ({listed.why})")
    with _progress() as show:
        show("looking for the first sample that can be read")
        chosen = session.choose_first(listed.paths)
    if chosen.file != listed.paths[0] and chosen.path != listed.paths[0]:
        _say(f"sample: {chosen.path}, the first that can be read and fits")
    return listed.paths


def _load(session: Session) -> None:
    with _progress() as show:
        show("loading the weights")
        session.load()
    _say(f"device: {session.placement}")


def _step_ordering(session: Session, sample: Path) -> Ordering:
    """The ordering asked for, what a served view captures, the trained one, else the best on the sample itself."""
    served = session.served() is not None and session.configured()[0] is not None
    if session.asked_ordering or served or session.trained() is not None:
        ordering, why = session.first_ordering()
    else:
        with _progress() as show:
            every = session.orderings([])
            result = session.score([sample], every, lambda r: show(f"scored {r.done} of {r.planned}"), depth=1)
        best, tied = result.best()
        others = f", {len(tied)} more tied with it" if tied else ""
        ordering, why = (best, f"the best on this sample{others}") if best else session.first_ordering()
    _say(f"ordering: {','.join(map(str, ordering))} ({why})")
    return ordering


def _emit(data: Any, as_text: Callable[[Any], str], as_json: bool, output: Path | None) -> None:
    from drafter.export import write_atomically
    from drafter.json_text import json_text

    text = json_text(data) if as_json else as_text(data)
    if output is not None:
        write_atomically(output, text)
        return
    sys.stdout.write(text)


# they take the shared options from this module
from eagle3_tui import (  # noqa: E402
    accept_command,
    check_command,
    compare_command,
    fix_command,
    samples_command,
    serving_command,
    views_command,
)

accept_command.register(cli)
check_command.register(cli)
compare_command.register(cli)
fix_command.register(cli)
samples_command.register(cli)
serving_command.register(cli)
views_command.register(cli)
