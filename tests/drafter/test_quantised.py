"""fp8 weights with their scales, multiplied out when they are loaded; other layouts refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.errors import CheckpointError
from drafter.model.dequantize import read_weight
from drafter.model.weights import check_runnable, load_weights
from tests import tiny
from tests.drafter.helpers import built, opened, placed, refused

WEIGHTS = tiny.tiny_weights()
UP = "layers.0.mlp.up_proj"
Tensors = dict[str, Tensor]


def written(folder: Path, tensors: Tensors, name: str = UP, **config: Any) -> Checkpoint:
    """The tiny drafter with `tensors` in place of the weight of `name`."""
    tiny.write_nested(folder, WEIGHTS, changes=config)
    whole = load_file(folder / "model.safetensors")
    del whole[f"{name}.weight"]
    save_file(whole | {f"{name}.{key}": t for key, t in tensors.items()}, folder / "model.safetensors")
    return opened(folder)


def stored(shape: tuple[int, int] = (48, 32)) -> Tensor:
    return torch.randn(shape).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,), (48,), (48, 1)])
def test_one_scale_or_one_a_row(tmp_path: Path, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    weight, scale = stored(), (torch.rand(shape) + 0.5).to(dtype)
    one = written(tmp_path / "x", {"weight": weight, "weight_scale": scale, "input_scale": torch.ones(())})
    assert one.missing == {} and list(one.unused) == [f"{UP}.input_scale"] and one.warnings == ()
    factor = scale.float().reshape(-1, 1) if scale.numel() > 1 else scale.float().reshape(())
    assert torch.equal(load_weights(one, placed(), lambda: None)[f"{UP}.weight"], weight.float() * factor)


@pytest.mark.parametrize(
    ("block", "stated"), [((16, 16), True), ((16, 8), False), ((128, 128), False), ((20, 12), True)]
)
def test_one_scale_a_block(tmp_path: Path, block: tuple[int, int], stated: bool) -> None:
    weight = stored()
    scale = torch.rand(-(-48 // block[0]), -(-32 // block[1])) + 0.5
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": list(block)}} if stated else {}
    one = written(tmp_path / "x", {"weight": weight, "weight_scale_inv": scale}, **config)
    expected = torch.empty(48, 32)
    for i in range(48):
        for j in range(32):
            expected[i, j] = weight[i, j].float() * scale[i // block[0], j // block[1]]
    assert torch.equal(read_weight(one, f"{UP}.weight", placed()), expected)


def test_a_quantised_head_and_a_fused_projection(tmp_path: Path) -> None:
    head = stored((40, 32))
    drafter = built(written(tmp_path / "x", {"weight": head, "weight_scale": torch.tensor(2.0)}, "lm_head").path)
    assert torch.equal(drafter._sources.head("own", "data"), head.float() * 2)
    folder = tiny.write_nested(tmp_path / "fused", WEIGHTS)
    whole = load_file(folder / "model.safetensors")
    for part in ("gate", "up"):
        del whole[f"layers.0.mlp.{part}_proj.weight"]
    joined, scale = stored((96, 32)), torch.rand(96, 1)
    whole |= {"layers.0.mlp.gate_up_proj.weight": joined, "layers.0.mlp.gate_up_proj.weight_scale": scale}
    save_file(whole, folder / "model.safetensors")
    one = opened(folder)
    assert one.unused == {}
    assert torch.equal(read_weight(one, f"{UP}.weight", placed()), (joined.float() * scale)[48:])


@pytest.mark.parametrize("shape", [(47,), (48, 2), (2, 3, 4), (0,), (0, 0)])
def test_scales_that_do_not_fit_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    config = {"quantization_config": {"weight_block_size": [16, 16]}}
    one = written(tmp_path / "x", {"weight": stored(), "weight_scale": torch.ones(shape)}, **config)
    with refused(CheckpointError, "up_proj", "one a row"):
        load_weights(one, placed(), lambda: None)


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        ({"weight_packed": torch.zeros(48, 4, dtype=torch.int32), "weight_scale": torch.ones(48, 1)}, "packed 4-bit"),
        ({"qweight": torch.zeros(4, 48, dtype=torch.int32), "qzeros": torch.zeros(1, 6, dtype=torch.int32)}, "GPTQ"),
        (
            {
                "weight": torch.zeros(48, 16, dtype=torch.uint8),
                "weight_scale": torch.ones(48, 2),
                "weight_scale_2": torch.ones(()),
            },
            "nvfp4",
        ),
        ({"weight": torch.zeros(48, 32, dtype=torch.int8), "weight_scale": torch.ones(())}, "I8"),
        ({"weight": stored()}, "up_proj"),
    ],
)
def test_other_layouts_are_refused_by_name(tmp_path: Path, tensors: Tensors, word: str) -> None:
    one = written(tmp_path / "x", tensors)
    with refused(CheckpointError, word):
        check_runnable(one)


@pytest.mark.parametrize("block", [None, [16], [0, 1], ["a", "b"], 16, [10**9, 1]])
def test_malformed_block_sizes_are_ignored(tmp_path: Path, block: Any) -> None:
    config = {"quantization_config": {"weight_block_size": block}}
    assert written(tmp_path / "x", {"weight": stored(), "weight_scale": torch.ones(())}, **config).block_size is None
    (tmp_path / "x/config.json").write_text(json.dumps(tiny.nested_config(WEIGHTS) | {"quantization_config": 3}))
    assert opened(tmp_path / "x").block_size is None
