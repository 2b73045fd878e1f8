"""What the data itself shows about the slots of a sample: norms, numbers that are no numbers, equality with the
embedding or with each other, the final norm, and the tokens that the target's head names.

Knows nothing of claims; `drafter.sample.probes.contradictions` puts both side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from drafter.sample.probes.embed_test import EmbedTest, Share, embed_test
from drafter.sample.probes.last_state import (
    Agreement,
    Candidates,
    Lens,
    agreements,
    candidates,
    norm_share,
    predicting_rows,
)
from drafter.sample.probes.scan import Scan, equal_rows, scan, spread
from drafter.sample.sample import Sample, Slot

if TYPE_CHECKING:
    import torch

LENS_SLOTS = 8  # so many of the last slots are shown to the head: a dump of all layers has a hundred
POST_SHARE = 0.9  # share of rows that fit the final norm from which a slot has passed it
ZEROS, EMBED, POST_NORM, NOT_EMBED = "zeros", "embed", "post-norm", "not embed"
_SHIFT_WORDS = {-1: "x[t - 1]", 0: "x[t]", 1: "x[t + 1]"}


@dataclass(frozen=True)
class SlotProbe:
    """`embed_equal` of `embed_rows` compared rows equal the embedding of their token; None when none was there.

    `mean_norm`, `min_norm`, `max_norm` are L2 norms over all rows, None when a row is not finite; `bad_rows` counts
    those rows, apart as `nan_rows` and `inf_rows`. `median_norm` leaves them out. `zero_tail` is the first row from
    which all are zero, None where the last is not. `twin` is an earlier slot with the same numbers.
    """

    index: int
    mean_norm: float | None
    bad_rows: int
    first_bad_row: int | None
    zero_rows: int
    embed_equal: int | None
    embed_rows: int
    rows: int = 0
    min_norm: float | None = None
    max_norm: float | None = None
    median_norm: float | None = None
    nan_rows: int = 0
    inf_rows: int = 0
    first_bad: str = ""
    first_zero_row: int | None = None
    zero_tail: int | None = None
    twin: int | None = None
    embed: EmbedTest = field(default_factory=lambda: EmbedTest({}, {0: Share()}, 0))
    post_norm: Share | None = None
    agreements: tuple[Agreement, ...] = ()

    @property
    def all_zero(self) -> bool:
        return self.rows > 0 and self.zero_rows == self.rows

    @property
    def is_post_norm(self) -> bool | None:
        """Whether the rows are what the target's final norm leaves; None where its weight is not there."""
        if self.post_norm is None or not self.post_norm.total:
            return None
        return self.post_norm.ratio >= POST_SHARE

    @property
    def embed_shift(self) -> int | None:
        """0 where the rows are the embeddings of their tokens, -1 of the tokens before, +1 after; None: of none."""
        return None if self.all_zero else self.embed.shift

    @property
    def label(self) -> str | None:
        """`zeros`, `embed`, `post-norm` or `not embed`; None where there was nothing to compare with."""
        if self.all_zero:
            return ZEROS
        if self.embed_shift is not None:
            return EMBED if self.embed_shift == 0 else NOT_EMBED
        if self.is_post_norm:
            return POST_NORM
        return NOT_EMBED if self.embed.known else None

    @property
    def lens(self) -> Agreement | None:
        """Of the agreements with and without the norm the one that hits more, whatever the shift."""
        return max(self.agreements, key=lambda a: max(a.same.hits, a.next.hits, a.after.hits), default=None)

    def facts(self) -> list[tuple[str, str]]:
        """What was measured and its value, short enough for a column; each with its convention in words."""
        return [*self._norm_facts(), *self._embed_facts(), *self._lens_facts()]

    def _norm_facts(self) -> list[tuple[str, str]]:
        found = []
        if self.median_norm is not None:
            found.append(("L2 norm of a row, median", f"{self.median_norm:.2f}"))
        if self.min_norm is not None and self.max_norm is not None:
            found.append(("L2 norm of a row, least to greatest", f"{self.min_norm:.2f} to {self.max_norm:.2f}"))
        if self.bad_rows:
            found.append(("rows with NaN, with Inf", f"{self.nan_rows}, {self.inf_rows}"))
            found.append(("the first of them", f"row {self.first_bad_row} ({self.first_bad})"))
        if self.zero_rows:
            found.append(("rows that are zero", f"{self.zero_rows}/{self.rows}"))
        if self.zero_tail is not None:
            found.append(("zero to the end from", f"row {self.zero_tail}"))
        if self.twin is not None:
            found.append(("same numbers as", f"slot {self.twin}"))
        return found

    def _embed_facts(self) -> list[tuple[str, str]]:
        test, pairs = self.embed, self.embed.tokens[0]
        found = [
            (f"rows that are embed({_SHIFT_WORDS[shift]})", _short(share))
            for shift, share in test.table.items()
            if share.total and (shift == 0 or share.hits)
        ]
        if test.scale != 1:
            found.append(("the embedding is scaled by", f"{test.scale:.4g}"))
        if pairs.total:
            found.append(("pairs of equal tokens with equal rows", _short(pairs)))
        return found

    def _lens_facts(self) -> list[tuple[str, str]]:
        found = []
        if self.post_norm is not None and self.post_norm.total:
            found.append(("rows with RMS(y / w) = 1, as after final norm w", _short(self.post_norm)))
        for one in self.agreements:
            named = f"{_short(one.same)}, {_short(one.next)}, {_short(one.after)}"
            found.append((f"head . {one.norm_said} names x[t], x[t + 1], x[t + 2]", named))
        if self.agreements:
            one = self.agreements[0]
            found.append(("the most frequent x[t + 1] alone", _short(one.chance)))
            found.append((f"tokens to choose from ({one.source})", str(one.candidates)))
        return found


def _short(share: Share) -> str:
    return f"{share.hits}/{share.total}"


def probe_json(probe: SlotProbe) -> dict[str, Any]:
    """What `show --json` adds for a slot; counts as they were made, and the same in words."""

    def share(one: Share | None) -> dict[str, int] | None:
        return {"hits": one.hits, "total": one.total} if one is not None and one.total else None

    return {
        "min_norm": probe.min_norm,
        "max_norm": probe.max_norm,
        "median_norm": probe.median_norm,
        "nan_rows": probe.nan_rows,
        "inf_rows": probe.inf_rows,
        "first_bad_row": probe.first_bad_row,
        "zero_rows": probe.zero_rows,
        "zero_tail": probe.zero_tail,
        "same_as": probe.twin,
        "embed_shift": probe.embed_shift,
        "embed": share(probe.embed.table.get(0)),
        "equal_tokens": share(probe.embed.tokens.get(0)),
        "post_norm": share(probe.post_norm),
        "names_next": [
            {
                "normed": one.normed,
                "x[t]": share(one.same),
                "x[t+1]": share(one.next),
                "x[t+2]": share(one.after),
                "chance": share(one.chance),
                "candidates": one.candidates,
                "head": one.source,
            }
            for one in probe.agreements
        ],
    }


@dataclass(frozen=True)
class _Plan:
    """What all slots of a sample are held against: rows for the embedding and the norm, candidates for the head."""

    compared: list[int]
    found: Candidates | None
    lens: Lens

    @property
    def rows(self) -> list[int]:
        return [*self.compared, *(self.found.rows if self.found else [])]


def probe_slots(
    sample: Sample,
    embedding: Callable[[list[int]], torch.Tensor] | None,
    lens: Lens | None = None,
    poll: Callable[[], None] = lambda: None,
    slots: Sequence[Slot] | None = None,
) -> list[SlotProbe]:
    """Read every slot (or `slots`) once, block by block.

    `embedding(ids)` gives rows [n, Ht] as stored, or is None without a table; `lens` is the target's end.
    """
    lens = lens if lens is not None else Lens()
    found = candidates(sample, lens, predicting_rows(sample))
    plan = _Plan(spread(range(sample.length)), found, lens)
    probes: list[SlotProbe] = []
    marks: dict[int, torch.Tensor] = {}
    for slot in sample.slots if slots is None else slots:
        seen = scan(slot.tensor, plan.rows, poll)
        probe = _judged(sample, slot, seen, plan, embedding, poll)
        twin = None if probe.all_zero else _twin(sample, slot, seen, marks, poll)
        marks[slot.index] = seen.marks
        probes.append(replace(probe, twin=twin))
    return probes


def probe_slot(
    sample: Sample,
    slot: Slot,
    embedding: Callable[[list[int]], torch.Tensor] | None,
    poll: Callable[[], None] = lambda: None,
) -> SlotProbe:
    """One slot alone, without the target's norm and head."""
    return probe_slots(sample, embedding, None, poll, [slot])[0]


def _judged(
    sample: Sample,
    slot: Slot,
    seen: Scan,
    plan: _Plan,
    embedding: Callable[[list[int]], torch.Tensor] | None,
    poll: Callable[[], None],
) -> SlotProbe:
    quantised = slot.tensor.dtype.startswith("F8")
    embed = embed_test(sample, seen, plan.compared, embedding, quantised=quantised)
    told = embed.table.get(0, Share())
    probe = _measured(slot.index, seen)
    agreed: tuple[Agreement, ...] = ()
    late = slot.index >= len(sample.slots) - LENS_SLOTS or (slot.claim is not None and slot.claim.is_last)
    if plan.found is not None and late and not probe.all_zero:
        agreed = agreements(sample, seen.take(plan.found.rows), plan.found, plan.lens, poll)
    return replace(
        probe,
        embed=embed,
        embed_equal=told.hits if told.total else None,
        embed_rows=told.total,
        post_norm=norm_share(seen.take(plan.compared), plan.lens),
        agreements=agreed,
    )


def _measured(index: int, seen: Scan) -> SlotProbe:
    """Norms and rows that are zero or not finite."""
    norms, rows = seen.norms, seen.norms.numel()
    finite, zero = norms.isfinite(), norms == 0
    bad, good = int((~finite).sum()), norms[finite]
    first = int((~finite).nonzero()[0]) if bad else None
    nonzero = (~zero).nonzero()
    tail = int(nonzero[-1]) + 1 if nonzero.numel() else 0
    kind = "" if first is None else "NaN" if bool(norms[first].isnan()) else "Inf"
    whole = good.numel() > 0 and not bad
    return SlotProbe(
        index,
        mean_norm=float(good.mean()) if whole else None,
        bad_rows=bad,
        first_bad_row=first,
        zero_rows=int(zero.sum()),
        embed_equal=None,
        embed_rows=0,
        rows=rows,
        min_norm=float(good.min()) if whole else None,
        max_norm=float(good.max()) if whole else None,
        median_norm=float(good.median()) if good.numel() else None,
        nan_rows=int(norms.isnan().sum()),
        inf_rows=int(norms.isinf().sum()),
        first_bad=kind,
        first_zero_row=int(zero.nonzero()[0]) if bool(zero.any()) else None,
        zero_tail=tail if tail < rows else None,
    )


def _twin(
    sample: Sample, slot: Slot, seen: Scan, marks: dict[int, torch.Tensor], poll: Callable[[], None]
) -> int | None:
    import torch

    for index, other in marks.items():
        if torch.equal(seen.marks, other):
            twin = next(s for s in sample.slots if s.index == index)
            if equal_rows(slot.tensor, twin.tensor, poll):
                return index
    return None
