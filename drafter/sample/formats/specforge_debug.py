"""`<sample_id>.ckpt` of SpecForge's debug tap: the names of training, `hidden_state` [B, T, 3H] and `target` [B, T, H].

The name `hidden_state` means the other tensor in SpecForge's offline files.
"""

from __future__ import annotations

from typing import Any

from drafter.sample.formats.aux_and_last import Keys, parts
from drafter.sample.formats.aux_and_last import read as read_keys
from drafter.sample.formats.batch import cut_padding, entry, shape_of
from drafter.sample.formats.specforge import AUX_RULE, LAST
from drafter.sample.sample import Sample
from drafter.sample.source import Reader, Source

NAME = "SpecForge debug tap ({sample_id}.ckpt)"
KEYS = Keys(NAME, "hidden_state", "target", LAST, AUX_RULE)


def fits(content: Any) -> bool:
    shapes = [shape_of(content, key) for key in ("input_ids", "hidden_state", "target")]
    return all(shapes) and ("attention_mask" in content or all(len(shape or ()) == 3 for shape in shapes[1:]))


def read(source: Source) -> Sample:
    sample = read_keys(source, KEYS)
    return cut_padding(sample, entry(source.content, "attention_mask", source.part, sample.path))


READER = Reader(
    NAME, "input_ids, attention_mask, loss_mask [B, T], hidden_state [B, T, 3H], target [B, T, H]", fits, read, parts
)
