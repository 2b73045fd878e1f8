"""A served view: the function that one server's version makes of a checkpoint, and each way in which it differs from
what was trained (checkpoints.md 4.7, 4.10).

A view is a `Wiring` and what the server captures. Every rule stands with its server, in `views_sglang` and
`views_vllm`; here they are put together. Reads configs and headers only, and knows no slots until `ordering_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from drafter.errors import WiringError
from drafter.sample.sample import Slot
from drafter.serving import views_sglang, views_vllm
from drafter.serving.layer_ids import (
    SGLANG_GRAPH_FIXED,
    Capture,
    captured,
    ids_to_write,
    set_key,
    sglang_default,
)
from drafter.serving.producers import Depths
from drafter.serving.server import READ, SGLANG, VLLM, Server
from drafter.serving.view_case import CANNOT, ORDERING, Case, Difference
from drafter.wiring import Ordering, Wiring, configured_ordering, name

TRAINED = "trained"
SERVERS = (SGLANG, VLLM)
# the versions between which something changes, oldest first, and the newest that were read
WORTH = (
    *(f"{SGLANG}@{version}" for version in ("0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13")),
    f"{SGLANG}@{READ[SGLANG][1]}",
    f"{VLLM}@{READ[VLLM][1]}",
)
_RULES: dict[str, Sequence[Callable[[Case], Difference | None]]] = {
    SGLANG: views_sglang.RULES,
    VLLM: views_vllm.RULES,
}
_REFUSALS: dict[str, Sequence[Callable[[Case], str]]] = {SGLANG: views_sglang.REFUSALS, VLLM: views_vllm.REFUSALS}
_NOTES: dict[str, Sequence[Callable[[Case], str]]] = {SGLANG: views_sglang.NOTES, VLLM: views_vllm.NOTES}


@dataclass(frozen=True)
class ServedView:
    """What `server` computes of a checkpoint.

    `wiring` is the trained one with every difference in it that can be computed. `capture` says which depths are fed,
    `graph_depths` which ones instead in steps replayed from CUDA graphs, where that differs. `refused` says why this
    version would not load the checkpoint or crash; the wiring then stands for nothing. `notes` are assumptions.
    """

    server: Server
    wiring: Wiring
    capture: Capture
    differences: tuple[Difference, ...]
    refused: str = ""
    notes: tuple[str, ...] = ()
    graph_depths: Depths | None = None
    use_aux: bool = field(default=True, repr=False)

    @property
    def name(self) -> str:
        return str(self.server)

    def same_function(self, other: ServedView) -> bool:
        """Whether both compute the same of the same states; their names and assumptions may differ."""
        if self.server.name != other.server.name or self.refused != other.refused:
            return False
        return bool(self.refused) or (
            replace(self.wiring, view="") == replace(other.wiring, view="")
            and self.capture.depths == other.capture.depths
            and self.graph_depths == other.graph_depths
        )


def parse_view(text: str) -> Server | None:
    """The server of a view, None for `trained`. Raises WiringError for what is no view."""
    if text == TRAINED:
        return None
    if text.strip().lower().partition("@")[0] not in SERVERS:
        raise WiringError(
            f"the view {text!r:.60}",
            expected=", ".join([TRAINED, *(f"{name}@{READ[name][1]}" for name in SERVERS)]) + ", or another version",
        )
    return Server.parse(text)


def served_view(case: Case) -> ServedView:
    """The view of the case's server. Raises CheckpointError for a config that holds no list of ids where one stands."""
    server = case.server
    capture = captured(case.table, server, case.family, case.num_layers)
    found = [difference for rule in _RULES[server.name] if (difference := rule(case)) is not None]
    changes: dict[str, Any] = {name: value for difference in found for name, value in difference.change}
    reasons = [reason for refusal in _REFUSALS[server.name] if (reason := refusal(case))]
    notes = [note for about in _NOTES[server.name] if (note := about(case))]
    if case.use_aux:
        reasons += [reason for reason in (capture.failure, _count(case, capture)) if reason]
        notes = [*capture.notes, *notes]
    else:
        notes = [note for note in (server.unread, *notes) if note]
    return ServedView(
        server,
        replace(case.trained, view=str(server), **changes),
        capture,
        tuple(found),
        "; ".join(dict.fromkeys(reasons)),
        tuple(dict.fromkeys(notes)),
        _graph_depths(case, capture),
        case.use_aux,
    )


def _count(case: Case, capture: Capture) -> str:
    taken = case.checkpoint.fc_inputs
    if capture.depths is None or len(capture.depths) == taken or capture.failure:
        return ""
    return f"fc takes {taken} states, {len(capture.depths)} are captured"


def _graph_depths(case: Case, capture: Capture) -> Depths | None:
    """5.2: up to 0.5.10 steps replayed from CUDA graphs capture the default depths, whatever the config says."""
    old = case.server.name == SGLANG and case.server.before(SGLANG_GRAPH_FIXED)
    if not old or case.num_layers is None or capture.ids is None or not case.use_aux:
        return None
    default = sglang_default(case.family, case.num_layers)
    return None if default == capture.depths else default


def ordering_of(
    view: ServedView, slots: Sequence[Slot], inputs: int, num_layers: int | None
) -> tuple[Ordering | None, str]:
    """The recorded slots that the view captures, in its order, or None with the reason why they cannot be told."""
    if view.refused:
        return None, f"{view.name} would not load this: {view.refused}"
    if not view.use_aux:
        return _last_after_norm(view, slots)
    if view.capture.depths is None:
        return None, f"{view.name}: {view.capture.notes[-1] if view.capture.notes else 'what it captures is not known'}"
    return configured_ordering(view.capture.depths, slots, inputs, view.name, num_layers)


def graph_ordering(
    view: ServedView, slots: Sequence[Slot], inputs: int, num_layers: int | None
) -> tuple[Ordering | None, str]:
    """The same for steps that the view replays from CUDA graphs."""
    who = f"{view.name} in steps replayed from CUDA graphs"
    return configured_ordering(view.graph_depths, slots, inputs, who, num_layers)


def _last_after_norm(view: ServedView, slots: Sequence[Slot]) -> tuple[Ordering | None, str]:
    """`use_aux_hidden_state: false`: the one state is the target's last, after its final norm."""
    last = [slot.index for slot in slots if slot.claim is not None and slot.claim.is_last and slot.claim.norm == "post"]
    if not last:
        return None, f"{view.name} feeds the last state after the final norm; no slot is said to be it (last:post)"
    return (last[0],), f"{view.name} feeds the last state after the final norm"


def ordering_difference(
    view: ServedView, case: Case, trained: Ordering, fed: Ordering | None, depths: Mapping[int, int]
) -> Difference | None:
    """How the slots `fed` by the view differ from the `trained` ones; `depths` are those of the slots, where known."""
    if view.refused or fed == trained or (fed is None and not view.use_aux):
        return None
    capture = view.capture
    if capture.depths is None:
        return None
    ids = "its default" if capture.ids is None else f"{capture.source} [{name(capture.ids)}]"
    captures = name(capture.depths)
    served = f"depths {captures}, not all recorded" if fed is None else f"slots {name(fed)} (depths {captures})"
    known = tuple(depths[slot] for slot in trained) if all(slot in depths for slot in trained) else ()
    ours = f"slots {name(trained)}" + (f" (depths {name(known)})" if known else "")
    why = f"{view.name} captures depths {captures} by {ids}, in ascending order; training fed {ours}"
    return Difference(ORDERING, ours, served, why, _cure_of_ids(view, case, known))


def _cure_of_ids(view: ServedView, case: Case, wanted: Depths) -> str:
    """The list of ids that makes the view capture `wanted`, the trained depths in fc's order."""
    if not wanted:
        return f"{CANNOT}the depths of the trained slots are not known: name them with --slots"
    if list(wanted) != sorted(wanted):
        return f"{CANNOT}no server permutes what it captures; `fix` moves the column blocks of fc"
    lists = ids_to_write(wanted, view.server, case.family, case.num_layers)
    if lists.keys is None:
        return f"{CANNOT}{lists.reason}"
    table: dict[str, Any] = {}
    for key, value in {**lists.copies, **lists.keys}.items():
        set_key(table, key, value)
    then = captured(table, view.server, case.family, case.num_layers).failure
    written = "config.json: " + ", ".join(f"{key} = {value}" for key, value in lists.keys.items())
    return f"{written}; but then {then}" if then else written
