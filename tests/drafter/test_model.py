"""The pieces of the forward that stand alone: rotation, norms, placement, the embedding table."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from drafter.checkpoint.config import Rope
from drafter.errors import CheckpointError, DeviceError, SampleError
from drafter.files.safetensors_file import read_header
from drafter.model import device
from drafter.model.attention import attend
from drafter.model.device import choose
from drafter.model.drafter import rms_norm
from drafter.model.embedding import EmbeddingTable
from drafter.model.rope import inverse_frequencies, rotate
from tests import reference
from tests.drafter.helpers import refused

# --- rope


@pytest.mark.parametrize("base", [10000.0, 50000.0])
def test_rotation_is_that_of_the_reference(base: float) -> None:
    x = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 7, 300, 4095])
    ours = rotate(x, positions, inverse_frequencies(Rope(base), 8))
    theirs = torch.stack([reference.rope(row, int(p), base) for row, p in zip(x, positions, strict=True)])
    assert torch.allclose(ours, theirs, atol=1e-3)


def test_linear_scaling_is_slower_time() -> None:
    plain, slow = Rope(1e4), Rope(1e4, "linear", {"factor": 4.0})
    x, positions = torch.randn(3, 2, 8), torch.tensor([4, 8, 400])
    ours = rotate(x, positions, inverse_frequencies(slow, 8))
    assert torch.allclose(ours, rotate(x, positions // 4, inverse_frequencies(plain, 8)), atol=1e-4)


def test_llama3_by_hand() -> None:
    """Wavelengths below 8192/4 stay, above 8192/1 are divided by 8, between them both are mixed."""
    parameters = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    plain = inverse_frequencies(Rope(5e5), 128)
    ours = inverse_frequencies(Rope(5e5, "llama3", parameters), 128)
    for f, scaled in zip(plain.tolist(), ours.tolist(), strict=True):
        length = 2 * math.pi / f
        if length < 2048:
            expected = f
        elif length > 8192:
            expected = f / 8
        else:
            share = (8192 / length - 1) / 3
            expected = (1 - share) * f / 8 + share * f
        assert scaled == pytest.approx(expected, rel=1e-5)
    assert len({round(a / b, 3) for a, b in zip(plain.tolist(), ours.tolist(), strict=True)}) > 2


@pytest.mark.parametrize(
    "rope",
    [Rope(1e4, "yarn"), Rope(1e4, "linear"), Rope(1e4, "linear", {"factor": 0}), Rope(1e4, "linear", {"factor": "2"})]
    + [Rope(1e4, "linear", {"factor": bad}) for bad in (True, float("nan"), 10**400, -1)]
    + [Rope(1e4, "llama3", {"factor": 8.0})],
)
def test_rope_that_is_not_computed_is_refused(rope: Rope) -> None:
    with refused(CheckpointError, rope.type):
        inverse_frequencies(rope, 8)


# --- norms and attention


def test_rms_norm_keeps_the_dtype_and_computes_wide() -> None:
    x, weight = torch.randn(4, 64), torch.rand(64) + 0.5
    assert torch.allclose(rms_norm(x, weight, 1e-5), reference.rms(x, weight, 1e-5), atol=1e-6)
    half = rms_norm((x * 1e3).half(), weight.half(), 1e-5)  # squares of 1e3 are no float16
    assert half.dtype == torch.float16
    assert torch.allclose(half.float(), reference.rms(x, weight, 1e-5), atol=2e-2)


def test_no_row_sees_a_later_one() -> None:
    """Keys and values of later rows change nothing, not even when they are no numbers."""
    rng = torch.Generator().manual_seed(0)
    q, keys, values = (torch.randn(6, heads, 8, generator=rng) for heads in (4, 2, 2))
    own_keys, own_values = torch.randn(6, 3, 2, 8, generator=rng), torch.randn(6, 3, 2, 8, generator=rng)
    rows = torch.arange(6)
    ours = attend(q, rows, keys, values, own_keys, own_values)
    for later in (torch.randn(1, 2, 8), torch.full((1, 2, 8), 1e30)):
        spoiled = attend(q, rows, torch.cat([keys[:5], later]), torch.cat([values[:5], later]), own_keys, own_values)
        assert torch.allclose(ours[:5], spoiled[:5], atol=1e-5)
        assert not torch.allclose(ours[5], spoiled[5], atol=1e-2)


# --- placement


def test_auto_on_a_cpu_is_exact_unless_the_weights_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(device, "native_bfloat16", lambda: True)
    assert choose("auto", "auto", "BF16", 10**6).dtype == torch.float32
    large = choose("auto", "auto", "BF16", 2 * 10**9)
    assert large.dtype == torch.bfloat16 and "bfloat16" in str(large) and "cpu" in str(large)
    assert choose("cpu", "auto", "F32", 2 * 10**9).dtype == torch.float32
    monkeypatch.setattr(device, "native_bfloat16", lambda: False)
    assert choose("auto", "auto", "BF16", 2 * 10**9).dtype == torch.float32
    asked = choose("cpu", "float16", "BF16", 10)
    assert (asked.dtype, asked.dtype_name) == (torch.float16, "float16") and "as asked" in asked.reason


@pytest.mark.parametrize(
    "name", ["cuda", "cuda:7", "mps", "meta", "tpu", "", "cpu\x1b[1m", "cuda:-1", "cuda:" + "9" * 30]
)
def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with refused(DeviceError, "the device"):
        choose(name, "auto", "F32", 10)


def test_a_dtype_that_is_none_is_refused() -> None:
    with refused(DeviceError, "int8", "bfloat16"):
        choose("cpu", "int8", "F32", 10)


# --- embedding


def table(tmp_path: Path, rows: int = 50) -> tuple[EmbeddingTable, torch.Tensor]:
    truth = torch.randn(rows, 4).bfloat16()
    save_file({"x": truth}, tmp_path / "x.safetensors")
    return EmbeddingTable(read_header(tmp_path / "x.safetensors").tensors["x"], "test"), truth


def test_rows_are_read_once_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedding, truth = table(tmp_path)
    read: list[int] = []
    gather = type(embedding.stored).gather

    def counted(stored: Any, indices: list[int]) -> torch.Tensor:
        read.extend(indices)
        return gather(stored, indices)

    monkeypatch.setattr(type(embedding.stored), "gather", counted)
    for ids in ([7, 3, 7], [49, 0], [3, 49, 12], [7]):
        assert torch.equal(embedding.rows(torch.tensor(ids)), truth[ids])
    assert sorted(read) == [0, 3, 7, 12, 49]


@pytest.mark.parametrize("ids", [[-1, 3], [50], [2**40]])
def test_ids_of_another_tokenizer_are_refused(tmp_path: Path, ids: list[int]) -> None:
    embedding, _ = table(tmp_path)
    with refused(SampleError, "0..49", "another tokenizer"):
        embedding.rows(torch.tensor(ids))
