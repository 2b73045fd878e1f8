"""Heads of the toy drafter that were really trained on wrong labels: x[t + n] at row t, where n should be 2."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from drafter.drafting.chains import forward
from drafter.drafting.context import SampleRun
from drafter.session import Session
from drafter.wiring import Wiring
from tests.faults.world import SIZES, healthy, record, write_world

TEXTS, ROUNDS = 40, 300


@cache
def head_for(n: int) -> Tensor:
    """[D, H], on the drafter's own normed hidden states."""
    with tempfile.TemporaryDirectory() as folder:
        world = replace(healthy(), samples=tuple(record(seed) for seed in range(TEXTS)))
        session = write_world(Path(folder), world)
        pairs = [_pairs(session, path, n) for path in session.list_samples().paths]
    hidden, labels = torch.cat([h for h, _ in pairs]), torch.cat([y for _, y in pairs])
    rng = torch.Generator().manual_seed(17)
    head = (0.02 * torch.randn(SIZES.draft_vocab, SIZES.hidden, generator=rng)).requires_grad_()
    adam = torch.optim.Adam([head], lr=0.03)
    for _ in range(ROUNDS):
        adam.zero_grad()
        F.cross_entropy(hidden @ head.T, labels).backward()  # type: ignore[no-untyped-call]
        adam.step()
    return head.detach()


def _pairs(session: Session, path: Path, n: int) -> tuple[Tensor, Tensor]:
    """hidden [m, H] after the final norm and draft ids [m] of the rows whose label can be drafted."""
    drafter, wiring = session.load(), Wiring.trained(session.checkpoint.run_config)
    run = SampleRun(drafter, session.open_sample(path))
    context, rows = run.context((1, 2, 3), wiring, run.rows, lambda: None), torch.arange(run.rows)
    hidden, _ = forward(drafter, run.given(context, rows), run.place(rows, 0, wiring), context.seen(run.rows), 0)
    normed = drafter.feedback(hidden, replace(wiring, norm_output=True))
    known = drafter.vocab(wiring).draft_ids[run.ids[n:][: run.rows]]
    there = (known >= 0).nonzero().flatten()
    return normed[there], known[there]
