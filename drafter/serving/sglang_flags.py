"""SGLang's rules for speculative flags, by version (checkpoints.md 6.1; the sources named are SGLang's own files).

S steps, K branches, T draft tokens. T counts the root, the last token that the target itself gave: with K = 1 a chain
of S drafts is T = S + 1 tokens to verify. The accept length counts the bonus token, so it ends at min(S + 1, T).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from drafter.serving.effective import CHANGED, NOTE, REFUSED, SEVERITY, WRONG, DrafterFacts, Effective, Override, shown
from drafter.serving.flags import SPEC_V2, Asked
from drafter.serving.rules import Ruled, ruled
from drafter.serving.server import Server

Triple = tuple[int, int, int]
_ARGS, _HOOK = "server_args.py", "arg_groups/speculative_hook.py"
# where the rules stand, by version read
_PLACE = {
    "0.4.6.post5": _ARGS, "0.5.2": _ARGS, "0.5.6": _ARGS, "0.5.9": _ARGS, "0.5.11": _ARGS,
    "0.5.14": _HOOK, "0.5.23": _HOOK,
}  # fmt: skip
_CLAMP = dict.fromkeys(_PLACE, True)
_WIDE, _CHAIN = (5, 4, 8), (3, 1, 4)
_OLD_CHAINS = frozenset({"DeepseekV3ForCausalLM", "DeepseekV2ForCausalLM", "GptOssForCausalLM"})
_LATER_CHAINS = _OLD_CHAINS | {"DeepseekV32ForCausalLM", "BailingMoeForCausalLM", "BailingMoeV2ForCausalLM"}
# targets that get (3, 1, 4) by name, and what all others but Llama and Grok get
_AUTO: dict[str, tuple[frozenset[str], Triple]] = {
    "0.4.6.post5": (frozenset(), _WIDE),
    "0.5.2": (_OLD_CHAINS, _WIDE),
    "0.5.6": (_LATER_CHAINS, _WIDE),
    "0.5.9": (_LATER_CHAINS, _CHAIN),
    "0.5.23": (_LATER_CHAINS, _CHAIN),
}
_AUTO_WIDE = frozenset({"LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM"})
_EAGLE3 = "--speculative-algorithm EAGLE3"
_USUAL_STEPS = 3  # of the chain that servers choose by themselves
_ONE_BRANCH = "one branch"  # 0.4.6 lowered K where later versions refuse
_PAGED: dict[str, str | frozenset[str]] = {
    "0.4.6.post5": _ONE_BRANCH,
    "0.5.2": frozenset({"flashinfer"}),
    "0.5.6": frozenset({"flashinfer", "fa3"}),
    "0.5.9": frozenset({"flashinfer", "fa3"}),
    "0.5.11": frozenset({"flashinfer", "fa3"}),
    "0.5.14": frozenset({"flashinfer", "fa3", "triton"}),
    "0.5.23": frozenset({"flashinfer", "fa3", "triton"}),
}
_NO_V2, _EAGLE_V2, _REFUSES, _FALLS_BACK, _ALWAYS = "none", "EAGLE only", "refuses", "falls back", "always"
_SPEC_V2 = {
    "0.4.6.post5": _NO_V2, "0.5.2": _NO_V2, "0.5.6": _EAGLE_V2, "0.5.9": _REFUSES, "0.5.11": _FALLS_BACK,
    "0.5.14": _ALWAYS, "0.5.23": _ALWAYS,
}  # fmt: skip
# (steps that adaptive mode starts with where none are given; None: those of a static server), its largest
_ADAPTIVE: dict[str, tuple[int | None, int] | None] = {
    "0.4.6.post5": None, "0.5.2": None, "0.5.6": None, "0.5.9": None, "0.5.11": (None, 7),
    "0.5.14": (3, 7), "0.5.23": (3, 7),
}  # fmt: skip
_TRTLLM_MHA = {"0.4.6.post5": False, **dict.fromkeys(list(_PLACE)[1:], True)}


@dataclass
class _Round:
    """The flags on their way through a server's rules, in the order in which it applies them."""

    asked: Asked
    server: Server
    drafter: DrafterFacts
    algorithm: str = ""
    steps: int | None = None
    topk: int | None = None
    tokens: int | None = None
    largest: int | None = None  # steps that adaptive mode may rise to
    overrides: list[Override] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say(
        self, kind: str, what: str, asked: object, effective: object, why: str, source: str = "", cure: str = ""
    ) -> None:
        source = source or self.place.words
        self.overrides.append(Override(what, shown(asked), shown(effective), why, source, kind, cure))

    @property
    def place(self) -> Ruled[str]:
        found = ruled(self.server, _PLACE)
        return replace(found, words=f"{found.value}, {found.words}")

    def source(self, rule: Ruled[object]) -> str:
        return f"{self.place.value}, {rule.words}"


def effective_sglang(asked: Asked, server: Server, drafter: DrafterFacts) -> Effective:
    """What SGLang of `server`'s version makes of `asked`. Refusals are overrides of that kind, never exceptions."""
    state = _Round(asked, server, drafter, steps=asked.steps, topk=asked.topk, tokens=asked.draft_tokens)
    for rule in (_algorithm, _draft_model, _adaptive, _auto, _spec_v2, _branches, _pages, _clamp, _tree, _beside):
        rule(state)
    if server.unread:
        state.notes.insert(0, server.unread)
    return _result(state)


def _algorithm(state: _Round) -> None:
    asked = state.asked.algorithm
    if asked is None:
        state.algorithm = "none"
        why = "without --speculative-algorithm the server drafts nothing, whatever the other flags say"
        return state.say(WRONG, "algorithm", None, "none", why, cure=_EAGLE3)
    state.algorithm = asked.upper() if not state.server.before("0.5.14") else asked
    if state.algorithm == "NEXTN":
        state.algorithm = "EAGLE"
        state.say(CHANGED, "algorithm", asked, "EAGLE", "NEXTN is another name of EAGLE")
    facts = state.drafter
    if state.algorithm == "EAGLE" and (facts.is_eagle3 or (facts.fc_inputs or 0) > 1):
        takes = f"the {facts.fc_inputs} states" if facts.fc_inputs else "the states"
        why = (
            f"the head is EAGLE-3: under EAGLE it is fed one state instead of {takes} that fc takes, fc is skipped "
            "without a word, and the accept length is 1.00; write EAGLE3"
        )
        state.say(WRONG, "algorithm", asked, "EAGLE", why, "sgl-project/sglang#21272", _EAGLE3)
    elif state.algorithm not in ("EAGLE", "EAGLE3"):
        state.notes.append(f"the algorithm {asked} is not one of those whose rules were read (EAGLE, EAGLE3)")
    if facts.parallel:
        why = "the drafter is P-EAGLE (all depths in one pass), which no version read has"
        state.say(REFUSED, "algorithm", asked, "none", why, "sgl-project/sglang#27498")


def _draft_model(state: _Round) -> None:
    if state.asked.algorithm is not None and state.asked.draft_model is None and state.algorithm == "EAGLE3":
        why = "without --speculative-draft-model-path there is no drafter: some servers load the target as one"
        cure = "--speculative-draft-model-path DRAFTER"
        state.say(WRONG, "draft model", None, "none", why, "sgl-project/sglang#36528", cure)


def _adaptive(state: _Round) -> None:
    if not state.asked.adaptive:
        return
    rule = ruled(state.server, _ADAPTIVE)
    source = state.source(rule)
    if rule.value is None:
        return state.say(REFUSED, "adaptive", "on", "none", "this version has no --speculative-adaptive", source)
    if state.topk not in (None, 1):
        why = "adaptive mode takes topk 1 only: the server falls back to fixed numbers, with a warning"
        return state.say(CHANGED, "adaptive", "on", "off", why, source)
    start, state.largest = rule.value
    if start is not None:
        state.topk = 1
        if state.steps is None:
            state.steps = start
            state.say(CHANGED, "steps", None, start, "adaptive mode's own start", source)
        if state.tokens != state.steps + 1:
            why = "adaptive mode sets T = S + 1"
            state.say(CHANGED, "draft tokens", state.tokens, state.steps + 1, why, source)
            state.tokens = state.steps + 1
    state.notes.append(
        f"adaptive mode moves the steps at run time, up to {state.largest} with its default config; "
        "the numbers shown are those of the start"
    )


def _auto(state: _Round) -> None:
    if state.steps is not None or state.asked.algorithm is None:
        return
    if state.topk is not None or state.tokens is not None:
        given = "--speculative-eagle-topk" if state.topk is not None else "--speculative-num-draft-tokens"
        why = f"without --speculative-num-steps the server chooses all three itself, and stops at {given}"
        return state.say(REFUSED, "steps", None, "none", why)
    rule = ruled(state.server, _AUTO)
    chains, others = rule.value
    target = state.drafter.target_architecture
    chosen = _WIDE if target in _AUTO_WIDE else _CHAIN if target in chains else others
    why = f"chosen by the server for the target {target}" if target else "chosen by the server"
    if state.algorithm == "STANDALONE":
        chosen = _CHAIN
    elif not target and others != _WIDE:
        why += f"; the target is not known, Llama and Grok get {_commas(_WIDE)}"
    elif not target and chains:
        why += f"; the target is not known, DeepSeek, gpt-oss and a few more get {_commas(_CHAIN)}"
    state.steps, state.topk, state.tokens = chosen
    state.say(CHANGED, "steps, topk, draft tokens", None, _commas(chosen), why, state.source(rule))


def _commas(triple: Triple) -> str:
    return ", ".join(map(str, triple))


def _spec_v2(state: _Round) -> None:
    rule = ruled(state.server, _SPEC_V2)
    source, branches = state.source(rule), state.topk
    if state.asked.spec_v2 is not None and rule.value == _ALWAYS:
        state.notes.append(f"{SPEC_V2} is gone from this version: Spec-v2 always runs")
    if branches is None or branches <= 1:
        return
    if rule.value == _REFUSES and state.asked.spec_v2:
        state.say(REFUSED, "topk", branches, "none", f"Spec-v2 ({SPEC_V2}) takes topk 1 only", source)
    elif rule.value == _FALLS_BACK:
        why = "Spec-v2 takes topk 1 only: this tree runs under Spec-v1, without the overlap schedule"
        state.say(NOTE, "overlap schedule", "on", "off", why, source)


def _branches(state: _Round) -> None:
    if state.topk is None and state.steps is not None:
        why = "--speculative-eagle-topk has no default once the steps are given: the server compares None and stops"
        if state.server.before("0.5.2"):
            why = "--speculative-eagle-topk has no default once the steps are given"
        return state.say(REFUSED, "topk", None, "none", why)
    rule = ruled(state.server, _TRTLLM_MHA)
    backends = (state.asked.attention_backend, state.asked.decode_backend, state.asked.prefill_backend)
    if rule.value and (state.topk or 0) > 1 and "trtllm_mha" in backends:
        why = "the attention backend trtllm_mha takes topk 1 only"
        state.say(REFUSED, "topk", state.topk, "none", why, state.source(rule))


def _pages(state: _Round) -> None:
    if (state.topk or 0) <= 1:
        return
    rule = ruled(state.server, _PAGED)
    source, page, backend = state.source(rule), state.asked.page_size, state.asked.attention_backend
    if page is None:
        state.notes.append("no --page-size given: 1 is assumed; some attention backends raise it")
    elif page == 1:
        return
    elif isinstance(rule.value, str):
        state.say(CHANGED, "topk", state.topk, 1, f"page size {page}: this version lowers topk to 1", source)
        state.topk = 1
    else:
        names = ", ".join(sorted(rule.value))
        if backend is None:
            state.notes.append(f"topk > 1 with page size {page} runs on {names} only; no attention backend is given")
        elif backend not in rule.value:
            why = f"topk > 1 with page size {page} runs on {names} only, not on {backend}"
            state.say(REFUSED, "topk", state.topk, "none", why, source)


def _clamp(state: _Round) -> None:
    if state.topk != 1 or state.steps is None or state.tokens == state.steps + 1:
        return
    why = (
        f"with topk 1 the server sets T = S + 1, so {state.steps} draft(s) a round; its log only says "
        "'speculative_num_draft_tokens is adjusted to speculative_num_steps + 1'"
    )
    rule = ruled(state.server, _CLAMP)
    source = f"{state.source(rule)} (all versions read, {next(iter(_PLACE))} to {list(_PLACE)[-1]})"
    state.say(CHANGED, "draft tokens", state.tokens, state.steps + 1, why, source, _chain_meant(state))
    state.tokens = state.steps + 1


def _chain_meant(state: _Round) -> str:
    """Flags of a chain that is as deep as the draft tokens ask for, at most as deep as is usual; the steps stay where
    they are no fewer."""
    wanted = (state.tokens or 0) - 1  # drafts, without the root
    steps = max(state.steps or 0, min(wanted, _USUAL_STEPS))
    return f"--speculative-num-steps {steps} --speculative-num-draft-tokens {steps + 1}"


def _tree(state: _Round) -> None:
    if (state.topk or 0) <= 1 or state.steps is None:
        return
    if state.tokens is None:
        why = "a tree needs --speculative-num-draft-tokens: with topk > 1 nothing sets it"
        return state.say(REFUSED, "draft tokens", None, "none", why)
    nodes = tree_nodes(state.steps, state.topk or 0)
    if state.tokens - 1 > nodes:
        why = (
            f"T - 1 = {state.tokens - 1} nodes are taken out of K + (S - 1) K^2 = {nodes} candidates: not reachable, "
            "the selection fails"
        )
        state.say(WRONG, "draft tokens", state.tokens, nodes + 1, why, "speculative/eagle_utils.py, all versions read")
    if state.tokens - 1 < state.steps:
        why = f"{state.tokens - 1} nodes cannot hold a path of {state.steps}: the deeper steps are drafted in vain"
        state.say(NOTE, "depth", state.steps, state.tokens - 1, why, "follows from T - 1 nodes")


def tree_nodes(steps: int, topk: int) -> int:
    """Candidates of a draft tree: K after the first step, K for each of the K kept ones after every other."""
    return topk + (steps - 1) * topk * topk


def _beside(state: _Round) -> None:
    asked = state.asked
    if asked.algorithm is None:
        return
    if asked.max_running_requests is None:
        state.say(NOTE, "max running requests", None, 48, "speculative decoding lowers the default")
    if asked.token_map is not None and state.algorithm == "EAGLE3":
        state.say(CHANGED, "token map", asked.token_map, "none", "EAGLE3 has its own map: ignored with a warning")
    if asked.quantization is not None and asked.draft_quantization is None:
        why = "the drafter is quantised like the target unless --speculative-draft-model-quantization says unquant"
        state.say(NOTE, "draft quantisation", None, asked.quantization, why)


def _result(state: _Round) -> Effective:
    steps, topk, tokens = state.steps, state.topk, state.tokens
    refused = any(override.kind == REFUSED for override in state.overrides)
    ordered = sorted(state.overrides, key=lambda override: SEVERITY.index(override.kind))
    made = Effective(
        server=str(state.server),
        algorithm=state.algorithm,
        overrides=tuple(ordered),
        notes=(*state.asked.notes, *state.notes),
        varies=state.largest is not None,
    )
    if refused or state.algorithm == "none" or steps is None or topk is None or tokens is None:
        return made
    nodes = tree_nodes(steps, topk)
    tokens = min(tokens, nodes + 1)
    longest = min(steps, tokens - 1) + 1 if state.largest is None else max(steps, state.largest) + 1
    return replace(
        made,
        steps=steps,
        topk=topk,
        draft_tokens=tokens,
        drafted=tokens - 1,
        verified=tokens,
        max_accept_length=longest,
        tree_nodes=nodes if topk > 1 else None,
        conversion=_conversion(steps, topk, tokens),
    )


def _conversion(steps: int, topk: int, tokens: int) -> str:
    if topk > 1:
        return (
            f"SGLang's {tokens} draft tokens count the root: {tokens - 1} drafts in a tree of {steps} steps; vLLM "
            "drafts chains only, no number of speculative tokens is the same"
        )
    return (
        f"SGLang's {tokens} draft tokens count the root: {steps} draft(s) a round; vLLM counts drafts only, the same "
        f"there is num_speculative_tokens {steps}"
    )
