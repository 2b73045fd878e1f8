"""Torch tables of the older producers: each layout has its own reader, and every number is where it belongs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.errors import SampleError
from drafter.files.stored import StoredTensor
from drafter.sample.content import read_content
from drafter.sample.formats import (
    angelslim,
    baldeagle,
    eagle,
    hidden_only,
    specforge,
    specforge_debug,
    speculators_v0,
    speculators_v1,
)
from drafter.sample.formats.readers import READERS
from drafter.sample.open import open_sample
from drafter.sample.sample import Claim, Sample
from drafter.sample.source import Reader
from tests.drafter.helpers import refused, same
from tests.recordings import torch_dicts as write
from tests.recordings.torch_dicts import H, T, Written

USUAL = "2, L//2, L-3"
Writer = Callable[..., Written]


def one(writer: Callable[..., list[Written]]) -> Writer:
    return lambda folder, **changes: writer(folder, **changes)[0]


def no_aux(folder: Path, **changes: Any) -> Written:
    return write.specforge(folder, aux=False, **changes)


# name -> (writer, reader, the producer in the last state's claim or "", rule of the aux layers)
LAYOUTS: dict[str, tuple[Writer, Reader, str, str]] = {
    "v0": (write.speculators_v0, speculators_v0.READER, "speculators v0", "3, L//2+1, L-2"),
    "v1": (write.speculators_v1, speculators_v1.READER, "", ""),
    "specforge": (write.specforge, specforge.READER, "SpecForge", USUAL),
    "specforge gz": (write.specforge_gz, specforge.READER, "SpecForge", USUAL),
    "specforge without aux": (no_aux, specforge.READER, "SpecForge", USUAL),
    "specforge debug": (one(write.specforge_debug), specforge_debug.READER, "SpecForge", USUAL),
    "angelslim": (one(write.angelslim), angelslim.READER, "AngelSlim", USUAL),
    "states only": (write.states_only, hidden_only.READER, "", ""),
    "eagle": (write.eagle, eagle.READER, "EAGLE-1/2", ""),
    "baldeagle": (write.baldeagle, baldeagle.READER, "", USUAL),
    "baldeagle 3": (write.baldeagle_3, baldeagle.READER, "BaldEagle", USUAL),
}
# those whose file is one table that a test may change
TABLES = [name for name in LAYOUTS if name != "specforge gz"]


def check(sample: Sample, truth: Written) -> None:
    assert sample.ids.tolist() == truth.ids and sample.ids.dtype == torch.int64
    assert sample.mask is not None and sample.mask.int().tolist() == truth.mask and sample.mask.dtype == torch.bool
    assert len(sample.slots) == len(truth.states)
    for slot, state in zip(sample.slots, truth.states, strict=True):
        assert same(slot.tensor.rows(0, sample.length), state)
        assert same(slot.tensor.rows(2, 5), state[2:5])
        assert same(slot.tensor.gather([7, 0, 7]), state[[7, 0, 7]])


# --- every layout


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_number_is_where_it_was_recorded(tmp_path: Path, name: str) -> None:
    writer, reader, _, _ = LAYOUTS[name]
    truth = writer(tmp_path, seed=3)
    sample = open_sample(truth.path, H)
    check(sample, truth)
    assert (sample.format, sample.parts, sample.path) == (reader.name, 1, truth.path)
    said = {"specforge gz": "rows are real", "specforge without aux": "no aux_hidden_state"}.get(name)
    assert [said is not None and said in warning for warning in sample.warnings] == [True] * (said is not None)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_width_is_that_of_the_last_state_where_there_is_one(tmp_path: Path, name: str) -> None:
    truth = LAYOUTS[name][0](tmp_path)
    if name == "states only":
        with refused(SampleError, "18 wide", "a checkpoint says it"):
            open_sample(truth.path)
        with refused(SampleError, "18 wide", "multiple of 5"):
            open_sample(truth.path, 5)
    else:
        check(open_sample(truth.path), truth)
        check(open_sample(truth.path, 7), truth)


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_the_layout_promises(tmp_path: Path, name: str) -> None:
    writer, _, producer, rule = LAYOUTS[name]
    sample = open_sample(writer(tmp_path).path, H)
    last = Claim("last", f"{producer} layout", is_last=True, norm="post") if producer else None
    if name == "baldeagle 3":  # its trainer shows it, no file does
        last = replace(last, assumed=True) if last else None
    assert [slot.layout for slot in sample.slots] == [*[None] * (len(sample.slots) - 1), last]
    assert sample.aux_rule == rule
    assert [slot.claim for slot in sample.slots] == [None] * len(sample.slots)


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_other_reader_takes_the_file(tmp_path: Path, name: str) -> None:
    """No reader before the right one; and none after it that is as special."""
    writer, reader, _, _ = LAYOUTS[name]
    content = read_content(writer(tmp_path).path)
    taken = [candidate for candidate in READERS if candidate.fits(content)]
    assert taken[0] is reader
    assert [r.name for r in taken[1:] if r in [row[1] for row in LAYOUTS.values()]] == []


def test_the_order_of_the_readers_does_not_matter_here(tmp_path: Path) -> None:
    ours = {id(row[1]): row[1] for row in LAYOUTS.values()}.values()
    for name, (writer, reader, _, _) in LAYOUTS.items():
        content = read_content(writer(tmp_path / name).path)
        assert [r.name for r in ours if r.fits(content)] == [reader.name]


# --- shapes and dtypes that one layout has had


def lead(tensor: Tensor) -> Tensor:
    return tensor[None]


@pytest.mark.parametrize("name", TABLES)
def test_ids_and_mask_with_and_without_a_batch_dimension(tmp_path: Path, name: str) -> None:
    writer = LAYOUTS[name][0]
    truth = writer(tmp_path)
    ids, mask = torch.tensor(truth.ids), torch.tensor(truth.mask)
    for change in ({"input_ids": ids, "loss_mask": mask}, {"input_ids": ids[None], "loss_mask": mask[None]}):
        writer(tmp_path, **change)
        check(open_sample(truth.path, H), truth)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("specforge", ("aux_hidden_state", "hidden_state")),
        ("specforge debug", ("hidden_state", "target")),
        ("angelslim", ("hidden_states", "target_hiddens")),
        ("baldeagle 3", ("hidden_state", "target_hidden_states")),
        ("v0", ("hidden_state", "target")),
    ],
)
def test_states_with_and_without_a_batch_dimension(tmp_path: Path, name: str, keys: tuple[str, str]) -> None:
    writer = LAYOUTS[name][0]
    truth = writer(tmp_path)
    for shaped in (lambda x: x, lead):
        writer(tmp_path, **{keys[0]: shaped(truth.aux), keys[1]: shaped(truth.states[-1])})
        check(open_sample(truth.path), truth)


def test_states_alone_with_and_without_a_batch_dimension(tmp_path: Path) -> None:
    truth = write.states_only(tmp_path)
    wide = torch.cat(truth.states, dim=1)
    for states in (wide, wide[None]):
        write.states_only(tmp_path, hidden_states=states, attention_mask=...)
        check(open_sample(truth.path, H), truth)


def test_baldeagles_layers_may_stand_one_after_another_beside_a_last_state(tmp_path: Path) -> None:
    truth = write.baldeagle_3(tmp_path)
    write.baldeagle_3(tmp_path, hidden_state=torch.stack(truth.states[:3]))
    check(open_sample(truth.path), truth)


def test_the_last_state_alone_has_either_shape(tmp_path: Path) -> None:
    """[T, H] is EAGLE's, [1, T, H] SpecForge's; both mean the state after the final norm."""
    truth = write.eagle(tmp_path)
    assert open_sample(truth.path).format == eagle.NAME
    write.eagle(tmp_path, hidden_state=truth.states[0][None])
    sample = open_sample(truth.path)
    check(sample, truth)
    assert sample.format == specforge.NAME and sample.slots[0].layout is not None
    assert sample.slots[0].layout.norm == "post"


def test_aux_states_that_were_not_asked_for_may_stand_as_none(tmp_path: Path) -> None:
    truth = no_aux(tmp_path, aux_hidden_state=None)
    check(open_sample(truth.path), truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_states_of_any_float(tmp_path: Path, dtype: torch.dtype) -> None:
    made = write.specforge(tmp_path)
    states = [state.to(dtype) for state in made.states]
    truth = Written(made.path, made.ids, made.mask, states)
    write.specforge(tmp_path, aux_hidden_state=truth.aux[None], hidden_state=states[-1][None])
    sample = open_sample(truth.path)
    check(sample, truth)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32, torch.uint8])
def test_masks_of_any_kind(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    writer = LAYOUTS[name][0]
    truth = writer(tmp_path)
    writer(tmp_path, loss_mask=torch.tensor(truth.mask).to(dtype), input_ids=torch.tensor(truth.ids).int())
    check(open_sample(truth.path, H), truth)


@pytest.mark.parametrize("name", TABLES)
def test_masks_of_another_length_and_none(tmp_path: Path, name: str) -> None:
    writer = LAYOUTS[name][0]
    for length, word in ((T + 2, "cut"), (T - 2, "unsupervised")):
        sample = open_sample(writer(tmp_path, loss_mask=torch.ones(length).long()).path, H)
        assert sample.mask is not None and sample.mask.int().tolist() == [1] * min(length, T) + [0] * max(0, T - length)
        assert any(word in warning for warning in sample.warnings)
    sample = open_sample(writer(tmp_path, loss_mask=...).path, H)
    assert sample.mask is None and "no loss mask" in sample.warnings[0] and sample.length == T


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_aux_states(tmp_path: Path, count: int) -> None:
    made = write.text(tmp_path / "x", 1, count + 1)
    path = write.specforge(
        tmp_path,
        seed=1,
        input_ids=torch.tensor(made.ids),
        loss_mask=torch.tensor(made.mask),
        aux_hidden_state=torch.cat(made.states[:-1], dim=1)[None],
        hidden_state=made.states[-1][None],
    ).path
    check(open_sample(path), made)


# --- padding


@pytest.mark.parametrize("writer", [write.specforge, write.specforge_gz])
def test_rows_that_only_fill_a_batch_are_cut_and_counted(tmp_path: Path, writer: Writer) -> None:
    truth = writer(tmp_path, padding=5)
    sample = open_sample(truth.path)
    check(sample, truth)
    assert sample.length == T and [slot.tensor.shape for slot in sample.slots] == [(T, H)] * 4
    (said,) = sample.warnings
    assert f"{T} of {T + 5} rows are real" in said and "padding" in said


def test_a_text_is_not_cut_inside(tmp_path: Path) -> None:
    """Zeros inside, a supervised 0 and an unsupervised token at the end all belong to the text."""
    ids, mask = [5, 0, 0, 7, 0, 9, 0, 0, 3, 4, 0], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    path = write.specforge(tmp_path, input_ids=torch.tensor(ids), loss_mask=torch.tensor(mask)).path
    assert open_sample(path).length == T and open_sample(path).warnings == ()
    mask[-1] = 0
    write.specforge(tmp_path, input_ids=torch.tensor(ids), loss_mask=torch.tensor(mask))
    assert open_sample(path).length == T - 1 and f"{T - 1} of {T} rows" in open_sample(path).warnings[0]


def test_without_a_mask_no_padding_is_guessed(tmp_path: Path) -> None:
    assert open_sample(write.specforge(tmp_path, padding=5, loss_mask=...).path).length == T + 5


def test_nothing_but_padding_is_refused(tmp_path: Path) -> None:
    zeros = torch.zeros(T).long()
    path = write.specforge(tmp_path, input_ids=zeros, loss_mask=zeros).path
    with refused(SampleError, "0 of 11 rows are real"):
        open_sample(path)


def test_the_attention_mask_says_where_padding_begins(tmp_path: Path) -> None:
    truth = write.states_only(tmp_path)
    attention = torch.tensor([[1] * (T - 3) + [0] * 3])
    sample = open_sample(write.states_only(tmp_path, attention_mask=attention).path, H)
    assert sample.ids.tolist() == truth.ids[: T - 3] and "attention mask" in sample.warnings[0]


# --- several texts in a file


def test_a_batch_is_opened_text_by_text(tmp_path: Path) -> None:
    lengths = (9, 14, 8)
    texts = write.specforge_debug(tmp_path, lengths=lengths)
    for i, truth in enumerate(texts):
        path = truth.path.with_name(f"{truth.path.name}#{i}")
        sample = open_sample(path)
        check(sample, truth)
        assert (sample.parts, sample.path, sample.file, sample.length) == (3, path, truth.path, lengths[i])
        assert len(sample.warnings) == int(lengths[i] < 14)
    assert open_sample(texts[0].path).path.name.endswith("#0")
    with refused(SampleError, "sample 3", "0 to 2"):
        open_sample(texts[0].path.with_name(texts[0].path.name + "#3"))


def test_a_batch_of_angelslim(tmp_path: Path) -> None:
    for i, truth in enumerate(write.angelslim(tmp_path, texts=3)):
        check(open_sample(truth.path.with_name(f"data_0.ckpt#{i}")), truth)


def test_a_batch_whose_tables_differ_is_refused(tmp_path: Path) -> None:
    for key, value in {"target": torch.ones(2, 14, H), "loss_mask": torch.ones(14)}.items():
        (truth, *_) = write.specforge_debug(tmp_path, lengths=(9, 14, 8), **{key: value})
        with refused(SampleError, repr(key), "[3, ...]"):
            open_sample(truth.path)


# --- what else is in them


def test_what_belongs_to_images_is_named(tmp_path: Path) -> None:
    extras = {"position_ids": torch.ones(3, 1, T).long(), "inputs_embeds": torch.ones(1, T, H)}
    (truth,) = write.angelslim(tmp_path, **extras)
    sample = open_sample(truth.path)
    check(sample, truth)
    assert "position_ids and inputs_embeds" in sample.warnings[0]


# --- contradictions


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("v0", {"target": torch.ones(T, 5)}, ("'hidden_state' is 18 wide", "multiple of 5")),
        ("v0", {"target": torch.ones(T - 1, H)}, ("10 rows for 11 tokens",)),
        ("v0", {"target": torch.ones(T, 0)}, ("hidden_state",)),
        ("v0", {"input_ids": torch.ones(T)}, ("input_ids", "F32")),
        ("specforge", {"hidden_state": torch.ones(1, T, 54)}, ("'aux_hidden_state' is 18 wide", "multiple of 54")),
        ("specforge", {"hidden_state": torch.ones(2, T, H)}, ("'hidden_state' is [2, 11, 6]",)),
        ("specforge", {"aux_hidden_state": [1, 2]}, ("'aux_hidden_state' is a list",)),
        ("specforge", {"aux_hidden_state": torch.ones(1, T, 18).long()}, ("I64",)),
        ("angelslim", {"target_hiddens": torch.ones(1, T, 4)}, ("18 wide", "multiple of 4")),
        ("angelslim", {"input_ids": torch.ones(2, T).long()}, ("'loss_mask' is [1, 11]", "[2, ...]")),
        ("eagle", {"hidden_state": torch.ones(T - 2, H)}, ("9 rows for 11 tokens",)),
        ("eagle", {"loss_mask": "yes"}, ("'loss_mask' is a str",)),
        ("baldeagle", {"hidden_state": torch.ones(3, T, 0)}, ("state 0",)),
    ],
)
def test_what_contradicts_itself_is_refused(
    tmp_path: Path, name: str, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    with refused(SampleError, *words):
        open_sample(LAYOUTS[name][0](tmp_path, **changes).path, H)


HOSTILE: list[Any] = [
    None,
    [],
    [1, 2],
    {},
    {1: 2, None: 3, (1, 2): 4},
    {"input_ids": None, "hidden_state": None, "target": None},
    {"input_ids": 1, "hidden_state": [None], "hidden_states": {"a": 1}, "target_hiddens": "x", b"k": 1},
    {"input_ids": [1, 2], "hidden_states": "text", "aux_hidden_state": 1.5},
    "input_ids",
    3,
]


@pytest.mark.parametrize("content", HOSTILE)
def test_no_reader_falls_over_what_it_cannot_read(content: Any) -> None:
    assert [
        reader.name for reader in {row[1].name: row[1] for row in LAYOUTS.values()}.values() if reader.fits(content)
    ] == []


@pytest.mark.parametrize("shape", [(), (0,), (T,), (0, 0), (1, 0, 0), (T, T, T, T)])
def test_odd_shapes_are_refused_or_named(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Whatever reader takes them: nothing is left out without a word."""
    for name in TABLES:
        writer = LAYOUTS[name][0]
        record = torch.load(writer(tmp_path / name).path, weights_only=True)
        for key in record.keys() - {"loss_mask", "attention_mask", "position_ids"}:
            path = writer(tmp_path / name, **{key: torch.zeros(shape)}).path
            try:
                sample = open_sample(path, H)
            except SampleError as error:
                assert str(error).isprintable()
            else:
                assert any(key in warning for warning in sample.warnings)


def test_content_is_never_read_to_tell_a_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: StoredTensor) -> Tensor:
        raise AssertionError(self.name)

    contents = [read_content(row[0](tmp_path / name).path) for name, row in LAYOUTS.items()]
    monkeypatch.setattr(StoredTensor, "read", never)
    for content in contents:
        assert any(reader.fits(content) for reader in READERS)
