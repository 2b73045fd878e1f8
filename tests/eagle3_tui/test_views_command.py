"""`views` on a tiny run and on what ships with the package: the table, the cause, the JSON, one line for a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle3_tui import views_report
from tests.eagle3_tui.command import Run
from tests.tiny_world import V1_SLOTS, World, tiny_world

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("views"), count=2)


def words(world: World, *more: object) -> list[object]:
    return ["views", world.output, "-s", world.folder / "samples", "--target", world.target, "--slots", V1_SLOTS, *more]


def test_help_shows_what_has_an_effect(run: Run) -> None:
    code, out, _ = run("views", "--help")
    assert code == 0 and out.count("--view ") == 1
    for word in (
        "--view",
        "--family",
        "--layers",
        "--ordering",
        "--slots",
        "--mask",
        "--depth",
        "--json",
        "repeatable",
    ):
        assert word in out
    for word in ("--norm-before-residual", "--rope-base", "--tokenizer"):
        assert word not in out
    assert "views" in run("--help").out


def test_the_story_comes_out_of_one_command(run: Run) -> None:
    """The drafter that ships is good, and its config names the layers one state too late."""
    code, out, err = run("views", "demo", "--view", "sglang@0.5.9", "--view", "sglang", "--rows", "150", "--json")
    assert code == 0 and "Traceback" not in err
    data = json.loads(out)
    trained, (old, new) = data["trained"], data["views"]
    assert trained["slots"] == [0, 1, 2] and trained["depths"] == [0, 2, 4] and "training's config" in trained["why"]
    assert old["slots"] == new["slots"] == [1, 2, 3] and old["captures"] == [2, 4, 6] and old["ids"] == [1, 3, 5]
    names = [[d["name"] for d in view["differences"]] for view in (old, new)]
    assert names == [["ordering", "norm_before_residual", "positions"], ["ordering", "norm_before_residual"]]
    ratio = [ratio_of(trained), *(ratio_of(d["together"]) for d in new["differences"])]
    assert ratio[0] > 0.6 > 0.35 > ratio[1] > 0.1 > ratio[2]
    assert ratio_of(new["differences"][1]["alone"]) > 0.4  # the residual alone costs less than with the wrong states
    assert new["differences"][-1]["together"]["accuracy"] == new["accuracy"]
    assert new["cause"] == "ordering" and "[-1, 1, 3]" in new["sentence"] and new["differences"][0]["curable"]
    assert [d["against_before"]["verdict"] for d in new["differences"]] == ["costs", "costs"]
    assert not new["differences"][1]["curable"] and old["versions"] == ["sglang@0.5.9"]
    lengths = trained["accept_length"]
    assert lengths["mean"] == pytest.approx(
        sum((i + 1) * n for i, n in enumerate(lengths["histogram"])) / lengths["rows"]
    )


def ratio_of(scored: dict[str, Any]) -> float:
    return float(scored["accuracy"]["hits"] / scored["accuracy"]["total"])


def test_the_table_and_the_reasons(run: Run, world: World) -> None:
    code, out, _ = run(*words(world))
    assert code == 0
    lines = out.splitlines()
    assert all(len(line) <= 120 for line in lines)
    table = [line.split()[0] for line in lines if line.startswith(("trained ", "sglang@", "vllm@")) and ":" not in line]
    assert "target     llama, 8 layers" in lines
    assert table[:6] == ["trained", "trained", "sglang@0.5.9", "sglang@0.5.11", "sglang@0.5.12", "vllm@0.33.0"]
    for said in (
        "in CUDA graphs",
        "norm_before_residual: on -> off",
        "positions: advance -> late",
        "cure: config.json: eagle_config.eagle_aux_hidden_state_layer_ids = [-1, 1, 3]",
        "depth 5 is not among the recorded slots",
        "training fed slots 0,1,2 (depths 0,2,4)",
    ):
        assert said in " ".join(out.split()), said
    assert out.count("has no norm_before_residual") == 1  # reasons are given once


def test_json_goes_to_a_file_and_is_what_the_text_is_made_of(run: Run, world: World, tmp_path: Path) -> None:
    path = tmp_path / "views.json"
    code, out, _ = run(*words(world, "--view", "vllm@0.33.0", "--json", "-o", path))
    data = json.loads(path.read_text())
    assert code == 0 and out == "" and data["samples"] == 2 and data["depth"] == 5
    assert run(*words(world, "--view", "vllm@0.33.0")).out == views_report.views(data)
    view = data["views"][0]
    assert view["slots"] is None and view["accuracy"] is None and view["cause"] is None
    assert view["differences"][0] == {**view["differences"][0], "name": "ordering", "computed": False}
    documented = views_report.__doc__ or ""
    for key in {*data, *view, *view["differences"][0], *data["trained"]}:
        assert f'"{key}"' in documented, key


@pytest.mark.parametrize("name", ["trained", "trtllm", "sglang@", "x"])
def test_what_is_no_served_view_is_one_line(run: Run, world: World, name: str) -> None:
    code, out, err = run(*words(world, "--view", name))
    assert code == 2 and out == "" and "Traceback" not in err
    assert len([line for line in err.splitlines() if line.startswith("eagle3-tui:")]) == 1


def test_a_view_of_the_other_commands(run: Run, world: World) -> None:
    path = ["-s", world.samples[0], "--target", world.target, "--slots", V1_SLOTS, "--json", "--no-log"]
    code, out, err = run("score", world.output, *path, "--view", "sglang", "--ordering", "1,2,3")
    data = json.loads(out)
    assert code == 0 and data["view"] == "sglang@0.5.23" and data["configured"] == [1, 2, 3]
    assert "no version given" in err
    views = json.loads(run("views", world.output, *path, "--view", "sglang").out)["views"][0]
    assert data["orderings"][0]["steps"][0]["next_token"]["marginal"] == views["accuracy"]
    code, out, err = run("step", world.output, *path, "--view", "sglang@0.5.12", "--at", 9)
    assert code == 0 and json.loads(out)["ordering"] == [1, 2, 3] and "captures depths" in err
    config = world.output / "7/config.json"
    text = config.read_text()
    config.write_text(text.replace('"num_hidden_layers": 1', '"num_hidden_layers": 2'))
    code, out, err = run("score", world.output, *path, "--view", "sglang")
    config.write_text(text)
    assert (code, out) == (2, "") and "would not load" in err and "Traceback" not in err
