"""`accept` on tiny runs whose samples agree with the drafter: text and JSON, other samples, and one line a refusal."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter.log import read_log
from eagle3_tui import accept_report, cli
from tests import reference_scores, tiny
from tests.drafter.chain_cases import K, agreeable_world
from tests.eagle3_tui.command import Run
from tests.reference.rounds import PlainServer, decode
from tests.tiny_world import V1_SLOTS, World

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return agreeable_world(tmp_path_factory.mktemp("accept"))


def words(world: World, *more: object) -> list[object]:
    asked = ["accept", world.output, "--target", world.target, "--slots", V1_SLOTS, "--dtype", "float32"]
    return [*asked, "--ordering", "0,1,2", "--depth", K, *more]


def answered(run: Run, world: World, *more: object) -> dict[str, Any]:
    code, out, err = run(*words(world, "--json", *more))
    assert (code, "Traceback" in err) == (0, False), err
    data: dict[str, Any] = json.loads(out)
    return data


def plain_rounds(world: World, sample: int, keep: bool) -> list[Any]:
    text = world.texts[sample]
    model = tiny.reference(world.weights, norm_before_residual=True)
    server = PlainServer(model, text.slots[:, [0, 1, 2]], K, world.weights["d2t"].tolist(), keep)
    return [one for start, stop in reference_scores.runs(text.mask) for one in decode(server, text.ids, start, stop)]


def test_help(run: Run) -> None:
    code, out, _ = run("accept", "--help")
    assert code == 0
    for word in ("--refresh", "--rounds", "--most", "--ascii", "--depth", "--ordering", "--view", "--mask", "--json"):
        assert word in out
    assert "accept" in run("--help").out


@pytest.mark.parametrize("refresh", ["target", "drafted"])
def test_rounds_are_those_of_a_plain_server(run: Run, world: World, refresh: str) -> None:
    data = answered(run, world, "-s", world.samples[0], "--refresh", refresh)["rounds"]
    truth = plain_rounds(world, 0, refresh == "drafted")
    assert [one["known"]["at"] for one in data["each"]] == [one.known for one in truth]
    assert [[token["id"] for token in one["drafted"]] for one in data["each"]] == [one.drafted for one in truth]
    assert [one["accepted"] for one in data["each"]] == [one.accepted for one in truth]
    assert data["walk"]["rounds"] == len(truth) and data["refresh"] == refresh
    first = data["each"][0]
    assert first["known"] == {"at": 5, "id": world.texts[0].ids[5], "text": f'"w{world.texts[0].ids[5]}"'}


def test_numbers_are_those_of_score(run: Run, world: World) -> None:
    more = [word for path in world.samples for word in ("-s", path)]
    data = answered(run, world, *more)
    code, out, _ = run("score", *words(world, "--json", *more)[1:])
    scored = json.loads(out)["orderings"][0]
    assert code == 0
    for ours, theirs in zip(data["steps"], scored["steps"], strict=True):
        truth = theirs["next_token"]
        assert (ours["teacher_forced"], ours["joint"], ours["conditional"]) == (
            truth["marginal"],
            truth["joint"],
            truth["conditional"],
        )
    lengths = data["accept_length"]
    assert {name: lengths[name] for name in ("mean", "rows", "histogram", "walk")} == scored["accept_length"]
    assert lengths["free_running"] == {"mean": lengths["mean"], "rows_that_differ": 0}
    assert lengths["mean_of_samples"]["samples"] == 2 and len(data["samples"]) == 2
    walked = [plain_rounds(world, sample, False) for sample in (0, 1)]
    assert lengths["walk"]["rounds"] == sum(map(len, walked))
    assert [sample["accept_length"]["walk"]["rounds"] for sample in data["samples"]] == list(map(len, walked))
    assert [*(s["broken"] for s in data["breaks"]["steps"]), data["breaks"]["whole"]] == lengths["histogram"]
    counted = [length for length in data["lengths"] if length is not None]
    assert [counted.count(n + 1) for n in range(K + 1)] == data["samples"][0]["accept_length"]["histogram"]
    assert max(counted) == K + 1


def test_every_number_has_its_convention(run: Run, world: World) -> None:
    data = answered(run, world, "-s", world.samples[0], "--mask", "predicted")
    said = data["conventions"]
    for name in ("teacher_forced", "free_running", "joint", "conditional", "accept_length", "walk", "ceiling"):
        assert len(said[name]) > 20
    assert "usual mistake" in said["expected.marginal"] and "bonus token" in said["accept_length"]
    assert said["rows"] == "rows whose predicted token x[t+2] is supervised"


def test_text(run: Run, world: World) -> None:
    code, out, err = run(*words(world, "-s", world.samples[0], "-s", world.samples[1], "--rounds", 2))
    assert (code, "Traceback" in err) == (0, False)
    for part in (
        "2 samples, 120 tokens, slots 0,1,2, view trained",
        f"greedy chains of {K} drafts; mask next: rows whose fed token x[t+1] is supervised",
        "by draft step (right / rows):",
        "fed its own tokens",
        "the same on every row",
        "mean of 2 samples",
        "the usual mistake",
        "outside of the draft vocabulary: no training repairs these",
        "by the place of the row:",
        "tokens at which most chains break",
        "refresh target",
        "more rounds",
        "after token known accepted drafts (",
    ):
        assert part in " ".join(out.split()), part
    assert max(map(len, out.splitlines())) <= 130 and "█" in out
    assert "warning:" not in out


def test_drafted_rounds_are_compared_with_those_of_servers(run: Run, world: World) -> None:
    _, out, _ = run(*words(world, "-s", world.samples[0], "--refresh", "drafted"))
    target = plain_rounds(world, 0, False)
    assert f"(54 in {len(target)})" in next(line for line in out.splitlines() if "with refresh target" in line)
    assert "forgets the extend step" in " ".join(out.split())


def test_ascii_and_where_the_output_speaks_no_unicode(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, out, _ = run(*words(world, "-s", world.samples[0], "--ascii"))
    assert "####" in out and out.isascii()
    output = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", output)
    assert cli.main([str(word) for word in words(world, "-s", world.samples[0])]) == 0
    output.flush()
    text = output.buffer.getvalue().decode("latin-1")  # type: ignore[attr-defined]
    assert "####" in text and "\\u" not in text
    file = tmp_path / "out.txt"
    assert cli.main([str(word) for word in words(world, "-s", world.samples[0], "-o", file)]) == 0
    assert "█" in file.read_text(encoding="utf-8")


def test_bars() -> None:
    assert accept_report.bar(0, 9, 8, False) == accept_report.bar(0, 0, 8, True) == ""
    assert accept_report.bar(9, 9, 8, False) == "█" * 8 and accept_report.bar(9, 9, 8, True) == "#" * 8
    assert accept_report.bar(1, 1000, 8, False) == "▏" and accept_report.bar(1, 1000, 8, True) == "#"
    assert accept_report.bar(1, 2, 8, False) == "████" and accept_report.bar(9, 16, 8, False) == "████▌"


def test_nothing_supervised(run: Run, world: World) -> None:
    code, out, _ = run(*words(world, "-s", world.samples[0], "--supervised", "59:60"))
    assert code == 0 and "no row counts for an accept length" in out and "walk -" in out


def test_samples_that_do_not_fit_are_skipped_and_named(run: Run, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    tiny.write_v1_sample(folder / "data_0.pt", world.texts[0])
    tiny.write_truncated(folder / "data_1.pt", world.samples[1])
    data = answered(run, world, "-s", folder)
    assert len(data["samples"]) == 1 and [Path(one["path"]).name for one in data["skipped"]] == ["data_1.pt"]
    code, out, err = run(*words(world, "-s", folder / "data_0.pt", "-s", folder / "data_1.pt"))
    assert (code, out) == (2, "") and err.splitlines()[-1].startswith("eagle3-tui: ") and "data_1.pt" in err


def test_rows_without_numbers_are_said(run: Run, world: World, tmp_path: Path) -> None:
    slots = world.texts[0].slots.clone()
    slots[30] = float("nan")
    broken = tiny.write_v1_sample(tmp_path / "data_0.pt", replace(world.texts[0], slots=slots))
    code, out, _ = run(*words(world, "-s", broken, "--rounds", 30))
    assert code == 0 and "(no numbers)" in out and "no numbers x" in out
    # rows 30..58 count (fed token supervised, a truth for 30..57)
    assert "warning: NaN: 28 of the rows that count gave no numbers" in out


def test_a_token_that_means_harm_is_shown_as_text(run: Run, world: World, tmp_path: Path) -> None:
    names = [f"\x1b[31m[/]{i}" for i in range(97)]
    tokens = tiny.write_tokenizer(tmp_path / "tokenizer.json", tokens=names)
    code, out, _ = run(*words(world, "-s", world.samples[0], "--tokenizer", tokens))
    assert code == 0 and "\x1b" not in out and "\\x1b" in out


def test_refusals(run: Run, world: World, tmp_path: Path) -> None:
    asked = ["accept", world.output, "--target", world.target, "--slots", V1_SLOTS, "-s", world.samples[0]]
    for more, said in (
        (["--ordering", "0,1,2", "--ordering", "2,1,0"], "expected one ordering"),
        (["--ordering", "all"], "expected one ordering"),
        (["--ordering", "0,1,9"], "slot 9"),
        (["--refresh", "never"], "'never' is not one of"),
        (["--depth", "0"], "0 is not in the range"),
        (["-s", tmp_path], "named *.pt"),
    ):
        code, out, err = run(*(asked[:-2] if more[0] == "-s" else asked), *more)
        assert (code, out) == (2, ""), more
        assert said in err and "Traceback" not in err, (more, err)


def test_the_log_keeps_it(run: Run, world: World, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    answered(run, world, "-s", world.samples[0], "--refresh", "drafted", "--log", log)
    calls = {record["call"]: record for record in read_log(log) if record["record"] == "call"}
    assert calls["rounds"]["inputs"]["refresh"] == "drafted" and calls["rounds"]["inputs"]["depth"] == K
    assert calls["rounds"]["result"]["rounds"] == len(plain_rounds(world, 0, True))
    assert calls["chain_report"]["result"]["accept_length"]["rows"] > 0
    assert calls["chain_report"]["inputs"]["samples"] == [str(world.samples[0])]


def test_session_breaks_are_those_of_the_report(world: World) -> None:
    session = world.session(slots=V1_SLOTS, depth=K)
    breaks, report = session.breaks((0, 1, 2)), session.chain_report((0, 1, 2))
    assert breaks == report.breaks and breaks.total.broken > 0
    assert session.breaks((0, 1, 2), depth=1).total.chains > breaks.total.chains
    assert len(session.rounds((0, 1, 2), depth=1)) > len(session.rounds((0, 1, 2)))
