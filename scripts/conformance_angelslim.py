"""Record what the real `angelslim` package computes on tiny random weights: tests/data/angelslim_tiny.

Run from the repository root, on the CPU, in an environment of its own with `pip install torch transformers` and
`pip install --no-deps angelslim==0.5.0`; see `scripts/conformance_cases.py`:

    python -m scripts.conformance_angelslim tests/data/angelslim_tiny

Its training loop is followed by hand: `encode_layers` once a step, fed back what it returns. Whatever `rope_theta` the
config names, the trainer turns by 10000; only mrope asks for it.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import types
from pathlib import Path

import torch
from torch import Tensor

from scripts.conformance_cases import BASE, STEPS, Case, packages, record
from tests.reference import Rope
from tests.tiny import TinySample

LOST = Rope(10000.0)
CASES: dict[str, Case] = {
    "plain": Case(switches={"rope": LOST}),
    "linear": Case(
        layer={"rope_scaling": {"type": "linear", "factor": 4.0}},
        switches={"rope": Rope(10000.0, "linear", {"factor": 4.0})},
    ),
}


def _bare(*names: str) -> None:
    """Packages whose own __init__ is left out: the wheel lacks a module that one of them imports."""
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = [str(Path(sysconfig.get_paths()["purelib"], *names[:depth]))]
            sys.modules[name] = module


def run(case: Case, weights: dict[str, Tensor], sample: TinySample) -> Tensor:
    """The package's logits, [K, T-1, D]."""
    _bare("angelslim", "compressor", "speculative", "train", "models", "draft")
    _bare("angelslim", "compressor", "speculative", "train", "data")
    from angelslim.compressor.speculative.train.models.draft.llama_eagle3 import Eagle3LlamaForCausalLM
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=BASE.hidden,
        intermediate_size=BASE.mlp,
        num_attention_heads=BASE.heads,
        num_key_value_heads=BASE.kv_heads,
        head_dim=BASE.head_dim,
        num_hidden_layers=1,
        rms_norm_eps=BASE.eps,
        vocab_size=BASE.vocab,
        pad_token_id=0,
        max_position_embeddings=512,
        rope_theta=BASE.rope_theta,
    )
    config.draft_vocab_size, config.pretraining_tp = BASE.draft_vocab, 1
    config.rope_scaling = case.layer.get("rope_scaling")
    model = Eagle3LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(
        {k.replace("layers.0.", "midlayer."): t for k, t in weights.items()}, strict=False
    )
    if missing or unexpected:
        raise SystemExit(f"the package has other tensors than these weights: {missing} {unexpected}")
    rows = len(sample.ids) - 1
    hidden = model.combine_hidden_states(sample.slots[None, :-1, : case.states].flatten(2).float())
    mask = model.prepare_decoder_attention_mask(torch.ones(1, rows, dtype=torch.bool), (1, rows), hidden, 0)
    cache: list[list[Tensor]] = [[], []]
    out = []
    for k in range(STEPS):
        tokens = torch.tensor([sample.ids[1 + k :] + [0] * k])  # row t holds x[t+1+k]
        embeds, positions = model.embed_input_ids(tokens), torch.arange(rows)[None]
        hidden, cache = model.encode_layers(embeds, hidden, cache, mask, positions, True)
        out.append(model.compute_logits(hidden)[0])
    return torch.stack(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    record(parser.parse_args().folder, CASES, run)
    print(packages("angelslim"))


if __name__ == "__main__":
    main()
