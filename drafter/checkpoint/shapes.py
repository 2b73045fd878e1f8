"""The shape of every tensor that the forward may use, and those that have another: all of them at once."""

from __future__ import annotations

from collections.abc import Mapping

from drafter.checkpoint.config import DrafterConfig
from drafter.files.stored import StoredTensor

Shape = tuple[int, ...]


def misshapen(config: DrafterConfig, inputs: int, rows: int, tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """name -> `[found], expected [wanted]`. `inputs` states feed fc, `rows` are those of the head."""
    if not tensors:
        return {}
    found = {}
    for name, shape in shapes(config, inputs, rows).items():
        stored = tensors.get(name)
        if stored is not None and stored.shape != shape:
            found[name] = f"{list(stored.shape)}, expected {list(shape)}"
    return found


def shapes(config: DrafterConfig, inputs: int, rows: int) -> dict[str, Shape]:
    """The shape of each tensor under its canonical name, but for embedding, d2t and t2d: who reads them judges."""
    c, joined = config, inputs * config.target_hidden_size
    matrices: dict[str, Shape] = {"fc": (c.hidden_size, joined), "lm_head": (rows, c.hidden_size)}
    norms = {"input_norm": joined, "norm": c.hidden_size}
    norms |= {f"fc_norm.{i}": c.target_hidden_size for i in range(inputs)}
    for layer in range(c.num_layers):
        at = f"layers.{layer}."
        matrices |= {at + name: shape for name, shape in _layer(c, layer).items()}
        norms |= {at + name: c.hidden_size for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")}
        norms |= {f"{at}self_attn.{name}": size for name, size in _head_norms(c).items()}
    found: dict[str, Shape] = {f"{name}.weight": shape for name, shape in matrices.items()}
    found |= {f"{name}.bias": shape[:1] for name, shape in matrices.items()}
    found |= {f"{name}.weight": (width,) for name, width in norms.items()}
    return found


def _layer(c: DrafterConfig, layer: int) -> dict[str, Shape]:
    width = c.hidden_size * (2 if layer == 0 else 1)
    attention = _gqa(c, width) if c.mla is None else _mla(c, width)
    return {f"self_attn.{name}": shape for name, shape in attention.items()} | {
        "mlp.gate_proj": (c.intermediate_size, c.hidden_size),
        "mlp.up_proj": (c.intermediate_size, c.hidden_size),
        "mlp.down_proj": (c.hidden_size, c.intermediate_size),
    }


def _gqa(c: DrafterConfig, width: int) -> dict[str, Shape]:
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    return {"q_proj": (q, width), "k_proj": (kv, width), "v_proj": (kv, width), "o_proj": (c.hidden_size, q)}


def _mla(c: DrafterConfig, width: int) -> dict[str, Shape]:
    assert c.mla is not None
    m = c.mla
    q = c.num_heads * (m.qk_nope_head_dim + m.qk_rope_head_dim)
    query = {"q_proj": (q, width)}
    if m.q_lora_rank is not None:
        query = {"q_a_proj": (m.q_lora_rank, width), "q_b_proj": (q, m.q_lora_rank)}
    return {
        **query,
        "kv_a_proj_with_mqa": (m.kv_lora_rank + m.qk_rope_head_dim, width),
        "kv_b_proj": (c.num_heads * (m.qk_nope_head_dim + m.v_head_dim), m.kv_lora_rank),
        "o_proj": (c.hidden_size, c.num_heads * m.v_head_dim),
    }


def _head_norms(c: DrafterConfig) -> dict[str, int]:
    if c.mla is None:
        return {"q_norm": c.head_dim, "k_norm": c.head_dim}
    query = {} if c.mla.q_lora_rank is None else {"q_a_layernorm": c.mla.q_lora_rank}
    return {**query, "kv_a_layernorm": c.mla.kv_lora_rank}
