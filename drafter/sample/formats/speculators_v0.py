"""`data_{i}.ckpt` of speculators' research scripts, up to 0.2: `hidden_state` [T, 3H] for fc, `target` [T, H]."""

from __future__ import annotations

from typing import Any

from drafter.sample.formats.aux_and_last import Keys, parts
from drafter.sample.formats.aux_and_last import read as read_keys
from drafter.sample.formats.batch import shape_of
from drafter.sample.sample import POST, Claim, Sample
from drafter.sample.source import Reader, Source

NAME = "speculators v0 (data_{i}.ckpt)"
KEYS = Keys(
    NAME, "hidden_state", "target", Claim("last", "speculators v0 layout", is_last=True, norm=POST), "3, L//2+1, L-2"
)


def fits(content: Any) -> bool:
    shapes = [shape_of(content, key) for key in ("input_ids", "hidden_state", "target")]
    # SpecForge's debug tap has the same two names, with a batch dimension and an attention mask
    return all(shapes) and "attention_mask" not in content and all(len(shape or ()) == 2 for shape in shapes[1:])


def read(source: Source) -> Sample:
    return read_keys(source, KEYS)


READER = Reader(NAME, "input_ids [T], hidden_state [T, 3H], target [T, H], loss_mask [T]", fits, read, parts)
