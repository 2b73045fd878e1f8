"""What the rules of a served view look at, and what they find: one difference from the trained view each.

Rules read the config as the server reads it (`Case.stated`), never as the dialect's reader understood it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.config import Fields, Rope
from drafter.checkpoint.layer_fields import read_rope
from drafter.checkpoint.target import TargetFolder
from drafter.serving.families import Family
from drafter.serving.server import Server
from drafter.wiring import Wiring

INNER = "transformer_layer_config"
CANNOT = "cannot be cured by a key: "
ORDERING = "ordering"


@dataclass(frozen=True)
class Difference:
    """One thing that a server does otherwise than training did.

    `why`: one sentence with the versions. `cure`: a key and its value, or `CANNOT` and what else helps. `change`: the
    fields of the wiring that it is; empty for the ordering, and for what is not computed here.
    """

    name: str
    trained: str
    served: str
    why: str
    cure: str
    change: tuple[tuple[str, Any], ...] = ()

    @property
    def computed(self) -> bool:
        return bool(self.change) or self.name == ORDERING


@dataclass(frozen=True)
class Case:
    """A checkpoint before one server. `table` is its config.json as written; `reading` how d2t has to be read."""

    checkpoint: Checkpoint
    table: Mapping[str, Any]
    server: Server
    family: Family
    num_layers: int | None = None
    target: TargetFolder | None = None
    reading: str = ""

    @property
    def trained(self) -> Wiring:
        return Wiring.trained(self.checkpoint.run_config)

    @property
    def nested(self) -> bool:
        """Whether the config is the nested one of speculators."""
        return isinstance(self.table.get(INNER), Mapping)

    def stated(self, *keys: str) -> Any:
        """The first of the dotted `keys` that the config sets; None where none is set."""
        fields = Fields(self.table, "the config")
        return next((value for key in keys if (value := fields.raw(key)) is not None), None)

    def layer_field(self, key: str) -> Any:
        """A field of the decoder layer, which a nested config keeps inside."""
        return self.stated(f"{INNER}.{key}" if self.nested else key)

    @property
    def use_aux(self) -> bool:
        return self.stated("eagle_config.use_aux_hidden_state") is not False

    def has(self, name: str) -> bool:
        return name in self.checkpoint.tensors

    def has_any(self, pattern: str) -> bool:
        return any(re.fullmatch(pattern, name) for name in self.checkpoint.tensors)

    def upper_norms(self) -> set[str]:
        """How the file calls the norm before the layers above the first."""
        found = {
            n: t for n, t in self.checkpoint.tensors.items() if re.fullmatch(r"layers\.[1-9]\d*\.(.*norm)\.weight", n)
        }
        written = [
            tensor.name
            for name, tensor in found.items()
            if name.endswith(("input_layernorm.weight", "hidden_norm.weight"))
        ]
        return {name.rsplit(".", 2)[-2] for name in written}

    def differs(self, name: str, value: Any, why: str, cure: str, **more: Any) -> Difference | None:
        """The switch `name` set to `value` where training had another; with `more` fields that belong to it."""
        change = {name: value, **more}
        if all(getattr(self.trained, key) == wanted for key, wanted in change.items()):
            return None
        served = Wiring.trained(self.checkpoint.run_config).changed(**change)
        return Difference(name, self.trained.value(name), served.value(name), why, cure, tuple(change.items()))

    def rope_differs(self, rope: Rope, why: str, cure: str) -> Difference | None:
        """Another rotary embedding than training's."""
        ours = self.trained.rope
        if rope == ours:
            return None
        return Difference("rope", rope_text(ours, rope), rope_text(rope, ours), why, cure, (("rope", rope),))

    def read_rope(self, without: tuple[str, ...] = ()) -> Rope:
        """RoPE as a server reads it that does not know the keys in `without`. Raises CheckpointError."""
        table = {key: value for key, value in self.table.items() if key not in without}
        prefix = f"{INNER}." if self.nested else ""
        return read_rope(Fields(table, "config.json"), prefix, self.checkpoint.run_config.attention == "mla")


def rope_text(rope: Rope, beside: Rope) -> str:
    """`default, base 10000`, with the parameters where only they tell it from `beside`."""
    text = f"{rope.type}, base {rope.base:.12g}"
    if (rope.type, rope.base) == (beside.type, beside.base):
        pairs = "interleaved" if rope.interleaved else "halves"
        text += f", {pairs}" if rope.interleaved != beside.interleaved else ""
        text += "".join(f", {key} {value!r:.40}" for key, value in rope.parameters if beside.get(key) != value)
    return text
