"""Recordings of vLLM, ModelOpt, TensorRT-LLM, NeMo, TorchSpec and SGLang, and tables of nobody: all that was written
is read, by the one reader that is meant; what contradicts itself is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter.errors import DrafterError, SampleError
from drafter.sample.content import read_content
from drafter.sample.formats import (
    modelopt,
    nemo,
    plain,
    sglang_dump,
    speculators_arrow,
    tensorrt_llm,
    torchspec,
    torchspec_offline,
)
from drafter.sample.formats.readers import READERS
from drafter.sample.many.parts import sample_paths
from drafter.sample.open import open_sample
from drafter.sample.sample import Sample, name_part
from drafter.sample.source import Reader
from tests.drafter.helpers import refused, same
from tests.recordings import other_layouts as layouts
from tests.recordings.other_layouts import WIDTH, Written


def opened(truth: Written, parts: int = 1, width: int | None = None) -> Sample:
    return open_sample(name_part(truth.path, truth.part, parts), width)


def check(truth: Written, parts: int = 1, width: int | None = None) -> Sample:
    """The sample opens and is `truth`, value by value; returns it for what else must be said."""
    sample = opened(truth, parts, width)
    assert sample.path == name_part(truth.path, truth.part, parts) and sample.parts == parts
    assert sample.ids.tolist() == truth.ids and sample.ids.dtype == torch.int64
    assert (None if sample.mask is None else sample.mask.tolist()) == truth.mask
    assert len(sample.slots) == len(truth.slots)
    for slot, stored in zip(sample.slots, truth.slots, strict=True):
        assert same(slot.tensor.rows(0, sample.length), stored)
        assert same(slot.tensor.rows(1, 4), stored[1:4])
        assert same(slot.tensor.gather([2, 0]), stored[[2, 0]])
        assert same(slot.tensor.head(3).rows(0, 3), stored[:3])
    claims = [slot.layout for slot in sample.slots]
    assert tuple(claim.depth if claim else None for claim in claims) == truth.depths
    assert tuple(bool(claim and claim.is_last) for claim in claims) == truth.lasts
    assert tuple(claim.norm if claim else "" for claim in claims) == truth.norms
    chosen = None if sample.verifier_draft is None else sample.verifier_draft().tolist()
    assert chosen == truth.verifier
    assert all(line.isprintable() for line in sample.warnings)
    return sample


def said(sample: Sample) -> str:
    return "; ".join(sample.warnings)


# --- every file has its reader

WRITERS: list[tuple[str, Reader, Callable[[Path], Any]]] = [
    ("connector", speculators_arrow.READER, lambda at: layouts.connector(at, 1)),
    ("float8", speculators_arrow.READER, lambda at: layouts.float8(at, 1)),
    *[(f"modelopt {era}", modelopt.READER, lambda at, era=era: layouts.modelopt(at, 1, era))  # type: ignore[misc]
      for era in layouts.MODELOPT_ERAS],
    ("tensorrt", tensorrt_llm.READER, lambda at: layouts.tensorrt_llm(at, [1, 2])),
    ("tensorrt last", tensorrt_llm.READER, lambda at: layouts.tensorrt_llm(at, [1], "")),
    ("nemo", nemo.READER, lambda at: layouts.nemo(at, [1, 2])),
    ("nemo top-k", nemo.READER, lambda at: layouts.nemo(at, [1], topk=4)),
    ("torchspec", torchspec.READER, lambda at: layouts.torchspec(at, [1, 2])),
    ("torchspec alone", torchspec.READER, lambda at: layouts.torchspec(at, [1], last=False, outside=True)),
    ("torchspec offline", torchspec_offline.READER, lambda at: layouts.torchspec_offline(at, 1)),
    ("torchspec offline aux", torchspec_offline.READER, lambda at: layouts.torchspec_offline(at, 1, last=False)),
    ("sglang", sglang_dump.READER, lambda at: layouts.sglang(at, [1, 2])),
    ("sglang layers", sglang_dump.READER, lambda at: layouts.sglang(at, [1], hooks="layers")),
    ("npz", plain.READER, lambda at: layouts.table(at, 1)),
    ("npz deflated", plain.READER, lambda at: layouts.table(at, 1, "npz-deflated")),
    ("safetensors", plain.READER, lambda at: layouts.table(at, 1, "safetensors")),
    ("pt", plain.READER, lambda at: layouts.table(at, 1, "pt")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reader", "write"), WRITERS, ids=[name for name, _, _ in WRITERS])
def test_exactly_one_reader_takes_a_file(
    tmp_path: Path, name: str, reader: Reader, write: Callable[[Path], Any]
) -> None:
    made = write(tmp_path)
    one: Written = made[0] if isinstance(made, list) else made
    content = read_content(one.path)
    able = [other.name for other in READERS if other is not plain.READER and other.fits(content)]
    assert able == ([] if reader is plain.READER else [reader.name])
    assert next(other for other in READERS if other.fits(content)) is reader


HOSTILE: list[Any] = [
    {},
    [],
    [[]],
    [None],
    [{}],
    [[{"input_ids": 1}]],
    {0: 1, None: 2, (1, 2): 3},
    {"input_ids": None, "hidden_states": None, "aux_hidden_states": None},
    {"input_ids": [1], "hidden_states": {}, "aux_hidden_states": 7, "loss_mask": "x", "attention_mask": {}},
    {"batch": [], "step": 1},
    {"batch": {"input_ids": "x", "hidden_states": 3}, "step": None},
    {".forward_batch_info.input_ids": 1},
    {"model.forward_batch_info.input_ids": [], "model.layers.1": [[]]},
    {"input_ids": 1, "hidden_states": 2, "packed_loss_mask": 3},
    {"token_ids": None, "hidden_states": "x"},
]


@pytest.mark.parametrize("content", HOSTILE, ids=[str(i) for i in range(len(HOSTILE))])
def test_content_that_only_looks_like_a_layout_is_refused(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "x.pt")
    for reader in READERS:
        assert reader.fits(content) in (True, False)
    with refused(DrafterError):
        open_sample(tmp_path / "x.pt")


ODD: list[Any] = [
    None,
    "text",
    7,
    True,
    [],
    {},
    [torch.ones(3)],
    torch.tensor(5),
    torch.ones(0),
    torch.ones(9, 0),
    torch.ones(0, 9, 8),
    torch.arange(9),
    torch.full((9,), -(1 << 62)),
    torch.ones(9, 8),
    torch.ones(1, 9, 8).bool(),
    torch.ones(9, 9, 9),
    torch.ones(2, 9, 8, 1),
    torch.ones(9, 8).to(torch.complex64),
    torch.full((9, 8), float("nan")),
]


def swapped(content: Any, path: list[Any], value: Any) -> Any:
    """`content` with the entry at `path` replaced."""
    if not path:
        return value
    copy = list(content) if isinstance(content, list) else dict(content)
    copy[path[0]] = swapped(content[path[0]], path[1:], value)
    return copy


def entries(content: Any, path: list[Any]) -> list[list[Any]]:
    if isinstance(content, dict | list) and len(path) < 3:
        items = list(content.items() if isinstance(content, dict) else enumerate(content))
        return [path] * bool(path) + [deep for key, value in items for deep in entries(value, [*path, key])]
    return [path]


@pytest.mark.parametrize(("name", "reader", "write"), WRITERS, ids=[name for name, _, _ in WRITERS])
def test_any_field_may_be_anything(tmp_path: Path, name: str, reader: Reader, write: Callable[[Path], Any]) -> None:
    """Every entry of every recording is replaced by every odd value: it still opens, or is refused in one line."""
    made = write(tmp_path)
    path = (made[0] if isinstance(made, list) else made).path
    content = load_file(path) if path.suffix == ".safetensors" else None
    if content is None and path.suffix == ".pt":
        content = torch.load(path, weights_only=True)
    if content is None:
        return
    for place in entries(content, []):
        for value in ODD:
            torch.save(swapped(content, place, value), tmp_path / "odd.pt")
            for name in sample_paths(tmp_path / "odd.pt", WIDTH)[:2]:
                try:
                    sample = open_sample(name, WIDTH)
                except DrafterError as error:
                    assert str(error).isprintable()
                else:
                    assert all(len(slot.tensor.rows(0, sample.length)) == sample.length for slot in sample.slots)


# --- vLLM's connector, float8, the join


def test_the_connectors_file_is_named_so(tmp_path: Path) -> None:
    sample = check(layouts.connector(tmp_path, 3))
    assert "vLLM" in sample.format and "no loss mask" in said(sample) and sample.aux_rule == ""
    assert "speculators" in check(layouts.connector(tmp_path, 3, "hs_7.safetensors")).format


@pytest.mark.parametrize("shape", ["T11", "T1", "T", "1"])
def test_float8_states_are_scaled(tmp_path: Path, shape: str) -> None:
    check(layouts.float8(tmp_path, 4, shape))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"hidden_states_scales": torch.ones(5)}, "hidden_states_scales is [5]"),
        ({"hidden_states_scales": torch.ones(9, 2)}, "hidden_states_scales"),
        ({"hidden_states_scales": torch.ones(9).long()}, "I64"),
        ({"hidden_states": torch.ones(9, 4, 8).long()}, "I64"),
    ],
)
def test_factors_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    path = layouts.float8(tmp_path, 4).path
    save_file(load_file(path) | changes, path)
    with refused(SampleError, word):
        open_sample(path)


def test_shards_of_the_table_count_in_the_order_of_its_state(tmp_path: Path) -> None:
    """Row 3 lies in the second shard that state.json names, not in the second by name."""
    import pyarrow as pa

    truth = layouts.connector(tmp_path / "hidden_states", 5, "hs_3.safetensors")
    mask = [i % 3 == 0 for i in range(len(truth.ids))]
    other = [[1, 2, 3]] * 2
    for name, rows in {"z.arrow": (other, [[0, 0, 0]] * 2), "a.arrow": ([[7], truth.ids], [[1], mask])}.items():
        table = pa.table({"input_ids": rows[0], "loss_mask": [list(map(int, row)) for row in rows[1]]})
        with pa.OSFile(str(tmp_path / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    for names, expected in ((["z.arrow", "a.arrow"], mask), (["a.arrow", "z.arrow"], None)):
        state = {"_data_files": [{"filename": name} for name in names]}
        (tmp_path / "state.json").write_text(json.dumps(state))
        sample = open_sample(truth.path)
        assert (None if sample.mask is None else sample.mask.tolist()) == expected


# --- ModelOpt


@pytest.mark.parametrize("era", layouts.MODELOPT_ERAS)
def test_modelopt(tmp_path: Path, era: str) -> None:
    sample = check(layouts.modelopt(tmp_path, 2, era))
    told = era in ("prenorm", "postnorm")
    last = sample.slots[-1].layout
    assert last is not None and last.assumed is not told
    assert ("hidden_states_prenorm" in said(sample) and "vLLM" in said(sample)) is not told
    assert sample.aux_rule == ("" if era == "no-aux" else "2, L//2, L-3")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"aux_hidden_states": torch.ones(9, 3 * WIDTH + 1)}, "'aux_hidden_states' is 25 wide"),
        ({"aux_hidden_states": torch.ones(8, 3 * WIDTH)}, "8 rows for 9 tokens"),
        ({"hidden_states": torch.ones(8, WIDTH)}, "8 rows for 9 tokens"),
        ({"aux_hidden_states": "text"}, "'aux_hidden_states' is a str"),
        ({"input_ids": [1, 2, 3.5]}, "whole number"),
        ({"input_ids": [1, 2]}, "2 tokens"),
        ({"input_ids": [True] * 9}, "whole number"),
        ({"input_ids": [1 << 70] * 9}, "whole number"),
    ],
)
def test_a_modelopt_file_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    path = layouts.modelopt(tmp_path, 2, "hf").path
    torch.save(torch.load(path, weights_only=True) | changes, path)
    with refused(SampleError, word):
        open_sample(path)


def test_a_flag_that_is_none_says_nothing(tmp_path: Path) -> None:
    path = layouts.modelopt(tmp_path, 2, "hf").path
    torch.save(torch.load(path, weights_only=True) | {"hidden_states_prenorm": "yes"}, path)
    last = open_sample(path).slots[-1].layout
    assert last is not None and (last.norm, last.assumed) == ("post", True)


# --- TensorRT-LLM


@pytest.mark.parametrize("key", ["hidden_state_features", "aux_hidden_states", "", "with_last"])
def test_tensorrt_llm(tmp_path: Path, key: str) -> None:
    truths = layouts.tensorrt_llm(tmp_path, [1, 2, 3], key)
    for truth in truths:
        sample = check(truth, parts=3)
        assert ("shown once" in said(sample)) is (key == "with_last")
    assert sample_paths(truths[0].path) == [name_part(truth.path, truth.part, 3) for truth in truths]


def test_a_request_that_is_none_is_refused(tmp_path: Path) -> None:
    path = layouts.tensorrt_llm(tmp_path, [1, 2])[0].path
    torch.save([*torch.load(path, weights_only=True), {}], path)
    with refused(SampleError, "entry 2", "#2"):
        open_sample(name_part(path, 2, 3))
    with refused(SampleError, "sample 3", "0 to 2"):
        open_sample(name_part(path, 3, 4))


# --- NeMo


@pytest.mark.parametrize("topk", [0, 1, 4])
@pytest.mark.parametrize("seeds", [[1], [1, 2, 8]])
def test_nemo(tmp_path: Path, topk: int, seeds: list[int]) -> None:
    for truth in layouts.nemo(tmp_path, seeds, topk=topk):
        sample = check(truth, parts=len(seeds))
        assert "first token" in said(sample) and sample.aux_rule == "2, L//2, L-3"
        assert {slot.layout.source for slot in sample.slots if slot.layout} == {"manifest.json"}


def test_nemo_reads_probabilities_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemo, "BLOCK", 3)
    for truth in layouts.nemo(tmp_path, [1, 8]):
        check(truth, parts=2)


def test_nemo_without_a_manifest(tmp_path: Path) -> None:
    (truth,) = layouts.nemo(tmp_path, [3], layer_ids=None)
    with refused(SampleError, "24 wide"):
        opened(truth)
    assert "no manifest.json" in said(check(truth, width=WIDTH))
    (truth,) = layouts.nemo(tmp_path, [3], layer_ids=None, embeddings=True)
    check(truth)


@pytest.mark.parametrize("version", [1, 3, None, "2", True, [2] * 50])
def test_nemo_of_another_version_is_read_and_said(tmp_path: Path, version: Any) -> None:
    (truth,) = layouts.nemo(tmp_path, [3], version=version)
    assert "format_version" in said(check(truth))


@pytest.mark.parametrize("manifest", ["", "[1]", "{", '{"aux_layer_ids": [1, 2, 1e9]}', '{"aux_layer_ids": "abc"}'])
def test_nemo_with_a_broken_manifest_names_no_layers(tmp_path: Path, manifest: str) -> None:
    (truth,) = layouts.nemo(tmp_path, [3], layer_ids=None)
    (tmp_path / "manifest.json").write_text(manifest)
    assert "manifest.json" in said(check(truth, width=WIDTH))


def test_nemo_rows_without_a_choice(tmp_path: Path) -> None:
    """Equal probabilities give the lowest id, top-k in any order; zeros, NaN and negative ids give none."""
    (truth,) = layouts.nemo(tmp_path, [3], topk=4)
    tensors = load_file(truth.path)
    values, indices = tensors["target_probs_values"], tensors["target_probs_indices"]
    values[0, 0] = torch.tensor([0.5, 0.25, 0.5, 0.1])
    indices[0, 0] = torch.tensor([9, 1, 4, 2])
    values[0, 1] = 0
    values[0, 2, 3] = float("nan")
    indices[0, 3, 0] = -5
    save_file(tensors, truth.path)
    found = opened(truth).verifier_draft
    assert found is not None and truth.verifier is not None
    assert found().tolist() == [-1, 4, -1, -1, -1, *truth.verifier[5:]]


def padding_in_front(tensors: dict[str, Any]) -> None:
    tensors["attention_mask"] = tensors["attention_mask"].flip(1)


def two_holes(tensors: dict[str, Any]) -> None:
    tensors["attention_mask"][0, 2] = 0


def nothing_attended(tensors: dict[str, Any]) -> None:
    tensors["attention_mask"] *= 0


def of_another_shape(key: str, *shape: int) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors.__setitem__(key, torch.ones(shape).to(tensors[key].dtype))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (padding_in_front, "padding"),
        (two_holes, "padding"),
        (nothing_attended, "real"),
        (of_another_shape("attention_mask", 2, 15), "attention mask of 15 entries for 16 tokens"),
        (of_another_shape("target_probs", 2, 4, 11), "target_probs"),
        (of_another_shape("target_probs", 2, 16, 0), "target_probs"),
        (of_another_shape("target_probs", 1, 16, 11), "target_probs"),
        (of_another_shape("aux_hidden_states", 2, 9, 24), "9 rows for 16"),
        (of_another_shape("aux_hidden_states", 2, 24), "aux_hidden_states"),
        (of_another_shape("input_ids", 16), "'loss_mask' is [2, 16]"),
        (of_another_shape("input_ids", 2, 16, 2), "input_ids"),
    ],
)
def test_a_shard_that_contradicts_itself_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], word: str
) -> None:
    truth = layouts.nemo(tmp_path, [3, 4])[0]
    tensors = load_file(truth.path)
    change(tensors)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, truth.path)
    with refused(SampleError, word):
        open_sample(sample_paths(truth.path)[0])


# --- TorchSpec


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("seeds", [[4], [1, 6, 3]])
def test_torchspec(tmp_path: Path, outside: bool, seeds: list[int]) -> None:
    for truth in layouts.torchspec(tmp_path, seeds, outside=outside):
        sample = check(truth, parts=len(seeds))
        assert "vLLM" in said(sample)  # the norm is not said


@pytest.mark.parametrize("prenorm", [True, False])
def test_torchspec_that_says_its_norm(tmp_path: Path, prenorm: bool) -> None:
    (truth,) = layouts.torchspec(tmp_path, [4], prenorm=prenorm)
    assert "vLLM" not in said(check(truth))


def test_torchspec_without_the_last_state(tmp_path: Path) -> None:
    for truth in layouts.torchspec(tmp_path, [1, 6], last=False):
        check(truth, parts=2, width=WIDTH)
        with refused(SampleError, "24 wide"):
            opened(truth, 2)


@pytest.mark.parametrize("prenorm", [True, False, None])
@pytest.mark.parametrize("last", [True, False])
def test_torchspec_offline(tmp_path: Path, prenorm: bool | None, last: bool) -> None:
    check(layouts.torchspec_offline(tmp_path, 5, prenorm, last), width=WIDTH)


@pytest.mark.parametrize("runs", ["9", "0,9", "1,2,3,3", "2,0,7"])
def test_runs_of_a_mask(tmp_path: Path, runs: str) -> None:
    path = layouts.torchspec_offline(tmp_path, 5).path
    torch.save(torch.load(path, weights_only=True) | {"packed_loss_mask": runs}, path)
    expected = [i % 2 == 1 for i, count in enumerate(map(int, runs.split(","))) for _ in range(count)]
    mask = open_sample(path).mask
    assert mask is not None and mask.tolist() == expected


@pytest.mark.parametrize("runs", ["8", "10", "1,,8", "1;8", "-1,10", "x", "²", "9" * 9, "1," * 600_000, 7, ["9"]])
def test_runs_that_are_none_are_refused(tmp_path: Path, runs: Any) -> None:
    path = layouts.torchspec_offline(tmp_path, 5).path
    torch.save(torch.load(path, weights_only=True) | {"packed_loss_mask": runs}, path)
    with refused(SampleError, "packed_loss_mask"):
        open_sample(path)


@pytest.mark.parametrize("runs", [None, ""])
def test_no_runs_are_no_mask(tmp_path: Path, runs: Any) -> None:
    path = layouts.torchspec_offline(tmp_path, 5).path
    torch.save(torch.load(path, weights_only=True) | {"packed_loss_mask": runs}, path)
    assert open_sample(path).mask is None


# --- SGLang


@pytest.mark.parametrize("hooks", ["leaves", "layers"])
@pytest.mark.parametrize("seeds", [[4], [1, 6, 3]])
def test_sglang(tmp_path: Path, hooks: str, seeds: list[int]) -> None:
    truths = layouts.sglang(tmp_path, seeds, hooks=hooks)
    for truth in truths:
        sample = check(truth, parts=len(seeds))
        assert sample.slots[0].layout is not None and sample.slots[0].layout.label == "embed"
        assert "cached" not in said(sample)
    assert len(sample_paths(truths[0].path)) == len(seeds)


def test_sglang_with_a_cached_prefix(tmp_path: Path) -> None:
    for truth in layouts.sglang(tmp_path, [1, 6], cached=7):
        assert "position 7" in said(check(truth, parts=2))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"model.forward_batch_info.seq_lens": torch.tensor([7])}, "seq_lens that fit"),
        ({"model.forward_batch_info.seq_lens": torch.tensor([0])}, "seq_lens that fit"),
        ({"model.forward_batch_info.seq_lens": torch.tensor([-3])}, "seq_lens that fit"),
        ({"model.forward_batch_info.seq_lens": torch.tensor([6, 1 << 62])}, "seq_lens that fit"),
        ({"model.forward_batch_info.seq_lens": torch.tensor([2])}, "decode"),
        ({"model.forward_batch_info.seq_lens": torch.tensor([]).long()}, "0 requests"),
        ({"model.forward_batch_info.seq_lens": torch.ones(1)}, "F32"),
        ({"model.forward_batch_info.seq_lens": None}, "seq_lens"),
        ({"model.forward_batch_info.positions": torch.arange(5)}, "5 positions"),
        ({"model.forward_batch_info.positions": torch.arange(6) - 1}, "seq_lens that fit"),
        ({"model.embed_tokens": torch.ones(4, WIDTH)}, "0:4"),
        ({"model.norm": torch.ones(6, WIDTH + 1)}, "state 3"),
    ],
)
def test_a_dump_that_contradicts_itself_is_refused(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    (truth,) = layouts.sglang(tmp_path, [1])
    torch.save(torch.load(truth.path, weights_only=True) | changes, truth.path)
    with refused(SampleError, word):
        open_sample(truth.path)


def test_a_dump_without_a_residual_stream_is_refused(tmp_path: Path) -> None:
    (truth,) = layouts.sglang(tmp_path, [1])
    record = torch.load(truth.path, weights_only=True)
    torch.save({k: v for k, v in record.items() if "info" in k or "mlp" in k}, truth.path)
    with refused(SampleError, "no residual stream", "input_layernorm"):
        open_sample(truth.path)


# --- nobody's tables


@pytest.mark.parametrize("container", ["npz", "npz-deflated", "safetensors", "pt"])
@pytest.mark.parametrize("ids", ["tokens", "input_ids", "x"])
@pytest.mark.parametrize("width", [None, WIDTH])
def test_a_table_of_any_names(tmp_path: Path, container: str, ids: str, width: int | None) -> None:
    sample = check(layouts.table(tmp_path, 3, container, ids), width=width)
    assert [slot.layout.label for slot in sample.slots if slot.layout] == ["final", "layer_2", "layer_10"]
    assert "--keys" in said(sample) and "'layer_2'" in said(sample)


def saved(path: Path, **tensors: Any) -> Path:
    torch.save(tensors, path)
    return path


def test_shapes_of_a_table_with_several_states_in_one(tmp_path: Path) -> None:
    ids, states = torch.arange(5), torch.randn(5, 3, 4)
    for stored, width in ((states, None), (states.transpose(0, 1), None), (states.flatten(1), 4), (states[None], 4)):
        sample = open_sample(saved(tmp_path / "x.pt", ids=ids, aux=stored.contiguous()), width)
        assert [slot.layout for slot in sample.slots] == [None] * 3
        assert all(same(slot.tensor.rows(0, 5), states[:, slot.index]) for slot in sample.slots)


def test_names_that_mean_something_and_names_that_do_not(tmp_path: Path) -> None:
    names = ["embed", "last", "a\x1b[1m", "x" * 40]
    sample = open_sample(saved(tmp_path / "x.pt", ids=torch.arange(5), **{name: torch.ones(5, 4) for name in names}))
    claims = [slot.layout for slot in sample.slots]
    assert [(c.label, c.depth, c.is_last) if c else None for c in claims] == [
        None,
        ("embed", 0, False),
        ("last", None, True),
        None,
    ]
    assert said(sample).isprintable()


def test_tensors_that_the_drafter_cannot_take_are_left_out_and_said(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.pt", ids=torch.arange(5), aux=torch.ones(5, 4), logits=torch.ones(5, 7))
    assert len(open_sample(path, 4).slots) == 1 and "left out: logits" in said(open_sample(path, 4))
    with refused(SampleError, "'aux' is 4 wide"):
        open_sample(path)
    with refused(SampleError, "width"):
        open_sample(path, 3)


@pytest.mark.parametrize(
    "tensors",
    [
        {"a": torch.arange(5), "b": torch.arange(5), "aux": torch.ones(5, 4)},  # two that can be ids
        {"loss_mask": torch.ones(5).long(), "aux": torch.ones(5, 4)},
        {"ids": torch.arange(5), "aux": torch.ones(6, 4)},
        {"ids": torch.arange(5)},
        {"ids": torch.arange(5), "aux": torch.ones(5)},
        {"ids": torch.arange(5), "aux": torch.ones(5, 4).long()},
        {"ids": torch.arange(5), "attention_mask": torch.ones(5, 4)},
    ],
)
def test_a_table_that_can_be_read_in_no_way_or_two_is_described(tmp_path: Path, tensors: dict[str, Any]) -> None:
    with refused(SampleError, "--keys", "a table with", repr(next(iter(tensors)))):
        open_sample(saved(tmp_path / "x.pt", **tensors))


# --- refusals name what is near


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"aux_hidden_states": torch.ones(5, 4), "loss_mask": torch.ones(5)}, ["aux_hidden_states", "expects"]),
        ({"packed_loss_mask": "1"}, ["nearest: TorchSpec (offline", "packed_loss_mask"]),
        ([{"hidden_state_features": torch.ones(5, 4)}], ["nearest: TensorRT-LLM", "hidden_state_features"]),
        ({"token_ids": torch.arange(5)}, ["nearest: speculators >= 0.5", "token_ids"]),
    ],
)
def test_the_nearest_layout_is_named(tmp_path: Path, content: Any, words: list[str]) -> None:
    torch.save(content, tmp_path / "x.pt")
    with refused(SampleError, *words, "--keys ids=KEY"):
        open_sample(tmp_path / "x.pt")


def test_without_a_shared_key_no_layout_is_near(tmp_path: Path) -> None:
    torch.save({"weights": torch.ones(3)}, tmp_path / "x.pt")
    with pytest.raises(SampleError) as caught:
        open_sample(tmp_path / "x.pt")
    assert "nearest" not in str(caught.value) and "'weights' [3]" in str(caught.value)
