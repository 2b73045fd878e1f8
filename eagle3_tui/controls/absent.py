"""Which switches of the wiring change nothing, since the checkpoint lacks what they are about.

Told by the names and shapes of its tensors and by its config; nothing is computed. A switch that is not named here
is taken to apply. Does NOT know the values of a switch, or which of them is in force.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafter.checkpoint.checkpoint import Checkpoint

LACKS = "not in this checkpoint"
_LAYER = r"layers\.\d+\.self_attn\."
_TENSORS = {
    "fc_bias": (r"fc\.bias", "no fc.bias"),
    "qkv_bias": (r"layers\.0\.self_attn\.(q|k|v|q_a|qkv|kv_a)_proj\w*\.bias", "no bias of q, k, v in the first layer"),
    "qk_norm": (rf"{_LAYER}[qk]_norm\.weight", "no q_norm, k_norm"),
    "d2t": (r"d2t|t2d", "no d2t"),
    "fed_ids": (r"d2t|t2d", "no d2t"),
}


def absent_switches(checkpoint: Checkpoint) -> dict[str, str]:
    """The switches that do not apply to this checkpoint, each with the reason."""
    config = checkpoint.run_config
    found = {
        switch: f"{LACKS}: {why}"
        for switch, (pattern, why) in _TENSORS.items()
        if not any(re.fullmatch(pattern, name) for name in checkpoint.tensors)
    }
    unasked = {switch: f"{LACKS}: no {switch} in the config" for switch in ("norm_before_fc", "fc_norm")}
    found |= {switch: why for switch, why in unasked.items() if not getattr(config, switch)}
    idle = {
        "upper_norms": config.num_layers < 2 and "one layer",
        "lost_norm": "norm.weight" in checkpoint.tensors and "the final norm is there",
        "window": config.sliding_window is None and "no sliding window",
        "fc": not _fc_can_be_skipped(checkpoint) and "fc takes more than the drafter is wide",
        "norm_output": config.parallel and "P-EAGLE feeds nothing back",
    }
    idle |= dict.fromkeys(("feedback", "fed_ids"), config.parallel and "P-EAGLE is fed no draft")
    return found | {switch: f"does not apply: {why}" for switch, why in idle.items() if why}


def _fc_can_be_skipped(checkpoint: Checkpoint) -> bool:
    fc = checkpoint.tensors.get("fc.weight")
    return fc is not None and len(fc.shape) == 2 and fc.shape[1] == checkpoint.run_config.hidden_size
