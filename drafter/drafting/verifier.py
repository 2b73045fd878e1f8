"""What the target itself would have said, from its recorded last state, its final norm and its head.

Only where the sample records the state after the target's last layer; a state from another depth gives a logit lens,
not the verifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drafter.checkpoint.target import TargetFolder
from drafter.checkpoint.vocab_map import VocabMap
from drafter.model.device import Placement
from drafter.model.norm import rms_norm
from drafter.sample.sample import Sample

ROWS = 256
HEAD_ROWS = 16_384  # rows of the head in memory at once


@dataclass(frozen=True)
class VerifierChoice:
    """Entry t is the choice after x[0..t]: `full` [T] target ids, `draft` [T] draft ids among the draft vocabulary."""

    full: Tensor
    draft: Tensor


def why_not(sample: Sample, target: TargetFolder | None) -> str | None:
    """The reason why the verifier's choice cannot be computed, or None."""
    if target is None:
        return "no target folder: name it with --target"
    if target.head is None:
        return "the target folder has no lm_head"
    if target.norm is None:
        return "the target folder has no final norm"
    if last_slot(sample) is None:
        return "no recorded slot is known to be the verifier's last state: say which with --slots"
    if target.head.shape[1] != sample.width:
        return f"the target's head is {target.head.shape[1]} wide, the recorded states {sample.width}"
    if target.norm.shape[0] != sample.width:
        return f"the target's norm is {target.norm.shape[0]} wide, the recorded states {sample.width}"
    return None


def last_slot(sample: Sample) -> int | None:
    return next((slot.index for slot in sample.slots if slot.claim and slot.claim.is_last), None)


def verifier_choice(
    sample: Sample, target: TargetFolder, vocab: VocabMap, placement: Placement, poll: Callable[[], None] = lambda: None
) -> VerifierChoice:
    """The verifier's argmax over the full and over the draft vocabulary, ties to the lowest id.

    Call it only where `why_not` gives None.
    """
    slot = last_slot(sample)
    assert slot is not None and target.head is not None and target.norm is not None
    weight = target.norm.read().to(placement.device, placement.dtype)
    if target.norm_is_one_plus_weight:
        weight = weight + 1
    states = sample.slots[slot].tensor.rows(0, sample.length).to(placement.device, placement.dtype)
    hidden = rms_norm(states, weight, target.rms_norm_eps)  # [T, Ht]
    best = hidden.new_full((sample.length,), float("-inf"), dtype=torch.float32)
    full = torch.zeros(sample.length, dtype=torch.int64, device=placement.device)
    among = torch.full_like(best, float("-inf"))
    draft = torch.zeros_like(full)
    draft_ids = vocab.draft_ids.to(placement.device)
    for start in range(0, target.head.shape[0], HEAD_ROWS):
        stop = min(start + HEAD_ROWS, target.head.shape[0])
        head = target.head.rows(start, stop).to(placement.device, placement.dtype)  # [n, Ht]
        rows = draft_ids[start : min(stop, len(draft_ids))]
        inside = (rows >= 0).nonzero().flatten()
        for block in torch.arange(sample.length, device=placement.device).split(ROWS):
            poll()
            logits = (hidden[block] @ head.T).float()  # [rows, n]
            _keep_best(logits, block, best, full, start)
            if inside.numel():
                _keep_best_draft(logits[:, inside], rows[inside], block, among, draft)
    return VerifierChoice(full.cpu(), draft.cpu())


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
