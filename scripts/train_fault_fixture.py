"""Train the tiny drafter of tests/data/fault_fixture: `python scripts/train_fault_fixture.py` (some CPU minutes).

A one-layer EAGLE-3 drafter on the toy target of `tests.faults.toy`, 4 training-time-test steps, fed depths 2, 4, 6, the
residual after the norm (as speculators trains). The forward here can be differentiated and is a copy of the
definition, not the library's; the tests hold the two against each other. Same seed and same torch: same file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults import toy  # noqa: E402 (found by the path just added)

OUT = ROOT / "tests/data/fault_fixture"
DEPTHS, STEPS, HEADS, KV_HEADS, HEAD_DIM, MLP, BASE = (2, 4, 6), 4, 4, 2, 16, 144, 50_000.0
TEXTS, TOKENS, BATCH, UPDATES, RATE = 5000, 72, 16, 2800, 5e-3
FEW, FEW_UPDATES = 8, 300  # texts and updates of the second drafter, which has learnt them by heart


def fresh() -> dict[str, Tensor]:
    """Weights before training; the embedding is the target's and stays it."""
    rng, width, kv = torch.Generator().manual_seed(1), toy.WIDTH, KV_HEADS * HEAD_DIM

    def matrix(out: int, into: int) -> Tensor:
        return torch.randn(out, into, generator=rng) / into**0.5

    fc = matrix(width, 3 * width)
    for i, depth in enumerate(DEPTHS):  # states of very different norms: a blind start would see only the largest
        fc[:, i * width : (i + 1) * width] *= 8 / toy.NORMS[depth]
    at = "layers.0."
    return {
        "fc.weight": fc,
        f"{at}input_layernorm.weight": torch.ones(width),
        f"{at}hidden_norm.weight": torch.ones(width),
        f"{at}post_attention_layernorm.weight": torch.ones(width),
        f"{at}self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, 2 * width),
        f"{at}self_attn.k_proj.weight": matrix(kv, 2 * width),
        f"{at}self_attn.v_proj.weight": matrix(kv, 2 * width),
        f"{at}self_attn.o_proj.weight": matrix(width, HEADS * HEAD_DIM),
        f"{at}mlp.gate_proj.weight": matrix(MLP, width),
        f"{at}mlp.up_proj.weight": matrix(MLP, width),
        f"{at}mlp.down_proj.weight": matrix(width, MLP),
        "norm.weight": torch.ones(width),
        "lm_head.weight": matrix(toy.COMMON * 16, width),
    }


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + toy.EPS) * weight


def _turned(x: Tensor, positions: Tensor) -> Tensor:
    """x [B, n, R, hd] with its halves rotated by `positions` [R]."""
    half = HEAD_DIM // 2
    angles = positions[:, None] / BASE ** (torch.arange(half) / half)  # [R, hd / 2]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def logits(w: dict[str, Tensor], embed: Tensor, slots: Tensor, ids: Tensor, steps: int) -> list[Tensor]:
    """[B, R, D] at each step, R = T - 1 rows; `slots` [B, T, 3 H], `ids` [B, T]. Rows that run past the end hold
    numbers that nobody may count."""
    rows = ids.shape[1] - 1
    hidden = slots[:, :-1] @ w["fc.weight"].T
    causal = torch.ones(rows, rows).tril().bool()
    found, keys, values = [], [], []
    for k in range(steps):
        tokens = embed[F.pad(ids[:, 1 + k :], (0, k))]
        hidden, k_v = _layer(w, hidden, tokens, torch.arange(rows) + k, causal, keys, values)
        keys, values = [*keys, k_v[0]], [*values, k_v[1]]
        found.append(_rms(hidden, w["norm.weight"]) @ w["lm_head.weight"].T)
    return found


def _layer(
    w: dict[str, Tensor],
    g: Tensor,
    tokens: Tensor,
    positions: Tensor,
    causal: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One pass; `keys[0]`, `values[0]` are all rows' of step 0, later ones each row's own."""
    at = "layers.0."
    normed = _rms(g, w[f"{at}hidden_norm.weight"])
    x = torch.cat([_rms(tokens, w[f"{at}input_layernorm.weight"]), normed], -1)

    def heads(name: str, count: int) -> Tensor:
        y = x @ w[f"{at}self_attn.{name}_proj.weight"].T
        return y.view(*y.shape[:2], count, HEAD_DIM).transpose(1, 2)  # [B, n, R, hd]

    q = _turned(heads("q", HEADS), positions)
    k = _turned(heads("k", KV_HEADS), positions).repeat_interleave(HEADS // KV_HEADS, 1)
    v = heads("v", KV_HEADS).repeat_interleave(HEADS // KV_HEADS, 1)
    own_k, own_v = [*keys, k], [*values, v]
    scores = [(q @ own_k[0].transpose(-1, -2)).masked_fill(~causal, float("-inf"))]
    scores += [(q * other).sum(-1, keepdim=True) for other in own_k[1:]]
    weights = (torch.cat(scores, -1) / HEAD_DIM**0.5).softmax(-1)
    mixed = weights[..., : causal.shape[0]] @ own_v[0]
    for i, other in enumerate(own_v[1:]):
        mixed = mixed + weights[..., causal.shape[0] + i, None] * other
    y = normed + mixed.transpose(1, 2).flatten(2) @ w[f"{at}self_attn.o_proj.weight"].T
    z = _rms(y, w[f"{at}post_attention_layernorm.weight"])
    gate, up = z @ w[f"{at}mlp.gate_proj.weight"].T, z @ w[f"{at}mlp.up_proj.weight"].T
    return y + (F.silu(gate) * up) @ w[f"{at}mlp.down_proj.weight"].T, (k, v)


@dataclass(frozen=True)
class Texts:
    """`ids` [N, T], `slots` [N, T, 3 H] as a recording holds them, `draft_of` [V] (-100: cannot be drafted)."""

    ids: Tensor
    slots: Tensor
    draft_of: Tensor

    @classmethod
    def of(cls, target: toy.ToyTarget, count: int) -> Texts:
        texts = [toy.write_text(target, seed, TOKENS) for seed in range(count)]
        slots = [torch.cat([toy.states(target, *text)[d] for d in DEPTHS], -1).bfloat16() for text in texts]
        draft_of = torch.full((toy.VOCAB,), -100)
        draft_of[target.common] = torch.arange(len(target.common))
        return cls(torch.tensor([text for _, text in texts]), torch.stack(slots), draft_of)


def train(target: toy.ToyTarget, texts: Texts, updates: int) -> dict[str, Tensor]:
    """Weights in bfloat16; the embedding is the target's and not among them."""
    w = {name: t.requires_grad_() for name, t in fresh().items()}
    optimizer = torch.optim.AdamW(w.values(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=updates)
    rng = torch.Generator().manual_seed(2)
    for update in range(updates):
        chosen = torch.randint(len(texts.ids), (min(BATCH, len(texts.ids)),), generator=rng)
        loss, right = _loss(w, target, texts, chosen)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        schedule.step()
        if update % 100 == 99:
            print(update + 1, [f"{r:.3f}" for r in right], f"{loss.item():.3f}", flush=True)
    return {name: t.detach().bfloat16() for name, t in w.items()}


def _loss(w: dict[str, Tensor], target: toy.ToyTarget, texts: Texts, chosen: Tensor) -> tuple[Tensor, list[float]]:
    """The mean over steps and rows, and the accuracy of each step."""
    ids, losses, right = texts.ids[chosen], [], []
    for k, out in enumerate(logits(w, target.embed, texts.slots[chosen].float(), ids, STEPS)):
        truth = texts.draft_of[ids[:, 2 + k :]]
        out = out[:, : truth.shape[1]]
        losses.append(F.cross_entropy(out.flatten(0, 1), truth.flatten()))
        right.append((out.argmax(-1) == truth).float().mean().item())
    return torch.stack(losses).mean(), right


def main() -> None:
    from safetensors.torch import save_file

    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    made = toy.make_target()
    kept = {field.name: getattr(made, field.name) for field in fields(made)}
    save_file(
        {n: (t.bfloat16() if t.is_floating_point() else t.short()).contiguous() for n, t in kept.items()},
        OUT / "target.safetensors",
    )
    target = toy.load_target(OUT / "target.safetensors")
    for name, count, updates in (("by_heart", FEW, FEW_UPDATES), ("drafter", TEXTS, UPDATES)):
        weights = train(target, Texts.of(target, count), updates)
        save_file({n: t.contiguous() for n, t in weights.items()}, OUT / f"{name}.safetensors")


if __name__ == "__main__":
    main()
