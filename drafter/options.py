"""What a user asks a session for: the options of the command line, checked as far as that needs no file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drafter.errors import WiringError
from drafter.sample.claims import parse_slots
from drafter.sample.keys import parse_keys
from drafter.sample.text.supervised import parse_supervised
from drafter.scoring.groups import parse_groups
from drafter.scoring.tallies import MASK_MODES
from drafter.serving.views import parse_view
from drafter.wiring import Wiring, parse_ordering

MAX_DEPTH = 256  # draft steps; servers take 16 at most


@dataclass(frozen=True)
class Options:
    """The fields are the options of the command line. Raises WiringError for what cannot be meant."""

    path: Path
    samples: tuple[Path, ...] = ()
    target: Path | None = None
    tokenizer: Path | None = None
    slots: str | None = None
    orderings: tuple[str, ...] = ()
    view: str = "trained"
    depth: int = 5
    mask: str = "next"
    rows: int | None = None
    supervised: str = "recorded"
    device: str = "auto"
    dtype: str = "auto"
    switches: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = ()
    keys: str | None = None
    family: str | None = None  # the target's model_type, where its config is not here
    layers: int | None = None  # how many layers the target has

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= MAX_DEPTH:
            raise WiringError(f"--depth {self.depth}", expected=f"1 to {MAX_DEPTH} draft steps")
        if self.rows is not None and self.rows < 1:
            raise WiringError(f"--rows {self.rows}", expected="at least 1 row")
        if self.mask not in MASK_MODES:
            raise WiringError(f"--mask {self.mask!r}", expected=f"one of {', '.join(MASK_MODES)}")
        parse_view(self.view)
        parse_supervised(self.supervised)
        if self.slots is not None:
            parse_slots(self.slots)
        if self.keys is not None:
            parse_keys(self.keys)
        parse_groups(self.groups)
        for ordering in self.orderings:
            if ordering != "all":
                parse_ordering(ordering)
        for name, value in self.switches:
            Wiring("trained", False, False).switched(name, value)
