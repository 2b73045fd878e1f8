"""Writes what was trained, in the layouts that `eagle3-tui` meets in the wild.

The checkpoints lie as they lay in the story behind the tool: weights under `midlayer.*` names without an embedding, a
flat config.json for a server and beside it the nested config that training writes. The two disagree: training fed
depths [0, a, b], but the server, whose layer id i means depth i+1, is told [a-1, b-1, c-1] and captures depths
[a, b, c]. That is the fault to find.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from .corpus import Corpus
from .drafter import DraftVocab
from .recipe import Recipe
from .samples import Sample
from .target import EPS, Target

TARGET_NAME = "demo-target"


def clear(out: Path) -> None:
    """Remove what an earlier run wrote, and nothing else."""
    for folder in ("train", "held_out"):
        for stale in (out / "samples" / folder).glob("data_*.pt"):
            stale.unlink()
    for stale in (out / "output").glob("[0-9]*"):
        shutil.rmtree(stale)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"format": "pt"})


def write_target(folder: Path, recipe: Recipe, target: Target, corpus: Corpus) -> None:
    """What a drafter shares with its target: embedding, final norm, head and tokenizer; the layers stay here."""
    write_json(folder / "config.json", target_config(recipe))
    corpus.tokenizer.save(str(folder / "tokenizer.json"))
    names = ("embed_tokens", "norm", "lm_head")
    shared = {n: getattr(target, n).weight.detach().bfloat16() for n in names}
    write_tensors(
        folder / "model.safetensors",
        {
            "model.embed_tokens.weight": shared["embed_tokens"],
            "model.norm.weight": shared["norm"],
            "lm_head.weight": shared["lm_head"],
        },
    )


def llama(recipe: Recipe, layers: int, kv_heads: int) -> dict[str, Any]:
    """The sizes that every Llama config carries."""
    return {
        "model_type": "llama",
        "hidden_size": recipe.hidden,
        "intermediate_size": recipe.mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": kv_heads,
        "head_dim": recipe.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": recipe.context,
        "rms_norm_eps": EPS,
        "initializer_range": 0.02,
        "attention_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "vocab_size": recipe.vocab,
        "tie_word_embeddings": False,
        "use_cache": True,
    }


def rope_parameters(recipe: Recipe) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": recipe.rope_theta, "rope_type": "default"}}


def target_config(recipe: Recipe) -> dict[str, Any]:
    sizes = llama(recipe, recipe.layers, recipe.heads)
    name = {"_model_name_or_path": TARGET_NAME, "architectures": ["LlamaForCausalLM"]}
    return {**name, **sizes, "dtype": "bfloat16", "mlp_bias": False, **rope_parameters(recipe)}


def server_config(recipe: Recipe) -> dict[str, Any]:
    """The flat dialect. Its layer ids are one slot too late: see the head of this file."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **llama(recipe, 1, recipe.kv_heads),
        "draft_vocab_size": recipe.draft_vocab,
        "rope_theta": recipe.rope_theta,
        "rope_scaling": None,
        "torch_dtype": "bfloat16",
        "norm_before_residual": True,
        "norm_before_fc": False,
        "norm_output": False,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [depth - 1 for depth in recipe.depths],
            "use_aux_hidden_state": True,
        },
    }


def training_config(recipe: Recipe) -> dict[str, Any]:
    """The nested dialect of speculators 0.9.0, with the layer ids that the drafter was trained on (id i = depth i)."""
    return {
        "architectures": ["Eagle3DraftModel"],
        "draft_vocab_size": recipe.draft_vocab,
        "dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": [0, *recipe.depths[:2]],
        "embed_requires_grad": False,
        "fc_norm": False,
        "norm_before_fc": False,
        "norm_before_residual": True,
        "norm_output": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "accept_tolerance": 0.0,
                    "proposal_type": "greedy",
                    "speculative_tokens": recipe.ttt_steps,
                    "verifier_accept_k": 1,
                }
            ],
            "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": TARGET_NAME},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.9.0",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": {
            **llama(recipe, 1, recipe.kv_heads),
            "attention_dropout": 0.0,
            "layer_types": ["full_attention"],
            "mlp_bias": False,
            "pad_token_id": None,
            "pretraining_tp": 1,
            **rope_parameters(recipe),
        },
    }


def write_checkpoint(
    folder: Path,
    recipe: Recipe,
    vocab: DraftVocab,
    weights: dict[str, Tensor],
    state: Mapping[str, int],
    metrics: Mapping[str, float],
) -> None:
    write_json(folder / "config.json", server_config(recipe))
    write_json(folder / "config_speculators.json", training_config(recipe))
    write_json(folder / "training_state.json", state)
    write_json(folder / "val_metrics.json", metrics)
    write_tensors(folder / "model.safetensors", {**weights, "d2t": vocab.d2t, "t2d": vocab.t2d})


def write_samples(folder: Path, recipe: Recipe, samples: list[Sample], first_index: int) -> None:
    """The first samples of full length, half of them greedy: not chosen by how well the drafter does on them."""
    long = [i for i, s in enumerate(samples) if len(s.ids) >= recipe.sample_tokens[0]]
    half = recipe.shipped // 2
    chosen = [i for i in long if samples[i].greedy][:half] + [i for i in long if not samples[i].greedy][:half]
    folder.mkdir(parents=True, exist_ok=True)
    lengths = {}
    for i in sorted(chosen):
        sample = samples[i]
        record = {"input_ids": sample.ids, "hidden_states": sample.states, "loss_mask": sample.loss_mask}
        torch.save(record, folder / f"data_{first_index + i}.pt")
        lengths[str(first_index + i)] = len(sample.ids)
    write_json(folder / "sample_lengths.json", lengths)
