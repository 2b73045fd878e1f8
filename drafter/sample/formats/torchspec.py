"""Debug dumps of TorchSpec's trainer: a table with `step`, `rank` and `batch`, the tensors of B texts side by side."""

from __future__ import annotations

from typing import Any

from drafter.sample.fields import flat, make_slots, read_ids, read_mask, split_width
from drafter.sample.formats.batch import batch_size, cut_padding, entry
from drafter.sample.formats.layouts import DEFAULT_AUX, last_layout
from drafter.sample.sample import POST, PRE, Claim, Sample
from drafter.sample.source import Reader, Source

NAME = "TorchSpec (save_debug_train_data)"
STATES, LAST, FLAG = "hidden_states", "last_hidden_states", "last_hidden_states_prenorm"
_OUTSIDE = (STATES, LAST)  # written beside the batch by callers that had them apart


def fits(content: Any) -> bool:
    if not isinstance(content, dict) or "step" not in content or not isinstance(content.get("batch"), dict):
        return False
    return "input_ids" in content["batch"] and (STATES in content["batch"] or STATES in content)


def batch(content: dict[Any, Any]) -> dict[Any, Any]:
    outside = {key: content[key] for key in _OUTSIDE if content.get(key) is not None}
    return outside | {key: value for key, value in content["batch"].items() if value is not None}


def parts(source: Source) -> int:
    return batch_size(batch(source.content))


def read(source: Source) -> Sample:
    content = batch(source.content)
    sample = read_states(source, content, NAME)
    return cut_padding(sample, entry(content, "attention_mask", source.part, source.path))


def read_states(source: Source, content: dict[Any, Any], name: str) -> Sample:
    """`hidden_states` [T, n * H] and, where it is there, `last_hidden_states` [T, H] of one text of `content`."""
    part, path = source.part, source.path
    ids = read_ids(entry(content, "input_ids", part, path), "input_ids", path)
    mask, warnings = read_mask(entry(content, "loss_mask", part, path), ids.numel(), path)
    wide = flat(entry(content, STATES, part, path), STATES, path)
    stored = entry(content, LAST, part, path)
    last = [] if stored is None else [flat(stored, LAST, path)]
    states = split_width(wide, last[0].shape[1] if last else source.width, STATES, path)
    claim, said = _last(content.get(FLAG)) if last else (None, [])
    layouts = [*[None] * len(states), *[claim] * len(last)]
    slots = make_slots([*states, *last], ids.numel(), path, layouts)
    return Sample(path, name, ids, mask, slots, (*warnings, *said), aux_rule=DEFAULT_AUX)


def _last(flag: Any) -> tuple[Claim, list[str]]:
    if isinstance(flag, bool):
        return last_layout(f"{FLAG} of the recording", PRE if flag else POST), []
    said = "nothing says whether the last state is before the target's final norm (vLLM) or after it (SGLang, HF); "
    return last_layout("TorchSpec's layout"), [said + "dumps from before 2026-04-27 hold the layer before it"]


READER = Reader(
    NAME,
    "step, and batch with input_ids, loss_mask [B, T], hidden_states [B, T, n * H], last_hidden_states [B, T, H]",
    fits,
    read,
    parts,
)
