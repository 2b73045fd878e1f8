"""What is not an EAGLE-3 drafter, or is not whole: what each refusal must say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests import tiny
from tests.tiny import SIZES
from tests.zoo.configs import llama, specforge
from tests.zoo.kinds import Animal, Tensors, midlayer, sharded, single_safetensors, training_state


@dataclass(frozen=True)
class Refused:
    """A folder whose one-line refusal must hold `word`, whatever its case."""

    name: str
    word: str
    write: Callable[[Path], None]


@dataclass(frozen=True)
class Broken:
    """A folder that is listed, with a state that holds `word` (or is refused with it when it is opened)."""

    name: str
    word: str
    write: Callable[[Path], Path]


def _saved(config: dict[str, Any], tensors: Tensors) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config))
        save_file({k: t.contiguous() for k, t in tensors.items()}, folder / "model.safetensors")

    return write


def _layer(at: str = "layers.0.") -> Tensors:
    h, m = SIZES.hidden, SIZES.mlp
    kv = SIZES.kv_heads * SIZES.head_dim
    shapes = {"q_proj": (h, h), "k_proj": (kv, h), "v_proj": (kv, h), "o_proj": (h, h)}
    out = {f"{at}self_attn.{name}.weight": torch.zeros(shape) for name, shape in shapes.items()}
    mlp = {"gate_proj": (m, h), "up_proj": (m, h), "down_proj": (h, m)}
    out |= {f"{at}mlp.{name}.weight": torch.zeros(shape) for name, shape in mlp.items()}
    return out | {f"{at}post_attention_layernorm.weight": torch.ones(h)}


def _eagle1() -> Callable[[Path], None]:
    """EAGLE-1 and 2: fc over [embedding, hidden], one ordinary layer without its first norm, no head."""
    config = llama(SIZES) | {"architectures": ["LlamaForCausalLM"], "bias": True}
    h = SIZES.hidden
    tensors = {"embed_tokens.weight": torch.zeros(SIZES.vocab, h), "fc.weight": torch.zeros(h, 2 * h)}
    return _saved(config, {**tensors, "fc.bias": torch.zeros(h), **_layer()})


def _medusa() -> Callable[[Path], None]:
    config = {"medusa_num_heads": 3, "medusa_num_layers": 1, "base_model_name_or_path": "lmsys/vicuna-7b-v1.3"}
    tensors = {}
    for head in range(3):
        tensors[f"{head}.0.linear.weight"] = torch.zeros(SIZES.hidden, SIZES.hidden)
        tensors[f"{head}.0.linear.bias"] = torch.zeros(SIZES.hidden)
        tensors[f"{head}.1.weight"] = torch.zeros(SIZES.vocab, SIZES.hidden)
    return _saved(config, tensors)


def _dflash() -> Callable[[Path], None]:
    config = llama(SIZES) | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": 16,
        "dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 3, 5]},
    }
    h = SIZES.hidden
    return _saved(config, {"fc.weight": torch.zeros(h, 3 * h), "hidden_norm.weight": torch.ones(h), **_layer()})


def _speculators(kind: str) -> Callable[[Path], None]:
    config = {
        "architectures": [f"{kind.upper()}DraftModel"],
        "speculators_model_type": kind,
        "speculators_version": "0.9.0",
        "speculators_config": {"algorithm": kind},
        "transformer_layer_config": llama(SIZES),
    }
    h = SIZES.hidden
    return _saved(config, {"fc.weight": torch.zeros(h, 3 * h), **_layer()})


def _mtp() -> Callable[[Path], None]:
    config = llama(SIZES) | {"architectures": ["DeepseekV3ForCausalLMNextN"], "model_type": "deepseek_v3"}
    h = SIZES.hidden
    tensors = {"eh_proj.weight": torch.zeros(h, 2 * h), "enorm.weight": torch.ones(h), "hnorm.weight": torch.ones(h)}
    named = {f"model.layers.0.{k}": t for k, t in tensors.items()}
    return _saved(config, {**named, **_layer("model.layers.0.")})


def _int4() -> Callable[[Path], None]:
    """compressed-tensors: eight numbers in each int32."""
    weights = {midlayer(k): t for k, t in tiny.tiny_weights(0).items() if "embed" not in k}
    out: Tensors = {}
    for name, t in weights.items():
        if name.endswith("_proj.weight"):
            base = name.removesuffix(".weight")
            out[f"{base}.weight_packed"] = torch.zeros(t.shape[0], t.shape[1] // 8, dtype=torch.int32)
            out[f"{base}.weight_scale"] = torch.ones(t.shape[0], 1)
            out[f"{base}.weight_shape"] = torch.tensor(t.shape)
        else:
            out[name] = t
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}, "targets": ["Linear"]}},
    }
    return _saved(specforge(quantization_config=quantization)(weights, SIZES), out)


WHOLE = Animal("whole", "specforge", specforge(), rename=midlayer)
LONG = {"rope_type": "longrope", "long_factor": [1.0] * 4, "short_factor": [1.0] * 4}


def _written(animal: Animal) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        animal.write(folder)

    return write


REFUSED: tuple[Refused, ...] = (
    Refused("eagle1", "EAGLE-1", _eagle1()),
    Refused("medusa", "Medusa", _medusa()),
    Refused("dflash", "DFlash", _dflash()),
    Refused("speculators_dflash", "dflash", _speculators("dflash")),
    Refused("speculators_mtp", "mtp", _speculators("mtp")),
    Refused("speculators_eagle1", "eagle", _speculators("eagle")),
    Refused("mtp", "MTP", _mtp()),
    Refused("packed_int4", "packed", _int4()),
    Refused("unknown_rope", "longrope", _written(replace(WHOLE, config=specforge(rope_scaling=LONG)))),
)


# --- containers that are not whole


def _incomplete_index(folder: Path) -> Path:
    replace(WHOLE, write_weights=sharded).write(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    return folder


def _short_safetensors(folder: Path) -> Path:
    WHOLE.write(folder)
    whole = (folder / "model.safetensors").rename(folder / "whole")
    tiny.write_truncated(folder / "model.safetensors", whole, 0.8)
    whole.unlink()
    return folder


def _short_header(folder: Path) -> Path:
    WHOLE.write(folder)
    whole = (folder / "model.safetensors").rename(folder / "whole")
    tiny.write_truncated(folder / "model.safetensors", whole, 0.001)
    whole.unlink()
    return folder


def _empty(folder: Path) -> Path:
    WHOLE.write(folder)
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def _no_weights(folder: Path) -> Path:
    WHOLE.write(folder)
    (folder / "model.safetensors").unlink()
    return folder


def _state_without_config(folder: Path) -> Path:
    replace(WHOLE, write_weights=training_state).write(folder)
    (folder / "config.json").unlink()
    return folder


def _no_map(folder: Path) -> Path:
    """D < V and no d2t: which tokens the rows of the head are cannot be known."""
    return replace(WHOLE, drop=("embed_tokens", "d2t", "t2d"), write_weights=single_safetensors).write(folder)


BROKEN: tuple[Broken, ...] = (
    Broken("incomplete_index", "model-00002-of-00002.safetensors", _incomplete_index),
    Broken("short_safetensors", "truncated", _short_safetensors),
    Broken("short_header", "truncated", _short_header),
    Broken("zero_bytes", "zero bytes", _empty),
    Broken("no_weights", "weights", _no_weights),
    Broken("training_state_without_config", "config", _state_without_config),
    Broken("no_vocabulary_map", "d2t", _no_map),
)
