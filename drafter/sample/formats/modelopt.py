"""`{conversation_id}.pt` of NVIDIA ModelOpt: the last state [T, H] beside the others [T, n * H] in one torch file.

The dumpers for HF, vLLM and TensorRT-LLM write the same keys; which one wrote a file it does not say, and with it
neither the depths nor the side of the final norm on which the last state lies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter.files.stored import StoredTensor
from drafter.sample.fields import flat, make_slots, read_mask, split_states
from drafter.sample.formats.int_lists import ids_of
from drafter.sample.formats.layouts import DEFAULT_AUX, last_layout
from drafter.sample.sample import POST, PRE, Claim, Sample
from drafter.sample.source import Reader, Source

NAME = "ModelOpt ({conversation_id}.pt)"
FLAG = "hidden_states_prenorm"
AUX = ("aux_hidden_states", "hidden_state_features")  # the second in files that TensorRT-LLM's dumper left so


def fits(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and {"input_ids", "hidden_states"} <= content.keys()
        and isinstance(content["hidden_states"], StoredTensor)
        and any(key in content for key in AUX)
    )


def read(source: Source) -> Sample:
    content, path = source.content, source.path
    ids = ids_of(content["input_ids"], "input_ids", path)
    last = flat(content["hidden_states"], "hidden_states", path)
    states = aux_states(content, ids.numel(), last, path)
    mask, warnings = read_mask(content.get("loss_mask"), ids.numel(), path)
    claim, assumed = _last(content)
    layouts = [*[None] * len(states), claim]
    slots = make_slots([*states, last], ids.numel(), path, layouts)
    rule = DEFAULT_AUX if states else ""
    return Sample(path, NAME, ids, mask, slots, (*warnings, *assumed), aux_rule=rule)


def aux_states(content: dict[Any, Any], length: int, last: StoredTensor, path: Path) -> list[StoredTensor]:
    """The states beside the last one, of its width; none where the file holds an empty tensor."""
    key = next((key for key in AUX if key in content), "")
    value = content.get(key)
    if value is None or (isinstance(value, StoredTensor) and value.numel == 0):
        return []
    return split_states(value, length, last.shape[1], key, path)


def _last(content: dict[Any, Any]) -> tuple[Claim, list[str]]:
    flag = content.get(FLAG)
    if isinstance(flag, bool):
        return last_layout(f"{FLAG} in the file", PRE if flag else POST), []
    said = f"the file does not say {FLAG}: its last state is taken as after the final norm, as the trainer takes it; "
    claim = last_layout("ModelOpt's trainer: after the norm unless the file says otherwise", POST, assumed=True)
    return claim, [said + "dumps of vLLM are before it without saying so"]


READER = Reader(
    NAME,
    "input_ids [T], hidden_states [T, H], aux_hidden_states [T, n * H], loss_mask [T], hidden_states_prenorm",
    fits,
    read,
)
