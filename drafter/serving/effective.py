"""What a server really does with the flags it was given: the numbers of a round, and every silent change.

The rules of each engine are in `sglang_flags` and `vllm_flags`. Knows no checkpoint file: the drafter comes as facts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CHANGED, REFUSED, WRONG, NOTE = "changed", "refused", "wrong", "note"
SEVERITY = (REFUSED, WRONG, CHANGED, NOTE)


@dataclass(frozen=True)
class DrafterFacts:
    """What the rules need to know of a drafter; the defaults say that nothing is known.

    fc_inputs: how many states of the target `fc` takes. speculative_tokens: what a speculators config proposes.
    target_architecture: the target's class, "" where unknown.
    """

    is_eagle3: bool | None = None
    fc_inputs: int | None = None
    dialect: str = ""
    architecture: str = ""
    parallel: bool = False
    speculative_tokens: int | None = None
    n_predict: int | None = None
    target_architecture: str = ""


UNKNOWN = DrafterFacts()


@dataclass(frozen=True)
class Override:
    """One thing that is not as asked. `kind`: changed (silently or with a warning in the log), refused (the server
    does not start), wrong (it runs, and the drafter is fed or used wrongly), note (as asked, but worth knowing).

    `source` names where the rule stands and the versions that have it. `cure` are the flags to write, where it is known
    what was meant.
    """

    what: str
    asked: str
    effective: str
    why: str
    source: str
    kind: str = CHANGED
    cure: str = ""


def shown(value: object) -> str:
    """A flag's value for people."""
    return "not given" if value is None else str(value)


@dataclass(frozen=True)
class Effective:
    """What a round is. None where a refusal, or a missing flag, leaves it open.

    steps: draft steps one after another. topk: branches of each step (1: a chain). draft_tokens: T of SGLang, K of
    vLLM, in the engine's own counting. drafted: tokens proposed to the target. verified: tokens that the target
    computes for them, the root included. max_accept_length: with the bonus token. tree_nodes: candidates of a tree.
    `varies`: the numbers move at run time, and these are the largest. `conversion`: the same for the other engine.
    """

    server: str
    algorithm: str
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    drafted: int | None = None
    verified: int | None = None
    max_accept_length: int | None = None
    tree_nodes: int | None = None
    varies: bool = False
    overrides: tuple[Override, ...] = ()
    conversion: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def refused(self) -> bool:
        return any(override.kind == REFUSED for override in self.overrides)

    @property
    def wrong(self) -> tuple[Override, ...]:
        return tuple(override for override in self.overrides if override.kind == WRONG)


def effective_json(effective: Effective) -> dict[str, Any]:
    names = ("server", "algorithm", "steps", "topk", "draft_tokens", "drafted", "verified", "max_accept_length")
    return {
        **{name: getattr(effective, name) for name in (*names, "tree_nodes", "varies", "refused", "conversion")},
        "overrides": [
            {name: getattr(o, name) for name in ("kind", "what", "asked", "effective", "why", "source")}
            for o in effective.overrides
        ],
        "notes": list(effective.notes),
    }
