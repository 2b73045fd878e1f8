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
from drafter.model.attention import Seen, Window, attend
from drafter.model.device import choose
from drafter.model.embedding import EmbeddingTable
from drafter.model.norm import rms_norm
from drafter.model.rope import Rotary, make_rotary, rotary_dims
from tests import reference
from tests.drafter.helpers import refused

# --- rope

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rotary(rope: Rope, dims: int = 8, length: int = 25, max_positions: int | None = 512) -> Rotary:
    return make_rotary(rope, dims, length, max_positions)


@pytest.mark.parametrize("base", [10000.0, 50000.0])
def test_rotation_is_that_of_the_reference(base: float) -> None:
    x = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 7, 300, 4095])
    ours = rotary(Rope(base)).rotate(x, positions)
    theirs = torch.stack([reference.rope(row, int(p), base) for row, p in zip(x, positions, strict=True)])
    assert torch.allclose(ours, theirs, atol=1e-3)


def test_linear_scaling_is_slower_time() -> None:
    plain, slow = Rope(1e4), Rope.of(1e4, "linear", {"factor": 4.0})
    x, positions = torch.randn(3, 2, 8), torch.tensor([4, 8, 400])
    ours = rotary(slow).rotate(x, positions)
    assert torch.allclose(ours, rotary(plain).rotate(x, positions // 4), atol=1e-4)


def test_llama3_by_hand() -> None:
    """Wavelengths below 8192/4 stay, above 8192/1 are divided by 8, between them both are mixed."""
    plain = rotary(Rope(5e5), 128).frequencies
    ours = rotary(Rope.of(5e5, "llama3", LLAMA3), 128).frequencies
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


def test_dynamic_is_default_up_to_the_length_that_was_trained() -> None:
    plain, dynamic = Rope(1e4), Rope.of(1e4, "dynamic", {"factor": 2.0})
    for length in (1, 512):
        assert torch.equal(rotary(dynamic, length=length).frequencies, rotary(plain).frequencies)
    longer = rotary(dynamic, length=1024).frequencies  # base * (2 * 2 - 1) ** (8 / 6)
    assert torch.allclose(longer, rotary(Rope(1e4 * 3 ** (4 / 3))).frequencies)


def test_yarn_by_hand() -> None:
    """Fast pairs stay, slow ones are divided; cos and sin grow by 0.1 ln(factor) + 1."""
    parameters = {"factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}
    ours, plain = rotary(Rope.of(5e4, "yarn", parameters), 64), rotary(Rope(5e4), 64).frequencies
    assert ours.scaling == pytest.approx(0.1 * math.log(32) + 1) and ours.softmax == 1.0
    assert torch.allclose(ours.frequencies[:8], plain[:8]) and torch.allclose(ours.frequencies[-8:], plain[-8:] / 32)
    between = ours.frequencies / plain
    assert bool((between.diff() <= 0).all()) and len({round(x, 3) for x in between.tolist()}) > 4
    both = rotary(Rope.of(5e4, "yarn", parameters | {"mscale": 1.0, "mscale_all_dim": 1.0}), 64)
    assert both.scaling == 1.0 and both.softmax == pytest.approx((0.1 * math.log(32) + 1) ** 2)
    assert rotary(Rope.of(5e4, "yarn", parameters | {"attention_factor": 1.5}), 64).scaling == 1.5


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_part_of_the_head_is_rotated_alone(interleaved: bool) -> None:
    x, positions = torch.randn(3, 2, 12), torch.tensor([4, 8, 400])
    rope = Rope(1e4, interleaved=interleaved)
    ours = rotary(rope, 8).rotate(x, positions)
    assert torch.equal(ours[..., 8:], x[..., 8:])
    assert torch.equal(ours[..., :8], rotary(rope, 8).rotate(x[..., :8], positions))


def test_interleaved_pairs_are_halves_in_another_order() -> None:
    x, positions = torch.randn(3, 2, 8), torch.tensor([4, 8, 400])
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    halves = rotary(Rope(1e4)).rotate(x[..., order], positions)
    assert torch.allclose(rotary(Rope(1e4, interleaved=True)).rotate(x, positions)[..., order], halves, atol=1e-6)


@pytest.mark.parametrize(
    ("table", "dims"),
    [({}, 16), ({"partial_rotary_factor": 0.5}, 8), ({"partial_rotary_factor": 1}, 16), ({"rotary_dim": 4}, 4)],
)
def test_how_much_of_a_head_is_rotated(table: dict[str, Any], dims: int) -> None:
    assert rotary_dims(Rope.of(1e4, "default", table), 16) == dims


@pytest.mark.parametrize(
    "table",
    [{"partial_rotary_factor": bad} for bad in (0, -1, 1.5, "half", float("nan"), 0.07)]
    + [{"rotary_dim": bad} for bad in (0, 3, 18, 4.0, True)],
)
def test_a_part_that_is_none_is_refused(table: dict[str, Any]) -> None:
    with refused(CheckpointError, "16 dimensions"):
        rotary_dims(Rope.of(1e4, "default", table), 16)


@pytest.mark.parametrize(
    "rope",
    [Rope(1e4, "yarn"), Rope(1e4, "longrope"), Rope(1e4, "linear"), Rope(1e4, "dynamic")]
    + [Rope.of(1e4, "linear", {"factor": bad}) for bad in (0, "2", True, float("nan"), 10**400, -1)]
    + [Rope.of(1e4, "llama3", {"factor": 8.0}), Rope.of(1e4, "llama3", LLAMA3 | {"high_freq_factor": 1.0})]
    + [Rope.of(1e4, "dynamic", {"factor": 1e308}), Rope.of(1.0, "yarn", {"factor": 4.0})]
    + [Rope.of(1e4, "yarn", {"factor": 4.0, "beta_fast": "x"})],
    ids=lambda r: f"{r.type} {dict(r.parameters)}"[:60],
)
def test_rope_that_is_not_computed_is_refused(rope: Rope) -> None:
    with refused(CheckpointError, rope.type):
        rotary(rope, length=600)


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
    own = torch.randn(6, 3, 2, 8, generator=rng), torch.randn(6, 3, 2, 8, generator=rng)
    rows = torch.arange(6)
    ours = attend(q, rows, Seen(keys, values, *own), 0.35)
    for later in (torch.randn(1, 2, 8), torch.full((1, 2, 8), 1e30)):
        seen = Seen(torch.cat([keys[:5], later]), torch.cat([values[:5], later]), *own)
        spoiled = attend(q, rows, seen, 0.35)
        assert torch.allclose(ours[:5], spoiled[:5], atol=1e-5)
        assert not torch.allclose(ours[5], spoiled[5], atol=1e-2)


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5], [5], [2, 4]])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 100])
def test_a_window_hides_what_lies_behind_it(width: int, rows: list[int]) -> None:
    """Against one softmax a row over the keys that are left, of which the row's last own key is always one."""
    rng, step = torch.Generator().manual_seed(0), 3
    q, keys, values = (torch.randn(6, heads, 8, generator=rng) for heads in (2, 2, 2))
    own_keys, own_values = torch.randn(6, step, 2, 8, generator=rng), torch.randn(6, step, 2, 8, generator=rng)
    chosen = torch.tensor(rows)
    seen = Seen(keys, values, own_keys[chosen], own_values[chosen])
    ours = attend(q[chosen], chosen, seen, 0.35, Window(width, step))
    for found, t in zip(ours, rows, strict=True):
        past = [s for s in range(t + 1) if t + step - s < width]
        own = [j for j in range(1, step + 1) if step - j < width]
        k = torch.stack([keys[s] for s in past] + [own_keys[t, j - 1] for j in own], 1)  # [2, s, 8]
        v = torch.stack([values[s] for s in past] + [own_values[t, j - 1] for j in own], 1)
        weights = (torch.einsum("hd,hsd->hs", q[t], k) * 0.35).softmax(-1)
        assert torch.allclose(found.view(2, 8), torch.einsum("hs,hsd->hd", weights, v), atol=1e-5)


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


@pytest.mark.parametrize("ids", [[-1, 3], [3, 50, 4], [2**40, 0, -(2**40), 49], [50], [-1, -1]])
def test_ids_outside_of_the_table_have_rows_of_zeros(tmp_path: Path, ids: list[int]) -> None:
    embedding, truth = table(tmp_path)
    wanted = torch.stack([truth[i] if 0 <= i < 50 else torch.zeros(4).bfloat16() for i in ids])
    assert torch.equal(embedding.rows(torch.tensor(ids)), wanted)


@pytest.mark.parametrize("ids", [[-1], [-1, 3, 50], [50], [2**40]])
def test_ids_of_another_tokenizer_are_refused(tmp_path: Path, ids: list[int]) -> None:
    embedding, _ = table(tmp_path)
    with refused(SampleError, "0..49", "another tokenizer"):
        embedding.check(torch.tensor(ids))
    embedding.check(torch.tensor([*range(len(ids)), *ids]))  # no more than a half
