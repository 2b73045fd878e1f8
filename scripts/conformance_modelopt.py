"""Record what the real `nvidia-modelopt` package computes on tiny random weights: tests/data/modelopt_tiny.

Run from the repository root, on the CPU, in an environment of its own with
`pip install torch transformers requests omegaconf scipy` and `pip install --no-deps nvidia-modelopt==0.47.0`
(Apache-2.0); see `scripts/conformance_cases.py`:

    python -m scripts.conformance_modelopt tests/data/modelopt_tiny

`EagleModule` itself, over the decoder layers of transformers, is called once a step with a cache and the mask of the
training-time test. Its first layer norms the hidden twice: by `input_layernorm`, then by `hidden_norm`. Latent
attention (MLA) is transformers' own DeepSeek-V3 layer inside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scripts.conformance_cases import BASE, LATENT, LLAMA3, MSCALE, STEPS, YARN, Case, packages, record, rope_case
from tests.reference import Rope
from tests.tiny import TinySample

TWICE = {"double_norm": True}
LOCAL = {"use_last_layernorm": False}


def _rope(kind: str, theta: float, **params: Any) -> dict[str, Any]:
    case = rope_case(kind, theta=theta, **params)
    return {"layer": case["layer"], "switches": case["switches"] | TWICE}


def _latent(query_rank: int | None, **params: Any) -> Case:
    written = {"rope_type": "yarn" if params else "default", "rope_theta": 100.0, **params}
    rope = Rope(100.0, written["rope_type"], params, interleaved=True)
    return Case(layer={"rope_parameters": written}, switches=TWICE | {"rope": rope}, latent=True, query_rank=query_rank)


CASES: dict[str, Case] = {
    "double_norm": Case(switches=TWICE),
    "double_norm+no_last_norm": Case(top=LOCAL, switches=TWICE | {"final_norm": False}),
    "double_norm+two_layers": Case(("layers.1.",), switches=TWICE),
    "double_norm+attention_bias": Case(("_proj.bias",), switches=TWICE),
    "double_norm+llama3": Case(**_rope("llama3", 100.0, **LLAMA3)),
    "latent": _latent(10),
    "latent+no_query_rank": _latent(None),
    "latent+yarn": _latent(10, **YARN, **MSCALE),
    "latent+yarn+kimi": _latent(10, **YARN, mscale=1.0, mscale_all_dim=1.0),
}


def run(case: Case, weights: dict[str, Tensor], sample: TinySample) -> Tensor:
    """The package's logits, [K, T-1, D]."""
    from modelopt.torch.speculative.plugins.modeling_eagle import EagleModule
    from transformers import DynamicCache

    layer_class, config = _layer(case, weights)
    for name, value in {
        "draft_vocab_size": BASE.draft_vocab,
        "has_lm_head": True,
        "use_aux_hidden_state": True,
        "use_last_layernorm": True,
        "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
        "eagle_decoder_type": "llama",  # who makes the cosines; the layers are those given
        "_attn_implementation": "eager",
        **case.top,
    }.items():
        setattr(config, name, value)
    model = EagleModule(config, layer_class).float().eval()
    model.rotary_emb = _rotary(config, LATENT.rope if case.latent else BASE.head_dim)
    own = {k: t for k, t in weights.items() if k not in ("embed_tokens.weight", "t2d")}
    if not config.use_last_layernorm:
        del own["norm.weight"]
    missing, unexpected = model.load_state_dict(own, strict=False)
    if missing or unexpected:
        raise SystemExit(f"the package has other tensors than these weights: {missing} {unexpected}")
    rows = len(sample.ids) - 1
    hidden = model.fc(sample.slots[None, :-1, : case.states].flatten(2).float())
    seen = torch.ones(rows, rows).tril().bool()
    cache = DynamicCache()
    out = []
    for k in range(STEPS):
        tokens = torch.tensor([sample.ids[1 + k :] + [0] * k])  # row t holds x[t+1+k]
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        final, hidden, cache = model(
            hidden,
            weights["embed_tokens.weight"][tokens],
            mask[None, None],
            position_ids=torch.arange(rows)[None] + k,
            past_key_values=cache,
            use_cache=True,
        )
        out.append(model.lm_head(final)[0])
        seen = torch.cat([seen, torch.eye(rows).bool()], dim=1)
    return torch.stack(out)


def _rotary(config: Any, size: int) -> Any:
    """transformers' rotary embedding, for the part of a head that turns."""
    from copy import copy

    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    other = copy(config)
    other.head_dim = size
    return LlamaRotaryEmbedding(config=other)


def _layer(case: Case, weights: dict[str, Tensor]) -> tuple[type, Any]:
    from transformers import DeepseekV3Config, LlamaConfig
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    shared = {
        "hidden_size": BASE.hidden,
        "intermediate_size": BASE.mlp,
        "num_attention_heads": BASE.heads,
        "num_hidden_layers": case.sizes.layers,
        "rms_norm_eps": BASE.eps,
        "vocab_size": BASE.vocab,
        "max_position_embeddings": 512,
        "attention_bias": "layers.0.self_attn.q_proj.bias" in weights,
        "rope_parameters": {"rope_type": "default", "rope_theta": BASE.rope_theta},
        **case.layer,
    }
    if not case.latent:
        config = LlamaConfig(**shared, num_key_value_heads=BASE.kv_heads, head_dim=BASE.head_dim)
        return LlamaDecoderLayer, config
    config = DeepseekV3Config(
        **shared,
        num_key_value_heads=BASE.heads,
        q_lora_rank=case.query_rank,
        kv_lora_rank=LATENT.kv_rank,
        qk_nope_head_dim=LATENT.nope,
        qk_rope_head_dim=LATENT.rope,
        v_head_dim=LATENT.value,
        first_k_dense_replace=1,
    )
    return DeepseekV3DecoderLayer, config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    record(parser.parse_args().folder, CASES, run)
    print(packages("nvidia-modelopt"))


if __name__ == "__main__":
    main()
