"""One switch of the forward that clearly helps: norms and residual, RoPE, the embedding and the head in use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from drafter.checkpoint.config import Rope
from drafter.checks.case import Case
from drafter.checks.explain import Explanation, diagnosis
from drafter.checks.finding import CKPT, ERROR, SMP, Finding
from drafter.checks.k02_head import head_to_write
from drafter.checks.k12_shape import lost
from drafter.checks.registry import FORWARD, check
from drafter.checks.rope_keys import rope_keys
from drafter.checks.written import written

NORMS = ("vllm-project/vllm#38111", "vllm-project/vllm#11672", "vllm-project/vllm#14464", "sgl-project/sglang#32334")
ROPE = ("sgl-project/SpecForge#265", "vllm-project/speculators#574")
PLACES = ("vllm-project/speculators#1114", "NVIDIA/Model-Optimizer#628")
EMBED = ("lightseekorg/TorchSpec#38", "vllm-project/speculators#1114")


@check("another-norm-switch-predicts-better", "K05", (CKPT, SMP), NORMS, FORWARD)
def norm_switch(case: Case) -> Iterator[Finding]:
    """Norms and the residual, each away from where the config puts it."""
    for one in [] if lost(case) else diagnosis(case).of("K05"):
        fixes = (fix_of_norm(case, part) for part in one.option.label.split(", ") if part != "ordering")
        yield _finding(
            "another-norm-switch-predicts-better",
            "K05",
            one,
            f"the weights were trained with {one.option.label}, which the config does not say",
            "; ".join(fixes),
            NORMS,
            50,
        )


_KEYS = {"fc_bias": "bias", **{name: name for name in ("norm_before_residual", "norm_before_fc", "fc_norm")}}
_KEYS["norm_output"] = "norm_output"
_OF_THE_LAYER = {"qkv_bias": "attention_bias", "rms_norm_eps": "rms_norm_eps"}


def fix_of_norm(case: Case, label: str) -> str:
    """The key that says one such switch, by its path in the config that servers read; some have none."""
    name, _, value = label.partition(" ")
    value = {"on": "true", "off": "false"}.get(value, value)
    if name not in _KEYS and name not in _OF_THE_LAYER:
        return f"no key says {name}: `eagle3-tui views` shows what each server computes"
    key = _KEYS.get(name) or case.files.key(_OF_THE_LAYER[name])
    if name == "norm_before_fc" and case.files.stated("eagle_config") is not None:
        key = f"eagle_config.{name} = {value}, {name}"
    return f"{case.files.table_name}: {key} = {value}; a server that does not know the key computes the other function"


@check("another-rope-predicts-better", "K06", (CKPT, SMP), ROPE, FORWARD)
def rope(case: Case) -> Iterator[Finding]:
    """Base, type and pairing of the rotary embedding. On short samples a wrong base often changes nothing."""
    for one in [] if lost(case) else diagnosis(case).of("K06"):
        name, _, value = one.option.label.partition(" ")
        yield _finding(
            "another-rope-predicts-better",
            "K06",
            one,
            f"the weights were trained with {name} {value}, not {case.checkpoint.run_config.rope.base:g} as configured"
            if name == "rope_base"
            else f"the weights were trained with {name} {value}",
            fix_of_rope(case, name, value),
            ROPE,
            40,
        )


def fix_of_rope(case: Case, name: str, value: str) -> str:
    files, rope = case.files, case.checkpoint.run_config.stated_rope
    if name == "rope_pairs":
        return "permute the rows of q_proj and k_proj"
    if name == "window":
        full = json.dumps(["full_attention"] * case.checkpoint.run_config.num_layers)
        return f"{files.table_name}: {files.key('layer_types')} = {full}, {files.key('sliding_window')} = null"
    rope = replace(rope, base=float(value)) if name == "rope_base" else Rope(rope.base)
    return f"{files.table_name}: {rope_keys(files.table, rope)}"


@check("the-target-s-own-tensor-predicts-better", "K02", (CKPT, SMP), EMBED, FORWARD)
def target_tensor(case: Case) -> Iterator[Finding]:
    """The checkpoint's embedding or head against the target's."""
    d = diagnosis(case)
    for one in d.of("K02"):
        name = one.option.label.partition(" ")[0]
        tensor = {"embedding": "embed_tokens.weight", "head": "lm_head.weight"}.get(name)
        if tensor is None or 2 * d.start.counts.not_finite > d.start.rows:
            continue  # a head with NaN is said where NaN is
        yield _finding(
            "the-target-s-own-tensor-predicts-better",
            "K02",
            one,
            f"{written(case)(tensor)} of the checkpoint is not what the drafter was trained with; the target's is",
            _instead(case, tensor),
            EMBED,
            65,
        )


def _instead(case: Case, tensor: str) -> str:
    """How the target's table comes into the place of the checkpoint's."""
    if tensor == "embed_tokens.weight":
        said = "SGLang takes the target's embedding anyway, vLLM takes the checkpoint's own where it has one"
        return f"weights: leave {written(case)(tensor)} out, or replace it by the target's: {said}"
    rows, config = case.checkpoint.draft_vocab_size, case.checkpoint.run_config
    if rows == config.vocab_size:
        return f"weights: {tensor} = the target's lm_head"
    return f"weights: {head_to_write(rows, config.hidden_size)}; it cannot be left out, no server takes these rows"


@check("tensors-stand-in-their-place", "K02", (CKPT, SMP), PLACES, FORWARD)
def swapped(case: Case) -> Iterator[Finding]:
    """Tensors that predict better in each other's place."""
    for one in diagnosis(case).of("K02"):
        title, fix = _SWAPPED.get(one.option.switch, ("", ""))
        if title:
            yield _finding("tensors-stand-in-their-place", "K02", one, title, fix, PLACES, 66)


_SWAPPED = {
    "mlp_gate": (
        "gate_proj and up_proj of the MLP are in each other's place",
        "rename the two in the weights; of a fused gate_up_proj the first half is gate_proj",
    ),
    "halves": (
        "q_proj, k_proj and v_proj take the hidden before the embedding, where every server puts the embedding first",
        "move the first half of the columns of each behind the second: concat(embedding, hidden) is what servers feed",
    ),
}


def _finding(
    id: str, kind: str, one: Explanation, title: str, fix: str, reports: tuple[str, ...], weight: int
) -> Finding:
    lengths = ""
    if one.before.length is not None and one.after.length is not None:
        lengths = f", accept length {one.before.length:.2f} -> {one.after.length:.2f}"
    numbers = f"step 0 {one.before.accuracy:.3f} -> {one.after.accuracy:.3f}{lengths}"
    return Finding(id, kind, ERROR, f"{title}: {numbers}", one.said(), fix, reports, "step", weight)
