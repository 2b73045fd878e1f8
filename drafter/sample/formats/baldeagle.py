"""`data_{i}.ckpt` of BaldEagle: `hidden_state` [3, T, H], layer by layer, without the verifier's last state.

Its EAGLE-3 trainer reads `hidden_state` [1, T, 3H] and `target_hidden_states` [1, T, H], which it gives to the head as
they are: they have passed the final norm, though no file says so.
"""

from __future__ import annotations

from math import prod
from typing import Any

from drafter.sample.fields import MAX_SLOTS, flat, make_slots, read_ids, read_mask, split_states
from drafter.sample.formats.batch import shape_of
from drafter.sample.sample import POST, Claim, Sample
from drafter.sample.source import Reader, Source

NAME = "BaldEagle (data_{i}.ckpt)"
LAST_KEY = "target_hidden_states"
_LAST = Claim("last", "BaldEagle layout", is_last=True, norm=POST, assumed=True)


def fits(content: Any) -> bool:
    states, ids = shape_of(content, "hidden_state"), shape_of(content, "input_ids")
    if states is None or ids is None or {"target", "aux_hidden_state"} & content.keys():
        return False
    layers_first = len(states) == 3 and 1 < states[0] <= MAX_SLOTS and states[1] == prod(ids)
    return layers_first or shape_of(content, LAST_KEY) is not None


def read(source: Source) -> Sample:
    content, path = source.content, source.path
    ids = read_ids(content["input_ids"], "input_ids", path)
    mask, warnings = read_mask(content.get("loss_mask"), ids.numel(), path)
    last = None if content.get(LAST_KEY) is None else flat(content[LAST_KEY], LAST_KEY, path)
    width = last.shape[1] if last is not None else source.width
    states = split_states(content["hidden_state"], ids.numel(), width, "hidden_state", path)
    found = states if last is None else [*states, last]
    layouts = [*[None] * len(states), *([] if last is None else [_LAST])]
    slots = make_slots(found, ids.numel(), path, layouts)
    return Sample(path, NAME, ids, mask, slots, tuple(warnings), aux_rule="2, L//2, L-3")


READER = Reader(
    NAME,
    "input_ids [T], hidden_state [3, T, H] (or [1, T, 3H] with target_hidden_states [1, T, H]), loss_mask [T]",
    fits,
    read,
)
