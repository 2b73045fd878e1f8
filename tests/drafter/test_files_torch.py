"""Files of torch.save: equal to what torch loads, and nothing run or allocated for files that mean harm."""

from __future__ import annotations

import argparse
import io
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drafter.errors import DrafterError, FileError, UnsafeFileError
from drafter.files import torch_file
from drafter.files.stored import StoredTensor
from drafter.files.torch_file import read_torch_file
from tests import tiny
from tests.drafter.helpers import refused, same


def saved(path: Path, value: Any, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def v1_file(tmp_path: Path) -> Path:
    return tiny.write_v1_sample(tmp_path / "data_0.pt", tiny.tiny_sample(0, tiny.tiny_weights()))


def with_pickle(path: Path, pickle: Callable[[bytes], bytes], **entries: bytes) -> Path:
    """A torch file of one table whose structure was rewritten; `entries` replace others by the end of their names."""
    plain = io.BytesIO()
    torch.save({"a": [torch.arange(5), 1.5], "b": "text"}, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w") as out:
        for info in source.infolist():
            data = source.read(info)
            data = pickle(data) if info.filename.endswith("data.pkl") else data
            out.writestr(info.filename, entries.get(info.filename.split("/")[-1], data))
    return path


# --- against torch


def test_a_sample_is_what_torch_loads(tmp_path: Path) -> None:
    path = v1_file(tmp_path)
    ours, truth = read_torch_file(path), torch.load(path, weights_only=True)
    assert ours.keys() == truth.keys() and len(ours["hidden_states"]) == len(truth["hidden_states"])
    pairs = [(ours[k], truth[k]) for k in ("input_ids", "loss_mask")]
    for stored, tensor in pairs + list(zip(ours["hidden_states"], truth["hidden_states"], strict=True)):
        assert same(stored.read(), tensor) and stored.shape == tuple(tensor.shape)
        assert same(stored.rows(3, 9), tensor[3:9])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32, torch.bool, torch.uint8, torch.int8])
def test_dtypes_and_scalars(tmp_path: Path, dtype: torch.dtype) -> None:
    value = {
        "x": torch.arange(6).view(2, 3).to(dtype),
        "s": torch.tensor(1).to(dtype),
        "e": torch.zeros(0, 4).to(dtype),
    }
    ours = read_torch_file(saved(tmp_path / "x.pt", value))
    assert all(same(ours[key].read(), tensor) for key, tensor in value.items())


def test_structures_keep_their_form(tmp_path: Path) -> None:
    value = {"n": None, "t": (1, 2.5, "x", True), 7: {"deep": [[torch.ones(2)]]}}
    ours = read_torch_file(saved(tmp_path / "x.pt", value))
    assert ours["n"] is None and ours["t"] == [1, 2.5, "x", True]
    assert same(ours[7]["deep"][0][0].read(), torch.ones(2))
    assert same(read_torch_file(saved(tmp_path / "y.pt", torch.ones(3))).read(), torch.ones(3))


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "columns": lambda x: x[:, 3:9],
    "rows": lambda x: x[4:11],
    "every third row": lambda x: x[1::3],
    "every second column": lambda x: x[:, ::2],
    "transposed": lambda x: x.T,
    "cut and transposed": lambda x: x[2:9, 1:4].T,
    "one column": lambda x: x[:, 5:6],
    "one row, wide stride": lambda x: x[7:8].T,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_into_a_larger_tensor(tmp_path: Path, name: str) -> None:
    truth = VIEWS[name](torch.arange(20 * 12, dtype=torch.float32).view(20, 12))
    stored: StoredTensor = read_torch_file(saved(tmp_path / "x.pt", {"x": truth}))["x"]
    n = truth.shape[0]
    assert torch.equal(stored.read(), truth)
    for start, stop in ((0, n), (n // 2, n), (n - 1, n), (1, 1)):
        assert torch.equal(stored.rows(start, stop), truth[start:stop])
    assert torch.equal(stored.gather([n - 1, 0]), truth[[n - 1, 0]])
    assert torch.equal(stored.select(1, 0).read(), truth[:, 0])
    last = truth.shape[1] - 1
    assert torch.equal(stored.columns(last, last + 1).rows(0, n), truth[:, last:])


# --- code


def test_code_is_named_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = tiny.write_pickle_with_code(tmp_path / "evil.pt", marker)
    with refused(UnsafeFileError, "posix.system", "nothing in it was run"):
        read_torch_file(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("value", "name"), [(np.arange(3), "numpy"), (np.float64(1), "numpy"), (argparse.Namespace(a=1), "Namespace")]
)
def test_other_objects_are_named(tmp_path: Path, value: Any, name: str) -> None:
    with refused(UnsafeFileError, name):
        read_torch_file(saved(tmp_path / "x.pt", {"x": value}))


# --- bombs


def test_bombs_are_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    """In a process of its own, whose largest size is looked at: 64 MiB and 250 TB are in these files."""
    paths = [tiny.write_stride_bomb(tmp_path / "stride.pt", width=10**13), tiny.write_deflate_bomb(tmp_path / "z.pt")]
    code = """
import resource, sys, torch
from pathlib import Path
from drafter.errors import UnsafeFileError
from drafter.files import torch_file
from drafter.files.torch_file import read_torch_file
torch.save([1], "small.pt"), read_torch_file(Path("small.pt"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        read_torch_file(Path(path))
    except UnsafeFileError as error:
        print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    stride, deflate, grown = done.stdout.splitlines()
    assert "repeats" in stride and "compressed" in deflate
    assert int(grown) < 20_000  # kB


@pytest.mark.parametrize("strides", [(1, 1), (0, 1), (1, 0), (10, 1)])
def test_elements_that_share_bytes_are_refused(tmp_path: Path, strides: tuple[int, int]) -> None:
    view = torch.arange(30_000).as_strided((1000, 1000), strides)
    with refused(UnsafeFileError):
        read_torch_file(saved(tmp_path / "x.pt", {"x": view}))


def test_a_structure_that_contains_itself_is_refused(tmp_path: Path) -> None:
    ring: list[Any] = []
    ring.append(ring)
    with refused(UnsafeFileError, "nested"):
        read_torch_file(saved(tmp_path / "ring.pt", ring))
    # ]]]...aaa. is a list in a list in a list; torch's unpickler builds it without recursion
    deep = with_pickle(tmp_path / "deep.pt", lambda _: b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".")
    with refused(UnsafeFileError, "nested"):
        read_torch_file(deep)


def test_a_structure_that_multiplies_is_refused(tmp_path: Path) -> None:
    """Twenty lists of ten references each: a few hundred bytes that would be 10^20 elements."""
    laughs: list[Any] = [torch.ones(2)]
    for _ in range(20):
        laughs = [laughs] * 10
    path = saved(tmp_path / "laughs.pt", laughs)
    assert path.stat().st_size < 10_000
    with refused(UnsafeFileError):
        read_torch_file(path)


# --- broken files


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    data = v1_file(tmp_path).read_bytes()
    cut = tmp_path / "cut.pt"
    for length in [*range(0, 64), *range(64, len(data), 97), *range(len(data) - 64, len(data))]:
        cut.write_bytes(data[:length])
        with refused(FileError):
            read_torch_file(cut)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "begins with b''"),
        (b"just text\n", "begins with"),
        (b"\x1b[31mred", "begins with"),
        (b"\x1f\x8b\x08\x00", "begins with"),
        (b"\x80\x04K\x01.", "begins with"),
        (b"PK\x03\x04", "truncated"),
    ],
)
def test_what_is_no_torch_file_is_refused(tmp_path: Path, data: bytes, word: str) -> None:
    (tmp_path / "x.pt").write_bytes(data)
    with refused(FileError, word):
        read_torch_file(tmp_path / "x.pt")


def test_other_files_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    with refused(FileError, "data.pkl"):
        read_torch_file(tmp_path / "x.npz")
    with refused(FileError, "big-endian"):
        read_torch_file(with_pickle(tmp_path / "big.pt", lambda data: data, byteorder=b"big"))
    with refused(FileError, "sparse"):
        read_torch_file(saved(tmp_path / "s.pt", {"x": torch.eye(3).to_sparse()}))
    for name in ("absent.pt", "."):
        with refused(FileError, "cannot read"):
            read_torch_file(tmp_path / name)


def test_any_bytes_give_a_structure_or_a_refusal(tmp_path: Path) -> None:
    """Hundreds of files with changed bytes, in the zip and in the pickle: never another exception."""
    rng = random.Random(0)
    good = with_pickle(tmp_path / "good.pt", lambda data: data).read_bytes()

    def changed(data: bytes, most: int) -> bytes:
        out = bytearray(data)
        for _ in range(rng.randint(1, most)):
            out[rng.randrange(len(out))] = rng.randrange(256)
        return bytes(out)

    path = tmp_path / "mutated.pt"
    for i in range(600):
        if i % 2:
            path.write_bytes(changed(good, 3))
        else:
            with_pickle(path, lambda data: changed(data, 4))
        try:
            read_torch_file(path)
        except DrafterError as error:
            assert str(error).isprintable()


def test_older_torch_gives_the_same_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"a": [torch.arange(12).view(3, 4), torch.randn(5, 2).bfloat16()[1:4]], "b": torch.tensor([True, False])}
    path = saved(tmp_path / "x.pt", value)
    now = read_torch_file(path)
    monkeypatch.setattr(torch_file, "meta_load_tells_offsets", lambda: False)
    older = read_torch_file(path)
    assert same(now["a"][0].read(), older["a"][0].read()) and same(value["a"][0], older["a"][0].read())
    assert same(now["a"][1].read(), older["a"][1].read()) and same(now["b"].read(), older["b"].read())
    assert now["a"][1].offset == older["a"][1].offset


# --- the kind from before torch 1.6


def old(path: Path, value: Any) -> Path:
    return saved(path, value, _use_new_zipfile_serialization=False)


def test_files_from_before_the_zip_are_read_by_position(tmp_path: Path) -> None:
    base = torch.randn(6, 4)
    value = {"a": base, "view": base[2:4, 1:], "half": torch.ones(3).half(), "ids": torch.arange(5), "n": [1, "x"]}
    read = read_torch_file(old(tmp_path / "x.bin", value))
    for name in ("a", "view", "half", "ids"):
        assert torch.equal(read[name].read(), value[name]), name
    assert read["a"].offset != read["half"].offset and read["n"] == [1, "x"]


def test_old_files_run_no_code(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = old(tmp_path / "x.bin", {"fc.weight": tiny._Command(f"touch {marker}")})
    with refused(UnsafeFileError, "nothing in it was run"):
        read_torch_file(path)
    assert not marker.exists()


def test_old_files_that_are_cut_or_forged_are_refused(tmp_path: Path) -> None:
    data = old(tmp_path / "x.bin", {"a": torch.ones(64), "b": torch.ones(3)}).read_bytes()
    for end in range(0, len(data) - 1, 7):
        (tmp_path / "cut.bin").write_bytes(data[:end])
        with refused(FileError):
            read_torch_file(tmp_path / "cut.bin")
    at = data.rindex((64).to_bytes(8, "little"))
    (tmp_path / "forged.bin").write_bytes(data[:at] + (2**40).to_bytes(8, "little") + data[at + 8 :])
    with refused(FileError, "another length"):
        read_torch_file(tmp_path / "forged.bin")


def test_an_old_stride_bomb_is_refused(tmp_path: Path) -> None:
    with refused(UnsafeFileError, "repeats"):
        read_torch_file(old(tmp_path / "x.bin", {"a": torch.zeros(1).expand(10**12)}))
