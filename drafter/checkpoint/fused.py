"""Fused projections split by rows into views of the separate ones; nothing is read for it."""

from __future__ import annotations

from collections.abc import Mapping

from drafter.checkpoint.config import DrafterConfig
from drafter.errors import CheckpointError
from drafter.files.stored import StoredTensor

SCALES = ("weight_scale", "weight_scale_inv")
_KINDS = ("weight", "bias", *SCALES)


def split_fused(tensors: Mapping[str, StoredTensor], config: DrafterConfig) -> dict[str, StoredTensor]:
    """`tensors` with `qkv_proj`, `gate_up_proj` and `fused_qkv_a_proj_with_mqa` in parts.

    Raises CheckpointError where the rows do not add up, or a part is there already.
    """
    known = _parts(config)
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        parent, _, last = module.rpartition(".")
        if last not in known or kind not in _KINDS:
            found[name] = tensor
            continue
        for part, view in _split(name, tensor, known[last]).items():
            full = f"{parent}.{part}.{kind}"
            if full in tensors:
                raise CheckpointError(f"{full!r} both by itself and in {name!r}", where=tensor.path)
            found[full] = view
    return found


def _parts(config: DrafterConfig) -> dict[str, dict[str, int]]:
    q, kv, wide = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim, config.intermediate_size
    parts = {"qkv_proj": {"q_proj": q, "k_proj": kv, "v_proj": kv}}
    parts["gate_up_proj"] = {"gate_proj": wide, "up_proj": wide}
    mla = config.mla
    if mla is not None and mla.q_lora_rank is not None:
        joint = mla.kv_lora_rank + mla.qk_rope_head_dim
        parts["fused_qkv_a_proj_with_mqa"] = {"q_a_proj": mla.q_lora_rank, "kv_a_proj_with_mqa": joint}
    return parts


def _split(name: str, tensor: StoredTensor, parts: Mapping[str, int]) -> dict[str, StoredTensor]:
    rows = sum(parts.values())
    if name.endswith(SCALES) and tensor.numel == 1:
        return dict.fromkeys(parts, tensor)
    if not tensor.shape or not tensor.shape[0] or rows % tensor.shape[0]:
        raise _unfit(name, tensor, parts)
    block = rows // tensor.shape[0]  # 1, but for the scales of blocks of rows
    if (block > 1 and not name.endswith(SCALES)) or any(size % block for size in parts.values()):
        raise _unfit(name, tensor, parts)
    views, start = {}, 0
    for part, size in parts.items():
        views[part] = tensor.cut(start, start + size // block)
        start += size // block
    return views


def _unfit(name: str, tensor: StoredTensor, parts: Mapping[str, int]) -> CheckpointError:
    said = " + ".join(f"{size} ({part})" for part, size in parts.items())
    return CheckpointError(f"{name!r} is {list(tensor.shape)}", expected=f"rows {said}", where=tensor.path)
