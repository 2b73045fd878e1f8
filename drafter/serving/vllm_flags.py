"""vLLM's rules for a speculative config (checkpoints.md 6.2): chains only, K counts drafts and not the root."""

from __future__ import annotations

from dataclasses import dataclass, field

from drafter.serving.effective import CHANGED, NOTE, REFUSED, SEVERITY, WRONG, DrafterFacts, Effective, Override, shown
from drafter.serving.flags import Asked
from drafter.serving.rules import ruled
from drafter.serving.server import Server

_PLACE = {"0.33.0": "config/speculative.py"}
_EAGLE3 = '--speculative-config: "method": "eagle3"'


@dataclass
class _Config:
    """The config on its way through the rules."""

    asked: Asked
    server: Server
    drafter: DrafterFacts
    method: str = ""
    tokens: int | None = None
    overrides: list[Override] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def say(
        self, kind: str, what: str, asked: object, effective: object, why: str, source: str = "", cure: str = ""
    ) -> None:
        rule = ruled(self.server, _PLACE)
        place = source or f"{rule.value}, {rule.words}"
        self.overrides.append(Override(what, shown(asked), shown(effective), why, place, kind, cure))


def effective_vllm(asked: Asked, server: Server, drafter: DrafterFacts) -> Effective:
    """What vLLM of `server`'s version makes of `asked`. Refusals are overrides of that kind, never exceptions."""
    state = _Config(asked, server, drafter, tokens=asked.speculative_tokens)
    for rule in (_method, _tokens, _divisible, _parallel_size, _beside):
        rule(state)
    if server.unread:
        state.notes.insert(0, server.unread)
    return _result(state)


def _method(state: _Config) -> None:
    asked, path = state.asked.method, (state.asked.draft_model or "").lower()
    facts = state.drafter
    from_config = facts.dialect == "speculators" and facts.is_eagle3
    state.method = asked or _by_path(path) or ("eagle3" if from_config else "draft_model" if path else "")
    if not state.method:
        state.method = "none"
        return state.say(WRONG, "method", None, "none", "neither a method nor a draft model: nothing is drafted")
    if asked is None:
        how = "the path contains " + ("eagle-" if "eagle-" in path else "eagle3")
        if not _by_path(path):
            how = "the speculators config names the algorithm" if from_config else "the path names no method"
        state.say(CHANGED, "method", None, state.method, f"chosen by the server: {how}")
    if state.method == "eagle" and facts.is_eagle3 is not False:
        head = "the head is EAGLE-3" if facts.is_eagle3 else "an EAGLE-3 head"
        why = f"{head} needs method eagle3: as eagle another class is looked for, or fc is fed one state"
        state.say(WRONG if facts.is_eagle3 else NOTE, "method", asked, "eagle", why, "Tencent/AngelSlim#15", _EAGLE3)
    if state.method == "draft_model" and facts.is_eagle3:
        why = "an EAGLE-3 head is no language model of its own: write method eagle3"
        state.say(WRONG, "method", asked, "draft_model", why, cure=_EAGLE3)
    if state.method == "eagle3" and state.asked.draft_model is None and not from_config:
        state.say(REFUSED, "draft model", None, "none", "a number of speculative tokens without a draft model")


def _by_path(path: str) -> str:
    """The method that the draft model's path alone gives; `eagle-` is looked for first, also in `my-eagle-3`."""
    return "eagle" if "eagle-" in path else "eagle3" if "eagle3" in path else ""


def _tokens(state: _Config) -> None:
    facts = state.drafter
    if state.tokens is not None or state.method == "none":
        return
    if facts.n_predict is not None:
        state.tokens = facts.n_predict
        state.say(CHANGED, "speculative tokens", None, facts.n_predict, "n_predict of the drafter's config")
    elif facts.speculative_tokens is not None:
        state.tokens = facts.speculative_tokens
        why = "proposal_methods[0].speculative_tokens of the speculators config"
        state.say(CHANGED, "speculative tokens", None, facts.speculative_tokens, why)
    else:
        why = "num_speculative_tokens is required: only a speculators config or n_predict gives a default"
        state.say(REFUSED, "speculative tokens", None, "none", why)


def _divisible(state: _Config) -> None:
    n = state.drafter.n_predict
    if n and state.tokens is not None and state.tokens > n and state.tokens % n:
        why = f"more tokens than n_predict {n}, and not a multiple of it"
        state.say(REFUSED, "speculative tokens", state.tokens, "none", why)


def _parallel_size(state: _Config) -> None:
    draft, target = state.asked.draft_tp, state.asked.tp or 1
    if draft is not None and draft not in (1, target):
        why = f"the drafter runs on 1 device or on as many as the target ({target})"
        state.say(REFUSED, "draft tensor parallel size", draft, "none", why)


def _beside(state: _Config) -> None:
    if state.drafter.parallel:
        state.notes.append("the drafter is P-EAGLE: all tokens are drafted in one pass (parallel_drafting)")
    if state.asked.old_form:
        state.notes.append(
            "--speculative-model and --num-speculative-tokens are the form before --speculative-config: read as the "
            "same values; from which version on they are refused was not read"
        )


def _result(state: _Config) -> Effective:
    ordered = tuple(sorted(state.overrides, key=lambda override: SEVERITY.index(override.kind)))
    refused = any(override.kind == REFUSED for override in ordered)
    k = None if refused or state.method == "none" else state.tokens
    return Effective(
        server=str(state.server),
        algorithm=state.method,
        steps=k if k is None or not state.drafter.parallel else 1,
        topk=None if k is None else 1,
        draft_tokens=k,
        drafted=k,
        verified=None if k is None else k + 1,
        max_accept_length=None if k is None else k + 1,
        overrides=ordered,
        conversion="" if k is None else _conversion(k),
        notes=(*state.asked.notes, *state.notes),
    )


def _conversion(k: int) -> str:
    return (
        f"vLLM's {k} speculative token(s) are drafts only; SGLang counts the root: the same there is "
        f"--speculative-num-steps {k} --speculative-eagle-topk 1 --speculative-num-draft-tokens {k + 1}"
    )
