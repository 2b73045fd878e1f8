"""The Doctor view's part of the controller: its jobs, and what they found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eagle3_tui.controller import Controller


@dataclass
class DoctorState:
    """What the Doctor view shows; everything is empty until it is known."""


class DoctorControl:
    """Submits jobs through the controller and puts their results into `state.doctor`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
