"""What vLLM computes of a drafter, as 0.33 does it (checkpoints.md 1.6, 2.3, 2.5, 4.7-4.10)."""

from __future__ import annotations

from drafter.serving import views_sglang
from drafter.serving.view_case import CANNOT, Case, Difference

NEWEST = "0.33"
PEAGLE = "peagle"


def residual(case: Case) -> Difference | None:
    stated = case.stated("norm_before_residual")
    parallel = case.stated("speculators_model_type") == PEAGLE
    served = stated is True if stated is not None or not case.nested else not parallel
    said = "says so" if stated is not None else f"lacks the key and vLLM takes {served}"
    why = f"vLLM {NEWEST} honours norm_before_residual, and config.json {said}"
    cure = f"config.json: norm_before_residual = {str(case.trained.norm_before_residual).lower()}"
    return case.differs("norm_before_residual", served, why, cure)


def head(case: Case) -> Difference | None:
    config = case.checkpoint.run_config
    part = case.checkpoint.draft_vocab_size != config.vocab_size
    if case.has("lm_head.weight") or config.tie_lm_head or not part or not case.checkpoint.has_weights:
        return None
    why = f"vLLM {NEWEST} takes the target's whole head where the file has none, not its rows at the mapped ids"
    return Difference("head", "target", "target, all rows", f"{why} (not computed)", views_sglang.cure_of_head(case))


def vocab(case: Case) -> Difference | None:
    whole = case.checkpoint.draft_vocab_size == case.checkpoint.run_config.vocab_size
    if case.reading == "direct ids" and not whole:
        why = f"vLLM {NEWEST} adds d2t to the draft ids, and d2t holds target ids"
        return case.differs("d2t", "offset", why, "weights: d2t = d2t - arange (`fix` writes it so)")
    if case.reading == "direct ids":
        why = f"vLLM {NEWEST} ignores d2t where the draft vocabulary is the whole one"
        return Difference("d2t", "direct", "ignored", why, f"{CANNOT}order the rows of lm_head as the vocabulary")
    return None


def rope(case: Case) -> Difference | None:
    key = "rope_parameters" if case.layer_field("rope_parameters") else "rope_theta and rope_scaling"
    base = case.trained.rope.base
    why = f"vLLM {NEWEST} reads the config's {key}; training used another rotary embedding"
    return case.rope_differs(case.read_rope(), why, f"config.json: rope_theta = {base:.12g} in {key}")


def norm_output(case: Case) -> Difference | None:
    why = f"vLLM {NEWEST} feeds back the state after the final norm exactly where norm_output is true"
    cure = f"config.json: norm_output = {str(case.trained.norm_output).lower()}"
    return case.differs("norm_output", case.stated("norm_output") is True, why, cure)


def norm_before_fc(case: Case) -> Difference | None:
    if not case.checkpoint.run_config.norm_before_fc:
        return None
    stated = case.stated("eagle_config.norm_before_fc", "norm_before_fc") is True
    why = f"vLLM {NEWEST} applies input_norm only where the config says norm_before_fc"
    return case.differs("norm_before_fc", stated, why, "config.json: norm_before_fc = true")


def fc_norm(case: Case) -> Difference | None:
    if not case.checkpoint.run_config.fc_norm:
        return None
    why = f"vLLM {NEWEST} applies fc_norm only where the config says so"
    return case.differs("fc_norm", case.stated("fc_norm") is True, why, "config.json: fc_norm = true")


def fc_bias(case: Case) -> Difference | None:
    if not case.has("fc.bias"):
        return None
    return case.differs("fc_bias", False, f"vLLM {NEWEST} makes fc without bias", f"{CANNOT}train fc without bias")


def qkv_bias(case: Case) -> Difference | None:
    if not case.has_any(r"layers\.0\.self_attn\.[qkv]_proj\.bias"):
        return None
    why = f"vLLM {NEWEST} gives q, k and v a bias only where attention_bias is true"
    stated = case.layer_field("attention_bias") is True
    return case.differs("qkv_bias", stated, why, "config.json: attention_bias = true")


def qk_norm(case: Case) -> Difference | None:
    if not case.has_any(r"layers\.\d+\.self_attn\.[qk]_norm\.weight"):
        return None
    names = [case.layer_field("model_type"), *(case.stated("architectures") or [])]
    qwen = any("qwen3" in str(name).lower() for name in names)
    why = f"vLLM {NEWEST} norms q and k only in its qwen3 drafter"
    return case.differs(
        "qk_norm", qwen, why, "config.json: architectures = [Eagle3Qwen3ForCausalLM], model_type = qwen3"
    )


def upper_norms(case: Case) -> Difference | None:
    if case.upper_norms() != {"hidden_norm"}:
        return None
    why = f"vLLM {NEWEST} reads input_layernorm on layers above the first; the file has hidden_norm only"
    return case.differs("upper_norms", "ones", why, "weights: rename layers.N.hidden_norm to layers.N.input_layernorm")


def positions(case: Case) -> Difference | None:
    cure = f"{CANNOT}patch the server, or train with positions that advance"
    return case.differs("positions", "advance", "every server advances positions by one a step", cure)


def window(case: Case) -> Difference | None:
    if case.checkpoint.run_config.sliding_window is None:
        return None
    types = case.layer_field("layer_types")
    windowed = isinstance(types, list) and "sliding_attention" in types
    why = f"vLLM {NEWEST} moves the sliding window on with each draft; training counts it from the row"
    if not windowed:
        why = f"vLLM {NEWEST} gives a layer a sliding window where layer_types says so, and config.json does not"
    return case.differs("window", "moving" if windowed else "none", why, f"{CANNOT}shorter texts are not touched by it")


RULES = (
    residual,
    rope,
    head,
    vocab,
    norm_before_fc,
    fc_norm,
    fc_bias,
    qkv_bias,
    qk_norm,
    upper_norms,
    views_sglang.double_norm,
    views_sglang.final_norm,
    norm_output,
    positions,
    window,
)


def layers(case: Case) -> str:
    stated, held = case.layer_field("num_hidden_layers"), case.checkpoint.run_config.num_layers
    return f"the config says {stated} layers, the weights have {held}" if type(stated) is int and stated > held else ""


REFUSALS = (layers,)
NOTES = ()
