"""Compressed files and numpy's: what they hold is read to the bit, bombs and forgeries are refused, nothing is left."""

from __future__ import annotations

import gc
import gzip
import io
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from drafter.errors import FileError, UnsafeFileError
from drafter.files import inflate as inflating
from drafter.files.npy_file import read_npy
from drafter.files.npz_file import is_npz, read_npz
from drafter.files.stored import StoredTensor
from drafter.sample.content import read_content
from tests.drafter.helpers import refused

RNG = np.random.default_rng(7)
ARRAYS: dict[str, Any] = {
    "f4": RNG.standard_normal((5, 3)).astype("<f4"),
    "f2": RNG.standard_normal((4, 2, 3)).astype("<f2"),
    "f8": RNG.standard_normal(7),
    "i8": RNG.integers(-9, 9, (6,)),
    "i4": RNG.integers(-9, 9, (2, 3)).astype("<i4"),
    "u1": RNG.integers(0, 255, (4,)).astype("u1"),
    "bool": RNG.integers(0, 2, (9,)).astype(bool),
    "empty": np.zeros((0, 4), "<f4"),
    "scalar": np.array(3, "<i8"),
}


def equal(stored: StoredTensor, array: Any) -> bool:
    found = stored.read()
    return found.numpy().dtype == array.dtype and bool(np.array_equal(found.numpy(), array))


def npz(tmp_path: Path, deflated: bool, arrays: dict[str, Any] = ARRAYS) -> Path:
    path = tmp_path / "x.npz"
    (np.savez_compressed if deflated else np.savez)(path, **arrays)
    return path


def rezip(path: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def npy_bytes(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    size = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + size + text.encode("latin-1")


# --- sound files


@pytest.mark.parametrize("deflated", [False, True])
def test_arrays_are_read_as_numpy_wrote_them(tmp_path: Path, deflated: bool) -> None:
    path = npz(tmp_path, deflated)
    assert is_npz(path)
    found = read_content(path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].shape == array.shape and equal(found[name], array)
    assert torch.equal(found["f4"].rows(1, 3), torch.tensor(ARRAYS["f4"][1:3]))


@pytest.mark.parametrize("name", list(ARRAYS))
def test_one_array_in_a_file_of_its_own(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "x.npy", ARRAYS[name])
    assert equal(read_npy(tmp_path / "x.npy"), ARRAYS[name])


def test_the_second_version_of_the_header(tmp_path: Path) -> None:
    text = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"
    (tmp_path / "x.npy").write_bytes(header(text, (2, 0)) + np.array([4, 5]).tobytes())
    assert read_npy(tmp_path / "x.npy").read().tolist() == [4, 5]


def test_stored_and_deflated_entries_in_one_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for i, (name, array) in enumerate(ARRAYS.items()):
            archive.writestr(f"{name}.npy", npy_bytes(array), zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED)
    found = read_npz(path)
    assert all(equal(found[name], array) for name, array in ARRAYS.items())
    assert [found[name].held is not None for name in ARRAYS] == [bool(i % 2) for i in range(len(ARRAYS))]


def test_entries_larger_than_a_block(tmp_path: Path) -> None:
    arrays = {f"a{i}": RNG.standard_normal((700, 300)) for i in range(3)}  # 1.7 MB each, hardly compressible
    found = read_npz(npz(tmp_path, True, arrays))
    assert all(equal(found[name], array) for name, array in arrays.items())


@pytest.mark.parametrize("members", [1, 3])
def test_a_torch_file_in_gzip(tmp_path: Path, members: int) -> None:
    states = torch.randn(50, 30)
    torch.save({"a": states}, tmp_path / "x.pt")
    data = (tmp_path / "x.pt").read_bytes()
    step = len(data) // members + 1
    parts = [gzip.compress(data[i : i + step]) for i in range(0, len(data), step)]
    (tmp_path / "x.ckpt.gz").write_bytes(b"".join(parts))
    assert torch.equal(read_content(tmp_path / "x.ckpt.gz")["a"].rows(7, 9), states[7:9])


# --- nothing is left


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", ["gz", "npz"])
def test_the_inflated_file_has_no_name_and_goes_with_its_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "room").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "room"))
    if kind == "npz":
        path = npz(tmp_path, True)
    else:
        torch.save({"f4": torch.tensor(ARRAYS["f4"])}, tmp_path / "x.pt")
        path = tmp_path / "x.gz"
        path.write_bytes(gzip.compress((tmp_path / "x.pt").read_bytes()))
    before = open_files()
    content = read_content(path)
    assert os.listdir(tmp_path / "room") == [] and open_files() == before + 1
    kept = content["f4"].cut(1, 4).columns(0, 2)
    del content
    path.unlink()  # what was inflated does not need it
    assert open_files() == before + 1
    assert torch.equal(kept.read(), torch.tensor(ARRAYS["f4"][1:4, :2]))
    del kept
    assert open_files() == before and os.listdir(tmp_path / "room") == []


# --- bombs


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    before = open_files()
    with refused(UnsafeFileError, "at most 40 times", "nothing of it was kept"):
        read_content(path)
    assert open_files() == before


def test_many_small_bombs_are_refused_together(tmp_path: Path) -> None:
    """Each array is under the size that is always inflated; all of them are not."""
    array = npy_bytes(np.zeros((1 << 20,), "<f4")[: (1 << 20) - 64])  # just below 4 MiB
    path = rezip(tmp_path / "x.npz", {f"a{i}.npy": array for i in range(20)})
    assert path.stat().st_size < 200_000 and len(array) < inflating.SMALL
    with refused(UnsafeFileError, "at most 40 times"):
        read_npz(path)


def test_an_archive_of_too_many_arrays_is_refused(tmp_path: Path) -> None:
    path = rezip(tmp_path / "x.npz", {f"a{i}.npy": npy_bytes(np.zeros(1)) for i in range(1001)})
    with refused(FileError, "1001 arrays"):
        read_npz(path)


def test_zeros_within_reason_are_no_bomb(tmp_path: Path) -> None:
    arrays = {"pad": np.zeros((1000, 100), "<f4"), "rest": RNG.standard_normal((1000, 100)).astype("<f4")}
    found = read_npz(npz(tmp_path, True, arrays))
    assert all(equal(found[name], array) for name, array in arrays.items())


# --- broken streams


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_a_truncated_gzip_is_refused(tmp_path: Path, keep: float) -> None:
    torch.save({"a": torch.randn(300, 300)}, tmp_path / "x.pt")
    data = gzip.compress((tmp_path / "x.pt").read_bytes())
    (tmp_path / "x.gz").write_bytes(data[: int(len(data) * keep)])
    with refused(FileError, "truncated", "x.gz"):
        read_content(tmp_path / "x.gz")


@pytest.mark.parametrize("place", [12, 2000, -6])
def test_a_damaged_gzip_is_refused(tmp_path: Path, place: int) -> None:
    torch.save({"a": torch.randn(300, 300)}, tmp_path / "x.pt")
    data = bytearray(gzip.compress((tmp_path / "x.pt").read_bytes()))
    data[place] ^= 0xFF
    (tmp_path / "x.gz").write_bytes(data)
    with refused(FileError, "x.gz"):
        read_content(tmp_path / "x.gz")


@pytest.mark.parametrize("content", [b"", b"text", bytes(100), b"\x80\x02."])
def test_gzip_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(content))
    with refused(FileError, "x.gz"):
        read_content(tmp_path / "x.gz")


@pytest.mark.parametrize("deflated", [False, True])
@pytest.mark.parametrize("keep", [0.1, 0.6, 0.99])
def test_a_truncated_npz_is_refused(tmp_path: Path, deflated: bool, keep: float) -> None:
    path = npz(tmp_path, deflated)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    for read in (read_npz, read_content):
        with refused(FileError, "truncated"):
            read(path)


def test_a_deflated_entry_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, True, {"a": RNG.standard_normal((40, 40))})
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with refused(FileError, "damaged"):
        read_npz(path)


def test_no_room_to_inflate_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(inflating, "_unnamed", Full)
    with refused(FileError, "No space left", "MB free", "TMPDIR"):
        read_npz(npz(tmp_path, True))


# --- forgeries


def forged_local_magic(data: bytearray, at: int) -> None:
    data[at : at + 4] = b"PK\x01\x02"


def forged_name_length(data: bytearray, at: int) -> None:
    data[at + 26 : at + 28] = b"\xff\xff"


def forged_extra_length(data: bytearray, at: int) -> None:
    data[at + 28 : at + 30] = b"\x07\x00"


@pytest.mark.parametrize("change", [forged_local_magic, forged_name_length, forged_extra_length])
def test_forged_local_headers_are_refused(tmp_path: Path, change: Callable[[bytearray, int], None]) -> None:
    path = npz(tmp_path, False, {"a": np.arange(9), "b": np.arange(9)})
    data = bytearray(path.read_bytes())
    change(data, data.index(b"PK\x03\x04", 5))
    path.write_bytes(data)
    with refused(FileError, "x.npz"):
        read_npz(path)


def test_a_directory_that_leads_outside_of_the_file_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path, False, {"a": np.arange(9)})
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 42 : entry + 46] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    with refused(FileError, "x.npz"):
        read_npz(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_array_that_reaches_into_the_next_is_refused(tmp_path: Path, method: int) -> None:
    longer = header("{'descr': '<i8', 'fortran_order': False, 'shape': (4,), }") + bytes(16)
    path = rezip(tmp_path / "x.npz", {"a.npy": longer, "b.npy": npy_bytes(np.arange(50))}, method)
    with refused(UnsafeFileError, "'a'", "past its entry"):
        read_npz(path)


def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for value in (1, 2):
            archive.writestr("a.npy", npy_bytes(np.full(3, value)))
    with refused(FileError, "one name"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(tmp_path: Path, method: int) -> None:
    path = rezip(tmp_path / "x.npz", {"a.npy": npy_bytes(np.arange(9))}, method)
    with refused(FileError, "compressed by method"):
        read_npz(path)


class Trap:
    """Unpickled without care it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("container", ["npy", "npz", "npz-deflated"])
def test_arrays_of_objects_are_refused_and_not_unpickled(tmp_path: Path, container: str) -> None:
    array = np.array([Trap(tmp_path / "marker")] * 3, dtype=object)
    path = tmp_path / "x.bin"
    if container == "npy":
        path.write_bytes(npy_bytes(array))
    else:
        method = zipfile.ZIP_DEFLATED if "deflated" in container else zipfile.ZIP_STORED
        rezip(path, {"a.npy": npy_bytes(array)}, method)
    with refused(FileError, "plain numbers"):
        read_content(path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(RNG.standard_normal((4, 5))),
        RNG.standard_normal((4, 5)).astype(">f4"),
        np.arange(4).astype(">i8"),
        np.array(["text", "more"]),
        np.zeros(3, dtype=[("a", "<f4"), ("b", "<i4")]),
        np.zeros(3, dtype="<c8"),
        np.zeros(3, dtype="<M8[s]"),
        np.zeros(3, dtype="V5"),
    ],
    ids=["column-major", "big-endian", "big-endian ids", "text", "fields", "complex", "dates", "bytes"],
)
def test_other_arrays_are_refused(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "x.npy", array)
    with refused(FileError, "plain numbers in rows"):
        read_npy(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (16777216, 16777216), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4.0,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 4, }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 20 + "), }",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': ['<f4'], 'fortran_order': False, 'shape': (4,)}",
        "__import__('os').mkdir('marker')",
        "[1, 2]",
        "'text'",
        "(" * 9000,
        "-" * 60000 + "1",
        "",
        "\x00\xff",
    ],
)
def test_forged_array_headers_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.npy").write_bytes(header(text) + bytes(64))
    with refused(FileError, "x.npy"):
        read_npy(tmp_path / "x.npy")


@pytest.mark.parametrize("data", [b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"])
def test_headers_that_end_too_early_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    with refused(FileError, ".npy header"):
        read_content(tmp_path / "x.npy")


def test_an_array_that_is_replaced_is_noticed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(9))
    stored = read_npy(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.arange(10))
    with refused(FileError, "changed or replaced"):
        stored.read()
