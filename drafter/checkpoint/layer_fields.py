"""The steps that the dialect readers share: the decoder layer's sizes and its RoPE, wherever a dialect keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drafter.checkpoint.config import Fields, Rope, finite
from drafter.errors import CheckpointError

# more than any drafter has; names and maps of these sizes are made before the weights are looked at
MAX_LAYERS = 1000
MAX_VOCAB = 1 << 24


def read_layer_sizes(fields: Fields, prefix: str, head_dim_default: int | None) -> dict[str, Any]:
    """The sizes of the decoder layer. `prefix` is where they lie ("" or "transformer_layer_config.")."""

    def keys(names: str) -> str:
        return " ".join(prefix + name for name in names.split())

    hidden = fields.take("hidden_size", keys("hidden_size"), int)
    heads = fields.take("num_heads", keys("num_attention_heads"), int)
    fallback = head_dim_default or hidden // heads
    why = "Qwen3Config, whatever the width" if head_dim_default else "hidden_size // num_attention_heads"
    sizes = {
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": fields.take("num_kv_heads", keys("num_key_value_heads"), int, heads, "as many as heads"),
        "head_dim": fields.take("head_dim", keys("head_dim"), int, fallback, why),
        "intermediate_size": fields.take("intermediate_size", keys("intermediate_size"), int),
        "num_layers": fields.take("num_layers", keys("num_hidden_layers"), int, 1, "an EAGLE-3 drafter has one"),
        "rms_norm_eps": fields.take("rms_norm_eps", keys("rms_norm_eps"), float, 1e-6, "LlamaConfig"),
        "hidden_act": fields.take("hidden_act", keys("hidden_act"), str, "silu", "LlamaConfig"),
        "vocab_size": fields.take("vocab_size", keys("vocab_size"), int),
        "attention_bias": fields.take("attention_bias", keys("attention_bias"), bool, False, "LlamaConfig"),
        "max_positions": fields.take("max_positions", keys("max_position_embeddings"), int, 0, "not stated") or None,
        "rope": read_rope(fields, prefix),
        "attention": _attention(fields, prefix),
    }
    _check_sizes(fields, sizes)
    return sizes


def _check_sizes(fields: Fields, sizes: Mapping[str, Any]) -> None:
    too_many = {"num_hidden_layers": sizes["num_layers"] > MAX_LAYERS, "vocab_size": sizes["vocab_size"] > MAX_VOCAB}
    for key, is_so in too_many.items():
        if is_so:
            raise CheckpointError(f"{key!r} is beyond any drafter's", where=fields.source)
    if sizes["head_dim"] % 2 or not sizes["head_dim"]:
        raise CheckpointError(f"'head_dim' is {sizes['head_dim']}", expected="an even size", where=fields.source)


def _attention(fields: Fields, prefix: str) -> str:
    key = f"{prefix}kv_lora_rank"
    if fields.raw(key) is not None:
        return str(fields.note("attention", fields.source, key, "mla"))
    return str(fields.note("attention", "default", key, "gqa", "no kv_lora_rank"))


def read_rope(fields: Fields, prefix: str) -> Rope:
    """RoPE in both schemas: `rope_parameters` (transformers v5) first, else `rope_theta` with `rope_scaling`.

    A `partial_rotary_factor` that older configs keep beside them is one of its parameters.
    """
    rope = _stated_rope(fields, prefix)
    partial = fields.raw(f"{prefix}partial_rotary_factor")
    return rope if partial is None else replace(rope, parameters={"partial_rotary_factor": partial, **rope.parameters})


def _stated_rope(fields: Fields, prefix: str) -> Rope:
    new = fields.raw(f"{prefix}rope_parameters")
    old = fields.raw(f"{prefix}rope_scaling")
    theta = fields.raw(f"{prefix}rope_theta")
    if isinstance(new, Mapping) and new:
        nested = [v for v in new.values() if isinstance(v, Mapping)]
        chosen = nested[0] if nested and "rope_theta" not in new and "rope_type" not in new else new
        return _rope(fields, f"{prefix}rope_parameters", chosen, theta)
    if isinstance(old, Mapping) and old:
        return _rope(fields, f"{prefix}rope_scaling", old, theta)
    if theta is not None:
        base = fields.take("rope", f"{prefix}rope_theta", float)
        return Rope(_base(fields, base))
    fields.note("rope", "default", f"{prefix}rope_theta", 10000.0, "LlamaConfig")
    return Rope(10000.0)


def _rope(fields: Fields, key: str, table: Mapping[str, Any], theta: Any) -> Rope:
    stated = next((value for value in (table.get("rope_theta"), theta) if value is not None), None)
    base = 10000.0 if stated is None else finite(stated)
    kind = str(table.get("rope_type") or table.get("type") or "default")
    if base is None:
        raise CheckpointError(f"{key} has rope_theta {stated!r:.40}", expected="a number", where=fields.source)
    rest = {k: v for k, v in table.items() if k not in ("rope_theta", "rope_type", "type")}
    rope = Rope(_base(fields, base), kind, rest)
    note = "no rope_theta: the default base 10000 of LlamaConfig" if stated is None else ""
    fields.note("rope", fields.source, key, f"{kind}, base {rope.base:g}", note)
    return rope


def _base(fields: Fields, base: float) -> float:
    if not 0 < base < 1e18:
        raise CheckpointError(f"a RoPE base of {base}", expected="a number > 0", where=fields.source)
    return base


def verifier_name(fields: Fields, key: str) -> str:
    value = fields.raw(key)
    if isinstance(value, str) and value:
        return str(fields.note("verifier", fields.source, key, value))
    return str(fields.note("verifier", "default", key, "", "not stated"))


def describe(fields: Fields, dialect: str, producer: str, key: str, value: object) -> dict[str, Any]:
    """The three fields that say who wrote the config, with `key: value` as the evidence for the first two."""
    names = fields.raw("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    for name, said, what in (
        ("dialect", key, value),
        ("producer", key, value),
        ("architecture", "architectures", names),
    ):
        fields.note(
            name, "default" if what is None else fields.source, said, what, "not stated" if what is None else ""
        )
    return {"dialect": dialect, "producer": producer, "architecture": architecture}
