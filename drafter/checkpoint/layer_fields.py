"""The steps that the dialect readers share: the decoder layer's sizes, its attention and RoPE, and who wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drafter.checkpoint.clues import Clues, Mark
from drafter.checkpoint.config import Fields, Mla, Rope, finite
from drafter.errors import CheckpointError

# more than any drafter has; names and maps of these sizes are made before the weights are looked at
MAX_LAYERS = 1000
MAX_VOCAB = 1 << 24
MAX_LATENT = 1 << 16


# what a class of transformers fills in for a key that a config does not have
LLAMA = {"class": "LlamaConfig", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32}
LLAMA |= {"vocab_size": 32000, "max_position_embeddings": 2048}
QWEN3 = {"class": "Qwen3Config", "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32}
QWEN3 |= {"vocab_size": 151936, "max_position_embeddings": 32768, "num_key_value_heads": 32, "head_dim": 128}


def read_layer_sizes(
    fields: Fields, prefix: str, clues: Clues, defaults: Mapping[str, Any] | None = None, head_dim: bool = True
) -> dict[str, Any]:
    """The sizes of the decoder layer. `prefix` is where they lie ("" or "transformer_layer_config.").

    `defaults`: the class defaults that apply to absent keys, None where sizes must be stated. With `head_dim` False
    the key is not read: its producer divides.
    """
    given: Mapping[str, Any] = defaults or {}
    owner = str(given.get("class", "LlamaConfig"))

    def size(name: str, key: str, fallback: int | None = None, why: str = "") -> Any:
        if key in given:
            fallback, why = given[key], f"{owner}, whatever the width" if key == "head_dim" else owner
        return fields.take(name, prefix + key, int, fallback, why)

    hidden, heads = size("hidden_size", "hidden_size"), size("num_heads", "num_attention_heads")
    divided = hidden // heads
    attention, mla = read_attention(fields, prefix, clues)
    sizes = {
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": size("num_kv_heads", "num_key_value_heads", heads, "as many as heads"),
        "head_dim": size("head_dim", "head_dim", divided, "hidden_size // num_attention_heads")
        if head_dim
        else fields.note("head_dim", "default", "head_dim", divided, "hidden_size // num_attention_heads, key ignored"),
        "intermediate_size": size("intermediate_size", "intermediate_size"),
        "num_layers": fields.take("num_layers", f"{prefix}num_hidden_layers", int, 1, "an EAGLE-3 drafter has one"),
        "rms_norm_eps": fields.take("rms_norm_eps", f"{prefix}rms_norm_eps", float, 1e-6, owner),
        "hidden_act": fields.take("hidden_act", f"{prefix}hidden_act", str, "silu", owner),
        "vocab_size": size("vocab_size", "vocab_size"),
        "attention_bias": fields.take("attention_bias", f"{prefix}attention_bias", bool, False, owner),
        "max_positions": size("max_positions", "max_position_embeddings", 0, "not stated") or None,
        "rope": (rope := read_rope(fields, prefix, interleaved=mla is not None)),
        "stated_rope": rope,
        "attention": attention,
        "mla": mla,
    }
    fields.evidence["stated_rope"] = fields.evidence["rope"]
    _check_sizes(fields, sizes)
    return sizes


def train_with_base(fields: Fields, sizes: dict[str, Any], base: float, trainer: str) -> None:
    """Set the base that `trainer` used whatever its config says; a server uses what is stated."""
    rope = sizes["rope"]
    if rope.base == base:
        return
    fields.warnings.append(
        f"{trainer} trains RoPE of type {rope.type} with base {base:g} whatever the config says; servers use "
        f"{rope.base:g}: compare with rope_base {rope.base:g}"
    )
    sizes["rope"] = replace(rope, base=base)
    fields.note("rope", "default", "", f"{rope.type}, base {base:g}", f"{trainer} passes no base; {rope.base:g} stated")


def _check_sizes(fields: Fields, sizes: Mapping[str, Any]) -> None:
    too_many = {"num_hidden_layers": sizes["num_layers"] > MAX_LAYERS, "vocab_size": sizes["vocab_size"] > MAX_VOCAB}
    for key, is_so in too_many.items():
        if is_so:
            raise CheckpointError(f"{key!r} is beyond any drafter's", where=fields.source)
    mla = sizes["mla"]
    key, rotated = ("qk_rope_head_dim", mla.qk_rope_head_dim) if mla else ("head_dim", sizes["head_dim"])
    if rotated % 2 or not rotated:
        raise CheckpointError(f"{key!r} is {rotated}", expected="an even size", where=fields.source)


def read_attention(fields: Fields, prefix: str, clues: Clues) -> tuple[str, Mla | None]:
    """Which attention the drafter has, by its tensors where they are there, and the sizes of latent attention."""
    key = f"{prefix}kv_lora_rank"
    stated = fields.raw(key) is not None
    if clues.attention is not None:
        kind = str(fields.note("attention", "weights", "layers.0.self_attn.*", clues.attention))
        if stated and kind == "gqa":
            fields.warnings.append(f"{key} is stated, but the tensors are those of ordinary attention")
    elif stated:
        kind = str(fields.note("attention", fields.source, key, "mla"))
    else:
        kind = str(fields.note("attention", "default", key, "gqa", "no kv_lora_rank"))
    if kind != "mla":
        fields.note("mla", "default", key, None, "ordinary attention")
        return kind, None
    mla = _mla(fields, prefix, clues)
    fields.note("mla", fields.source if stated else "weights", key if stated else "layers.0.self_attn.*", mla)
    return kind, mla


def _mla(fields: Fields, prefix: str, clues: Clues) -> Mla:
    """Sizes of latent attention: the config's; a rank that it lacks is the length of its norm."""

    def size(name: str, found: int | None = None) -> int:
        value = fields.raw(prefix + name)
        if value is None and found is not None:
            return found
        if type(value) is not int or not 0 < value <= MAX_LATENT:
            raise CheckpointError(f"{prefix + name!r} is {value!r:.60}", expected="a size", where=fields.source)
        return value

    def length(name: str) -> int | None:
        shape = clues.shapes.get(f"layers.0.self_attn.{name}.weight")
        return shape[0] if shape else None

    factored = fields.raw(f"{prefix}q_lora_rank") is not None or length("q_a_layernorm") is not None
    if "layers.0.self_attn.q_proj.weight" in clues.shapes:
        factored = False
    kv = size("kv_lora_rank", length("kv_a_layernorm"))
    joint = length("kv_a_proj_with_mqa")
    return Mla(
        q_lora_rank=size("q_lora_rank", length("q_a_layernorm")) if factored else None,
        kv_lora_rank=kv,
        qk_nope_head_dim=size("qk_nope_head_dim"),
        qk_rope_head_dim=size("qk_rope_head_dim", joint - kv if joint is not None and joint > kv else None),
        v_head_dim=size("v_head_dim"),
    )


def read_rope(fields: Fields, prefix: str, interleaved: bool = False) -> Rope:
    """RoPE in both schemas: `rope_parameters` (transformers v5) first, else `rope_theta` with `rope_scaling`.

    A `partial_rotary_factor` or `rotary_dim` that configs keep beside them is one of its parameters.
    """
    rope = _stated_rope(fields, prefix)
    beside = {key: fields.raw(prefix + key) for key in ("partial_rotary_factor", "rotary_dim")}
    table = {key: value for key, value in beside.items() if value is not None} | dict(rope.parameters)
    return Rope.of(rope.base, rope.type, table, interleaved)


def _stated_rope(fields: Fields, prefix: str) -> Rope:
    new = fields.raw(f"{prefix}rope_parameters")
    old = fields.raw(f"{prefix}rope_scaling")
    theta = fields.raw(f"{prefix}rope_theta")
    if isinstance(new, Mapping) and new:
        kind = _layer_type(new, prefix)
        key = f"{prefix}rope_parameters" + (f".{kind}" if kind else "")
        return _rope(fields, key, new[kind] if kind else new, theta)
    if isinstance(old, Mapping) and old:
        return _rope(fields, f"{prefix}rope_scaling", old, theta)
    if theta is not None:
        base = fields.take("rope", f"{prefix}rope_theta", float)
        return Rope(_base(fields, base))
    fields.note("rope", "default", f"{prefix}rope_theta", 10000.0, "LlamaConfig")
    return Rope(10000.0)


def _layer_type(table: Mapping[str, Any], prefix: str) -> str:
    """The layer type whose parameters are taken where they are stated per type; "" where they are not."""
    nested = [str(key) for key, value in table.items() if isinstance(value, Mapping)]
    if not nested or "rope_theta" in table or "rope_type" in table:
        return ""
    # speculators flattens to the sliding variant whatever the layers are; a flat config's one layer sees everything
    first = "sliding_attention" if prefix else "full_attention"
    return first if first in nested else nested[0]


def _rope(fields: Fields, key: str, table: Mapping[str, Any], theta: Any) -> Rope:
    stated = next((value for value in (table.get("rope_theta"), theta) if value is not None), None)
    base = 10000.0 if stated is None else finite(stated)
    kind = str(table.get("rope_type") or table.get("type") or "default")
    if base is None:
        raise CheckpointError(f"{key} has rope_theta {stated!r:.40}", expected="a number", where=fields.source)
    rest = {k: v for k, v in table.items() if k not in ("rope_theta", "rope_type", "type")}
    rope = Rope.of(_base(fields, base), kind, rest)
    note = "no rope_theta: the default base 10000 of LlamaConfig" if stated is None else ""
    fields.note("rope", fields.source, key, f"{kind}, base {rope.base:g}", note)
    return rope


def _base(fields: Fields, base: float) -> float:
    if not 0 < base < 1e18:
        raise CheckpointError(f"a RoPE base of {base}", expected="a number > 0", where=fields.source)
    return base


def verifier_name(fields: Fields, keys: str) -> str:
    for key in keys.split():
        value = fields.raw(key)
        if isinstance(value, str) and value:
            return str(fields.note("verifier", fields.source, key, value))
    return str(fields.note("verifier", "default", keys.split()[0], "", "not stated"))


def read_windows(fields: Fields, prefix: str, layers: int) -> dict[str, Any]:
    """The sliding window, only where a layer uses it (the key is written for full attention too), and who does not."""
    types, window = fields.raw(f"{prefix}layer_types"), fields.raw(f"{prefix}sliding_window")
    if isinstance(types, list) and "sliding_attention" in types and type(window) is int and window > 0:
        full = tuple(i for i in range(layers) if types[i : i + 1] != ["sliding_attention"])
        fields.note("sliding_window", fields.source, f"{prefix}sliding_window", window)
        fields.note("full_layers", fields.source, f"{prefix}layer_types", full)
        return {"sliding_window": window, "full_layers": full}
    return no_window(fields)


def no_window(fields: Fields) -> dict[str, Any]:
    fields.note("sliding_window", "default", "layer_types", None, "full attention")
    return {"sliding_window": None, "full_layers": fields.note("full_layers", "default", "layer_types", (), "all are")}


def mask_token(fields: Fields, keys: str) -> int | None:
    """The token that stands in for one not drafted yet, where drafting is parallel."""
    for key in keys.split():
        value = fields.raw(key)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value < MAX_VOCAB:
            raise CheckpointError(f"{key!r} is {value!r:.60}", expected="a token id", where=fields.source)
        return int(fields.note("mask_token_id", fields.source, key, value))
    fields.note("mask_token_id", "default", keys.split()[0], None, "not stated")
    return None


def describe(fields: Fields, dialect: str, producer: str, mark: Mark) -> dict[str, Any]:
    """The three fields that say who wrote the config, with `mark` as the evidence for the first two."""
    source, key, value = mark
    for name in ("dialect", "producer"):
        fields.note(name, source or fields.source, key, value)
    names = fields.raw("architectures")
    stated = isinstance(names, list) and names
    fields.note(
        "architecture",
        fields.source if names is not None else "default",
        "architectures",
        names,
        "" if names is not None else "not stated",
    )
    return {"dialect": dialect, "producer": producer, "architecture": str(names[0]) if stated else ""}
