"""What is open, the options, the log, and the way out: what every other part of the session stands on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.errors import FileError, PathError, SampleError
from drafter.files.find import Found
from drafter.locate_tokenizer import Located
from drafter.log import Logged, SessionLog
from drafter.options import Options as Options
from drafter.sample.text.tokens import TokenText, piece
from drafter.serving.views import (
    ServedView,
)
from drafter.wiring import (
    Ordering,
)

if TYPE_CHECKING:
    from torch import Tensor

    from drafter.checkpoint.target import TargetFolder
    from drafter.drafting.context import SampleRun
    from drafter.model.device import Placement
    from drafter.model.drafter import Eagle3Drafter
    from drafter.sample.probes.probe import SlotProbe
    from drafter.sample.sample import Sample

Poll = Callable[[], None]


def no_poll() -> None:
    """For callers that cannot be cancelled."""


@dataclass
class Open:
    """What is open now; choosing another checkpoint or sample drops what depended on the old one."""

    checkpoint: Checkpoint | None = None
    target: TargetFolder | None = None
    target_why: str = ""
    drafter: Eagle3Drafter | None = None
    placement: Placement | None = None
    sample: Sample | None = None
    run: SampleRun | None = None
    probes: list[SlotProbe] = field(default_factory=list)
    probed: tuple[Sample, list[SlotProbe]] | None = None  # of the last sample that was probed, current or not
    drafted: dict[Ordering, Tensor] = field(default_factory=dict)  # step-0 draft ids [R] of orderings scored
    tokens: TokenText | None = None
    tokens_at: Located | None = None
    tokens_problem: str = ""
    served: dict[str, ServedView] = field(default_factory=dict)  # by the name that was asked for


class Core:
    def __init__(self, options: Options, log: SessionLog | None = None) -> None:
        self.options = options
        self.log = log if log is not None else SessionLog(None, [])
        self.last_found: list[Found] = []
        self._now = Open()
        self._switches = dict(options.switches)

    @property
    def checkpoint(self) -> Checkpoint:
        if self._now.checkpoint is None:
            raise PathError("no checkpoint chosen", where=self.options.path)
        return self._now.checkpoint

    @property
    def target(self) -> tuple[TargetFolder | None, str]:
        return self._now.target, self._now.target_why

    @property
    def sample(self) -> Sample:
        if self._now.sample is None:
            raise SampleError("no sample chosen", hint="name one with --samples")
        return self._now.sample

    def counted(self) -> list[bool]:
        """Whether each row of the current sample counts at step 0 in the mask mode of the options."""
        from drafter.scoring.counts import row_mask

        counts: list[bool] = row_mask(self.sample.supervised, self.options.mask, self.sample.length - 1).tolist()
        return counts

    def set_mask(self, mode: str) -> None:
        """Which rows count from now on. Raises WiringError for a mode that does not exist."""
        with Logged(self.log, "set_mask", {"mask": mode}):
            self.options = replace(self.options, mask=mode)

    @property
    def has_sample(self) -> bool:
        return self._now.sample is not None

    def piece(self, token: int) -> str:
        return piece(self._now.tokens, token)

    @property
    def tokens(self) -> TokenText | None:
        return self._now.tokens

    @property
    def tokens_why(self) -> str:
        at = self._now.tokens_at
        if self._now.tokens_problem:
            return f"none: {self._now.tokens_problem}"
        return f"{at.path} ({at.why})" if at else "no tokenizer found: ids are shown (--tokenizer)"

    @property
    def placement(self) -> Placement | None:
        return self._now.placement

    @staticmethod
    def _placement_json(placement: Placement) -> dict[str, str]:
        return {"device": str(placement.device), "dtype": placement.dtype_name, "reason": placement.reason}

    def export(self, folder: Path) -> list[Path]:
        """Write the session as Markdown and JSON into `folder`, for a bug report; returns the two paths."""
        from drafter.export import export

        try:
            return export(self.log.records, folder)
        except FileError:
            # a state folder that cannot be written must not cost the report
            return export(self.log.records, Path(tempfile.gettempdir()) / "eagle3-tui")

    def note_failure(self, name: str, error: Exception, trace: str) -> None:
        """Keep an unexpected failure in the log, with its traceback, for the bug report."""
        self.log.write({"record": "error", "call": name, "inputs": {}, "error": repr(error), "trace": trace})

    def close(self) -> None:
        self.log.close()
