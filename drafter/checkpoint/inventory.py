"""Three lists of tensors: what the forward needs and has, what it lacks and who would supply it, what stays unused.

No server refuses a wrong name: it skips what it does not know and leaves what it misses as it was made. So the lists
are made here, with a reason for every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drafter.checkpoint.config import DrafterConfig
from drafter.checkpoint.names import layer_of
from drafter.files.stored import StoredTensor

NOBODY = "nobody: the forward cannot run"
_TRAINING = "training only"
ANOTHER = "should be used: it is no part of a layer as computed here, so another function was trained"
_NORM = "hidden_norm.weight"


@dataclass(frozen=True)
class Inventory:
    """`missing`: name -> who supplies it. `unused`: name -> the reason; `neglected` are those that training used."""

    expected: tuple[str, ...]
    missing: dict[str, str]
    unused: dict[str, str]
    neglected: tuple[str, ...]
    warnings: tuple[str, ...]


def take_inventory(
    config: DrafterConfig, inputs: int, tensors: Mapping[str, StoredTensor], scales: Iterable[str] = ()
) -> Inventory:
    """What of `tensors` a drafter of `config`, whose fc takes `inputs` states, needs, lacks and leaves."""
    if not tensors:
        return Inventory((), {}, {}, (), ())
    needed = [*required(config, inputs), *_from_others(config, tensors)]
    optional = _optional(config)
    unused = {
        name: _why_unused(name, config) for name in tensors if name not in needed and name not in optional | {*scales}
    }
    neglected = tuple(name for name, why in unused.items() if why.startswith("should be used"))
    return Inventory(
        tuple(name for name in tensors if name in needed or name in optional),
        {name: _supplier(name, config) for name in needed if name not in tensors},
        unused,
        neglected,
        tuple(_warnings(config, tensors, unused, neglected)),
    )


def required(config: DrafterConfig, inputs: int) -> list[str]:
    """What only the checkpoint can supply."""
    names = ["fc"] if config.use_aux else []
    names += ["norm"] if config.final_norm else []
    names += ["input_norm"] if config.norm_before_fc else []
    names += [f"fc_norm.{i}" for i in range(inputs) if config.fc_norm]
    for layer in range(config.num_layers):
        at = f"layers.{layer}."
        names += [f"{at}input_layernorm"] + ([f"{at}hidden_norm"] if layer == 0 and config.use_aux else [])
        names += [f"{at}self_attn.{name}" for name in _attention(config)]
        names += [f"{at}post_attention_layernorm"]
        names += [f"{at}mlp.{part}_proj" for part in ("gate", "up", "down")]
    return [f"{name}.weight" for name in names] + (["mask_hidden"] if config.parallel else [])


def _attention(config: DrafterConfig) -> list[str]:
    if config.mla is None:
        return [f"{part}_proj" for part in "qkvo"]
    query = ["q_proj"] if config.mla.q_lora_rank is None else ["q_a_proj", "q_a_layernorm", "q_b_proj"]
    return [*query, "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"]


def _from_others(config: DrafterConfig, tensors: Mapping[str, StoredTensor]) -> list[str]:
    head = tensors.get("lm_head.weight")
    rows = head.shape[0] if head is not None and head.shape else config.draft_vocab_size or config.vocab_size
    return ["embed_tokens.weight", "lm_head.weight"] + (["d2t"] if rows != config.vocab_size else [])


def _supplier(name: str, config: DrafterConfig) -> str:
    if name == "embed_tokens.weight":
        if config.target_hidden_size != config.hidden_size:
            return f"nobody: the target's is {config.target_hidden_size} wide"
        return "the target's embed_tokens"
    if name == "lm_head.weight":
        return "the embedding, tied" if config.tie_lm_head else "the target's lm_head, its rows at the mapped ids"
    if name == "d2t":
        return "nobody: the head's rows mean no token (vLLM takes the first ids)"
    return NOBODY


def _optional(config: DrafterConfig) -> set[str]:
    used = {"fc.bias", "d2t", "t2d"}
    for layer in range(config.num_layers):
        at = f"layers.{layer}."
        used |= {f"{at}self_attn.{name}.bias" for name in _attention(config) if not name.endswith("layernorm")}
        used |= {f"{at}self_attn.{part}_norm.weight" for part in "qk"} if config.mla is None else set()
        used |= {f"{at}mlp.{part}_proj.bias" for part in ("gate", "up", "down")}
        used |= {f"{at}{_NORM}"} if layer == 0 else set()
    return used


_REASONS = (
    (r"verifier_(lm_head|norm)\.", f"{_TRAINING}: the verifier's, kept to compute targets"),
    (r"rotary_emb\.inv_freq$", "computed from the config; compared with it"),
    (r"parallel_draft_heads\.", "ModelOpt's parallel heads, another scheme that is not computed"),
    (r"(input_scale|[kv]_scale|output_scale)$", "a scale of activations: the forward runs in floats"),
    (r"^(eh_proj|enorm|hnorm)\.", "read by TensorRT-LLM only"),
    (r"^(optimizer|lr_scheduler|ema)\b", _TRAINING),
)


def _why_unused(name: str, config: DrafterConfig) -> str:
    for pattern, reason in _REASONS:
        if re.search(pattern, name):
            return reason
    flags = {
        "input_norm.weight": ("norm_before_fc is not set", config.norm_before_fc),
        "norm.weight": ("the config has no final norm", config.final_norm),
        "mask_hidden": ("the config names no parallel drafting", config.parallel),
    }
    if re.fullmatch(r"fc_norm\.\d+\.weight", name):
        return "should be used: fc_norm is not set" if not config.fc_norm else "no such input of fc"
    if name in flags and not flags[name][1]:
        return f"should be used: {flags[name][0]}"
    if name in ("fc.weight", "fc.bias", f"layers.0.{_NORM}"):
        return "should be used: use_aux_hidden_state is false"
    layer = layer_of(name)
    if layer is not None and layer >= config.num_layers:
        return f"should be used: the config says num_hidden_layers {config.num_layers}"
    if layer and name.endswith(_NORM):
        return "SGLang's name for the norm before this layer; input_layernorm is taken"
    if layer is not None:
        return ANOTHER
    return "not read by this forward"


def _warnings(
    config: DrafterConfig, tensors: Mapping[str, StoredTensor], unused: Mapping[str, str], neglected: tuple[str, ...]
) -> Iterable[str]:
    by_reason: dict[str, list[str]] = {}
    for name in neglected:
        by_reason.setdefault(unused[name].removeprefix("should be used: "), []).append(name)
    for why, names in by_reason.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{more} in the file, but {why}"
    for layer in range(1, config.num_layers):
        norm = tensors.get(f"layers.{layer}.input_layernorm.weight")
        if norm is not None and "hidden_norm" not in norm.name and f"layers.{layer}.{_NORM}" not in tensors:
            yield (
                f"layers.{layer} has input_layernorm only: SGLang and TensorRT-LLM read hidden_norm there and leave "
                "it at ones"
            )
    biases = [part for part in "qkv" if f"layers.0.self_attn.{part}_proj.bias" in tensors]
    if config.attention_bias and not biases and config.mla is None:
        yield "attention_bias is true, but the weights have no biases: computed without"
    stated = config.evidence.get("attention_bias")
    if biases and not config.attention_bias and stated is not None and not stated.is_default:
        yield "attention_bias is false, but the weights have biases: computed with them, a server drops them"
