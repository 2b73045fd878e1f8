"""Tensor names of all producers, normalised to one set: `fc`, `layers.0.*`, `norm`, `lm_head`, `d2t`, ..."""

from __future__ import annotations

import re
from collections.abc import Mapping

from drafter.errors import CheckpointError
from drafter.files.stored import StoredTensor

_PREFIXES = ("module.", "_orig_mod.", "draft_model.", "model.eagle_module.", "eagle_module.", "model.")
_LEGACY_FC_NORM = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}


def canonical(name: str) -> str:
    """The normal form of one tensor name, but for what depends on the other names (see `by_canonical_name`)."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    name = re.sub(r"^midlayer\.(\d+)\.", r"layers.\1.", name)
    name = re.sub(r"^midlayer\.", "layers.0.", name)
    for old, new in _LEGACY_FC_NORM.items():
        name = re.sub(rf"^{old}\.", f"{new}.", name)
    if name.endswith((".d2t", ".t2d")):
        return name[-3:]
    return name


def by_canonical_name(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """`tensors` under their canonical names. Raises CheckpointError when two of them get the same one.

    The norm before a layer >= 1 is `input_layernorm` here; where only SGLang's name for it, `hidden_norm`, is written,
    that one is taken.
    """
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
    return {_later_norm(name, found): tensor for name, tensor in found.items()}


def _later_norm(name: str, names: Mapping[str, StoredTensor]) -> str:
    match = re.fullmatch(r"layers\.0*[1-9]\d*\.hidden_norm\.weight", name)
    other = name.replace("hidden_norm", "input_layernorm")
    return other if match and other not in names else name


def layer_of(name: str) -> int | None:
    """The layer that a canonical name belongs to."""
    match = re.match(r"layers\.(\d{1,6})\.", name)
    return int(match.group(1)) if match else None
