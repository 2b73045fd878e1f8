"""Listing samples by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.errors import Cancelled, PathError
from drafter.sample.folder import is_sample_name, list_samples
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
    ]


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
