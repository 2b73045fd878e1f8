"""The command line on tiny runs: data on stdout, words on stderr, exit codes, and one line for every refusal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import eagle3_tui.demo
from drafter.session import Options, Session
from eagle3_tui import __version__, cli
from eagle3_tui.ui_settings import UiSettings
from tests import tiny
from tests.tiny_world import V1_SLOTS, World, tiny_world

torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent.parent


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("cli"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Session logs go to a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> Ran:
        code = cli.main([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Options, Path | None, UiSettings]]:
    """What the screen was started with, instead of a screen."""
    started: list[tuple[Options, Path | None, UiSettings]] = []

    def run_app(options: Options, log_path: Path | None, settings: UiSettings) -> int:
        started.append((options, log_path, settings))
        return 0

    monkeypatch.setitem(sys.modules, "eagle3_tui.app", SimpleNamespace(run_app=run_app))
    return started


def process(*words: object, **how: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "eagle3_tui", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **how.pop("env", {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


# --- help and version


def test_help_names_every_command_and_option(run: Run) -> None:
    for words in (("--help",), ("-h",), ("some/path", "--help")):
        code, out, err = run(*words)
        assert (code, err) == (0, "")
    for word in ("demo", "score", "step", "show", "log", *OPTIONS, "--ascii", "--no-mouse", "--version"):
        assert word in out
    code, out, _ = run("score", "-h")
    assert code == 0
    for word in (*OPTIONS, "--json", "-o", "--group", "--sort"):
        assert word in out
    assert "--ascii" not in out


OPTIONS = (
    *("-s, --samples", "--target", "--tokenizer", "--slots", "--ordering", "--view", "--depth", "--mask", "--rows"),
    *("--device", "--dtype", "--log", "--no-log"),
)


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"eagle3-tui {__version__}\n", "")


def test_help_version_and_refusals_import_nothing_heavy() -> None:
    code = """
import sys
from eagle3_tui.cli import main
for words in (["--help"], ["--version"], ["score", "-h"], ["/nowhere"], ["score", "/nowhere", "--no-log"]):
    main(words)
heavy = [m for m in ("torch", "textual", "numpy", "pyarrow", "tokenizers") if m in sys.modules]
print("imported", heavy)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "imported []"


# --- opening the screen


def test_a_path_opens_the_screen(
    run: Run, world: World, screen: list[tuple[Options, Path | None, UiSettings]], tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    words = ["--slots", V1_SLOTS, "--mask", "all", world.output, "-s", "a", "-s", "b", "--depth", 3, "--log", log]
    words += ["--ordering", "0,1,2", "--ordering", "all", "--rows", 9, "--ascii", "--no-mouse"]
    words += ["--target", "t", "--tokenizer", "k", "--device", "cpu", "--dtype", "bfloat16", "--view", "trained"]
    assert run(*words) == (0, "", "")
    ((options, log_path, settings),) = screen
    assert options == Options(
        world.output,
        samples=(Path("a"), Path("b")),
        target=Path("t"),
        tokenizer=Path("k"),
        slots=V1_SLOTS,
        orderings=("0,1,2", "all"),
        depth=3,
        mask="all",
        rows=9,
        device="cpu",
        dtype="bfloat16",
    )
    assert log_path == log
    assert settings == UiSettings(True, False, ["eagle3-tui", *map(str, words)])


def test_defaults_of_the_screen(
    run: Run, world: World, screen: list[tuple[Options, Path | None, UiSettings]], state: Path
) -> None:
    run(world.output)
    run(world.output, "--no-log")
    (options, log_path, settings), (_, none, _) = screen
    assert options == Options(world.output)
    assert log_path is not None
    assert log_path.parent == state / "eagle3-tui"
    assert none is None
    assert (settings.ascii, settings.mouse) == (False, True)


def test_paths_named_like_a_command(
    run: Run,
    world: World,
    screen: list[tuple[Options, Path | None, UiSettings]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(world.output / "7", tmp_path / "score")
    monkeypatch.chdir(tmp_path)
    assert run("./score").code == 0
    assert run("--", "score").code == 0
    assert [options.path for options, _, _ in screen] == [Path("score")] * 2
    assert run("score").code == 2  # the command, and no PATH


def test_demo_is_the_shipped_run(
    run: Run,
    world: World,
    screen: list[tuple[Options, Path | None, UiSettings]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    demo = eagle3_tui.demo
    monkeypatch.setattr(demo, "OUTPUT", world.output)
    monkeypatch.setattr(demo, "TARGET", world.target)
    monkeypatch.setattr(demo, "SAMPLES", (world.folder / "samples",))
    assert demo.demo_options() == Options(
        world.output, samples=(world.folder / "samples",), target=world.target, slots=V1_SLOTS
    )
    for words in (("demo", "--depth", 2), ("--depth", 2, "demo")):
        assert run(*words).code == 0
        assert screen.pop()[0] == demo.demo_options(Options(world.output, depth=2))
    own = demo.demo_options(Options(world.output, samples=(Path("mine"),), slots="?,?"))
    assert (own.samples, own.slots) == ((Path("mine"),), "?,?")
    assert demo.demo_options(Options(world.output, samples=(Path("mine"),))).slots is None
    code, out, _ = run("score", "demo", "--json", "--no-log", "--depth", 1)
    assert code == 0
    assert json.loads(out)["configured"] == [1, 2, 3]


# --- score


def test_score_json_is_the_sessions(run: Run, world: World, state: Path) -> None:
    words = ["score", world.output, "--slots", V1_SLOTS, "--depth", 2, "--json", "--device", "cpu"]
    code, out, err = run(*words)
    assert code == 0
    data = json.loads(out)
    session = world.session(depth=2, slots=V1_SLOTS)
    session.options = replace(session.options, samples=())  # each of several would be a group
    expected = json.loads(json.dumps({**session.score_json(session.score(world.samples)), "verifier": None}))
    assert {**data, "dtype": 0, "placement_reason": 0} == {**expected, "dtype": 0, "placement_reason": 0}
    assert (len(data["orderings"]), data["configured"], data["trained"]) == (24, [1, 2, 3], [0, 1, 2])
    (log,) = (state / "eagle3-tui").iterdir()
    notes = err.splitlines()
    assert notes[0] == f"log: {log}"
    assert notes[1] == f"target: {world.target} (found beside the checkpoint, by its sizes; " + (
        "'/not/on/this/machine' is not here)"
    )
    assert notes[2] == f"samples: 2 ({world.folder / 'samples'}, beside the checkpoints)"
    assert notes[3].startswith("device: cpu float32 (")
    assert len(notes) == 4  # no progress: stderr is no terminal


def test_score_text(run: Run, world: World) -> None:
    words = ["score", world.output, "--slots", V1_SLOTS, "--depth", 2, "--no-log"]
    code, out, err = run(*words, "--ordering", "0,1,2", "--ordering", "1,2,3")
    assert code == 0
    lines = out.splitlines()
    assert len([line for line in lines if line[:3].strip(" *~ct") == "" and "/" in line and "," in line]) == 2
    assert any(line.split()[:1] == ["step"] or "step 0" in line for line in lines)
    assert any("c" in line[:3] and "1,2,3" in line for line in lines)
    assert any("t" in line[:3] and "0,1,2" in line for line in lines)
    assert "selects slots 1,2,3 (depths 2,4,6)" in out
    assert "no verifier_strict: no recorded slot is known to be the verifier's last state" in out
    assert "verifier: " not in out
    assert "log:" not in err


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("last:pre", "the target's final norm is applied to the recorded last state"),
        ("last:post", "the recorded last state has passed the target's final norm: none is applied"),
    ],
)
def test_a_score_says_whose_head_and_norm_the_verifier_is(run: Run, world: World, last: str, said: str) -> None:
    words = ["score", world.output, "--slots", f"embed,2,4,{last}", "--depth", 1, "--no-log", "--ordering", "0,1,2"]
    words += ["--target", world.target]
    assert f"\nverifier: head of {world.target}; {said}\n" in run(*words).out
    assert json.loads(run(*words, "--json").out)["verifier"] == f"head of {world.target}; {said}"


def test_output_goes_to_a_file_at_once(run: Run, world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    common = ["--ordering", "0,1,2", "--no-log", "--depth", 1]
    assert run("score", world.output, *common, "--json", "-o", out / "x.json")[:2] == (0, "")
    assert json.loads((out / "x.json").read_text())["orderings"][0]["slots"] == [0, 1, 2]
    assert run("-o", out / "x.txt", "score", world.output, *common)[:2] == (0, "")
    assert "best" in (out / "x.txt").read_text()
    assert sorted(os.listdir(out)) == ["x.json", "x.txt"]


def test_several_checkpoints_say_which_was_taken(run: Run, world: World, tmp_path: Path) -> None:
    for epoch in ("1", "2"):
        shutil.copytree(world.output / "7", tmp_path / "run" / epoch)
    common = ["-s", world.samples[0], "--target", world.target, "--no-log", "--depth", 1, "--ordering", "0,1,2"]
    _, _, err = run("score", tmp_path / "run", *common)
    assert err.splitlines()[0] == f"checkpoint: {tmp_path / 'run/2'}, the last with weights; 1 of 2"


def test_pooling_several_formats_is_said(run: Run, world: World, tmp_path: Path) -> None:
    tiny.write_arrow_samples(tmp_path / "samples", {0: world.texts[0]})
    common = ["score", world.output, "--no-log", "--depth", 1, "--ordering", "0,1,2", "-s", world.samples[0]]
    code, _, err = run(*common, "-s", tmp_path / "samples")
    assert code == 0
    assert "samples: of several formats (" in err
    assert "several formats" not in run(*common).err


def mixed_folder(folder: Path, world: World, broken: int = 1) -> Path:
    """Good samples between files that cannot be read."""
    for i, text in enumerate(world.texts):
        tiny.write_v1_sample(folder / f"data_{i + 3}.pt", text)
    for i in range(broken):
        tiny.write_truncated(folder / f"data_{i + (i > 2) * 9}.pt", world.samples[0])
    return folder


def test_what_cannot_be_read_in_a_folder_is_skipped_and_named(run: Run, world: World, tmp_path: Path) -> None:
    mixed_folder(tmp_path, world, broken=5)
    common = ["score", world.output, "--no-log", "--depth", 1, "--ordering", "0,1,2", "-s"]
    code, out, err = run(*common, tmp_path, "--json")
    data, alone = json.loads(out), json.loads(run(*common, world.folder / "samples", "--json").out)
    assert code == 0 and data["orderings"] == alone["orderings"]
    assert [Path(one["path"]).name for one in data["skipped"]] == [f"data_{i}.pt" for i in (0, 1, 2, 12, 13)]
    notes = err.splitlines()
    assert f"sample: {tmp_path / 'data_3.pt'}, the first that can be read and fits" in notes
    skipped = [line for line in notes if line.startswith("skipped: ")]
    assert len(skipped) == 4 and skipped[3] == "skipped: 2 more: --json has every one"
    for line, one in zip(skipped[:3], data["skipped"][:3], strict=True):
        assert line == f"skipped: {one['path']}: {one['error']}"
    assert "2 samples (5 more could not be scored)" in run(*common, tmp_path).out
    refuses(run(*common, tmp_path / "data_0.pt"), "data_0.pt")
    refuses(run(*common, tmp_path / "data_3.pt", "-s", tmp_path / "data_0.pt"), "data_0.pt")


def test_a_folder_without_a_sample_that_opens_is_refused(run: Run, world: World, tmp_path: Path) -> None:
    for i in range(2):
        tiny.write_truncated(tmp_path / f"data_{i}.pt", world.samples[0])
    for command in (["score", world.output], ["step", world.output, "--at", 9]):
        refuses(run(*command, "--no-log", "-s", tmp_path), "data_0.pt")


def test_step_takes_the_first_sample_that_opens(run: Run, world: World, tmp_path: Path) -> None:
    mixed_folder(tmp_path, world)
    common = ["step", world.output, "--no-log", "--at", 9, "--depth", 2, "--json", "-s"]
    code, out, err = run(*common, tmp_path)
    first = json.loads(run(*common, world.samples[0]).out)
    assert code == 0 and json.loads(out) == {**first, "sample": str(tmp_path / "data_3.pt")}
    assert "data_3.pt, the first that can be read and fits" in err


def test_samples_and_groups_of_a_score(run: Run, world: World) -> None:
    common = ["score", world.output, "--no-log", "--depth", 1, "--ordering", "0,1,2"]
    groups = ["--group", "one=*data_1.pt", "--group", "two=data_9*"]
    data = json.loads(run(*common, *groups, "--json").out)
    assert [(g["name"], g["samples"]) for g in data["groups"]] == [("other", 1), ("one", 1)]
    shares = [s["orderings"][0]["hits"] / s["orderings"][0]["total"] for s in data["samples"]]
    worst, best = (sorted(range(2), key=lambda i: sign * shares[i]) for sign in (1, -1))
    for sort, expected in (("worst", worst), ("best", best), ("name", [0, 1])):
        out = run(*common, *groups, "--sort", sort).out
        lines = out.splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("samples under 0,1,2"))
        assert [line.split()[-1] for line in lines[start + 2 : start + 4]] == [str(world.samples[i]) for i in expected]
        assert "group one, 1 sample:" in lines and "group other, 1 sample:" in lines
    two = json.loads(run(*common, "-s", world.samples[0], "-s", world.samples[1], "--json").out)
    assert two["groups"] is None  # they are two samples
    folders = [world.folder / "train", world.folder / "held-out"]
    for folder, sample in zip(folders, world.samples, strict=True):
        folder.mkdir()
        shutil.copy(sample, folder)
    two = json.loads(run(*common, "-s", folders[0], "-s", folders[1], "--json").out)
    assert [g["name"] for g in two["groups"]] == list(map(str, folders))
    refuses(run(*common, "--group", "one"), "--group 'one'", "NAME=GLOB")
    lost = run(*common, "-s", world.folder / "samples", "--group", "none=*/code/*", "--json")
    assert "--group none=*/code/* matches no sample" in json.loads(lost.out)["warnings"]
    assert "warning: --group none=*/code/* matches no sample\n" in run(*common, "--group", "none=*/code/*").out


def test_no_row_counts_names_the_rows_that_were_asked_for(run: Run, world: World) -> None:
    words = ["score", world.output, "--no-log", "--ordering", "0,1,2", "--rows", 1, "--depth", 1]
    assert "(--rows 1); try more --rows" in run(*words).out


def test_progress_on_a_terminal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with cli._progress() as show:
        show("scored 1 of 9")
        show("scored 2 of 9")  # too soon to be seen
        time.sleep(0.12)
        show("scored \x1b[2J3 of 9")
    said = capsys.readouterr().err
    assert said == "\rscored 1 of 9\x1b[K\rscored \\x1b[2J3 of 9\x1b[K\r\x1b[K"


# --- step


def test_step_json(run: Run, world: World) -> None:
    words = ["step", world.output, "--at", 9, "--depth", 3, "--json", "--no-log"]
    code, out, err = run(*words)
    assert code == 0
    session = world.session(depth=3)
    expected = {**session.step_json(session.step(9, (0, 1, 2))), "warnings": []}
    assert json.loads(out) == json.loads(json.dumps(expected))
    assert "ordering: 0,1,2 (trained, by the training's config)" in err
    assert f"tokenizer: {world.target} (the target's)" in err
    assert json.loads(run(*words, "--ordering", "3,2,1").out)["ordering"] == [3, 2, 1]


def test_step_takes_the_best_where_nobody_says_what_was_trained(run: Run, world: World, tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "alone", world.weights, norm_before_residual=True)
    common = ["-s", world.samples[1], "-s", world.samples[0], "--target", world.target, "--no-log"]
    scored = json.loads(run("score", folder, *common[:2], *common[4:], "--json", "--depth", 1).out)
    code, out, err = run("step", folder, *common, "--at", 9, "--json")
    assert code == 0
    assert json.loads(out)["ordering"] == scored["best"]
    assert "the best on this sample" in err


def test_step_text(run: Run, world: World) -> None:
    code, out, _ = run("step", world.output, "--at", tiny.TOKENS, "--depth", 2, "--no-log")
    assert code == 0
    assert out.startswith(f"token {tiny.TOKENS} (row {tiny.TOKENS - 2}), slots 0,1,2, view trained\n")
    assert "truth  none: past the end of the sample" in out
    assert "accept length 1 (with the bonus token)" in out
    code, out, _ = run("step", world.output, "--at", 9, "--depth", 2, "--no-log")
    assert f'"w{world.texts[0].ids[8]}" ({world.texts[0].ids[8]})' in out


# --- show


def test_show_json(run: Run, world: World) -> None:
    code, out, _ = run("show", world.output, "--json", "--no-log", "--slots", V1_SLOTS)
    assert code == 0
    data = json.loads(out)
    (found,) = data["checkpoints"]
    assert (found["name"], found["picked"], found["state"]) == ("7", True, "")
    facts = data["checkpoint"]
    assert facts["config"]["hidden_size"] == {"value": 32, "source": "config.json", "key": "hidden_size", "note": ""}
    assert facts["config"]["fc_norm"]["source"] == "config.json"
    assert facts["disagreements"] == [
        {"field": "aux_depths", "config.json": [2, 4, 6], "config_speculators.json": [0, 2, 4]}
    ]
    assert {"name": "d2t", "written": "d2t", "dtype": "I64", "shape": [40], "bytes": 320} in facts["tensors"]
    assert facts["vocab_map"]["reading"] == "offsets"
    assert len(facts["vocab_map"]["tests"]) == 2
    assert data["target"]["path"] == str(world.target)
    assert data["tokenizer"]["path"] == str(world.target)
    assert data["samples"]["count"] == 2
    slots = data["sample"]["slots"]
    assert [s["claimed"] for s in slots] == ["embed", "2", "4", "6"]
    assert [s["probed"] for s in slots] == ["embed", *["not embed"] * 3]
    assert (data["configured"], data["trained"]) == ([1, 2, 3], [0, 1, 2])


def test_show_text(run: Run, world: World) -> None:
    code, out, _ = run("show", world.output, "--no-log", "--slots", V1_SLOTS)
    assert code == 0
    for part in (
        *("layer ids select depths 2,4,6", "aux_depths: config.json [2, 4, 6], config_speculators.json [0, 2, 4]"),
        *("written as", "midlayer.mlp.up_proj.weight", "read as offsets", "direct ids:", "8 layers", "by --slots"),
        *("configured: slots 1,2,3", "trained: slots 0,1,2"),
    ):
        assert part.replace("by --slots", "--slots") in out, part


def test_show_without_samples_weights_or_target(run: Run, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "a/b/c/d/7"  # nothing beside it
    shutil.copytree(world.output / "7", folder)
    (folder / "model.safetensors").unlink()
    code, out, _ = run("show", folder, "--no-log", "--json")
    data = json.loads(out)
    assert (code, data["sample"], data["target"]["path"], data["tokenizer"]["path"]) == (0, None, None, None)
    assert data["checkpoint"]["vocab_map"] == {"reading": None, "tests": [], "warning": "no weights"}
    code, out, _ = run("show", folder, "--no-log")
    assert code == 0
    assert "none: no weights" in out
    assert "none given (-s), none beside the checkpoints" in out


def test_show_tells_what_is_broken(run: Run, world: World, tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "run/1", {**world.weights, **tiny.vocab_map(3, kind="out_of_range")})
    sample = tmp_path / "samples/data_0.pt"
    sample.parent.mkdir()
    sample.write_bytes(b"no sample")
    code, out, err = run("show", folder, "--no-log")
    assert code == 0
    assert "ids outside of the vocabulary as offsets" in out
    assert "no sample: " in err
    assert run("show", folder, "--no-log", "-s", sample).code == 2


# --- log


def test_log_of_a_score_as_markdown(run: Run, world: World, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    run("score", world.output, "--ordering", "0,1,2", "--depth", 2, "--log", log)
    code, out, err = run("log", log)
    assert (code, err) == (0, "")
    assert out.startswith("# eagle3-tui session\n")
    assert "## Scores" in out
    assert "`eagle3-tui score " in out
    assert json.loads(run("log", log, "--json").out)[0]["record"] == "header"
    run("log", log, "-o", tmp_path / "log.md")
    assert (tmp_path / "log.md").read_text() == out


def test_no_log_writes_none(run: Run, world: World, state: Path) -> None:
    run("score", world.output, "--ordering", "0,1,2", "--depth", 1, "--no-log")
    assert not state.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("score", "{run}", "-s", "{sample}", "--ordering", "0,1,2"),
        ("step", "{run}", "-s", "{sample}", "--at", "9"),
        ("show", "{run}", "-s", "{sample}"),
        ("accept", "{run}", "-s", "{sample}"),
        ("compare", "{run}", "{run}", "-s", "{sample}"),
        ("compare", "{run}", "-s", "{sample}"),
    ],
)
def test_rules_of_another_version_are_said_in_the_report(run: Run, world: World, words: tuple[str, ...]) -> None:
    """A version that nobody has read yet runs by the newest rules known, which the report itself must say."""
    places = {"run": world.output, "sample": world.samples[0]}
    asked = [word.format(**places) for word in words]
    asked += ["--slots", V1_SLOTS, "--target", str(world.target), "--depth", "1", "--no-log", "--view"]
    said = "view sglang@99.1: newer than what was read: the rules of sglang "
    ran = run(*asked, "sglang@99.1")
    assert ran.code == 0 and said in ran.out
    assert [w for w in json.loads(run(*asked, "sglang@99.1", "--json").out)["warnings"] if w.startswith(said)]
    assert json.loads(run(*asked, "sglang@0.5.12", "--json").out)["warnings"] == []


# --- refusals


def refuses(ran: Ran, *words: str) -> None:
    """Exit 2, nothing on stdout, and one last line on stderr that names the tool and holds `words`."""
    *notes, line = ran.err.splitlines()
    assert (ran.code, ran.out) == (2, ""), ran
    assert line.startswith("eagle3-tui: "), ran.err
    assert all(note.partition(":")[0] in NOTES for note in notes), ran.err
    assert line.isprintable()
    for word in words:
        assert word in line, line


NOTES = ("log", "checkpoint", "target", "samples", "tokenizer", "device", "ordering")

BAD_USAGE: list[tuple[list[object], str]] = [
    ([], "Missing argument 'PATH'"),
    (["score"], "Missing argument 'PATH'"),
    (["score", "x", "--nonsense"], "--nonsense"),
    (["score", "x", "--depth", "0"], "--depth"),
    (["score", "x", "--depth", "many"], "--depth"),
    (["score", "x", "--rows", "-3"], "--rows"),
    (["score", "x", "--mask", "some"], "'next'"),
    (["score", "x", "--dtype", "int4"], "bfloat16"),
    (["score", "x", "y"], "y"),
    (["x", "y"], "'x' is no command"),
    (["step", "x"], "--at"),
    (["step", "x", "--at", "x"], "--at"),
    (["log"], "LOG"),
]


@pytest.mark.parametrize(("words", "part"), BAD_USAGE)
def test_bad_usage_is_one_line_with_a_hint(run: Run, words: list[object], part: str) -> None:
    ran = run(*words)
    refuses(ran, part, "--help")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["scroe", "demo"], "'scroe' is no command, file or folder: did you mean score? See eagle3-tui --help"),
        (["acept"], "did you mean accept?"),
        (["--depth", 3, "CHECK", "demo"], "did you mean check?"),
        (["help"], "did you mean --help?"),
        (["nonsense", "demo"], "'nonsense' is no command, file or folder; commands are demo, score, "),
        (["nonsense"], "no such file or folder; in nonsense; check the path, or see --help for the commands"),
        (["./scroe"], "no such file or folder; in scroe"),
        (["score", "demo", "--orderin", "0,1"], "'--orderin': did you mean --ordering? See eagle3-tui score --help"),
        (["--dpth", 3, "demo"], "'--dpth': did you mean --depth? See eagle3-tui --help"),
        (["score", "demo", "--ascii"], "No such option '--ascii' here: it belongs to PATH, demo, accept; see"),
        (["demo", "--foo"], "No such option '--foo'; see eagle3-tui demo --help"),
    ],
)
def test_what_was_probably_meant_is_said(run: Run, words: list[object], part: str) -> None:
    ran = run(*words)
    refuses(ran, part)
    assert ran.err.count("\n") == 1


def test_a_file_named_almost_like_a_command_opens(
    run: Run, screen: list[tuple[Options, Path | None, UiSettings]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores").mkdir()
    assert run("scores").code == 0 and screen[0][0].path == Path("scores")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--ordering", "0,1,9"], "slot 9"),
        (["--ordering", "0,1"], "2 slots"),
        (["--ordering", "first"], "'first'"),
        (["--slots", "embed,2"], "--slots names 2 slots"),
        (["--slots", "embed,/,3,4"], "--slots"),
        (["--slots", "foo,bar,3,16"], "'foo' in --slots; expected a depth in layers, embed, last, last:pre, last:post"),
        (["--view", "trtllm@0.9"], "trtllm@0.9"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--device", "toaster"], "toaster"),
        (["--target", "/nowhere"], "/nowhere"),
        (["--tokenizer", "/nowhere"], "/nowhere"),
        (["-s", "/nowhere"], "/nowhere"),
    ],
)
def test_options_that_do_not_fit(run: Run, world: World, words: list[str], part: str) -> None:
    refuses(run("score", world.output, "--no-log", "--depth", 1, *words), part)


@pytest.mark.parametrize("at", ["-1", "1", str(tiny.TOKENS + 1)])
def test_tokens_out_of_range(run: Run, world: World, at: str) -> None:
    refuses(run("step", world.output, "--no-log", "--at", at), f"token {at}", f"2..{tiny.TOKENS}")


@pytest.mark.parametrize("command", ["score", "show", "step", None])
def test_places_without_a_checkpoint(run: Run, tmp_path: Path, command: str | None) -> None:
    words: list[object] = [command] if command else []
    words += ["--at", 5] if command == "step" else []
    refuses(run(*words, tmp_path / "gone", "--no-log"), "no such file or folder", "gone")
    if command:
        (tmp_path / "empty").mkdir()
        refuses(run(*words, tmp_path / "empty", "--no-log"), "the folder is empty")
        (tmp_path / "weights.pt").write_bytes(b"x")
        refuses(run(*words, tmp_path / "weights.pt", "--no-log"), "weights.pt")


def test_checkpoints_that_cannot_be_run(run: Run, world: World, tmp_path: Path) -> None:
    common = ["-s", world.samples[0], "--target", world.target, "--no-log", "--depth", 1]
    cut = shutil.copytree(world.output / "7", tmp_path / "cut")
    tiny.write_truncated(cut / "model.safetensors", world.output / "7/model.safetensors")
    refuses(run("score", cut, *common), "model.safetensors")
    folder = tiny.write_flat(tmp_path / "map", {**world.weights, **tiny.vocab_map(3, kind="out_of_range")})
    refuses(run("score", folder, *common), "outside of the vocabulary")
    (folder / "model.safetensors").unlink()
    refuses(run("score", folder, *common), "without weights")
    (folder / "config.json").write_text("{")
    refuses(run("score", folder, *common), "not JSON")
    missing = dict(world.weights)
    del missing["norm.weight"]
    refuses(run("score", tiny.write_flat(tmp_path / "less", missing), *common), "'norm.weight'")


def test_samples_that_are_none(run: Run, world: World, tmp_path: Path) -> None:
    common = ["score", world.output, "--no-log", "--depth", 1, "-s"]
    marker = tmp_path / "executed"
    refuses(run(*common, tiny.write_pickle_with_code(tmp_path / "code.pt", marker)), "code.pt")
    assert not marker.exists()
    refuses(run(*common, tiny.write_truncated(tmp_path / "cut.pt", world.samples[0])), "cut.pt")
    refuses(run(*common, tiny.write_stride_bomb(tmp_path / "bomb.pt")), "bomb.pt")
    wide = tiny.TinySample([3] * 9, [1] * 9, torch.zeros(9, 4, 48, dtype=torch.bfloat16), tiny.V1_DEPTHS)
    refuses(run(*common, tiny.write_v1_sample(tmp_path / "wide.pt", wide)), "48", "32")
    beyond = tiny.TinySample(
        [3] * 3 + [10**6] * 6, [1] * 9, torch.zeros(9, 4, 32, dtype=torch.bfloat16), tiny.V1_DEPTHS
    )
    refuses(run(*common, tiny.write_v1_sample(tmp_path / "beyond.pt", beyond)), "1000000")
    (tmp_path / "empty").mkdir()
    refuses(run(*common, tmp_path / "empty"), "no recorded samples")


def test_no_samples_anywhere(run: Run, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "a/b/c/d/7"
    shutil.copytree(world.output / "7", folder)
    refuses(run("score", folder, "--no-log"), "no samples", "-s")
    refuses(run("step", folder, "--at", 4, "--no-log"), "no samples", "-s")


def test_logs_that_are_none(run: Run, tmp_path: Path) -> None:
    refuses(run("log", tmp_path / "gone"), "No such file")
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"record": "header"}\n{"record": "call", "call": "score", "inputs": {}, "result": {}}\n')
    refuses(run("log", odd), "records that do not fit")


def test_an_output_that_cannot_be_written(run: Run, world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refuses(run("show", world.output, "--no-log", "-o", tmp_path / "file/x"), "cannot write")


def test_a_hostile_name_is_shown_as_text(run: Run, tmp_path: Path) -> None:
    refuses(run("score", tmp_path / "\x1b[2J\u202egone\nx", "--no-log"), "\\x1b[2J\\u202egone\\nx")


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (RuntimeError("shapes\n  do not fit"), "RuntimeError: shapes do not fit; unexpected"),
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA"), "out of memory (CUDA)"),
        (OSError(5, "Input/output error", "/data/x"), "Input/output error; in /data/x"),
        (KeyError("x"), "KeyError"),
    ],
)
def test_surprises_are_one_line_and_logged(
    run: Run, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, part: str
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Session, "load", fails)
    log = tmp_path / "log.jsonl"
    refuses(run("score", world.output, "--log", log), part)
    last = json.loads(log.read_text().splitlines()[-1])
    assert last["record"] == "error"
    assert "in fails" in last["trace"]
    assert "in fails" in run("log", log).out


# --- leaving


def test_an_interrupt_is_130_and_keeps_the_log(
    run: Run, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "score", interrupted)
    log = tmp_path / "log.jsonl"
    code, out, err = run("score", world.output, "--log", log)
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    assert json.loads(log.read_text().splitlines()[-1])["call"] == "load"


def test_ctrl_c_in_a_process(world: World) -> None:
    words = ["score", world.output, "--depth", 256, "--no-log"]
    with process(*words) as ran:
        assert ran.stderr is not None
        for line in ran.stderr:
            if line.startswith("device:"):
                break
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=30)
    assert (ran.returncode, out, err) == (130, "", "")


def test_a_reader_that_leaves_is_no_error(world: World) -> None:
    with process("show", world.output, "--no-log", "--json") as ran:
        assert ran.stdout is not None and ran.stderr is not None
        ran.stdout.close()
        err = ran.stderr.read()
    assert ran.returncode == 0
    assert "Traceback" not in err and "BrokenPipe" not in err


def test_another_encoding_shows_escapes(world: World, tmp_path: Path) -> None:
    words = [f"wörd{i}" for i in range(tiny.SIZES.vocab)]
    tokenizer = tiny.write_tokenizer(tmp_path / "tokenizer.json", tokens=words)
    common = ["step", world.output, "--at", 9, "--tokenizer", tokenizer, "--no-log"]
    with process(*common, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}) as ran:
        out, _ = ran.communicate(timeout=60)
    assert ran.returncode == 0
    assert "w\\xf6rd" in out
