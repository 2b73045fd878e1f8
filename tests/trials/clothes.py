"""A healthy drafter in other clothes: of none of these may an error or a warning be said that is not true."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.trials.changes import Change, both, drop, each, orthogonal, states, top, weight
from tests.trials.faults import Fault
from tests.trials.subject import AT, EMBED, FC, HEAD, Recorded, Trial, labels


def _cast(dtype: torch.dtype) -> Change:
    def change(t: Trial) -> None:
        t.weights = {n: w.to(dtype) if w.is_floating_point() else w for n, w in t.weights.items()}

    return change


def _cut(length: int) -> Change:
    def one(s: Recorded) -> None:
        s.ids, s.mask, s.states = s.ids[:length], s.mask[:length], s.states[:, :length]

    return each(one)


def _around_the_answer(length: int) -> Change:
    """So many tokens, half of which are supervised."""

    def one(s: Recorded) -> None:
        start = max(int(s.mask.nonzero()[0]) - length // 2, 0)
        part = slice(start, start + length)
        s.ids, s.mask, s.states = s.ids[part], s.mask[part], s.states[:, part]

    return each(one)


def _only(*places: int) -> Change:
    return lambda t: vars(t).update(samples=[t.samples[i] for i in places])


def _group(name: str) -> Change:
    return lambda t: vars(t).update(samples=[s for s in t.samples if s.group == name])


def _no_target(t: Trial) -> None:
    t.named_target = False


def _flat(t: Trial) -> None:
    """SGLang's layout, ids one below the depths."""
    layer = t.config.pop("transformer_layer_config")
    theta = layer.pop("rope_parameters")["rope_theta"]
    t.config = {
        **layer,
        "architectures": ["LlamaForCausalLMEagle3"],
        "rope_theta": theta,
        "draft_vocab_size": t.config["draft_vocab_size"],
        "norm_before_residual": t.config["norm_before_residual"],
        "torch_dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [depth - 1 for depth in t.depths[:3]],
            "use_aux_hidden_state": True,
        },
    }
    t.weights = {n.replace(AT, "midlayer."): w for n, w in t.weights.items()}


def _claimed_last(t: Trial) -> None:
    """The label of the last slot says that it is the verifier's, though the data may be those of a layer below."""
    t.options["slots"] = labels(t.depths[:3]) + ",last"


def _noisy(share: float) -> Change:
    def change(s: torch.Tensor) -> torch.Tensor:
        wild = torch.randn(s.shape, generator=torch.Generator().manual_seed(2)) * s.std((1, 2), keepdim=True)
        return torch.cat([s[:1], (s + share * wild)[1:]])

    return states(change)


def clothes() -> Iterator[Fault]:
    yield Fault("healthy: as it is", ("",), lambda t: None)
    yield Fault("healthy: float32 weights", ("",), _cast(torch.float32))
    yield Fault("healthy: float16 weights", ("",), _cast(torch.float16))
    yield Fault("healthy: flat, ids one below the depths", ("",), _flat)
    yield Fault("healthy: flat, without the embedding", ("",), both(drop(EMBED), _flat))
    yield Fault("healthy: no target", ("",), _no_target)
    yield Fault("healthy: no embedding of its own", ("",), drop(EMBED))
    yield Fault("healthy: slots unnamed", ("",), lambda t: t.options.update(slots=None))
    yield Fault("healthy: slots unnamed, no target", ("",), both(_no_target, lambda t: t.options.update(slots=None)))
    yield Fault("healthy: only the fed slots", ("",), lambda t: t.keep(0, 1, 2))
    yield Fault("healthy: last slot only claimed", ("",), _claimed_last)
    yield Fault("healthy: one sample of 60 tokens", ("",), both(_only(0), _around_the_answer(60)))
    yield Fault("healthy: one held-out sample of 60 tokens", ("",), both(_only(-1), _around_the_answer(60)))
    yield Fault("healthy: all samples of 60 tokens", ("",), _around_the_answer(60))
    yield Fault("healthy: all samples of 24 tokens", ("",), _around_the_answer(24))
    yield Fault("healthy: three samples", ("",), _only(0, 1, -1))
    yield Fault("healthy: one sample", ("",), _only(1))
    yield Fault("healthy: held out only", ("",), _group("held_out"))
    yield Fault("healthy: train only", ("",), _group("train"))
    yield Fault("healthy: no mask", ("",), each(lambda s: s.raw.update(loss_mask=None)))
    yield Fault("healthy: every token supervised", ("",), each(lambda s: vars(s).update(mask=torch.ones_like(s.mask))))
    yield Fault("healthy: states in float32", ("",), each(lambda s: vars(s).update(dtype=torch.float32)))
    yield Fault("healthy: states in float16", ("",), each(lambda s: vars(s).update(dtype=torch.float16)))
    yield Fault("healthy: states with a tenth of noise", ("",), _noisy(0.1))
    yield Fault("healthy: no t2d", ("",), drop("t2d"))
    yield Fault("healthy: d2t int32", ("",), weight("d2t", lambda w: w.int()))
    yield Fault("healthy: map in another order", ("",), _reordered)
    yield Fault("healthy: norm scale moved into lm_head", ("K02", ""), _folded)
    yield Fault("healthy: rotated residual folded into fc", ("",), _turned)
    yield Fault("healthy: one slot bad in one sample", ("K08",), _one_bad)
    yield Fault("healthy: norm_output false", ("",), top(norm_output=False))


def _reordered(t: Trial) -> None:
    """Head rows and map permuted together: the same function, ids that do not ascend."""
    order = torch.randperm(len(t.weights["d2t"]), generator=torch.Generator().manual_seed(1))
    mapped = torch.arange(len(order)) + t.weights["d2t"]
    t.weights["d2t"] = mapped[order] - torch.arange(len(order))
    t.weights[HEAD] = t.weights[HEAD][order]


def _folded(t: Trial) -> None:
    w = t.weights["norm.weight"].float()
    t.weights[HEAD] = (t.weights[HEAD].float() * w).bfloat16()
    t.weights["norm.weight"] = torch.ones_like(t.weights["norm.weight"])


def _turned(t: Trial) -> None:
    """A target whose residual is rotated, and a drafter that took the rotation back in fc."""
    width = t.samples[0].states.shape[-1]
    q = orthogonal(width, 3)
    t.states(lambda s: torch.cat([s[:1].float(), s[1:].float() @ q.T]))
    w = next(w for n, w in t.target.items() if n.endswith("norm.weight"))
    name = next(n for n in t.target if n.endswith("norm.weight"))
    head = next(
        (h for n, h in t.target.items() if n.endswith(HEAD)), t.target[next(n for n in t.target if n.endswith(EMBED))]
    )
    t.target[HEAD] = ((head.float() * w.float()) @ q.T).bfloat16()
    t.target[name] = torch.ones_like(w)
    t.target_config["tie_word_embeddings"] = False
    blocks = t.weights[FC].float().chunk(3, 1)
    t.weights[FC] = torch.cat([blocks[0], *(b @ q.T for b in blocks[1:])], 1).bfloat16()


def _one_bad(t: Trial) -> None:
    first = t.samples[0]
    first.states = first.states.clone()
    first.states[1, 10, 3] = float("nan")
