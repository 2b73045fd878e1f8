"""Changes that faults are made of: each edits a trial in place. Knows no fault and no kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.trials.subject import AT, EMBED, FC, HEAD, Recorded, Trial

Change = Callable[[Trial], None]


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def like(tensor: Tensor, seed: int, std: float | None = None) -> Tensor:
    """Random numbers of the same spread, or of `std`."""
    spread = float(tensor.float().std()) if std is None else std
    return (torch.randn(tensor.shape, generator=rng(seed)) * spread).to(tensor.dtype)


def orthogonal(width: int, seed: int) -> Tensor:
    return torch.linalg.qr(torch.randn(width, width, generator=rng(seed)))[0]


# ------------------------------------------------------------------ small changes


def ids(*slots: int) -> Change:
    """The config names the depths of these slots."""
    return lambda t: t.config.update(eagle_aux_hidden_state_layer_ids=[t.depths[i] for i in slots])


def layers(*each: int | None) -> Change:
    """The config names the trained depths, each moved by so many layers."""

    def change(t: Trial) -> None:
        moved = [d + (m or 0) for d, m in zip(t.depths, each, strict=False)]
        t.config["eagle_aux_hidden_state_layer_ids"] = moved

    return change


def top(**fields: Any) -> Change:
    return lambda t: t.config.update(fields)


def layer(**fields: Any) -> Change:
    return lambda t: t.layer.update(fields)


def rope(**fields: Any) -> Change:
    return lambda t: t.layer["rope_parameters"].update(fields)


def base(factor: float) -> Change:
    """rope_theta this many times as large."""
    return lambda t: t.layer["rope_parameters"].update(rope_theta=t.layer["rope_parameters"]["rope_theta"] * factor)


def weight(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda t: t.weights.update({name: change(t.weights[name])})


def drop(*names: str) -> Change:
    def change(t: Trial) -> None:
        for name in names:
            t.weights.pop(name, None)

    return change


def noise(*names: str, seed: int = 0) -> Change:
    """Random numbers of the same spread in place of these tensors."""

    def change(t: Trial) -> None:
        for i, name in enumerate(names):
            t.weights[name] = like(t.weights[name], 100 * seed + i)

    return change


def made(*names: str, seed: int = 0) -> Change:
    """These tensors as they were made: N(0, 0.02), norms of ones."""

    def change(t: Trial) -> None:
        for i, name in enumerate(names):
            w = t.weights[name]
            t.weights[name] = torch.ones_like(w) if w.dim() == 1 else like(w, 100 * seed + i, 0.02)

    return change


def states(change: Callable[[Tensor], Tensor]) -> Change:
    """`change` of [S, T, Ht], sample by sample."""
    return lambda t: t.states(lambda s: change(s.float()))


def each(change: Callable[[Recorded], None]) -> Change:
    def all_of(t: Trial) -> None:
        for sample in t.samples:
            change(sample)

    return all_of


def both(*changes: Change) -> Change:
    def change(t: Trial) -> None:
        for one in changes:
            one(t)

    return change


def unmarked(*changes: Change) -> Change:
    """Only the states that feed `fc` and are no embedding are recorded beside it: the sample has no embedding slot.

    Of a drafter that is fed the embedding, that one cannot go: the slot is kept, and nobody says what it is.
    """
    return both(*changes, lambda t: t.options.update(slots=None))


# ------------------------------------------------------------------ larger ones


def early(s: Recorded) -> None:
    s.ids, s.mask, s.states = s.ids[:-1], s.mask[:-1], s.states[:, 1:]


def late(s: Recorded) -> None:
    s.ids, s.mask, s.states = s.ids[1:], s.mask[1:], s.states[:, :-1]


def strangers(t: Trial, only: int | None = None) -> None:
    """Each sample gets the states of the next one of its group; the longer of both is cut."""
    old = [s.states for s in t.samples]
    for i, sample in enumerate(t.samples if only is None else t.samples[:only]):
        foreign = old[(i + 1) % len(old)]
        rows = min(len(sample.ids), foreign.shape[1])
        sample.ids, sample.mask, sample.states = sample.ids[:rows], sample.mask[:rows], foreign[:, :rows]


def swap_halves(t: Trial) -> None:
    for part in "qkv":
        name = f"{AT}self_attn.{part}_proj.weight"
        t.weights[name] = t.weights[name].roll(t.weights[name].shape[1] // 2, 1)


def swap(one: str, other: str) -> Change:
    def change(t: Trial) -> None:
        t.weights[one], t.weights[other] = t.weights[other], t.weights[one]

    return change


def blocks(order: tuple[int, ...]) -> Change:
    def change(t: Trial) -> None:
        parts = t.weights[FC].chunk(3, 1)
        t.weights[FC] = torch.cat([parts[i] for i in order], 1)

    return change


def part(name: str, start: float, stop: float, dim: int, seed: int = 0) -> Change:
    """A part of a tensor random, the rest as trained."""

    def change(t: Trial) -> None:
        w = t.weights[name].clone()
        size = w.shape[dim]
        a, b = int(start * size), int(stop * size)
        w.narrow(dim, a, b - a).copy_(like(w.narrow(dim, a, b - a), seed))
        t.weights[name] = w

    return change


def mapped(t: Trial) -> Tensor:
    return torch.arange(len(t.weights["d2t"])) + t.weights["d2t"]


def vocab_map(change: Callable[[Tensor], Tensor]) -> Change:
    """Other target ids [D], written as offsets, the marks with them."""

    def edit(t: Trial) -> None:
        found = change(mapped(t))
        t.weights["d2t"] = found - torch.arange(len(found))
        marks = torch.zeros_like(t.weights["t2d"])
        marks[found[(found >= 0) & (found < len(marks))]] = True
        t.weights["t2d"] = marks

    return edit


def stale(seed: int) -> Change:
    def change(t: Trial) -> None:
        size = len(t.weights["t2d"])
        vocab_map(lambda old: torch.randperm(size, generator=rng(seed))[: len(old)].sort().values)(t)

    return change


def half_shifted(found: Tensor) -> Tensor:
    half = len(found) // 2
    return torch.cat([found[:half], found[half:].roll(1)])


def permuted(name: str, seed: int) -> Change:
    return weight(name, lambda w: w[torch.randperm(len(w), generator=rng(seed))])


def target_head(by_map: bool) -> Change:
    def change(t: Trial) -> None:
        name = next((n for n in t.target if n.endswith(HEAD)), next(n for n in t.target if n.endswith(EMBED)))
        rows = mapped(t) if by_map else torch.arange(len(t.weights["d2t"]))
        t.weights[HEAD] = t.target[name][rows].to(t.weights[HEAD].dtype)

    return change


def finite(value: float, name: str) -> Change:
    def change(t: Trial) -> None:
        w = t.weights[name].clone()
        w.view(-1)[w.numel() // 2] = value
        t.weights[name] = w

    return change


def rows(value: float, slot: int = 1, at: int = 30) -> Change:
    def one(s: Recorded) -> None:
        s.states = s.states.clone()
        s.states[slot, at, 5] = value

    return each(one)


def every_tenth(s: Recorded) -> None:
    s.states = s.states.clone()
    s.states[:, ::10] = float("nan")


def tail(s: Recorded) -> None:
    s.states = s.states.clone()
    s.states[:, s.states.shape[1] // 2 :] = 0


def normed(slot: int) -> Change:
    """A slot that has passed the target's final norm."""

    def change(t: Trial) -> None:
        w = next(w for n, w in t.target.items() if n.endswith("norm.weight")).float()
        eps = t.target_config.get("rms_norm_eps", 1e-5)
        for s in t.samples:
            x = s.states[slot].float()
            s.states = s.states.float().clone()
            s.states[slot] = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    return change


def turn(seed: int, one_for_all: bool = True) -> Change:
    def change(t: Trial) -> None:
        width = t.samples[0].states.shape[-1]
        turns = [orthogonal(width, seed + (0 if one_for_all else i)) for i in range(len(t.depths))]
        t.states(lambda s: torch.stack([x.float() @ q.T for x, q in zip(s, turns, strict=True)]))

    return change


def scatter(share: float, seed: int = 3) -> Change:
    def change(s: Tensor) -> Tensor:
        s = s.float()
        wild = torch.randn(s.shape, generator=rng(seed)) * s.std((1, 2), keepdim=True)
        return torch.cat([s[:1], (s + share * wild)[1:]])

    return states(change)


def no_signal(seed: int) -> Change:
    """Random states of the same norms."""

    def change(s: Tensor) -> Tensor:
        wild = torch.randn(s.shape, generator=rng(seed))
        return wild / wild.norm(dim=-1, keepdim=True) * s.norm(dim=-1, keepdim=True)

    return states(change)


def padded(s: Recorded) -> None:
    pad = torch.full((16,), int(s.ids[-1]))
    wild = s.states[:, -1:].float() * torch.linspace(0.9, 1.1, 16)[None, :, None]
    s.ids, s.mask = torch.cat([s.ids, pad]), torch.cat([s.mask, torch.ones_like(pad).to(s.mask.dtype)])
    s.states = torch.cat([s.states.float(), wild], 1)


def off_policy(t: Trial) -> None:
    choices = mapped(t)
    for i, s in enumerate(t.samples):
        other = choices[torch.randint(len(choices), s.ids.shape, generator=rng(i))]
        at = torch.arange(len(s.ids)) % 2 == 0
        at[:8] = False
        s.ids = torch.where(at, other, s.ids)
        s.states = s.states.clone()
        s.states[0] = t.weights[EMBED][s.ids]


def uncovered(t: Trial) -> None:
    inside = torch.zeros(len(t.weights["t2d"]), dtype=torch.bool)
    inside[mapped(t)] = True
    rare = (~inside).nonzero().flatten()
    for s in t.samples:
        at = torch.arange(len(s.ids)) % 3 == 2
        s.ids = torch.where(at, rare[torch.arange(len(s.ids)) % len(rare)], s.ids)
        s.states = s.states.clone()
        s.states[0] = t.weights[EMBED][s.ids]


def interleaved(t: Trial) -> None:
    """Rows of q and k in the other pairing of RoPE."""
    dim = t.layer["head_dim"]
    for part in "qk":
        name = f"{AT}self_attn.{part}_proj.weight"
        w = t.weights[name]
        t.weights[name] = w.view(-1, 2, dim // 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


def half_heads(t: Trial) -> None:
    """Twice as many heads of half the size: every shape agrees."""
    t.layer.update(
        num_attention_heads=2 * t.layer["num_attention_heads"],
        num_key_value_heads=2 * t.layer["num_key_value_heads"],
        head_dim=t.layer["head_dim"] // 2,
    )


def heads_permuted(t: Trial) -> None:
    """The heads of q in another order than o_proj's: a wrong split of a fused tensor."""
    name = f"{AT}self_attn.q_proj.weight"
    w = t.weights[name]
    heads = w.view(t.layer["num_attention_heads"], -1, w.shape[1])
    t.weights[name] = heads.roll(1, 0).reshape(w.shape)


def renamed(t: Trial) -> None:
    t.weights[f"{AT}mlp.down.weight"] = t.weights.pop(f"{AT}mlp.down_proj.weight")


def never_trained(t: Trial) -> None:
    made(*(n for n in t.weights if n not in (EMBED, "d2t", "t2d")))(t)


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20_000])


PARTS = tuple(f"{AT}self_attn.{p}_proj.weight" for p in "qkvo") + tuple(
    f"{AT}mlp.{p}_proj.weight" for p in ("gate", "up", "down")
)
NORMS = (f"{AT}hidden_norm.weight", f"{AT}input_layernorm.weight", f"{AT}post_attention_layernorm.weight")
TARGET_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def rough(t: Trial) -> None:
    for i, name in enumerate((*PARTS, FC, HEAD)):
        w = t.weights[name]
        t.weights[name] = (w.float() + 0.5 * like(w.float(), i)).to(w.dtype)


def embedding_back(t: Trial) -> None:
    for s in t.samples:
        s.states = s.states.clone()
        s.states[0] = t.weights[EMBED][s.ids].float()
