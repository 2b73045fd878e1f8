"""Reads the written files back and scores them with a second, plain implementation: one sample, one step, float32.

It shares no code with `drafter`, which trained the weights: a slip there would be as wrong here only by coincidence.
"""

import json
import math
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

Ordering = tuple[int, ...]
TRAINED, SERVED = (0, 1, 2), (1, 2, 3)


@dataclass
class Score:
    hits: int = 0
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.hits / max(1, self.rows):.3f}"

    @property
    def ratio(self) -> float:
        return self.hits / max(1, self.rows)


def read_samples(folder: Path) -> list[dict[str, Any]]:
    """input_ids and loss_mask i64 [T], hidden_states 4 x bf16 [T, H]"""
    paths = sorted(folder.glob("data_*.pt"), key=lambda path: int(path.stem.removeprefix("data_")))
    return [torch.load(path, weights_only=True) for path in paths]


def read_checkpoint(folder: Path, target: Path) -> tuple[dict[str, Tensor], dict[str, float]]:
    stored = load_file(folder / "model.safetensors")
    weights = {name: t.float() if t.is_floating_point() else t for name, t in stored.items()}
    weights["embed"] = load_file(target / "model.safetensors")["model.embed_tokens.weight"].float()
    return weights, json.loads((folder / "config.json").read_text(encoding="utf-8"))


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def rope(x: Tensor, theta: float) -> Tensor:
    """x [rows, hd], row t at position t"""
    half = x.shape[1] // 2
    angle = torch.arange(len(x))[:, None] * theta ** (-torch.arange(half) / half)  # [rows, hd/2]
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=1)


def predictions(w: dict[str, Tensor], config: dict[str, float], ids: Tensor, slots: list[Tensor]) -> Tensor:
    """Target ids [T-1]: what row t says about token t+2."""
    eps, hd = config["rms_norm_eps"], int(config["head_dim"])
    heads, kv_heads = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    mid = {name.removeprefix("midlayer.").removesuffix(".weight"): t for name, t in w.items()}
    g = torch.cat([slot[:-1].float() for slot in slots], dim=1) @ w["fc.weight"].T  # [R, H]
    e = rms(w["embed"][ids[1:]], mid["input_layernorm"], eps)
    h = rms(g, mid["hidden_norm"], eps)
    x = torch.cat([e, h], dim=1)  # [R, 2H]
    q, k, v = (x @ mid[f"self_attn.{name}_proj"].T for name in "qkv")
    future = torch.ones(len(x), len(x)).triu(1).bool()
    mixed = []
    for head in range(heads):
        mine, shared = slice(head * hd, (head + 1) * hd), head * kv_heads // heads
        theirs = slice(shared * hd, (shared + 1) * hd)
        score = rope(q[:, mine], config["rope_theta"]) @ rope(k[:, theirs], config["rope_theta"]).T / math.sqrt(hd)
        mixed.append(score.masked_fill(future, -torch.inf).softmax(1) @ v[:, theirs])
    y = h + torch.cat(mixed, dim=1) @ mid["self_attn.o_proj"].T  # h and not g: norm_before_residual
    x = rms(y, mid["post_attention_layernorm"], eps)
    y = y + (torch.nn.functional.silu(x @ mid["mlp.gate_proj"].T) * (x @ mid["mlp.up_proj"].T)) @ mid["mlp.down_proj"].T
    draft = (rms(y, w["norm.weight"], eps) @ w["lm_head.weight"].T).argmax(1)
    return draft + w["d2t"][draft]


@torch.no_grad()
def score(checkpoint: Path, target: Path, folder: Path, orderings: list[Ordering]) -> dict[Ordering, Score]:
    """Pooled over the folder's samples: is row t right about x[t+2], where the mask of x[t+1] is set?"""
    weights, config = read_checkpoint(checkpoint, target)
    found = {ordering: Score() for ordering in orderings}
    for sample in read_samples(folder):
        ids, mask, states = sample["input_ids"], sample["loss_mask"], sample["hidden_states"]
        rows = mask[1:-1] == 1  # bool [T-2]
        for ordering, total in found.items():
            guess = predictions(weights, config, ids, [states[i] for i in ordering])[:-1]
            total.hits += int((guess == ids[2:])[rows].sum())
            total.rows += int(rows.sum())
    return found


def all_orderings() -> list[Ordering]:
    return list(permutations(range(4), 3))


def slot_norms(folder: Path) -> list[float]:
    """Mean norm of each slot over all tokens of the folder's samples."""
    samples = read_samples(folder)
    return [torch.cat([s["hidden_states"][i].float().norm(dim=1) for s in samples]).mean().item() for i in range(4)]


def coverage(checkpoint: Path, folder: Path) -> Score:
    """How many of the tokens that the target wrote can the drafter say at all?"""
    t2d = load_file(checkpoint / "model.safetensors")["t2d"]
    written = torch.cat([s["input_ids"][s["loss_mask"] == 1] for s in read_samples(folder)])
    return Score(int(t2d[written].sum()), len(written))


def check_embedding(target: Path, folder: Path) -> None:
    """Slot 0 must be the shipped embedding's rows to the bit, or nobody could recognise it."""
    embed = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    for sample in read_samples(folder):
        if not torch.equal(sample["hidden_states"][0], embed[sample["input_ids"]]):
            raise SystemExit(f"{folder}: slot 0 is not the embedding of the tokens")


def verifier_agreement(target: Path, folder: Path) -> Score:
    """How often the target's own choice, read from slot 3, is the token that follows (on greedy samples: always)."""
    w = {name: t.float() for name, t in load_file(target / "model.safetensors").items()}
    eps = json.loads((target / "config.json").read_text(encoding="utf-8"))["rms_norm_eps"]
    total = Score()
    for s in read_samples(folder):
        choice = (rms(s["hidden_states"][3].float(), w["model.norm.weight"], eps) @ w["lm_head.weight"].T).argmax(1)
        rows = s["loss_mask"][1:] == 1
        total.hits += int((choice[:-1] == s["input_ids"][1:])[rows].sum())
        total.rows += int(rows.sum())
    return total
