"""Tensor names of all producers, normalised to one set: `fc`, `layers.0.*`, `norm`, `lm_head`, `d2t`, ..."""

from __future__ import annotations

import re
from collections.abc import Mapping

from drafter.errors import CheckpointError
from drafter.files.stored import StoredTensor

_PREFIXES = ("module.", "_orig_mod.", "draft_model.", "model.eagle_module.", "eagle_module.", "model.")
_LEGACY_FC_NORM = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}


def canonical(name: str) -> str:
    """The normal form of one tensor name."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    name = re.sub(r"^midlayer\.(\d+)\.", r"layers.\1.", name)
    name = re.sub(r"^midlayer\.", "layers.0.", name)
    for old, new in _LEGACY_FC_NORM.items():
        name = re.sub(rf"^{old}\.", f"{new}.", name)
    return name


def by_canonical_name(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """`tensors` under their canonical names. Raises CheckpointError when two of them get the same one."""
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        normal = canonical(name)
        if normal in found:
            raise CheckpointError(
                f"{found[normal].name!r} and {name!r} are both {normal!r}",
                expected="one tensor a name",
                where=tensor.path,
            )
        found[normal] = tensor
    return found


def expected(num_layers: int) -> list[str]:
    """What the forward of a plain GQA drafter needs, but for the embedding and the head."""
    names = ["fc.weight", "norm.weight"]
    for layer in range(num_layers):
        names += [f"layers.{layer}.input_layernorm.weight"] + (
            [f"layers.{layer}.hidden_norm.weight"] if layer == 0 else []
        )
        names += [f"layers.{layer}.self_attn.{p}_proj.weight" for p in "qkvo"]
        names += [f"layers.{layer}.post_attention_layernorm.weight"]
        names += [f"layers.{layer}.mlp.{p}_proj.weight" for p in ("gate", "up", "down")]
    return names
