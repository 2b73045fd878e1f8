"""Where what a slot is said to be and what its data shows cannot both be right, one sentence each.

Only what is clear is said: sampled text lowers every agreement, and a deep aux state names the next token too.
Knows nothing of files or models: it is given a sample's claims and its probes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from drafter.sample.probes.embed_test import Share
from drafter.sample.probes.last_state import Agreement
from drafter.sample.probes.probe import EMBED, SlotProbe
from drafter.sample.sample import POST, PRE, Claim, Sample, Slot

BAD, WARN = "bad", "warn"
_ROWS = 32  # rows from which a share tells anything
_CLEAR = 0.2  # a share that is this much above another is clearly above it
_SIGMAS = 4.0  # and by so many standard errors
_NO_NORM = 0.1  # share of rows that fit the final norm below which a slot has not passed it
_PARTLY = 0.5  # share of embedding rows from which the others may be images


@dataclass(frozen=True)
class Contradiction:
    """`slot` is None where all slots are concerned; `severity` is `bad` or `warn`."""

    slot: int | None
    text: str
    severity: str = BAD


def contradictions(sample: Sample, probes: Sequence[SlotProbe]) -> list[Contradiction]:
    """What contradicts itself in `sample`, whose slots were probed; the grave ones first."""
    found = [*_tails(probes)]
    for slot, probe in zip(sample.slots, probes, strict=True):
        found += _numbers(probe)
        if not probe.all_zero:
            claim = slot.claim if slot.claim is not None else Claim("?", "")
            found += _embeds(probe, claim)
            found += _norms(probe, claim)
            if claim.is_last:
                found += _last(sample, slot, probe, probes)
    return sorted(found, key=lambda one: one.severity != BAD)


def contradictions_json(found: Sequence[Contradiction]) -> list[dict[str, object]]:
    return [{"slot": one.slot, "severity": one.severity, "text": one.text} for one in found]


# The numbers alone


def _numbers(probe: SlotProbe) -> Iterator[Contradiction]:
    i = probe.index
    if probe.bad_rows:
        kinds = f"{probe.nan_rows} with NaN, {probe.inf_rows} with Inf"
        first = f"the first is row {probe.first_bad_row} ({probe.first_bad})"
        yield Contradiction(i, f"slot {i} has {_many(probe.bad_rows, 'row')} that are not finite: {kinds}; {first}")
    if probe.all_zero:
        yield Contradiction(i, f"slot {i} is all zeros: nothing was recorded")
    elif probe.zero_rows and probe.zero_tail is None:
        said = f"slot {i} has {probe.zero_rows} of {_many(probe.rows, 'row')} zero, the first is {probe.first_zero_row}"
        yield Contradiction(i, said, WARN)
    if probe.twin is not None:
        yield Contradiction(i, f"slot {i} has the same numbers as slot {probe.twin} in all {probe.rows} rows")


def _tails(probes: Sequence[SlotProbe]) -> Iterator[Contradiction]:
    """Rows that are zero to the end, once where all slots have them."""
    tails = {p.index: p.zero_tail for p in probes if p.zero_tail is not None and not p.all_zero}
    together = len(set(tails.values())) == 1 and len(tails) == len(probes) > 1
    for index, row in list(tails.items())[: 1 if together else None]:
        rows = probes[0].rows
        slots = "all slots are" if together else f"slot {index} is"
        yield Contradiction(
            None if together else index, f"{slots} zero from row {row} to the end ({rows - (row or 0)} of {rows} rows)"
        )


# The embedding


def _embeds(probe: SlotProbe, claim: Claim) -> Iterator[Contradiction]:
    i, shift, test = probe.index, probe.embed_shift, probe.embed
    if shift:
        token = "previous" if shift < 0 else "next"
        said = f"{_shown(probe, shift)} are the embedding of the {token} token: the states are shifted by one row"
        yield Contradiction(i, f"slot {i}: {said}")
    elif shift == 0 and _is_deep(claim):
        yield Contradiction(i, f"slot {i} is {_said(claim)}, but {_shown(probe, 0)} are the embedding of their token")
    elif claim.depth == 0 and test.known and shift is None:
        yield _not_embed(probe, claim)


def _not_embed(probe: SlotProbe, claim: Claim) -> Contradiction:
    i, test = probe.index, probe.embed
    share = test.table.get(0) if test.table else test.tokens[0]
    share = share if share is not None else Share()
    unit = "rows equal the embedding of their token" if test.table else "pairs of equal tokens have equal rows"
    said = f"slot {i} is {_said(claim)}, but {share} {unit}"
    if test.table and test.first_other is not None and share.ratio >= _PARTLY:
        said += f", row {test.first_other} is the first that does not"
    if share.ratio >= _PARTLY and not test.strangers:
        return Contradiction(i, f"{said}; those that do not may be images", WARN)
    if test.table and test.context_free:
        pairs = f"equal tokens do have equal rows ({test.tokens[0]} pairs)"
        return Contradiction(i, f"{said}; {pairs}: the embedding of another model")
    if test.strangers:
        rows = _many(test.strangers, "row")
        return Contradiction(i, f"{said}; {rows} equal the row of another token: the states of another sample")
    return Contradiction(i, said)


def _shown(probe: SlotProbe, shift: int) -> str:
    share = probe.embed.table.get(shift) if probe.embed.table else None
    return f"{share} compared rows" if share is not None else f"rows ({probe.embed.tokens[shift]} pairs)"


# The final norm


def _norms(probe: SlotProbe, claim: Claim) -> Iterator[Contradiction]:
    i, share = probe.index, probe.post_norm
    if probe.label == EMBED or share is None or share.total < 2:
        return
    rows = f"{share} compared rows"
    if probe.is_post_norm and claim.is_last and claim.norm == PRE:
        yield Contradiction(i, f"slot {i} is {_said(claim)}, before the final norm, but {rows} have passed it")
    elif probe.is_post_norm and not claim.is_last and claim.depth is not None:
        yield Contradiction(i, f"slot {i} is {_said(claim)}, but {rows} have passed the target's final norm")
    elif claim.is_last and claim.norm == POST and share.ratio < _NO_NORM:
        yield Contradiction(i, f"slot {i} is {_said(claim)}, after the final norm, but {rows} have passed it")


# The last state


def _last(sample: Sample, slot: Slot, probe: SlotProbe, probes: Sequence[SlotProbe]) -> Iterator[Contradiction]:
    claim = slot.claim
    assert claim is not None
    yield from _falls(sample, slot, probe, probes)
    lens = probe.lens
    if lens is None or probe.label == EMBED or lens.next.total < _ROWS:
        return
    i, said = slot.index, f"slot {slot.index} is {_said(claim)}"
    for name, moved, share in (("x[t]", "late", lens.same), ("x[t + 2]", "early", lens.after)):
        if _above(share, lens.next):
            words = f"its rows name {name} in {share}, x[t + 1] in {lens.next}: they come one row too {moved}"
            yield Contradiction(i, f"{said}, but {words}")
            return
    rival = _rival(sample, slot, lens, probes)
    if rival is not None:
        other = rival.lens
        assert other is not None
        words = f"slot {rival.index}, said to be shallower, names x[t + 1] in {other.next} rows, it in {lens.next}"
        yield Contradiction(i, f"{said}, but {words}")
    elif not _beyond(lens.next, lens.chance):
        words = f"it names x[t + 1] in {lens.next} rows, as its most frequent token would ({lens.chance})"
        yield Contradiction(i, f"{said}, but {words}: not the last state, or the states of other tokens")


def _falls(sample: Sample, slot: Slot, probe: SlotProbe, probes: Sequence[SlotProbe]) -> Iterator[Contradiction]:
    """Residual streams grow with depth: one that falls at the end smells of the final norm, where that is not known."""
    claim = slot.claim
    before = [p for p in probes if p.index < slot.index and p.label != EMBED and p.median_norm]
    if claim is None or claim.norm == POST or probe.is_post_norm is not None or not before or not probe.median_norm:
        return
    last = before[-1]
    assert last.median_norm is not None
    if probe.median_norm < last.median_norm:
        norms = f"its median norm falls to {probe.median_norm:.2f} after {last.median_norm:.2f} in slot {last.index}"
        said = f"slot {slot.index} is {_said(claim)}, but {norms}: it may have passed the final norm"
        yield Contradiction(slot.index, said, WARN)


def _rival(sample: Sample, slot: Slot, lens: Agreement, probes: Sequence[SlotProbe]) -> SlotProbe | None:
    """A slot that is said to be shallower and names the next token clearly more often."""
    named = {s.index for s in sample.slots if s.claim is not None and s.claim.depth is not None and not s.claim.is_last}
    rivals = [p for p in probes if p.index in named and p.lens is not None and p.label != EMBED]
    better = [p for p in rivals if p.lens is not None and _above(p.lens.next, lens.next)]
    return max(better, key=lambda p: p.lens.next.ratio if p.lens else 0.0, default=None)


# Words and shares


def _is_deep(claim: Claim) -> bool:
    return claim.is_last or (claim.depth is not None and claim.depth > 0)


def _said(claim: Claim) -> str:
    what = claim.label if claim.depth is None or claim.depth == 0 else f"depth {claim.depth}"
    return f"said to be {what} ({claim.source})"


def _above(one: Share, other: Share) -> bool:
    """Whether a share is clearly above another, not by chance alone."""
    if min(one.total, other.total) < _ROWS:
        return False
    spread = sqrt(_variance(one) + _variance(other))
    return one.ratio - other.ratio >= max(_CLEAR, _SIGMAS * spread)


def _beyond(share: Share, chance: Share) -> bool:
    """Whether `share` is above what the most frequent token alone would give."""
    return share.ratio > chance.ratio + 3 * sqrt(max(_variance(chance), 1 / max(chance.total, 1) ** 2))


def _variance(share: Share) -> float:
    return share.ratio * (1 - share.ratio) / max(share.total, 1)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
