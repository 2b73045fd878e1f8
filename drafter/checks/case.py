"""What is open, as the checks see it: each part may be missing, and what is costly is computed once, when first asked.

The session makes it; checks only read it. Knows no check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from drafter.checks.files import Files
from drafter.errors import CheckpointError, DrafterError, WiringError
from drafter.serving.families import Family, family_of
from drafter.serving.flags import Asked, flags_text, parse_flags
from drafter.serving.server import Server

if TYPE_CHECKING:
    from drafter.checkpoint.checkpoint import Checkpoint
    from drafter.checkpoint.target import TargetFolder
    from drafter.checkpoint.vocab_map import VocabMap
    from drafter.files.find import Found
    from drafter.model.drafter import Eagle3Drafter
    from drafter.sample.sample import Sample
    from drafter.sample.text.tokens import TokenText

T = TypeVar("T")
MAX_SAMPLES = 64  # that are opened; a folder of thousands tells no more about a fault


def no_poll() -> None:
    """For callers that cannot be cancelled."""


def no_tell(text: str) -> None:
    """For callers that do not show how far a check is."""


class Case:
    """`checkpoint` is None where it cannot be opened, and `refusal` says why; `files` is what lies there all the same.

    `poll` is called between blocks of work and may raise Cancelled. `asked` are server flags, `server` the server that
    they are for. `load` gives the drafter that is loaded already, where somebody has one. `group_of` names the group of
    a sample ("train", "held_out", ...), "" where it has none. `unread` are samples that
    cannot be opened, with the reason. `served` is the accept length that a server shows, with the bonus token;
    `rates`, where its log tells them, the shares of rounds whose first, first two, ... drafts are accepted.
    `switches` are set on the wiring that training's config says: what is checked is then that function.
    """

    def __init__(
        self,
        found: Found,
        checkpoint: Checkpoint | None = None,
        target: TargetFolder | None = None,
        tokens: TokenText | None = None,
        samples: Sequence[Sample] = (),
        poll: Callable[[], None] = no_poll,
        *,
        refusal: DrafterError | None = None,
        target_why: str = "",
        samples_why: str = "",
        tokens_why: str = "",
        asked: Asked | None = None,
        server: Server | None = None,
        family: Family | None = None,
        target_layers: int | None = None,
        load: Callable[[], Eagle3Drafter] | None = None,
        group_of: Callable[[Path], str] = lambda path: "",
        depth: int = 5,
        mask: str = "next",
        unread: Mapping[Path, str] | None = None,
        served: float | None = None,
        rates: Sequence[float] = (),
        switches: Mapping[str, str] | None = None,
    ) -> None:
        self.found, self.opened, self.target, self.tokens = found, checkpoint, target, tokens
        self.samples, self.poll, self.refusal = tuple(samples), poll, refusal
        self.target_why, self.samples_why, self.tokens_why = target_why, samples_why, tokens_why
        self.asked, self.server, self.load, self.group_of = asked, server, load, group_of
        self.depth, self.mask, self.unread = depth, mask, dict(unread or {})
        self.tell: Callable[[str], None] = no_tell  # is told what a long check is at
        self.served, self.rates, self.switches = served, tuple(rates), dict(switches or {})
        self._family, self._layers = family, target_layers
        self._kept: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made when first asked for under `name`; an error is raised again each time."""
        if name not in self._kept:
            try:
                self._kept[name] = make()
            except DrafterError as error:
                self._kept[name] = _Failed(error)
        kept = self._kept[name]
        if isinstance(kept, _Failed):
            raise kept.error
        found: T = kept
        return found

    @property
    def checkpoint(self) -> Checkpoint:
        if self.opened is None:
            raise self.refusal or CheckpointError("no checkpoint opened", where=self.found.path)
        return self.opened

    @property
    def files(self) -> Files:
        """What lies in the checkpoint's folder, as written."""
        return self.once("files", lambda: Files(self.found))

    def vocab(self) -> VocabMap:
        """The vocab map in the reading that the data supports. Raises CheckpointError."""
        from drafter.model.sources import load_vocab_map

        return self.once("vocab", lambda: load_vocab_map(self.checkpoint))

    @property
    def family(self) -> Family:
        if self._family is not None:
            return self._family
        return family_of(self.target.model_type) if self.target is not None else family_of()

    @property
    def target_layers(self) -> int | None:
        if self._layers is not None:
            return self._layers
        return self.target.num_layers if self.target is not None else None

    def target_table(self) -> dict[str, Any]:
        """The target's config.json, the part for text on top; empty without a target."""
        from drafter.files.json_file import read_json

        def read() -> dict[str, Any]:
            if self.target is None:
                return {}
            table = read_json(self.target.path / "config.json")
            text = table.get("text_config")
            return {**table, **text} if isinstance(text, dict) else table

        return self.once("target table", read)


class _Failed:
    def __init__(self, error: DrafterError) -> None:
        self.error = error


def asked_of(flags: str | Asked | None, server: str | None) -> tuple[Asked | None, Server | None]:
    """What a launch line (or flags that a log told) asks for, and the server that it is for: as named, else the newest
    of the flags' engine.

    Raises WiringError for text that is neither.
    """
    asked = parse_flags(flags_text(flags)) if isinstance(flags, str) else flags
    if asked is not None and not asked.speculates:
        hint = "give the launch line, e.g. --speculative-algorithm EAGLE3 --speculative-num-steps 3"
        raise WiringError("flags that ask for no drafting", expected="speculative flags", hint=hint)
    name = server or (asked.engine if asked is not None else "")
    return asked, Server.parse(name) if name else None


def open_samples(
    paths: Sequence[Path],
    parts: Callable[[Path], list[Path]],
    opens: Callable[[Path], Sample] | None,
    poll: Callable[[], None],
) -> tuple[list[Sample], dict[Path, str]]:
    """The first samples in the files `paths`, their states unread, and why others cannot be opened."""
    samples: list[Sample] = []
    unread: dict[Path, str] = {}
    for path in paths:
        if opens is None or len(samples) + len(unread) >= MAX_SAMPLES:
            break
        poll()
        try:
            for name in parts(path)[: MAX_SAMPLES - len(samples)]:
                samples.append(opens(name))
        except DrafterError as error:
            unread[path] = str(error)
    return samples, unread
