"""Tiny random drafters, targets and samples on disk, well formed or broken in one named way.

The pieces fit together as in a real run: a target of 8 layers; a drafter fed its states at depths 0, 2 and 4; samples
that hold these and one deeper state. The flat config names the layers 1, 3, 5 (depths 2, 4, 6 for a server that adds
one), the speculators config 0, 2, 4: the disagreement that makes a good drafter look broken. Sizes: H hidden, Ht target
hidden, A states feeding fc, V target vocabulary, D draft vocabulary, T tokens, S recorded slots.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.reference import Latent, ReferenceDrafter, Rope


@dataclass(frozen=True)
class Sizes:
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    mlp: int = 48
    vocab: int = 97
    draft_vocab: int = 40
    states: int = 3
    layers: int = 1
    target_layers: int = 8
    target_hidden: int | None = None  # None: as wide as the drafter
    eps: float = 1e-5
    rope_theta: float = 50000.0  # not 10000, the base that a reader falls back to when it misses this field
    latent: Latent | None = None  # the head sizes of an MLA drafter
    query_rank: int | None = None  # of an MLA drafter's query; None: one matrix

    @property
    def target_width(self) -> int:
        return self.target_hidden or self.hidden


SIZES = Sizes()
TOKENS = 25
V1_DEPTHS = (0, 2, 4, 6)  # the last recorded state is not the verifier's
ARROW_DEPTHS = (0, 2, 4, 8)  # the last recorded state is the verifier's, before its final norm
FLAT_LAYER_IDS = (1, 3, 5)
SPECULATORS_LAYER_IDS = (0, 2, 4)


# --- weights


def tiny_weights(
    seed: int = 0,
    sizes: Sizes = SIZES,
    *,
    input_norm: bool = False,
    fc_norm: bool = False,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    fc: bool = True,
    fc_bias: bool = False,
    mask_hidden: bool = False,
    d2t: str = "offsets",
) -> dict[str, Tensor]:
    """Float32 weights under canonical names, `embed_tokens.weight` and (unless d2t is "none") `d2t`, `t2d` included.

    Values are bfloat16 numbers, so that a bfloat16 file holds them exactly and any two layouts of them agree to the
    bit. `d2t`: see `vocab_map`. Without `fc` there is no `hidden_norm` either (ModelOpt without aux states).
    """
    rng = torch.Generator().manual_seed(seed)
    s, head, kv = sizes, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim

    def exact(x: Tensor) -> Tensor:
        return x.bfloat16().float()

    def matrix(out: int, into: int, gain: float = 1.0) -> Tensor:
        return exact(torch.randn(out, into, generator=rng) * gain / into**0.5)

    def norm(width: int) -> Tensor:
        return exact(1 + 0.3 * torch.randn(width, generator=rng))

    w: dict[str, Tensor] = {"embed_tokens.weight": exact(torch.randn(s.vocab, s.hidden, generator=rng))}
    if fc:
        w["fc.weight"] = matrix(s.hidden, s.states * s.target_width)
    if fc_bias:
        w["fc.bias"] = exact(torch.randn(s.hidden, generator=rng) * 0.3)
    if input_norm:
        w["input_norm.weight"] = norm(s.states * s.target_width)
    if fc_norm:
        w |= {f"fc_norm.{i}.weight": norm(s.target_width) for i in range(s.states)}
    for layer in range(s.layers):
        at, width = f"layers.{layer}.", s.hidden * (2 if layer == 0 else 1)
        w[at + "input_layernorm.weight"] = norm(s.hidden)
        if layer == 0 and fc:
            w[at + "hidden_norm.weight"] = norm(s.hidden)
        w[at + "post_attention_layernorm.weight"] = norm(s.hidden)
        shapes = {"q_proj": (head, width), "k_proj": (kv, width), "v_proj": (kv, width), "o_proj": (s.hidden, head)}
        if s.latent is not None:
            shapes = _latent_shapes(s, width)
            w[at + "self_attn.kv_a_layernorm.weight"] = norm(s.latent.kv_rank)
            if s.query_rank is not None:
                w[at + "self_attn.q_a_layernorm.weight"] = norm(s.query_rank)
        for name, shape in shapes.items():
            # a gain above one, so that attention is sharp and a wrong position or mask shows in the logits
            w[f"{at}self_attn.{name}.weight"] = matrix(*shape, gain=2.0)
            if attention_bias:
                w[f"{at}self_attn.{name}.bias"] = exact(torch.randn(shape[0], generator=rng) * 0.3)
        if qk_norm:
            w |= {f"{at}self_attn.{name}_norm.weight": norm(s.head_dim) for name in ("q", "k")}
        for name, shape in {"gate": (s.mlp, s.hidden), "up": (s.mlp, s.hidden), "down": (s.hidden, s.mlp)}.items():
            w[f"{at}mlp.{name}_proj.weight"] = matrix(*shape, gain=2.0)
            if mlp_bias:
                w[f"{at}mlp.{name}_proj.bias"] = exact(torch.randn(shape[0], generator=rng) * 0.3)
    w["norm.weight"] = norm(s.hidden)
    w["lm_head.weight"] = matrix(s.draft_vocab, s.hidden, gain=3.0)
    if mask_hidden:
        w["mask_hidden"] = exact(torch.randn(1, 1, s.states * s.target_width, generator=rng))
    if d2t != "none":
        w |= vocab_map(seed, sizes, d2t)
    return w


def _latent_shapes(s: Sizes, width: int) -> dict[str, tuple[int, int]]:
    a = s.latent
    assert a is not None
    q = s.heads * (a.nope + a.rope)
    query = {"q_proj": (q, width)}
    if s.query_rank is not None:
        query = {"q_a_proj": (s.query_rank, width), "q_b_proj": (q, s.query_rank)}
    return {
        **query,
        "kv_a_proj_with_mqa": (a.kv_rank + a.rope, width),
        "kv_b_proj": (s.heads * (a.nope + a.value), a.kv_rank),
        "o_proj": (s.hidden, s.heads * a.value),
    }


def vocab_map(seed: int = 0, sizes: Sizes = SIZES, kind: str = "offsets") -> dict[str, Tensor]:
    """`d2t` [D] and `t2d` [V].

    Kinds: "offsets" (as every server reads it), "unsorted" (offsets in frequency order, some negative), "direct"
    (target ids where offsets belong), "out_of_range" (two offsets lead past V), "zeros" (never set).
    """
    rng = torch.Generator().manual_seed(seed + 1)
    order = torch.randperm(sizes.vocab, generator=rng)[: sizes.draft_vocab]
    ids = order if kind == "unsorted" else order.sort().values
    t2d = torch.zeros(sizes.vocab, dtype=torch.bool)
    t2d[ids] = True
    d2t = ids - torch.arange(sizes.draft_vocab)
    if kind == "direct":
        d2t = ids
    elif kind == "out_of_range":
        d2t[-2:] = sizes.vocab
    elif kind == "zeros":
        d2t = torch.zeros_like(ids)
    elif kind not in ("offsets", "unsorted"):
        raise ValueError(f"no such vocabulary map: {kind!r}")
    return {"d2t": d2t, "t2d": t2d}


def reference(weights: Mapping[str, Tensor], sizes: Sizes = SIZES, **switches: Any) -> ReferenceDrafter:
    """The reference forward of tiny weights; `switches` are those of `ReferenceDrafter`."""
    switches.setdefault("rope", Rope(sizes.rope_theta, interleaved=sizes.latent is not None))
    return ReferenceDrafter(
        weights,
        num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        eps=sizes.eps,
        latent=sizes.latent,
        **switches,
    )


# --- checkpoint folders


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2))


def _cast(weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {k: (t.to(dtype) if t.is_floating_point() else t).clone().contiguous() for k, t in weights.items()}


def _variant(weights: Mapping[str, Tensor]) -> dict[str, bool]:
    """The config fields that the tensors themselves imply."""
    return {
        "norm_before_fc": "input_norm.weight" in weights,
        "fc_norm": "fc_norm.0.weight" in weights,
        "attention_bias": "layers.0.self_attn.q_proj.bias" in weights,
        "mlp_bias": "layers.0.mlp.gate_proj.bias" in weights,
    }


def flat_config(
    weights: Mapping[str, Tensor],
    sizes: Sizes = SIZES,
    *,
    layer_ids: Sequence[int] | None = FLAT_LAYER_IDS,
    norm_before_residual: bool = False,
    norm_output: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> dict[str, Any]:
    """The flat config.json that SGLang, SpecForge and vLLM read."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.mlp,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": 512,
        "rms_norm_eps": sizes.eps,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "vocab_size": sizes.vocab,
        "num_hidden_layers": sizes.layers,
        "draft_vocab_size": sizes.draft_vocab,
        "tie_word_embeddings": False,
        "rope_theta": sizes.rope_theta,
        "rope_scaling": None,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "norm_before_residual": norm_before_residual,
        "norm_output": norm_output,
        "eagle_config": {"use_aux_hidden_state": True},
        **_variant(weights),
    }
    if sizes.target_hidden is not None:
        config["target_hidden_size"] = sizes.target_hidden
    if layer_ids is not None:
        config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = list(layer_ids)
    return config


def nested_config(
    weights: Mapping[str, Tensor],
    sizes: Sizes = SIZES,
    *,
    layer_ids: Sequence[int] | None = SPECULATORS_LAYER_IDS,
    norm_before_residual: bool = False,
    norm_output: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    verifier: Path | str | None = None,
    layer: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The nested config.json that speculators writes; `layer` overwrites fields of `transformer_layer_config`."""
    implied = _variant(weights)
    qwen = "layers.0.self_attn.q_norm.weight" in weights
    config: dict[str, Any] = {
        "architectures": ["Eagle3DraftModel"],
        "auto_map": {"": "config.Eagle3SpeculatorConfig"},
        "draft_vocab_size": sizes.draft_vocab,
        "dtype": str(dtype).removeprefix("torch."),
        "embed_requires_grad": False,
        "fc_norm": implied["fc_norm"],
        "norm_before_fc": implied["norm_before_fc"],
        "norm_before_residual": norm_before_residual,
        "norm_output": norm_output,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {"accept_tolerance": 0.0, "proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1}
            ],
            "verifier": {
                "architectures": ["LlamaForCausalLM"],
                "name_or_path": str(verifier or "/not/on/this/machine"),
            },
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "target_hidden_size": sizes.target_hidden,
        "tie_word_embeddings": False,
        "transformer_layer_config": {
            "attention_bias": implied["attention_bias"],
            "head_dim": sizes.head_dim,
            "hidden_act": "silu",
            "hidden_size": sizes.hidden,
            "intermediate_size": sizes.mlp,
            "layer_types": ["full_attention"] * sizes.layers,
            "max_position_embeddings": 512,
            "mlp_bias": implied["mlp_bias"],
            "model_type": "qwen3" if qwen else "llama",
            "num_attention_heads": sizes.heads,
            "num_hidden_layers": sizes.layers,
            "num_key_value_heads": sizes.kv_heads,
            "rms_norm_eps": sizes.eps,
            "rope_parameters": {"rope_theta": sizes.rope_theta, "rope_type": "default"},
            "tie_word_embeddings": False,
            "vocab_size": sizes.vocab,
            **(layer or {}),
        },
        "transformers_version": "5.19.0",
    }
    if layer_ids is not None:
        config["eagle_aux_hidden_state_layer_ids"] = list(layer_ids)
    return config


def write_flat(
    folder: Path,
    weights: Mapping[str, Tensor],
    sizes: Sizes = SIZES,
    *,
    dtype: torch.dtype = torch.bfloat16,
    embed: bool = False,
    speculators_config: bool = False,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """SGLang's layout: config.json, model.safetensors with `midlayer.*` names and (unless `embed`) no embedding.

    `options` go to `flat_config`; `changes` overwrite its fields (None removes one); `speculators_config` puts the
    training's nested config beside it as config_speculators.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = flat_config(weights, sizes, dtype=dtype, **options) | dict(changes or {})
    _write_json(folder / "config.json", {k: v for k, v in config.items() if v is not None or k == "rope_scaling"})
    if speculators_config:
        shared = {k: v for k, v in options.items() if k != "layer_ids"}
        _write_json(folder / "config_speculators.json", nested_config(weights, sizes, dtype=dtype, **shared))
    named = {k.replace("layers.0.", "midlayer."): t for k, t in weights.items() if embed or "embed_tokens" not in k}
    save_file(_cast(named, dtype), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_nested(
    folder: Path,
    weights: Mapping[str, Tensor],
    sizes: Sizes = SIZES,
    *,
    dtype: torch.dtype = torch.bfloat16,
    embed: bool = True,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """speculators' layout: nested config.json, `layers.0.*` names, the embedding included unless told otherwise.

    `options` go to `nested_config`; `changes` overwrite its top-level fields (None removes one).
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = nested_config(weights, sizes, dtype=dtype, **options)
    for key, value in (changes or {}).items():
        config[key] = value
        if value is None:
            del config[key]
    _write_json(folder / "config.json", config)
    named = {k: t for k, t in weights.items() if embed or "embed_tokens" not in k}
    save_file(_cast(named, dtype), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_target(
    folder: Path,
    weights: Mapping[str, Tensor],
    sizes: Sizes = SIZES,
    *,
    lm_head: bool = True,
    norm: bool = True,
    tokenizer: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> Path:
    """A target's folder with what an inspector needs of it: the embedding, the final norm, the head (else tied)."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": sizes.target_width,
            "num_hidden_layers": sizes.target_layers,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.kv_heads,
            "intermediate_size": sizes.mlp,
            "vocab_size": sizes.vocab,
            "rms_norm_eps": sizes.eps,
            "rope_theta": sizes.rope_theta,
            "tie_word_embeddings": not lm_head,
            "torch_dtype": str(dtype).removeprefix("torch."),
        },
    )
    save_file(_cast(target_weights(weights, sizes, lm_head, norm), dtype), folder / "model.safetensors")
    if tokenizer:
        write_tokenizer(folder / "tokenizer.json", sizes.vocab)
    return folder


def target_weights(
    weights: Mapping[str, Tensor], sizes: Sizes = SIZES, lm_head: bool = True, norm: bool = True
) -> dict[str, Tensor]:
    """model.embed_tokens.weight [V, Ht], model.norm.weight [Ht], lm_head.weight [V, Ht]."""
    rng = torch.Generator().manual_seed(77)
    out = {"model.embed_tokens.weight": weights["embed_tokens.weight"]}
    final = torch.randn(sizes.target_width, generator=rng)
    head = torch.randn(sizes.vocab, sizes.target_width, generator=rng)
    if norm:
        out["model.norm.weight"] = (1 + 0.3 * final).bfloat16().float()
    if lm_head:
        out["lm_head.weight"] = head.bfloat16().float()
    return out


def verifier_argmax(weights: Mapping[str, Tensor], last: Tensor, sizes: Sizes = SIZES) -> tuple[list[int], list[int]]:
    """The target's choice after each x[0..j], from its last state before the final norm, `last` [T, Ht].

    Over the whole vocabulary (target ids), and over the draft vocabulary (draft ids; needs a sound `d2t`).
    """
    target = target_weights(weights, sizes)
    x = last.float()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + sizes.eps) * target["model.norm.weight"]
    logits = x @ target["lm_head.weight"].T  # [T, V]
    ids = torch.arange(sizes.draft_vocab) + weights["d2t"]
    return logits.argmax(-1).tolist(), logits[:, ids].argmax(-1).tolist()


def write_tokenizer(path: Path, vocab: int = SIZES.vocab, tokens: Sequence[str] | None = None) -> Path:
    """A word-level tokenizer.json: id i is `tokens[i]`, by default "w{i}", with 0, 1, 2 special."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = list(tokens) if tokens is not None else ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(3, vocab)]
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    made.pre_tokenizer = Whitespace()
    made.add_special_tokens([AddedToken(word, special=True) for word in words[:3]])
    made.save(str(path))
    return path


# --- samples


@dataclass(frozen=True)
class TinySample:
    """What a producer records of one text. Change a field with `dataclasses.replace` to break it."""

    ids: list[int]  # [T]
    mask: list[int]  # [T]
    slots: Tensor  # [T, S, Ht] bfloat16
    depths: tuple[int, ...]  # of the slots


def tiny_sample(
    seed: int,
    weights: Mapping[str, Tensor],
    sizes: Sizes = SIZES,
    *,
    tokens: int = TOKENS,
    depths: Sequence[int] = V1_DEPTHS,
    mask: Sequence[int] | None = None,
) -> TinySample:
    """Random tokens and a make-believe residual stream.

    Depth 0 is exactly the token's embedding; deeper states also depend on what came before, and grow. The same seed
    gives the same text and, at the same depth, the same states.
    """
    rng = torch.Generator().manual_seed(1000 + seed)
    ids = torch.randint(3, sizes.vocab, (tokens,), generator=rng)
    layers = torch.Generator().manual_seed(5)  # one target for all samples
    table = weights["embed_tokens.weight"]
    if table.shape[1] != sizes.target_width:
        table = torch.randn(sizes.vocab, sizes.target_width, generator=layers).bfloat16().float()
    stream = table[ids]  # [T, Ht]
    states = [stream]
    count = torch.arange(1, tokens + 1)[:, None]
    for depth in range(sizes.target_layers):
        mix = torch.randn(sizes.target_width, sizes.target_width, generator=layers) / sizes.target_width**0.5
        context = stream.cumsum(0) / count.sqrt()
        stream = stream + (1 + depth) * torch.tanh((stream + context) @ mix.T / (1 + depth))
        states.append(stream)
    slots = torch.stack([states[d] for d in depths], dim=1).bfloat16()
    default = [int(t >= tokens // 3) for t in range(tokens)]
    return TinySample(ids.tolist(), list(default if mask is None else mask), slots, tuple(depths))


def write_v1_sample(path: Path, sample: TinySample) -> Path:
    """speculators 0.3-0.4's data_{i}.pt: a list of [T, Ht] states, one for each slot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "input_ids": torch.tensor(sample.ids),
        "hidden_states": [slot.contiguous().clone() for slot in sample.slots.unbind(1)],
        "loss_mask": torch.tensor(sample.mask),
    }
    torch.save(record, path)
    return path


def write_arrow_samples(folder: Path, samples: Mapping[int, TinySample], rows: int | None = None) -> Path:
    """speculators 0.9's layout: an Arrow stream of all rows and, for the rows in `samples`, hs_{row}.safetensors.

    Rows below `rows` that are not in `samples` are in the table but were never recorded.
    """
    import pyarrow as pa

    states = folder / "hidden_states"
    states.mkdir(parents=True, exist_ok=True)
    total = rows if rows is not None else max(samples) + 1
    ids = [samples[i].ids if i in samples else [1, 5, 7, 2] for i in range(total)]
    masks = [samples[i].mask if i in samples else [0, 0, 1, 1] for i in range(total)]
    features = {
        "input_ids": {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "List"},
        "loss_mask": {"feature": {"dtype": "int64", "_type": "Value"}, "_type": "List"},
        "seq_len": {"dtype": "int64", "_type": "Value"},
    }
    columns = {"input_ids": pa.list_(pa.int32()), "loss_mask": pa.list_(pa.int64()), "seq_len": pa.int64()}
    schema = pa.schema(columns.items(), metadata={"huggingface": json.dumps({"info": {"features": features}})})
    table = pa.table({"input_ids": ids, "loss_mask": masks, "seq_len": [len(x) for x in ids]}, schema=schema)
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    _write_json(folder / "state.json", {"_data_files": [{"filename": name}], "_format_type": "torch", "_split": None})
    _write_json(folder / "dataset_info.json", {"features": features})
    for row, sample in samples.items():
        tensors = {"hidden_states": sample.slots.contiguous(), "token_ids": torch.tensor(sample.ids)}
        save_file(tensors, states / f"hs_{row}.safetensors")
    return folder


# --- files that mean harm


class _Command:
    """Pickles as a call: whoever unpickles it without care runs the command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


def write_pickle_with_code(path: Path, marker: Path) -> Path:
    """A torch file with a sample's keys whose pickle, if executed, creates `marker`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = torch.arange(TOKENS)
    trap = _Command(f"touch {shlex.quote(str(marker))}")
    torch.save({"input_ids": ids, "hidden_states": trap, "loss_mask": ids}, path)
    return path


def write_truncated(path: Path, source: Path, keep: float = 0.5) -> Path:
    """The first part of another file, as a full disk or a killed copy leaves it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = source.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    return path


def write_stride_bomb(path: Path, tokens: int = TOKENS, width: int = 10**7) -> Path:
    """A v1 sample of a few kB whose states claim [T, 10^7]: every element is the same one number (strides 0)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = torch.zeros(1, dtype=torch.bfloat16).expand(tokens, width)
    record = {"input_ids": torch.arange(tokens), "hidden_states": [state] * 4, "loss_mask": torch.ones(tokens).long()}
    torch.save(record, path)
    return path


def write_deflate_bomb(path: Path, mib: int = 64) -> Path:
    """A v1 sample whose zip entries are deflated: some ten kB on disk, `mib` MiB once inflated."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width = mib * 2**20 // 2 // 4 // TOKENS  # bfloat16, four slots
    plain = io.BytesIO()
    slots = [torch.zeros(TOKENS, width, dtype=torch.bfloat16) for _ in range(4)]
    ids = torch.arange(TOKENS)
    torch.save({"input_ids": ids, "hidden_states": slots, "loss_mask": torch.ones_like(ids)}, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    return path
