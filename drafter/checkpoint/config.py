"""One normal form for the configs of all producers, with the evidence for every field.

`DrafterConfig` is what a drafter *is*; which function a server makes of it is a wiring's matter. The dialect readers
fill it through `Fields`, which writes down the key or the default that supplied each value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from drafter.errors import CheckpointError


@dataclass(frozen=True)
class Evidence:
    """Where a field's value comes from: `source` is a file name, "weights", or "default"."""

    source: str
    key: str
    value: Any
    note: str = ""

    @property
    def is_default(self) -> bool:
        return self.source == "default"


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: `base`, HF `rope_type` with its parameters, and whether pairs are interleaved.

    Hashable, because a Wiring holds one and results are kept by wiring: make it with `of` from a config's table.
    """

    base: float
    type: str = "default"
    parameters: tuple[tuple[str, Any], ...] = ()
    interleaved: bool = False

    @classmethod
    def of(cls, base: float, type: str, table: Mapping[str, Any], interleaved: bool = False) -> Rope:
        return cls(base, type, tuple(sorted((str(k), _frozen(v)) for k, v in table.items())), interleaved)

    def get(self, key: str) -> Any:
        """The parameter `key` of the config's table, None where it has none."""
        return dict(self.parameters).get(key)


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), _frozen(v)) for k, v in value.items()))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Mla:
    """Sizes of multi-head latent attention (DeepSeek, Kimi); `q_lora_rank` None: q_proj is not factored."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class DrafterConfig:
    """Sizes in elements. `aux_ids` are as written; `aux_depths` are layers passed (0 = embedding output)."""

    dialect: str
    producer: str
    architecture: str
    hidden_size: int
    target_hidden_size: int
    vocab_size: int
    draft_vocab_size: int | None
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    num_layers: int
    rms_norm_eps: float
    hidden_act: str
    rope: Rope
    attention: str
    attention_bias: bool
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    use_aux: bool
    aux_ids: tuple[int, ...] | None
    id_convention: str
    tie_lm_head: bool
    sliding_window: int | None
    max_positions: int | None
    verifier: str
    mla: Mla | None = None
    final_norm: bool = True  # whether `norm` stands before lm_head
    double_norm: bool = False  # whether the hidden passes input_layernorm before hidden_norm, as ModelOpt trains
    parallel: bool = False  # P-EAGLE: all depths in one pass, from mask tokens
    mask_token_id: int | None = None
    logit_scale: float = 1.0
    stated_rope: Rope = Rope(10000.0)  # what a server reads; `rope` is what training used
    full_layers: tuple[int, ...] = ()  # layers that see everything where the others have the sliding window
    evidence: Mapping[str, Evidence] = field(repr=False, default_factory=dict)
    warnings: tuple[str, ...] = field(repr=False, compare=False, default=())

    def window_of(self, layer: int) -> int | None:
        """The sliding window of one layer, None where it sees everything."""
        return None if layer in self.full_layers else self.sliding_window

    @property
    def aux_depths(self) -> tuple[int, ...] | None:
        if self.aux_ids is None:
            return None
        shift = 1 if self.id_convention == "depth = id + 1" else 0
        return tuple(i + shift for i in self.aux_ids)

    def items(self) -> list[tuple[str, Any, Evidence | None]]:
        """Every field with its evidence, in the order of the definition."""
        skip = {"evidence", "warnings"}
        return [(f.name, getattr(self, f.name), self.evidence.get(f.name)) for f in fields(self) if f.name not in skip]


@dataclass(frozen=True)
class Disagreement:
    """A field on which `config.json` (what a server reads) and what training wrote differ."""

    field: str
    configured: Any
    trained: Any
    configured_source: str
    trained_source: str


class Fields:
    """Reads values out of one config table and keeps the evidence. Keys may be dotted (`eagle_config.x`)."""

    def __init__(self, table: Mapping[str, Any], source: str) -> None:
        self.table, self.source = table, source
        self.evidence: dict[str, Evidence] = {}
        self.warnings: list[str] = []

    def raw(self, key: str) -> Any:
        value: Any = self.table
        for part in key.split("."):
            if not isinstance(value, Mapping):
                return None
            value = value.get(part)
        return value

    def note(self, name: str, source: str, key: str, value: Any, note: str = "") -> Any:
        self.evidence[name] = Evidence(source, key, value, note)
        return value

    def take(self, name: str, keys: str, kind: type, default: Any = None, why: str = "") -> Any:
        """The first of the space-separated `keys` that is set, else `default` (with the reason `why` kept).

        Raises CheckpointError for a value of another kind, or for a missing one where no default was given.
        """
        for key in keys.split():
            value = self.raw(key)
            if value is not None:
                return self.note(name, self.source, key, self._cast(key, value, kind))
        if default is None and not why:
            raise CheckpointError(f"no {keys.split()[0]!r}", expected=f"one of {keys.split()}", where=self.source)
        return self.note(name, "default", keys.split()[0], default, why)

    def _cast(self, key: str, value: Any, kind: type) -> Any:
        if kind is float:
            number = finite(value)
            if number is None or number < 0:
                raise CheckpointError(f"{key!r} is {value!r:.60}", expected="a number >= 0", where=self.source)
            return number
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise CheckpointError(f"{key!r} is {value!r:.60}", expected=f"{kind.__name__}", where=self.source)
        if kind is int and isinstance(value, int) and not 0 < value <= 1 << 32:
            raise CheckpointError(f"{key!r} is {value!r:.60}", expected="a size", where=self.source)
        return value

    def layer_ids(self, keys: str, why: str) -> tuple[int, ...] | None:
        for key in keys.split():
            value = self.raw(key)
            if value is None:
                continue
            if not isinstance(value, list) or len(value) > 64 or not all(type(i) is int for i in value):
                raise CheckpointError(f"{key!r} is {value!r:.60}", expected="a list of layer ids", where=self.source)
            return tuple(self.note("aux_ids", self.source, key, tuple(value)))
        self.note("aux_ids", "default", keys.split()[0], None, why)
        return None


def finite(value: Any) -> float | None:
    """`value` as a float, or None: JSON also has NaN, infinities, and integers that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def disagreements(configured: DrafterConfig, trained: DrafterConfig, other_source: str) -> list[Disagreement]:
    """Fields whose values differ between the two; layer ids are compared as depths."""
    skip = {"dialect", "producer", "architecture", "evidence", "warnings", "verifier", "id_convention", "aux_ids"}
    skip |= {"sliding_window", "full_layers", "stated_rope"}
    found = []
    here = configured.evidence.get("hidden_size", Evidence("config.json", "", None)).source
    for item in fields(configured):
        ours, theirs = getattr(configured, item.name), getattr(trained, item.name)
        if item.name not in skip and ours != theirs and not (ours is None or theirs is None):
            found.append(Disagreement(item.name, ours, theirs, here, other_source))
    if configured.aux_depths is not None and configured.aux_depths != trained.aux_depths and trained.aux_depths:
        found.append(Disagreement("aux_depths", configured.aux_depths, trained.aux_depths, here, other_source))
    return found
