"""What a tensor is called in the checkpoint's own file, for titles and cures: `midlayer.` or `model.layers.0.`, not the
canonical name; also of a tensor that is missing, by the names of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drafter.checks.case import Case
from drafter.files.stored import StoredTensor

_FUSED = ("qkv_proj", "gate_up_proj", "fused_qkv_a_proj_with_mqa")


def written(case: Case) -> Callable[[str], str]:
    """From canonical names to those of the file."""
    tensors = case.opened.tensors if case.opened is not None else case.files.tensors
    return lambda name: name_in_file(name, tensors)


def name_in_file(name: str, tensors: Mapping[str, StoredTensor]) -> str:
    stored = tensors.get(name)
    if stored is None:
        return _as_neighbours(name, tensors)
    module = stored.name.rpartition(".")[0].rpartition(".")[2]
    if module in _FUSED:
        return f"{stored.name} (its {name.rpartition('.')[0].rpartition('.')[2]})"
    return stored.name


def _as_neighbours(name: str, tensors: Mapping[str, StoredTensor]) -> str:
    """A missing tensor under the prefix that others of its layer have; as it is where none tells."""
    layer = f"{'.'.join(name.split('.')[:2])}." if name.startswith("layers.") else ""
    if name.startswith("lm_head."):
        return name  # stands outside of the model in every layout
    for other, stored in tensors.items():
        same = other.startswith(layer) if layer else "." in other and not other.startswith(("layers.", "lm_head."))
        rest = other.removeprefix(layer)
        if same and stored.name.endswith(rest):
            return stored.name.removesuffix(rest) + name.removeprefix(layer)
    return name
