"""What a server leaves out of a drafter's function, however right its layer ids are (checkpoints.md 4.7, 4.10)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.serving.server import SGLANG, TRTLLM, Server


@dataclass(frozen=True)
class Gap:
    """`until`: the first version that computes it; None: none of those read does."""

    servers: tuple[str, ...]
    until: str | None
    concerns: Callable[[Checkpoint], bool]
    text: str


_NORM_ABOVE = re.compile(r"(.*\.)?layers\.[1-9]\d*\.input_layernorm\.weight")


def _has(*ends: str) -> Callable[[Checkpoint], bool]:
    return lambda checkpoint: any(name.endswith(ends) for name in checkpoint.tensors)


GAPS = (
    Gap((SGLANG, TRTLLM), None, lambda c: c.run_config.norm_before_residual, "has no norm_before_residual"),
    Gap((SGLANG,), None, _has("q_proj.bias"), "adds no bias to q, k and v (attention_bias)"),
    Gap((SGLANG,), None, _has("q_norm.weight"), "leaves out q_norm and k_norm"),
    Gap((SGLANG,), None, _has("embed_tokens.weight"), "takes the target's embedding, not the drafter's own"),
    Gap(
        (SGLANG, TRTLLM),
        None,
        lambda c: any(_NORM_ABOVE.fullmatch(tensor.name) for tensor in c.tensors.values()),
        "reads hidden_norm on layers above the first, leaves it at ones and skips input_layernorm",
    ),
    Gap((SGLANG,), "0.5.12", lambda c: c.run_config.fc_norm, "leaves out fc_norm"),
    Gap((SGLANG,), "0.5.12", lambda c: c.run_config.norm_output, "feeds back the state before the norm (norm_output)"),
    Gap((SGLANG,), "0.5.12", lambda c: c.run_config.num_layers > 1, "runs one layer only"),
    Gap((SGLANG,), "0.5.12", lambda c: c.run_config.attention == "mla", "has no MLA drafter"),
    Gap((SGLANG,), "0.5.17", lambda c: c.run_config.norm_before_fc, "leaves out input_norm (norm_before_fc)"),
)  # fmt: skip


def unserved(checkpoint: Checkpoint, server: Server) -> list[str]:
    """One line for each part of the drafter that `server` computes otherwise."""
    return [
        f"whatever the layer ids, this server {gap.text}"
        for gap in GAPS
        if server.name in gap.servers and (gap.until is None or server.before(gap.until)) and gap.concerns(checkpoint)
    ]
