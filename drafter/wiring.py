"""How a drafter is wired: which recorded slots feed `fc`, in which order, and the switches of the forward.

A `Wiring` is a value; the forward takes one and nothing else decides. The ids of a config are resolved to slots here,
in one place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import perm
from typing import Any

from drafter.checkpoint.config import DrafterConfig, Rope
from drafter.errors import WiringError
from drafter.sample.sample import Slot

Ordering = tuple[int, ...]
MAX_ORDERINGS = 5040
EVERY = 504  # orderings (nine slots, three at a time) up to which all are scored unasked
MAX_DIGITS = 6
CONFIG = "the config"
_ROPE = Rope(10000.0)


@dataclass(frozen=True)
class Wiring:
    """The switches of one function of the drafter. `trained` takes them from the config of the checkpoint.

    norm_before_residual: the residual is the normed hidden instead of the raw `fc` output.
    norm_output: the next draft step is fed the state after the final norm instead of before it.
    double_norm: the hidden passes input_layernorm before hidden_norm (ModelOpt's training since 2025-12).
    final_norm: `norm` stands before lm_head.
    rope: base, type and parameters of the rotary embedding.
    embedding: `own` (the checkpoint's, else the target's) or `target`.
    head: `own` (the checkpoint's, else the target's rows), `target` (the target's rows at the mapped ids), or `tied`
        (the first D rows of the embedding, as SGLang does where tie_word_embeddings is true).
    d2t: `offset` (target = draft + d2t[draft], every server), `direct` (d2t holds target ids), or `data`: the reading
        that the data supports.
    positions: at step k >= 1 row t stands at t + k (`advance`), at t (`constant`), or at t + k + 1 (`late`, SGLang up
        to 0.5.11).
    window: whether a sliding window moves on with the draft steps (`moving`, vLLM), stays where the row is (`still`, as
        speculators trains all but P-EAGLE), or is left out (`none`, SGLang).
    norm_before_fc, fc_norm, fc_bias, qkv_bias, qk_norm: whether what the checkpoint has of these is applied. A server
        that has no place for a tensor skips it; qkv_bias is that of the first layer.
    upper_norms: the norms before the layers above the first are the checkpoint's (`own`), or `ones`, as a server leaves
        them that looks for another name.
    lost_norm: a final norm that the checkpoint lacks is `refused`, or `ones` as in a server.
    fc: `applied`, or `skipped` where its input is as wide as the drafter already (SGLang tells by the width).
    mlp_gate: silu stands after gate_proj (`gate`), or after up_proj: the two `swapped`, as by a wrong fused tensor.
    halves: the first projections of layer 0 take the embedding before the hidden (`embedding_first`), or after it
        (`hidden_first`).

    Of what a program may get wrong, and no file says:
    row_ids: a recorded row is fed the token after its state (`next`), or its own (`same`: ids that were not shifted).
    feedback: a later step is fed the drafter's last state (`own`), that state through `fc` once more, in the place of
        every input (`through_fc`), or what step 0 was fed (`first`).
    fed_ids: a draft is fed by its target id, or by its number in the draft vocabulary (`draft`: d2t forgotten).
    draft_keys: a later step sees the keys of its row's past and of the chain's earlier drafts (`kept`), all but those
        of the earlier drafts (`forgotten`), or only those of its own steps >= 1 (`alone`).
    residual: a layer hands on its MLP's output with the residual (`kept`), without it to the layer above
        (`lost_between`), or without it to the final norm (`lost_at_end`).
    """

    view: str
    norm_before_residual: bool
    norm_output: bool
    double_norm: bool = False
    final_norm: bool = True
    rope: Rope = _ROPE
    embedding: str = "own"
    head: str = "own"
    d2t: str = "data"
    positions: str = "advance"
    window: str = "moving"
    norm_before_fc: bool = True
    fc_norm: bool = True
    fc_bias: bool = True
    qkv_bias: bool = True
    qk_norm: bool = True
    upper_norms: str = "own"
    lost_norm: str = "refused"
    fc: str = "applied"
    mlp_gate: str = "gate"
    halves: str = "embedding_first"
    row_ids: str = "next"
    feedback: str = "own"
    fed_ids: str = "target"
    draft_keys: str = "kept"
    residual: str = "kept"

    @classmethod
    def trained(cls, config: DrafterConfig) -> Wiring:
        return cls(
            "trained",
            config.norm_before_residual,
            config.norm_output,
            double_norm=config.double_norm,
            final_norm=config.final_norm,
            rope=config.rope,
            window="still" if config.dialect == "speculators" and not config.parallel else "moving",
        )

    def changed(self, **fields: Any) -> Wiring:
        """This wiring with other values of some fields."""
        return replace(self, **fields)

    def of_rows(self) -> Wiring:
        """This wiring without what makes no difference to the keys and values of recorded rows."""
        window = "none" if self.window == "none" else "moving"
        residual = "kept" if self.residual == "lost_at_end" else self.residual
        return replace(self, window=window, residual=residual, **_LATER)

    def switched(self, name: str, value: str) -> Wiring:
        """This wiring with one switch set from text, as the command line and the screen give it.

        Raises WiringError for a switch or value that does not exist.
        """
        if name not in SWITCHES:
            raise WiringError(f"the switch {name!r}", expected=f"one of {', '.join(SWITCHES)}")
        if name == "rope_base":
            base = float(value) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?(e[0-9]{1,2})?", value) else 0.0
            if not 0 < base < 1e18:
                raise WiringError(f"the RoPE base {value!r}", expected="a number > 0")
            return replace(self, rope=replace(self.rope, base=base))
        if value not in SWITCHES[name]:
            raise WiringError(f"{name} {value!r}", expected=f"one of {', '.join(SWITCHES[name])}")
        if name == "rope_type":
            return replace(self, rope=replace(self.rope, type=value))
        if name == "rope_pairs":
            return replace(self, rope=replace(self.rope, interleaved=value == "interleaved"))
        change: dict[str, Any] = {name: value == "on" if SWITCHES[name] == _ON_OFF else value}
        return replace(self, **change)

    def value(self, name: str) -> str:
        """The switch `name` as text, the inverse of `switched`."""
        special = {
            "rope_base": f"{self.rope.base:.12g}",
            "rope_type": self.rope.type,
            "rope_pairs": "interleaved" if self.rope.interleaved else "halves",
        }
        if name in special:
            return special[name]
        found = getattr(self, name)
        return ("on" if found else "off") if isinstance(found, bool) else str(found)


_ON_OFF = ("on", "off")
# every known difference between what trains and what serves: name -> values; a base takes any number
SWITCHES: dict[str, tuple[str, ...]] = {
    "norm_before_residual": _ON_OFF,
    "norm_output": _ON_OFF,
    "double_norm": _ON_OFF,
    "final_norm": _ON_OFF,
    "rope_base": (),
    "rope_type": ("default", "linear", "dynamic", "llama3", "yarn"),
    "rope_pairs": ("halves", "interleaved"),
    "embedding": ("own", "target"),
    "head": ("own", "target", "tied"),
    "d2t": ("data", "offset", "direct"),
    "positions": ("advance", "constant", "late"),
    "window": ("moving", "still", "none"),
    "norm_before_fc": _ON_OFF,
    "fc_norm": _ON_OFF,
    "fc_bias": _ON_OFF,
    "qkv_bias": _ON_OFF,
    "qk_norm": _ON_OFF,
    "upper_norms": ("own", "ones"),
    "lost_norm": ("refused", "ones"),
    "fc": ("applied", "skipped"),
    "mlp_gate": ("gate", "swapped"),
    "halves": ("embedding_first", "hidden_first"),
    "row_ids": ("next", "same"),
    "feedback": ("own", "through_fc", "first"),
    "fed_ids": ("target", "draft"),
    "draft_keys": ("kept", "forgotten", "alone"),
    "residual": ("kept", "lost_between", "lost_at_end"),
}
# what only later steps and the way out read, at one value each
_LATER: dict[str, Any] = {
    "view": "",
    "norm_output": False,
    "final_norm": True,
    "lost_norm": "refused",
    "head": "own",
    "d2t": "data",
    "positions": "advance",
    "feedback": "own",
    "fed_ids": "target",
    "draft_keys": "kept",
}


def all_orderings(slots: int, inputs: int) -> list[Ordering]:
    """Every ordered choice of `inputs` out of `slots`. Raises WiringError when they are too many to be shown."""
    count = _how_many(slots, inputs)
    if count > MAX_ORDERINGS:
        raise WiringError(
            f"{count} orderings of {inputs} out of {slots}",
            expected=f"at most {MAX_ORDERINGS}",
            hint="name the ones to score with --ordering",
        )
    return list(permutations(range(slots), inputs))


def _how_many(slots: int, inputs: int) -> int:
    if inputs > slots:
        raise WiringError(f"a sample with {slots} recorded states", expected=f"at least the {inputs} that fc takes")
    return perm(slots, inputs)


def promising_orderings(slots: int, inputs: int, near: Sequence[Ordering]) -> tuple[list[Ordering], str]:
    """The orderings to score unasked, and which they are where they are not all: "" else.

    Of a recording of many layers: those in `near` (without any, slots spread evenly), each with its inputs in every
    order, with one input replaced by every other slot, and with all of them one or two slots up or down.
    """
    count = _how_many(slots, inputs)
    if count <= EVERY:
        return all_orderings(slots, inputs), ""
    centres = list(dict.fromkeys(near)) or [tuple((2 * i + 1) * slots // (2 * inputs) for i in range(inputs))]
    found: dict[Ordering, None] = dict.fromkeys(centres)
    for centre in centres:
        found |= dict.fromkeys(permutations(centre) if inputs <= 4 else [centre[::-1]])
        found |= dict.fromkeys((*centre[:i], s, *centre[i + 1 :]) for i in range(inputs) for s in range(slots))
        found |= dict.fromkeys(tuple(slot + move for slot in centre) for move in (-2, -1, 1, 2))
    good = [o for o in found if len(set(o)) == inputs and all(0 <= slot < slots for slot in o)]
    around = "; ".join(map(name, centres))
    note = f"{len(good)} of {count} orderings: {around}, and what differs in one input, in order, or by two slots"
    return good, note


def parse_ordering(text: str) -> Ordering:
    """`0,1,2` as an ordering. Raises WiringError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() and len(part) <= MAX_DIGITS for part in parts):
        raise WiringError(f"the ordering {text!r}", expected="slot numbers like 0,1,2, or 'all'")
    return tuple(int(part) for part in parts)


def check_ordering(ordering: Ordering, slots: int, inputs: int) -> Ordering:
    """`ordering` if it can feed `fc`. Raises WiringError where its length or a slot does not fit."""
    if len(ordering) != inputs:
        raise WiringError(f"an ordering of {len(ordering)} slots {list(ordering)}", expected=f"{inputs}, as fc takes")
    outside = [slot for slot in ordering if not 0 <= slot < slots]
    if outside:
        raise WiringError(f"slot {outside[0]} in {list(ordering)}", expected=f"slots 0..{slots - 1} of the sample")
    return ordering


def name(ordering: Ordering) -> str:
    return ",".join(map(str, ordering))


def configured_ordering(
    depths: Sequence[int] | None, slots: Sequence[Slot], inputs: int, who: str = CONFIG, last: int | None = None
) -> tuple[Ordering | None, str]:
    """The slots that the config's depths select, or None with the reason why they cannot be told.

    `who` selects them, where it is a server. `last` is the depth of the target's last layer, where it is known: that
    of a slot said to be the last state before the final norm.
    """
    if depths is None:
        return None, f"{who} names no layer ids"
    claimed = {depth: slot.index for slot in reversed(slots) if (depth := depth_of(slot, last)) is not None}
    if not claimed:
        return None, "the depths of the recorded slots are unknown: name them with --slots"
    absent = [depth for depth in depths if depth not in claimed]
    if absent:
        unknown = [
            slot.index for slot in slots if slot.claim is None or (slot.claim.depth is None and not slot.claim.is_last)
        ]
        verb = "selects" if who == CONFIG else "captures"
        said = f"{who} {verb} depths {list(depths)}; depth {absent[0]} is not among the recorded slots"
        if unknown:
            said = f"{said} of known depth (slot {unknown[0]} is unknown): name them with --slots"
        return None, said
    if len(depths) != inputs:
        return None, f"{who} names {len(depths)} layers, fc takes {inputs}"
    said = "the config's layer ids select" if who == CONFIG else f"{who} captures"
    return tuple(claimed[depth] for depth in depths), f"{said} depths {list(depths)}"


def depth_of(slot: Slot, last: int | None) -> int | None:
    """The depth that a slot is said to have; that of the last state before the final norm is `last`."""
    claim = slot.claim
    if claim is None or claim.depth is not None:
        return None if claim is None else claim.depth
    return last if claim.is_last and claim.norm != "post" else None
