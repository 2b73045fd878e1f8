"""d2t in both readings, and maps that are none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from drafter.checkpoint.head_rows import head_agreement
from drafter.checkpoint.vocab_map import VocabMap, read_vocab_map
from drafter.errors import CheckpointError
from tests import tiny
from tests.drafter.helpers import refused

D, V = tiny.SIZES.draft_vocab, tiny.SIZES.vocab


def read(kind: str, t2d: bool = True, dtype: torch.dtype = torch.int64) -> VocabMap:
    made = tiny.vocab_map(0, kind=kind)
    return read_vocab_map(made["d2t"].to(dtype), made["t2d"] if t2d else None, D, V)


def ids(kind: str) -> Tensor:
    """The target ids that were meant, from the map as the builder sorted it."""
    return torch.arange(D) + tiny.vocab_map(0, kind="unsorted" if kind == "unsorted" else "offsets")["d2t"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
@pytest.mark.parametrize("t2d", [True, False])
@pytest.mark.parametrize("kind", ["offsets", "unsorted"])
def test_offsets(kind: str, t2d: bool, dtype: torch.dtype) -> None:
    vocab = read(kind, t2d, dtype)
    assert (vocab.reading, vocab.warning, vocab.size) == ("offsets", "", D)
    assert torch.equal(vocab.target_ids, ids(kind))
    assert torch.equal(vocab.draft_ids[vocab.target_ids], torch.arange(D))
    assert int((vocab.draft_ids >= 0).sum()) == D and vocab.draft_ids.numel() == V
    if kind == "unsorted":
        assert int(tiny.vocab_map(0, kind="unsorted")["d2t"].min()) < 0


@pytest.mark.parametrize("t2d", [True, False])
def test_direct_ids_are_read_as_such_with_a_warning(t2d: bool) -> None:
    vocab = read("direct", t2d)
    assert vocab.reading == "direct ids" and "every server" in vocab.warning
    assert torch.equal(vocab.target_ids, ids("direct"))
    offset, direct = vocab.tests
    assert not offset.valid and direct.valid and "outside" in str(offset)


def test_out_of_range_in_both_readings_is_refused() -> None:
    with refused(CheckpointError, "2 ids outside", "another vocabulary"):
        read("out_of_range")
    for offset in (-1, V, 2**62, -(2**62)):
        d2t = torch.zeros(D, dtype=torch.int64)
        d2t[0] = offset
        with refused(CheckpointError, "outside"):
            read_vocab_map(d2t, None, D, V)


def test_a_map_that_was_never_set_is_warned_about_where_it_shows() -> None:
    vocab = read("zeros")
    assert vocab.reading == "offsets" and "does not fit t2d" in vocab.warning
    assert torch.equal(vocab.target_ids, torch.arange(D))


def test_repeated_ids_are_warned_about() -> None:
    made = tiny.vocab_map(0)
    made["d2t"][1] = made["d2t"][0] - 1  # draft ids 0 and 1 mean the same token
    vocab = read_vocab_map(made["d2t"], None, D, V)
    assert "1 repeated" in vocab.warning


def test_no_map_is_the_identity_only_for_the_whole_vocabulary() -> None:
    vocab = read_vocab_map(None, None, V, V)
    assert torch.equal(vocab.target_ids, torch.arange(V)) and vocab.reading.startswith("identity")
    with refused(CheckpointError, "no d2t", str(D), str(V)):
        read_vocab_map(None, None, D, V)


def test_an_identity_stored_as_ids() -> None:
    assert read_vocab_map(torch.arange(V), None, V, V).reading == "direct ids"
    assert read_vocab_map(torch.zeros(V).long(), None, V, V).reading == "offsets"


@pytest.mark.parametrize("shape", [(D - 1,), (D + 1,), (), (1, D), (0,)])
def test_a_map_of_another_length_is_refused(shape: tuple[int, ...]) -> None:
    with refused(CheckpointError, f"[{D}]"):
        read_vocab_map(torch.zeros(shape, dtype=torch.int64), None, D, V)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_map_that_was_cast_with_the_weights_is_refused(dtype: torch.dtype) -> None:
    """bfloat16 rounds ids above 256, so such a map decodes other tokens."""
    with refused(CheckpointError, "integers"):
        read("offsets", dtype=dtype)


def test_sizes_are_checked_before_anything_is_allocated() -> None:
    with refused(CheckpointError):
        read_vocab_map(torch.zeros(D).long(), None, 10**15, V)


@pytest.mark.parametrize("t2d", [torch.ones(V - 1).bool(), torch.ones(1, V).bool(), torch.ones(()).bool()])
def test_a_t2d_of_another_length_says_nothing(t2d: Tensor) -> None:
    vocab = read_vocab_map(tiny.vocab_map(0)["d2t"], t2d, D, V)
    assert vocab.reading == "offsets" and vocab.tests[0].not_in_t2d is None


def test_t2d_as_numbers_marks_too() -> None:
    made = tiny.vocab_map(0)
    assert read_vocab_map(made["d2t"], made["t2d"].to(torch.uint8), D, V).tests[0].not_in_t2d == 0


# --- readings asked for, and doubts


def test_a_reading_asked_for_is_taken_whatever_the_data_says() -> None:
    made = tiny.vocab_map(0)
    for reading, ids in (("offset", torch.arange(D) + made["d2t"]), ("direct", made["d2t"])):
        vocab = read_vocab_map(made["d2t"], made["t2d"], D, V, reading)
        assert torch.equal(vocab.target_ids, ids) and vocab.reading.endswith(", as asked")
        assert bool(vocab.warning) == (reading == "direct")


def test_a_reading_that_leads_out_of_the_vocabulary_is_refused() -> None:
    made = tiny.vocab_map(0, kind="direct")
    with refused(CheckpointError, "read as offsets", "outside"):
        read_vocab_map(made["d2t"], made["t2d"], D, V, "offset")
    with refused(CheckpointError, "read as direct ids"):
        read_vocab_map(tiny.vocab_map(0, kind="unsorted")["d2t"], None, D, V, "direct")


def test_a_t2d_that_marks_another_number_is_no_judge() -> None:
    made = tiny.vocab_map(0)
    few = made["t2d"].clone()
    few[few.nonzero()[0]] = False
    vocab = read_vocab_map(made["d2t"], few, D, V)
    assert vocab.reading == "offsets" and vocab.warning == f"t2d marks {D - 1} ids, the head has {D} rows"


@pytest.mark.parametrize("marks", [torch.zeros(V).bool(), torch.ones(V).bool()])
def test_maps_as_trainers_make_them_first_were_never_set(marks: Tensor) -> None:
    vocab = read_vocab_map(torch.zeros(D).long(), marks, D, V)
    assert "never set" in vocab.warning
    assert "never set" in read_vocab_map(torch.zeros(D).long(), None, D, V).warning


def test_zeros_are_right_where_the_first_ids_are_marked() -> None:
    marks = torch.arange(V) < D
    assert read_vocab_map(torch.zeros(D).long(), marks, D, V).warning == ""


def test_a_map_valid_in_both_readings_is_said_to_be_doubtful() -> None:
    vocab = read_vocab_map(torch.arange(D), None, D, V)
    assert vocab.reading == "offsets" and "both readings" in vocab.warning
    assert read_vocab_map(torch.arange(D), torch.arange(V) < D, D, V).reading == "direct ids"


def test_a_map_that_reorders_the_whole_vocabulary_is_said() -> None:
    d2t = torch.tensor([1, -1, *[0] * (V - 2)])
    assert "vLLM and SafeAILab ignore" in read_vocab_map(d2t, None, V, V).warning


def test_a_damaged_map_of_the_whole_vocabulary_is_ignored() -> None:
    d2t = torch.zeros(V).long()
    d2t[3] = V
    vocab = read_vocab_map(d2t, None, V, V)
    assert torch.equal(vocab.target_ids, torch.arange(V)) and "ignored" in vocab.warning


def test_rows_of_the_head_against_the_targets() -> None:
    torch.manual_seed(0)
    target = torch.randn(V, 32)
    ids = torch.randperm(V)[:D]
    right = head_agreement(target[ids] + 0.1 * torch.randn(D, 32), target, ids)
    assert right.matched > 0.9 and abs(right.shuffled) < 0.2 and right.fits
    wrong = head_agreement(target[torch.arange(D)], target, ids)
    assert not wrong.fits
    assert not head_agreement(torch.randn(D, 32), target, ids).fits
