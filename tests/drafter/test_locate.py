"""What lies beside a checkpoint is found, with the reason; what was named is taken or refused, never replaced."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.errors import CheckpointError, FileError, PathError
from drafter.locate import MAX_CHILDREN, locate_samples, locate_target
from drafter.locate_tokenizer import locate_tokenizer
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


def test_another_drafter_is_no_target(world: World) -> None:
    """It has an embedding of its own and the same sizes, but also what only drafters have."""
    shutil.rmtree(world.target)
    tiny.write_flat(world.output / "8", world.weights)
    target, _ = locate_target(None, checkpoint(world))
    assert target is None


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


def with_tokenizer(folder: Path, name: str = "tokenizer.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("{}")
    return folder


def test_tokenizer_in_the_order_of_nearness(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place is preferred to those before it."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    tiny.write_nested(world.output / "8", world.weights, verifier="org/model")
    read, sample = opened(world.output / "8"), world.samples[0]
    target, _ = locate_target(world.target, read)
    (world.output / "run.yaml").write_text(
        f"train:\n  verifier:\n    verifier_name_or_path: {tmp_path}/from yaml # x\n"
    )
    (world.output / "train_command.txt").write_text(
        f"# x\ntrain.py --lr 1 --verifier-name-or-path {tmp_path}/command\n"
    )
    (sample.parent / "data_config.json").write_text(json.dumps({"model": {"target_model_path": f"{tmp_path}/config"}}))
    places = [
        (world.target, "the target's"),
        (tmp_path / "from yaml", f"the target in run.yaml '{tmp_path}/from yaml'"),
        (tmp_path / "command", f"the target in train_command.txt '{tmp_path}/command'"),
        (tmp_path / "config", f"the target in data_config.json '{tmp_path}/config'"),
        (sample.parent.parent, "beside the samples"),
        (sample.parent, "beside the sample"),
        (tmp_path / "hf/hub/models--org--model/snapshots/b", "the config's verifier 'org/model'"),
        (world.output / "8", "the checkpoint's"),
    ]
    for folder, why in places:
        with_tokenizer(folder)
        located = locate_tokenizer(None, read, sample, target)
        assert located is not None
        assert (located.path, located.why) == (folder, why)
    given = locate_tokenizer(tmp_path / "mine", read, sample, target)
    assert given is not None
    assert (given.path, given.why) == (tmp_path / "mine", "as given")
    assert locate_tokenizer(None, None, None, None) is None


@pytest.mark.parametrize("name", ["tokenizer.json", "tiktoken.model", "tokenizer.model"])
def test_files_that_are_tokenizers(world: World, name: str) -> None:
    shutil.rmtree(world.target)
    with_tokenizer(world.output / "7", name)
    assert locate_tokenizer(None, checkpoint(world), None, None) is not None


def test_the_branch_main_of_the_hub_comes_first(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "cache/models--org--model"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in "abc":
        with_tokenizer(model / "snapshots" / name)
    tiny.write_nested(world.output / "8", world.weights, verifier="org/model")
    for main, wanted in {"b\n": "b", "absent": "a", "": "a"}.items():
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs/main").write_text(main)
        located = locate_tokenizer(None, opened(world.output / "8"), None, None)
        assert located is not None and located.path == model / "snapshots" / wanted


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("/model/from_s3", "from_s3"),
        ("/data/models/Tiny-1B/", "models/Tiny-1B"),
        ("/data/models/Tiny-1B", "Tiny-1B"),
        ("org/Tiny-1B", "Tiny-1B"),
        ("../../models/Tiny-1B", "models/Tiny-1B"),
        ("C:\\models\\Tiny-1B", "Tiny-1B"),
    ],
)
def test_a_path_of_another_machine_is_looked_for_by_its_end(world: World, name: str, folder: str) -> None:
    tiny.write_nested(world.output / "8", world.weights, verifier=name)
    found = with_tokenizer(world.folder / folder)
    located = locate_tokenizer(None, opened(world.output / "8"), None, None)
    assert located is not None and located.path == found
    assert located.why == f"the config's verifier, rebased: {name!r} is not here"


def test_two_components_are_surer_than_one(world: World) -> None:
    tiny.write_nested(world.output / "8", world.weights, verifier="/data/models/Tiny-1B")
    with_tokenizer(world.folder / "Tiny-1B")
    surer = with_tokenizer(world.folder / "models/Tiny-1B")
    located = locate_tokenizer(None, opened(world.output / "8"), None, None)
    assert located is not None and located.path == surer


@pytest.mark.parametrize(
    ("note", "text"),
    [
        ("train_command.txt", "x.py --target-model-path={}"),
        ("train_command.txt", "x.py --model '{}' --lr 1"),
        ("train_command.txt", 'x.py --model-name-or-path "{}"'),
        ("train_command.txt", "x.py --model /absent --verifier_name_or_path {}"),
        ("run.yaml", "model:\n  target_model_path: '{}'"),
        ("run.yaml", 'verifier_name_or_path: "{}"   # the target'),
        ("run.yaml", "train:\r\n  model: {}\r\n"),
    ],
)
@pytest.mark.parametrize("where", ["7", "."])
def test_notes_of_the_training(world: World, tmp_path: Path, note: str, text: str, where: str) -> None:
    found = with_tokenizer(tmp_path / "elsewhere")
    (world.output / where / note).write_text(text.format(found))
    located = locate_tokenizer(None, checkpoint(world), None, None)
    assert located is not None and located.path == found
    assert located.why == f"the target in {note} {str(found)!r}"


@pytest.mark.parametrize("note", ["train_command.txt", "run.yaml", "data_config.json"])
@pytest.mark.parametrize(
    "name",
    ["a\x00b", "..", "../..", "/", "x" * 5000, "/" + "x" * 5000, "~nobody-here/x", "~", ".", "", "\ud800", "\n: :"],
)
def test_names_in_notes_that_lead_nowhere(world: World, note: str, name: str) -> None:
    data = {"data_config.json": json.dumps({"model": {"target_model_path": name}})}
    text = data.get(note, f"--model {name}" if note.endswith("txt") else f"model: {name}")
    sample = world.samples[0]
    (world.output / "7" / note).write_bytes(text.encode(errors="surrogatepass"))
    (sample.parent / note).write_bytes(text.encode(errors="surrogatepass"))
    tiny.write_nested(world.output / "8", world.weights, verifier=name)
    (world.output / "8" / note).write_bytes(text.encode(errors="surrogatepass"))
    for one in (checkpoint(world), opened(world.output / "8")):
        assert locate_tokenizer(None, one, sample, None) is None


@pytest.mark.parametrize("content", ["[]", "{", '{"model": 5}', '{"model": {"target_model_path": ["/x"]}}'])
def test_a_data_config_of_another_kind(world: World, content: str) -> None:
    (world.samples[0].parent / "data_config.json").write_text(content)
    assert locate_tokenizer(None, checkpoint(world), world.samples[0], None) is None


def test_notes_that_are_no_files(world: World) -> None:
    for note in ("train_command.txt", "run.yaml"):
        (world.output / note).mkdir()
    (world.output / "7/tokenizer.json").mkdir()
    assert locate_tokenizer(None, checkpoint(world), None, None) is None
