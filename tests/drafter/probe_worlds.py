"""A tiny text whose last state truly predicts it, and its faults: what probes and contradictions are tested on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from drafter.checkpoint.target import TargetFolder, open_target
from drafter.sample.claims import claim_slots
from drafter.sample.open import open_sample
from drafter.sample.probes.contradictions import Contradiction, contradictions
from drafter.sample.probes.last_state import lens_of
from drafter.sample.probes.probe import SlotProbe, probe_slots
from drafter.sample.sample import Sample
from tests import tiny

WEIGHTS = tiny.tiny_weights()
TABLE = WEIGHTS["embed_tokens.weight"]
TARGET = tiny.target_weights(WEIGHTS)
NORM, HEAD = TARGET["model.norm.weight"], TARGET["lm_head.weight"]
EPS = tiny.SIZES.eps
TOKENS = 120
CLAIMS = "embed,2,4,last"


def final_norm(states: Tensor, weight: Tensor = NORM, eps: float = EPS) -> Tensor:
    """RMSNorm of [n, Ht], written out."""
    x = states.double()
    return (x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()).bfloat16()


def predicting(seed: int = 0, tokens: int = TOKENS, right: float = 0.9) -> tiny.TinySample:
    """A text of which the last slot (depth 8, before the norm) names the next token in `right` of the rows.

    Each of its rows is a positive multiple of what the head's own row of the token wants, undone by the norm's weight,
    plus noise; the other rows want a token at random.
    """
    sample = tiny.tiny_sample(seed, WEIGHTS, tokens=tokens, depths=tiny.ARROW_DEPTHS)
    rng = torch.Generator().manual_seed(seed)
    wanted = torch.tensor([*sample.ids[1:], sample.ids[0]])
    other = torch.rand(tokens, generator=rng) > right
    wanted = torch.where(other, torch.randint(3, tiny.SIZES.vocab, (tokens,), generator=rng), wanted)
    noise = torch.randn(tokens, tiny.SIZES.target_width, generator=rng)
    last = 40 * (HEAD[wanted] / NORM + 0.02 * noise)
    sample.slots[:, 3] = last.bfloat16()
    return sample


@dataclass
class Probed:
    sample: Sample
    probes: list[SlotProbe]

    @property
    def found(self) -> list[Contradiction]:
        return contradictions(self.sample, self.probes)

    @property
    def said(self) -> str:
        return "\n".join(one.text for one in self.found)


def probed(
    folder: Path,
    change: Callable[[Tensor], object] = lambda slots: None,
    claims: str | None = CLAIMS,
    norm: str = "",
    table: Tensor | None = TABLE,
    text: tiny.TinySample | None = None,
    target: TargetFolder | None = None,
    with_target: bool = True,
) -> Probed:
    """The states [T, S, Ht] of a text changed, written, opened, claimed and probed. `norm` is of the last's claim."""
    text = text if text is not None else predicting()
    changed = replace(text, slots=text.slots.clone())
    change(changed.slots)
    sample = claim_slots(open_sample(tiny.write_v1_sample(folder / "data_0.pt", changed)), claims, None, 8)
    if norm:
        marked = [replace(s.claim, norm=norm) if s.claim and s.claim.is_last else s.claim for s in sample.slots]
        sample = sample.with_claims(marked)
    if target is None and with_target:
        target = open_target(tiny.write_target(folder / "target", WEIGHTS))
    lens = lens_of(target if with_target else None, sample.width, None, None)
    rows = None if table is None else (lambda ids: table[ids])
    return Probed(sample, probe_slots(sample, rows, lens))


def shift(rows: int) -> Callable[[Tensor], object]:
    """States that come `rows` too late (or too early), the ends repeated."""

    def change(slots: Tensor) -> None:
        slots[:] = slots[(torch.arange(slots.shape[0]) - rows).clamp(0, slots.shape[0] - 1)]

    return change
