"""The base of rotary embedding that an old checkpoint's `inv_freq` was made with, against the config's."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from drafter.checkpoint.config import DrafterConfig
from drafter.files.stored import StoredTensor, contiguous, read_bytes

_FORMATS = {"F64": "d", "F32": "f", "F16": "e"}
# relative error of the base found: rounding of one frequency, raised to half of head_dim
_TOLERANCE = {"F64": 1e-3, "F32": 1e-3, "F16": 0.5, "BF16": 0.9}
MAX_ELEMENTS = 1 << 12


def stored_base(tensors: Mapping[str, StoredTensor]) -> tuple[str, float, float] | None:
    """Name, base and its relative tolerance, of the first `inv_freq` that tells one."""
    for name, stored in tensors.items():
        if not name.endswith("rotary_emb.inv_freq") or len(stored.shape) != 1 or not 1 < stored.numel <= MAX_ELEMENTS:
            continue
        if stored.dtype in _TOLERANCE and stored.strides == contiguous(stored.shape):
            first, second = _numbers(stored)[:2]
            # the first two are unscaled in every type but `linear`, which their ratio does not see
            if 0 < second < first < math.inf:
                exponent = stored.numel * math.log(first / second)
                if exponent < 50:
                    return name, math.exp(exponent), _TOLERANCE[stored.dtype]
    return None


def _numbers(stored: StoredTensor) -> tuple[float, ...]:
    data = read_bytes(stored)
    if stored.dtype == "BF16":
        padded = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        return struct.unpack(f"<{stored.numel}f", padded)
    return struct.unpack(f"<{stored.numel}{_FORMATS[stored.dtype]}", data)


def base_warning(config: DrafterConfig, tensors: Mapping[str, StoredTensor]) -> str:
    """Empty where the tensors and the config agree, or the tensors tell nothing."""
    found = stored_base(tensors)
    if found is None or abs(found[1] / config.rope.base - 1) <= found[2]:
        return ""
    name, base, _ = found
    return (
        f"{name} was made with a RoPE base of {base:.6g}, the config says {config.rope.base:g}: compare with "
        f"rope_base {base:.6g}"
    )
