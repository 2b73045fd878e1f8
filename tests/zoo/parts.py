"""What several animals are made of: sizes, parts of configs and switches, files beside the weights."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests import tiny
from tests.reference import Latent, Rope
from tests.tiny import SIZES, Sizes

WIDE = replace(SIZES, target_hidden=24)
FULL = replace(SIZES, draft_vocab=SIZES.vocab)
HEADS = replace(SIZES, head_dim=10)
TWO = replace(SIZES, layers=2)
MLA = replace(SIZES, latent=Latent(nope=6, rope=4, value=5, kv_rank=12), query_rank=10, kv_heads=SIZES.heads)
MLA_PLAIN = replace(MLA, query_rank=None)
MLA_FULL = replace(MLA, draft_vocab=SIZES.vocab)
THETA = SIZES.rope_theta
KEEP: tuple[str, ...] = ("absent",)  # nothing is dropped
BOTH = {"attention_bias": True, "mlp_bias": True}
POST = {"norm_output": True}
RAW = {"norm_before_residual": True}
TWICE = {"double_norm": True}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4.0, "beta_slow": 1.0}
NO_T2D = ("embed_tokens", "t2d")


def states(count: int) -> Sizes:
    return replace(SIZES, states=count)


def trap(folder: Path) -> None:
    """The code that speculators copies into every epoch; whoever imports it leaves a mark."""
    (folder / "config.py").write_text("from pathlib import Path\nPath(__file__).with_name('IMPORTED').touch()\n")


def quantised(folder: Path) -> None:
    text = '{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}'
    (folder / "hf_quant_config.json").write_text(text)


def resumable(folder: Path) -> None:
    """SpecForge's scripts left what resuming needs beside the weights; it holds no drafter."""
    state = {"epoch": 1, "global_step": 120, "args": argparse.Namespace(learning_rate=1e-4)}
    torch.save(state, folder / "training_state.pt")


def eagle_meta(folder: Path) -> None:
    torch.save({"draft_vocab_size": SIZES.draft_vocab, "selected_token_ids": torch.arange(4)}, folder / "eagle_meta.pt")


def map_in_cache(folder: Path) -> None:
    """SafeAILab's scan of the data leaves the map here, beside or inside the run."""
    made = tiny.vocab_map(0)
    torch.save({"d2t": made["d2t"], "t2d": made["t2d"]}, folder / "cache.pt")


def with_rope(kind: str, written: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Config changes and the switch for a flat config with this RoPE."""
    numbers = {k: v for k, v in written.items() if k not in ("type", "rope_type", "rope_theta")}
    rope = Rope(written.get("rope_theta", THETA), kind, numbers, **changes)
    return {"rope": rope}
