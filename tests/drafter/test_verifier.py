"""The verifier's own choice from recorded states, in chunks, against one plain computation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint.target import TargetFolder, open_target
from drafter.checkpoint.vocab_map import VocabMap, read_vocab_map
from drafter.drafting import verifier
from drafter.drafting.verifier import last_slot, verifier_choice, why_not
from drafter.errors import Cancelled
from drafter.sample.claims import claim_slots
from drafter.sample.open import open_sample
from drafter.sample.sample import Sample
from tests import tiny
from tests.drafter.helpers import placed

WEIGHTS = tiny.tiny_weights()
TINY = tiny.tiny_sample(2, WEIGHTS, depths=tiny.ARROW_DEPTHS)


def recorded(tmp_path: Path, labels: str | None = "embed,2,4,last") -> Sample:
    folder = tiny.write_arrow_samples(tmp_path / "data", {0: TINY})
    return claim_slots(open_sample(folder / "hidden_states/hs_0.safetensors"), labels, None, 8)


def target(tmp_path: Path, **options: bool) -> TargetFolder:
    return open_target(tiny.write_target(tmp_path / "target", WEIGHTS, **options))


def vocab(weights: dict[str, Tensor] = WEIGHTS) -> VocabMap:
    return read_vocab_map(weights["d2t"], weights["t2d"], 40, 97)


@pytest.mark.parametrize(("rows", "head_rows"), [(256, 16384), (3, 7), (1, 1), (25, 96), (24, 97)])
def test_chunks_give_the_plain_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, head_rows: int
) -> None:
    monkeypatch.setattr(verifier, "ROWS", rows)
    monkeypatch.setattr(verifier, "HEAD_ROWS", head_rows)
    sample = recorded(tmp_path)
    assert why_not(sample, target(tmp_path)) is None and last_slot(sample) == 3
    choice = verifier_choice(sample, target(tmp_path), vocab(), placed())
    full, draft = tiny.verifier_argmax(WEIGHTS, TINY.slots[:, 3])
    assert (choice.full.tolist(), choice.draft.tolist()) == (full, draft)


def test_an_unsorted_map(tmp_path: Path) -> None:
    weights = WEIGHTS | tiny.vocab_map(0, kind="unsorted")
    choice = verifier_choice(recorded(tmp_path), target(tmp_path), vocab(weights), placed())
    assert choice.draft.tolist() == tiny.verifier_argmax(weights, TINY.slots[:, 3])[1]


def test_a_tied_target_uses_its_embedding(tmp_path: Path) -> None:
    choice = verifier_choice(recorded(tmp_path), target(tmp_path, lm_head=False), vocab(), placed())
    x = TINY.slots[:, 3].float()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * tiny.target_weights(WEIGHTS)["model.norm.weight"]
    assert choice.full.tolist() == (x @ WEIGHTS["embed_tokens.weight"].T).argmax(-1).tolist()


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "llama"])
def test_norms_that_multiply_by_one_plus_weight(tmp_path: Path, family: str) -> None:
    folder = tiny.write_target(tmp_path / "target", WEIGHTS)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": family}
    (folder / "config.json").write_text(json.dumps(config))
    weight = torch.linspace(-2, 2, 32).bfloat16()
    tensors = load_file(folder / "model.safetensors") | {"model.norm.weight": weight}
    save_file(tensors, folder / "model.safetensors")
    choice = verifier_choice(recorded(tmp_path), open_target(folder), vocab(), placed())
    x = TINY.slots[:, 3].float()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (weight.float() + (family != "llama"))
    assert choice.full.tolist() == (x @ tensors["lm_head.weight"].float().T).argmax(-1).tolist()


def test_a_padded_head_may_choose_its_padding(tmp_path: Path) -> None:
    """More rows in the head than the drafter's config has tokens: the choice is kept, and is in no draft vocabulary."""
    folder = tiny.write_target(tmp_path / "target", WEIGHTS)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.cat([tensors["lm_head.weight"], 50 * tensors["lm_head.weight"][:3]])
    save_file(tensors, folder / "model.safetensors")
    choice = verifier_choice(recorded(tmp_path), open_target(folder), vocab(), placed())
    full, draft = tiny.verifier_argmax(WEIGHTS, TINY.slots[:, 3])
    assert int(choice.full.max()) >= 97 and choice.draft.tolist() == draft
    assert all(a == b for a, b in zip(choice.full.tolist(), full, strict=True) if a < 97)


def test_reasons_why_it_cannot_be_told(tmp_path: Path) -> None:
    sample, whole = recorded(tmp_path), target(tmp_path)
    cases = {
        "--target": (sample, None),
        "no lm_head": (sample, replace(whole, head=None)),
        "no final norm": (sample, replace(whole, norm=None)),
        "--slots": (recorded(tmp_path, "embed,2,4,6"), whole),
        "wide": (sample, replace(whole, head=whole.head and whole.head.columns(0, 16))),
        "norm is 16 wide": (sample, replace(whole, norm=whole.norm and whole.norm.columns(0, 16))),
    }
    for word, (one, other) in cases.items():
        reason = why_not(one, other)
        assert reason is not None and word in reason, word


def test_it_can_be_cancelled(tmp_path: Path) -> None:
    def stop() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        verifier_choice(recorded(tmp_path), target(tmp_path), vocab(), placed(), stop)
