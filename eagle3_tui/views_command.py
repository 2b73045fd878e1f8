"""The command `views`: the drafter as trained against every server version that computes it otherwise, and the cause.

Decides nothing: the work is the Session's, the text `views_report`'s. The group is given by `cli`, which calls
`register`; what all commands share is taken from there when that happens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

NAME = "views"
# shared options that have no say here; they are taken, as by every command, but not shown
_WITHOUT_EFFECT = frozenset({"tokenizer"})
_OWN = (
    click.option("--view", "names", multiple=True, metavar="NAME",
                 help="A served view, e.g. sglang@0.5.12 or vllm; repeatable.  [default: the versions between which "
                 "something changes, and the newest known]"),
    click.option("--family", metavar="NAME",
                 help="The target's model_type, e.g. qwen3, kimi_k25, gpt_oss.  [default: the target's config, else "
                 "the verifier that the checkpoint names]"),
    click.option("--layers", type=click.IntRange(min=1, max=100_000), metavar="N",
                 help="How many layers the target has.  [default: the target's config]"),
)  # fmt: skip


def register(group: click.Group) -> None:
    """Add the command to `group`."""
    from eagle3_tui import cli

    shared = cli._takes(cli._WHERE, *_OWN, *cli._SHARED, *cli._WIRED, *cli._MACHINE)
    command = group.command(NAME, short_help="As trained against as served, and what costs.")(shared(views_command))
    # the shared --view names one, and switches are what the views themselves set
    command.params = [p for p in command.params if p.name != "view" and not str(p.name).startswith("switch_")]
    for option in command.params:
        if isinstance(option, click.Option) and option.name in _WITHOUT_EFFECT:
            option.hidden = True


def views_command(path: Path, names: tuple[str, ...], as_json: bool, output: Path | None, **asked: Any) -> None:
    """What every server version makes of the checkpoint, scored against what was trained.

    Each difference (layer ids, residual, embedding, RoPE, norms, positions ...) is scored alone and one after another;
    the first that clearly costs is named as the cause, with the key that cures it where one does.
    """
    from drafter.checkpoint.facts import checkpoint_json
    from drafter.views import views_json
    from drafter.wiring import SWITCHES
    from eagle3_tui import cli, views_report

    asked |= {"view": "trained", **{f"switch_{name}": None for name in SWITCHES}}
    with cli._session(NAME, path, asked) as session:
        cli._choose_checkpoint(session)
        paths = cli._choose_sample(session)
        cli._load(session)
        with cli._progress() as show:
            result = session.views(paths, names, lambda done, planned: show(f"scored {done} of {planned}"))
        data = {"checkpoint": checkpoint_json(session.checkpoint), **views_json(result)}
    for skipped in data["skipped"]:
        cli._say(f"skipped {skipped['path']}: {skipped['error']}")
    cli._emit(data, views_report.views, as_json, output)
