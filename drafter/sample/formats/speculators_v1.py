"""`data_{i}.pt` of speculators 0.3 to 0.7: a list of [T, H] states, ids and loss mask in one torch file."""

from __future__ import annotations

from typing import Any

from drafter.sample.fields import make_slots, read_ids, read_mask, split_states
from drafter.sample.sample import Sample
from drafter.sample.source import Reader, Source

NAME = "speculators v1 (data_{i}.pt)"


def fits(content: Any) -> bool:
    return isinstance(content, dict) and "input_ids" in content and isinstance(content.get("hidden_states"), list)


def read(source: Source) -> Sample:
    content, path = source.content, source.path
    ids = read_ids(content["input_ids"], "input_ids", path)
    mask, warnings = read_mask(content.get("loss_mask"), ids.numel(), path)
    states = split_states(content["hidden_states"], ids.numel(), source.width, "hidden_states", path)
    return Sample(path, NAME, ids, mask, make_slots(states, ids.numel(), path), tuple(warnings))


READER = Reader(NAME, "input_ids [T], hidden_states a list of [T, H], loss_mask [T]", fits, read)
