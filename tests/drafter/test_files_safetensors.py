"""The safetensors reader against the real package, and against files that are cut, forged or swapped."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from drafter.errors import DrafterError, FileError
from drafter.files.safetensors_file import read_header
from drafter.files.stored import DTYPES
from tests.drafter.helpers import refused, same


def numbers(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Random bits, NaN and infinities among them."""
    rng = torch.Generator().manual_seed(len(shape))
    if dtype == torch.bool:
        return torch.rand(shape, generator=rng) < 0.5
    count = torch.empty(shape, dtype=dtype)
    return torch.randint(0, 256, (count.nbytes,), generator=rng, dtype=torch.uint8).view(dtype).view(shape)


def forge(path: Path, header: Any, data: bytes = bytes(16)) -> Path:
    """A file whose header is the JSON of `header`, or those very bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: Any, shape: Any, *offsets: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


# --- against the package


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_reads_as_the_package_reads_it(tmp_path: Path, name: str) -> None:
    dtype = getattr(torch, DTYPES[name][0])
    tensors = {
        "scalar": numbers(dtype),
        "vector": numbers(dtype, 5),
        "none": numbers(dtype, 0),
        "no rows": numbers(dtype, 0, 3),
        "no columns": numbers(dtype, 4, 0),
        "cube": numbers(dtype, 3, 4, 5),
    }
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "pt", "note": "a\x1b[1m"})
    header = read_header(tmp_path / "x.safetensors")
    assert header.metadata == {"format": "pt", "note": "a\x1b[1m"}
    assert header.tensors.keys() == tensors.keys()
    for key, truth in load_file(tmp_path / "x.safetensors").items():
        ours = header.tensors[key]
        assert (ours.dtype, ours.shape, ours.nbytes) == (name, tuple(truth.shape), truth.nbytes)
        assert same(ours.read(), truth), key


def test_rows_gather_select_and_columns_are_the_slices_of_the_package(tmp_path: Path) -> None:
    truth = numbers(torch.bfloat16, 7, 4, 6)
    save_file({"before": torch.ones(3), "x": truth, "z": torch.ones(3)}, tmp_path / "x.safetensors")
    ours = read_header(tmp_path / "x.safetensors").tensors["x"]
    with safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        part = file.get_slice("x")
        assert same(ours.rows(2, 5), part[2:5])
        assert same(ours.select(1, 3).rows(1, 6), part[1:6, 3])
        assert same(ours.columns(2, 5).read(), part[:, :, 2:5])
    assert same(ours.rows(3, 3), truth[3:3])
    assert same(ours.gather([6, 0, 0, 3]), truth[[6, 0, 0, 3]])
    assert same(ours.gather([]), truth[[]])
    assert same(ours.select(1, 2).gather([5, 1]), truth[[5, 1], 2])
    assert same(ours.select(0, 4).columns(1, 2).rows(1, 3), truth[4, 1:3, 1:2])
    assert same(ours.select(2, 5).select(0, 1).read(), truth[1, :, 5])
    for start, stop in ((-1, 2), (0, 8), (5, 4)):
        with refused(FileError, "rows"):
            ours.rows(start, stop)
    with refused(FileError, "rows"):
        ours.gather([-1])


# --- cut and forged


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.arange(6.0), "b": torch.ones(2, 3).bfloat16()}, tmp_path / "x.safetensors")
    data = (tmp_path / "x.safetensors").read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        with refused(FileError):
            read_header(cut)
    with refused(FileError, "belong to no tensor"):
        cut.write_bytes(data + b"x")
        read_header(cut)


FORGED: dict[str, Any] = {
    "overlap": {"a": entry("F32", [2], 0, 8), "b": entry("F32", [3], 4, 16)},
    "the same bytes twice": {"a": entry("F32", [4], 0, 16), "b": entry("F32", [4], 0, 16)},
    "gap": {"a": entry("F32", [1], 0, 4), "b": entry("F32", [2], 8, 16)},
    "late start": {"a": entry("F32", [3], 4, 16)},
    "negative offset": {"a": entry("F32", [5], -4, 16)},
    "backwards": {"a": entry("F32", [4], 16, 0)},
    "negative size": {"a": entry("F32", [-2, -2], 0, 16)},
    "past the end": {"a": entry("F32", [2**40], 0, 2**42)},
    "size of another shape": {"a": entry("F32", [5], 0, 16)},
    "too large to print": b'{"a":{"dtype":"U8","shape":[%(n)b],"data_offsets":[0,%(n)b]}}' % {b"n": b"9" * 4300},
    "a million dimensions": {"a": entry("U8", [2**60] * 100_000, 0, 16)},
    "unknown dtype": {"a": entry("F3", [4], 0, 16)},
    "dtype of a wrong type": {"a": entry(["F32"], [4], 0, 16)},
    "size as text": {"a": entry("F32", ["4"], 0, 16)},
    "size as a float": {"a": entry("F32", [4.0], 0, 16)},
    "size as a bool": {"a": entry("F32", [True, 4], 0, 16)},
    "shape is no list": {"a": entry("F32", 4, 0, 16)},
    "shape is a table": {"a": entry("F32", {}, 0, 4), "b": entry("F32", [3], 4, 16)},
    "one offset": {"a": entry("F32", [4], 16)},
    "offsets as text": {"a": entry("F32", [4], "0", "16")},
    "no dtype": {"a": {"shape": [4], "data_offsets": [0, 16]}},
    "entry is a list": {"a": [1, 2, 3]},
    "entry is null": {"a": None},
    "no tensors for the bytes": {},
    "a list": [1],
    "not JSON": b"{" * 20,
    "empty": b"",
    "not UTF-8": b'{"\xff\xfe": 1}',
    "nested bomb": b'{"a":' + b"[" * 200_000,
    "a name that paints the terminal": {"\x1b]0;owned\x07\u202e\n": entry("F3", [4], 0, 16)},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_header_is_refused(tmp_path: Path, name: str) -> None:
    path = forge(tmp_path / "x.safetensors", FORGED[name])
    with pytest.raises(SafetensorError):
        load_file(path)
    with refused(FileError):
        read_header(path)


def test_nothing_times_too_much_is_refused(tmp_path: Path) -> None:
    """The package lets it pass; torch cannot make a tensor of it."""
    path = forge(tmp_path / "x.safetensors", {"a": entry("F32", [0, 2**61, 2**61], 0, 0)}, b"")
    with refused(FileError, "a shape that a file can hold"):
        read_header(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100_000_001, 17])
def test_a_header_longer_than_the_file_is_not_read(tmp_path: Path, length: int) -> None:
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    with refused(FileError):
        read_header(tmp_path / "x.safetensors")


def test_any_bytes_give_tensors_or_a_refusal(tmp_path: Path) -> None:
    """Hundreds of files with a few bytes changed: never another exception, and never a tensor beyond the file."""
    rng = random.Random(0)
    save_file({"a": torch.arange(6.0), "b": torch.ones(2, 3).long()}, tmp_path / "x.safetensors")
    good = (tmp_path / "x.safetensors").read_bytes()
    path, readable = tmp_path / "mutated.safetensors", 0
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(8 + 130)] = rng.choice(b'0123456789-,:{}[]"ef\x00\xff')
        path.write_bytes(data)
        try:
            for tensor in read_header(path).tensors.values():
                assert tensor.read().nbytes <= len(data)
            readable += 1
        except DrafterError as error:
            assert str(error).isprintable()
    assert readable < 200


# --- paths


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("absent", "link", ".", "x" * 300):
        with refused(FileError, "cannot read"):
            read_header(tmp_path / name)


@pytest.mark.parametrize("how", ["replaced", "cut", "grown", "gone", "a folder"])
def test_a_file_that_changes_while_open_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.arange(600.0).view(3, 200)}, path)
    tensor = read_header(path).tensors["a"]
    assert tensor.rows(0, 1).shape == (1, 200)
    if how == "replaced":  # the same size and content, another file
        (tmp_path / "y").write_bytes(path.read_bytes())
        (tmp_path / "y").replace(path)
    elif how == "cut":
        os.truncate(path, path.stat().st_size - 800)
    elif how == "grown":
        with path.open("ab") as file:
            file.write(b"more")
    else:
        path.unlink()
        if how == "a folder":
            path.mkdir()
    for read in (tensor.read, lambda: tensor.rows(0, 1), lambda: tensor.gather([0, 2])):
        with refused(FileError):
            read()


def test_a_file_cut_between_the_check_and_the_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.arange(600.0)}, path)
    tensor, whole = read_header(path).tensors["a"], os.preadv
    calls: list[int] = []

    def cut_first(fd: int, buffers: Any, offset: int) -> int:
        if not calls:
            os.truncate(path, offset + 400)
        calls.append(offset)
        return whole(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", cut_first)
    with refused(FileError, "cut while open"):
        tensor.read()
    assert len(calls) == 2


def test_a_disk_error_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"a": torch.arange(6.0)}, tmp_path / "x.safetensors")
    tensor = read_header(tmp_path / "x.safetensors").tensors["a"]

    def stale(*_: Any) -> int:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "preadv", stale)
    with refused(FileError, "Stale file handle"):
        tensor.read()
