"""Chains as a program with a fault would draft them, token by token: see `Wiring` for what each fault is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference.drafter import Chain, ReferenceDrafter, Row, to_target


@dataclass(frozen=True)
class Program:
    """A program's habits; the defaults are right."""

    row_ids: str = "next"
    feedback: str = "own"
    fed_ids: str = "target"
    draft_keys: str = "kept"

    def chain(
        self, drafter: ReferenceDrafter, ids: Sequence[int], states: Tensor, row: int, steps: int, d2t: Sequence[int]
    ) -> Chain:
        """`steps` drafts from `row`, as `ReferenceDrafter.chain` makes them but for the faults; states [T, A, Ht]."""
        rows: list[Row] = []
        for t in range(row + 1):
            token = ids[t] if self.row_ids == "same" else ids[t + 1]
            seen = [[r.kv[layer] for r in rows] for layer in range(drafter.num_layers)]
            rows.append(drafter.forward(token, drafter.fuse(states[t]), t, seen))
        last, own = rows[-1], list[Row]()
        chosen: list[int] = []
        logits: list[Tensor] = []
        for k in range(steps):
            if k:
                token = chosen[-1] if self.fed_ids == "draft" else to_target(chosen[-1], d2t)
                looked_at = {"kept": [*rows, *own], "forgotten": rows, "alone": own}[self.draft_keys]
                seen = [[r.kv[layer] for r in looked_at] for layer in range(drafter.num_layers)]
                last = drafter.forward(token, self._fed(drafter, last, states[row]), row + k, seen)
                own.append(last)
            chosen.append(int(last.logits.argmax()))
            logits.append(last.logits)
        return Chain(chosen, [to_target(d, d2t) for d in chosen], torch.zeros(0), torch.stack(logits))

    def _fed(self, drafter: ReferenceDrafter, last: Row, states: Tensor) -> Tensor:
        if self.feedback == "first":
            return drafter.fuse(states)
        if self.feedback == "through_fc":
            return drafter.fuse(torch.stack([last.feedback] * len(states)))
        return last.feedback
