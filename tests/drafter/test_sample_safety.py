"""Samples that a stranger sent or a disk spoilt: read where they can be, refused in one line where not, never run."""

from __future__ import annotations

import argparse
import fcntl
import gc
import gzip
import os
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError, FileError, SampleError, UnsafeFileError
from drafter.sample.open import open_sample
from drafter.sample.probes.probe import probe_slot
from drafter.sample.vocabulary import check_vocabulary
from tests import tiny
from tests.drafter.helpers import built, refused, same, steps, tiny_run
from tests.recordings import torch_dicts as write
from tests.recordings.torch_dicts import H, T, Written
from tests.tiny_world import tiny_world

WEIGHTS = tiny.tiny_weights()
IDS = torch.arange(1, T + 1)

# layouts of which each holds all of a Written in one table
WRITERS: dict[str, Callable[..., Written]] = {
    "v1": write.speculators_v1,
    "specforge": write.specforge,
    "eagle": write.eagle,
    "baldeagle": write.baldeagle,
}


def legacy(path: Path) -> None:
    record = torch.load(path, weights_only=True)
    torch.save(record, path, _use_new_zipfile_serialization=False)


# --- what can be read is read


@pytest.mark.parametrize("name", WRITERS)
def test_files_from_before_torch_1_6_are_read(tmp_path: Path, name: str) -> None:
    truth = WRITERS[name](tmp_path, seed=9)
    legacy(truth.path)
    assert truth.path.read_bytes()[:2] == b"\x80\x02"
    sample = open_sample(truth.path)
    assert sample.ids.tolist() == truth.ids and sample.supervised.int().tolist() == truth.mask
    for slot, state in zip(sample.slots, truth.states, strict=True):
        assert same(slot.tensor.rows(0, T), state)


def test_rows_that_are_no_numbers_open(tmp_path: Path) -> None:
    made = write.text(tmp_path / "x", 0, 1)
    state = made.states[0].clone()
    state[4], state[6, 2] = float("nan"), float("inf")
    sample = open_sample(write.eagle(tmp_path, hidden_state=state).path)
    assert same(sample.slots[0].tensor.rows(0, T), state)
    probe = probe_slot(sample, sample.slots[0], None)
    assert (probe.bad_rows, probe.first_bad_row, probe.mean_norm) == (2, 4, None)


# --- what would run code


class _Code:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.arange(T), "numpy"),
        (np.float32(1), "numpy"),
        (argparse.Namespace(lr=1e-4), "argparse.Namespace"),
        (_Code("true"), "system"),
    ],
)
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_what_needs_code_is_refused_by_name(tmp_path: Path, value: Any, name: str, old: bool, packed: bool) -> None:
    path = write.specforge(tmp_path).path
    record = torch.load(path, weights_only=True)
    torch.save(record | {"extra": value}, path, _use_new_zipfile_serialization=not old)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    with refused(UnsafeFileError, name, "nothing in it was run"):
        open_sample(path)


def test_no_code_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for packed in (False, True):
        path = write.specforge(tmp_path, input_ids=_Code(f"touch {marker}")).path
        if packed:
            path.write_bytes(gzip.compress(path.read_bytes()))
        with refused(UnsafeFileError):
            open_sample(path)
        assert not marker.exists()


# --- what would need more memory or disk than the file holds


@pytest.fixture
def _little_memory() -> Any:
    """Half a GiB more of address space than is in use: an allocation by a claimed size fails at once."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("_little_memory")
def test_expanded_tensors_are_refused(tmp_path: Path) -> None:
    huge = torch.zeros(1, dtype=torch.bfloat16)
    for changes in (
        {"hidden_state": huge.expand(1, T, 10**10)},
        {"aux_hidden_state": huge.expand(1, 10**6, 10**6)},
        {"hidden_state": torch.zeros(14).as_strided((1, T, 4), (0, 1, 1))},
        {"input_ids": torch.zeros(1).long().expand(10**12)},
        {"loss_mask": torch.zeros(1).long().expand(10**12)},
    ):
        path = write.specforge(tmp_path, **changes).path
        assert path.stat().st_size < 10_000
        with refused(UnsafeFileError, "repeats stored elements"):
            open_sample(path)


def deflated(path: Path, source: Path) -> Path:
    with zipfile.ZipFile(source) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for item in plain.infolist():
            target.writestr(item.filename, plain.read(item))
    return path


def test_deflated_entries_are_refused(tmp_path: Path) -> None:
    zeros = torch.zeros(1, 200_000, H)
    source = write.specforge(tmp_path, hidden_state=zeros, input_ids=torch.zeros(200_000).long()).path
    path = deflated(tmp_path / "data_1.ckpt", source)
    assert path.stat().st_size * 100 < source.stat().st_size
    with refused(UnsafeFileError, "compressed"):
        open_sample(path)


@pytest.mark.usefixtures("_little_memory")
def test_a_gzip_bomb_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "temporary"
    kept.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(kept))
    path = tmp_path / "data_0.ckpt.gz"
    with gzip.open(path, "wb") as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
    assert path.stat().st_size < 100_000
    with refused(UnsafeFileError, "compressed", "nothing of it was kept"):
        open_sample(path)
    assert list(kept.iterdir()) == []


def test_an_inflated_sample_leaves_nothing_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "temporary"
    kept.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(kept))

    def held() -> int:
        links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return sum(link.startswith(str(kept)) for link in links)

    sample = open_sample(write.specforge_gz(tmp_path).path)
    assert list(kept.iterdir()) == [] and held() == 1
    assert sample.slots[0].tensor.rows(0, 2).shape == (2, H)
    del sample
    gc.collect()
    assert held() == 0


# --- what a disk or a copy spoilt


@pytest.mark.parametrize("name", [*WRITERS, "gz", "legacy"])
@pytest.mark.parametrize("keep", [0.02, 0.3, 0.6, 0.95, 0.999])
def test_truncated_files_are_refused(tmp_path: Path, name: str, keep: float) -> None:
    path = write.specforge_gz(tmp_path).path if name == "gz" else WRITERS.get(name, write.specforge)(tmp_path).path
    if name == "legacy":
        legacy(path)
    with refused(FileError, str(tmp_path)):
        open_sample(tiny.write_truncated(tmp_path / "short.ckpt", path, keep))


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"PK\x03\x04", b"\x80\x02\x8a\x0a", b"\x00" * 8 + b"{", b"\x00"])
def test_hardly_anything_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data_0.ckpt").write_bytes(content)
    with refused(FileError):
        open_sample(tmp_path / "data_0.ckpt")


def test_flipped_bytes_never_end_in_anything_but_a_refusal(tmp_path: Path) -> None:
    data = write.specforge(tmp_path).path.read_bytes()
    rng = torch.Generator().manual_seed(0)
    for place in torch.randint(0, len(data), (150,), generator=rng).tolist():
        path = tmp_path / f"data_{place}.ckpt"
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            sample = open_sample(path)
            for slot in sample.slots:
                slot.tensor.rows(0, sample.length)
        except DrafterError as error:
            assert str(error).isprintable()


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_replaced_or_cut_while_open_is_noticed(tmp_path: Path, name: str) -> None:
    path = WRITERS[name](tmp_path).path
    sample = open_sample(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 700)
    with refused(FileError, "changed or replaced", str(path)):
        sample.slots[0].tensor.rows(0, 3)
    WRITERS[name](tmp_path / "other").path.rename(path)
    with refused(FileError, "changed or replaced"):
        sample.slots[0].tensor.gather([1])
    path.unlink()
    with refused(FileError, "cannot open the file any more"):
        sample.slots[0].tensor.rows(0, 3)


# --- who may read, and when


AS_NOBODY = """
import os, sys
from pathlib import Path
import torch
from drafter.errors import FileError
from drafter.sample.open import open_sample
os.setgid(65534); os.setuid(65534)
try:
    open_sample(Path(sys.argv[1]))
except FileError as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_of_somebody_else_is_named() -> None:
    """safetensors saves with mode 0600."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "hs_0.safetensors"
        save_file({"token_ids": IDS, "hidden_states": torch.ones(T, 4, H)}, path)
        path.chmod(0o600)
        command = [sys.executable, "-c", AS_NOBODY, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Permission denied" in done.stdout and str(path) in done.stdout and len(done.stdout.splitlines()) == 1


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write.specforge(tmp_path).path
    really = Path.open

    def denied(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self == path:
            raise PermissionError(13, "Permission denied")
        return really(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", denied)
    with refused(FileError, "Permission denied", str(path)):
        open_sample(path)


HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_sample_that_is_being_written_waits_for_its_writer(tmp_path: Path) -> None:
    path = write.specforge(tmp_path).path
    lock = path.with_name(path.name + ".lock")
    lock.touch()
    open_sample(path)  # a lock file that nobody holds
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None and writer.stdin is not None
        assert writer.stdout.readline() == "held\n"
        with refused(SampleError, "being written", lock.name):
            open_sample(path)
        writer.stdin.close()
    open_sample(path)
    assert lock.exists() and lock.stat().st_size == 0
    with lock.open() as file:  # nor is it held by us afterwards
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --- whole storages


def test_a_file_with_whole_storages_of_views_is_named(tmp_path: Path) -> None:
    rows, width = 120, 64
    whole = torch.randn(50, rows, width)
    numbers = {"input_ids": torch.arange(rows), "loss_mask": torch.ones(rows).long()}
    path = write.baldeagle(tmp_path, hidden_state=whole[:2], **numbers).path
    (said,) = open_sample(path).warnings
    needed = 2 * rows * width * 4 + 2 * rows * 8
    assert f"{path.stat().st_size / needed:.1f} times as large" in said and "whole storages" in said
    for states in (whole[:2].clone(), whole[:40]):
        assert open_sample(write.baldeagle(tmp_path, hidden_state=states, **numbers).path).warnings == ()


def test_small_files_and_shared_storages_are_not_named(tmp_path: Path) -> None:
    whole = torch.randn(50, T, H)
    assert open_sample(write.baldeagle(tmp_path, hidden_state=whole[:2]).path).warnings == ()
    wide = torch.randn(200, 4, 700)
    numbers = {"input_ids": torch.arange(200), "loss_mask": torch.ones(200).long()}
    assert (
        open_sample(write.speculators_v1(tmp_path, hidden_states=list(wide.unbind(1)), **numbers).path).warnings == ()
    )


# --- ids that no table has


@pytest.mark.parametrize("odd", [-1, -(2**40), 97, 2**40])
def test_ids_outside_of_the_vocabulary_open_and_run(tmp_path: Path, odd: int) -> None:
    """Zeros stand for their embedding: as for a token whose row of the table is zero."""
    text = tiny.tiny_sample(0, WEIGHTS)
    ids = [*text.ids]
    ids[3] = ids[20] = odd
    table = WEIGHTS["embed_tokens.weight"].clone()
    table[2] = 0  # no text holds the token 2
    weights = WEIGHTS | {"embed_tokens.weight": table}
    run = tiny_run(tmp_path / "odd", weights, replace(text, ids=ids))
    zeroed = tiny_run(tmp_path / "zeroed", weights, replace(text, ids=[2 if i == odd else i for i in ids]))
    for ours, theirs in zip(steps(run, (0, 1, 2), 3), steps(zeroed, (0, 1, 2), 3), strict=True):
        assert torch.equal(ours.logits, theirs.logits)


def test_ids_outside_of_the_vocabulary_are_named(tmp_path: Path) -> None:
    made = write.text(tmp_path / "x", 0, 1)
    ids = torch.tensor(made.ids)
    ids[[3, 5]] = torch.tensor([-200, 97])
    sample = open_sample(write.eagle(tmp_path, input_ids=ids).path)
    assert sample.ids.tolist() == ids.tolist() and sample.warnings == ()
    named = check_vocabulary(sample, 97)
    assert "2 of 11 token ids" in named.warnings[0] and "-200" in named.warnings[0] and "0..96" in named.warnings[0]
    assert "1 of 11" in check_vocabulary(sample, 98).warnings[0]
    assert check_vocabulary(named, 98).warnings == check_vocabulary(sample, 98).warnings
    sound = open_sample(write.eagle(tmp_path).path)
    first = replace(sound, ids=torch.cat([torch.tensor([-1]), sound.ids[1:]]))
    assert check_vocabulary(first, 97).warnings == check_vocabulary(sound, 97).warnings == ()


def test_ids_of_another_tokenizer_are_refused_when_they_are_needed(tmp_path: Path) -> None:
    text = tiny.tiny_sample(0, WEIGHTS)
    path = tiny.write_v1_sample(tmp_path / "data_0.pt", replace(text, ids=[i + 90 for i in text.ids]))
    run = SampleRun(built(tiny.write_nested(tmp_path / "run", WEIGHTS)), open_sample(path))
    with refused(SampleError, "another tokenizer"):
        steps(run, (0, 1, 2), 1)


def test_a_session_says_which_ids_have_no_row(tmp_path: Path) -> None:
    world = tiny_world(tmp_path, count=1)
    session = world.session()
    assert session.sample.warnings == ()
    ids = [*world.texts[0].ids]
    ids[5], ids[9] = -7, 500
    tiny.write_v1_sample(world.samples[0], replace(world.texts[0], ids=ids))
    session = world.session()
    (said,) = session.sample.warnings
    assert "2 of 25 token ids are outside of 0..96" in said
    assert len(session.probe()) == 4
    session.choose_checkpoint(session.last_found[0])
    assert session.sample.warnings == (said,)
    found = session.score(world.samples[:1], [(0, 1, 2)], depth=2)
    assert session.score_json(found)["orderings"][0]["slots"] == [0, 1, 2]


def test_a_session_opens_and_probes_a_text_of_another_tokenizer(tmp_path: Path) -> None:
    world = tiny_world(tmp_path, count=1)
    tiny.write_v1_sample(world.samples[0], replace(world.texts[0], ids=[i + 90 for i in world.texts[0].ids]))
    session = world.session()
    assert "another tokenizer" in session.sample.warnings[0] and len(session.probe()) == 4
    with refused(SampleError, "another tokenizer"):
        session.score(world.samples[:1], [(0, 1, 2)], depth=1)
