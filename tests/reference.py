"""The plain EAGLE-3 forward, written from the definition alone: what the product's batched forward must agree with.

One row after another, float32, growing lists of keys and values; nothing shared, nothing batched, nothing clever. It
knows no file format, no config dialect and no server: weights come under canonical names, every switch is an argument.
Names for shapes: T tokens, H drafter width, Ht target width, A states that feed fc, V target vocabulary, D draft
vocabulary, K draft steps, L layers, nk key/value heads, hd head size, S rows seen.

Row t pairs the recorded states of token t with the embedding of x[t+1] and predicts x[t+2] at draft step 0; step k
takes x[t+1+k] and predicts x[t+2+k]. Rows are t = 0..T-2; at step k a row exists only while its input token does,
t+1+k <= T-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# What one row leaves behind for later rows, for each layer: its key and its value, both [num_kv_heads, head_dim].
KeyValue = tuple[Tensor, Tensor]


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., n] over its root mean square, times weight [n]; no mean is subtracted, the weight is not 1 + w."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope(x: Tensor, position: int, theta: float) -> Tensor:
    """Turn x [heads, hd]: pair i is (x[i], x[i + hd/2]) (NeoX halves), its angle position * theta^(-2i/hd)."""
    half = x.shape[-1] // 2
    exponents = torch.arange(half, dtype=torch.float32) * 2 / x.shape[-1]
    angle = position / torch.pow(torch.tensor(theta, dtype=torch.float32), exponents)  # [hd/2]
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], dim=-1)


def to_target(draft_id: int, d2t: Sequence[int]) -> int:
    """The target id of a draft id. d2t holds OFFSETS: target = draft + d2t[draft]."""
    return draft_id + d2t[draft_id]


@dataclass(frozen=True)
class Row:
    """What one forward of one row gives."""

    prenorm: Tensor  # [H] the residual stream after the last layer, before the final norm
    feedback: Tensor  # [H] what the next draft step takes instead of fc's output
    logits: Tensor  # [D]
    kv: list[KeyValue]  # one for each layer


@dataclass(frozen=True)
class Chain:
    """An honest draft from one row: every token after the first is the drafter's own."""

    draft_ids: list[int]
    target_ids: list[int]
    feedback: Tensor  # [K, H]
    logits: Tensor  # [K, D]


class ReferenceDrafter:
    """An EAGLE-3 drafter with one GQA layer over [embedding, hidden] and any number of ordinary layers above it."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        eps: float,
        rope_theta: float,
        norm_before_residual: bool = False,
        norm_output: bool = False,
    ) -> None:
        self.weights = {name: tensor.float() for name, tensor in weights.items() if tensor.is_floating_point()}
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.eps, self.rope_theta = eps, rope_theta
        self.norm_before_residual, self.norm_output = norm_before_residual, norm_output
        self.num_layers = 1
        while f"layers.{self.num_layers}.self_attn.q_proj.weight" in self.weights:
            self.num_layers += 1

    # --- pieces

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return rms(x, self.weights[f"{name}.weight"], self.eps)

    def _linear(self, x: Tensor, name: str) -> Tensor:
        """x [in] -> [out]; a bias is added where the checkpoint has one."""
        y = self.weights[f"{name}.weight"] @ x
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def fuse(self, states: Tensor) -> Tensor:
        """The A recorded states of one token, [A, Ht] in the ordering's order, to fc's output [H].

        `input_norm` (over the whole concatenation), then `fc_norm.i` (over each state), where the checkpoint has them.
        """
        flat = states.float().flatten()  # [A*Ht]
        if "input_norm.weight" in self.weights:
            flat = self._norm(flat, "input_norm")
        chunks = list(flat.split(states.shape[1]))
        if "fc_norm.0.weight" in self.weights:
            chunks = [self._norm(chunk, f"fc_norm.{i}") for i, chunk in enumerate(chunks)]
        return self._linear(torch.cat(chunks), "fc")

    def _attention(self, x: Tensor, layer: int, position: int, seen: Sequence[KeyValue]) -> tuple[Tensor, KeyValue]:
        """Attention of one row, x [2H] in layer 0 and [H] above, over the rows in `seen` and over itself."""
        at = f"layers.{layer}.self_attn"
        q = self._linear(x, f"{at}.q_proj").view(self.num_heads, self.head_dim)
        k = self._linear(x, f"{at}.k_proj").view(self.num_kv_heads, self.head_dim)
        v = self._linear(x, f"{at}.v_proj").view(self.num_kv_heads, self.head_dim)
        if f"{at}.q_norm.weight" in self.weights:
            q, k = self._norm(q, f"{at}.q_norm"), self._norm(k, f"{at}.k_norm")
        q, k = rope(q, position, self.rope_theta), rope(k, position, self.rope_theta)
        keys = torch.stack([key for key, _ in seen] + [k])  # [S, nk, hd]
        values = torch.stack([value for _, value in seen] + [v])
        heads = []
        for head in range(self.num_heads):
            shared = head // (self.num_heads // self.num_kv_heads)  # neighbouring query heads share one key head
            scores = keys[:, shared] @ q[head] / self.head_dim**0.5  # [S]
            heads.append(scores.softmax(0) @ values[:, shared])
        return self._linear(torch.cat(heads), f"{at}.o_proj"), (k, v)

    def _mlp(self, x: Tensor, layer: int) -> Tensor:
        at = f"layers.{layer}.mlp"
        gate = torch.nn.functional.silu(self._linear(x, f"{at}.gate_proj"))
        return self._linear(gate * self._linear(x, f"{at}.up_proj"), f"{at}.down_proj")

    def forward(self, token: int, hidden: Tensor, position: int, seen: Sequence[Sequence[KeyValue]]) -> Row:
        """One row: the token's embedding beside `hidden` [H] (fc's output, or the feedback of the step before).

        `seen[l]` are the keys and values of layer l that this row may look at, itself excluded.
        """
        kv: list[KeyValue] = []
        embedding = self._norm(self.weights["embed_tokens.weight"][token], "layers.0.input_layernorm")  # [H]
        normed = self._norm(hidden, "layers.0.hidden_norm")
        residual = normed if self.norm_before_residual else hidden
        attended, own = self._attention(torch.cat([embedding, normed]), 0, position, seen[0])
        kv.append(own)
        y = residual + attended
        h = y + self._mlp(self._norm(y, "layers.0.post_attention_layernorm"), 0)
        for layer in range(1, self.num_layers):
            # producers disagree on the name of this norm; a checkpoint holds one of the two
            names = (f"layers.{layer}.input_layernorm", f"layers.{layer}.hidden_norm")
            name = next(name for name in names if f"{name}.weight" in self.weights)
            attended, own = self._attention(self._norm(h, name), layer, position, seen[layer])
            kv.append(own)
            y = h + attended
            h = y + self._mlp(self._norm(y, f"layers.{layer}.post_attention_layernorm"), layer)
        final = self._norm(h, "norm") if "norm.weight" in self.weights else h
        return Row(h, final if self.norm_output else h, self._linear(final, "lm_head"), kv)

    # --- whole samples

    def step0(self, ids: Sequence[int], states: Tensor, rows: int | None = None) -> list[Row]:
        """Rows 0..rows-1 at draft step 0; states [T, A, Ht]. Row t sees rows <= t."""
        out: list[Row] = []
        for t in range(len(ids) - 1 if rows is None else rows):
            seen = [[row.kv[layer] for row in out] for layer in range(self.num_layers)]
            out.append(self.forward(ids[t + 1], self.fuse(states[t]), t, seen))
        return out

    def teacher_forced(
        self, ids: Sequence[int], states: Tensor, steps: int, rows: int | None = None
    ) -> list[list[Row | None]]:
        """The training-time test: out[k][t] for k < steps, each step fed the sample's own token.

        Step k of row t takes x[t+1+k], sits at position t+k, and sees the step-0 keys of rows <= t and the keys of its
        own steps 1..k. None where x[t+1+k] does not exist.
        """
        first = self.step0(ids, states, rows)
        out: list[list[Row | None]] = [list(first)]
        out += [[None] * len(first) for _ in range(1, steps)]
        for t, row in enumerate(first):
            own: list[Row] = []
            before = row
            for k in range(1, steps):
                if t + 1 + k > len(ids) - 1:
                    break
                seen = [
                    [r.kv[layer] for r in first[: t + 1]] + [r.kv[layer] for r in own]
                    for layer in range(self.num_layers)
                ]
                before = self.forward(ids[t + 1 + k], before.feedback, t + k, seen)
                own.append(before)
                out[k][t] = before
        return out

    def chain(self, ids: Sequence[int], states: Tensor, row: int, steps: int, d2t: Sequence[int]) -> Chain:
        """Draft `steps` tokens greedily from one row, as a server does.

        Committed rows 0..row hold the target's states; each later row holds the draft's own last token and the
        feedback of the step before, sits at the next position, and sees everything before it.
        """
        done = self.step0(ids, states, row + 1)
        last = done[-1]
        draft_ids: list[int] = []
        feedback: list[Tensor] = []
        logits: list[Tensor] = []
        for k in range(steps):
            if k > 0:
                seen = [[r.kv[layer] for r in done] for layer in range(self.num_layers)]
                last = self.forward(to_target(draft_ids[-1], d2t), last.feedback, row + k, seen)
                done.append(last)
            draft_ids.append(int(last.logits.argmax()))
            feedback.append(last.feedback)
            logits.append(last.logits)
        target_ids = [to_target(d, d2t) for d in draft_ids]
        return Chain(draft_ids, target_ids, torch.stack(feedback), torch.stack(logits))


def predictions(rows: Sequence[Sequence[Row | None]]) -> list[list[int | None]]:
    """The draft id that each row of `teacher_forced` predicts; of equal logits the lowest id."""
    return [[None if row is None else int(row.logits.argmax()) for row in step] for step in rows]
