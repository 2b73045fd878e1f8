"""What is shown of one row: the ranked predictions, the truth's place among them, and the chain from the row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.drafting.chains import draft_steps
from drafter.drafting.context import SampleRun
from drafter.errors import WiringError
from drafter.wiring import Ordering, Wiring


@dataclass(frozen=True)
class Prediction:
    rank: int
    draft_id: int
    id: int
    logit: float
    prob: float


@dataclass(frozen=True)
class RowReadout:
    """Step 0 of row t: `truth` is x[t+2], None past the end.

    Its rank is 1 for a hit, None outside of the draft vocabulary and where the logits are no numbers.
    """

    row: int
    fed: int
    truth: int | None
    truth_in_vocab: bool
    truth_rank: int | None
    truth_prob: float | None
    predictions: tuple[Prediction, ...]

    @property
    def hit(self) -> bool | None:
        return None if self.truth is None else self.predictions[0].id == self.truth


@dataclass(frozen=True)
class ChainLink:
    """One draft of a chain with the sample's token at its place; `hit` is False where there is no truth."""

    id: int
    truth: int | None
    hit: bool
    prob: float


def read_rows(
    run: SampleRun,
    ordering: Ordering,
    wiring: Wiring,
    rows: list[int],
    top: int = 1,
    poll: Callable[[], None] = lambda: None,
) -> list[RowReadout]:
    """Step 0 of the ascending `rows`, with `top` predictions each. Raises WiringError for rows that are not there."""
    _check_rows(run, rows)
    if not rows:
        return []
    chosen = torch.tensor(rows)
    context = run.context(ordering, wiring, rows[-1] + 1, poll)
    step = next(draft_steps(run, context, chosen, 1, False, poll))
    return _readouts(run, wiring, chosen, step.logits, top)


def _check_rows(run: SampleRun, rows: list[int]) -> None:
    outside = [row for row in rows if not 0 <= row < run.rows]
    if outside:
        raise WiringError(f"row {outside[0]}", expected=f"0..{run.rows - 1}", where=run.sample.path)


def _ranked(logits: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` best logits and their draft ids, both [n, top]; of equals, which bfloat16 makes many, the lowest id."""
    if top == 1:
        best = logits.argmax(-1, keepdim=True)
        return logits.gather(-1, best), best
    values, order = logits.sort(stable=True, dim=-1, descending=True)  # topk breaks ties anyhow
    return values[:, :top], order[:, :top]


def _readouts(run: SampleRun, wiring: Wiring, rows: Tensor, logits: Tensor, top: int) -> list[RowReadout]:
    vocab = run.drafter.vocab(wiring)
    total = logits.logsumexp(-1)  # [n]
    best, draft_ids = _ranked(logits, top)
    ids, probs = run.drafter.to_target(draft_ids, wiring).tolist(), (best - total[:, None]).exp().tolist()
    found = []
    for i, row in enumerate(rows.tolist()):
        truth = int(run.ids[row + 2]) if row + 2 < run.sample.length else None
        draft = int(vocab.draft_ids[truth]) if truth is not None and 0 <= truth < len(vocab.draft_ids) else -1
        rank = prob = None
        if draft >= 0:
            own = logits[i, draft]
            if bool(total[i].isfinite()):  # among numbers that are none, nothing has a place
                ahead = (logits[i] > own).sum() + (logits[i, :draft] == own).sum()
                rank, prob = int(ahead) + 1, float((own - total[i]).exp())
        predictions = tuple(
            Prediction(r + 1, d, t, float(b), p)
            for r, (d, t, b, p) in enumerate(
                zip(draft_ids[i].tolist(), ids[i], best[i].tolist(), probs[i], strict=True)
            )
        )
        found.append(RowReadout(row, int(run.ids[row + 1]), truth, draft >= 0, rank, prob, predictions))
    return found


def read_chain(
    run: SampleRun,
    ordering: Ordering,
    wiring: Wiring,
    row: int,
    depth: int,
    poll: Callable[[], None] = lambda: None,
) -> list[ChainLink]:
    """K = `depth` drafts from `row`, each fed the one before, as a server drafts them. Raises WiringError."""
    _check_rows(run, [row])
    context = run.context(ordering, wiring, row + 1, poll)
    links = []
    for step in draft_steps(run, context, torch.tensor([row]), depth, True, poll):
        best = step.logits[0].argmax()
        token = int(run.drafter.to_target(best, wiring))
        where = row + 2 + step.k
        truth = int(run.ids[where]) if where < run.sample.length else None
        prob = float((step.logits[0, best] - step.logits[0].logsumexp(-1)).exp())
        links.append(ChainLink(token, truth, token == truth, prob))
    return links


def accepted(links: list[ChainLink]) -> int:
    """Leading drafts that are right; the accept length is one more (the bonus token)."""
    count = 0
    for link in links:
        if not link.hit:
            break
        count += 1
    return count
