"""`data_{i}.ckpt` of EAGLE 1 and 2: `hidden_state` [T, H], the verifier's last state after its final norm, alone."""

from __future__ import annotations

from typing import Any

from drafter.sample.formats.aux_and_last import Keys
from drafter.sample.formats.aux_and_last import read as read_keys
from drafter.sample.formats.batch import shape_of
from drafter.sample.sample import POST, Claim, Sample
from drafter.sample.source import Reader, Source

NAME = "EAGLE-1/2 (data_{i}.ckpt)"
KEYS = Keys(NAME, None, "hidden_state", Claim("last", "EAGLE-1/2 layout", is_last=True, norm=POST))
# then it is not alone
_OTHERS = {"target", "target_hidden_states", "aux_hidden_state", "aux_hidden_states", "hidden_state_features"}


def fits(content: Any) -> bool:
    state = shape_of(content, "hidden_state")
    if state is None or shape_of(content, "input_ids") is None:
        return False
    return len(state) == 2 and not _OTHERS & content.keys()


def read(source: Source) -> Sample:
    return read_keys(source, KEYS)


READER = Reader(NAME, "input_ids [T], hidden_state [T, H], loss_mask [T]", fits, read)
