"""What the target itself would have said, from its recorded last state, its final norm and its head.

Only where the sample records the state after the target's last layer; a state from another depth gives a logit lens,
not the verifier. Where the recording holds the verifier's distribution instead, its choice is taken as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.checkpoint.target import TargetFolder
from drafter.checkpoint.vocab_map import VocabMap
from drafter.model.device import Placement
from drafter.model.norm import rms_norm
from drafter.sample.probes.probe import SlotProbe
from drafter.sample.sample import POST, PRE, Sample, States

ROWS = 256  # states that meet a block of the head at once
READ_ROWS = 512  # states that are read at once
HEAD_ROWS = 16_384  # rows of the head in memory at once
HEAD_BYTES = 1 << 28  # and no more than this, in float32
STATE_BYTES = 1 << 29  # of states in memory at once, in float32; the head is read again for each so many


@dataclass(frozen=True)
class VerifierChoice:
    """Entry t is the choice after x[0..t]: `full` [T] target ids, `draft` [T] draft ids among the draft vocabulary.

    `full` is None where only the choice among the draft vocabulary was recorded; `draft` is -1 where there is none.
    """

    full: Tensor | None
    draft: Tensor


def recorded_choice(sample: Sample, vocab: VocabMap) -> tuple[VerifierChoice | None, str]:
    """The choice that the recording itself holds, or None; and why there is no more."""
    if sample.verifier_draft is None:
        return None, "the recording holds no distribution of the verifier"
    chosen = sample.verifier_draft()
    drafts = vocab.target_ids.numel()
    if chosen.numel() and int(chosen.max()) >= drafts:
        return None, f"the recorded distribution names draft id {int(chosen.max())}, the drafter has {drafts}"
    why = "the recording holds the verifier's distribution over the draft vocabulary only"
    return VerifierChoice(None, chosen), why


def why_not(sample: Sample, target: TargetFolder | None, norm: str = PRE) -> str | None:
    """The reason why the verifier's choice cannot be computed from a last state that is `norm`, or None."""
    if target is None:
        return "no target folder: name it with --target"
    if target.head is None:
        return "the target folder has no lm_head"
    if target.norm is None and norm != POST:
        return "the target folder has no final norm"
    if last_slot(sample) is None:
        return "no recorded slot is known to be the verifier's last state: say which with --slots"
    if target.head.shape[1] != sample.width:
        return f"the target's head is {target.head.shape[1]} wide, the recorded states {sample.width}"
    if norm != POST and target.norm is not None and target.norm.shape[0] != sample.width:
        return f"the target's norm is {target.norm.shape[0]} wide, the recorded states {sample.width}"
    return None


def last_slot(sample: Sample) -> int | None:
    return next((slot.index for slot in sample.slots if slot.claim and slot.claim.is_last), None)


def last_norm(sample: Sample, probes: Sequence[SlotProbe]) -> tuple[str, str]:
    """Whether the last state is before (`pre`) or after (`post`) the final norm: as claimed, else as the data shows.

    A claim that is only a producer's default gives way to the data. The second says in words what the data decided.
    """
    index = last_slot(sample)
    claim = sample.slots[index].claim if index is not None else None
    said = claim.norm if claim is not None else ""
    if claim is None or (said and not claim.assumed):
        return said or PRE, ""
    probe = next((p for p in probes if p.index == index), None)
    shown = probe.is_post_norm if probe is not None else None
    if probe is None or shown is None or shown == (said == POST):
        return said or PRE, ""
    rows = f"{probe.post_norm} compared rows"
    if shown:
        return POST, f"slot {index} has passed the target's final norm ({rows}), so none is applied to it"
    return PRE, f"slot {index} has not passed the target's final norm ({rows}), so it is applied"


def verifier_choice(
    sample: Sample,
    target: TargetFolder,
    vocab: VocabMap,
    placement: Placement,
    poll: Callable[[], None] = lambda: None,
    norm: str = PRE,
) -> VerifierChoice:
    """The verifier's argmax over the full and over the draft vocabulary, ties to the lowest id.

    The final norm is applied to a last state that is `pre`, not to one that is `post`. Call it only where `why_not`
    gives None. Memory is bounded whatever the sample's length.
    """
    slot = last_slot(sample)
    assert slot is not None and target.head is not None
    states = sample.slots[slot].tensor
    weight = None if norm == POST else _norm_weight(target, placement)
    rows = max(ROWS, STATE_BYTES // (4 * sample.width))
    full, draft = [], []
    for start in range(0, sample.length, rows):
        hidden = _hidden(states, start, min(start + rows, sample.length), weight, target.rms_norm_eps, placement, poll)
        best, among = _choices(hidden, target.head, vocab, placement, poll)
        full.append(best)
        draft.append(among)
    return VerifierChoice(torch.cat(full), torch.cat(draft))


def _norm_weight(target: TargetFolder, placement: Placement) -> Tensor:
    assert target.norm is not None
    weight = target.norm.read().to(placement.device, placement.dtype)
    return weight + 1 if target.norm_is_one_plus_weight else weight


def _hidden(
    states: States,
    start: int,
    stop: int,
    weight: Tensor | None,
    eps: float,
    placement: Placement,
    poll: Callable[[], None],
) -> Tensor:
    """What the head takes: states start..stop-1 [n, Ht], normed where there is a weight."""
    blocks = []
    for at in range(start, stop, READ_ROWS):
        poll()
        block = states.rows(at, min(at + READ_ROWS, stop)).to(placement.device, placement.dtype)
        blocks.append(block if weight is None else rms_norm(block, weight, eps))
    return torch.cat(blocks)


def _choices(
    hidden: Tensor, head: States, vocab: VocabMap, placement: Placement, poll: Callable[[], None]
) -> tuple[Tensor, Tensor]:
    """Target ids [n] and draft ids [n] with the greatest logit for each row of `hidden` [n, Ht]."""
    count = hidden.shape[0]
    best = hidden.new_full((count,), float("-inf"), dtype=torch.float32)
    full = torch.zeros(count, dtype=torch.int64, device=placement.device)
    among = torch.full_like(best, float("-inf"))
    draft = torch.zeros_like(full)
    draft_ids = vocab.draft_ids.to(placement.device)
    for start, stop in _head_blocks(head):
        rows = head.rows(start, stop).to(placement.device, placement.dtype)  # [n, Ht]
        drafts = draft_ids[start : min(stop, len(draft_ids))]
        inside = (drafts >= 0).nonzero().flatten()
        for block in torch.arange(count, device=placement.device).split(ROWS):
            poll()
            logits = (hidden[block] @ rows.T).float()  # [rows, n]
            _keep_best(logits, block, best, full, start)
            if inside.numel():
                _keep_best_draft(logits[:, inside], drafts[inside], block, among, draft)
    return full.cpu(), draft.cpu()


def _head_blocks(head: States) -> Iterator[tuple[int, int]]:
    total, width = head.shape
    rows = max(1, min(HEAD_ROWS, HEAD_BYTES // (4 * width)))
    for start in range(0, total, rows):
        yield start, min(start + rows, total)


def _keep_best(logits: Tensor, block: Tensor, best: Tensor, ids: Tensor, start: int) -> None:
    value, index = logits.max(-1)
    better = value > best[block]
    best[block] = torch.where(better, value, best[block])
    ids[block] = torch.where(better, index + start, ids[block])


def _keep_best_draft(logits: Tensor, draft_rows: Tensor, block: Tensor, best: Tensor, ids: Tensor) -> None:
    value, index = logits.max(-1)
    better = value > best[block]
    best[block] = torch.where(better, value, best[block])
    ids[block] = torch.where(better, draft_rows[index], ids[block])
