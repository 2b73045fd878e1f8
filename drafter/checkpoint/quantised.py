"""Which weights are stored in another form than plain floats: fp8 with its scales is read, the rest is named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drafter.checkpoint.fused import SCALES
from drafter.files.stored import FLOATS, StoredTensor

FP8 = "F8_E4M3"
_SCALE_DTYPES = FLOATS | {"F8_E8M0"}
_LAYOUTS = (
    (r"\.weight_scale_2$", "nvfp4"),
    (r"\.weight_packed$", "packed 4-bit integers (compressed-tensors)"),
    (r"\.(qweight|qzeros|g_idx)$", "GPTQ or AWQ"),
    (r"\.(absmax|quant_map|quant_state\b.*)$", "bitsandbytes"),
)


def find_scales(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The scale of each fp8 weight, by the weight's name."""
    found = {}
    for name, tensor in tensors.items():
        if tensor.dtype == FP8 and name.endswith(".weight"):
            names = (f"{name.removesuffix('weight')}{scale}" for scale in SCALES)
            scale = next((tensors[n] for n in names if n in tensors and tensors[n].dtype in _SCALE_DTYPES), None)
            if scale is not None:
                found[name] = scale
    return found


def refused_layout(tensors: Mapping[str, StoredTensor]) -> str:
    """The quantised layout that is not read, with the tensor that shows it; empty where there is none."""
    for name, tensor in tensors.items():
        for pattern, what in _LAYOUTS:
            if re.search(pattern, name):
                return f"weights quantised as {what} ({name!r}, {tensor.dtype})"
    return ""


def block_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns of one scale's block, where the config states them."""
    table = config.get("quantization_config")
    block = table.get("weight_block_size") if isinstance(table, Mapping) else None
    if isinstance(block, list) and len(block) == 2 and all(type(n) is int and 0 < n <= 1 << 16 for n in block):
        return block[0], block[1]
    return None
