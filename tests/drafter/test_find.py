"""Finding checkpoints by names and small files, through links, and saying what is there when there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from drafter.errors import Cancelled, PathError
from drafter.files.find import find_checkpoints, natural
from tests import tiny
from tests.drafter.helpers import refused

WEIGHTS = tiny.tiny_weights()


def checkpoint(folder: Path) -> Path:
    """A drafter's folder as far as finding looks at it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(tiny.nested_config(WEIGHTS)))
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


def names(root: Path) -> list[str]:
    return [found.name for found in find_checkpoints(root)]


# --- order and depth


def test_epochs_come_in_natural_order(tmp_path: Path) -> None:
    for epoch in ("10", "9", "0", "100"):
        checkpoint(tmp_path / epoch)
    found = find_checkpoints(tmp_path)
    assert [f.name for f in found] == ["0", "9", "10", "100"]
    assert [f.epoch for f in found] == [0, 9, 10, 100]
    assert all(f.size == 10 and f.state == "" and f.weights == (f.path / "model.safetensors",) for f in found)


@pytest.mark.parametrize(
    ("name", "epoch"),
    [("epoch_3", 3), ("checkpoint-300", 300), ("epoch_2_step_900", 2), ("7", 7), ("final", None), ("v2.5", None)],
)
def test_the_epoch_is_read_from_the_name(tmp_path: Path, name: str, epoch: int | None) -> None:
    checkpoint(tmp_path / name)
    assert [f.epoch for f in find_checkpoints(tmp_path)] == [epoch]


def test_names_of_any_kind_are_sorted(tmp_path: Path) -> None:
    for name in ("²", "a²", "٣", "x\x1b[1m", "9" * 200):
        checkpoint(tmp_path / name)
    assert len(names(tmp_path)) == 5
    assert natural("b2") < natural("b10") < natural("c")


def test_any_depth_but_not_without_end(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a/b/c/d")
    checkpoint(tmp_path / "/".join("abcdefghijkl") / "too/deep")
    checkpoint(tmp_path / ".hidden/x")
    assert names(tmp_path) == ["a/b/c/d"]


def test_the_folder_itself(tmp_path: Path) -> None:
    checkpoint(tmp_path / "ckpt")
    assert names(tmp_path / "ckpt") == ["ckpt"]


def test_the_search_can_be_stopped(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a")

    def stop() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        find_checkpoints(tmp_path, stop)


# --- links


def test_links_are_names_of_the_folder_they_lead_to(tmp_path: Path) -> None:
    checkpoint(tmp_path / "7")
    checkpoint(tmp_path / "8")
    (tmp_path / "checkpoint_best").symlink_to("7")
    (tmp_path / "last").symlink_to(tmp_path / "8")
    (tmp_path / "again").symlink_to("checkpoint_best")
    assert [(f.name, f.links) for f in find_checkpoints(tmp_path)] == [
        ("7", ("again", "checkpoint_best")),
        ("8", ("last",)),
    ]


def test_links_that_a_copy_turned_into_text(tmp_path: Path) -> None:
    checkpoint(tmp_path / "run/7")
    texts = {"best": "7", "with_newline": "7\n", "away": "../run/7", "absent": "9", "long": "7" * 300, "notes": "7 8"}
    for name, text in texts.items():
        (tmp_path / "run" / name).write_text(text)
    (tmp_path / "run/binary").write_bytes(b"\xff\xfe")
    assert [(f.name, f.links) for f in find_checkpoints(tmp_path)] == [("run/7", ("run/best", "run/with_newline"))]


def test_links_that_lead_nowhere_are_passed_over(tmp_path: Path) -> None:
    checkpoint(tmp_path / "1")
    (tmp_path / "dangling").symlink_to("gone")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "ping").symlink_to("pong")
    (tmp_path / "pong").symlink_to("ping")
    (tmp_path / "1/up").symlink_to("..")
    assert names(tmp_path) == ["1"]


def test_a_folder_outside_is_listed_once_under_its_link(tmp_path: Path) -> None:
    checkpoint(tmp_path / "store/abc")
    (tmp_path / "run").mkdir()
    for name in ("first", "second"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "store/abc")
    (found,) = find_checkpoints(tmp_path / "run")
    assert {found.name, *found.links} == {"first", "second"}
    assert found.path == (tmp_path / "store/abc").resolve()


def test_files_may_be_links_as_in_a_download_cache(tmp_path: Path) -> None:
    real = checkpoint(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots/abc"
    snapshot.mkdir(parents=True)
    for file in real.iterdir():
        (snapshot / file.name).symlink_to(os.path.relpath(file, snapshot))
    assert names(tmp_path / "snapshots") == ["abc"]


# --- what is listed


def test_a_folder_without_weights_says_so(tmp_path: Path) -> None:
    (checkpoint(tmp_path / "bare") / "model.safetensors").unlink()
    old = checkpoint(tmp_path / "old")
    (old / "model.safetensors").rename(old / "pytorch_model.bin")
    dangling = checkpoint(tmp_path / "partly_downloaded") / "model.safetensors"
    dangling.unlink()
    dangling.symlink_to("../blobs/gone")
    states = {found.name: found.state for found in find_checkpoints(tmp_path)}
    assert states == {
        "bare": "no weights",
        "old": "pytorch_model.bin: no torch file (begins with b'\\x02\\x00\\x00\\x00')",
        "partly_downloaded": "no weights",
    }


def test_other_models_are_not_listed(tmp_path: Path) -> None:
    tiny.write_target(tmp_path / "target", WEIGHTS)
    tiny.write_flat(tmp_path / "flat", WEIGHTS)
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset/x.safetensors").write_bytes(b"")
    assert names(tmp_path) == ["flat"]


def test_a_drafter_without_marks_is_known_by_its_fc(tmp_path: Path) -> None:
    changes = {"architectures": ["LlamaForCausalLM"], "eagle_config": None, "draft_vocab_size": None}
    tiny.write_flat(tmp_path / "plain", WEIGHTS, changes=changes)
    assert names(tmp_path) == ["plain"]


def test_a_broken_config_is_listed_so_that_opening_can_say_why(tmp_path: Path) -> None:
    (checkpoint(tmp_path / "x") / "config.json").write_text("{")
    assert names(tmp_path) == ["x"]


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    checkpoint(tmp_path / "a")
    for name in ("pipe", "a/other.safetensors", "config.json"):
        os.mkfifo(tmp_path / name)
    (found,) = find_checkpoints(tmp_path)
    assert [path.name for path in found.weights] == ["model.safetensors"]


# --- one file


def test_a_single_file_has_its_config_beside_it(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path / "x") / "model.safetensors"
    (found,) = find_checkpoints(weights)
    assert (found.path, found.weights, found.config) == (weights, (weights,), tmp_path / "x/config.json")
    (tmp_path / "x/config.json").unlink()
    with refused(PathError, "weights without a config"):
        find_checkpoints(weights)
    (tmp_path / "x.txt").write_text("x")
    with refused(PathError, "x.txt", ".safetensors"):
        find_checkpoints(tmp_path / "x.txt")


# --- nothing


def test_nothing_there_says_what_is(tmp_path: Path) -> None:
    with refused(PathError, "the folder is empty"):
        find_checkpoints(tmp_path)
    for i in range(12):
        (tmp_path / f"notes\x1b[1m\n{i}").write_text("x")
    with refused(PathError, "12 entries", ", ..."):
        find_checkpoints(tmp_path)


@pytest.mark.parametrize("name", ["absent", "a/b/c", "x" * 300, "nul\0byte"])
def test_no_such_path(tmp_path: Path, name: str) -> None:
    with refused(PathError, "no such file"):
        find_checkpoints(tmp_path / name)
