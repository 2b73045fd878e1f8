"""The same drafter in every container, and folders that are not whole: listed with what is wrong, never a crash."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from drafter.checkpoint.checkpoint import open_checkpoint
from drafter.errors import CheckpointError, DrafterError, FileError, UnsafeFileError
from drafter.files import containers
from drafter.files.find import Found, find_checkpoints
from tests import tiny
from tests.drafter.helpers import opened, refused

WEIGHTS = tiny.tiny_weights()
WRITTEN = {
    k.replace("layers.0.", "midlayer."): t.bfloat16() if t.is_floating_point() else t for k, t in WEIGHTS.items()
}
INDEX = "pytorch_model.bin.index.json"
Tensors = dict[str, Tensor]


def config(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    table = {k: v for k, v in tiny.flat_config(WEIGHTS).items() if k != "norm_output"}
    (folder / "config.json").write_text(json.dumps(table))
    return folder


def only(root: Path) -> Found:
    (found,) = find_checkpoints(root)
    return found


def plain(folder: Path, tensors: Tensors) -> None:
    torch.save(tensors, folder / "pytorch_model.bin")


def legacy(folder: Path, tensors: Tensors) -> None:
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def wrapped(folder: Path, tensors: Tensors) -> None:
    torch.save({"state_dict": tensors, "epoch": 3}, folder / "model.pt")


def state(folder: Path, tensors: Tensors) -> None:
    torch.save({"draft_state_dict": tensors, "global_step": 3, "run_id": "x"}, folder / "training_state.pt")


def shards(folder: Path, tensors: Tensors) -> None:
    where: dict[str, str] = {}
    for i, half in enumerate((list(tensors)[::2], list(tensors)[1::2]), 1):
        file = f"pytorch_model-{i:05d}-of-00002.bin"
        torch.save({name: tensors[name] for name in half}, folder / file)
        where |= dict.fromkeys(half, file)
    (folder / INDEX).write_text(json.dumps({"weight_map": where}))


CONTAINERS = [plain, legacy, wrapped, state, shards]


@pytest.mark.parametrize("write", CONTAINERS)
def test_the_same_tensors_in_every_container(tmp_path: Path, write: Callable[[Path, Tensors], None]) -> None:
    write(config(tmp_path / "x"), WRITTEN)
    assert only(tmp_path).state == ""
    one = opened(tmp_path)
    assert one.tensors.keys() == WEIGHTS.keys() and one.missing == {} and one.warnings == ()
    for name, tensor in WEIGHTS.items():
        assert torch.equal(one.tensors[name].read().to(tensor.dtype), tensor), name
    assert one.config.dialect == ("specforge" if write is state else "flat")


def test_safetensors_are_read_where_both_are_there(tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "x", WEIGHTS)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02junk")
    assert [path.name for path in only(tmp_path).weights] == ["model.safetensors"] and opened(tmp_path).has_weights


def test_what_is_no_table_of_tensors_is_refused(tmp_path: Path) -> None:
    folder = config(tmp_path / "x")
    for value, word in (([1], "list"), ({"epoch": 3}, "'epoch'"), ({"model": {}}, "without tensors")):
        torch.save(value, folder / "pytorch_model.bin")
        with refused(FileError, word):
            opened(tmp_path)


def test_weights_that_would_run_code_are_refused(tmp_path: Path) -> None:
    tiny.write_pickle_with_code(config(tmp_path / "x") / "pytorch_model.bin", tmp_path / "ran")
    with refused(UnsafeFileError, "nothing in it was run"):
        opened(tmp_path)
    assert not (tmp_path / "ran").exists()


# --- where the config is


def test_a_run_keeps_one_config_for_all_of_its_steps(tmp_path: Path) -> None:
    run = config(tmp_path / "run")
    for step in (10, 20):
        (run / f"abc-step{step}").mkdir()
        state(run / f"abc-step{step}", WRITTEN)
    (run / "abc-latest").symlink_to("abc-step20")
    (run / "abc.best_meta.json").write_text('{"run_id": "abc", "step": 10, "score": 2.5}')
    found = {f.name: f for f in find_checkpoints(tmp_path)}
    assert set(found) == {"run", "run/abc-step10", "run/abc-step20"} and found["run"].state == "no weights"
    assert found["run/abc-step10"].links == ("run/abc.best_meta.json",)
    assert found["run/abc-step20"].links == ("run/abc-latest",)
    assert [found[name].epoch for name in sorted(found)] == [None, 10, 20]
    one = open_checkpoint(found["run/abc-step10"])
    assert one.missing == {} and one.metrics["score"] == 2.5 and "folder above" in one.warnings[0]
    assert open_checkpoint(found["run/abc-step20"]).metrics == {}


def test_weights_without_any_config_are_listed_as_such(tmp_path: Path) -> None:
    for name, write in (("a", plain), ("b", state), ("c", legacy)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, WRITTEN)
    (tmp_path / "target").mkdir()
    save_file({"lm_head.weight": torch.zeros(2, 2)}, tmp_path / "target/model.safetensors")
    found = find_checkpoints(tmp_path)
    assert {f.name: f.state for f in found} == dict.fromkeys("abc", "no config")
    for one in found:
        with refused(CheckpointError, "no config"):
            open_checkpoint(one)


@pytest.mark.parametrize(
    ("name", "epoch"),
    [("state_7", 7), ("exported-checkpoint-300", 300), ("iter_0000010", 10), ("checkpoint-30", 30), ("r-step5", 5)],
)
def test_epochs_of_every_producer(tmp_path: Path, name: str, epoch: int) -> None:
    plain(config(tmp_path / name), WRITTEN)
    assert only(tmp_path).epoch == epoch


@pytest.mark.parametrize("file", ["pytorch_model.bin", "training_state.pt", "model.safetensors"])
def test_a_file_by_itself(tmp_path: Path, file: str) -> None:
    folder = config(tmp_path / "x")
    writers: dict[str, Callable[[Path, Tensors], None]] = {
        "pytorch_model.bin": plain,
        "training_state.pt": state,
        "model.safetensors": lambda path, tensors: save_file(tensors, path / "model.safetensors"),
    }
    writers[file](folder, WRITTEN)
    assert open_checkpoint(only(folder / file)).missing == {}


# --- not whole


def test_what_is_not_whole_says_so(tmp_path: Path) -> None:
    def at(name: str) -> Path:
        return tiny.write_flat(tmp_path / name, WEIGHTS)

    (at("empty") / "model.safetensors").write_bytes(b"")
    whole = (at("cut") / "model.safetensors").read_bytes()
    (tmp_path / "cut/model.safetensors").write_bytes(whole[:-10])
    (at("locked") / "model.safetensors.lock").write_bytes(b"")
    (at("temporary") / "model.safetensors.tmp").write_bytes(b"")
    shards(config(tmp_path / "shard"), WRITTEN)
    (tmp_path / "shard/pytorch_model-00002-of-00002.bin").unlink()
    (config(tmp_path / "index") / "model.safetensors.index.json").write_text('{"weight_map": ')
    plain(config(tmp_path / "short"), WRITTEN)
    data = (tmp_path / "short/pytorch_model.bin").read_bytes()
    (tmp_path / "short/pytorch_model.bin").write_bytes(data[: len(data) // 2])
    (config(tmp_path / "parts") / "__0_0.distcp").write_bytes(b"x")
    words = {
        "empty": "zero bytes",
        "cut": "truncated",
        "locked": "still being written (model.safetensors.lock)",
        "temporary": "still being written",
        "shard": "pytorch_model-00002-of-00002.bin",
        "index": "not JSON",
        "short": "truncated",
        "parts": ".distcp",
    }
    states = {found.name: found.state for found in find_checkpoints(tmp_path)}
    assert states.keys() == words.keys()
    for name, word in words.items():
        assert word in states[name], (name, states[name])


def test_opening_what_is_not_whole_is_one_line(tmp_path: Path) -> None:
    for name, write in (("plain", plain), ("state", state), ("shards", shards), ("legacy", legacy)):
        write(config(tmp_path / name), WRITTEN)
        for file in [*(tmp_path / name).glob("*.bin"), *(tmp_path / name).glob("*.pt")]:
            data = file.read_bytes()
            for end in (0, 3, 100, len(data) // 2, len(data) - 5):
                file.write_bytes(data[:end])
                assert only(tmp_path / name).state or name == "legacy"
                with pytest.raises(DrafterError) as caught:
                    opened(tmp_path / name)
                assert str(caught.value).isprintable()
            file.write_bytes(data)


def test_a_file_that_may_not_be_read_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write_flat(tmp_path / "x", WEIGHTS)
    real = Path.open

    def refusing(path: Path, *args: Any, **options: Any) -> Any:
        if path.suffix == ".safetensors":
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", refusing)
    assert "Permission denied" in only(tmp_path).state
    with refused(FileError, "Permission denied"):
        opened(tmp_path)


def test_looking_at_forged_files_is_quiet(tmp_path: Path) -> None:
    file = tmp_path / "pytorch_model.bin"
    for data in (b"", b"PK\x03\x04", b"PK\x03\x04" + bytes(100), b"\x80\x02\x8a\x0a", bytes(50)):
        file.write_bytes(data)
        assert not containers.mentions(file, [b"fc.weight"])
        assert isinstance(containers.file_state(file), str)


def test_other_speculators_are_listed_but_not_as_whole(tmp_path: Path) -> None:
    (tmp_path / "medusa").mkdir()
    (tmp_path / "medusa/config.json").write_text('{"medusa_num_heads": 3}')
    assert only(tmp_path).state == "another kind of speculator"
    with refused(CheckpointError, "Medusa"):
        opened(tmp_path)


def test_torchspecs_parts_are_listed_as_what_they_are(tmp_path: Path) -> None:
    for name in ("iter_0000010/model", "iter_0000010/optimizer"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__0_0.distcp").write_bytes(b"x")
    found = only(tmp_path)
    assert (found.name, found.epoch) == ("iter_0000010/model", 10) and "export them" in found.state


def test_a_language_model_is_named(tmp_path: Path) -> None:
    tiny.write_target(tmp_path / "x", WEIGHTS)
    with refused(DrafterError, "LlamaForCausalLM", "8 layers", "no fc"):
        find_checkpoints(tmp_path / "x")
