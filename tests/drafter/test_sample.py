"""Both layouts of recorded samples in one form; what contradicts itself is refused or said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from drafter.errors import DrafterError, FileError, PathError, SampleError, UnsafeFileError
from drafter.sample.fields import MAX_SLOTS
from drafter.sample.open import open_sample
from drafter.sample.sample import Sample
from tests import tiny
from tests.drafter.helpers import refused, same

WEIGHTS = tiny.tiny_weights()
TINY = tiny.tiny_sample(1, WEIGHTS)
T = tiny.TOKENS


def v1(tmp_path: Path, **changes: Any) -> Path:
    """A v1 file with some entries changed, or removed where they are None."""
    states = [slot.contiguous().clone() for slot in TINY.slots.unbind(1)]
    record = {"input_ids": torch.tensor(TINY.ids), "hidden_states": states, "loss_mask": torch.tensor(TINY.mask)}
    torch.save({k: v for k, v in (record | changes).items() if v is not None}, tmp_path / "data_1.pt")
    return tmp_path / "data_1.pt"


def arrow(tmp_path: Path, sample: tiny.TinySample = TINY, row: int = 3) -> Path:
    folder = tiny.write_arrow_samples(tmp_path / "data", {row: sample}, rows=6)
    return folder / f"hidden_states/hs_{row}.safetensors"


def check_content(sample: Sample, truth: tiny.TinySample) -> None:
    assert sample.ids.tolist() == truth.ids and sample.ids.dtype == torch.int64
    assert sample.mask is not None and sample.mask.int().tolist() == truth.mask and sample.mask.dtype == torch.bool
    assert (sample.length, sample.width, len(sample.slots), sample.warnings) == (T, 32, 4, ())
    for slot in sample.slots:
        assert same(slot.tensor.read(), truth.slots[:, slot.index])
        assert same(slot.tensor.rows(4, 9), truth.slots[4:9, slot.index])
        assert slot.claim is None


# --- sound samples


def test_both_layouts_give_the_same_sample(tmp_path: Path) -> None:
    one, other = open_sample(v1(tmp_path)), open_sample(arrow(tmp_path))
    check_content(one, TINY)
    check_content(other, TINY)
    assert "v1" in one.format and "arrow" in other.format


def test_the_suffix_says_nothing(tmp_path: Path) -> None:
    check_content(open_sample(v1(tmp_path).rename(tmp_path / "data_1.safetensors")), TINY)
    source = arrow(tmp_path)
    check_content(open_sample(source.rename(source.with_name("hs_3.pt"))), TINY)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float32, torch.uint8])
def test_masks_of_any_kind(tmp_path: Path, dtype: torch.dtype) -> None:
    check_content(open_sample(v1(tmp_path, loss_mask=torch.tensor(TINY.mask).to(dtype))), TINY)


def test_a_batch_dimension_of_one_is_dropped(tmp_path: Path) -> None:
    states = [slot[None].contiguous().clone() for slot in TINY.slots.unbind(1)]
    path = v1(tmp_path, input_ids=torch.tensor([TINY.ids]), hidden_states=states, loss_mask=torch.tensor([TINY.mask]))
    check_content(open_sample(path), TINY)


def test_states_may_be_views_of_one_tensor(tmp_path: Path) -> None:
    check_content(open_sample(v1(tmp_path, hidden_states=list(TINY.slots.unbind(1)))), TINY)
    wide = TINY.slots.transpose(0, 2).contiguous().transpose(0, 2)  # the same numbers, width-major
    check_content(open_sample(v1(tmp_path, hidden_states=tuple(wide.unbind(1)))), TINY)


# --- masks that are not there


def test_a_sample_without_a_mask_says_so(tmp_path: Path) -> None:
    sample = open_sample(v1(tmp_path, loss_mask=None))
    assert sample.mask is None and "no loss mask" in sample.warnings[0]


@pytest.mark.parametrize(("length", "word"), [(T + 5, "cut"), (T - 5, "unsupervised"), (0, "unsupervised")])
def test_a_mask_of_another_length_is_fitted_and_said(tmp_path: Path, length: int, word: str) -> None:
    sample = open_sample(v1(tmp_path, loss_mask=torch.ones(length).long()))
    assert sample.mask is not None and sample.mask.int().tolist() == [1] * min(length, T) + [0] * max(T - length, 0)
    assert str(length) in sample.warnings[0] and word in sample.warnings[0]


def drop_table(folder: Path) -> None:
    (folder / "state.json").unlink()


def state(content: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / "state.json").write_text(json.dumps(content)) and None


def damage(at: str, new: bytes) -> Callable[[Path], None]:
    """Overwrite the table from where the ids of row 3 begin, or elsewhere."""

    def change(folder: Path) -> None:
        path = next(folder.glob("*.arrow"))
        data = path.read_bytes()
        needle = torch.tensor(TINY.ids, dtype=torch.int32).numpy().tobytes()
        # the list's offsets come before its values: 6 rows of 4 tokens, the fourth of T
        offsets = torch.tensor([0, 4, 8, 12, 12 + T], dtype=torch.int32).numpy().tobytes()
        where = {"ids": data.index(needle), "offsets": data.index(offsets) + 12, "start": 0, "middle": len(data) // 2}[
            at
        ]
        path.write_bytes(data[:where] + new + data[where + len(new) :])

    return change


def cut(folder: Path) -> None:
    path = next(folder.glob("*.arrow"))
    path.write_bytes(path.read_bytes()[:-400])


def other_columns(folder: Path) -> None:
    rewrite_table(folder, {"tokens": [TINY.ids] * 6})


def holes_in_the_mask(folder: Path) -> None:
    rewrite_table(folder, {"input_ids": [TINY.ids] * 6, "loss_mask": [[None, *TINY.mask[1:]]] * 6})


def words_in_the_mask(folder: Path) -> None:
    rewrite_table(folder, {"input_ids": [TINY.ids] * 6, "loss_mask": [["yes"] * T] * 6})


def lists_in_the_mask(folder: Path) -> None:
    rewrite_table(folder, {"input_ids": [TINY.ids] * 6, "loss_mask": [[[1]] * T] * 6})


def short_mask(folder: Path) -> None:
    rewrite_table(folder, {"input_ids": [TINY.ids] * 6, "loss_mask": [TINY.mask[1:]] * 6})


def no_row_at_all(folder: Path) -> None:
    rewrite_table(folder, {"input_ids": [None] * 6, "loss_mask": [None] * 6})


def few_rows(folder: Path) -> None:
    rewrite_table(folder, {"input_ids": [TINY.ids], "loss_mask": [TINY.mask]})


def rewrite_table(folder: Path, columns: dict[str, Any]) -> None:
    table = pa.table(columns)
    with pa.OSFile(str(next(folder.glob("*.arrow"))), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    "change",
    [
        drop_table,
        state({}),
        state({"_data_files": "data.arrow"}),
        state({"_data_files": [{"filename": "../../secret.arrow"}]}),
        state({"_data_files": [{"filename": "absent.arrow"}]}),
        state({"_data_files": []}),
        state([1]),
        damage("ids", b"\xff\xff\xff\x7f"),
        damage("offsets", b"\xff\xff\xff\x7f"),
        damage("offsets", b"\x00\x00\x00\x80"),
        damage("start", b"\x00" * 64),
        damage("middle", b"\xff" * 64),
        cut,
        other_columns,
        holes_in_the_mask,
        words_in_the_mask,
        lists_in_the_mask,
        short_mask,
        no_row_at_all,
        few_rows,
    ],
)
def test_a_table_that_cannot_be_used_costs_the_mask_only(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = arrow(tmp_path)
    change(tmp_path / "data")
    sample = open_sample(path)
    assert sample.mask is None and sample.ids.tolist() == TINY.ids
    assert "no loss mask" in sample.warnings[0] and sample.warnings[0].isprintable()


def test_rows_count_over_batches_and_shards(tmp_path: Path) -> None:
    path = arrow(tmp_path, row=5)
    folder = tmp_path / "data"
    (whole,) = folder.glob("*.arrow")
    with pa.OSFile(str(whole)) as source:
        table = pa.ipc.open_stream(source).read_all()
    for name, part in {"a.arrow": table.slice(0, 1), "b.arrow": table.slice(1)}.items():
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(part, max_chunksize=2)
    state({"_data_files": [{"filename": "a.arrow"}, {"filename": "b.arrow"}]})(folder)
    check_content(open_sample(path), TINY)


def test_a_state_file_alone_has_no_mask(tmp_path: Path) -> None:
    tensors = {"hidden_states": TINY.slots.contiguous(), "token_ids": torch.tensor(TINY.ids)}
    save_file(tensors, tmp_path / "request-7.safetensors")
    assert open_sample(tmp_path / "request-7.safetensors").mask is None


# --- contradictions


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"input_ids": torch.tensor(TINY.ids).float()}, "input_ids"),
        ({"input_ids": TINY.ids}, "input_ids"),
        ({"input_ids": torch.tensor(5)}, "input_ids"),
        ({"input_ids": torch.tensor([TINY.ids, TINY.ids])}, "input_ids"),
        ({"input_ids": torch.tensor([1, 2])}, "2 tokens"),
        ({"input_ids": torch.zeros(0).long()}, "0 tokens"),
        ({"input_ids": torch.zeros(1_000_001).to(torch.uint8)}, "1000001 tokens"),
        ({"input_ids": torch.tensor(TINY.ids[:-1])}, "rows for 24 tokens"),
        ({"loss_mask": "text"}, "loss_mask"),
        ({"loss_mask": torch.ones(2, T)}, "loss_mask"),
        ({"hidden_states": []}, "0 recorded states"),
        ({"hidden_states": [torch.ones(T, 32)] * (MAX_SLOTS + 1)}, "recorded states"),
        ({"hidden_states": [torch.ones(T, 32), torch.ones(T, 31)]}, "state 1 is [25, 31]"),
        ({"hidden_states": [torch.ones(T, 32), torch.ones(T - 1, 32)]}, "24 rows"),
        ({"hidden_states": [torch.ones(T, 32).long()]}, "I64"),
        ({"hidden_states": [torch.ones(T, 32).to(torch.complex64)]}, "C64"),
        ({"hidden_states": [torch.tensor(1.0)]}, "is []"),
        ({"hidden_states": [torch.ones(T)]}, "is [25]"),
        ({"hidden_states": [torch.ones(T, 0)]}, "state 0"),
        ({"hidden_states": [torch.ones(2, T, 32)]}, "hidden_states[0]"),
        ({"hidden_states": [None]}, "hidden_states[0]"),
        ({"hidden_states": torch.ones(T, 32)}, "'hidden_states' is 32 wide"),
        ({"input_ids": None}, "a table with"),
        ({"hidden_states": None, "a\x1b[1m": 1}, "a table with"),
    ],
)
def test_a_v1_file_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    with refused(SampleError, word, "data_1.pt"):
        open_sample(v1(tmp_path, **changes))


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        ({"token_ids": torch.arange(T), "hidden_states": torch.ones(T, 32)}, "[25, 32]"),
        ({"token_ids": torch.arange(T), "hidden_states": torch.ones(T - 1, 4, 32)}, "[24, 4, 32]"),
        ({"token_ids": torch.arange(T), "hidden_states": torch.ones(T, MAX_SLOTS + 1, 2)}, "257"),
        ({"token_ids": torch.arange(T), "hidden_states": torch.ones(T, 10**9, 0)}, "1000000000"),
        ({"token_ids": torch.arange(T), "hidden_states": torch.ones(T, 0, 32)}, "0 recorded"),
        ({"token_ids": torch.arange(T), "hidden_states": torch.ones(T, 4, 32).to(torch.float8_e4m3fn)}, "F8_E4M3"),
        ({"token_ids": torch.arange(T).float(), "hidden_states": torch.ones(T, 4, 32)}, "token_ids"),
        ({"fc.weight": torch.ones(3, 9)}, "'fc.weight' [3, 9]"),
    ],
)
def test_a_state_file_that_contradicts_itself_is_refused(tmp_path: Path, tensors: Any, word: str) -> None:
    save_file(tensors, tmp_path / "hs_0.safetensors")
    with refused(SampleError, word):
        open_sample(tmp_path / "hs_0.safetensors")


@pytest.mark.parametrize("value", [torch.ones(3), [1, 2], "text", None, {"a": {"b": 1}}])
def test_other_torch_files_are_described(tmp_path: Path, value: Any) -> None:
    torch.save(value, tmp_path / "x.pt")
    with refused(SampleError, "input_ids"):
        open_sample(tmp_path / "x.pt")


# --- files that are none


def test_files_that_mean_harm_are_refused(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with refused(UnsafeFileError, "system"):
        open_sample(tiny.write_pickle_with_code(tmp_path / "evil.pt", marker))
    assert not marker.exists()
    with refused(UnsafeFileError):
        open_sample(tiny.write_stride_bomb(tmp_path / "stride.pt"))
    with refused(FileError):
        open_sample(tiny.write_truncated(tmp_path / "short.pt", v1(tmp_path)))


def test_paths_that_lead_to_no_sample(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.pt").write_bytes(b"")
    for name, kind in {"absent": PathError, "x" * 300: PathError, "folder": FileError, "empty.pt": FileError}.items():
        with refused(kind):
            open_sample(tmp_path / name)


def test_a_sample_that_is_replaced_is_noticed(tmp_path: Path) -> None:
    sample = open_sample(v1(tmp_path))
    v1(tmp_path, hidden_states=[torch.ones(T, 32)])
    with pytest.raises(DrafterError, match="changed or replaced"):
        sample.slots[2].tensor.rows(0, 3)


def test_samples_are_values() -> None:
    assert replace(TINY, mask=[1] * T).slots is TINY.slots
