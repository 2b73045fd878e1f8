"""`compare` on tiny runs: two checkpoints and all epochs, as text and JSON, and one line for every refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import tiny
from tests.eagle3_tui.command import Run
from tests.tiny_world import World, tiny_world

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Epoch 7, an earlier one with other weights, and one whose weights were cleaned away."""
    made = tiny_world(tmp_path_factory.mktemp("compare"))
    for name in ("3", "5"):
        shutil.copytree(made.output / "7", made.output / name)
    rng = torch.Generator().manual_seed(1)
    whole = load_file(made.output / "3/model.safetensors")
    for key, t in whole.items():
        if key.startswith(("midlayer", "fc")):
            whole[key] = t + (0.3 * t.float().std() * torch.randn(t.shape, generator=rng)).to(t.dtype)
    save_file(whole, made.output / "3/model.safetensors")
    (made.output / "5/model.safetensors").unlink()
    (made.output / "5/val_metrics.json").write_text('{"full_acc_0_epoch": 0.41, "loss_epoch": 2.5}')
    (made.output / "checkpoint_best").symlink_to("7")
    return made


def test_help(run: Run) -> None:
    code, out, _ = run("compare", "--help")
    assert code == 0
    for word in ("PATH [OTHER]", "--most", "--samples", "--json", "--ordering", "--depth"):
        assert word in out
    assert "compare" in run("--help").out


def test_two_epochs_without_samples(run: Run, world: World) -> None:
    code, out, err = run("compare", world.output / "3", world.output / "7", "--no-log")
    assert (code, "Traceback" in err) == (0, False)
    lines = out.splitlines()
    assert lines[0].startswith(f"ours    {world.output / '3'} (") and lines[1].startswith("theirs  ")
    assert lines[2].startswith("verdict another state of the same run")
    assert any(line.split()[0] == "fc.weight" for line in lines if line.strip())
    assert "  equal: 35 fields" in lines or any(line.startswith("  equal: ") and "fields" in line for line in lines)
    assert "predictions" not in out
    assert "none asked for (-s)" in err


def test_two_exports_of_the_same_weights(run: Run, world: World, tmp_path: Path) -> None:
    nested = tiny.write_nested(tmp_path / "x", world.weights, norm_before_residual=True)
    code, out, _ = run("compare", world.output / "7", nested, "--no-log")
    assert code == 0
    assert "verdict the same weights exported twice: all 15 shared tensors are equal" in out
    assert "config.json differs in aux_depths" in out
    for said in (
        "  different: aux_depths (2, 4, 6) (eagle_config.eagle_aux_hidden_state_layer_ids = [1, 3, 5] (depth = id",
        "  same meaning: rope base 50000.0, type default (rope_theta = 50000.0) | base 50000.0, type default",
        "  not compared: embed_tokens.weight: only in theirs; the other has none",
        "tensors: 15 compared, 0 changed, 1 not compared",
    ):
        assert said in out, said
    data = json.loads(run("compare", world.output / "7", nested, "--no-log", "--json").out)
    assert (data["verdict_kind"], data["outcomes"], data["outcomes_problem"]) == ("same weights", None, "")


def test_with_samples_the_predictions_are_compared(run: Run, world: World, tmp_path: Path) -> None:
    words = ["compare", world.output / "3", world.output, "-s", world.samples[0], "-s", world.samples[1]]
    words += ["--target", world.target, "--mask", "all"]
    code, out, err = run(*words)
    assert code == 0
    assert "other: " in err and "to which checkpoint_best leads" in err
    assert "ordering 0,1,2 (trained, by the training's config), view trained" in out
    assert "McNemar p" in out and "sign test p" in out
    assert "  right: the drafted token is the sample's own; the verifier is not asked" in out
    assert any(line.startswith("sample ") and "only theirs" in line for line in out.splitlines())
    code, none, _ = run(*words, "--json", "-o", tmp_path / "c.json")
    assert (code, none) == (0, "")
    found = json.loads((tmp_path / "c.json").read_text())["outcomes"]
    assert len(found["samples"]) == 2 and found["mask"] == "all"
    rows = sum(found["step0"][key] for key in ("both", "only_ours", "only_theirs", "neither"))
    assert rows == found["ours"]["step0"]["total"] == 2 * (tiny.TOKENS - 2)
    differing = found["step0"]["only_ours"] + found["step0"]["only_theirs"]
    assert len(found["differing"]) == min(20, differing)
    assert json.loads(run(*words, "--json", "--most", 0).out)["outcomes"]["differing"] == []
    log = next(line for line in err.splitlines() if line.startswith("log: ")).removeprefix("log: ")
    text = Path(log).read_text()
    assert '"compare_checkpoints"' in text and '"compare_outcomes"' in text
    assert run("log", log).code == 0


def test_what_could_not_be_compared_does_not_cost_the_rest(run: Run, world: World) -> None:
    code, out, err = run("compare", world.output / "7", world.output / "5", "-s", world.samples[0], "--no-log")
    assert code == 2
    assert "verdict nothing to judge by: no weights in theirs" in out
    assert "predictions not compared: a checkpoint without weights" in out
    assert err.splitlines()[-1].startswith("eagle3-tui: a checkpoint without weights")


def test_all_epochs_of_a_run(run: Run, world: World) -> None:
    words = ["compare", world.output, "-s", world.samples[0], "-s", world.samples[1], "--target", world.target]
    code, out, err = run(*words, "--no-log")
    assert (code, "Traceback" in err) == (0, False)
    table = [line.split() for line in out.splitlines()]
    names = [
        cells[1] if cells[0] in "*~" else cells[0]
        for cells in table
        if len(cells) > 6 and cells[-1] in ("ok", "weights")
    ]
    assert names == ["3", "5", "7"]
    assert any(line.endswith("no weights") for line in out.splitlines())
    assert "* best " in out and "accept length" in out
    assert "as the trainer measured on its own data" in out and "full_acc_0_epoch" in out and "0.4100" in out
    data = json.loads(run(*words, "--no-log", "--json").out)
    assert data["series"]["epoch"] == [3, 5, 7] and data["series"]["length"][1] is None
    assert data["series"]["metrics"]["loss_epoch"] == [None, 2.5, None]
    assert [bool(e["step0"]) for e in data["epochs"]] == [True, False, True]


def test_names_from_files_are_shown_as_text(run: Run, world: World, tmp_path: Path) -> None:
    other = tmp_path / "x"
    shutil.copytree(world.output / "7", other)
    config = json.loads((other / "config.json").read_text())
    config["evil\x1b[2J"] = "\u202e[bold]"
    (other / "config.json").write_text(json.dumps(config))
    out = run("compare", world.output / "7", other, "--no-log").out
    assert "\x1b" not in out and "\u202e" not in out
    assert "keys only in theirs: evil\\x1b[2J \\u202e[bold]" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("{output}", "nowhere"), "no such file or folder; in nowhere"),
        (("nowhere", "{output}"), "no such file or folder; in nowhere"),
        (("{output}", "{target}"), "no EAGLE-3 checkpoint"),
        (("{output}", "-s", "nowhere"), "nowhere"),
        (("{alone}",), "no samples"),
        (("{output}", "{output}", "{output}"), "unexpected extra argument"),
        (("{output}", "--ordering", "0,1", "-s", "{sample}"), "an ordering of 2 slots"),
        (("{output}", "--view", "nonsense", "-s", "{sample}"), "nonsense"),
    ],
)
def test_refusals_are_one_line(
    run: Run, world: World, tmp_path: Path, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = tiny.write_flat(tmp_path / "deep/alone/7", tiny.tiny_weights())
    places = {"output": world.output, "target": world.target, "alone": alone, "sample": world.samples[0]}
    code, out, err = run("compare", *(word.format(**places) for word in words), "--no-log")
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1], err
    assert "Traceback" not in err
