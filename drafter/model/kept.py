"""Which of a checkpoint's tensors a wiring reads. A server skips those for which it has no place, and a norm whose
weight it does not find stays at ones.

Values, so that what is built from them is built once. Knows names of tensors, not what they do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch

from drafter.checkpoint.config import DrafterConfig
from drafter.model.projection import Weights
from drafter.wiring import Wiring

_QKV_BIAS = re.compile(r"layers\.0\.self_attn\.(q_proj|k_proj|v_proj|q_a_proj|kv_a_proj_with_mqa)\.bias")
_QK_NORM = re.compile(r"layers\.\d+\.self_attn\.[qk]_norm\.weight")
_FIRST = re.compile(r"layers\.0\.self_attn\.(q_proj|k_proj|v_proj|q_a_proj|kv_a_proj_with_mqa)\.weight")
_GATE = re.compile(r"(layers\.\d+\.mlp\.)(gate|up)(_proj\.\w+)")
_OTHER = {"gate": "up", "up": "gate"}
_UPPER_NORM = re.compile(r"layers\.[1-9]\d*\.input_layernorm\.weight")


@dataclass(frozen=True)
class LayersKept:
    """The optional tensors of the decoder layers, each kept or left out, and the residual."""

    qkv_bias: bool = True
    qk_norm: bool = True
    upper_norms: str = "own"
    residual: str = "kept"
    mlp_gate: str = "gate"
    halves: str = "embedding_first"

    @classmethod
    def of(cls, wiring: Wiring) -> LayersKept:
        norms = (wiring.qkv_bias, wiring.qk_norm, wiring.upper_norms)
        return cls(*norms, wiring.residual, wiring.mlp_gate, wiring.halves)

    def hands_on_residual(self, layer: int, count: int) -> bool:
        """Whether `layer` of `count` adds its residual to what its MLP gives."""
        return self.residual != ("lost_at_end" if layer == count - 1 else "lost_between")

    def weights(self, weights: Weights) -> Weights:
        """`weights` as the layers find them; what is not changed is shared."""
        left = [pattern for pattern, kept in ((_QKV_BIAS, self.qkv_bias), (_QK_NORM, self.qk_norm)) if not kept]
        found = {name: t for name, t in weights.items() if not any(p.fullmatch(name) for p in left)}
        if self.upper_norms == "ones":
            found |= {name: torch.ones_like(t) for name, t in found.items() if _UPPER_NORM.fullmatch(name)}
        if self.mlp_gate == "swapped":
            found = {_GATE.sub(lambda m: f"{m[1]}{_OTHER[m[2]]}{m[3]}", name): t for name, t in found.items()}
        if self.halves == "hidden_first":
            found |= {name: t.roll(t.shape[1] // 2, 1) for name, t in found.items() if _FIRST.fullmatch(name)}
        return found


@dataclass(frozen=True)
class FusionKept:
    """The norms, the bias and `fc` itself, which make one hidden out of the recorded states."""

    norm_before_fc: bool = True
    fc_norm: bool = True
    fc_bias: bool = True
    fc: str = "applied"

    @classmethod
    def of(cls, wiring: Wiring) -> FusionKept:
        return cls(wiring.norm_before_fc, wiring.fc_norm, wiring.fc_bias, wiring.fc)

    def weights(self, weights: Weights) -> Weights:
        return weights if self.fc_bias else {name: t for name, t in weights.items() if name != "fc.bias"}

    def config(self, config: DrafterConfig) -> DrafterConfig:
        """`config` without the norms that are left out."""
        joint, each = config.norm_before_fc and self.norm_before_fc, config.fc_norm and self.fc_norm
        return replace(config, norm_before_fc=joint, fc_norm=each)

    def skips(self, weights: Weights, config: DrafterConfig) -> bool:
        """Whether `fc` is passed by: asked for, and what it takes is as wide as the drafter already."""
        fc = weights.get("fc.weight")
        return self.fc == "skipped" and fc is not None and fc.shape[1] == config.hidden_size
