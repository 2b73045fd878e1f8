"""A vocab map beside the weights: taken where they have none, and said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint.side_map import find_side_maps
from drafter.errors import CheckpointError, FileError
from drafter.files.npy_file import read_npy
from tests import tiny
from tests.drafter.helpers import built, opened, refused

WEIGHTS = tiny.tiny_weights()
MAP = {key: WEIGHTS[key] for key in ("d2t", "t2d")}
Write = Callable[[Path, dict[str, Tensor]], None]


def bare(folder: Path) -> Path:
    """A drafter whose weights hold no map."""
    tiny.write_nested(folder, WEIGHTS)
    tensors = load_file(folder / "model.safetensors")
    save_file({k: t for k, t in tensors.items() if k not in MAP}, folder / "model.safetensors")
    return folder


def npy(name: str, t2d: bool = True) -> Write:
    def write(folder: Path, made: dict[str, Tensor]) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / name, made["d2t"].numpy())
        if t2d:
            np.save(folder / name.replace("d2t", "t2d"), made["t2d"].numpy())

    return write


def pt(name: str) -> Write:
    def write(folder: Path, made: dict[str, Tensor]) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        torch.save(made, folder / name)

    return write


PLACES = [
    npy("d2t.npy"),
    npy("d2t-40.npy"),
    npy("d2t.npy", t2d=False),
    npy("vocab_mapping/d2t.npy"),
    npy("../vocab_mapping/d2t.npy"),
    npy("../d2t-40.npy"),
    pt("vocab_mapping.pt"),
    pt("vocab_mapping/vocab_mapping.pt"),
    pt("../cache/vocab_mapping/0123456789abcdef.pt"),
    pt("eagle_meta.pt"),
]


@pytest.mark.parametrize("write", PLACES)
def test_a_map_beside_the_weights_is_taken_and_said(tmp_path: Path, write: Write) -> None:
    folder = bare(tmp_path / "run/x")
    with refused(CheckpointError, "no d2t"):
        built(folder)
    assert "nobody" in opened(folder).missing["d2t"]
    write(folder, MAP)
    one = opened(folder)
    assert one.missing == {} and "vLLM takes the first ids" in one.warnings[0]
    vocab = built(folder)._sources.vocab("data")
    assert torch.equal(vocab.target_ids, torch.arange(40) + MAP["d2t"])


def test_ids_of_nemo_in_their_own_order(tmp_path: Path) -> None:
    folder, ids = bare(tmp_path / "x"), torch.randperm(97)[:40]
    torch.save({"selected_token_ids": ids, "draft_vocab_size": 40}, folder / "eagle_meta.pt")
    vocab = built(folder)._sources.vocab("data")
    assert torch.equal(vocab.target_ids, ids) and vocab.reading == "direct ids"


def test_maps_of_other_sizes_and_broken_ones_are_passed_over(tmp_path: Path) -> None:
    folder = bare(tmp_path / "x")
    np.save(folder / "d2t-41.npy", np.zeros(41, dtype=np.int64))
    np.save(folder / "d2t.npy", np.zeros(40))
    (folder / "d2t-3.npy").write_bytes(b"\x93NUMPY")
    (folder / "vocab_mapping.pt").write_bytes(b"junk")
    tiny.write_pickle_with_code(folder / "cache.pt", tmp_path / "ran")
    assert find_side_maps(folder, 40) == [] and not (tmp_path / "ran").exists()
    pt("vocab_mapping/a.pt")(folder, MAP)
    assert [found.source.name for found in find_side_maps(folder, 40)] == ["a.pt"]


def test_the_weights_own_map_needs_no_side_file(tmp_path: Path) -> None:
    folder = tiny.write_nested(tmp_path / "x", WEIGHTS)
    np.save(folder / "d2t.npy", np.arange(40))
    assert opened(folder).warnings == ()


# --- .npy


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "bool", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (2, 3), ()])
def test_arrays_are_read_by_position(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype=dtype) * 3
    array = array.astype(dtype)
    np.save(tmp_path / "x.npy", array)
    stored = read_npy(tmp_path / "x.npy")
    assert stored.shape == shape and np.array_equal(stored.read().numpy(), array)


def test_what_is_no_plain_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    for value in (np.array([{"a": 1}], dtype=object), np.ones(3, dtype=">i8"), np.asfortranarray(np.ones((3, 2)))):
        np.save(path, value, allow_pickle=True)
        with refused(FileError):
            read_npy(path)
    np.save(path, np.arange(9))
    data = path.read_bytes()
    for end in (*range(0, 130, 9), len(data) - 1):
        path.write_bytes(data[:end])
        with refused(FileError):
            read_npy(path)
    path.write_bytes(data.replace(b"(9,)", b"(9**9,)"))
    with refused(FileError):
        read_npy(path)
    with refused(FileError, "cannot read"):
        read_npy(tmp_path)
