"""What may be tried on a drafter that scores badly: other orderings, one switch of the forward, another vocab map.

Each is an `Option` with the kind of fault that it would be. What cannot apply to a checkpoint is left out. Runs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from drafter.checkpoint.vocab_map import VocabMap
from drafter.checks.captures import reading
from drafter.checks.case import Case
from drafter.checks.measure import Option
from drafter.errors import DrafterError
from drafter.sample.sample import Slot
from drafter.serving.producers import usual
from drafter.wiring import SWITCHES, Ordering, Wiring, configured_ordering, promising_orderings

# what no file says, by the kind of fault that it is
PROGRAM = {
    "row_ids": "K08",
    "feedback": "K05",
    "fed_ids": "K03",
    "draft_keys": "K13",
    "residual": "K05",
    "positions": "K06",
}
KIND_OF = {
    **dict.fromkeys(("rope_base", "rope_type", "rope_pairs", "window"), "K06"),
    **dict.fromkeys(("embedding", "head", "fc", "fc_bias", "qkv_bias", "mlp_gate", "halves"), "K02"),
    **PROGRAM,
}
BASES = (10_000.0, 500_000.0, 1_000_000.0)  # RoPE bases of the common families, tried beside the target's own


def configured(case: Case, slots: Sequence[Slot]) -> tuple[Ordering | None, str]:
    """The recorded slots that the config's ids select for whoever reads them, or None and why."""
    read = reading(case)
    return configured_ordering(read.depths, slots, case.checkpoint.fc_inputs, read.who, case.target_layers)


def trained(case: Case, slots: Sequence[Slot]) -> Ordering | None:
    """What the training's own config selects, where there is one."""
    checkpoint = case.checkpoint
    config = checkpoint.trained_config
    if config is None and checkpoint.config.dialect == "speculators":
        config = checkpoint.config
    if config is None:
        return None
    return configured_ordering(config.aux_depths, slots, checkpoint.fc_inputs, last=case.target_layers)[0]


def guessed(case: Case, slots: Sequence[Slot]) -> tuple[Ordering | None, str]:
    """What engines take where the config names no ids: depths 2, n/2, n-3 of n layers."""
    if case.checkpoint.config.aux_ids is not None or case.target_layers is None:
        return None, ""
    depths = usual(case.target_layers)
    found, why = configured_ordering(depths, slots, case.checkpoint.fc_inputs, "an engine's guess", case.target_layers)
    return found, why


def orderings(case: Case, slots: Sequence[Slot], near: Sequence[Ordering]) -> tuple[list[Ordering], str]:
    return promising_orderings(len(slots), case.checkpoint.fc_inputs, near)


def base_wiring(case: Case) -> Wiring:
    """As `trained_wiring`, with the switches that are set."""
    wiring = trained_wiring(case)
    for name, value in case.switches.items():
        wiring = wiring.switched(name, value)
    return wiring


def trained_wiring(case: Case) -> Wiring:
    """As training ran it, but for d2t, which is read as every server does where that stays in the vocabulary."""
    from drafter.model.sources import load_vocab_map

    wiring = Wiring.trained(case.checkpoint.run_config)
    try:
        load_vocab_map(case.checkpoint, "offset")
    except DrafterError:
        return wiring
    return wiring.changed(d2t="offset")


def switches(case: Case, base: Option) -> list[Option]:
    """One switch of the forward at a time, each away from where it stands; without those that `program` has."""
    found = [*_norms(case, base), *_rope(case, base), *_sources(case, base), *_swapped(base), *_set(case, base)]
    return list({(one.wiring, one.variant): one for one in reversed(found)}.values())[::-1]


def program(case: Case, base: Option) -> list[Option]:
    """What only a program gets wrong: one such switch at a time, away from where it stands."""
    config, found = case.checkpoint.run_config, []
    for name in PROGRAM:
        values = [value for value in SWITCHES[name] if value != base.wiring.value(name)]
        if name == "residual" and config.num_layers == 1:
            values = [value for value in values if value != "lost_between"]
        if name == "feedback" and (not config.use_aux or config.target_hidden_size != config.hidden_size):
            values = [value for value in values if value != "through_fc"]
        if config.parallel and name in ("feedback", "fed_ids", "positions"):
            values = []  # it is fed nothing
        found += [_switched(base, name, value, PROGRAM[name]) for value in values]
    return found


def _swapped(base: Option) -> Iterator[Option]:
    """Tensors in each other's place."""
    for name in ("mlp_gate", "halves"):
        (other,) = (value for value in SWITCHES[name] if value != base.wiring.value(name))
        yield _switched(base, name, other, "K02")


def _set(case: Case, base: Option) -> Iterator[Option]:
    """What was set by hand, given back."""
    trained = Wiring.trained(case.checkpoint.run_config)
    for name in case.switches:
        value = trained.value(name)
        if name not in PROGRAM and name != "d2t" and base.wiring.value(name) != value:
            yield _switched(base, name, value, KIND_OF.get(name, "K05"))


def _norms(case: Case, base: Option) -> Iterator[Option]:
    names, config, wiring = case.checkpoint.tensors, case.checkpoint.run_config, base.wiring
    flags = ["norm_before_residual", "norm_output", "double_norm"]
    flags += ["final_norm"] if "norm.weight" in names else []
    flags += ["norm_before_fc"] if config.norm_before_fc else []
    flags += ["fc_norm"] if config.fc_norm else []
    flags += ["fc_bias"] if "fc.bias" in names else []
    flags += ["qkv_bias"] if any(n.endswith(("q_proj.bias", "k_proj.bias", "v_proj.bias")) for n in names) else []
    flags += ["qk_norm"] if any(n.endswith(("q_norm.weight", "k_norm.weight")) for n in names) else []
    for flag in flags:
        yield _switched(base, flag, "off" if wiring.value(flag) == "on" else "on", "K05")
    if config.num_layers > 1:
        yield _switched(base, "upper_norms", "ones" if wiring.upper_norms == "own" else "own", "K05")
    for flag, tensor in (("norm_before_fc", "input_norm.weight"), ("fc_norm", "fc_norm.0.weight")):
        if tensor in names and not getattr(config, flag):
            yield replace(base, label=f"{flag} on", kind="K05", variant=((flag, True),))
    eps = case.target_table().get("rms_norm_eps")
    if isinstance(eps, float) and 0 < eps < 1 and eps != config.rms_norm_eps:
        yield replace(base, label=f"rms_norm_eps {eps:g}", kind="K05", variant=(("rms_norm_eps", eps),))


def _rope(case: Case, base: Option) -> Iterator[Option]:
    own = case.target_table()
    found = own.get("rope_theta") or (own.get("rope_parameters") or {}).get("rope_theta")
    theirs = (float(found),) if isinstance(found, int | float) and 1 < found < 1e12 else ()
    stated = case.checkpoint.run_config.stated_rope.base
    for number in dict.fromkeys((*theirs, stated, *BASES)):
        if number != base.wiring.rope.base:
            yield _switched(base, "rope_base", f"{number:.0f}", "K06")
    if base.wiring.rope.type != "default":
        yield _switched(base, "rope_type", "default", "K06")
    yield _switched(base, "rope_pairs", "halves" if base.wiring.rope.interleaved else "interleaved", "K06")
    if case.checkpoint.run_config.sliding_window is not None and base.wiring.window != "none":
        yield _switched(base, "window", "none", "K06")


def _sources(case: Case, base: Option) -> Iterator[Option]:
    names, target, config = case.checkpoint.tensors, case.target, case.checkpoint.run_config
    if target is None:
        return
    fits = target.embed is not None and target.embed.shape[1] == config.hidden_size
    if "embed_tokens.weight" in names and fits and base.wiring.embedding == "own":
        yield _switched(base, "embedding", "target", "K02")
    fits = target.head is not None and target.head.shape[1] == config.hidden_size and not _map_is_another(case)
    if "lm_head.weight" in names and fits and base.wiring.head == "own":
        yield _switched(base, "head", "target", "K02")


def _map_is_another(case: Case) -> bool:
    """Whether the map is of other tokens than the head: then the target's rows of these tokens mend nothing."""
    from drafter.checks.k03_head import head_rows

    found = head_rows(case)
    return found is not None and found.wrong


def _switched(base: Option, name: str, value: str, kind: str) -> Option:
    return replace(base, wiring=base.wiring.switched(name, value), label=f"{name} {value}", kind=kind, switch=name)


def maps(case: Case, vocab: VocabMap) -> dict[str, Tensor]:
    """name -> target ids [D]: the ways in which the file's map could be meant, beside `vocab`, the one in force."""
    stored = case.checkpoint.tensors.get("d2t")
    if stored is None:
        return {}
    d2t, size = stored.read().long(), vocab.size
    rows = torch.arange(size)
    found = {"d2t holds target ids": d2t, "draft ids are target ids": rows, "d2t holds offsets": rows + d2t}
    marks = case.checkpoint.tensors.get("t2d")
    marked = marks.read().bool().nonzero().flatten() if marks is not None else rows[:0]
    if marked.numel() == size:
        found["the ids that t2d marks, ascending"] = marked
    ids = (rows + d2t).sort().values
    if ids.unique().numel() == size:
        found["its ids, ascending"] = ids
    for move, words in ((1, "one row up"), (-1, "one row down")):
        found[f"offsets, {words}"] = (rows + d2t).roll(move)
    return {name: ids for name, ids in found.items() if not torch.equal(ids, vocab.target_ids)}
