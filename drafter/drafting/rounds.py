"""The supervised text decoded as a server would, round by round: what is drafted, accepted and emitted each time.

Each run of supervised tokens is a request of its own: everything before it is the prompt, committed with the recorded
states, and its first token is free. A round drafts K tokens from the last known token x[p], in row p - 1, accepts the
leading ones that equal the sample's, and emits one more, the bonus token; both are clipped at the end of the run. The
first token of a text has no row (no state comes before it): such a round drafts nothing and emits one token.

What the rows of emitted tokens hold when the next round begins is the refresh:

`target`: before the next round every row of an emitted token is computed again from the recorded target state, as
    servers do. No round then depends on an earlier one, and the chains of all rows are one pass.
`drafted`: the rows of accepted drafts keep the keys and values that the drafter made from its own hidden states; the
    last of K accepted drafts, which no step has fed, is run as step K would. Only the row of the bonus token, from
    which the next round starts, takes the recorded state. This is what an engine would do that forgets the extend step;
    each round depends on those before it, so they are run one after another.

Knows no mask modes and counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from drafter.drafting.chains import draft_ids, forward
from drafter.drafting.context import SampleRun
from drafter.drafting.free import leading_right, target_tokens
from drafter.errors import WiringError
from drafter.model.attention import Seen
from drafter.model.layer import LayerInput
from drafter.wiring import Ordering, Wiring, check_ordering

Poll = Callable[[], None]
Progress = Callable[[int, int], None]
REFRESHES = ("target", "drafted")
NONE = -1  # in place of a draft: no numbers came out


@dataclass(frozen=True)
class Round:
    """One round: `known` is the index p of the last known token; `drafted` are K target ids (-1: no numbers came out),
    none where there is no row to draft from. `bonus` is None where the run ended before it.
    """

    known: int
    drafted: tuple[int, ...]
    accepted: int
    bonus: int | None

    @property
    def emitted(self) -> int:
        return self.accepted + (self.bonus is not None)


def supervised_runs(mask: Tensor) -> list[tuple[int, int]]:
    """Each run of supervised tokens of `mask` [T] as (first, one past the last)."""
    found, at = [], 0
    for value, group in groupby(mask.tolist()):
        size = sum(1 for _ in group)
        if value:
            found.append((at, at + size))
        at += size
    return found


def rounds(
    run: SampleRun,
    ordering: Ordering,
    wiring: Wiring,
    depth: int,
    refresh: str = "target",
    on_progress: Progress = lambda done, total: None,
    poll: Poll = lambda: None,
) -> list[Round]:
    """All rounds of the supervised text in order. `on_progress` is given tokens emitted and tokens to emit.

    `poll` is called between the drafts and may raise Cancelled. Raises WiringError for what cannot be drafted.
    """
    if refresh not in REFRESHES:
        raise WiringError(f"refresh {refresh!r}", expected=f"one of {', '.join(REFRESHES)}")
    if depth < 1:
        raise WiringError(f"{depth} draft steps", expected="at least 1")
    if refresh == "drafted" and wiring.draft_keys == "forgotten":
        raise WiringError("draft_keys forgotten with refresh drafted", expected="keys that are kept, or refresh target")
    check_ordering(ordering, len(run.sample.slots), run.drafter.fusion.inputs)
    runs = supervised_runs(run.sample.supervised)
    made: Iterator[Round]
    if refresh == "target":
        made = _fast(run, ordering, wiring, depth, runs, poll)
    else:
        made = _one_by_one(run, ordering, wiring, depth, runs, poll)
    total, done, found = sum(stop - start - 1 for start, stop in runs), 0, []
    for one in made:
        found.append(one)
        done += one.emitted
        on_progress(done, total)
    return found


def _round(ids: Tensor, known: int, stop: int, drafted: tuple[int, ...], right: int) -> Round:
    """The round after x[known] of a run that ends before `stop`, whose `right` leading drafts are the sample's."""
    left = stop - 1 - known
    accepted = min(right, left)
    bonus = int(ids[known + accepted + 1]) if accepted < left else None
    return Round(known, drafted, accepted, bonus)


# Every row of an emitted token holds its recorded state: all chains at once


def _fast(
    run: SampleRun, ordering: Ordering, wiring: Wiring, depth: int, runs: list[tuple[int, int]], poll: Poll
) -> Iterator[Round]:
    rows = [row for start, stop in runs for row in range(max(start - 1, 0), stop - 2)]
    wanted = torch.tensor(sorted(set(rows)), dtype=torch.int64)
    tokens = target_tokens(run, wiring, draft_ids(run, ordering, wiring, depth, wanted, own_tokens=True, poll=poll))
    right = leading_right(tokens, run.ids).tolist()
    drafted = tokens.T.tolist()  # [R][K]
    for start, stop in runs:
        known = start
        while known < stop - 1:
            here = (tuple(drafted[known - 1]), right[known - 1]) if known else ((), 0)
            yield (made := _round(run.ids, known, stop, *here))
            known += made.emitted


# Rows of accepted drafts stay as they were drafted: one round after another


def _one_by_one(
    run: SampleRun, ordering: Ordering, wiring: Wiring, depth: int, runs: list[tuple[int, int]], poll: Poll
) -> Iterator[Round]:
    if not runs:
        return
    server = _Server(run, ordering, wiring, depth, runs[-1][1] - 1, poll)
    for start, stop in runs:
        server.begin(stop)
        known = start
        while known < stop - 1:
            drafted = server.draft(known - 1) if known else ()
            right = _leading(drafted, run.ids[known + 1 :].tolist())
            made = _round(run.ids, known, stop, drafted, right)
            server.keep(made.accepted)
            yield made
            known += made.emitted


def _leading(drafted: tuple[int, ...], truths: list[int]) -> int:
    wrong = (k for k, (ours, truth) in enumerate(zip(drafted, truths, strict=False)) if ours < 0 or ours != truth)
    return next(wrong, min(len(drafted), len(truths)))


class _Server:
    """Keys and values of every layer [R, nk, hd] as a server's cache that keeps drafted rows would hold them."""

    def __init__(self, run: SampleRun, ordering: Ordering, wiring: Wiring, depth: int, rows: int, poll: Poll) -> None:
        self._run, self._wiring, self._depth, self._poll = run, wiring, depth, poll
        self._context = run.context(ordering, wiring, rows, poll)
        self._keys = [keys.clone() for keys in self._context.keys]
        self._values = [values.clone() for values in self._context.values]
        self._here = torch.zeros(1, dtype=torch.int64, device=run.drafter.placement.device)  # the row drafted from
        self._seen: list[Seen] = []

    def begin(self, stop: int) -> None:
        """A new request: all rows before `stop` hold their recorded states again."""
        for i, (keys, values) in enumerate(zip(self._context.keys, self._context.values, strict=True)):
            self._keys[i][:stop], self._values[i][:stop] = keys[:stop], values[:stop]

    def draft(self, row: int) -> tuple[int, ...]:
        """K target ids from `row`, which takes its recorded state."""
        self._here = self._here.new_tensor([row])
        self._hidden, drafted = self._commit(row), []
        self._seen = [Seen.first(keys, values, 1) for keys, values in zip(self._keys, self._values, strict=True)]
        for k in range(self._depth):
            if k:
                self._step(k)
            drafted.append(self._choose())
        return tuple(drafted)

    def _commit(self, row: int) -> Tensor:
        """Step 0 of one row, whose keys and values join the cache; h [1, H] of the last layer."""
        self._poll()
        run = self._run
        place, given = run.place(self._here, 0, self._wiring), run.given(self._context, self._here)
        hidden = given.residual
        for i, layer in enumerate(place.layers):
            given = given if i == 0 else run.drafter.next_input(hidden, layer)
            self._store(i, row, *layer.keys_values(given, place))
            hidden = layer.forward(given, place, Seen.first(self._keys[i], self._values[i], 1))
        return hidden

    def _choose(self) -> int:
        drafter, wiring = self._run.drafter, self._wiring
        logits = drafter.logits(self._hidden, wiring)[0]  # [D]
        self._best = logits.argmax()
        return NONE if bool(logits[self._best].isnan()) else int(drafter.to_target(self._best, wiring))

    def _step(self, k: int) -> None:
        """Draft step k, fed what step k - 1 chose: its keys and values join those of the chain."""
        self._poll()
        run, wiring = self._run, self._wiring
        place = run.place(self._here, k, wiring)
        self._hidden, self._seen = forward(run.drafter, self._fed(), place, self._seen, k)

    def _fed(self) -> LayerInput:
        """The token just drafted beside the state it came from, or P-EAGLE's mask."""
        run, wiring = self._run, self._wiring
        if run.drafter.config.parallel:
            return run.masked(1, wiring)
        return run.fed(self._context, self._here, self._hidden, run.drafted(self._best[None], wiring))

    def keep(self, accepted: int) -> None:
        """The rows after the one drafted from keep what the first `accepted` drafts made."""
        if accepted == self._depth:
            self._step(self._depth)
        for k in range(1, accepted + 1):
            for i, seen in enumerate(self._seen):
                self._store(i, int(self._here) + k, seen.own_keys[:, k - 1], seen.own_values[:, k - 1])

    def _store(self, layer: int, row: int, keys: Tensor, values: Tensor) -> None:
        # as in a context: a NaN spoils its own row and later ones, not those before it
        fine = bool(keys.isfinite().all() and values.isfinite().all())
        self._keys[layer][row] = keys[0] if fine else float("nan")
        self._values[layer][row] = values[0] if fine else 0.0


# As JSON

REFRESH_WORDS = {
    "target": "rows of accepted drafts are computed again from the recorded target states, as servers do",
    "drafted": "rows of accepted drafts keep the keys and values that the drafter made of its own hidden states, as in "
    "an engine that forgets the extend step; only the bonus token's row takes the recorded state",
}


def walk_json(found: Sequence[Round]) -> dict[str, Any]:
    """Rounds, tokens emitted, and tokens a round with the bonus token; no round, no length."""
    tokens = sum(one.emitted for one in found)
    return {"rounds": len(found), "tokens": tokens, "length": tokens / len(found) if found else None}


def rounds_json(found: Sequence[Round], refresh: str, text: Callable[[int], str], ids: Tensor) -> dict[str, Any]:
    """`hit` says whether a draft was accepted; `id` is null where no numbers came out."""

    def token(i: int) -> dict[str, Any]:
        return {"id": i, "text": text(i)} if i >= 0 else {"id": None, "text": ""}

    each = [
        {
            "known": {"at": one.known, **token(int(ids[one.known]))},
            "drafted": [{**token(i), "hit": k < one.accepted} for k, i in enumerate(one.drafted)],
            "accepted": one.accepted,
            "bonus": None if one.bonus is None else token(one.bonus),
            "emitted": one.emitted,
        }
        for one in found
    ]
    return {"refresh": refresh, "refresh_words": REFRESH_WORDS[refresh], "walk": walk_json(found), "each": each}
