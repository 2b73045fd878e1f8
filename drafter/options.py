"""What a user asks a session for: the options of the command line, checked as far as that needs no file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drafter.errors import WiringError
from drafter.sample.claims import parse_slots
from drafter.wiring import Wiring, parse_ordering


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
    device: str = "auto"
    dtype: str = "auto"
    switches: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise WiringError(f"--depth {self.depth}", expected="at least 1 draft step")
        if self.rows is not None and self.rows < 1:
            raise WiringError(f"--rows {self.rows}", expected="at least 1 row")
        if self.slots is not None:
            parse_slots(self.slots)
        for ordering in self.orderings:
            if ordering != "all":
                parse_ordering(ordering)
        for name, value in self.switches:
            Wiring("trained", False, False).switched(name, value)
