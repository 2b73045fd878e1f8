"""The layout of speculators 0.5 to 0.9: `hidden_states/hs_{row}.safetensors` joined with an arrow table.

The states are token-major, [T, n + 1, H]; ids are in both files and must agree; the loss mask is in the table only.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError, FileError, SampleError
from drafter.files.json_file import read_json
from drafter.sample.fields import MAX_SLOTS, make_slots, read_ids, tensor_of
from drafter.sample.sample import Sample
from drafter.sample.source import Reader, Source

if TYPE_CHECKING:
    import torch

NAME = "speculators >= 0.5 (hs_{row}.safetensors + arrow)"


def fits(content: Any) -> bool:
    return isinstance(content, dict) and {"hidden_states", "token_ids"} <= content.keys()


def read(source: Source) -> Sample:
    content, path = source.content, source.path
    ids = read_ids(content["token_ids"], "token_ids", path)
    states = tensor_of(content["hidden_states"], "hidden_states", path)
    if len(states.shape) != 3 or states.shape[0] != ids.numel() or states.shape[1] > MAX_SLOTS:
        expected = f"[{ids.numel()}, at most {MAX_SLOTS} states, width]"
        raise SampleError(f"hidden_states is {list(states.shape)}", expected=expected, where=path)
    slots = make_slots([states.select(1, i) for i in range(states.shape[1])], ids.numel(), path)
    mask, warnings = _mask(source.file, ids)
    return Sample(path, NAME, ids, mask, slots, tuple(warnings))


def _mask(path: Path, ids: torch.Tensor) -> tuple[torch.Tensor | None, list[str]]:
    import torch

    row = _row_number(path)
    table = path.resolve().parent.parent
    if row is None or not (table / "state.json").is_file():
        return None, ["no arrow table beside hidden_states/, so no loss mask: all rows count"]
    try:
        found = _table_row(table, row)
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


def _table_row(folder: Path, row: int) -> tuple[list[int], list[int]] | None:
    """Row `row` over all shards, in the order of state.json; shards are read batch by batch, without a map."""
    import pyarrow as pa

    for shard in _shards(folder):
        try:
            with pa.OSFile(str(shard)) as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    if row < batch.num_rows:
                        columns = batch.select(["input_ids", "loss_mask"])
                        columns.validate(full=True)  # pyarrow follows forged offsets out of its buffers otherwise
                        ids, mask = (columns.column(i)[row].as_py() for i in range(2))
                        if len(ids) != len(mask) or not all(isinstance(value, int) for value in mask):
                            said = f"a mask of {len(mask)} entries for {len(ids)} ids"
                            raise FileError(said, expected="a number for each", where=shard)
                        return ids, mask
                    row -= batch.num_rows
        except (pa.ArrowException, OSError, KeyError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise FileError(f"cannot read the arrow table ({reason:.120})", where=shard) from error
    return None


def _shards(folder: Path) -> list[Path]:
    listed = read_json(folder / "state.json").get("_data_files")
    names = [item.get("filename") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    good = [name for name in names if isinstance(name, str) and re.fullmatch(r"[\w.@+-]+\.arrow", name)]
    if not good or len(good) != len(names):
        raise FileError("no list of arrow files", expected="_data_files", where=folder / "state.json")
    return [folder / name for name in good]


READER = Reader(NAME, "token_ids [T], hidden_states [T, n + 1, H]", fits, read)
