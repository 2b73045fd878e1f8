"""The drafter of the reference: one row's forward, and whole samples row by row. See the package for the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference.attention import KeyValue, Latent, grouped, latent
from tests.reference.pieces import Weights
from tests.reference.rotary import Rope


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
    """An EAGLE-3 drafter with one layer over [embedding, hidden] and any number of ordinary layers above it.

    Which tensors there are decides much: `input_norm`, `fc_norm.i`, biases, q/k norms, several layers, no `fc` (the
    recorded state is the hidden itself), no `hidden_norm`. What they cannot tell is a switch:
    - norm_before_residual, norm_output, double_norm (the hidden passes `input_layernorm` before `hidden_norm`);
    - final_norm: whether `norm` stands before the head;
    - positions of step k >= 1 of row t: "advance" t + k, "constant" t, "late" t + k + 1; first_position: that of row
      0, which matters to dynamic RoPE alone;
    - windows: for each layer, over how many rows it looks (None: all); in training they are counted from row t at
      every step, and a row's own later steps are never left out; moving_windows: from the row's position, as served;
    - residual: "kept"; "lost_between", "lost_at_end": a layer's output is that of its MLP alone, below another layer or
      in the last one;
    - head: "own", or "tied" (the first D rows of the embedding); another head is another `lm_head.weight`.
    """

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        eps: float,
        rope_theta: float = 10000.0,
        rope: Rope | None = None,
        latent: Latent | None = None,
        norm_before_residual: bool = False,
        norm_output: bool = False,
        double_norm: bool = False,
        final_norm: bool = True,
        positions: str = "advance",
        first_position: int = 0,
        windows: Sequence[int | None] = (),
        moving_windows: bool = False,
        logit_scale: float = 1.0,
        residual: str = "kept",
        head: str = "own",
        draft_vocab: int | None = None,
        mask_token: int | None = None,
    ) -> None:
        self.w = Weights(weights, eps)
        self.num_heads, self.num_kv_heads, self.head_dim, self.latent = num_heads, num_kv_heads, head_dim, latent
        self.rope = rope or Rope(rope_theta)
        self.norm_before_residual, self.norm_output, self.double_norm = norm_before_residual, norm_output, double_norm
        self.final_norm, self.positions, self.logit_scale = final_norm, positions, logit_scale
        self.mask_token, self.first_position, self.residual = mask_token, first_position, residual
        if head == "tied":
            self.w.tensors["lm_head.weight"] = self.w.tensors["embed_tokens.weight"][:draft_vocab]
        self.num_layers = 1
        while f"layers.{self.num_layers}.mlp.up_proj" in self.w:
            self.num_layers += 1
        self.windows, self.moving_windows = list(windows) or [None] * self.num_layers, moving_windows

    # --- pieces

    def fuse(self, states: Tensor) -> Tensor:
        """The A recorded states of one token, [A, Ht] in the ordering's order, to fc's output [H].

        `input_norm` (over the whole concatenation), then `fc_norm.i` (over each state), where the checkpoint has them.
        """
        flat = states.float().flatten()  # [A*Ht]
        if "input_norm" in self.w:
            flat = self.w.norm(flat, "input_norm")
        chunks = list(flat.split(states.shape[1]))
        if "fc_norm.0" in self.w:
            chunks = [self.w.norm(chunk, f"fc_norm.{i}") for i, chunk in enumerate(chunks)]
        flat = torch.cat(chunks)
        return self.w.linear(flat, "fc") if "fc" in self.w else flat

    def _attention(
        self, x: Tensor, layer: int, position: int, length: int, seen: Sequence[KeyValue]
    ) -> tuple[Tensor, KeyValue]:
        """Attention of one row, x [2H] in layer 0 and [H] above, over the rows in `seen` and over itself."""
        at = f"layers.{layer}.self_attn"
        if self.latent is not None:
            return latent(self.w, at, x, self.num_heads, self.latent, self.rope, position, length, seen)
        heads = (self.num_heads, self.num_kv_heads, self.head_dim)
        return grouped(self.w, at, x, *heads, self.rope, position, length, seen)

    def _mlp(self, x: Tensor, layer: int) -> Tensor:
        at = f"layers.{layer}.mlp"
        gate = torch.nn.functional.silu(self.w.linear(x, f"{at}.gate_proj"))
        return self.w.linear(gate * self.w.linear(x, f"{at}.up_proj"), f"{at}.down_proj")

    def _out(self, y: Tensor, layer: int) -> Tensor:
        """What a layer hands on: y [H] and its MLP's output, or that alone."""
        out = self._mlp(self.w.norm(y, f"layers.{layer}.post_attention_layernorm"), layer)
        last = layer == self.num_layers - 1
        lost = self.residual == ("lost_at_end" if last else "lost_between")
        return out if lost else y + out

    def forward(
        self, token: int, hidden: Tensor, position: int, seen: Sequence[Sequence[KeyValue]], length: int = 0
    ) -> Row:
        """One row: the token's embedding beside `hidden` [H] (fc's output, or the feedback of the step before).

        `seen[l]` are the keys and values of layer l that this row may look at, itself excluded. `length` is that of
        the forward which the row is part of; only dynamic RoPE asks.
        """
        w, kv = self.w, []
        embedding = w.norm(w.tensors["embed_tokens.weight"][token], "layers.0.input_layernorm")  # [H]
        normed = w.norm(hidden, "layers.0.input_layernorm") if self.double_norm else hidden
        if "layers.0.hidden_norm" in w:
            normed = w.norm(normed, "layers.0.hidden_norm")
        residual = normed if self.norm_before_residual else hidden
        position, length = position + self.first_position, length + self.first_position
        attended, own = self._attention(torch.cat([embedding, normed]), 0, position, length, seen[0])
        kv.append(own)
        h = self._out(residual + attended, 0)
        for layer in range(1, self.num_layers):
            # producers disagree on the name of this norm; a checkpoint holds one of the two
            names = (f"layers.{layer}.input_layernorm", f"layers.{layer}.hidden_norm")
            name = next(name for name in names if name in w)
            attended, own = self._attention(w.norm(h, name), layer, position, length, seen[layer])
            kv.append(own)
            h = self._out(h + attended, layer)
        final = w.norm(h, "norm") if self.final_norm and "norm" in w else h
        return Row(h, final if self.norm_output else h, w.linear(final, "lm_head") * self.logit_scale, kv)

    def _position(self, row: int, k: int) -> int:
        return row + {"advance": k, "constant": 0, "late": k + 1 if k else 0}[self.positions]

    def _seen(self, committed: Sequence[Row], own: Sequence[Row], at: int) -> list[list[KeyValue]]:
        """For each layer what a row may look at: the committed rows inside the window that ends at row `at`, and own.

        A window of W reaches the rows above at - W.
        """
        out = []
        for layer, window in enumerate(self.windows):
            first = 0 if window is None else max(at - window + 1, 0)
            out.append([row.kv[layer] for row in [*committed[first:], *own]])
        return out

    # --- whole samples

    def step0(self, ids: Sequence[int], states: Tensor, rows: int | None = None) -> list[Row]:
        """Rows 0..rows-1 at draft step 0; states [T, A, Ht]. Row t sees rows <= t."""
        out: list[Row] = []
        length = len(ids) - 1
        for t in range(length if rows is None else rows):
            out.append(self.forward(ids[t + 1], self.fuse(states[t]), t, self._seen(out, [], t), length))
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
                seen = self._seen(first[: t + 1], own, t + k if self.moving_windows else t)
                before = self.forward(ids[t + 1 + k], before.feedback, self._position(t, k), seen, len(ids) - 1 + k)
                own.append(before)
                out[k][t] = before
        return out

    def parallel(self, ids: Sequence[int], states: Tensor, steps: int) -> list[list[Row | None]]:
        """P-EAGLE: as `teacher_forced`, but depth k >= 1 is fed the mask token and the mask hidden instead.

        Depth k of row t stands at position t + k, and sees the depth-0 keys of rows <= t and its own at depths 1..k; a
        window of W reaches the rows above t + k - W. Nothing is fed back.
        """
        assert self.mask_token is not None
        first = self.step0(ids, states)
        hidden = self.fuse(self.w.tensors["mask_hidden"].view(states.shape[1], -1))
        out: list[list[Row | None]] = [list(first)]
        out += [[None] * len(first) for _ in range(1, steps)]
        for t in range(len(first)):
            own: list[Row] = []
            for k in range(1, steps):
                if t + 1 + k > len(ids) - 1:
                    break
                seen = self._seen(first[: t + 1], own, t + k)
                own.append(self.forward(self.mask_token, hidden, t + k, seen, len(ids) - 1 + k))
                out[k][t] = own[-1]
        return out

    def chain(self, ids: Sequence[int], states: Tensor, row: int, steps: int, d2t: Sequence[int]) -> Chain:
        """Draft `steps` tokens greedily from one row, as a server does.

        Committed rows 0..row hold the target's states; each later row holds the draft's own last token and the
        feedback of the step before, sits at the next position, and sees everything before it that its window reaches.
        """
        done = self.step0(ids, states, row + 1)
        last = done[-1]
        draft_ids: list[int] = []
        feedback: list[Tensor] = []
        logits: list[Tensor] = []
        for k in range(steps):
            if k > 0:
                seen = self._seen(done, [], row + k)
                token = to_target(draft_ids[-1], d2t)
                last = self.forward(token, last.feedback, self._position(row, k), seen, row + k + 1)
                done.append(last)
            draft_ids.append(int(last.logits.argmax()))
            feedback.append(last.feedback)
            logits.append(last.logits)
        target_ids = [to_target(d, d2t) for d in draft_ids]
        return Chain(draft_ids, target_ids, torch.stack(feedback), torch.stack(logits))


def predictions(rows: Sequence[Sequence[Row | None]]) -> list[list[int | None]]:
    """The draft id that each row of `teacher_forced` predicts; of equal logits the lowest id."""
    return [[None if row is None else int(row.logits.argmax()) for row in step] for step in rows]
