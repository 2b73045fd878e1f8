"""Where embedding, head and vocab map come from, as a wiring asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter.checkpoint.target import open_target
from drafter.errors import CheckpointError, WiringError
from drafter.model.sources import CheckpointSources
from tests import tiny
from tests.drafter.helpers import opened, placed, refused

WEIGHTS = tiny.tiny_weights()
IDS = torch.arange(40) + WEIGHTS["d2t"]
TARGET = tiny.target_weights(WEIGHTS)


def sources(folder: Path, target: bool = True, without: tuple[str, ...] = (), **changes: Any) -> CheckpointSources:
    tiny.write_nested(folder / "x", WEIGHTS, changes=changes)
    tensors = load_file(folder / "x/model.safetensors")
    tensors["embed_tokens.weight"] = tensors["embed_tokens.weight"] + 1  # trained away from the target's
    save_file({k: t for k, t in tensors.items() if not k.startswith(without or "-")}, folder / "x/model.safetensors")
    there = open_target(tiny.write_target(folder / "target", WEIGHTS)) if target else None
    return CheckpointSources(opened(folder / "x"), there, placed())


def test_the_embedding(tmp_path: Path) -> None:
    one, ids = sources(tmp_path), torch.tensor([3, 5])
    own, theirs = one.embedding("own"), one.embedding("target")
    assert (own.source, theirs.source) == ("the checkpoint's own", "the target's")
    assert torch.equal(theirs.rows(ids).float(), WEIGHTS["embed_tokens.weight"][ids])
    assert not torch.equal(own.rows(ids), theirs.rows(ids))
    assert one.embedding("own") is own
    bare = sources(tmp_path, without=("embed_tokens",))
    assert bare.embedding("own") is bare.embedding("target") and bare.embedding("own").source == "the target's"
    with refused(CheckpointError, "no target folder", "--target"):
        sources(tmp_path, target=False).embedding("target")
    with refused(WiringError, "nobody's"):
        one.embedding("nobody's")


def test_the_head(tmp_path: Path) -> None:
    one = sources(tmp_path)
    assert torch.equal(one.head("own", "data"), WEIGHTS["lm_head.weight"])
    assert torch.equal(one.head("target", "data"), TARGET["lm_head.weight"][IDS])
    assert torch.equal(one.head("tied", "data", "target"), WEIGHTS["embed_tokens.weight"][:40])
    assert not torch.equal(one.head("tied", "data"), one.head("tied", "data", "target"))
    assert one.head("own", "offset") is one.head("own", "data")
    bare = sources(tmp_path, without=("lm_head",))
    assert torch.equal(bare.head("own", "data"), TARGET["lm_head.weight"][IDS])
    tied = sources(tmp_path, without=("lm_head",), tie_word_embeddings=True)
    assert torch.equal(tied.head("own", "data"), tied.head("tied", "data"))
    with refused(CheckpointError, "no target folder that has a head"):
        sources(tmp_path, target=False).head("target", "data")
    with refused(CheckpointError, "no lm_head in the checkpoint"):
        sources(tmp_path, target=False, without=("lm_head",)).head("own", "data")
    with refused(WiringError, "mine"):
        one.head("mine", "data")


def test_the_vocab_map_in_either_reading(tmp_path: Path) -> None:
    one = sources(tmp_path)
    assert torch.equal(one.vocab("data").target_ids, IDS) and one.vocab("data") is one.vocab("data")
    assert torch.equal(one.vocab("offset").target_ids, IDS)
    direct = one.vocab("direct")
    assert torch.equal(direct.target_ids, WEIGHTS["d2t"]) and direct.warning and "as asked" in direct.reading
    assert not torch.equal(one.head("target", "direct"), one.head("target", "offset"))


@pytest.mark.parametrize("reading", ["", "offsets", "Data"])
def test_readings_that_do_not_exist(tmp_path: Path, reading: str) -> None:
    with refused(WiringError, "offset"):
        sources(tmp_path).vocab(reading)
