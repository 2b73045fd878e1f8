"""What a word on the command line was probably meant to be: another command, or another option.

Compares names alone; it knows no file and runs no command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import click

CLOSE = 0.6  # of 1: one or two letters of a short word swapped, left out or wrong
_SPOKEN = {"help": "--help", "version": "--version"}  # commands of other tools, options of this one


def command_meant(word: str, commands: Iterable[str]) -> str | None:
    """The command, or the option that stands for one, that `word` is closest to."""
    if word.lower() in _SPOKEN:
        return _SPOKEN[word.lower()]
    found = get_close_matches(word.lower(), list(commands), n=1, cutoff=CLOSE)
    return found[0] if found else None


def no_such_option(error: click.NoSuchOption, commands: Mapping[str, click.Command]) -> str:
    """One sentence: an option of this command with a name like it, else the other commands that have this one."""
    said = f"No such option {error.option_name!r}"
    here = error.ctx.command if error.ctx is not None else None
    bare = {name.lstrip("-"): name for name in _options(here)} if here is not None else {}
    close = get_close_matches(error.option_name.lstrip("-"), list(bare), n=1, cutoff=CLOSE)
    elsewhere = [name or "PATH" for name, command in commands.items() if error.option_name in _options(command)]
    if elsewhere:
        return f"{said} here: it belongs to {', '.join(elsewhere)}"
    return f"{said}: did you mean {bare[close[0]]}?" if close else said


def _options(command: click.Command) -> list[str]:
    """The options that a command's help shows."""
    shown = [o for o in command.params if isinstance(o, click.Option) and not o.hidden]
    return [name for option in shown for name in option.opts if name.startswith("--")]
