"""Record what the real `specforge` package computes on tiny random weights: tests/data/specforge_tiny.

Run from the repository root, on the CPU, in an environment of its own with `pip install torch transformers triton` and
`pip install --no-deps specforge==0.2.0` (Apache-2.0), with TORCHDYNAMO_DISABLE=1; see `scripts/conformance_cases.py`:

    python -m scripts.conformance_specforge tests/data/specforge_tiny

Its training loop is followed by hand: `backbone` once a step, the keys in `cache_hidden`, fed back what it returns;
P-EAGLE in one pass.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scripts.conformance_cases import BASE, LLAMA3, MSCALE, STEPS, YARN, Case, packages, record, rope_case
from tests.tiny import TinySample

# its norm_output asks for the final norm before the head, and never feeds the normed state back
CASES: dict[str, Case] = {
    "plain": Case(),
    "norm_output": Case(top={"norm_output": True}),
    "norm_output_false": Case(top={"norm_output": False}, switches={"final_norm": False}),
    "fc_norm": Case(("fc_norm.",), top={"fc_norm": True}),
    "linear": Case(**rope_case("linear", factor=4.0)),
    "llama3": Case(**rope_case("llama3", theta=100.0, **LLAMA3)),
    "yarn": Case(**rope_case("yarn", theta=100.0, **YARN, **MSCALE)),  # without mscale it cannot be made
    "peagle": Case(("mask_hidden", "layers.1."), top={"mask_token_id": 5}, switches={"mask_token": 5}),
    "peagle+norm_before_residual": Case(
        ("mask_hidden", "layers.1."),
        top={"mask_token_id": 5, "norm_before_residual": True},
        switches={"mask_token": 5, "norm_before_residual": True},
    ),
}


def run(case: Case, weights: dict[str, Tensor], sample: TinySample) -> Tensor:
    """The package's logits, [K, T-1, D]."""
    from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3, prepare_decoder_attention_mask
    from specforge.modeling.draft.peagle import PEagleDraftModel
    from transformers import LlamaConfig

    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": BASE.rope_theta}} | dict(case.layer)
    config = LlamaConfig(
        hidden_size=BASE.hidden,
        intermediate_size=BASE.mlp,
        num_attention_heads=BASE.heads,
        num_key_value_heads=BASE.kv_heads,
        head_dim=BASE.head_dim,
        num_hidden_layers=case.sizes.layers,
        rms_norm_eps=BASE.eps,
        vocab_size=BASE.vocab,
        draft_vocab_size=BASE.draft_vocab,
        pad_token_id=0,
        **({"max_position_embeddings": 512} | rope),
        **case.top,
    )
    parallel = "mask_token_id" in case.top
    model = PEagleDraftModel(config) if parallel else LlamaForCausalLMEagle3(config, attention_backend="sdpa")
    model = model.float().eval()
    named = weights if parallel else {k.replace("layers.0.", "midlayer."): t for k, t in weights.items()}
    missing, unexpected = model.load_state_dict(named, strict=False)
    if missing or unexpected:
        raise SystemExit(f"the package has other tensors than these weights: {missing} {unexpected}")
    if parallel:
        return _parallel(model, sample, case)
    rows = len(sample.ids) - 1
    hidden = model.project_hidden_states(sample.slots[None, :-1, : case.states].flatten(2).float())
    mask = prepare_decoder_attention_mask(torch.ones(1, rows, dtype=torch.bool), (1, rows), hidden, 0)
    cache: list[list[Tensor]] = [[], []]
    out = []
    for k in range(STEPS):
        tokens = torch.tensor([sample.ids[1 + k :] + [0] * k])  # row t holds x[t+1+k]
        hidden = model.backbone(
            input_embeds=model.embed_input_ids(tokens),
            hidden_states=hidden,
            cache_hidden=cache,
            attention_mask=mask,
            position_ids=torch.arange(rows)[None],
        )
        out.append(model.compute_logits(hidden)[0])
    return torch.stack(out)


def _parallel(model: Any, sample: TinySample, case: Case) -> Tensor:
    """P-EAGLE: all anchors at all depths, under the package's own mask."""
    from specforge.algorithms.peagle.model import create_peagle_mask_mod
    from torch.nn.attention.flex_attention import create_block_mask

    rows = len(sample.ids) - 1
    pairs = torch.tensor([(t, k) for k in range(STEPS) for t in range(rows - k)])
    anchors, depths = pairs.unbind(1)
    tokens = torch.where(depths == 0, torch.tensor(sample.ids[1:])[anchors], case.top["mask_token_id"])
    states = sample.slots[:-1, : case.states].flatten(1).float()
    states = torch.where((depths == 0)[:, None], states[anchors], model.mask_hidden[0])
    lengths = torch.tensor([rows])
    mask = create_block_mask(
        create_peagle_mask_mod(anchor_pos=anchors, depth=depths, lengths=lengths, total_seq_len=rows),
        B=None,
        H=None,
        Q_LEN=len(pairs),
        KV_LEN=len(pairs),
        device="cpu",
    )
    hidden = model.backbone(
        input_embeds=model.embed_input_ids(tokens[None]),
        hidden_states=model.project_hidden_states(states[None]),
        attention_mask=mask,
        position_ids=(anchors + depths)[None],
    )
    logits = model.compute_logits(hidden)[0]
    out = torch.zeros(STEPS, rows, logits.shape[-1])
    out[depths, anchors] = logits
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    record(parser.parse_args().folder, CASES, run)
    print(packages("specforge"))


if __name__ == "__main__":
    main()
