"""What SGLang computes of a drafter, version by version (checkpoints.md 2.3, 2.5, 4.4-4.10)."""

from __future__ import annotations

from drafter.checkpoint.config import Rope
from drafter.serving.layer_ids import sglang_limit
from drafter.serving.view_case import CANNOT, Case, Difference

NEWEST = "0.5.23"  # what was read last; what holds "to" it may change after
V2 = "0.5.12"  # EAGLE-3.1, several layers, any number of states, latent attention, right positions
ROPE_PARAMETERS = "0.5.10"
NORM_BEFORE_FC = "0.5.17"
_PATCH = f"{CANNOT}patch the server, serve with vLLM"


def residual(case: Case) -> Difference | None:
    why = f"SGLang to {NEWEST} has no norm_before_residual: the residual is always fc's raw output"
    return case.differs("norm_before_residual", False, why, f"{_PATCH}, or retrain with norm_before_residual false")


def embedding(case: Case) -> Difference | None:
    own, config = case.has("embed_tokens.weight"), case.checkpoint.run_config
    if not own or config.target_hidden_size != config.hidden_size:
        return None
    why = f"SGLang to {NEWEST} puts the target's embedding in the place of the drafter's own"
    cure = f"{CANNOT}train with the target's embedding frozen, or serve with vLLM"
    if case.target is None or case.target.embed is None:
        return Difference("embedding", "own", "target", f"{why} (not computed: no target folder that has one)", cure)
    return case.differs("embedding", "target", why, cure)


def head(case: Case) -> Difference | None:
    if not case.has("lm_head.weight"):
        return head_of_nobody(case)
    if case.stated("tie_word_embeddings") is True:
        why = f"SGLang to {NEWEST} takes the embedding's first rows as lm_head where tie_word_embeddings is true"
        return case.differs("head", "tied", why, "config.json: tie_word_embeddings = false")
    if case.stated("draft_vocab_size") is not None:
        return None
    why = f"SGLang to {NEWEST} takes the target's lm_head where draft_vocab_size is absent"
    cure = f"config.json: draft_vocab_size = {case.checkpoint.draft_vocab_size}"
    if case.target is None or case.target.head is None:
        return Difference("head", "own", "target", f"{why} (not computed: no target folder that has one)", cure)
    return case.differs("head", "target", why, cure)


def head_of_nobody(case: Case) -> Difference | None:
    """Without lm_head: the target's is taken only where draft_vocab_size is absent, and then as a whole."""
    rows, vocab_size = case.checkpoint.draft_vocab_size, case.checkpoint.run_config.vocab_size
    if case.checkpoint.run_config.tie_lm_head or not case.checkpoint.has_weights:
        return None
    stated, part = case.stated("draft_vocab_size") is not None, rows != vocab_size
    if not stated and not part:
        return None
    served = "random" if stated else "target, all rows"
    why = (
        f"SGLang to {NEWEST} makes a head of {rows} rows where draft_vocab_size is stated, and no lm_head fills it"
        if stated
        else f"SGLang to {NEWEST} takes the target's whole head, not its rows at the mapped ids"
    )
    cure = cure_of_head(case) if part else "config.json: leave draft_vocab_size out"
    return Difference("head", "target", served, f"{why} (not computed)", cure)


def cure_of_head(case: Case) -> str:
    rows, width = case.checkpoint.draft_vocab_size, case.checkpoint.run_config.hidden_size
    return f"weights: lm_head.weight = the target's rows at arange({rows}) + d2t, [{rows}, {width}]"


def vocab(case: Case) -> Difference | None:
    if case.reading not in ("direct ids", "identity"):
        return None
    why = f"SGLang to {NEWEST} adds d2t to the draft ids, and d2t holds no offsets"
    return case.differs("d2t", "offset", why, "weights: d2t = d2t - arange (`fix` writes it so)")


def rope(case: Case) -> Difference | None:
    old = case.server.before(ROPE_PARAMETERS)
    served = case.read_rope(("rope_parameters",) if old else ())
    new = case.read_rope()
    if old and served != new:
        why = (
            f"SGLang before {ROPE_PARAMETERS} reads only the top-level rope_theta and rope_scaling, not rope_parameters"
        )
        return case.rope_differs(served, why, _write_rope(case.trained.rope))
    why = f"SGLang reads the config's {_where(case, old)}; training used another rotary embedding"
    return case.rope_differs(served, why, _write_rope(case.trained.rope))


def _where(case: Case, old: bool) -> str:
    return "rope_parameters" if not old and case.stated("rope_parameters") else "rope_theta and rope_scaling"


def _write_rope(rope: Rope) -> str:
    scaling = "null" if rope.type == "default" else {**dict(rope.parameters), "rope_type": rope.type}
    return f"config.json: rope_theta = {rope.base:.12g}, rope_scaling = {scaling}"


def norm_output(case: Case) -> Difference | None:
    stated = case.stated("norm_output") is True
    if case.server.before(V2):
        why = f"SGLang before {V2} feeds the state before the final norm to the next step"
        return case.differs("norm_output", False, why, f"{CANNOT}serve with SGLang {V2} or later")
    why = f"SGLang from {V2} on feeds back the state after the final norm exactly where norm_output is true"
    cure = f"config.json: norm_output = {str(case.trained.norm_output).lower()}"
    return case.differs("norm_output", stated, why, cure)


def final_norm(case: Case) -> Difference | None:
    lost = {} if case.has("norm.weight") else {"lost_norm": "ones"}
    why = "every server norms the last state before lm_head" + (
        ", with ones where the file has no norm" if lost else ""
    )
    return case.differs("final_norm", True, why, f"{CANNOT}train with the final norm", **lost)


def double_norm(case: Case) -> Difference | None:
    why = "every server norms the hidden once (hidden_norm); ModelOpt trained it through input_layernorm first"
    return case.differs("double_norm", False, why, f"{CANNOT}retrain, or patch the server")


def norm_before_fc(case: Case) -> Difference | None:
    stated = case.stated("eagle_config.norm_before_fc", "norm_before_fc") is True
    if not case.checkpoint.run_config.norm_before_fc:
        return None
    if case.checkpoint.run_config.attention == "mla":
        why = f"SGLang's drafter with latent attention has no norm_before_fc (to {NEWEST})"
        return case.differs("norm_before_fc", False, why, _PATCH)
    if case.server.before(NORM_BEFORE_FC):
        why = f"SGLang up to 0.5.14 skips input_norm (norm_before_fc); {NORM_BEFORE_FC} applies it"
        return case.differs("norm_before_fc", False, why, f"{CANNOT}serve with SGLang {NORM_BEFORE_FC} or later")
    why = f"SGLang from {NORM_BEFORE_FC} on applies input_norm only where the config says so"
    return case.differs("norm_before_fc", stated, why, "config.json: eagle_config.norm_before_fc = true")


def fc_norm(case: Case) -> Difference | None:
    if not case.checkpoint.run_config.fc_norm:
        return None
    if case.server.before(V2):
        why = f"SGLang before {V2} skips the norms of the single states (fc_norm)"
        return case.differs("fc_norm", False, why, f"{CANNOT}serve with SGLang {V2} or later")
    stated = case.stated("fc_norm", "use_aux_norm") is True
    why = f"SGLang from {V2} on applies fc_norm only where the config says so"
    return case.differs("fc_norm", stated, why, "config.json: fc_norm = true")


def fc_bias(case: Case) -> Difference | None:
    if not case.has("fc.bias"):
        return None
    why = f"SGLang to {NEWEST} gives fc a bias only where the config says bias: true"
    return case.differs("fc_bias", case.stated("bias") is True, why, "config.json: bias = true")


def fc_skipped(case: Case) -> Difference | None:
    fc = case.checkpoint.tensors.get("fc.weight")
    if not case.use_aux or fc is None or fc.shape[1] != case.checkpoint.run_config.hidden_size:
        return None
    why = (
        f"SGLang to {NEWEST} applies fc only where its input is wider than the drafter: one state of its width skips it"
    )
    return case.differs("fc", "skipped", why, _PATCH)


def qkv_bias(case: Case) -> Difference | None:
    if not case.has_any(r"layers\.0\.self_attn\.(q|k|v|q_a)_proj\.bias|layers\.0\.self_attn\.kv_a_proj_with_mqa\.bias"):
        return None
    why = f"SGLang to {NEWEST} makes the first layer's q, k and v without bias, whatever attention_bias says"
    return case.differs("qkv_bias", False, why, f"{_PATCH}, or train with attention_bias false")


def qk_norm(case: Case) -> Difference | None:
    if not case.has_any(r"layers\.\d+\.self_attn\.[qk]_norm\.weight"):
        return None
    why = f"SGLang to {NEWEST} has no drafter with norms of q and k: their weights are skipped"
    return case.differs("qk_norm", False, why, f"{_PATCH}, or train a Llama layer")


def upper_norms(case: Case) -> Difference | None:
    if "input_layernorm" not in case.upper_norms():
        return None
    why = f"SGLang to {NEWEST} reads hidden_norm on layers above the first, leaves it at ones and skips input_layernorm"
    return case.differs("upper_norms", "ones", why, "weights: rename layers.N.input_layernorm to layers.N.hidden_norm")


def positions(case: Case) -> Difference | None:
    if case.server.before(V2):
        why = f"SGLang before {V2} stands one position too far from the second draft on (PR #25015)"
        return case.differs("positions", "late", why, f"{CANNOT}serve with SGLang {V2} or later")
    return case.differs("positions", "advance", "every server advances positions by one a step", _PATCH)


def window(case: Case) -> Difference | None:
    if case.checkpoint.run_config.sliding_window is None:
        return None
    why = f"SGLang to {NEWEST} was not seen to give a drafter a sliding window: it sees all"
    return case.differs("window", "none", why, f"{_PATCH}, or train with full attention")


def logit_scale(case: Case) -> Difference | None:
    scale = case.checkpoint.run_config.logit_scale
    if scale == 1.0:
        return None
    why = "SGLang has no logit_scale: probabilities differ (trees), the most probable token does not"
    return Difference("logit_scale", f"{scale:g}", "1", why, _PATCH)


RULES = (
    residual,
    embedding,
    rope,
    head,
    vocab,
    norm_before_fc,
    fc_norm,
    fc_bias,
    fc_skipped,
    qkv_bias,
    qk_norm,
    upper_norms,
    double_norm,
    final_norm,
    norm_output,
    positions,
    window,
    logit_scale,
)


# --- what it would not load


def nested(case: Case) -> str:
    if not case.nested:
        return ""
    return "SGLang reads flat configs, and this is the nested one of speculators: `fix --for sglang` writes a flat one"


def parallel(case: Case) -> str:
    return f"SGLang to {NEWEST} runs no parallel drafter (P-EAGLE)" if case.checkpoint.run_config.parallel else ""


def architecture(case: Case) -> str:
    names = case.stated("architectures")
    named = str(names[0]) if isinstance(names, list) and names else ""
    if case.nested or not named or "eagle" in named.lower():
        return ""
    return (
        f"architectures says {named!r:.60}, the class of a target, which has no fc: write LlamaForCausalLMEagle3 there"
    )


def layers(case: Case) -> str:
    stated, held = case.stated("num_hidden_layers"), case.checkpoint.run_config.num_layers
    count = stated if type(stated) is int else held
    if case.nested:
        return ""
    if count > 1 and case.server.before(V2):
        return f"SGLang before {V2} runs one layer only, the config says {count}"
    return f"the config says {count} layers, the weights have {held}" if count > held else ""


def latent(case: Case) -> str:
    config = case.checkpoint.run_config
    if config.mla is None:
        return ""
    if case.server.before(V2):
        return f"SGLang before {V2} has no drafter with latent attention (MLA)"
    if config.mla.q_lora_rank is None or config.num_layers != 1:
        return "SGLang's drafter with latent attention needs q_lora_rank and exactly one layer"
    return ""


def count(case: Case) -> str:
    return sglang_limit(case.server, case.family, case.checkpoint.fc_inputs) if case.use_aux else ""


def head_rows(case: Case) -> str:
    rows, vocab_size = case.checkpoint.draft_vocab_size, case.checkpoint.run_config.vocab_size
    own = case.has("lm_head.weight") and not case.nested and case.stated("tie_word_embeddings") is not True
    if not own or case.stated("draft_vocab_size") is not None or rows == vocab_size:
        return ""
    return f"without draft_vocab_size SGLang makes a head of {vocab_size} rows, the file has {rows}"


REFUSALS = (nested, architecture, parallel, latent, layers, count, head_rows)


# --- what is assumed


def first_layer_name(case: Case) -> str:
    written = [t.name for name, t in case.checkpoint.tensors.items() if name.startswith("layers.0.")]
    if case.nested or not written or any("midlayer" in name for name in written):
        return ""
    return (
        "the file calls the first layer layers.0, SGLang calls it midlayer: computed as loaded, but a version that "
        "does not map the name leaves the layer at random, without a word"
    )


def partly_read(case: Case) -> str:
    version, config = case.server, case.checkpoint.run_config
    between = not version.before("0.5.14.post1") and version.before(NORM_BEFORE_FC)
    return (
        f"norm_before_fc came between 0.5.14 and {NORM_BEFORE_FC}: taken as not there"
        if (between and config.norm_before_fc)
        else ""
    )


def no_target(case: Case) -> str:
    absent = case.target is None or case.target.embed is None
    wide = case.checkpoint.run_config.target_hidden_size != case.checkpoint.run_config.hidden_size
    if not absent or wide or not case.has("embed_tokens.weight"):
        return ""
    return "SGLang takes the target's embedding, which is not here: computed with the drafter's own (name --target)"


NOTES = (no_target, first_layer_name, partly_read)
