"""`{prefix}_{iteration}.pt` of TensorRT-LLM's SaveHiddenStates: a list with one table for each request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drafter.errors import SampleError
from drafter.files.stored import StoredTensor
from drafter.sample.fields import flat, make_slots, read_ids, read_mask
from drafter.sample.formats.layouts import DEFAULT_AUX, last_layout
from drafter.sample.formats.modelopt import aux_states
from drafter.sample.sample import POST, Sample
from drafter.sample.source import Reader, Source

NAME = "TensorRT-LLM (list of input_ids, hidden_state)"
_COMPARED = 8  # rows


def fits(content: Any) -> bool:
    return isinstance(content, list) and bool(content) and _is_request(content[0])


def _is_request(value: Any) -> bool:
    return isinstance(value, dict) and {"input_ids", "hidden_state"} <= value.keys()


def parts(source: Source) -> int:
    return len(source.content)


def read(source: Source) -> Sample:
    request, path = source.content[source.part], source.path
    if not _is_request(request):
        raise SampleError(f"entry {source.part} is no request", expected="input_ids and hidden_state", where=path)
    ids = read_ids(request["input_ids"], "input_ids", path)
    last = flat(request["hidden_state"], "hidden_state", path)
    states, dropped = _without_last(aux_states(request, ids.numel(), last, path), last, path)
    mask, warnings = read_mask(request.get("loss_mask"), ids.numel(), path)
    layouts = [*[None] * len(states), last_layout("TensorRT-LLM's layout", POST)]
    slots = make_slots([*states, last], ids.numel(), path, layouts)
    rule = DEFAULT_AUX if states else ""
    return Sample(path, NAME, ids, mask, slots, (*warnings, *dropped), aux_rule=rule)


def _without_last(states: list[StoredTensor], last: StoredTensor, path: Path) -> tuple[list[StoredTensor], list[str]]:
    """`states` less their own copy of `last`, which stands among them when the last layer was asked for by its id."""
    if not states or states[-1].shape != last.shape or states[-1].dtype != last.dtype or not last.shape[0]:
        return states, []
    rows = min(_COMPARED, last.shape[0])
    if not bool((states[-1].rows(0, rows) == last.rows(0, rows)).all()):
        return states, []
    return states[:-1], ["the recorded states end with the last state itself: shown once"]


READER = Reader(
    NAME,
    "a list of tables with input_ids [T], hidden_state [T, H], hidden_state_features or aux_hidden_states [T, n * H]",
    fits,
    read,
    parts,
)
