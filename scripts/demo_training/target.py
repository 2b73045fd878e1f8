"""The target: a plain Llama of a few layers whose residual stream grows with depth as a large model's does.

Each layer writes into the stream through a fixed gain, so that it adds about as much as the stream is meant to grow
there. The gain is a scalar in front of two matrices: `fold` multiplies it into `o_proj` and `down_proj`, and what is
left is an ordinary Llama with ordinary weights.
"""

import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .recipe import Recipe

EPS = 1e-5


def rope_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, [*positions, head_dim], for the rotate-half form."""
    inverse = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = positions[..., None].float() * inverse
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, recipe: Recipe, gain: float) -> None:
        super().__init__()
        width = recipe.hidden
        self.heads, self.gain = recipe.heads, gain
        self.input_layernorm = nn.RMSNorm(width, eps=EPS)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=EPS)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = (nn.Linear(width, recipe.mlp, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(recipe.mlp, width, bias=False)

    def forward(self, h: Tensor, cos: Tensor, sin: Tensor, cache: Tensor | None = None, start: int = 0) -> Tensor:
        """h [B, T, H] -> [B, T, H]; `cache` [2, B, heads, S, head_dim] holds keys and values before `start`."""
        x = self.input_layernorm(h)
        split = (*x.shape[:2], self.heads, -1)
        q, k, v = (p(x).view(split).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)  # [B, heads, T, head_dim]
        if cache is not None:
            stop = start + q.shape[2]
            cache[0, :, :, start:stop], cache[1, :, :, start:stop] = k, v
            k, v = cache[:, :, :, :stop]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] == k.shape[2])
        h = h + self.gain * self.o_proj(mixed.transpose(1, 2).flatten(2))
        x = self.post_attention_layernorm(h)
        return h + self.gain * self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Target(nn.Module):
    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.embed_tokens = nn.Embedding(recipe.vocab, recipe.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=recipe.hidden**-0.5)  # rows of norm 1
        self.layers = nn.ModuleList(Layer(recipe, gain) for gain in recipe.gains)
        self.norm = nn.RMSNorm(recipe.hidden, eps=EPS)
        self.lm_head = nn.Linear(recipe.hidden, recipe.vocab, bias=False)

    def states(self, ids: Tensor, cache: Tensor | None = None, start: int = 0) -> list[Tensor]:
        """The residual stream of tokens [B, T] after 0..n layers, before the final norm: n + 1 times [B, T, H]."""
        positions = torch.arange(start, start + ids.shape[1])
        cos, sin = rope_tables(positions, self.recipe.head_dim, self.recipe.rope_theta)  # [T, head_dim]
        stream = [self.embed_tokens(ids)]
        for i, layer in enumerate(self.layers):
            stream.append(layer(stream[-1], cos, sin, None if cache is None else cache[i], start))
        return stream

    def logits(self, last: Tensor) -> Tensor:
        return self.lm_head(self.norm(last))

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits(self.states(ids)[-1])

    @torch.no_grad()
    def fold(self) -> None:
        """Gains into weights, weights to what bfloat16 can hold: what is recorded from here on is what is shipped."""
        for layer in self.layers:
            layer.o_proj.weight *= layer.gain
            layer.down_proj.weight *= layer.gain
            layer.gain = 1.0
        for weight in self.parameters():
            weight.copy_(weight.bfloat16().float())


def batches(ids: Tensor, recipe: Recipe, steps: int) -> Iterator[Tensor]:
    """Random windows [B, context + 1] of the corpus."""
    generator = torch.Generator().manual_seed(recipe.seed)
    offsets = torch.arange(recipe.context + 1)
    for _ in range(steps):
        starts = torch.randint(len(ids) - recipe.context, (recipe.target_batch, 1), generator=generator)
        yield ids[starts + offsets]


def optimizers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, Adam for the embedding, the head and the norms."""
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and "layers" in name]
    outer = [p for name, p in model.named_parameters() if p.ndim != 2 or "layers" not in name]
    return [
        torch.optim.Muon(inner, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(outer, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def train(recipe: Recipe, ids: Tensor, held_out: Tensor) -> Target:
    torch.manual_seed(recipe.seed)
    model = Target(recipe)
    used = optimizers(model, recipe.target_lr)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(o, lambda step: learning_rate(step, recipe.target_steps)) for o in used
    ]
    start = time.monotonic()
    for step, batch in enumerate(batches(ids, recipe, recipe.target_steps)):
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        for optimizer, schedule in zip(used, schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0 or step == recipe.target_steps - 1:
            held, seconds = evaluate(model, held_out), time.monotonic() - start
            print(f"target step {step:5}  loss {loss.item():.3f}  held out {held:.3f}  {seconds:.0f} s", flush=True)
    model.fold()
    return model.eval()


def learning_rate(step: int, steps: int) -> float:
    """Factor: a short warm-up, then a straight line down to a twentieth."""
    return min(1.0, (step + 1) / max(1, steps // 30)) * (1 - 0.95 * step / steps)


@torch.no_grad()
def evaluate(model: Target, ids: Tensor) -> float:
    """Cross-entropy (nats a token) on consecutive windows of a text that is not trained on."""
    context = model.recipe.context
    windows = ids[: (len(ids) - 1) // context * context + 1].unfold(0, context + 1, context)[:24]
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()).item()
