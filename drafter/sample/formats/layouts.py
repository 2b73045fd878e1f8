"""The claims that a layout itself makes about its slots: a depth, the verifier's last state, or only a name.

Whether they are believed is a matter of `drafter.sample.claims`.
"""

from __future__ import annotations

from typing import Any

from drafter.sample.sample import Claim

EMBED, LAST = "embed", "last"
MAX_NAME = 24  # characters of a name that stands as a label
DEFAULT_AUX = "2, L//2, L-3"  # depths that ModelOpt, TensorRT-LLM, NeMo, TorchSpec and speculators >= 0.5 record


def last_layout(source: str, norm: str = "", *, assumed: bool = False) -> Claim:
    return Claim(LAST, source, is_last=True, norm=norm, assumed=assumed)


def depth_layout(depth: int, source: str) -> Claim:
    return Claim(EMBED if depth == 0 else str(depth), source, depth)


def name_layout(name: Any, source: str) -> Claim | None:
    """The label that `name` gives; `embed` and `last` mean what they mean in --slots, and no number is a depth."""
    if not isinstance(name, str) or len(name) > MAX_NAME or not (name.isascii() and name.isidentifier()):
        return None
    if name == LAST:
        return last_layout(source)
    return depth_layout(0, source) if name == EMBED else Claim(name, source)
