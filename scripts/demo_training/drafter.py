"""The drafter: one EAGLE-3 layer, trained with training-time test on the target's own continuations.

Row t holds the recorded states of token t and the embedding of token t+1, and predicts token t+2. Step k of the
training-time test feeds row t the token t+1+k (the true one) and, in place of the target's states, what the layer
itself gave at step k-1.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .recipe import Recipe
from .samples import Sample
from .target import EPS, Target, learning_rate, optimizers, rope_tables, rotate


@dataclass(frozen=True)
class DraftVocab:
    ids: Tensor  # i64 [D], sorted target ids
    d2t: Tensor  # i64 [D]: target id = draft id + d2t[draft id]
    t2d: Tensor  # bool [V]: is the target id in the draft vocabulary?


def choose_vocab(recipe: Recipe, samples: list[Sample]) -> DraftVocab:
    """The D ids that the target wrote most often."""
    written = torch.cat([s.ids[s.prompt :] for s in samples])
    counts = torch.bincount(written, minlength=recipe.vocab)
    ids = counts.argsort(descending=True, stable=True)[: recipe.draft_vocab].sort().values
    t2d = torch.zeros(recipe.vocab, dtype=torch.bool)
    t2d[ids] = True
    return DraftVocab(ids, ids - torch.arange(len(ids)), t2d)


class Drafter(nn.Module):
    def __init__(self, recipe: Recipe, target: Target, vocab: DraftVocab, slot_norms: Tensor) -> None:
        super().__init__()
        self.recipe = recipe
        width, inner, keys = recipe.hidden, recipe.heads * recipe.head_dim, recipe.kv_heads * recipe.head_dim
        self.fc = nn.Linear(3 * width, width, bias=False)
        self.layers = nn.ModuleDict(  # the name tells `optimizers` which matrices are inner ones
            {
                "input_layernorm": nn.RMSNorm(width, eps=EPS),
                "hidden_norm": nn.RMSNorm(width, eps=EPS),
                "post_attention_layernorm": nn.RMSNorm(width, eps=EPS),
                "q_proj": nn.Linear(2 * width, inner, bias=False),
                "k_proj": nn.Linear(2 * width, keys, bias=False),
                "v_proj": nn.Linear(2 * width, keys, bias=False),
                "o_proj": nn.Linear(inner, width, bias=False),
                "gate_proj": nn.Linear(width, recipe.mlp, bias=False),
                "up_proj": nn.Linear(width, recipe.mlp, bias=False),
                "down_proj": nn.Linear(recipe.mlp, width, bias=False),
            }
        )
        self.norm = nn.RMSNorm(width, eps=EPS)
        self.lm_head = nn.Linear(width, recipe.draft_vocab, bias=False)
        with torch.no_grad():
            self.norm.weight.copy_(target.norm.weight)
            self.lm_head.weight.copy_(target.lm_head.weight[vocab.ids])
        self.register_buffer("embedding", target.embed_tokens.weight.detach())
        # The slots differ much in norm. Training sees each at unit RMS, so that none is drowned out or learned faster;
        # `weights` puts the factor into fc's columns, and the product is an fc like any other.
        self.register_buffer("slot_scale", (math.sqrt(width) / slot_norms).repeat_interleave(width))

    def fuse(self, states: Tensor) -> Tensor:
        """states [B, R, 3H] -> [B, R, H]"""
        return self.fc(states * self.slot_scale)

    def step(self, hidden: Tensor, tokens: Tensor, k: int, past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """One training-time-test step: hidden [B, R, H], tokens [B, R] -> the next hidden [B, R, H]; extends `past`."""
        part = self.layers
        e = part["input_layernorm"](self.embedding[tokens])
        h = part["hidden_norm"](hidden)
        x = torch.cat([e, h], dim=-1)  # [B, R, 2H]
        cos, sin = rope_tables(torch.arange(x.shape[1]) + k, self.recipe.head_dim, self.recipe.rope_theta)
        q, key, value = (
            part[name](x).unflatten(-1, (-1, self.recipe.head_dim)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )  # [B, heads, R, head_dim]
        groups = self.recipe.heads // self.recipe.kv_heads
        q, key = rotate(q, cos, sin), rotate(key, cos, sin)
        past.append((key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)))
        y = h + part["o_proj"](attend(q, past).transpose(1, 2).flatten(2))  # h: norm_before_residual
        x = part["post_attention_layernorm"](y)
        return y + part["down_proj"](F.silu(part["gate_proj"](x)) * part["up_proj"](x))

    def forward(self, ids: Tensor, states: Tensor) -> list[Tensor]:
        """ids [B, T], states [B, T, 3H] -> logits [B, T-1, D] of each step k, for token t+2+k in row t."""
        hidden, past, logits = self.fuse(states[:, :-1]), [], []
        for k in range(self.recipe.ttt_steps):
            tokens = F.pad(ids[:, 1 + k :], (0, k))  # rows without a token are not scored
            hidden = self.step(hidden, tokens, k, past)
            logits.append(self.lm_head(self.norm(hidden)))
        return logits

    def weights(self) -> dict[str, Tensor]:
        """The checkpoint's tensors, bfloat16, under the names that the flat dialect uses."""
        found = {
            "fc.weight": self.fc.weight * self.slot_scale,
            "norm.weight": self.norm.weight,
            "lm_head.weight": self.lm_head.weight,
        }
        for name, module in self.layers.items():
            group = "self_attn." if name[0] in "qkvo" and name.endswith("_proj") else "mlp." if "proj" in name else ""
            found[f"midlayer.{group}{name}.weight"] = module.weight
        return {name: weight.detach().bfloat16().contiguous() for name, weight in found.items()}

    @torch.no_grad()
    def rounded(self, vocab: DraftVocab, target: Target) -> "Drafter":
        """A copy with the weights that `weights` gives, as float32: what a reader of the checkpoint computes with."""
        ones = torch.full((3,), math.sqrt(self.recipe.hidden))
        copy = Drafter(self.recipe, target, vocab, ones)
        for module, source in zip(copy.modules(), self.modules(), strict=True):
            if isinstance(module, nn.Linear | nn.RMSNorm):
                module.weight.copy_(source.weight.bfloat16().float())
        copy.fc.weight.copy_((self.fc.weight * self.slot_scale).bfloat16().float())
        return copy


def attend(q: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    """q [B, heads, R, head_dim] of the newest step sees step 0 of rows <= its own, and later steps of its own row."""
    keys, values = zip(*past, strict=True)
    rows = q.shape[2]
    q = q / math.sqrt(q.shape[-1])
    committed = (q @ keys[0].transpose(2, 3)).masked_fill(torch.ones(rows, rows).triu(1).bool(), -torch.inf)
    own = [(q * key).sum(-1, keepdim=True) for key in keys[1:]]  # each [B, heads, R, 1]
    weight = torch.softmax(torch.cat([committed, *own], dim=-1), dim=-1)
    mixed = weight[..., :rows] @ values[0]
    for j, value in enumerate(values[1:]):
        mixed = mixed + weight[..., rows + j, None] * value
    return mixed


@dataclass(frozen=True)
class Batch:
    """Padded on the right: causal rows never see the padding."""

    ids: Tensor  # i64 [B, T]
    mask: Tensor  # bool [B, T]: the target's own tokens
    states: Tensor  # f32 [B, T, 3H]: what feeds fc
    truth: Tensor  # f32 [B, T, D]: the target's log-probabilities of the next token, within the draft vocabulary


@torch.no_grad()
def collate(samples: list[Sample], target: Target, vocab: DraftVocab) -> Batch:
    def padded(parts: list[Tensor]) -> Tensor:
        return nn.utils.rnn.pad_sequence(parts, batch_first=True)

    slots = [padded([s.states[i].float() for s in samples]) for i in range(4)]
    logits = target.logits(slots[3])[..., vocab.ids]
    return Batch(
        ids=padded([s.ids for s in samples]),
        mask=padded([s.loss_mask for s in samples]).bool(),
        states=torch.cat(slots[:3], dim=-1),
        truth=logits.log_softmax(dim=-1),
    )


def scored_rows(batch: Batch, k: int) -> tuple[Tensor, Tensor]:
    """For step k: truths [B, R-k, D]; which of rows 0..R-k-1 count, bool [B, R-k]: the mask of the token fed."""
    return batch.truth[:, 1 + k :], batch.mask[:, 1 + k :]


def losses(logits: list[Tensor], batch: Batch) -> list[Tensor]:
    """Sum over rows of the cross-entropy to the target's distribution, for each step."""
    found = []
    for k, step in enumerate(logits):
        truth, rows = scored_rows(batch, k)
        wrong = -(truth.exp() * step[:, : truth.shape[1]].log_softmax(dim=-1)).sum(-1)  # [B, R-k]
        found.append((wrong * rows).sum())
    return found


def epochs(
    recipe: Recipe, target: Target, vocab: DraftVocab, train: list[Sample], held_out: list[Sample]
) -> Iterator[tuple[int, int, dict[str, Tensor], dict[str, float]]]:
    """Train; after each epoch give (epoch, steps so far, the checkpoint's tensors, its metrics on held-out samples)."""
    torch.manual_seed(recipe.seed)
    norms = torch.stack([torch.cat([s.states[i].float().norm(dim=-1) for s in train]).mean() for i in range(3)])
    model = Drafter(recipe, target, vocab, norms)
    used = optimizers(model, recipe.drafter_lr)
    per_epoch = len(train) // recipe.drafter_batch
    total = per_epoch * recipe.epochs
    start = time.monotonic()
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(train)).tolist()
        for i in range(per_epoch):
            step = epoch * per_epoch + i
            for group in (g for optimizer in used for g in optimizer.param_groups):
                group["lr"] = recipe.drafter_lr * learning_rate(step, total)
            chosen = [train[j] for j in order[i * recipe.drafter_batch : (i + 1) * recipe.drafter_batch]]
            train_step(model, collate(chosen, target, vocab), used)
        metrics = validate(model.rounded(vocab, target), target, vocab, held_out)
        accuracy = "  ".join(f"{metrics[f'full_acc_{k}_epoch']:.3f}" for k in range(recipe.ttt_steps))
        seconds = time.monotonic() - start
        print(f"drafter epoch {epoch}  held out: loss {metrics['loss_epoch']:.3f}  acc {accuracy}  {seconds:.0f} s")
        yield epoch, (epoch + 1) * per_epoch, model.weights(), metrics


def train_step(model: Drafter, batch: Batch, used: list[torch.optim.Optimizer]) -> None:
    decay = model.recipe.step_decay
    steps = losses(model(batch.ids, batch.states), batch)
    loss = sum(decay**k * step for k, step in enumerate(steps)) / batch.mask[:, 1:].sum()
    loss.backward()
    for optimizer in used:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def validate(model: Drafter, target: Target, vocab: DraftVocab, samples: list[Sample]) -> dict[str, float]:
    """speculators' metrics, under its names, summed over all rows and divided once.

    full_acc_k is the share of rows with steps 0..k all right, cond_acc_k the share among those that were right so far;
    a truth is the target's choice within the draft vocabulary.
    """
    steps = model.recipe.ttt_steps
    loss, hits, totals, survivors = ([0.0] * steps for _ in range(4))
    for start in range(0, len(samples), model.recipe.drafter_batch):
        batch = collate(samples[start : start + model.recipe.drafter_batch], target, vocab)
        logits = model(batch.ids, batch.states)
        right = batch.mask[:, 1:]  # bool [B, R]: rows that count and were right so far
        for k, wrong in enumerate(losses(logits, batch)):
            truth, rows = scored_rows(batch, k)
            right = right[:, : truth.shape[1]]
            survivors[k] += right.sum().item()
            right = right & (logits[k][:, : truth.shape[1]].argmax(-1) == truth.argmax(-1))
            loss[k] += wrong.item()
            hits[k] += (right & rows).sum().item()
            totals[k] += rows.sum().item()
    metrics: dict[str, float] = {}
    for k in range(steps):
        metrics[f"loss_{k}_epoch"] = loss[k] / totals[k]
        metrics[f"full_acc_{k}_epoch"] = hits[k] / totals[k]
        metrics[f"cond_acc_{k}_epoch"] = hits[k] / survivors[k] if survivors[k] else 0.0
    return metrics | {"loss_epoch": sum(metrics[f"loss_{k}_epoch"] for k in range(steps))}
