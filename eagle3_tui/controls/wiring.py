"""The Wiring view's part of the controller: what the current ordering scores with every single switch changed.

Each try is a job of its own, behind everything else unless its view is on screen: what another view needs waits for
one try at most. A value that is in force needs no try of its own. What a switch does, and how it looks, is not known
here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError
from drafter.wiring import SWITCHES, Ordering
from eagle3_tui.controls.absent import absent_switches

if TYPE_CHECKING:
    from drafter.scoring.counts import OrderingCounts
    from eagle3_tui.controller import Controller
    from eagle3_tui.worker import Job

GROUP = "try"  # of its jobs
TRAINED, NOW = ("", "trained"), ("", "now")  # the wiring as trained, and as it is
_PRIORITY = -5  # behind a sweep, before a survey
_BASES = ("10000", "500000", "1000000")  # RoPE bases in common use
Pair = tuple[str, str]


@dataclass
class Tries:
    """Counts, or the refusal, of one (switch, value) each; `TRAINED` and `NOW` are whole wirings. `absent` are the
    switches that do not apply, with the reason. `stopped`: the user wants no more of them for now."""

    found: dict[Pair, OrderingCounts | str] = field(default_factory=dict)
    planned: int = 0
    missing: int = 0
    absent: dict[str, str] = field(default_factory=dict)
    stopped: bool = False

    @property
    def said(self) -> str:
        """How far they are."""
        return f"{self.planned - self.missing} of {self.planned}" if self.planned else ""

    def forget(self) -> None:
        """Drop what belongs to the ordering and the wiring."""
        self.found, self.planned, self.missing, self.stopped = {}, 0, 0, False


class WiringControl:
    """Submits jobs through the controller and puts their results into `state.tries`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @property
    def _tries(self) -> Tries:
        return self._controller.state.tries

    def look(self) -> None:
        """Another drafter: which switches apply to it."""
        checkpoint = self._controller.state.checkpoint
        self._tries.absent = absent_switches(checkpoint) if checkpoint is not None else {}

    def values(self, switch: str) -> tuple[str, ...]:
        """The values to try; for the RoPE base those in use and the usual ones."""
        state = self._controller.state
        used = [switches.get(switch, "") for switches in (state.trained_switches, state.switches)]
        return SWITCHES[switch] or tuple(dict.fromkeys(base for base in (*used, *_BASES) if base))

    def pairs(self) -> list[Pair]:
        """Every value of every switch that applies, in the order in which they are shown."""
        return [(s, value) for s in SWITCHES if s not in self._tries.absent for value in self.values(s)]

    # ------------------------------------------------------------------ scoring

    def start(self) -> None:
        """Score what is missing, unless the user has stopped it."""
        if not self._tries.stopped:
            self._next()

    def again(self) -> None:
        """Go on where it was stopped; score everything anew where all is there."""
        tries = self._tries
        if not self._missing():
            tries.forget()
        tries.stopped = False
        self._next()
        self._controller.tell("tried")

    def stop(self, groups: set[str]) -> None:
        """The user stopped jobs of these groups."""
        if GROUP in groups:
            self._tries.stopped = True
            self._controller.tell("tried")

    def _missing(self) -> list[Pair]:
        tries, wanted = self._tries, [NOW, TRAINED, *self.pairs()]
        missing = [pair for pair in wanted if pair not in tries.found]
        tries.planned, tries.missing = len(wanted), len(missing)
        return missing

    def _next(self) -> None:
        controller, state = self._controller, self._controller.state
        ordering = state.ordering
        if not state.ready or ordering is None or state.sample is None or controller.engine.expects(GROUP):
            return
        missing = self._missing()
        if not missing:
            return
        pair = missing[0]

        def done(found: Any) -> None:
            self._put(pair, found)
            self._next()
            controller.tell("tried")

        def failed(error: Exception) -> None:
            if not isinstance(error, DrafterError):
                state.tries.stopped = True  # a fault of ours: every further try would say it again
                controller.explain("trying switches", error)
                return controller.tell("tried")
            done(error.found)

        controller.submit(
            "trying switches", lambda job: self._try(ordering, *pair, job), GROUP, _PRIORITY, done, failed
        )

    def _put(self, pair: Pair, found: Any) -> None:
        tries, state = self._tries, self._controller.state
        tries.found[pair] = found
        if pair == NOW:
            tries.found |= dict.fromkeys(state.switches.items(), found)
            if state.switches == state.trained_switches:
                tries.found[TRAINED] = found

    def _try(self, ordering: Ordering, switch: str, value: str, job: Job) -> OrderingCounts:
        session = self._controller.session
        if switch:
            return session.try_switch(ordering, switch, value, poll=job.checkpoint)
        wiring = session.trained_wiring if (switch, value) == TRAINED else session.wiring
        return session.score_wiring(ordering, wiring, poll=job.checkpoint)
