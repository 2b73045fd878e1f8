"""A plain speculative server, one row after another: it commits rows, drafts K tokens, and keeps or redoes their rows.

Row t holds the recorded state of token t and token t + 1. `keep`: the rows of accepted drafts stay as they were drafted
(the K-th is run for that purpose); else every row of an emitted token is computed again from the recorded state.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tests.reference.drafter import ReferenceDrafter, Row, to_target


@dataclass(frozen=True)
class PlainRound:
    known: int
    drafted: list[int]
    accepted: int
    bonus: int | None


class PlainServer:
    """One request on `states` [T, A, Ht] of a text of T tokens; `parallel`: P-EAGLE, whose later steps are masked."""

    def __init__(
        self,
        model: ReferenceDrafter,
        states: Tensor,
        steps: int,
        d2t: Sequence[int],
        keep: bool,
        parallel: bool = False,
    ) -> None:
        self.model, self.states, self.steps, self.d2t, self.keep = model, states, steps, d2t, keep
        self.length, self.ids, self.rows = len(states) - 1, list[int](), list[Row]()
        self.masked = model.fuse(model.w.tensors["mask_hidden"].view(states.shape[1], -1)) if parallel else None

    def prefill(self, ids: Sequence[int]) -> None:
        self.ids, self.rows = list(ids), []
        for _ in ids[1:]:
            self._commit()

    def _commit(self) -> None:
        t = len(self.rows)
        seen = self.model._seen(self.rows, [], t)
        self.rows.append(self.model.forward(self.ids[t + 1], self.model.fuse(self.states[t]), t, seen, self.length))

    def draft(self) -> list[int]:
        """K target ids, and the rows of steps 1..K."""
        if not self.rows:
            return []
        model, row, last, self.own = self.model, len(self.rows) - 1, self.rows[-1], list[Row]()
        drafted = []
        for k in range(1, self.steps + 1):
            drafted.append(to_target(int(last.logits.argmax()), self.d2t))
            seen = model._seen(self.rows, self.own, row + k if model.moving_windows else row)
            token, hidden = drafted[-1], last.feedback
            if self.masked is not None:
                assert model.mask_token is not None
                token, hidden = model.mask_token, self.masked
            last = model.forward(token, hidden, model._position(row, k), seen, self.length + k)
            self.own.append(last)
        return drafted

    def emit(self, accepted: Sequence[int], bonus: int | None) -> None:
        tokens = [*accepted, *([] if bonus is None else [bonus])]
        if self.keep:
            self.rows += self.own[: len(accepted)] if accepted else []
        self.ids += tokens
        while len(self.rows) < len(self.ids) - 1:
            self._commit()


def decode(server: PlainServer, ids: Sequence[int], start: int, stop: int) -> list[PlainRound]:
    """The rounds of one run of supervised tokens start..stop-1."""
    server.prefill(ids[: start + 1])
    found, known = [], start
    while known < stop - 1:
        drafted, accepted = server.draft(), 0
        while (
            accepted < len(drafted) and known + accepted + 1 < stop and drafted[accepted] == ids[known + accepted + 1]
        ):
            accepted += 1
        after = known + accepted + 1
        found.append(PlainRound(known, drafted, accepted, ids[after] if after < stop else None))
        server.emit(drafted[:accepted], found[-1].bonus)
        known = len(server.ids) - 1
    return found


def agreeable_text(server: PlainServer, start: int, vocab: int, seed: int) -> list[int]:
    """T token ids of which many are what the server drafts: of each round none, all or some drafts are taken in turn,
    then any other token; the first `start` + 1 are any tokens."""
    rng, turns = random.Random(seed), itertools.cycle([0, server.steps, 1, server.steps, 2])
    server.prefill([rng.randrange(3, vocab) for _ in range(start + 1)])
    while len(server.ids) < server.length + 1:
        drafted, left = server.draft(), server.length - len(server.ids)
        taken = drafted[: min(next(turns), left)]
        wrong = [i for i in range(3, vocab) if len(taken) == len(drafted) or i != drafted[len(taken)]]
        server.emit(taken, rng.choice(wrong))
    return server.ids
