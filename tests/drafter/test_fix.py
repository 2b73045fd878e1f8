"""A fixed folder computes, under ascending capture, what the source computes under the wanted ordering."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from drafter import fix
from drafter.checkpoint.checkpoint import Checkpoint, open_checkpoint
from drafter.errors import CheckpointError, FileError, PathError, WiringError
from drafter.files.find import find_checkpoints
from drafter.fix import folder as fix_folder
from drafter.serving.families import family_of
from drafter.serving.layer_ids import TOP, WIDTH
from drafter.serving.server import Server
from drafter.serving.unserved import unserved
from drafter.session import Options, Session
from drafter.wiring import Ordering
from tests import tiny
from tests.drafter.helpers import opened, refused, same
from tests.tiny_world import V1_SLOTS
from tests.zoo import ANIMALS, Animal

LLAMA = family_of("llama")
VARIANTS = {"plain": {}, "fc_norm": {"fc_norm": True}, "input_norm": {"input_norm": True}}
DEPTH = 2


def make(folder: Path, layout: str, variant: str = "plain", d2t: str = "offsets", **options: Any) -> Path:
    weights = tiny.tiny_weights(3, d2t=d2t, **VARIANTS[variant])
    write = tiny.write_flat if layout == "flat" else tiny.write_nested
    return write(folder, weights, norm_before_residual=True, embed=True, **options)


def planned(checkpoint: Checkpoint, ordering: Ordering, servers: Sequence[str] = (), **how: Any) -> fix.Plan:
    asked: dict[str, Any] = {"family": LLAMA, "num_layers": 8, "slot_depths": tiny.V1_DEPTHS, **how}
    return fix.plan(checkpoint, ordering, servers=[Server.parse(name) for name in servers], **asked)


def session_on(folder: Path, samples: Path) -> Session:
    options = Options(folder, (samples,), slots=V1_SLOTS, depth=DEPTH, device="cpu", dtype="float32")
    session = Session(options)
    session.choose_checkpoint(session.pick(session.find()))
    session.choose_sample(session.list_samples().paths[0])
    return session


def numbers(session: Session, ordering: Ordering) -> tuple[Any, list[list[float]]]:
    """Counts of a score, and the best logits of two tokens."""
    data = session.score_json(session.score([session.sample.path], [ordering]))
    (scored,) = data["orderings"]
    del scored["slots"]
    logits = [[p["logit"] for p in session.step_json(session.step(at, ordering))["predictions"]] for at in (9, 20)]
    return scored, logits


# --- the same function


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_every_order_of_three_slots(tmp_path: Path, layout: str, variant: str) -> None:
    source = make(tmp_path / "source", layout, variant)
    weights = tiny.tiny_weights(3)
    sample = tiny.write_v1_sample(tmp_path / "samples/data_0.pt", tiny.tiny_sample(0, weights))
    before, checkpoint = session_on(source, sample), opened(source)
    seen = set()
    for at, wanted in enumerate(permutations((0, 1, 3))):
        folder = fix.write(planned(checkpoint, wanted), tmp_path / f"fixed/{at}")
        after = session_on(folder, sample)
        assert after.configured()[0] == (0, 1, 3)
        assert after.trained() in (None, (0, 1, 3))
        ours, theirs = numbers(after, (0, 1, 3)), numbers(before, wanted)
        assert ours[0] == theirs[0]
        torch.testing.assert_close(torch.tensor(ours[1]), torch.tensor(theirs[1]), rtol=1e-5, atol=1e-5)
        seen.add(str(theirs))
    assert len(seen) == 6  # orderings differ, or the comparison would show nothing


@pytest.mark.parametrize("animal", ANIMALS, ids=lambda animal: animal.name)
def test_every_producers_drafter(tmp_path: Path, animal: Animal) -> None:
    """fc's output by the reference, ascending states on the copy as wanted ones on the source; all else to the bit."""
    (found,) = find_checkpoints(animal.write(tmp_path / "source"))
    checkpoint, states = open_checkpoint(found), animal.sizes.states
    wanted, slot_depths = tuple(reversed(range(states))), range(states)
    if "fc.weight" not in checkpoint.tensors:
        with refused(CheckpointError, "no recorded states"):
            planned(checkpoint, wanted, slot_depths=slot_depths)
        return
    copy = opened(fix.write(planned(checkpoint, wanted, slot_depths=slot_depths), tmp_path / "fixed"))
    before, after, sample = animal.reference(), animal.reference(), animal.sample()
    by_state = {name for name in copy.tensors if name.startswith(("fc", "input_norm", "mask_hidden"))}
    after.w.tensors |= {name: copy.tensors[name].read().float() for name in by_state}
    rows = [row[:states] for row in sample.slots]  # [A, Ht] each
    if "mask_hidden" in by_state:
        masks = (model.w.tensors["mask_hidden"].view(states, -1) for model in (before, after))
        torch.testing.assert_close(*(model.fuse(mask) for model, mask in zip((before, after), masks, strict=True)))
    for row in rows:
        torch.testing.assert_close(after.fuse(row), before.fuse(row[list(wanted)]), rtol=1e-4, atol=1e-4)
    for name in set(copy.tensors) - by_state:
        old, new = checkpoint.tensors[name].read(), copy.tensors[name].read()
        was_direct = name == "d2t" and torch.equal(new + torch.arange(new.numel()), old)
        assert same(new, old) or was_direct, name


def test_blocks_by_hand(tmp_path: Path) -> None:
    checkpoint = opened(make(tmp_path / "source", "flat", "fc_norm"))
    made = planned(checkpoint, (2, 3, 0))  # depths 4, 6, 0
    assert (made.depths, made.ascending, made.blocks, made.moves_blocks) == ((4, 6, 0), (0, 4, 6), (2, 0, 1), True)
    new = load_file(fix.write(made, tmp_path / "fixed") / "model.safetensors")
    old = load_file(checkpoint.path / "model.safetensors")
    width = tiny.SIZES.target_width
    for j, block in enumerate((2, 0, 1)):
        columns = old["fc.weight"][:, block * width : (block + 1) * width]
        assert torch.equal(new["fc.weight"][:, j * width : (j + 1) * width], columns)
        assert torch.equal(new[f"fc_norm.{j}.weight"], old[f"fc_norm.{block}.weight"])
    moved = {"fc.weight", *(f"fc_norm.{i}.weight" for i in range(3))}
    assert set(new) == set(old)
    assert all(torch.equal(new[name], old[name]) for name in set(old) - moved)


def test_mask_hidden_and_fc_columns_move_together(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "flat", "input_norm")
    tensors = load_file(source / "model.safetensors")
    tensors["mask_hidden"] = torch.arange(96.0).reshape(1, 1, 96)
    save_file(tensors, source / "model.safetensors")
    made = planned(opened(source), (1, 0, 2))
    new = load_file(fix.write(made, tmp_path / "fixed") / "model.safetensors")
    for name in ("mask_hidden", "input_norm.weight"):
        first, second, third = tensors[name].chunk(3, -1)
        assert torch.equal(new[name], torch.cat([second, first, third], -1))


# --- weights: bit for bit, in little memory, whatever the container


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_an_ascending_ordering_keeps_every_bit(
    tmp_path: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make(tmp_path / "source", "flat", dtype=dtype)
    monkeypatch.setattr(fix_folder, "CHUNK", 1000)  # many pieces
    seen: list[tuple[int, int]] = []
    made = planned(opened(source), (0, 1, 2))
    folder = fix.write(made, tmp_path / "fixed", on_progress=lambda done, total: seen.append((done, total)))
    old, new = load_file(source / "model.safetensors"), load_file(folder / "model.safetensors")
    assert {k: (v.dtype, v.shape) for k, v in new.items()} == {k: (v.dtype, v.shape) for k, v in old.items()}
    assert all(torch.equal(new[k].view(torch.uint8), old[k].view(torch.uint8)) for k in old)
    assert len(seen) > 40 and seen[-1][0] == seen[-1][1]
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_shards_become_one_file(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "flat")
    tensors = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, source / file, metadata={"torchspec_version": "0.1"})
    index = {"weight_map": {name: file for file, inside in shards.items() for name in inside}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    folder = fix.write(planned(opened(source), (0, 1, 2)), tmp_path / "fixed")
    new = load_file(folder / "model.safetensors")
    assert set(new) == set(tensors)
    assert all(torch.equal(new[name], tensors[name]) for name in names)
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata()["torchspec_version"] == "0.1"


def test_direct_ids_become_offsets(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "flat", d2t="direct")
    made = planned(opened(source), (0, 1, 2))
    assert {t.name: t.change for t in made.tensors if t.change} == {"d2t": "target ids made offsets"}
    new = load_file(fix.write(made, tmp_path / "fixed") / "model.safetensors")
    assert torch.equal(new["d2t"], tiny.vocab_map(3)["d2t"])
    assert new["d2t"].dtype == torch.int64


def test_a_broken_map_stays_and_is_said(tmp_path: Path) -> None:
    made = planned(opened(make(tmp_path / "source", "flat", d2t="out_of_range")), (0, 1, 2))
    assert any("d2t stays as it is" in note for note in made.notes)


# --- configs


def table(folder: Path, name: str = "config.json") -> Any:
    return json.loads((folder / name).read_text())


def test_a_flat_config_changes_in_its_ids_only(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "flat", speculators_config=True, changes={"unheard_of": {"kept": [1, None]}})
    (source / "generation_config.json").write_text('{"eos_token_id": 2}')
    (source / "config.py").write_text("raise SystemExit")
    (source / "training_state.json").write_text("{}")
    folder = fix.write(planned(opened(source), (2, 0, 1)), tmp_path / "deep/down/fixed", ["eagle3-tui", "fix"])
    expected = table(source)
    expected["eagle_config"][TOP] = [-1, 1, 3]
    expected |= {TOP: [0, 2, 4], WIDTH: 3}
    assert table(folder) == expected
    assert table(folder, "config_speculators.json") == table(source, "config_speculators.json")
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "config_speculators.json",
        "eagle3_tui_fix.json",
        "generation_config.json",
        "model.safetensors",
    }
    said = table(folder, "eagle3_tui_fix.json")
    assert said["command"] == ["eagle3-tui", "fix"]
    assert set(said["source"]["files"]) == {"config.json", "config_speculators.json", "model.safetensors"}
    assert (said["ordering"], said["depths"], said["fc_blocks"]) == ([2, 0, 1], [4, 0, 2], [1, 2, 0])
    assert {change["key"] for change in said["changes"]} == {f"eagle_config.{TOP}", TOP, WIDTH}


def test_training_config_gets_the_depths_in_its_own_numbering(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "nested", changes={"speculators_version": "0.3.0"}, layer_ids=(1, 3, 5))
    folder = fix.write(planned(opened(source), (3, 1, 2)), tmp_path / "fixed")
    assert table(folder, "config_speculators.json")[TOP] == [1, 3, 5]
    assert table(folder)["eagle_config"][TOP] == [1, 3, 5]
    assert table(folder)[TOP] == [2, 4, 6]


def test_a_nested_config_becomes_flat_for_sglang_and_stays_for_vllm(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "nested")
    flat = fix.write(planned(opened(source), (0, 1, 2)), tmp_path / "flat")
    config = table(flat)
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert not {"transformer_layer_config", "speculators_model_type", "auto_map"} & set(config)
    assert (config["rope_theta"], config["rope_scaling"], config["norm_before_residual"]) == (50000.0, None, True)
    assert "midlayer.mlp.up_proj.weight" in load_file(flat / "model.safetensors")
    assert opened(flat).run_config.aux_depths == opened(flat).config.aux_depths == (0, 2, 4)
    kept = fix.write(planned(opened(source), (0, 1, 3), ["vllm@0.33.0"]), tmp_path / "kept")
    assert table(kept) == {**table(source), TOP: [0, 2, 6], WIDTH: 3}
    assert "layers.0.mlp.up_proj.weight" in load_file(kept / "model.safetensors")
    assert not (kept / "config_speculators.json").exists()


def test_lists_that_no_asked_server_reads_are_removed(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "flat", changes={TOP: [9, 9, 9], WIDTH: 4})
    folder = fix.write(planned(opened(source), (0, 1, 2), ["sglang@0.5.23"]), tmp_path / "fixed")
    assert TOP not in table(folder)
    assert table(folder)[WIDTH] == 3
    folder = fix.write(planned(opened(source), (0, 1, 2), ["vllm@0.33.0"]), tmp_path / "vllm")
    assert table(folder)["eagle_config"][TOP] == table(folder)[TOP] == [0, 2, 4]


def test_what_servers_make_of_it_before_and_after(tmp_path: Path) -> None:
    made = planned(opened(make(tmp_path / "source", "flat")), (0, 1, 2), ["sglang@0.5.14", "vllm@0.33.0"])
    sglang, vllm = made.servers
    assert (sglang.now.depths, sglang.then.depths) == ((2, 4, 6), (0, 2, 4))
    assert (vllm.now.depths, vllm.now.source, vllm.then.depths) == ((2, 4, 5), "default", (0, 2, 4))
    assert any("needs a patch" in note for note in sglang.notes)
    assert any("norm_before_residual" in note for note in sglang.notes)
    assert vllm.notes == ()
    assert not made.moves_blocks and not [t for t in made.tensors if t.change]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("vllm@0.33.0", []),
        ("sglang@0.5.23", ["norm_before_residual", "no bias", "q_norm", "target's embedding"]),
        ("sglang@0.5.12", ["norm_before_residual", "no bias", "q_norm", "target's embedding", "input_norm"]),
        (
            "sglang@0.5.11",
            ["norm_before_residual", "no bias", "q_norm", "target's embedding", "norm_output", "input_norm"],
        ),
        ("trtllm", ["norm_before_residual"]),
    ],
)
def test_what_no_layer_ids_can_mend(tmp_path: Path, server: str, said: list[str]) -> None:
    weights = tiny.tiny_weights(3, input_norm=True, attention_bias=True, qk_norm=True)
    checkpoint = opened(tiny.write_nested(tmp_path, weights, norm_before_residual=True, norm_output=True))
    found = unserved(checkpoint, Server.parse(server))
    assert len(found) == len(said)
    assert all(word in line for word, line in zip(said, found, strict=True))


# --- refusals


def test_parallel_drafters_are_vllms(tmp_path: Path) -> None:
    checkpoint = opened(make(tmp_path / "source", "flat"))
    checkpoint = replace(checkpoint, config=replace(checkpoint.config, parallel=True))
    with refused(WiringError, "P-EAGLE", "vLLM"):
        planned(checkpoint, (0, 1, 2), ["sglang"])
    assert [str(server.server) for server in planned(checkpoint, (0, 1, 2)).servers] == ["vllm@0.33.0"]


def test_orderings_that_cannot_be_served(tmp_path: Path) -> None:
    checkpoint = opened(make(tmp_path / "source", "flat"))
    with refused(WiringError, "slot 3 of unknown depth", "--slots"):
        planned(checkpoint, (0, 1, 3), slot_depths=(0, 2, 4, None))
    with refused(WiringError, "depths 0, 2, 2"):
        planned(checkpoint, (0, 1, 2), slot_depths=(0, 2, 2, 6))
    with refused(WiringError, "an ordering of 2 slots"):
        planned(checkpoint, (0, 1))
    with refused(WiringError, "slot 4"):
        planned(checkpoint, (0, 1, 4))
    with refused(WiringError, "trtllm@main cannot serve", "no embedding"):
        planned(checkpoint, (0, 1, 2), ["trtllm"])
    with refused(WiringError, "sglang@0.5.12 reads", "sglang@0.5.13", "one folder for each"):
        planned(checkpoint, (1, 2, 3), ["sglang@0.5.12", "sglang@0.5.13"], family=family_of("kimi_k2"))


def test_checkpoints_that_cannot_be_permuted(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "flat")
    tensors = load_file(source / "model.safetensors")
    save_file({**tensors, "fc.weight_scale": torch.ones(32, 3)}, source / "model.safetensors")
    with refused(CheckpointError, "fc.weight_scale", "plain weights"):
        planned(opened(source), (1, 0, 2))
    planned(opened(source), (0, 1, 2))
    (source / "model.safetensors").unlink()
    with refused(CheckpointError, "without weights"):
        planned(opened(source), (0, 1, 2))


def test_places_that_are_refused(tmp_path: Path) -> None:
    source = make(tmp_path / "run/7", "flat")
    made = planned(opened(source), (0, 1, 2))
    link = tmp_path / "link"
    link.symlink_to(source)
    (tmp_path / "file").write_text("")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    for place in (source, source / "fixed", source / "a/b", tmp_path / "run", link, link / "x"):
        with refused(PathError, "own folder"):
            fix.write(made, place)
    for place in (tmp_path / "taken", tmp_path / "file"):
        with refused(PathError, "something is there already"):
            fix.write(made, place)
    with refused(FileError, "cannot write the folder"):
        fix.write(made, tmp_path / "file/below")
    with refused(PathError, "no folder can be written"):
        fix.write(made, tmp_path / "a\0b")
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "empty").mkdir()
    assert fix.write(made, tmp_path / "empty") == (tmp_path / "empty").resolve()


def test_nothing_is_left_behind_when_it_fails(tmp_path: Path) -> None:
    source = make(tmp_path / "source", "flat")
    made = planned(opened(source), (0, 1, 2))

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fix.write(made, tmp_path / "fixed", poll=stop)
    whole = (source / "model.safetensors").read_bytes()
    for now, said in ((whole, "changed"), (whole[:-100], "truncated")):
        (source / "model.safetensors").write_bytes(now)
        with refused(FileError, said):
            fix.write(made, tmp_path / "fixed")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_copy_that_reads_back_as_another_drafter_is_not_kept(tmp_path: Path) -> None:
    made = planned(opened(make(tmp_path / "source", "flat")), (0, 1, 2))
    config = {**made.configs["config.json"], "norm_output": True}
    with refused(CheckpointError, "reads back with norm_output True"):
        fix.write(replace(made, configs={"config.json": config}), tmp_path / "fixed")
    with refused(CheckpointError, "other tensors"):
        fix.write(replace(made, tensors=made.tensors[1:]), tmp_path / "fixed")
    assert not (tmp_path / "fixed").exists()
