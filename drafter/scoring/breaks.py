"""Where chains break, and at which tokens.

A chain breaks at the first draft that is not the sample's token. Chains are those that count for an accept length (all
K truths, all in the mask), so every chain either breaks at a step 0..K-1 or is whole. Neighbouring chains cross the
same place of the text: one hard token may break up to K of them, and counts once for each; `places` counts it once. A
true token outside of the draft vocabulary can never be drafted: no training repairs such a break, so they are kept
apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from drafter.scoring.counts import Truths, length_rows, next_token_hits, row_mask
from drafter.scoring.tallies import bucket

MOST, INSTEAD = 10, 3  # tokens in a report, and predictions for each


@dataclass(frozen=True)
class Broken:
    """Of `chains`, `broken` break: `outside` of these at a true token outside of the draft vocabulary, `no_numbers`
    where the drafter gave none."""

    chains: int = 0
    broken: int = 0
    outside: int = 0
    no_numbers: int = 0

    def __add__(self, other: Broken) -> Broken:
        return Broken(
            self.chains + other.chains,
            self.broken + other.broken,
            self.outside + other.outside,
            self.no_numbers + other.no_numbers,
        )


@dataclass(frozen=True)
class TokenBreaks:
    """One true token: of the `reached` times that a chain came to it whole, it broke `breaks`; `instead` are the
    predictions in its place (-1: no numbers), most frequent first."""

    id: int
    breaks: int
    reached: int
    instead: tuple[tuple[int, int], ...]


@dataclass
class Breaks:
    """Grows by `add`. `steps[k]`: chains that were right before step k; `positions[i]`: chains whose row lies in
    `bucket(i)`. `ceiling` adds up the accept lengths of a drafter that is right wherever the vocabulary lets it be.
    """

    steps: list[Broken] = field(default_factory=list)
    positions: list[Broken] = field(default_factory=list)
    places: int = 0
    outside_places: int = 0
    ceiling: int = 0
    reached: Counter[int] = field(default_factory=Counter, repr=False)
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter, repr=False)
    outside: Counter[int] = field(default_factory=Counter, repr=False)

    def add(self, other: Breaks) -> None:
        """In place, so that ten thousand samples cost no more than each of them."""
        self.steps = _sum(self.steps, other.steps)
        self.positions = _sum(self.positions, other.positions)
        self.places += other.places
        self.outside_places += other.outside_places
        self.ceiling += other.ceiling
        self.reached.update(other.reached)
        self.pairs.update(other.pairs)
        self.outside.update(other.outside)

    @property
    def total(self) -> Broken:
        return sum(self.positions, Broken())

    def tokens(self, most: int = MOST) -> list[TokenBreaks]:
        """The tokens that break the most chains, among those that can be drafted; of equals the lowest id first."""
        breaks: Counter[int] = Counter()
        instead: dict[int, list[tuple[int, int]]] = {}
        for (truth, said), times in self.pairs.items():
            breaks[truth] += times
            instead.setdefault(truth, []).append((said, times))
        found = sorted(breaks, key=lambda i: (-breaks[i], i))[:most]
        return [
            TokenBreaks(i, breaks[i], self.reached[i], tuple(sorted(instead[i], key=lambda p: (-p[1], p[0]))))
            for i in found
        ]

    def outside_tokens(self, most: int = MOST) -> list[tuple[int, int]]:
        """(id, chains broken) of the true tokens that no draft can be."""
        return sorted(self.outside.items(), key=lambda pair: (-pair[1], pair[0]))[:most]


def _sum(ours: list[Broken], theirs: list[Broken]) -> list[Broken]:
    longest = max(len(ours), len(theirs))
    padded = [[*part, *[Broken()] * (longest - len(part))] for part in (ours, theirs)]
    return [a + b for a, b in zip(*padded, strict=True)]


def find_breaks(predicted: Tensor, truths: Truths, mode: str) -> Breaks:
    """The breaks of `predicted` [K, R] draft ids (-1: none) in the mask mode `mode`."""
    depth, size = predicted.shape
    rows = length_rows(row_mask(truths.mask, mode, size), depth).nonzero().flatten()  # [n]
    mapped = torch.where(predicted >= 0, truths.target_ids[predicted.clamp(min=0)], -1)
    accepted = next_token_hits(mapped, truths.ids).long().cumprod(0).sum(0)[rows]  # [n]
    found = Breaks()
    if rows.numel() == 0:
        found.steps = [Broken()] * depth
        return found
    wanted = truths.ids[rows[None, :] + 2 + torch.arange(depth)[:, None]]  # [K, n]
    outside = ~truths.can_be_drafted(wanted.flatten()).view(depth, -1)
    found.ceiling = len(rows) + int((~outside).long().cumprod(0).sum())
    for k in range(depth):
        here = accepted == k
        _count_step(found, mapped[k, rows], wanted[k], outside[k], accepted >= k, here)
    at = accepted.clamp(max=depth - 1)[None]
    broken = accepted < depth
    first_outside = outside.gather(0, at)[0] & broken
    _count_positions(found, rows, broken, first_outside, (mapped[:, rows].gather(0, at)[0] < 0) & broken)
    places = rows + 2 + accepted
    found.places = len(places[broken].unique())
    found.outside_places = len(places[first_outside].unique())
    return found


def _count_step(found: Breaks, said: Tensor, wanted: Tensor, outside: Tensor, reached: Tensor, broken: Tensor) -> None:
    """One step of n chains: what each said and what was wanted [n], which were whole so far and which break here."""
    lost, mute = broken & outside, broken & (said < 0)
    found.steps.append(Broken(int(reached.sum()), int(broken.sum()), int(lost.sum()), int(mute.sum())))
    found.reached.update(_tally(wanted[reached]))
    found.outside.update(_tally(wanted[lost]))
    both = torch.stack([wanted, said])[:, broken & ~outside]  # [2, m]
    pairs, times = both.unique(dim=1, return_counts=True)
    found.pairs.update({(a, b): n for a, b, n in zip(*pairs.tolist(), times.tolist(), strict=True)})


def _tally(ids: Tensor) -> dict[int, int]:
    values, times = ids.unique(return_counts=True)
    return dict(zip(values.tolist(), times.tolist(), strict=True))


def _count_positions(found: Breaks, rows: Tensor, broken: Tensor, outside: Tensor, mute: Tensor) -> None:
    """Chains by the bucket of their row, as far as there are rows."""
    while bucket(len(found.positions))[0] <= int(rows[-1]):
        first, last = bucket(len(found.positions))
        here = (rows >= first) & (rows <= last)
        counts = [int((here & which).sum()) for which in (here, broken, outside, mute)]
        found.positions.append(Broken(*counts))


# As JSON


def breaks_json(breaks: Breaks, text: Callable[[int], str], most: int = MOST) -> dict[str, Any]:
    """Counts only; `text` gives the shown form of a token id."""

    def token(i: int) -> dict[str, Any]:
        return {"id": i, "text": text(i)} if i >= 0 else {"id": None, "text": ""}

    total = breaks.total
    return {
        **_broken_json(total),
        "whole": total.chains - total.broken,
        "places": {"broken": breaks.places, "outside": breaks.outside_places},
        "ceiling": {"sum": breaks.ceiling, "rows": total.chains},
        "steps": [{"step": k, **_broken_json(step)} for k, step in enumerate(breaks.steps)],
        "positions": [
            {"from": bucket(i)[0], "to": bucket(i)[1], **_broken_json(part)} for i, part in enumerate(breaks.positions)
        ],
        "tokens": [
            {
                **token(one.id),
                "breaks": one.breaks,
                "reached": one.reached,
                "instead": [{**token(said), "breaks": times} for said, times in one.instead[:INSTEAD]],
            }
            for one in breaks.tokens(most)
        ],
        "outside_tokens": [{**token(i), "breaks": times} for i, times in breaks.outside_tokens(most)],
    }


def _broken_json(broken: Broken) -> dict[str, int]:
    return {
        "chains": broken.chains,
        "broken": broken.broken,
        "outside": broken.outside,
        "no_numbers": broken.no_numbers,
    }
