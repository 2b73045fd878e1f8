"""K04: the config itself: two files that differ, classes that no engine knows, nulls, layouts, number of layers.

Reads configs and tensor names; knows no number in a tensor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from drafter.checkpoint.config import Disagreement, Rope
from drafter.checkpoint.names import layer_of
from drafter.checks.case import Case
from drafter.checks.files import has_key
from drafter.checks.finding import CKPT, ERROR, FILES, NOTE, OK, WARNING, Finding
from drafter.checks.registry import check
from drafter.checks.rope_keys import rope_keys

KIND = "K04"
# fields that change what is computed; the others are bookkeeping
_FUNCTION = {
    **dict.fromkeys(("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "final_norm"), "K05"),
    "rope": "K06",
    **dict.fromkeys(("vocab_size", "draft_vocab_size"), "K03"),
    **dict.fromkeys(("hidden_size", "target_hidden_size", "num_heads", "num_kv_heads", "head_dim"), "K07"),
    **dict.fromkeys(("intermediate_size", "num_layers", "hidden_act", "attention", "mla", "parallel", "use_aux"), KIND),
    **dict.fromkeys(("tie_lm_head", "logit_scale"), KIND),
}
_LAYERS = "aux_depths"
# classes of drafters: SGLang's models, vLLM's registry (it reads speculators' and Llama's own names too)
SGLANG_CLASSES = ("LlamaForCausalLMEagle3", "Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM")
VLLM_CLASSES = re.compile(
    r"LlamaForCausalLMEagle3|Eagle3\w+ForCausalLM|Peagle\w+ForCausalLM|Eagle3DraftModel|Eagle3Speculator|PEagleSpeculator"
)
PRODUCERS = ("LlamaEagle3DraftModel", "PEagleDraftModel", "LlamaForCausalLMEagle3Deep", "EAGLE3LlamaForCausalLM")
# typed fields of transformers' configs, for which a strict validation takes no null
_NOT_NULL = (
    *("use_cache", "tie_word_embeddings", "rms_norm_eps", "hidden_act", "vocab_size", "hidden_size"),
    *("num_attention_heads", "intermediate_size", "max_position_embeddings", "num_hidden_layers"),
    *("initializer_range", "attention_bias", "attention_dropout", "mlp_bias"),
)


@check("two-configs", KIND, (CKPT,), ("sgl-project/SpecForge#129",))
def two_configs(case: Case) -> Iterable[Finding]:
    """What a server reads and what training wrote, field by field."""
    checkpoint = case.checkpoint
    tables = list(case.files.tables)
    if len(tables) > 1 and checkpoint.trained_config is not None and not checkpoint.disagreements:
        yield Finding("two-configs", KIND, OK, f"{' and '.join(tables[:2])} mean the same", {"files": tables})
    for differing in checkpoint.disagreements:
        if differing.field == _LAYERS:
            continue  # said by layer-ids-differ
        yield _differing(case, differing)


def _differing(case: Case, d: Disagreement) -> Finding:
    kind = _FUNCTION.get(d.field, KIND)
    severity = ERROR if d.field in _FUNCTION else WARNING
    title = f"{d.field} is {_said(d.configured)} in {d.configured_source}, which servers read, "
    title += f"and {_said(d.trained)} in {d.trained_source}, as it was trained"
    evidence = {"field": d.field, d.configured_source: _said(d.configured), d.trained_source: _said(d.trained)}
    return Finding("two-configs", kind, severity, title, evidence, _as_trained(case, d), weight=84)


def _as_trained(case: Case, d: Disagreement) -> str:
    """The key by which config.json would say what was trained; some things no key says."""
    if isinstance(d.trained, Rope):
        if replace(d.configured, interleaved=d.trained.interleaved) != d.trained:
            return f"{d.configured_source}: {rope_keys(case.files.table, d.trained)}"
    elif isinstance(d.trained, bool | int | float | str) and d.field != "parallel":  # that is told by several keys
        evidence = case.checkpoint.config.evidence.get(d.field)
        if evidence is not None and evidence.key and evidence.source in (d.configured_source, "default"):
            return f"{d.configured_source}: {evidence.key} = {_said(d.trained)}"
    return (
        f"no key of {d.configured_source} says {d.field}: serve the layout of {d.trained_source}, "
        "or write a copy with `eagle3-tui fix`"
    )


def _said(value: Any) -> str:
    if hasattr(value, "base") and hasattr(value, "type"):
        more = "".join(f", {key} {inner!r:.40}" for key, inner in value.parameters)
        return f"{value.type}, base {value.base:g}{more}"
    return json.dumps(value) if isinstance(value, bool | int | float | str) else f"{value!r:.120}"


@check("architecture", KIND, (FILES,), ("sgl-project/sglang#9135", "Tencent/AngelSlim#15", "Tencent/AngelSlim#39"))
def architecture(case: Case) -> Iterable[Finding]:
    """The class that the config names, against those that each engine has."""
    names, config = case.files.stated("architectures"), case.files.config
    if config is None:
        return
    name = str(names[0]) if isinstance(names, list) and names else ""
    nested = "transformer_layer_config" in case.files.table
    knows = {"sglang": name in SGLANG_CLASSES and not nested, "vllm": bool(VLLM_CLASSES.fullmatch(name)) or nested}
    evidence = {
        "architectures": name or "not stated",
        "sglang knows it": knows["sglang"],
        "vllm knows it": knows["vllm"],
    }
    evidence |= {"sglang's classes": SGLANG_CLASSES, "layout": "nested (speculators)" if nested else "flat"}
    reports = ("sgl-project/sglang#9135", "Tencent/AngelSlim#15", "Tencent/AngelSlim#39")
    fix = f'config.json: architectures = ["{_class(case)}"]'
    if nested:
        title = (
            f"{name or 'the nested config'} is speculators' own, which vLLM reads; for SGLang `fix` writes a flat one"
        )
        yield Finding("architecture", KIND, OK, title, evidence, reports=reports)
    elif config.dialect == "safeailab" and name == "LlamaForCausalLM":
        title = "architectures says LlamaForCausalLM, as SafeAILab writes it: SGLang needs the drafter's class"
        yield Finding("architecture", KIND, NOTE, title, evidence, fix, reports)
    elif name in PRODUCERS or (not knows["sglang"] and knows["vllm"]):
        engines = "SGLang" if knows["vllm"] else "SGLang and vLLM"
        title = f"{engines} has no class {name!r}, the name that its producer gives it"
        title = title.replace("vLLM has", "vLLM have")
        yield Finding("architecture", KIND, NOTE, title, evidence, fix, reports)
    elif knows["sglang"]:
        yield Finding(
            "architecture", KIND, OK, f"{name} is a drafter's class that SGLang has", evidence, reports=reports
        )
    elif "eagle" in name.lower():
        title = f"whether an engine has a class {name!r} was not read"
        yield Finding("architecture", KIND, NOTE, title, evidence, fix, reports)
    else:
        what = f"architectures says {name!r}, the class of a target" if name else "the config states no architectures"
        title = f"{what}: a server looks for that class and fails on the drafter's names"
        yield Finding("architecture", KIND, ERROR, title, evidence, fix, reports, weight=66)


def _class(case: Case) -> str:
    config = case.files.config
    return "Eagle3DeepseekV2ForCausalLM" if config is not None and config.mla is not None else "LlamaForCausalLMEagle3"


@check("nulls", KIND, (FILES,), ("NVIDIA/Model-Optimizer#1417",))
def nulls(case: Case) -> Iterable[Finding]:
    """null where an engine's config class takes none."""
    table = case.files.table
    prefix = "transformer_layer_config." if "transformer_layer_config" in table else ""
    keys = [
        prefix + key for key in _NOT_NULL if has_key(table, prefix + key) and case.files.stated(prefix + key) is None
    ]
    theta = prefix + "rope_theta"
    inside = case.files.stated(f"{prefix}rope_scaling.rope_theta", f"{prefix}rope_parameters")
    if has_key(table, theta) and case.files.stated(theta) is None and inside is None:
        keys.append(theta)
    if keys:
        title = f"{', '.join(keys)} {'is' if len(keys) == 1 else 'are'} null: engines that validate configs refuse that"
        fix = f"{case.files.table_name}: leave out {', '.join(keys)}, or state a value (use_cache = true)"
        evidence = {"file": case.files.table_name, "null": keys}
        yield Finding("nulls", KIND, ERROR, title, evidence, fix, ("NVIDIA/Model-Optimizer#1417",), weight=45)


@check("layers-count", "K02", (FILES,), ("vllm-project/speculators#812", "sgl-project/SpecForge#129"))
def layers_count(case: Case) -> Iterable[Finding]:
    """num_hidden_layers against the layers in the weights."""
    held = {layer for name in case.files.tensors if (layer := layer_of(name)) is not None}
    said = case.files.layer("num_hidden_layers")
    if not held or type(said) is not int or case.files.config is None:
        return
    count = max(held) + 1
    gaps = sorted(set(range(count)) - held)
    evidence = {"num_hidden_layers": said, "layers in the weights": sorted(held)}
    reports = ("vllm-project/speculators#812", "sgl-project/SpecForge#129")
    fix = f"{case.files.table_name}: {case.files.key('num_hidden_layers')} = {count}"
    if said > count:
        title = (
            f"num_hidden_layers is {said}, the weights have {count}: the number is the target's, or layers were lost"
        )
        yield Finding("layers-count", KIND, ERROR, title, evidence, fix, reports, weight=74)
    elif said < count:
        title = f"the weights have {count} layers, the config says {said}: the others are dropped without a word"
        yield Finding("layers-count", "K02", ERROR, title, evidence, fix, reports, weight=74)
    elif gaps:
        title = f"layer {gaps[0]} is in no file, though later ones are"
        yield Finding("layers-count", "K02", ERROR, title, evidence, "export the weights again", reports, weight=74)


@check("attention-kind", KIND, (CKPT,), ("vllm-project/vllm#45764",))
def attention_kind(case: Case) -> Iterable[Finding]:
    """Latent attention by the tensors, against what the config makes an engine believe."""
    config = case.checkpoint.config
    model_type, stated = case.files.layer("model_type"), case.files.layer("kv_lora_rank") is not None
    evidence = {"by tensors": config.attention, "model_type": model_type, "kv_lora_rank stated": stated}
    reports, where, key = ("vllm-project/vllm#45764",), case.files.table_name, case.files.key
    if config.attention == "mla" and not stated:
        title = (
            f"the tensors are those of latent attention (MLA), the config (model_type {model_type!r}) does not say so"
        )
        beside = key("kv_lora_rank").removesuffix("kv_lora_rank")
        fix = f'{where}: {key("model_type")} = "deepseek_v3", and beside it ({beside or "at the top"}) q_lora_rank, '
        fix += "kv_lora_rank and the qk_*_head_dim"
        yield Finding("attention-kind", KIND, ERROR, title, evidence, fix, reports, weight=64)
    elif config.attention == "mla" and not re.search(r"deepseek|kimi", str(model_type)):
        title = f"latent attention (MLA) under model_type {model_type!r}: vLLM takes it for plain attention"
        fix = f'{where}: {key("model_type")} = "deepseek_v3"'
        yield Finding("attention-kind", KIND, ERROR, title, evidence, fix, reports, weight=64)
    elif config.attention == "mla":
        title = f"latent attention (MLA); versions of vLLM that do not list {model_type!r} take it for plain attention"
        yield Finding("attention-kind", KIND, NOTE, title, evidence, reports=reports)
    elif stated and case.checkpoint.has_weights:
        title = "kv_lora_rank is stated, but the tensors are those of ordinary attention"
        fix = f"{where}: leave out {key('kv_lora_rank')}"
        yield Finding("attention-kind", KIND, WARNING, title, evidence, fix, reports)


@check("said-on-opening", KIND, (CKPT,))
def said_on_opening(case: Case) -> Iterable[Finding]:
    """What reading the files gave to say, and no other check says more of."""
    said = [line for line in case.checkpoint.warnings if not any(word in line for word in _SAID_ELSEWHERE)]
    for line in said:
        yield Finding("said-on-opening", KIND, NOTE, line)


_SAID_ELSEWHERE = (
    *("num_hidden_layers", "draft_vocab_size", "tie_word_embeddings", "have no d2t", "is not read: it holds"),
    *("embed_tokens has", "in the file, but", "kv_lora_rank", "is what vLLM reads", "layer ids only under", "head_dim"),
    *("whatever the config says", "was made with a RoPE base"),
)
