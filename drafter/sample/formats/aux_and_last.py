"""Layouts with the states for `fc` side by side under one key, [T, n * H], and the last state [T, H] under another.

Several producers write this under different, even swapped, names; each has a module of its own that says which.
"""

from __future__ import annotations

from dataclasses import dataclass

from drafter.files.stored import StoredTensor
from drafter.sample.fields import flat, make_slots, read_ids, read_mask, split_width
from drafter.sample.formats.batch import batch_size, entry
from drafter.sample.sample import Claim, Sample
from drafter.sample.source import Source


@dataclass(frozen=True)
class Keys:
    """`aux` (None: there are none) and `last` are keys; `claim` is what the layout promises of the last state.

    `name` and `aux_rule` are the Sample's.
    """

    name: str
    aux: str | None
    last: str
    claim: Claim
    aux_rule: str = ""


def parts(source: Source) -> int:
    return batch_size(source.content)


def read(source: Source, keys: Keys) -> Sample:
    """The sample; the width H is that of the last state. A file without aux states has the last alone.

    Raises SampleError where shapes contradict each other.
    """
    content, part, path = source.content, source.part, source.path
    ids = read_ids(entry(content, "input_ids", part, path), "input_ids", path)
    mask, warnings = read_mask(entry(content, "loss_mask", part, path), ids.numel(), path)
    last = flat(entry(content, keys.last, part, path), keys.last, path)
    states, said = _aux_states(source, keys, last.shape[1])
    slots = make_slots([*states, last], ids.numel(), path, [*[None] * len(states), keys.claim])
    return Sample(path, keys.name, ids, mask, slots, (*warnings, *said), aux_rule=keys.aux_rule)


def _aux_states(source: Source, keys: Keys, width: int) -> tuple[list[StoredTensor], list[str]]:
    """The states for fc, each [T, width], and what is to be said of them."""
    if keys.aux is None:
        return [], []
    stored = entry(source.content, keys.aux, source.part, source.path)
    if stored is None or (isinstance(stored, StoredTensor) and not stored.numel):
        return [], [f"no {keys.aux} in the sample: the verifier's last state alone is recorded"]
    return split_width(flat(stored, keys.aux, source.path), width, keys.aux, source.path), []
