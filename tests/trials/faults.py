"""The faults that are put into a trained drafter, one at a time, whatever its sizes; the kinds under which each counts
as named. F and K numbers are those of the tables of public reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from tests.trials.changes import (
    NORMS,
    PARTS,
    TARGET_ROPE,
    Change,
    base,
    blocks,
    both,
    drop,
    each,
    early,
    embedding_back,
    every_tenth,
    finite,
    half_heads,
    half_shifted,
    heads_permuted,
    ids,
    interleaved,
    late,
    layer,
    layers,
    made,
    mapped,
    never_trained,
    no_signal,
    noise,
    normed,
    off_policy,
    padded,
    part,
    permuted,
    renamed,
    rng,
    rope,
    rough,
    rows,
    scatter,
    stale,
    states,
    strangers,
    swap,
    swap_halves,
    tail,
    target_head,
    top,
    truncated,
    turn,
    uncovered,
    unmarked,
    vocab_map,
    weight,
)
from tests.trials.subject import AT, EMBED, FC, HEAD


@dataclass(frozen=True)
class Fault:
    """`kinds`: the headings that name it, "" where nothing need be said. `exact` whether a recorded accuracy of the
    same name can be met: random numbers are others elsewhere."""

    name: str
    kinds: tuple[str, ...]
    change: Change
    exact: bool = True


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
    yield Fault("hidden_shifted_wrong (x[j+1] with g[j+1])", ("K08",), each(early))
    yield Fault("d2t_used_as_absolute", ("K03",), lambda t: t.weights.update(d2t=mapped(t)))
    yield Fault("d2t_ignored (draft id taken as target id)", ("K03",), weight("d2t", torch.zeros_like))
    yield Fault("d2t_off_by_one_row", ("K03",), weight("d2t", lambda w: w.roll(1)), exact=False)
    yield Fault("layer_random (SGLang silently skips layers.0.* names)", ("K02",), noise(*PARTS), exact=False)
    yield Fault("fc_random", ("K02",), noise(FC), exact=False)
    for name, tensor in (("hidden_norm", NORMS[0]), ("input_layernorm", NORMS[1]), ("final_norm", "norm.weight")):
        yield Fault(f"{name}_weight_ones", ("K02", ""), weight(tensor, torch.ones_like))
    yield Fault("swap_embed_and_hidden_halves_in_qkv", ("K02",), swap_halves)
    yield Fault("gate_up_swapped", ("K02", ""), swap(f"{AT}mlp.gate_proj.weight", f"{AT}mlp.up_proj.weight"))
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
    for blocked in itertools.permutations(range(3)):
        if blocked != (0, 1, 2):
            yield Fault("fc blocks " + "".join(map(str, blocked)), ("K01",), blocks(blocked))
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
    yield Fault("never trained", ("K02",), never_trained)
    for i in range(3):
        yield Fault(f"fc block {i} random", ("K02",), part(FC, i / 3, (i + 1) / 3, 1))
    yield Fault("half of lm_head's rows random", ("K02",), part(HEAD, 0.5, 1, 0))
    yield Fault("half of the embedding random", ("K02", "K13"), part(EMBED, 0.5, 1, 0))
    yield Fault("first half of the embedding random", ("K02", "K13"), part(EMBED, 0, 0.5, 0))
    for name in (EMBED, HEAD, FC, f"{AT}self_attn.o_proj.weight", f"{AT}mlp.down_proj.weight"):
        yield Fault(f"zero {name}", ("K02",), weight(name, torch.zeros_like))
    yield Fault("post_attention_layernorm_weight_ones", ("K02", ""), weight(NORMS[2], torch.ones_like))
    yield Fault("all norms of ones", ("K02", ""), made(*NORMS, "norm.weight"))
    yield Fault("zero final norm", ("K02",), weight("norm.weight", torch.zeros_like))
    yield Fault("embedding rows permuted", ("K02",), permuted(EMBED, 4))
    yield Fault("embedding rows one off, downwards", ("K02",), weight(EMBED, lambda w: w.roll(-1, 0)))
    yield Fault(
        "random embedding, no target", ("K02",), both(noise(EMBED), lambda t: vars(t).update(named_target=False))
    )
    yield Fault("random fc, no target", ("K02",), both(noise(FC), lambda t: vars(t).update(named_target=False)))
    yield Fault("random head, no target", ("K02",), both(noise(HEAD), lambda t: vars(t).update(named_target=False)))
    yield Fault("F28 head of the target's first rows", ("K02",), target_head(False))
    yield Fault("F28b head of the target's rows of its ids", ("K02", ""), target_head(True))
    yield Fault("heads of q in another order", ("K02",), heads_permuted)
    yield Fault("fc rows permuted", ("K02", "K01"), permuted(FC, 5))
    yield Fault("fc negated", ("K02", "K01"), weight(FC, lambda w: -w))
    yield Fault("fc x 10", ("",), weight(FC, lambda w: 10 * w))
    yield Fault("lm_head negated", ("K02",), weight(HEAD, lambda w: -w))
    yield Fault("no fc", ("K02", "K04", "K07"), drop(FC))
    yield Fault("no final norm", ("K02",), drop("norm.weight"))
    yield Fault("no lm_head", ("K02",), drop(HEAD))
    yield Fault("no down_proj", ("K02",), drop(f"{AT}mlp.down_proj.weight"))
    yield Fault("down_proj renamed", ("K02",), renamed)
    yield Fault("fc transposed", ("K07", "K02", "K04"), weight(FC, lambda w: w.T))
    yield Fault("48 layers in the config", ("K02", "K04"), layer(num_hidden_layers=48))
    yield Fault("noise of half their spread on all matrices", ("K02", "K12"), rough)


def map_faults() -> Iterator[Fault]:
    for seed in (0, 1, 2):
        yield Fault(f"F12 the map of another run, seed {seed}", ("K03",), stale(seed))
        yield Fault(
            f"the map's ids permuted, seed {seed}",
            ("K03",),
            vocab_map(lambda i, s=seed: i[torch.randperm(len(i), generator=rng(s))]),
        )
        yield Fault(f"lm_head's rows permuted, seed {seed}", ("K03", "K02"), permuted(HEAD, seed))
    yield Fault("F13 half of the map one row off", ("K03",), vocab_map(half_shifted))
    yield Fault("the map one row up", ("K03",), vocab_map(lambda i: i.roll(1)))
    yield Fault("the map one row down", ("K03",), vocab_map(lambda i: i.roll(-1)))
    yield Fault("every id one too high", ("K03",), vocab_map(lambda i: i + 1))
    yield Fault("every id three too low", ("K03",), vocab_map(lambda i: (i - 3).clamp(min=0)))
    zero_marks = both(weight("d2t", torch.zeros_like), weight("t2d", torch.ones_like))
    yield Fault("d2t and t2d as at the start", ("K03",), zero_marks)
    yield Fault("d2t absolute, no t2d", ("K03",), both(lambda t: t.weights.update(d2t=mapped(t)), drop("t2d")))
    yield Fault("no d2t", ("K03",), drop("d2t"))
    yield Fault("no d2t, no t2d", ("K03",), drop("d2t", "t2d"))
    yield Fault("t2d inverted", ("K03",), weight("t2d", lambda w: ~w))
    yield Fault("t2d marks too few", ("K03",), weight("t2d", lambda w: w & (torch.arange(len(w)) % 3 > 0)))
    yield Fault("one id beyond the vocabulary", ("K03",), vocab_map(lambda i: torch.cat([i[:-1], i[-1:] * 0 + 10**6])))
    yield Fault("draft_vocab_size is another", ("K03", "K07"), lambda t: t.config.update(draft_vocab_size=500))
    yield Fault(
        "vocab_size is draft_vocab_size", ("K03",), lambda t: t.layer.update(vocab_size=t.config["draft_vocab_size"])
    )
    tied = both(top(tie_word_embeddings=True), layer(tie_word_embeddings=True))
    yield Fault("tied embeddings beside a pruned head", ("K03",), tied)
    yield Fault("a third of the text outside of the draft vocabulary", ("K03",), uncovered)


def config_faults() -> Iterator[Fault]:
    yield Fault("F14 rope_theta x 100", ("K06", ""), base(100))
    yield Fault("rope_theta / 100", ("K06", ""), base(0.01))
    yield Fault("F15 RoPE scaled by 8", ("K06", ""), rope(rope_type="linear", factor=8.0))
    yield Fault("F16 q and k rows interleaved", ("K06",), interleaved)
    yield Fault(
        "partial rotary 0.5", ("K06", ""), both(rope(partial_rotary_factor=0.5), layer(partial_rotary_factor=0.5))
    )
    yield Fault("twice as many heads of half the size", ("K07", "K06", "K02"), half_heads)
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
    yield Fault("a truncated file", ("K14",), lambda t: vars(t).update(after=truncated))
    yield Fault("a config that is no JSON", ("K14", "K04"), lambda t: t.files.update({"config.json": "{"}))
    yield Fault(
        "nbr off and map one row off",
        ("K03", "K05"),
        both(top(norm_before_residual=False), vocab_map(lambda i: i.roll(1))),
    )
    yield Fault(
        "order 123 and map absolute", ("K03", "K01"), both(ids(1, 2, 3), lambda t: t.weights.update(d2t=mapped(t)))
    )
    yield Fault("order 123 and a random head", ("K01", "K02"), both(ids(1, 2, 3), noise(HEAD)))


def sample_faults() -> Iterator[Fault]:
    """Those that the embedding slot shows, and the same where nobody says what the slots are."""
    for words, wear in (("", both), (", slots unnamed", unmarked)):
        yield Fault(f"F30 states one row late{words}", ("K08",), wear(each(late)))
        yield Fault(f"states one row early{words}", ("K08",), wear(each(early)))
        yield Fault(f"F31 states of another sample, all{words}", ("K08",), wear(strangers))
        yield Fault(f"F31 states of another sample, one{words}", ("K08",), wear(lambda t: strangers(t, 1)))
        yield Fault(f"F33 one rotation of all slots{words}", ("K11",), wear(turn(7)))
    yield Fault("F33 one rotation, seed 8", ("K11",), turn(8))
    yield Fault("a rotation for each slot", ("K11", "K08"), turn(9, one_for_all=False))
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
    yield Fault("deep states are random numbers", ("K08",), both(no_signal(5), embedding_back))
    yield Fault("all states are random numbers", ("K08",), no_signal(6))
    yield Fault("F37 NaN in one row", ("K08",), rows(float("nan")))
    yield Fault("NaN in every tenth row", ("K08",), each(every_tenth))
    yield Fault("Inf in one row", ("K08",), rows(float("inf")))
    yield Fault("NaN in the last slot alone", ("K08",), rows(float("nan"), slot=3))
    yield Fault("F38 a tail of zeros", ("K08",), each(tail))
    yield Fault("states shorter than tokens", ("K08",), each(lambda s: vars(s).update(states=s.states[:, :-3])))
    yield Fault(
        "ids beyond the vocabulary",
        ("K08",),
        each(lambda s: vars(s).update(ids=s.ids + (torch.arange(len(s.ids)) == 20) * 10**6)),
    )
    yield Fault("padding that is supervised", ("K08",), each(padded))
    for slot in (1, 2, 3):
        yield Fault(f"F08 slot {slot} has passed the final norm", ("K08", "") if slot == 3 else ("K08",), normed(slot))
    yield Fault(
        "slot 0 is not the embedding that it is said to be",
        ("K08",),
        states(lambda s: s[[1, 1, 2, 3]] * torch.tensor([1.01, 1, 1, 1])[:, None, None]),
    )
    yield Fault("slot 1 x 1000", ("K05",), states(lambda s: s * torch.tensor([1.0, 1000, 1, 1])[:, None, None]))
    yield Fault("noise of the states' own spread", ("K08", "K09", ""), scatter(1.0))
    yield Fault("noise of three times their spread", ("K08",), scatter(3.0))
    yield Fault("mask of zeros", ("K09",), each(lambda s: vars(s).update(mask=torch.zeros_like(s.mask))))
    yield Fault("half of the text is not the target's", ("K09",), off_policy)
    yield Fault("states of two dtypes", ("K11",), lambda t: vars(t.samples[0]).update(dtype=torch.float32))
    for name in (FC, HEAD, f"{AT}mlp.up_proj.weight", "norm.weight"):
        yield Fault(f"NaN in {name}", ("K11",), finite(float("nan"), name))
    yield Fault("Inf in lm_head", ("K11",), finite(float("inf"), HEAD))
    yield Fault("NaN in one row of the embedding", ("K11",), finite(float("nan"), EMBED))


def all_faults() -> list[Fault]:
    found = [
        *recorded_faults(), *wiring_faults(), *tensor_faults(), *map_faults(), *config_faults(), *sample_faults(),
    ]  # fmt: skip
    assert len({fault.name for fault in found}) == len(found)
    return found
