"""The layout of speculators 0.5 to 0.9: `hidden_states/hs_{row}.safetensors` joined with an arrow table.

The states are token-major, [T, n + 1, H]; ids are in both files and must agree; the loss mask is in the table only.
vLLM's own connector writes the same file under the name of a request, with the layers that it was asked for and no
table. Where the states are float8, each token has a factor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError, FileError, SampleError
from drafter.files.json_file import read_json
from drafter.files.stored import FLOATS, StoredTensor
from drafter.sample.fields import MAX_SLOTS, Scaled, make_slots, read_ids, tensor_of, vector
from drafter.sample.formats.arrow_rows import table_row
from drafter.sample.sample import Sample
from drafter.sample.source import Reader, Source

if TYPE_CHECKING:
    import torch

_FLOAT8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
NAME = "speculators >= 0.5 (hs_{row}.safetensors + arrow)"
CONNECTOR = "vLLM hidden-states connector ({request_id}.safetensors)"
SCALES = "hidden_states_scales"


def fits(content: Any) -> bool:
    return isinstance(content, dict) and {"hidden_states", "token_ids"} <= content.keys()


def read(source: Source) -> Sample:
    content, path = source.content, source.path
    ids = read_ids(content["token_ids"], "token_ids", path)
    states = tensor_of(content["hidden_states"], "hidden_states", path)
    if len(states.shape) != 3 or states.shape[0] != ids.numel() or states.shape[1] > MAX_SLOTS:
        expected = f"[{ids.numel()}, at most {MAX_SLOTS} states, width]"
        raise SampleError(f"hidden_states is {list(states.shape)}", expected=expected, where=path)
    found = [states.select(1, i) for i in range(states.shape[1])]
    if content.get(SCALES) is None:
        slots = make_slots(found, ids.numel(), path)
    else:
        slots = make_slots(_scaled(found, content[SCALES], path), ids.numel(), path, scaled=True)
    mask, warnings = _mask(source.file, ids)
    name = CONNECTOR if _row_number(source.file) is None else NAME
    return Sample(path, name, ids, mask, slots, tuple(warnings))


def _scaled(states: list[StoredTensor], scales: Any, path: Path) -> list[Scaled]:
    """Each state with its factors: one for each token, stored [T], [T, 1] or [T, 1, 1], or one for all, stored [1]."""
    factors = vector(scales, SCALES, path)
    wrong = next((state.dtype for state in states if state.dtype not in (*FLOATS, *_FLOAT8)), None)
    if wrong is not None:
        raise SampleError(f"hidden_states is {wrong}", expected="float8 with its scales", where=path)
    if factors.dtype not in FLOATS or (states and factors.shape[0] not in (1, states[0].shape[0])):
        said = f"{SCALES} is {list(factors.shape)} {factors.dtype}"
        raise SampleError(said, expected="a factor for each token, or one", where=path)
    return [Scaled(state, factors) for state in states]


def _mask(path: Path, ids: torch.Tensor) -> tuple[torch.Tensor | None, list[str]]:
    import torch

    row = _row_number(path)
    table = path.resolve().parent.parent
    if row is None or not (table / "state.json").is_file():
        return None, ["no arrow table beside hidden_states/, so no loss mask: all rows count"]
    try:
        found = table_row(_shards(table), row)
    except DrafterError as error:
        return None, [f"no loss mask, all rows count: {error}"]
    if found is None:
        return None, [f"the arrow table has no row {row}, so no loss mask: all rows count"]
    table_ids, mask = found
    if table_ids != ids.tolist():
        return None, [f"row {row} of the arrow table holds other tokens, so no loss mask: all rows count"]
    return torch.tensor(mask) != 0, []


def _row_number(path: Path) -> int | None:
    match = re.fullmatch(r"hs_(\d{1,12})", path.stem)
    return int(match.group(1)) if match else None


def _shards(folder: Path) -> list[Path]:
    listed = read_json(folder / "state.json").get("_data_files")
    names = [item.get("filename") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    good = [name for name in names if isinstance(name, str) and re.fullmatch(r"[\w.@+-]+\.arrow", name)]
    if not good or len(good) != len(names):
        raise FileError("no list of arrow files", expected="_data_files", where=folder / "state.json")
    return [folder / name for name in good]


READER = Reader(NAME, "token_ids [T], hidden_states [T, n + 1, H], for float8 hidden_states_scales [T]", fits, read)
