"""The faults that are put into a trained drafter, one at a time, whatever its sizes; the kinds under which each counts
as named. F and K numbers are those of the tables of public reports."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.trials.subject import AT, EMBED, FC, HEAD, Recorded, Trial

Change = Callable[[Trial], None]


@dataclass(frozen=True)
class Fault:
    """`kinds`: the headings that name it, "" where nothing need be said. `exact` whether a recorded accuracy of the
    same name can be met: random numbers are others elsewhere."""

    name: str
    kinds: tuple[str, ...]
    change: Change
    exact: bool = True


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


def _early(s: Recorded) -> None:
    s.ids, s.mask, s.states = s.ids[:-1], s.mask[:-1], s.states[:, 1:]


def _late(s: Recorded) -> None:
    s.ids, s.mask, s.states = s.ids[1:], s.mask[1:], s.states[:, :-1]


def _strangers(t: Trial, only: int | None = None) -> None:
    """Each sample gets the states of the next one of its group; the longer of both is cut."""
    old = [s.states for s in t.samples]
    for i, sample in enumerate(t.samples if only is None else t.samples[:only]):
        foreign = old[(i + 1) % len(old)]
        rows = min(len(sample.ids), foreign.shape[1])
        sample.ids, sample.mask, sample.states = sample.ids[:rows], sample.mask[:rows], foreign[:, :rows]


def _swap_halves(t: Trial) -> None:
    for part in "qkv":
        name = f"{AT}self_attn.{part}_proj.weight"
        t.weights[name] = t.weights[name].roll(t.weights[name].shape[1] // 2, 1)


def _swap(one: str, other: str) -> Change:
    def change(t: Trial) -> None:
        t.weights[one], t.weights[other] = t.weights[other], t.weights[one]

    return change


def _blocks(order: tuple[int, ...]) -> Change:
    def change(t: Trial) -> None:
        parts = t.weights[FC].chunk(3, 1)
        t.weights[FC] = torch.cat([parts[i] for i in order], 1)

    return change


def _part(name: str, start: float, stop: float, dim: int, seed: int = 0) -> Change:
    """A part of a tensor random, the rest as trained."""

    def change(t: Trial) -> None:
        w = t.weights[name].clone()
        size = w.shape[dim]
        a, b = int(start * size), int(stop * size)
        w.narrow(dim, a, b - a).copy_(like(w.narrow(dim, a, b - a), seed))
        t.weights[name] = w

    return change


def _mapped(t: Trial) -> Tensor:
    return torch.arange(len(t.weights["d2t"])) + t.weights["d2t"]


def _map(change: Callable[[Tensor], Tensor]) -> Change:
    """Other target ids [D], written as offsets, the marks with them."""

    def edit(t: Trial) -> None:
        found = change(_mapped(t))
        t.weights["d2t"] = found - torch.arange(len(found))
        marks = torch.zeros_like(t.weights["t2d"])
        marks[found[(found >= 0) & (found < len(marks))]] = True
        t.weights["t2d"] = marks

    return edit


def _stale(seed: int) -> Change:
    def change(t: Trial) -> None:
        size = len(t.weights["t2d"])
        _map(lambda old: torch.randperm(size, generator=rng(seed))[: len(old)].sort().values)(t)

    return change


def _half_shifted(found: Tensor) -> Tensor:
    half = len(found) // 2
    return torch.cat([found[:half], found[half:].roll(1)])


def _permuted(name: str, seed: int) -> Change:
    return weight(name, lambda w: w[torch.randperm(len(w), generator=rng(seed))])


def _target_head(mapped: bool) -> Change:
    def change(t: Trial) -> None:
        name = next((n for n in t.target if n.endswith(HEAD)), next(n for n in t.target if n.endswith(EMBED)))
        rows = _mapped(t) if mapped else torch.arange(len(t.weights["d2t"]))
        t.weights[HEAD] = t.target[name][rows].to(t.weights[HEAD].dtype)

    return change


def _finite(value: float, name: str) -> Change:
    def change(t: Trial) -> None:
        w = t.weights[name].clone()
        w.view(-1)[w.numel() // 2] = value
        t.weights[name] = w

    return change


def _rows(value: float, slot: int = 1, at: int = 30) -> Change:
    def one(s: Recorded) -> None:
        s.states = s.states.clone()
        s.states[slot, at, 5] = value

    return each(one)


def _every_tenth(s: Recorded) -> None:
    s.states = s.states.clone()
    s.states[:, ::10] = float("nan")


def _tail(s: Recorded) -> None:
    s.states = s.states.clone()
    s.states[:, s.states.shape[1] // 2 :] = 0


def _normed(slot: int) -> Change:
    """A slot that has passed the target's final norm."""

    def change(t: Trial) -> None:
        w = next(w for n, w in t.target.items() if n.endswith("norm.weight")).float()
        eps = t.target_config.get("rms_norm_eps", 1e-5)
        for s in t.samples:
            x = s.states[slot].float()
            s.states = s.states.float().clone()
            s.states[slot] = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    return change


def _turn(seed: int, one_for_all: bool = True) -> Change:
    def change(t: Trial) -> None:
        width = t.samples[0].states.shape[-1]
        turns = [orthogonal(width, seed + (0 if one_for_all else i)) for i in range(len(t.depths))]
        t.states(lambda s: torch.stack([x.float() @ q.T for x, q in zip(s, turns, strict=True)]))

    return change


def _scatter(share: float, seed: int = 3) -> Change:
    def change(s: Tensor) -> Tensor:
        s = s.float()
        wild = torch.randn(s.shape, generator=rng(seed)) * s.std((1, 2), keepdim=True)
        return torch.cat([s[:1], (s + share * wild)[1:]])

    return states(change)


def _no_signal(seed: int) -> Change:
    """Random states of the same norms."""

    def change(s: Tensor) -> Tensor:
        wild = torch.randn(s.shape, generator=rng(seed))
        return wild / wild.norm(dim=-1, keepdim=True) * s.norm(dim=-1, keepdim=True)

    return states(change)


def _padded(s: Recorded) -> None:
    pad = torch.full((16,), int(s.ids[-1]))
    wild = s.states[:, -1:].float() * torch.linspace(0.9, 1.1, 16)[None, :, None]
    s.ids, s.mask = torch.cat([s.ids, pad]), torch.cat([s.mask, torch.ones_like(pad).to(s.mask.dtype)])
    s.states = torch.cat([s.states.float(), wild], 1)


def _off_policy(t: Trial) -> None:
    choices = _mapped(t)
    for i, s in enumerate(t.samples):
        other = choices[torch.randint(len(choices), s.ids.shape, generator=rng(i))]
        at = torch.arange(len(s.ids)) % 2 == 0
        at[:8] = False
        s.ids = torch.where(at, other, s.ids)
        s.states = s.states.clone()
        s.states[0] = t.weights[EMBED][s.ids]


def _uncovered(t: Trial) -> None:
    inside = torch.zeros(len(t.weights["t2d"]), dtype=torch.bool)
    inside[_mapped(t)] = True
    rare = (~inside).nonzero().flatten()
    for s in t.samples:
        at = torch.arange(len(s.ids)) % 3 == 2
        s.ids = torch.where(at, rare[torch.arange(len(s.ids)) % len(rare)], s.ids)
        s.states = s.states.clone()
        s.states[0] = t.weights[EMBED][s.ids]


def _interleaved(t: Trial) -> None:
    """Rows of q and k in the other pairing of RoPE."""
    dim = t.layer["head_dim"]
    for part in "qk":
        name = f"{AT}self_attn.{part}_proj.weight"
        w = t.weights[name]
        t.weights[name] = w.view(-1, 2, dim // 2, w.shape[1]).transpose(1, 2).reshape(w.shape)


def _half_heads(t: Trial) -> None:
    """Twice as many heads of half the size: every shape agrees."""
    t.layer.update(
        num_attention_heads=2 * t.layer["num_attention_heads"],
        num_key_value_heads=2 * t.layer["num_key_value_heads"],
        head_dim=t.layer["head_dim"] // 2,
    )


def _heads_permuted(t: Trial) -> None:
    """The heads of q in another order than o_proj's: a wrong split of a fused tensor."""
    name = f"{AT}self_attn.q_proj.weight"
    w = t.weights[name]
    heads = w.view(t.layer["num_attention_heads"], -1, w.shape[1])
    t.weights[name] = heads.roll(1, 0).reshape(w.shape)


def _renamed(t: Trial) -> None:
    t.weights[f"{AT}mlp.down.weight"] = t.weights.pop(f"{AT}mlp.down_proj.weight")


def _never_trained(t: Trial) -> None:
    made(*(n for n in t.weights if n not in (EMBED, "d2t", "t2d")))(t)


def _truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-20_000])


# ------------------------------------------------------------------ the list

PARTS = tuple(f"{AT}self_attn.{p}_proj.weight" for p in "qkvo") + tuple(
    f"{AT}mlp.{p}_proj.weight" for p in ("gate", "up", "down")
)
NORMS = (f"{AT}hidden_norm.weight", f"{AT}input_layernorm.weight", f"{AT}post_attention_layernorm.weight")
TARGET_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def recorded_faults() -> Iterator[Fault]:
    """Those whose accuracy was measured elsewhere too, under the same names."""
    yield Fault("correct", (), lambda t: None)
    for digits in ("123", "102", "210", "312", "021"):
        yield Fault(digits, ("K01",), ids(*map(int, digits)))
    yield Fault("norm_before_residual_flipped", ("K05",), top(norm_before_residual=False))
    flipped = both(ids(1, 2, 3), top(norm_before_residual=False))
    yield Fault("norm_before_residual_flipped_and_order_123", ("K05", "K01"), flipped)
    yield Fault("rope_theta_10000_instead_of_100000", ("K06",), base(0.1))
    yield Fault("rope_theta_500000", ("K06",), base(5))
    # inverse frequencies of twice the dimensions, cut, are those of the square root of the base
    root: Change = lambda t: rope(rope_theta=t.layer["rope_parameters"]["rope_theta"] ** 0.5)(t)  # noqa: E731
    yield Fault("rope_inv_freq_for_dim_128_truncated_to_64", ("K06",), root)
    yield Fault("all_positions_zero", ("K06",), rope(rope_type="linear", factor=1e9))
    yield Fault("hidden_shifted_wrong (x[j+1] with g[j+1])", ("K08",), each(_early))
    yield Fault("d2t_used_as_absolute", ("K03",), lambda t: t.weights.update(d2t=_mapped(t)))
    yield Fault("d2t_ignored (draft id taken as target id)", ("K03",), weight("d2t", torch.zeros_like))
    yield Fault("d2t_off_by_one_row", ("K03",), weight("d2t", lambda w: w.roll(1)), exact=False)
    yield Fault("layer_random (SGLang silently skips layers.0.* names)", ("K02",), noise(*PARTS), exact=False)
    yield Fault("fc_random", ("K02",), noise(FC), exact=False)
    for name, tensor in (("hidden_norm", NORMS[0]), ("input_layernorm", NORMS[1]), ("final_norm", "norm.weight")):
        yield Fault(f"{name}_weight_ones", ("K02", ""), weight(tensor, torch.ones_like))
    yield Fault("swap_embed_and_hidden_halves_in_qkv", ("K02",), _swap_halves)
    yield Fault("gate_up_swapped", ("",), _swap(f"{AT}mlp.gate_proj.weight", f"{AT}mlp.up_proj.weight"))
    yield Fault("embed_tokens_random", ("K02",), noise(EMBED), exact=False)
    yield Fault("embed_tokens_rows_shifted_by_1", ("K02",), weight(EMBED, lambda w: w.roll(1, 0)), exact=False)
    yield Fault("states_x2_scale", ("",), states(lambda s: s * 2))
    yield Fault("hidden_states_all_zero", ("K01",), states(torch.zeros_like))


def wiring_faults() -> Iterator[Fault]:
    for order in itertools.permutations(range(4), 3):
        if order != (0, 1, 2):
            yield Fault("order " + "".join(map(str, order)), ("K01",), ids(*order))
    yield Fault("F02 ids one too high", ("K01",), layers(1, 1, 1))
    yield Fault("F04 first id one too high", ("K01",), layers(1, 0, 0))
    yield Fault("F04b middle id one too low", ("K01",), layers(0, -1, 0))
    yield Fault("F04c last id one too low", ("K01",), layers(0, 0, -1))
    yield Fault("F06 one id three times", ("K01",), ids(1, 1, 1))
    yield Fault("no layer ids", ("K01",), lambda t: t.config.pop("eagle_aux_hidden_state_layer_ids") and None)
    yield Fault("empty layer ids", ("K01",), top(eagle_aux_hidden_state_layer_ids=[]))
    yield Fault("two layer ids", ("K01", "K07"), ids(0, 1))
    yield Fault("an id beyond the last layer", ("K01",), layers(0, 0, 90))
    for order in itertools.permutations(range(3)):
        if order != (0, 1, 2):
            yield Fault("fc blocks " + "".join(map(str, order)), ("K01",), _blocks(order))
    yield Fault("one slot recorded in all", ("K01",), states(lambda s: s[1:2].expand_as(s).clone()))
    yield Fault("slots 1 and 2 alike", ("K01",), states(lambda s: s[[0, 1, 1, 3]]))
    yield Fault("slot 1 of zeros", ("K01",), states(lambda s: torch.stack([s[0], 0 * s[1], s[2], s[3]])))
    yield Fault("slots recorded in another order 0213", ("K01",), states(lambda s: s[[0, 2, 1, 3]]))
    yield Fault("slots recorded in another order 3210", ("K01", "K08"), states(lambda s: s[[3, 2, 1, 0]]))
    yield Fault("slots recorded in another order 1230", ("K01", "K08"), states(lambda s: s[[1, 2, 3, 0]]))
    yield Fault("only slots 1,2,3 recorded, all fed", ("K01",), both(lambda t: t.keep(1, 2, 3), ids(0, 1, 2)))
    yield Fault("only one slot recorded", ("K07",), lambda t: t.keep(1))


def tensor_faults() -> Iterator[Fault]:
    for seed in (1, 2):
        for name in (FC, HEAD, EMBED):
            yield Fault(f"random {name} seed {seed}", ("K02",), noise(name, seed=seed))
        yield Fault(f"random layer seed {seed}", ("K02",), noise(*PARTS, seed=seed))
    yield Fault("random lm_head", ("K02",), noise(HEAD))
    for name in PARTS:
        yield Fault(f"random {name}", ("K02",), noise(name))
        yield Fault(f"made {name}", ("K02",), made(name))
    for name in (FC, HEAD, EMBED):
        for seed in (0, 1):
            yield Fault(f"made {name} seed {seed}", ("K02",), made(name, seed=seed))
    yield Fault("made layer", ("K02",), made(*PARTS))
    yield Fault("made layer and its norms", ("K02",), made(*PARTS, *NORMS))
    yield Fault("made fc and lm_head", ("K02",), made(FC, HEAD))
    yield Fault("never trained", ("K02",), _never_trained)
    for i in range(3):
        yield Fault(f"fc block {i} random", ("K02",), _part(FC, i / 3, (i + 1) / 3, 1))
    yield Fault("half of lm_head's rows random", ("K02",), _part(HEAD, 0.5, 1, 0))
    yield Fault("half of the embedding random", ("K02", "K13"), _part(EMBED, 0.5, 1, 0))
    yield Fault("first half of the embedding random", ("K02", "K13"), _part(EMBED, 0, 0.5, 0))
    for name in (EMBED, HEAD, FC, f"{AT}self_attn.o_proj.weight", f"{AT}mlp.down_proj.weight"):
        yield Fault(f"zero {name}", ("K02",), weight(name, torch.zeros_like))
    yield Fault("post_attention_layernorm_weight_ones", ("K02", ""), weight(NORMS[2], torch.ones_like))
    yield Fault("all norms of ones", ("K02", ""), made(*NORMS, "norm.weight"))
    yield Fault("zero final norm", ("K02",), weight("norm.weight", torch.zeros_like))
    yield Fault("embedding rows permuted", ("K02",), _permuted(EMBED, 4))
    yield Fault("embedding rows one off, downwards", ("K02",), weight(EMBED, lambda w: w.roll(-1, 0)))
    yield Fault(
        "random embedding, no target", ("K02",), both(noise(EMBED), lambda t: vars(t).update(named_target=False))
    )
    yield Fault("random fc, no target", ("K02",), both(noise(FC), lambda t: vars(t).update(named_target=False)))
    yield Fault("random head, no target", ("K02",), both(noise(HEAD), lambda t: vars(t).update(named_target=False)))
    yield Fault("F28 head of the target's first rows", ("K02",), _target_head(False))
    yield Fault("F28b head of the target's rows of its ids", ("K02", ""), _target_head(True))
    yield Fault("heads of q in another order", ("K02",), _heads_permuted)
    yield Fault("fc rows permuted", ("K02", "K01"), _permuted(FC, 5))
    yield Fault("fc negated", ("K02", "K01"), weight(FC, lambda w: -w))
    yield Fault("fc x 10", ("",), weight(FC, lambda w: 10 * w))
    yield Fault("lm_head negated", ("K02",), weight(HEAD, lambda w: -w))
    yield Fault("no fc", ("K02", "K04", "K07"), drop(FC))
    yield Fault("no final norm", ("K02",), drop("norm.weight"))
    yield Fault("no lm_head", ("",), drop(HEAD))
    yield Fault("no down_proj", ("K02",), drop(f"{AT}mlp.down_proj.weight"))
    yield Fault("down_proj renamed", ("K02",), _renamed)
    yield Fault("fc transposed", ("K07", "K02", "K04"), weight(FC, lambda w: w.T))
    yield Fault("48 layers in the config", ("K02", "K04"), layer(num_hidden_layers=48))
    yield Fault("noise of half their spread on all matrices", ("K02", "K12"), _rough)


def _rough(t: Trial) -> None:
    for i, name in enumerate((*PARTS, FC, HEAD)):
        w = t.weights[name]
        t.weights[name] = (w.float() + 0.5 * like(w.float(), i)).to(w.dtype)


def map_faults() -> Iterator[Fault]:
    for seed in (0, 1, 2):
        yield Fault(f"F12 the map of another run, seed {seed}", ("K03",), _stale(seed))
        yield Fault(
            f"the map's ids permuted, seed {seed}",
            ("K03",),
            _map(lambda i, s=seed: i[torch.randperm(len(i), generator=rng(s))]),
        )
        yield Fault(f"lm_head's rows permuted, seed {seed}", ("K03", "K02"), _permuted(HEAD, seed))
    yield Fault("F13 half of the map one row off", ("K03",), _map(_half_shifted))
    yield Fault("the map one row up", ("K03",), _map(lambda i: i.roll(1)))
    yield Fault("the map one row down", ("K03",), _map(lambda i: i.roll(-1)))
    yield Fault("every id one too high", ("K03",), _map(lambda i: i + 1))
    yield Fault("every id three too low", ("K03",), _map(lambda i: (i - 3).clamp(min=0)))
    zero_marks = both(weight("d2t", torch.zeros_like), weight("t2d", torch.ones_like))
    yield Fault("d2t and t2d as at the start", ("K03",), zero_marks)
    yield Fault("d2t absolute, no t2d", ("K03",), both(lambda t: t.weights.update(d2t=_mapped(t)), drop("t2d")))
    yield Fault("no d2t", ("K03",), drop("d2t"))
    yield Fault("no d2t, no t2d", ("K03",), drop("d2t", "t2d"))
    yield Fault("t2d inverted", ("K03",), weight("t2d", lambda w: ~w))
    yield Fault("t2d marks too few", ("K03",), weight("t2d", lambda w: w & (torch.arange(len(w)) % 3 > 0)))
    yield Fault("one id beyond the vocabulary", ("K03",), _map(lambda i: torch.cat([i[:-1], i[-1:] * 0 + 10**6])))
    yield Fault("draft_vocab_size is another", ("K03", "K07"), lambda t: t.config.update(draft_vocab_size=500))
    yield Fault(
        "vocab_size is draft_vocab_size", ("K03",), lambda t: t.layer.update(vocab_size=t.config["draft_vocab_size"])
    )
    tied = both(top(tie_word_embeddings=True), layer(tie_word_embeddings=True))
    yield Fault("tied embeddings beside a pruned head", ("K03",), tied)
    yield Fault("a third of the text outside of the draft vocabulary", ("K03",), _uncovered)


def config_faults() -> Iterator[Fault]:
    yield Fault("F14 rope_theta x 100", ("K06", ""), base(100))
    yield Fault("rope_theta / 100", ("K06", ""), base(0.01))
    yield Fault("F15 RoPE scaled by 8", ("K06", ""), rope(rope_type="linear", factor=8.0))
    yield Fault("F16 q and k rows interleaved", ("K06",), _interleaved)
    yield Fault(
        "partial rotary 0.5", ("K06", ""), both(rope(partial_rotary_factor=0.5), layer(partial_rotary_factor=0.5))
    )
    yield Fault("twice as many heads of half the size", ("K07", "K06", "K02"), _half_heads)
    yield Fault("F17 head_dim is another", ("K07",), lambda t: t.layer.update(head_dim=2 * t.layer["head_dim"]))
    scaled = {**TARGET_ROPE, "original_max_position_embeddings": 8192}
    yield Fault("the target's RoPE is scaled", ("K06",), lambda t: t.target_config["rope_parameters"].update(scaled))
    yield Fault("two schemas of RoPE disagree", ("K06",), layer(rope_theta=123456.0))
    yield Fault("positions beyond the table", ("K06",), layer(max_position_embeddings=64))
    yield Fault("norm_output on", ("K05", ""), top(norm_output=True))
    yield Fault("norm_before_fc on, no input_norm", ("K05", "K02"), top(norm_before_fc=True))
    yield Fault("fc_norm on, no fc_norm", ("K05", "K02"), top(fc_norm=True))
    own = lambda t: t.weights.update({"input_norm.weight": 1 + 0.1 * torch.rand(t.weights[FC].shape[1]).bfloat16()})  # noqa: E731
    yield Fault("input_norm in the file, norm_before_fc off", ("K05",), own)
    yield Fault("eps 0.1", ("K05", "K04"), layer(rms_norm_eps=0.1))
    yield Fault("relu instead of silu", ("K04", "K02", ""), layer(hidden_act="relu"))
    yield Fault("target_hidden_size is another", ("K07", "K04"), top(target_hidden_size=96))
    yield Fault("the target's class in architectures", ("K04", ""), top(architectures=["Qwen3ForCausalLM"]))
    yield Fault("a truncated file", ("K14",), lambda t: vars(t).update(after=_truncated))
    yield Fault("a config that is no JSON", ("K14", "K04"), lambda t: t.files.update({"config.json": "{"}))
    yield Fault(
        "nbr off and map one row off", ("K03", "K05"), both(top(norm_before_residual=False), _map(lambda i: i.roll(1)))
    )
    yield Fault(
        "order 123 and map absolute", ("K03", "K01"), both(ids(1, 2, 3), lambda t: t.weights.update(d2t=_mapped(t)))
    )
    yield Fault("order 123 and a random head", ("K01", "K02"), both(ids(1, 2, 3), noise(HEAD)))


def sample_faults() -> Iterator[Fault]:
    """Those that the embedding slot shows, and the same where nobody says what the slots are."""
    for words, wear in (("", both), (", slots unnamed", unmarked)):
        yield Fault(f"F30 states one row late{words}", ("K08",), wear(each(_late)))
        yield Fault(f"states one row early{words}", ("K08",), wear(each(_early)))
        yield Fault(f"F31 states of another sample, all{words}", ("K08",), wear(_strangers))
        yield Fault(f"F31 states of another sample, one{words}", ("K08",), wear(lambda t: _strangers(t, 1)))
        yield Fault(f"F33 one rotation of all slots{words}", ("K11",), wear(_turn(7)))
    yield Fault("F33 one rotation, seed 8", ("K11",), _turn(8))
    yield Fault("a rotation for each slot", ("K11", "K08"), _turn(9, one_for_all=False))
    deep_late = states(lambda s: torch.cat([s[:1], s[1:].roll(1, 1)]))
    yield Fault("deep slots one row late, the embedding right", ("K08",), deep_late)
    deep_early = states(lambda s: torch.cat([s[:1], s[1:].roll(-1, 1)]))
    yield Fault("deep slots one row early, the embedding right", ("K08",), deep_early)
    yield Fault("deep slots three rows late", ("K08",), states(lambda s: torch.cat([s[:1], s[1:].roll(3, 1)])))
    yield Fault(
        "one sample's rows three late",
        ("K08",),
        lambda t: vars(t.samples[0]).update(states=t.samples[0].states.roll(3, 1)),
    )
    yield Fault(
        "the embedding slot alone one row late", ("K08",), states(lambda s: torch.cat([s[:1].roll(1, 1), s[1:]]))
    )
    yield Fault("rows reversed", ("K08",), states(lambda s: s.flip(1)))
    yield Fault("every row the same", ("K08", "K01"), states(lambda s: s[:, 20:21].expand_as(s).clone()))
    yield Fault("deep states are random numbers", ("K08",), both(_no_signal(5), _embedding_back))
    yield Fault("all states are random numbers", ("K08",), _no_signal(6))
    yield Fault("F37 NaN in one row", ("K08",), _rows(float("nan")))
    yield Fault("NaN in every tenth row", ("K08",), each(_every_tenth))
    yield Fault("Inf in one row", ("K08",), _rows(float("inf")))
    yield Fault("NaN in the last slot alone", ("K08",), _rows(float("nan"), slot=3))
    yield Fault("F38 a tail of zeros", ("K08",), each(_tail))
    yield Fault("states shorter than tokens", ("K08",), each(lambda s: vars(s).update(states=s.states[:, :-3])))
    yield Fault(
        "ids beyond the vocabulary",
        ("K08",),
        each(lambda s: vars(s).update(ids=s.ids + (torch.arange(len(s.ids)) == 20) * 10**6)),
    )
    yield Fault("padding that is supervised", ("K08",), each(_padded))
    for slot in (1, 2, 3):
        yield Fault(f"F08 slot {slot} has passed the final norm", ("K08", "") if slot == 3 else ("K08",), _normed(slot))
    yield Fault(
        "slot 0 is not the embedding that it is said to be",
        ("K08",),
        states(lambda s: s[[1, 1, 2, 3]] * torch.tensor([1.01, 1, 1, 1])[:, None, None]),
    )
    yield Fault("slot 1 x 1000", ("K05",), states(lambda s: s * torch.tensor([1.0, 1000, 1, 1])[:, None, None]))
    yield Fault("noise of the states' own spread", ("K08", "K09", ""), _scatter(1.0))
    yield Fault("noise of three times their spread", ("K08",), _scatter(3.0))
    yield Fault("mask of zeros", ("K09",), each(lambda s: vars(s).update(mask=torch.zeros_like(s.mask))))
    yield Fault("half of the text is not the target's", ("K09",), _off_policy)
    yield Fault("states of two dtypes", ("K11",), lambda t: vars(t.samples[0]).update(dtype=torch.float32))
    for name in (FC, HEAD, f"{AT}mlp.up_proj.weight", "norm.weight"):
        yield Fault(f"NaN in {name}", ("K11",), _finite(float("nan"), name))
    yield Fault("Inf in lm_head", ("K11",), _finite(float("inf"), HEAD))
    yield Fault("NaN in one row of the embedding", ("K11",), _finite(float("nan"), EMBED))


def _embedding_back(t: Trial) -> None:
    for s in t.samples:
        s.states = s.states.clone()
        s.states[0] = t.weights[EMBED][s.ids].float()


def all_faults() -> list[Fault]:
    found = [
        *recorded_faults(), *wiring_faults(), *tensor_faults(), *map_faults(), *config_faults(), *sample_faults(),
    ]  # fmt: skip
    assert len({fault.name for fault in found}) == len(found)
    return found
