"""What lies beside a config and tells who wrote it: tensor names and shapes, metadata, file names.

Also the producers' marks themselves, one function each, in the words in which they are shown as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Clues:
    """`shapes` by canonical tensor name, `written` the names in the file; all empty where there are no weights."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    written: frozenset[str] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    state_keys: frozenset[str] = frozenset()  # of a training_state.pt that the weights come from

    def wrote(self, part: str) -> bool:
        """Whether a name in the file has `part` at its beginning or after a dot."""
        return any(name.startswith(part) or f".{part}" in name for name in self.written)

    def width(self, name: str) -> int | None:
        """Input width of a matrix, None where there is no such matrix."""
        shape = self.shapes.get(name)
        return shape[1] if shape is not None and len(shape) == 2 else None

    @property
    def attention(self) -> str | None:
        """`mla` or `gqa` by the tensors of layer 0, None without them."""
        at = "layers.0.self_attn."
        if any(f"{at}{name}.weight" in self.shapes for name in ("kv_a_proj_with_mqa", "fused_qkv_a_proj_with_mqa")):
            return "mla"
        gqa = any(f"{at}{name}.weight" in self.shapes for name in ("k_proj", "qkv_proj"))
        return "gqa" if gqa else None

    @property
    def attention_input(self) -> int | None:
        """Width of what enters the attention of layer 0."""
        names = ("q_proj", "qkv_proj", "q_a_proj", "fused_qkv_a_proj_with_mqa", "kv_a_proj_with_mqa")
        widths = (self.width(f"layers.0.self_attn.{name}.weight") for name in names)
        return next((width for width in widths if width is not None), None)

    @property
    def is_eagle3(self) -> bool:
        """Whether the tensors are those of an EAGLE-3 drafter: the attention takes the embedding beside the hidden."""
        attention, down = self.attention_input, self.shapes.get("layers.0.self_attn.o_proj.weight")
        return attention is not None and down is not None and len(down) == 2 and attention == 2 * down[0]


NO_CLUES = Clues()
Mark = tuple[str, str, Any]  # source, key, value: what shows that a producer wrote it


def architecture(table: Mapping[str, Any]) -> str:
    names = table.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def eagle_config(table: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = table.get("eagle_config")
    return inner if isinstance(inner, Mapping) else {}
