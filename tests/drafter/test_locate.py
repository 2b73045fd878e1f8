"""What lies beside a checkpoint is found, with the reason; what was named is taken or refused, never replaced."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.errors import CheckpointError, FileError, PathError
from drafter.locate import MAX_CHILDREN, locate_samples, locate_target, locate_tokenizer
from tests import tiny
from tests.drafter.helpers import opened, refused
from tests.tiny_world import World, tiny_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return tiny_world(tmp_path / "run", count=1)


def no_poll() -> None:
    """Nothing to cancel."""


def checkpoint(world: World) -> Checkpoint:
    return opened(world.output / "7")


# --- the target


def test_target_as_given_is_taken_whatever_its_sizes(world: World, tmp_path: Path) -> None:
    sizes = replace(tiny.SIZES, vocab=11, draft_vocab=5)
    other = tiny.write_target(tmp_path / "other", tiny.tiny_weights(0, sizes), sizes)
    target, why = locate_target(other, checkpoint(world))
    assert target is not None
    assert (target.path, why) == (other, "as given")


def test_a_given_target_is_refused_not_replaced(world: World, tmp_path: Path) -> None:
    with refused(PathError, "no such target folder", "--target"):
        locate_target(tmp_path / "nothing", checkpoint(world))
    with refused(PathError, "config.json"):
        locate_target(world.samples[0].parent, checkpoint(world))
    (world.target / "config.json").write_text("[]")
    with refused(FileError, "table"):
        locate_target(world.target, checkpoint(world))
    (world.target / "config.json").write_text('{"hidden_size": "wide"}')
    with refused(CheckpointError, "hidden_size"):
        locate_target(world.target, checkpoint(world))


def test_target_by_the_name_in_the_config(world: World, tmp_path: Path) -> None:
    elsewhere = shutil.move(world.target, tmp_path / "elsewhere/model")
    tiny.write_nested(world.output / "8", world.weights, verifier=elsewhere)
    target, why = locate_target(None, opened(world.output / "8"))
    assert target is not None
    assert target.path == Path(elsewhere)
    assert why == f"the config's verifier {str(elsewhere)!r}"


def test_target_in_the_hub_cache(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    snapshot = tmp_path / "hf/hub/models--org--model/snapshots/abc"
    snapshot.parent.mkdir(parents=True)
    shutil.move(world.target, snapshot)
    tiny.write_nested(world.output / "8", world.weights, verifier="org/model")
    target, _ = locate_target(None, opened(world.output / "8"))
    assert target is not None
    assert target.path == snapshot


def test_target_beside_the_checkpoint_by_its_sizes(world: World) -> None:
    sizes = replace(tiny.SIZES, vocab=101)
    tiny.write_target(world.folder / "a_target_of_another_size", tiny.tiny_weights(0, sizes), sizes)
    (world.folder / "broken").mkdir()
    (world.folder / "broken/config.json").write_text("{")
    target, why = locate_target(None, checkpoint(world))
    assert target is not None
    assert target.path == world.target
    assert "by its sizes" in why
    assert "'/not/on/this/machine' is not here" in why


def test_no_target_says_what_was_looked_for(world: World) -> None:
    shutil.rmtree(world.target)
    assert locate_target(None, checkpoint(world)) == (
        None,
        "'/not/on/this/machine' is not here, and nothing beside the checkpoint fits",
    )
    (world.output / "7/config_speculators.json").unlink()
    assert locate_target(None, checkpoint(world)) == (None, "no target known")


@pytest.mark.parametrize("name", ["a\x00b", "../../etc", "/", "x" * 5000, "~nobody/x"])
def test_names_of_targets_that_lead_nowhere(world: World, name: str) -> None:
    shutil.rmtree(world.target)
    tiny.write_nested(world.output / "8", world.weights, verifier=name)
    target, _ = locate_target(None, opened(world.output / "8"))
    assert target is None


def test_a_crowded_folder_is_not_searched_whole(world: World) -> None:
    shutil.move(world.target, world.folder / "z_target")
    for i in range(MAX_CHILDREN + 5):
        (world.folder / f"f{i}").mkdir()
    assert locate_target(None, checkpoint(world))[0] is None


# --- samples


def test_samples_as_given(world: World, tmp_path: Path) -> None:
    folder = world.samples[0].parent
    assert locate_samples((folder,), world.output, no_poll) == (list(world.samples), str(folder))
    with refused(PathError, "nothing", "--samples"):
        locate_samples((tmp_path / "nothing",), world.output, no_poll)
    with refused(PathError, "no recorded samples"):
        locate_samples((world.target,), world.output, no_poll)


@pytest.mark.parametrize("name", ["samples", "hidden_states", "train_data", "my-samples"])
def test_samples_beside_the_checkpoints(world: World, name: str) -> None:
    shutil.move(world.folder / "samples", world.folder / name)
    for root in (world.output, world.output / "7"):
        paths, why = locate_samples((), root, no_poll)
        assert [p.name for p in paths] == ["data_0.pt"]
        assert why == f"{world.folder / name}, beside the checkpoints"


def test_samples_below_the_path_come_first(world: World) -> None:
    inside = tiny.write_v1_sample(world.output / "recorded/data_5.pt", world.texts[0])
    assert locate_samples((), world.output, no_poll)[0] == [inside]


def test_no_samples(world: World) -> None:
    shutil.rmtree(world.folder / "samples")
    (world.folder / "data").mkdir()
    assert locate_samples((), world.output, no_poll) == ([], "none given (-s), none beside the checkpoints")


# --- the tokenizer


def test_tokenizer_in_the_order_of_nearness(world: World, tmp_path: Path) -> None:
    read, sample = checkpoint(world), world.samples[0]
    target, _ = locate_target(None, read)
    places = [
        (world.target, "the target's"),
        (sample.parent.parent, "beside the samples"),
        (sample.parent, "beside the sample"),
        (world.output / "7", "the checkpoint's"),
    ]
    for folder, why in places:
        (folder / "tokenizer.json").write_text("{}")
        located = locate_tokenizer(None, read, sample, target)
        assert located is not None
        assert (located.path, located.why) == (folder, why)
    given = locate_tokenizer(tmp_path / "mine", read, sample, target)
    assert given is not None
    assert (given.path, given.why) == (tmp_path / "mine", "as given")
    assert locate_tokenizer(None, None, None, None) is None
