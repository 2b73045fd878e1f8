"""`fix` on tiny runs: the plan as text and JSON, the folder, and one line for every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests import tiny
from tests.eagle3_tui.command import Run
from tests.tiny_world import V1_SLOTS, World, tiny_world

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("fix"), count=1)


def test_help_shows_what_has_an_effect(run: Run) -> None:
    code, out, _ = run("fix", "--help")
    assert code == 0
    for word in ("--to", "--for", "--family", "--layers", "--dry-run", "--ordering", "--slots", "--json"):
        assert word in out
    for word in ("--depth", "--mask", "--device", "--rope-base"):
        assert word not in out
    assert "fix" in run("--help").out


def test_a_dry_run_says_it_all_and_writes_nothing(run: Run, world: World, tmp_path: Path) -> None:
    words = ["fix", world.output, "--slots", V1_SLOTS, "--ordering", "2,0,1", "--dry-run", "--for", "vllm@0.33.0"]
    code, out, err = run(*words, "--for", "sglang@0.5.12.post1", "--to", tmp_path / "fixed")
    assert (code, "Traceback" in err) == (0, False)
    for line in (
        "wanted     slots 2,0,1 = depths 4,0,2",
        "target     llama, 8 layers (rule: ordinary)",
        "  now     depths 2,4,6, from eagle_config.eagle_aux_hidden_state_layer_ids [1,3,5]",
        "  now     depths 2,4,5, by default",
        "  wanted  depths 0,2,4",
        "  write   eagle_config.eagle_aux_hidden_state_layer_ids: [-1, 1, 3]",
        "  write   eagle_aux_hidden_state_layer_ids: [0, 2, 4]",
        "  write   num_aux_hidden_states: 3",
        "fc: column blocks 1,2,0 become 0..2: ascending depth",
        "  fc.weight: column blocks moved",
        "nothing written",
    ):
        assert line in out.splitlines(), line
    assert "needs a patch" in out
    assert not (tmp_path / "fixed").exists()


def test_the_folder_is_written_and_selects_what_was_wanted(run: Run, world: World, tmp_path: Path) -> None:
    folder, data = tmp_path / "fixed", tmp_path / "plan.json"
    words = ["fix", world.output, "--slots", V1_SLOTS, "--ordering", "0,1,2", "--to", folder]
    code, out, err = run(*words, "--json", "-o", data)
    assert (code, out) == (0, "")
    plan = json.loads(data.read_text())
    assert (plan["depths"], plan["folder"], plan["fc_permuted"]) == ([0, 2, 4], str(folder), False)
    assert [(s["server"], s["now"]["depths"], s["then"]["depths"]) for s in plan["servers"]] == [
        ("sglang@0.5.23", [2, 4, 6], [0, 2, 4]),
        ("vllm@0.33.0", [2, 4, 5], [0, 2, 4]),
    ]
    given = ("-s", world.samples[0], "--slots", V1_SLOTS, "--target", world.target)
    assert json.loads(run("show", folder, *given, "--json").out)["configured"] == [0, 1, 2]
    log = next(line for line in err.splitlines() if line.startswith("log: ")).removeprefix("log: ")
    assert '"call": "fix"' in Path(log).read_text()
    code, _, err = run(*words)
    assert (code, "something is there already" in err) == (2, True)


def test_the_trained_ordering_is_what_is_wanted_if_none_is_named(run: Run, world: World) -> None:
    code, out, err = run("fix", world.output, "--slots", V1_SLOTS, "--dry-run", "--no-log")
    assert code == 0
    assert "wanted     slots 0,1,2 = depths 0,2,4" in out
    assert "ordering: 0,1,2 (trained, by the training's config)" in err


def test_without_samples_or_target(run: Run, tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "alone/7", tiny.tiny_weights())
    words = ["fix", folder, "--ordering", "0,1,2", "--dry-run", "--no-log"]
    code, out, _ = run(
        *words, "--slots", "embed,3,31,last", "--family", "kimi_k25", "--layers", 61, "--for", "sglang@0.5.14"
    )
    assert code == 0
    assert "  write   eagle_config.eagle_aux_hidden_state_layer_ids: [0, 3, 31]" in out.splitlines()
    code, out, _ = run(*words, "--slots", "embed,3,31")
    assert code == 0
    assert "target     unknown, ? layers (rule: ordinary)" in out
    assert "family is unknown: the ordinary rule is assumed" in out
    code, _, err = run(*words)
    assert (code, "no --slots" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--to"),
        (("--dry-run", "--ordering", "all"), "one ordering"),
        (("--dry-run", "--ordering", "0,1,2", "--ordering", "1,2,3"), "one ordering"),
        (("--dry-run", "--ordering", "0,1"), "an ordering of 2 slots"),
        (("--dry-run", "--ordering", "0,1,2", "--for", "tgi"), "the server 'tgi'"),
        (("--dry-run", "--ordering", "0,1,2", "--for", "sglang@x"), "the version 'x'"),
        (("--dry-run", "--ordering", "0,1,2", "--for", "trtllm"), "no embedding"),
        (("--dry-run", "--ordering", "0,1,2", "--to", "."), "own folder"),
        (("--ordering", "0,1,2", "--to", "../fixed"), "in the folder that is read"),
        (("--to", "new", "--slots", "?,?,?,?", "--ordering", "0,1,2"), "unknown depth"),
    ],
)
def test_refusals_are_one_line(
    run: Run, world: World, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.output / "7")
    slots = () if "--slots" in words else ("--slots", V1_SLOTS)
    code, out, err = run(
        "fix", world.output, *slots, *words, "--no-log", "--target", world.target, "-s", world.samples[0]
    )
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    assert sorted(path.name for path in Path().iterdir()) == [
        "config.json",
        "config_speculators.json",
        "model.safetensors",
    ]


def test_no_copy_becomes_one_more_checkpoint_of_the_run(run: Run, world: World, tmp_path: Path) -> None:
    words = ["fix", world.output, "--slots", V1_SLOTS, "--ordering", "0,1,2", "--target", world.target, "--no-log"]
    link, before = tmp_path / "link", sorted(world.output.iterdir())
    link.symlink_to(world.output)
    for place in (world.output / "fixed", link / "deeper/fixed"):
        for more in ((), ("--dry-run",)):
            code, out, err = run(*words, "--to", place, *more)
            assert (code, out) == (2, "")
            assert (
                f"in the folder that is read, {world.output}" in err
                and "give a folder outside it, or the checkpoint itself" in err
            )
    assert sorted(world.output.iterdir()) == before
    words[1] = world.output / "7"
    assert run(*words, "--to", world.folder / "output/../beside-7").code == 0
