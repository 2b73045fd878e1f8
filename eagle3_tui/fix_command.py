"""The command `fix`: what each server captures for a checkpoint, what it should, and a new folder that makes it so.

Decides nothing: the rules are `drafter.serving`'s, the folder is `drafter.fix`'s. The group is given by `cli`, which
calls `register`; what all commands share is taken from there when that happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drafter.errors import WiringError
from drafter.safe import safe

if TYPE_CHECKING:
    from drafter.fix import Plan
    from drafter.session import Session
    from drafter.wiring import Ordering

Json = dict[str, Any]
NAME = "fix"
# shared options that have no say here; they are taken, as by every command, but not shown
_WITHOUT_EFFECT = frozenset({"tokenizer", "view", "depth", "mask", "rows", "device", "dtype"})
_OWN = (
    click.option("--to", "folder", type=click.Path(path_type=Path), metavar="FOLDER",
                 help="Where the new checkpoint is written: a folder that does not exist yet, or an empty one."),
    click.option("--for", "servers", multiple=True, metavar="SERVER",
                 help="A server that is to read it, e.g. sglang@0.5.12.post1 or vllm@0.33.0; repeatable.  [default: "
                 "sglang and vllm, the newest versions known]"),
    click.option("--family", metavar="NAME",
                 help="The target's model_type, e.g. qwen3, kimi_k25, gpt_oss.  [default: the target's config, else "
                 "the verifier that the checkpoint names]"),
    click.option("--layers", type=click.IntRange(min=1, max=100_000), metavar="N",
                 help="How many layers the target has.  [default: the target's config]"),
    click.option("--dry-run", is_flag=True, help="Write nothing, only say what would be written."),
)  # fmt: skip


def register(group: click.Group) -> None:
    """Add the command to `group`."""
    from eagle3_tui import cli

    shared = cli._takes(cli._WHERE, *_OWN, *cli._SHARED, *cli._WIRED, *cli._MACHINE)
    command = group.command(NAME, short_help="A copy that serves a wanted ordering.")(shared(fix_command))
    for option in command.params:
        if isinstance(option, click.Option) and (
            option.name in _WITHOUT_EFFECT or str(option.name).startswith("switch_")
        ):
            option.hidden = True


def fix_command(
    path: Path,
    folder: Path | None,
    servers: Sequence[str],
    family: str | None,
    layers: int | None,
    dry_run: bool,
    as_json: bool,
    output: Path | None,
    **asked: Any,
) -> None:
    """Write a copy of the checkpoint that serves the ordering which --ordering names, or the trained one.

    The depths of the slots come from --slots or from a sample. Layer ids are written in each server's own numbering;
    where the ordering does not ascend in depth, the column blocks of fc are moved, as no server permutes.
    """
    if folder is None and not dry_run:
        raise click.UsageError("Missing option '--to', or '--dry-run'", click.get_current_context())
    from drafter import fix
    from drafter.fix.folder import check_place
    from drafter.log import Logged
    from drafter.serving.server import Server
    from eagle3_tui import cli

    named = [Server.parse(text) for text in servers]
    with cli._session(NAME, path, asked) as session:
        cli._choose_checkpoint(session)
        target, _ = session.target
        layers = layers or (target.num_layers if target else None)
        depths = _slot_depths(session, layers)
        ordering = _ordering(session, depths)
        inputs = {"ordering": list(ordering), "to": None if folder is None else str(folder), "dry_run": dry_run}
        with Logged(session.log, NAME, inputs) as logged:
            made = fix.plan(session.checkpoint, ordering, depths, named, session.family(family), layers)
            data = {"checkpoint": str(session.checkpoint.path), **fix.plan_json(made), "folder": None}
            if folder is not None:
                check_place(session.checkpoint, folder, session.options.path)
                data["folder"] = None if dry_run else _write(made, folder)
            logged.result = data
    cli._emit(data, as_text, as_json, output)


def _write(made: Plan, folder: Path) -> str:
    from drafter import fix
    from eagle3_tui import cli

    command = list(click.get_current_context().obj)
    with cli._progress() as show:
        return str(fix.write(made, folder, command, on_progress=lambda done, total: show(f"{done} of {total} bytes")))


def _slot_depths(session: Session, layers: int | None) -> list[int | None]:
    """The depth of each slot, as --slots says or as a sample's claims do; None where nobody says."""
    from drafter.sample.claims import parse_slots

    listed = session.list_samples()
    if listed.paths:
        claims = [slot.claim for slot in session.choose_sample(listed.paths[0]).slots]
    elif session.options.slots is not None:
        claims = list(parse_slots(session.options.slots))
    else:
        found = f"no samples ({listed.why}) and no --slots"
        raise WiringError(found, expected="what the slots are", hint="name them, e.g. --slots embed,3,31,last")
    depths: list[int | None] = []
    for claim in claims:
        last = layers if claim is not None and claim.is_last else None
        depths.append(claim.depth if claim is not None and claim.depth is not None else last)
    return depths


def _ordering(session: Session, depths: Sequence[int | None]) -> Ordering:
    from drafter.wiring import name, parse_ordering

    asked = list(dict.fromkeys(session.options.orderings))
    if len(asked) > 1 or asked == ["all"]:
        raise WiringError(f"--ordering {', '.join(asked)}", expected="one ordering")
    if asked:
        return parse_ordering(asked[0])
    trained = session.trained() if session.has_sample else None
    if trained is None:
        raise WiringError("no ordering given, and the trained one is not known", hint="name it with --ordering")
    from eagle3_tui import cli

    cli._say(f"ordering: {name(trained)} (trained, by the training's config)")
    return trained


# --- as text


def as_text(data: Json) -> str:
    """The plan for people: a paragraph for each server, then what happens to the weights."""
    slots, depths = _many(data["ordering"]), _many(data["depths"])
    target = data["target"]
    layers = "? layers" if target["layers"] is None else f"{target['layers']} layers"
    lines = [
        f"checkpoint {safe(data['checkpoint'])}",
        f"wanted     slots {slots} = depths {depths}",
        f"target     {safe(target['family'] or 'unknown')}, {layers} (rule: {target['rule']})",
    ]
    for server in data["servers"]:
        lines += ["", *_server(server)]
    lines += ["", *_weights(data)]
    lines += [f"note: {safe(note)}" for note in data["notes"]]
    lines.append(f"written: {safe(data['folder'])}" if data["folder"] else "nothing written")
    return "\n".join(lines) + "\n"


def _server(server: Json) -> list[str]:
    now = server["now"]
    captures = "unknown depths" if now["depths"] is None else f"depths {_many(now['depths']) or 'none'}"
    source = "by default" if now["ids"] is None else f"from {safe(now['source'])} [{_many(now['ids'])}]"
    verdict = "" if now["depths"] != server["wanted"] else ": right"
    lines = [
        safe(server["server"]),
        f"  now     {captures}, {source}{verdict}",
        *(f"          {safe(note)}" for note in (now["failure"], *now["notes"]) if note),
        f"  wanted  depths {_many(server['wanted'])}",
    ]
    lines += [f"  write   {key}: {value}" for key, value in server["write"].items()]
    return [*lines, *(f"          {safe(note)}" for note in server["notes"])]


def _weights(data: Json) -> list[str]:
    lines = ["fc: the ordering ascends in depth, the column blocks stay where they are"]
    if data["fc_permuted"]:
        lines = [
            f"fc: column blocks {_many(data['fc_blocks'])} become 0..{len(data['fc_blocks']) - 1}: ascending depth"
        ]
    lines += [f"  {safe(name)}: {change}" for name, change in data["tensors"].items()]
    return lines


def _many(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
