"""The recorded slots of a sample as rows: what each is claimed to be beside what its data shows."""

from __future__ import annotations

import textwrap

from drafter.sample.probes.contradictions import BAD, Contradiction
from drafter.sample.probes.probe import SlotProbe
from drafter.sample.sample import Slot
from eagle3_tui.screens.view import percent
from eagle3_tui.state import State
from eagle3_tui.widgets.line_table import Cells, Column

COLUMNS = [
    Column("slot", 4, "right"),
    Column("fc", 3),
    Column("claimed", 9),
    Column("probed", 9),
    Column("mean norm", 9, "right"),
    Column("next %", 6, "right"),
    Column("bad", 4, "right"),
    Column("claimed by"),
]
Lines = list[list[tuple[str, str]]]


def slot_cells(state: State, slot: Slot) -> Cells:
    """One slot: its number, place in fc, claim, what its data shows, mean norm, agreement with x[t+1], bad rows."""
    probe, i = probe_of(state, slot.index), slot.index
    place = str(state.ordering.index(i) + 1) if state.ordering is not None and i in state.ordering else "-"
    against = of_slot(state, i)
    look = "bad" if any(c.severity == BAD for c in against) else "warn" if against else ""
    shown = "…" if probe is None else probe.label or "?"
    norm = "…" if probe is None else "-" if probe.mean_norm is None else f"{probe.mean_norm:.2f}"
    bad = "" if probe is None else str(probe.bad_rows)
    texts = [str(i), place, claimed(slot), shown, norm, agreement(probe), bad]
    by = ("! contradicts the data; " if against else "") + claimed_by(slot)
    return [*((text, look) for text in texts), (by, look)]


def claimed(slot: Slot) -> str:
    """The claim in a word; `~` marks a default that no file confirms, `/pre` and `/post` the final norm."""
    if slot.claim is None:
        return "?"
    norm = f"/{slot.claim.norm}" if slot.claim.norm else ""
    return ("~" if slot.claim.assumed else "") + slot.claim.label + norm


def claimed_by(slot: Slot) -> str:
    return slot.claim.source if slot.claim else "nobody (--slots)"


def agreement(probe: SlotProbe | None) -> str:
    """How often the target's head names the next token in this state, over the probed rows."""
    if probe is None:
        return "…"
    return percent(probe.lens.next.ratio) if probe.lens is not None and probe.lens.next.total else "-"


def probe_of(state: State, slot: int) -> SlotProbe | None:
    return next((probe for probe in state.probes if probe.index == slot), None)


def of_slot(state: State, slot: int) -> list[Contradiction]:
    return [c for c in state.contradictions if c.slot == slot]


def slot_lines(state: State, slot: int, width: int, most: int) -> Lines:
    """What contradicts the claim of a slot, then what was measured, in at most `most` lines."""
    lines: Lines = []
    for one in [*of_slot(state, slot), *(c for c in state.contradictions if c.slot is None)]:
        lines += [[(line, one.severity)] for line in textwrap.wrap(f"! {one.text}", max(width, 20))]
    probe = probe_of(state, slot)
    if probe is not None:
        for said, value in probe.facts():
            first, *rest = textwrap.wrap(f"{said}: {value}", max(width, 20), subsequent_indent="  ")
            lines += [[(line, "dim")] for line in (first, *rest)]
    return lines[:most]
