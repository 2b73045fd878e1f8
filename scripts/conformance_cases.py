"""What the conformance scripts share: one set of tiny random weights, and which of them each variant uses.

Each `scripts/conformance_<package>.py` runs one real package (all Apache-2.0) on these, on the CPU, in an environment
of its own, and records its logits in tests/data/<package>_tiny; `tests/test_reference.py` holds the reference to them.
Neither the project nor its tests need a package. A variant is described twice: by what a package is told, and by the
switches that the reference takes for it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.reference import Latent, Rope
from tests.tiny import SIZES, Sizes, TinySample, tiny_sample, tiny_weights

STEPS = 4
SEED = 11
TOKENS = 15
# heads of another size than H / nh
BASE = replace(SIZES, head_dim=10)
LATENT = Latent(nope=6, rope=4, value=5, kv_rank=12)
OPTIONAL = ("input_norm.", "fc_norm.", "_proj.bias", "q_norm.", "k_norm.", "layers.1.", "mask_hidden")


@dataclass(frozen=True)
class Case:
    """`has`: the optional tensors, by parts of their names. `top`, `layer`: config fields of the drafter and of its
    decoder layer. `switches`: what the reference is told.
    """

    has: tuple[str, ...] = ()
    states: int = 3
    top: Mapping[str, Any] = field(default_factory=dict)
    layer: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    latent: bool = False
    query_rank: int | None = None

    @property
    def sizes(self) -> Sizes:
        layers = 2 if "layers.1." in self.has else 1
        sizes = replace(BASE, states=self.states, layers=layers)
        return replace(sizes, latent=LATENT, query_rank=self.query_rank) if self.latent else sizes


def rope_case(kind: str, theta: float = SIZES.rope_theta, max_positions: int = 512, **params: Any) -> dict[str, Any]:
    """Config fields and switches of one type of RoPE."""
    written = {"rope_type": kind, "rope_theta": theta, **params}
    rotary = int(BASE.head_dim * params.get("partial_rotary_factor", 1.0))
    return {
        "layer": {"rope_parameters": written, "max_position_embeddings": max_positions},
        "switches": {"rope": Rope(theta, kind, params, rotary, max_positions=max_positions)},
    }


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4.0, "beta_slow": 1.0}
MSCALE = {"mscale": 1.0, "mscale_all_dim": 0.7}


def superset(case: Case | None = None) -> dict[str, Tensor]:
    """Every tensor that any variant of the same attention has."""
    if case is not None and case.latent:
        return tiny_weights(SEED + 1 + (case.query_rank or 0), case.sizes)
    every = replace(BASE, states=4, layers=2)
    return tiny_weights(SEED, every, input_norm=True, fc_norm=True, attention_bias=True, qk_norm=True, mask_hidden=True)


def weights_of(case: Case, everything: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The tensors of one variant: all that no absent option claims, as wide as its states."""
    tensors = superset(case) if everything is None or case.latent else everything
    absent = tuple(part for part in OPTIONAL if part not in case.has)
    kept = {k: t for k, t in tensors.items() if not any(part in k for part in absent)}
    width = case.states * BASE.target_width
    for name in ("fc.weight", "input_norm.weight", "mask_hidden"):
        if name in kept:
            kept[name] = kept[name][..., :width].contiguous()
    return {k: t for k, t in kept.items() if k != f"fc_norm.{case.states}.weight"}


def text(everything: Mapping[str, Tensor]) -> TinySample:
    return tiny_sample(SEED, everything, BASE, tokens=TOKENS)


def packages(*names: str) -> dict[str, str]:
    from importlib.metadata import version

    return {**{name: version(name) for name in (*names, "torch", "transformers")}, "python": platform.python_version()}


def calmed(everything: Mapping[str, Tensor], gain: float) -> dict[str, Tensor]:
    """`everything` with its matrices times `gain`: rounding grows with the gain, and what is left is the function."""
    matrices = {k for k, t in everything.items() if t.is_floating_point() and t.dim() == 2 and "embed" not in k}
    return {k: t * gain if k in matrices else t for k, t in everything.items()}


def record(
    folder: Path,
    cases: Mapping[str, Case],
    run: Callable[[Case, dict[str, Tensor], TinySample], Tensor],
    gain: float = 1.0,
    file: str = "logits.safetensors",
) -> None:
    """`file`: the logits [K, T-1, D] of each case, float32, on weights times `gain`.

    Rows whose input token does not exist (t+1+k > T-1) were fed some other token and mean nothing.
    """
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    everything = calmed(superset(), gain)
    logits = {}
    for name, case in cases.items():
        with torch.no_grad():
            logits[name] = run(case, weights_of(case, everything), text(everything)).float().contiguous()
        print(f"{name}: {tuple(logits[name].shape)}, largest {float(logits[name].abs().max()):.2f}")
    save_file(logits, folder / file)
