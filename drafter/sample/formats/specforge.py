"""`rows_{a}-{b}/data_{i}.ckpt` (or .ckpt.gz) of SpecForge: `aux_hidden_state` [1, T, 3H], `hidden_state` [1, T, H].

Later versions save whole batches row by row, each as long as the longest: the padding is cut here. Without
`--enable-aux-hidden-states` only the last state is there.
"""

from __future__ import annotations

from typing import Any

from drafter.sample.formats.aux_and_last import Keys, parts
from drafter.sample.formats.aux_and_last import read as read_keys
from drafter.sample.formats.batch import cut_padding, shape_of
from drafter.sample.sample import POST, Claim, Sample
from drafter.sample.source import Reader, Source

NAME = "SpecForge (data_{i}.ckpt)"
LAST = Claim("last", "SpecForge layout", is_last=True, norm=POST)
AUX_RULE = "2, L//2, L-3"
_OTHERS = {"target", "target_hidden_states"}  # then hidden_state is not the last
KEYS = Keys(NAME, "aux_hidden_state", "hidden_state", LAST, AUX_RULE)


def fits(content: Any) -> bool:
    last = shape_of(content, "hidden_state")
    if last is None or shape_of(content, "input_ids") is None or _OTHERS & content.keys():
        return False
    return "aux_hidden_state" in content or (len(last) == 3 and last[0] == 1)


def read(source: Source) -> Sample:
    return cut_padding(read_keys(source, KEYS))


READER = Reader(
    NAME,
    "input_ids [T], aux_hidden_state [1, T, 3H] (may be absent), hidden_state [1, T, H], loss_mask [T]",
    fits,
    read,
    parts,
)
