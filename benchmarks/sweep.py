"""How fast is a sweep over all orderings, against the obvious script on the same weights and sample?

    python benchmarks/sweep.py CHECKPOINT -s SAMPLE [--target FOLDER] [--depth K]

The obvious script scores one ordering after another: it concatenates the states, runs every row at every step with
full K/V under a dense mask, and takes the argmax of all logits. Prints seconds of both and their ratio, from one run.
Both must predict the same tokens, or the comparison is void.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from drafter.model.drafter import Eagle3Drafter
from drafter.model.weights import load_weights
from drafter.scoring.counts import rows_needed
from drafter.session import Options, Session
from drafter.wiring import Ordering, Wiring


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def obvious(
    drafter: Eagle3Drafter, w: dict[str, Tensor], ids: Tensor, states: list[Tensor], depth: int, wiring: Wiring
) -> Tensor:
    """[depth, R] argmax draft ids of one ordering, every row at every step."""
    c, rotary = drafter.config, drafter.rotary(wiring.rope, ids.numel() - 1)
    rows, group = ids.numel() - 1, c.num_heads // c.num_kv_heads
    g = F.linear(torch.cat([s[:rows] for s in states], -1), w["fc.weight"])
    keys: list[Tensor] = []
    values: list[Tensor] = []
    masks: list[Tensor] = []
    found = []
    for k in range(depth):
        padded = torch.cat([ids[1 + k :], ids.new_zeros(k)])[:rows]
        e = rms(drafter.embedding(wiring).rows(padded).float(), w["layers.0.input_layernorm.weight"], c.rms_norm_eps)
        h = rms(g, w["layers.0.hidden_norm.weight"], c.rms_norm_eps)
        x = torch.cat([e, h], -1)
        q, key, value = (F.linear(x, w[f"layers.0.self_attn.{p}_proj.weight"]) for p in "qkv")
        positions = torch.arange(rows) + k
        q = rotary.rotate(q.view(rows, -1, c.head_dim), positions)
        keys.append(rotary.rotate(key.view(rows, -1, c.head_dim), positions))
        values.append(value.view(rows, -1, c.head_dim))
        masks.append(torch.ones(rows, rows).tril().bool() if k == 0 else torch.eye(rows).bool())
        all_k = torch.cat(keys).repeat_interleave(group, 1).transpose(0, 1)
        all_v = torch.cat(values).repeat_interleave(group, 1).transpose(0, 1)
        mixed = F.scaled_dot_product_attention(q.transpose(0, 1), all_k, all_v, attn_mask=torch.cat(masks, 1))
        y = (h if wiring.norm_before_residual else g) + F.linear(
            mixed.transpose(0, 1).reshape(rows, -1), w["layers.0.self_attn.o_proj.weight"]
        )
        m = rms(y, w["layers.0.post_attention_layernorm.weight"], c.rms_norm_eps)
        gate, up = (F.linear(m, w[f"layers.0.mlp.{p}_proj.weight"]) for p in ("gate", "up"))
        g = y + F.linear(F.silu(gate) * up, w["layers.0.mlp.down_proj.weight"])
        found.append(F.linear(rms(g, w["norm.weight"], c.rms_norm_eps), w["lm_head.weight"]).argmax(-1))
    return torch.stack(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("-s", "--sample", type=Path, required=True)
    parser.add_argument("--target", type=Path)
    parser.add_argument("--depth", type=int, default=5)
    asked = parser.parse_args()
    options = Options(asked.checkpoint, (asked.sample,), asked.target, depth=asked.depth, device="cpu", dtype="float32")
    session = Session(options)
    session.choose_checkpoint(session.pick(session.find()))
    paths = session.list_samples().paths
    sample = session.choose_sample(paths[0])
    drafter, orderings = session.load(), session.orderings(["all"])
    states = [slot.tensor.read().float() for slot in sample.slots]
    mask = sample.mask if sample.mask is not None else torch.ones(sample.length).bool()
    rows = rows_needed(mask, "next", asked.depth)
    weights = load_weights(session.checkpoint, drafter.placement, lambda: None)
    weights["lm_head.weight"] = session.checkpoint.tensors["lm_head.weight"].read().float()

    def plain(ordering: Ordering) -> Tensor:
        return obvious(drafter, weights, sample.ids, [states[s] for s in ordering], asked.depth, session.wiring)

    session.score(paths[:1], orderings[:1])  # both start warm
    plain(orderings[0])
    session.choose_sample(paths[0])
    start = time.perf_counter()
    session.score(paths[:1], orderings)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    theirs = {ordering: plain(ordering) for ordering in orderings}
    script = time.perf_counter() - start
    for ordering in orderings:
        drafted = session._now.drafted[ordering]
        assert torch.equal(drafted[rows], theirs[ordering][0][rows]), f"predictions differ under {ordering}"
    print(f"{len(orderings)} orderings, {sample.length} tokens, {len(rows)} rows that count, depth {asked.depth}")
    print(f"eagle3-tui {ours:.2f} s, obvious script {script:.2f} s: {script / ours:.2f} times as fast")


if __name__ == "__main__":
    main()
