"""Listing samples by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.errors import Cancelled, PathError
from drafter.sample.folder import SamplePaths, is_sample_name, list_samples
from tests.drafter.helpers import refused


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


@pytest.mark.parametrize("name", ["data_0.pt", "data_10.ckpt", "hs_3.safetensors", "abc-def.pt", "²_.pt"])
def test_names_of_samples(name: str) -> None:
    assert is_sample_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "hs_x.safetensors",
        "token_freq.pt",
        "vocab_mapping.pt",
        "optimizer.pt",
        "training_state.pt",
        "data_0.pt.lock",
        "config.json",
        "d2t.pt",
        "rng_state_0.pt",
    ],
)
def test_names_of_other_files(name: str) -> None:
    assert not is_sample_name(name)


def test_order_is_by_number_and_folders_come_after_files(tmp_path: Path) -> None:
    touch(tmp_path, "data_10.pt", "data_9.pt", "data_0.pt", "b/data_2.pt", "b/data_11.pt", "a/hs_1.safetensors")
    touch(tmp_path, "a/b/c/d/data_1.pt", "a/b/c/d/e/data_too_deep.pt", "x.d/data_5.pt", "token_freq.pt", "notes.txt")
    names = [str(path.relative_to(tmp_path)) for path in list_samples([tmp_path])]
    assert names == [
        "data_0.pt",
        "data_9.pt",
        "data_10.pt",
        "a/hs_1.safetensors",
        "a/b/c/d/data_1.pt",
        "b/data_2.pt",
        "b/data_11.pt",
        "x.d/data_5.pt",
    ]


def test_what_is_given_may_be_named_in_any_way(tmp_path: Path) -> None:
    """Request ids, conversation ids, steps; beside checkpoints only what recorders name so."""
    request = "cmpl-3f2a.safetensors"
    touch(tmp_path, request, "step/0/1.pt", "x.npz", "y.ckpt.gz", "shard-000001.safetensors", "hs_1.safetensors.lock")
    touch(tmp_path, "model.safetensors", "model-00001-of-00002.safetensors", "target_embeddings.safetensors", ".x.pt")
    names = {str(path.relative_to(tmp_path)) for path in list_samples([tmp_path])}
    assert names == {request, "step/0/1.pt", "x.npz", "y.ckpt.gz", "shard-000001.safetensors"}
    beside = {path.name for path in list_samples([tmp_path], beside=True)}
    assert beside == {"1.pt", "y.ckpt.gz", "shard-000001.safetensors"}


def test_one_sample_of_a_file_that_holds_several(tmp_path: Path) -> None:
    touch(tmp_path, "a.pt", "odd#1")
    assert list_samples([tmp_path / "a.pt#3", tmp_path / "odd#1"]) == [tmp_path / "a.pt#3", tmp_path / "odd#1"]
    with refused(PathError, "b.pt#3"):
        list_samples([tmp_path / "b.pt#3"])


def test_paths_are_made_where_somebody_looks(tmp_path: Path) -> None:
    touch(tmp_path, "data_1.pt", "data_2.pt", "a/data_3.pt")
    paths = list_samples([tmp_path])
    assert len(paths) == 3 and paths[-1] == tmp_path / "a/data_3.pt" and paths[1:] == list(paths)[1:]
    assert paths.parts(2) == (str(tmp_path / "a"), "data_3.pt") and paths.names() == [p.name for p in paths]
    assert [paths.find(path) for path in paths] == [0, 1, 2] and paths.find(tmp_path / "data_3.pt") is None
    assert SamplePaths.of([*paths, *paths]).find(tmp_path / "data_2.pt") == 1
    assert SamplePaths.of(list(paths)) == paths and SamplePaths() == [] and not SamplePaths()
    for i in (3, -4):
        with pytest.raises(IndexError):
            paths[i]


def test_files_are_taken_as_named(tmp_path: Path) -> None:
    touch(tmp_path, "odd.name", "s/data_0.pt")
    assert list_samples([tmp_path / "odd.name", tmp_path / "s"]) == [tmp_path / "odd.name", tmp_path / "s/data_0.pt"]
    assert list_samples([]) == []


def test_links_in_circles_are_not_followed(tmp_path: Path) -> None:
    touch(tmp_path, "data_0.pt")
    (tmp_path / "up").symlink_to(tmp_path)
    (tmp_path / "round").symlink_to("round")
    assert list_samples([tmp_path]) == [tmp_path / "data_0.pt"]


def test_nothing_there(tmp_path: Path) -> None:
    for name in ("absent", "x" * 300):
        with refused(PathError, "--samples"):
            list_samples([tmp_path / name])
    with refused(PathError, "no recorded samples"):
        list_samples([tmp_path])


def test_listing_can_be_stopped(tmp_path: Path) -> None:
    def stop() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        list_samples([tmp_path], stop)


def test_a_file_of_several_samples_becomes_all_of_them(tmp_path: Path) -> None:
    touch(tmp_path, "data_1.pt", "data_2.pt", "a/data_3.pt")
    paths = list_samples([tmp_path]).expanded(1, 3)
    assert paths.names() == ["data_1.pt", "data_2.pt#0", "data_2.pt#1", "data_2.pt#2", "data_3.pt"]
    assert paths[4] == tmp_path / "a/data_3.pt"
