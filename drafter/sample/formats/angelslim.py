"""`rows_{a}-{b}/data_{i}.ckpt` of AngelSlim: `hidden_states` [1, T, 3H] for fc, `target_hiddens` [1, T, H].

What it records of images beside them, `position_ids` and `inputs_embeds`, has no place in a Sample and is named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drafter.sample.formats.aux_and_last import Keys, parts
from drafter.sample.formats.aux_and_last import read as read_keys
from drafter.sample.formats.batch import shape_of
from drafter.sample.sample import POST, Claim, Sample
from drafter.sample.source import Reader, Source

NAME = "AngelSlim (data_{i}.ckpt)"
KEYS = Keys(
    NAME,
    "hidden_states",
    "target_hiddens",
    Claim("last", "AngelSlim layout", is_last=True, norm=POST),
    "2, L//2, L-3",
)
_UNUSED = ("position_ids", "inputs_embeds")


def fits(content: Any) -> bool:
    return all(shape_of(content, key) for key in ("input_ids", "hidden_states", "target_hiddens"))


def read(source: Source) -> Sample:
    sample = read_keys(source, KEYS)
    unused = [key for key in _UNUSED if shape_of(source.content, key) is not None]
    if not unused:
        return sample
    said = f"{' and '.join(unused)} of a text with images are not used: tokens and positions stand for themselves"
    return replace(sample, warnings=(*sample.warnings, said))


READER = Reader(
    NAME, "input_ids, loss_mask [1, T], hidden_states [1, T, 3H], target_hiddens [1, T, H]", fits, read, parts
)
