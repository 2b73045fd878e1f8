"""Record what the real `speculators` package computes on tiny random weights: tests/data/speculators_tiny.

Run from the repository root, on the CPU, in an environment of its own with `pip install speculators==0.9.0`
(Apache-2.0); neither the project nor its tests need the package:

    python -m scripts.conformance_speculators tests/data/speculators_tiny

One set of weights holds every optional tensor; each variant uses those that its config asks for. Recorded:
- weights.safetensors: the superset, bfloat16 (which they are exactly);
- logits.safetensors: one sample (`input_ids` [T], `states` [T, A, H]) and for each variant its logits [K, T-1, D] at
  every training-time-test step, float32, `sdpa` attention (`flex` wants a multiple of 128 tokens on the CPU). Rows
  whose input token does not exist (t+1+k > T-1) were fed token 0 and mean nothing;
- metrics.json: the package's own accuracy counts on made-up predictions, under loss masks with gaps.
"""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.tiny import SIZES, nested_config, tiny_sample, tiny_weights

STEPS = 4
SEED = 11

# name -> (config switches, which optional tensors the variant has, by parts of their names)
VARIANTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "plain": ({}, ()),
    "norm_before_residual": ({"norm_before_residual": True}, ()),
    "norm_output": ({"norm_output": True}, ()),
    "norm_before_residual+norm_output": ({"norm_before_residual": True, "norm_output": True}, ()),
    "input_norm": ({"norm_before_residual": True}, ("input_norm.",)),
    "fc_norm+norm_output": ({"norm_output": True}, ("fc_norm.",)),
    "attention_bias": ({}, ("_proj.bias",)),
    "qk_norm": ({}, ("q_norm.", "k_norm.")),
    "two_layers": ({}, ("layers.1.",)),
}
OPTIONAL = ("input_norm.", "fc_norm.", "_proj.bias", "q_norm.", "k_norm.", "layers.1.")


def superset() -> dict[str, Tensor]:
    """Every tensor that any variant has."""
    two = replace(SIZES, layers=2)
    return tiny_weights(SEED, two, input_norm=True, fc_norm=True, attention_bias=True, qk_norm=True)


def variant_weights(everything: dict[str, Tensor], has: tuple[str, ...]) -> dict[str, Tensor]:
    """The tensors of one variant: all that no absent option claims."""
    absent = tuple(part for part in OPTIONAL if part not in has)
    return {name: t for name, t in everything.items() if not any(part in name for part in absent)}


def run(weights: dict[str, Tensor], switches: dict[str, Any], ids: list[int], states: Tensor) -> Tensor:
    """The package's logits, [K, T-1, D]; states [T, A*H]."""
    from speculators.models.eagle3.config import Eagle3SpeculatorConfig
    from speculators.models.eagle3.core import Eagle3DraftModel

    layers = 2 if "layers.1.input_layernorm.weight" in weights else 1
    config = nested_config(weights, replace(SIZES, layers=layers), dtype=torch.float32, **switches)
    config.pop("auto_map")
    parsed = Eagle3SpeculatorConfig.model_validate(config)
    parsed.transformer_layer_config._attn_implementation = "sdpa"
    model = Eagle3DraftModel(parsed).float().eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    odd = [name for name in missing if not name.startswith("verifier_")] + unexpected
    if odd:
        raise SystemExit(f"the package has other tensors than these weights: {odd}")
    seen: list[Tensor] = []
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output[0].detach().clone()))
    tokens = torch.tensor(ids[1:])[None]  # row t holds x[t+1] beside the states of t
    with torch.no_grad():
        model(
            hidden_states=states[None, :-1],
            input_ids=tokens,
            document_ids=torch.zeros_like(tokens),
            ttt_steps=STEPS,
        )
    return torch.stack(seen)


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
    import speculators
    import transformers

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    everything = superset()
    sample = tiny_sample(SEED, everything)
    states = sample.slots[:, : SIZES.states]  # [T, A, H] bfloat16
    logits = {}
    for name, (switches, has) in VARIANTS.items():
        logits[name] = run(variant_weights(everything, has), switches, sample.ids, states.flatten(1).float())
        print(f"{name}: {tuple(logits[name].shape)}, largest {float(logits[name].abs().max()):.2f}")
    stored = {k: (t.bfloat16() if t.is_floating_point() else t).contiguous() for k, t in everything.items()}
    save_file(stored, folder / "weights.safetensors")
    inputs = {"input_ids": torch.tensor(sample.ids), "states": states.contiguous()}
    save_file({**inputs, **logits}, folder / "logits.safetensors")
    versions = {
        "speculators": getattr(speculators, "__version__", "0.9.0"),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
    recorded = {"versions": versions, "seed": SEED, "cases": metric_cases()}
    (folder / "metrics.json").write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
    print(versions)


if __name__ == "__main__":
    main()
