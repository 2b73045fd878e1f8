"""How a drafter is wired: which recorded slots feed `fc`, in which order, and the switches of the forward.

A `Wiring` is a value; the forward takes one and nothing else decides. The ids of a config are resolved to slots here,
in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from drafter.checkpoint.config import DrafterConfig
from drafter.errors import WiringError
from drafter.sample.sample import Slot

Ordering = tuple[int, ...]
MAX_ORDERINGS = 5040
MAX_DIGITS = 6


@dataclass(frozen=True)
class Wiring:
    """The switches of one function of the drafter. `trained` takes them from the config of the checkpoint.

    norm_before_residual: the residual is the normed hidden instead of the raw `fc` output.
    norm_output: the next draft step is fed the state after the final norm instead of before it.
    """

    view: str
    norm_before_residual: bool
    norm_output: bool

    @classmethod
    def trained(cls, config: DrafterConfig) -> Wiring:
        return cls("trained", config.norm_before_residual, config.norm_output)


def view_wiring(view: str, config: DrafterConfig) -> Wiring:
    """The wiring that `--view` names. Raises WiringError for a view that this version does not compute."""
    if view != "trained":
        raise WiringError(f"the view {view!r}", expected="'trained', the only view that this version computes")
    return Wiring.trained(config)


def all_orderings(slots: int, inputs: int) -> list[Ordering]:
    """Every ordered choice of `inputs` out of `slots`. Raises WiringError when they are too many to be shown."""
    if inputs > slots:
        raise WiringError(f"a sample with {slots} recorded states", expected=f"at least the {inputs} that fc takes")
    count = 1
    for i in range(inputs):
        count *= slots - i
    if count > MAX_ORDERINGS:
        raise WiringError(
            f"{count} orderings of {inputs} out of {slots}",
            expected=f"at most {MAX_ORDERINGS}",
            hint="name the ones to score with --ordering",
        )
    return list(permutations(range(slots), inputs))


def parse_ordering(text: str) -> Ordering:
    """`0,1,2` as an ordering. Raises WiringError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() and len(part) <= MAX_DIGITS for part in parts):
        raise WiringError(f"the ordering {text!r}", expected="slot numbers like 0,1,2, or 'all'")
    return tuple(int(part) for part in parts)


def check_ordering(ordering: Ordering, slots: int, inputs: int) -> Ordering:
    """`ordering` if it can feed `fc`. Raises WiringError where its length or a slot does not fit."""
    if len(ordering) != inputs:
        raise WiringError(f"an ordering of {len(ordering)} slots {list(ordering)}", expected=f"{inputs}, as fc takes")
    outside = [slot for slot in ordering if not 0 <= slot < slots]
    if outside:
        raise WiringError(f"slot {outside[0]} in {list(ordering)}", expected=f"slots 0..{slots - 1} of the sample")
    return ordering


def name(ordering: Ordering) -> str:
    return ",".join(map(str, ordering))


def configured_ordering(
    depths: Sequence[int] | None, slots: Sequence[Slot], inputs: int
) -> tuple[Ordering | None, str]:
    """The slots that the config's depths select, or None with the reason why they cannot be told."""
    if depths is None:
        return None, "the config names no layer ids"
    claimed = {slot.claim.depth: slot.index for slot in reversed(slots) if slot.claim and slot.claim.depth is not None}
    if not claimed:
        return None, "the depths of the recorded slots are unknown: name them with --slots"
    absent = [depth for depth in depths if depth not in claimed]
    if absent:
        return None, f"the config selects depths {list(depths)}; depth {absent[0]} is not among the recorded slots"
    if len(depths) != inputs:
        return None, f"the config names {len(depths)} layers, fc takes {inputs}"
    return tuple(claimed[depth] for depth in depths), f"the config's layer ids select depths {list(depths)}"
