"""Record what the real `speculators` package computes on tiny random weights: tests/data/speculators_tiny.

Run from the repository root, on the CPU, in an environment of its own with `pip install speculators==0.9.0`
(Apache-2.0); neither the project nor its tests need the package:

    python -m scripts.conformance_speculators tests/data/speculators_tiny

Recorded: weights.safetensors, the tensors of `scripts/conformance_cases.py` in bfloat16, which they are exactly;
logits.safetensors and logits_calm.safetensors, see there (`sdpa` attention; `flex` wants a multiple of 128 tokens on
the CPU); metrics.json, the package's own accuracy counts on made-up predictions, under loss masks with gaps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from scripts.conformance_cases import (
    LLAMA3,
    MSCALE,
    SEED,
    STEPS,
    TOKENS,
    YARN,
    Case,
    packages,
    record,
    rope_case,
    superset,
)
from tests.reference import Rope
from tests.tiny import SIZES, TinySample, nested_config

RAW = {"norm_before_residual": True}
POST = {"norm_output": True}
WINDOW = 5
CALM = 0.5  # the gain of the second recording
_FULL = {"rope": Rope(100.0)}
_SLIDING = {"layer_types": ["sliding_attention"], "sliding_window": WINDOW, "use_sliding_window": True}


def _dynamic() -> Case:
    """Past the length that it begins at; speculators counts positions from 1, so its forward is one longer."""
    case = rope_case("dynamic", theta=100.0, max_positions=10, factor=4.0)
    return Case(layer=case["layer"], switches=case["switches"] | {"first_position": 1})


CASES: dict[str, Case] = {
    "plain": Case(),
    "norm_before_residual": Case(top=RAW, switches=RAW),
    "norm_output": Case(top=POST, switches=POST),
    "norm_before_residual+norm_output": Case(top=RAW | POST, switches=RAW | POST),
    "input_norm": Case(("input_norm.",), top=RAW, switches=RAW),
    "fc_norm+norm_output": Case(("fc_norm.",), top=POST, switches=POST),
    "attention_bias": Case(("_proj.bias",)),
    "qk_norm": Case(("q_norm.", "k_norm.")),
    "two_layers": Case(("layers.1.",)),
    "two_layers+qk_norm+bias+norms": Case(
        ("layers.1.", "q_norm.", "k_norm.", "_proj.bias", "input_norm."), top=RAW | POST, switches=RAW | POST
    ),
    "four_states": Case(("fc_norm.",), states=4, top={"eagle_aux_hidden_state_layer_ids": [0, 2, 4, 6]}),
    "four_states+input_norm": Case(("input_norm.",), states=4, top={"eagle_aux_hidden_state_layer_ids": [0, 2, 4, 6]}),
    # transformers' Llama and Qwen3 turn the whole head by default, and take partial_rotary_factor only with a scaling
    "partial_ignored": Case(
        layer=rope_case("default", theta=100.0, partial_rotary_factor=0.4)["layer"], switches=_FULL
    ),
    "partial_linear": Case(**rope_case("linear", partial_rotary_factor=0.4, factor=4.0)),
    "partial_yarn": Case(**rope_case("yarn", theta=100.0, partial_rotary_factor=0.4, **YARN)),
    "linear": Case(**rope_case("linear", factor=4.0)),
    "llama3": Case(**rope_case("llama3", theta=100.0, **LLAMA3)),
    "yarn": Case(**rope_case("yarn", theta=100.0, **YARN)),
    "yarn+mscale": Case(**rope_case("yarn", theta=100.0, **YARN, **MSCALE)),
    "dynamic": _dynamic(),
    "sliding_window": Case(("q_norm.", "k_norm."), layer=_SLIDING, switches={"windows": [WINDOW]}),
    "sliding_then_full": Case(
        ("layers.1.", "q_norm.", "k_norm."),
        layer=_SLIDING | {"layer_types": ["sliding_attention", "full_attention"]},
        switches={"windows": [WINDOW, None]},
    ),
    "peagle": Case(("mask_hidden",), top={"mask_token_id": 5}, switches={"mask_token": 5}),
    "peagle+two_layers+norms": Case(
        ("mask_hidden", "layers.1.", "input_norm."),
        top={"mask_token_id": 5} | RAW,
        switches={"mask_token": 5} | RAW,
    ),
    "peagle+sliding_window": Case(
        ("mask_hidden", "q_norm.", "k_norm."),
        top={"mask_token_id": 5},
        layer=_SLIDING,
        switches={"mask_token": 5, "windows": [WINDOW]},
    ),
}


class _Seen(Exception):
    """Ends a forward once its logits are there; what follows needs a loss."""


def run(case: Case, weights: dict[str, Tensor], sample: TinySample) -> Tensor:
    """The package's logits, [K, T-1, D]."""
    from speculators.models.eagle3.config import Eagle3SpeculatorConfig
    from speculators.models.eagle3.core import Eagle3DraftModel
    from speculators.models.eagle3.rotary_partial import install_partial_neox_rotary
    from speculators.models.peagle import core
    from speculators.models.peagle.config import PEagleSpeculatorConfig

    install_partial_neox_rotary()
    config = nested_config(weights, case.sizes, dtype=torch.float32, layer=case.layer) | dict(case.top)
    config.pop("auto_map")
    parallel = "mask_token_id" in case.top
    if parallel:
        config["speculators_model_type"] = config["speculators_config"]["algorithm"] = "peagle"
    parsed = (PEagleSpeculatorConfig if parallel else Eagle3SpeculatorConfig).model_validate(config)
    parsed.transformer_layer_config._attn_implementation = "sdpa"
    model = (core.PEagleDraftModel if parallel else Eagle3DraftModel)(parsed).float().eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    odd = [name for name in missing if not name.startswith("verifier_")] + unexpected
    if odd:
        raise SystemExit(f"the package has other tensors than these weights: {odd}")
    seen: list[Tensor] = []

    def keep(_module: object, _inputs: object, output: Tensor) -> None:
        seen.append(output[0].detach().clone())
        if parallel:
            raise _Seen

    model.lm_head.register_forward_hook(keep)
    tokens = torch.tensor(sample.ids[1:])[None]  # row t holds x[t+1] beside the states of t
    states = sample.slots[:-1, : case.states].flatten(1).float()[None]
    rows = TOKENS - 1
    inputs = {"hidden_states": states, "input_ids": tokens, "document_ids": torch.zeros_like(tokens)}
    if not parallel:
        model(**inputs, ttt_steps=STEPS)
        return torch.stack(seen)
    # all anchors at all depths, instead of those that training draws by chance
    pairs = torch.tensor([(t, k) for k in range(STEPS) for t in range(rows - k)])
    core.generate_cod_sample_indices = lambda **_: (pairs[:, 0], pairs[:, 1])
    with contextlib.suppress(_Seen):
        model(**inputs, verifier_last_hidden_states=torch.zeros(1, rows, SIZES.hidden), num_depths=STEPS)
    out = torch.zeros(STEPS, rows, seen[0].shape[-1])
    out[pairs[:, 1], pairs[:, 0]] = seen[0]
    return out


def metric_cases() -> list[dict[str, Any]]:
    """Accuracy counts by the package's own functions, on masks with gaps; ids and targets are draft ids."""
    from speculators.models.eagle3.metrics import align_for_step
    from speculators.models.metrics import compute_accuracy_single_step

    rng = torch.Generator().manual_seed(SEED)
    cases = []
    for gaps in (0.0, 0.3, 0.6):
        tokens = 60
        target = torch.randint(0, SIZES.draft_vocab, (tokens,), generator=rng)  # [T] choice after x[0..j]
        mask = (torch.rand(tokens, generator=rng) >= gaps).long()
        pred = torch.zeros(STEPS, tokens - 1, dtype=torch.long)
        for k in range(STEPS):
            truth = torch.cat([target[1 + k :], torch.zeros(k, dtype=torch.long)])
            right = torch.rand(tokens - 1, generator=rng) < 0.8
            pred[k] = torch.where(right, truth, (truth + 1) % SIZES.draft_vocab)
        rows_mask = mask[1:][None].bool()  # the trainer's mask of row t is l[t+1]
        correct = rows_mask.clone()
        steps = []
        for k in range(STEPS):
            aligned = align_for_step(pred[k][None], target[1:][None], rows_mask, correct, k)
            full, full_total, cond, cond_total = compute_accuracy_single_step(*aligned)
            steps.append({"full": [int(full), int(full_total)], "cond": [int(cond), int(cond_total)]})
        cases.append({"target": target.tolist(), "mask": mask.tolist(), "pred": pred.tolist(), "steps": steps})
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    record(folder, CASES, run)
    record(folder, CASES, run, CALM, "logits_calm.safetensors")
    stored = {k: (t.bfloat16() if t.is_floating_point() else t).contiguous() for k, t in superset().items()}
    save_file(stored, folder / "weights.safetensors")
    recorded = {"versions": packages("speculators"), "seed": SEED, "cases": metric_cases()}
    (folder / "metrics.json").write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
    print(recorded["versions"])


if __name__ == "__main__":
    main()
