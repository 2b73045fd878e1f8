"""`samples` on tiny folders: the table and the JSON, two recordings compared, exit codes, refusals in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests import tiny
from tests.eagle3_tui.command import Run
from tests.tiny_world import V1_SLOTS, World, tiny_world

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("samples"), count=2)


def text(seed: int) -> tiny.TinySample:
    return tiny.tiny_sample(seed, tiny.tiny_weights())


def server_captures(folder: Path, slots: Sequence[int], seeds: Sequence[int]) -> Path:
    """What a server captured of the texts `seeds`: the chosen slots only, under other names."""
    for number, seed in enumerate(seeds):
        whole = text(seed)
        tiny.write_v1_sample(folder / f"data_{number}.pt", replace(whole, slots=whole.slots[:, list(slots)]))
    return folder


def recordings(folder: Path, seeds: Sequence[int] = (0, 1, 2)) -> Path:
    return server_captures(folder, range(4), seeds)


def test_help_shows_what_has_an_effect(run: Run) -> None:
    code, out, _ = run("samples", "--help")
    assert code == 0
    for word in ("--against", "--most", "--samples", "--slots", "--rows", "--json"):
        assert word in out
    for word in ("--depth", "--mask", "--device", "--rope-base", "--ordering", "--view"):
        assert word not in out
    assert "samples" in run("--help").out


# --- survey


def test_the_table_and_the_totals(run: Run, world: World, tmp_path: Path) -> None:
    folder = recordings(tmp_path / "dump")
    tiny.write_v1_sample(folder / "data_3.pt", replace(text(3), mask=[0] * tiny.TOKENS))
    (folder / "data_4.pt").write_bytes(b"")
    code, out, err = run("samples", world.output, "-s", folder, "--no-log")
    assert (code, "Traceback" in err) == (0, False)
    lines = out.splitlines()
    assert lines[2].split() == ["name", "format", "tokens", "supervised", "slots", "width", "dtype", "size", "problem"]
    size = f"{(folder / 'data_0.pt').stat().st_size / 1000:.1f}"
    supervised = str(sum(text(0).mask))
    assert lines[3].split() == ["data_0.pt", "speculators", "v1", "25", supervised, "4", "32", "BF16", size, "kB"]
    assert lines[6].endswith("0 of 25 tokens supervised")
    assert lines[7].endswith("an empty file; the recording failed, or is still to be written")
    assert "4 readable, 1 unreadable, 1 of them empty" in lines
    assert "0 without a loss mask, 1 without a supervised token" in lines
    assert {"format: speculators v1 in 4", "dtype: BF16 in 4", "slots: 4 in 4", "width: 32 in 4"} <= set(lines)
    assert any(line.startswith("5 samples in 5 files, ") and ": 100 tokens, " in line for line in lines)
    assert lines[-2] == "first error of each kind" and lines[-1].startswith("  1 x an empty file")


def test_json_to_a_file(run: Run, world: World, tmp_path: Path) -> None:
    folder, file = recordings(tmp_path / "dump"), tmp_path / "survey.json"
    code, out, err = run("samples", world.output, "-s", folder, "--json", "-o", file)
    assert (code, out) == (0, "")
    data = json.loads(file.read_text())
    assert [Path(one["path"]).name for one in data["samples"]] == ["data_0.pt", "data_1.pt", "data_2.pt"]
    assert (data["totals"]["readable"], data["totals"]["tokens"]) == (3, 75)
    log = next(line for line in err.splitlines() if line.startswith("log: ")).removeprefix("log: ")
    (record,) = [r for r in map(json.loads, Path(log).read_text().splitlines()) if r.get("call") == "survey"]
    assert record["result"]["totals"]["readable"] == 3 and "samples" not in record["result"]


def test_nothing_readable_is_exit_2_with_the_table(run: Run, world: World, tmp_path: Path) -> None:
    (tmp_path / "data_0.pt").write_bytes(b"")
    code, out, err = run("samples", world.output, "-s", tmp_path / "data_0.pt", "--no-log")
    assert code == 2
    assert "0 readable, 1 unreadable" in out
    assert "none of 1 samples can be read; the first: an empty file" in err.splitlines()[-1]


def test_samples_that_the_drafter_cannot_take_are_counted(run: Run, world: World, tmp_path: Path) -> None:
    folder = recordings(tmp_path / "dump", (0, 1))
    tiny.write_v1_sample(folder / "data_8.pt", replace(text(2), slots=text(2).slots[:, :, :16]))
    tiny.write_v1_sample(folder / "data_9.pt", replace(text(3), slots=text(3).slots[:, :2]))
    code, out, _ = run("samples", world.output, "-s", folder, "--no-log")
    assert (code, out.splitlines()[-2:]) == (
        0,
        ["1 sample not 32 wide, as the drafter takes", "1 sample with fewer than 3 slots, as fc takes"],
    )
    assert "as the drafter takes" not in run("samples", world.output, "-s", folder / "data_0.pt", "--no-log").out


def test_names_from_files_are_harmless(run: Run, world: World, tmp_path: Path) -> None:
    tiny.write_v1_sample(tmp_path / "dump/data_\x1b[31m.pt", text(0))
    _, out, _ = run("samples", world.output, "-s", tmp_path / "dump", "--no-log")
    assert "\x1b" not in out and "data_\\x1b[31m.pt" in out


# --- against


def test_a_server_capture_against_the_dump(run: Run, world: World, tmp_path: Path) -> None:
    ours = recordings(tmp_path / "dump") / "data_0.pt"
    theirs = server_captures(tmp_path / "captured", (1, 2, 3), (0,)) / "data_0.pt"
    words = ["samples", world.output, "-s", ours, "--against", theirs, "--slots", V1_SLOTS, "--no-log"]
    code, out, _ = run(*words)
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert "slot 0 of theirs is slot 1 of ours (depth 2): equal on all 25 rows" in lines
    assert "theirs is [1,2,3] of ours: the ordering to serve" in lines
    assert "0     1  equal  1.000000      1.0000     25     25    25                   0      0" in lines
    data = json.loads(run(*words, "--json").out)
    (one,) = data["comparisons"]
    assert (one["ordering"], one["verdict"][-1]) == ([1, 2, 3], "theirs is [1,2,3] of ours: the ordering to serve")
    assert data["orderings"] == [{"ordering": [1, 2, 3], "samples": 1}]
    assert len(one["pairs"]) == 12


def test_rows_cut_ours(run: Run, world: World, tmp_path: Path) -> None:
    ours = recordings(tmp_path / "dump") / "data_0.pt"
    _, out, _ = run("samples", world.output, "-s", ours, "--against", ours, "--rows", 8, "--no-log")
    assert "ours is the first 10 of the 25 tokens of theirs" in out


def test_two_folders_are_paired_by_their_tokens(run: Run, world: World, tmp_path: Path) -> None:
    ours = recordings(tmp_path / "dump", (0, 1, 2, 3))
    theirs = server_captures(tmp_path / "captured", (1, 2, 3), (2, 9, 0, 1))
    (theirs / "data_7.pt").write_bytes(b"")
    words = ["samples", world.output, "-s", ours, "--against", theirs, "--no-log"]
    code, out, _ = run(*words)
    assert code == 0
    lines = out.splitlines()
    assert "3 of 3 pairs: theirs is [1,2,3] of ours" in lines
    assert f"  {ours / 'data_3.pt'}" in lines and f"  {theirs / 'data_1.pt'}" in lines
    assert any(line.startswith("unreadable: an empty file") for line in lines)
    data = json.loads(run(*words, "--json", "--most", 2).out)
    pairs = [(Path(c["ours"]["path"]).name, Path(c["theirs"]["path"]).name) for c in data["comparisons"]]
    assert pairs == [("data_0.pt", "data_2.pt"), ("data_1.pt", "data_3.pt")]
    assert (data["not_compared"], data["only_ours"]) == (1, [str(ours / "data_3.pt")])
    assert "1 more pair not compared; say how many with --most" in run(*words, "--most", 2).out


def test_one_bad_pair_does_not_end_the_others(run: Run, world: World, tmp_path: Path) -> None:
    ours = recordings(tmp_path / "dump")
    theirs = recordings(tmp_path / "captured")
    whole = text(1)
    tiny.write_v1_sample(theirs / "data_1.pt", replace(whole, slots=whole.slots[:, :, :16]))
    code, out, _ = run("samples", world.output, "-s", ours, "--against", theirs, "--no-log")
    assert code == 0
    assert "2 of 2 pairs: theirs is [0,1,2,3] of ours" in out
    assert f"not compared: {theirs / 'data_1.pt'}: recorded states are 16 wide" in out


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ("other/data_0.pt", "other tokens: ids first differ at token"),
        ("other", "none of the 2 samples has the tokens of one of the 2"),
        ("nowhere", "no such file or folder; in nowhere; check --against"),
        ("empty", "no recorded samples"),
        ("broken.pt", "an empty file"),
    ],
)
def test_refusals_are_one_line(
    run: Run, world: World, tmp_path: Path, theirs: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recordings(Path("other"), (7, 8))
    Path("empty").mkdir()
    Path("broken.pt").write_bytes(b"")
    ours = recordings(Path("dump"), (0, 1))
    source = ours / "data_0.pt" if theirs.endswith(".pt") else ours
    code, out, err = run("samples", world.output, "-s", source, "--against", theirs, "--no-log")
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err


def test_no_samples_at_all(run: Run, tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "alone/7", tiny.tiny_weights())
    code, out, err = run("samples", folder, "--no-log")
    assert (code, out) == (2, "")
    assert "no samples" in err.splitlines()[-1]
