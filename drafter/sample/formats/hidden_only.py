"""States without a target: `hidden_states` [T, n * H], as SpecForge and AngelSlim record them for block drafters.

Which layers they are no file says, and none is the verifier's last state; H is the width that the drafter expects.
"""

from __future__ import annotations

from typing import Any

from drafter.sample.fields import flat, make_slots, read_ids, read_mask, split_width
from drafter.sample.formats.aux_and_last import parts
from drafter.sample.formats.batch import batch_size, cut_padding, entry, shape_of
from drafter.sample.sample import Sample
from drafter.sample.source import Reader, Source

NAME = "states without a target (SpecForge or AngelSlim, for DFlash)"
# keys of layouts that say more about what they record
_OTHERS = {
    *("aux_hidden_state", "aux_hidden_states", "hidden_state", "hidden_state_features", "last_hidden_states"),
    *("target", "target_hiddens", "target_probs", "target_probs_values", "conversation_id", "token_ids", "batch"),
    "packed_loss_mask",
}


def fits(content: Any) -> bool:
    states, ids = shape_of(content, "hidden_states"), shape_of(content, "input_ids")
    if states is None or ids is None or _OTHERS & content.keys():
        return False
    return len(states) == 2 or (len(states) == 3 and states[0] == batch_size(content))


def read(source: Source) -> Sample:
    content, part, path = source.content, source.part, source.path
    ids = read_ids(entry(content, "input_ids", part, path), "input_ids", path)
    mask, warnings = read_mask(entry(content, "loss_mask", part, path), ids.numel(), path)
    wide = flat(entry(content, "hidden_states", part, path), "hidden_states", path)
    states = split_width(wide, source.width, "hidden_states", path)
    sample = Sample(path, NAME, ids, mask, make_slots(states, ids.numel(), path), tuple(warnings))
    return cut_padding(sample, entry(content, "attention_mask", part, path))


READER = Reader(
    NAME, "input_ids, loss_mask [T] or [1, T], hidden_states [T, n * H] or [1, T, n * H]", fits, read, parts
)
