"""`check` with what a server shows, and with switches set by hand, on the really trained toy drafter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from drafter.session import Session
from tests.eagle3_tui.command import Run
from tests.faults.programs import BY_HAND, served
from tests.faults.world import healthy, write_world

torch.set_num_threads(1)
FED = next(one for one in BY_HAND if one.name == "fed_ids draft")
POSITIONS = (
    "INFO 10-26 12:36:16 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: {length:.2f}, Accepted "
    "throughput: 10.00 tokens/s, Drafted throughput: 50.00 tokens/s, Accepted: {accepted} tokens, Drafted: 500 tokens, "
    "Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 20.0%\n"
)


@pytest.fixture
def world(tmp_path: Path) -> Session:
    return write_world(tmp_path / "world", healthy())


def words(tmp_path: Path) -> tuple[object, ...]:
    at = tmp_path / "world"
    return (at / "draft", "-s", at / "samples", "--target", at / "target", "--slots", "embed,2,4,6", "--no-log")


def vllm_log(tmp_path: Path, length: float, rates: tuple[float, ...]) -> Path:
    line = POSITIONS.format(
        length=length, accepted=round(100 * (length - 1)), rates=", ".join(f"{rate:.3f}" for rate in rates)
    )
    (tmp_path / "vllm.log").write_text(line * 5)
    return tmp_path / "vllm.log"


def test_a_switch_set_wrongly_is_an_error(run: Run, tmp_path: Path, world: Session) -> None:
    ran = run("check", *words(tmp_path), "--fed-ids", "draft")
    assert ran.code == 1
    first = next(line for line in ran.out.splitlines() if line.startswith("error"))
    assert first.startswith("error   K03 a-program-computes-something-else: with fed_ids draft it predicts less")
    assert "fix: apply d2t" in ran.out and "[serving]" in ran.out
    assert run("check", *words(tmp_path), "--fed-ids", "target").code == 0


def test_a_log_by_position_names_the_fault(run: Run, tmp_path: Path, world: Session) -> None:
    length, rates = served(world, FED)
    ran = run("check", *words(tmp_path), "--server-log", vllm_log(tmp_path, length, rates))
    assert f"server log: accept length {length:.2f} of 5 lines" in ran.err
    assert "K03 served-looks-like: a served accept length of" in ran.out and "looks like: fed_ids draft" in ran.out
    data = json.loads(run("check", *words(tmp_path), "--server-log", tmp_path / "vllm.log", "--json").out)
    told = next(one for one in data["findings"] if one["check"] == "served-looks-like")
    assert next(iter(told["evidence"]["nearest"])) == "fed_ids draft" and told["evidence"]["drafts a round"] == 5


def test_a_log_of_what_the_drafter_does_looks_like_nothing(run: Run, tmp_path: Path, world: Session) -> None:
    right = served(world, type(FED)("right", "", (), ""))
    ran = run("check", *words(tmp_path), "--server-log", vllm_log(tmp_path, *right))
    assert ran.code == 0 and "served-looks-like" not in ran.out and "[healthy]" in ran.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--server-log", "nowhere.log"), "no such file"),
        (("--server-log", "{log}", "--served", "2"), "--served beside --server-log"),
        (("--server-log", "{empty}"), "accept length"),
        (("--fed-ids", "none"), "'none' is not one of"),
    ],
)
def test_what_means_nothing_is_one_line(
    run: Run, tmp_path: Path, world: Session, more: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty.log").write_text("nothing\n")
    places = {"log": vllm_log(tmp_path, 2.0, (0.5, 0.5)), "empty": tmp_path / "empty.log"}
    ran = run("check", *words(tmp_path), *(word.format(**places) for word in more))
    assert ran.code == 2 and said in ran.err and ran.out == ""
    assert "Traceback" not in ran.err


def test_a_long_check_says_what_it_is_at(world: Session) -> None:
    told: list[str] = []
    world.check(world.pick(world.find()), world.list_samples().paths, on_check=told.append)
    name = "configured-layers-are-not-the-trained-ones"
    assert f"{name}: ordering 1 of 24" in told and f"{name}: ordering 24 of 24" in told
    changes = [text for text in told if ", change " in text]
    assert changes[0].endswith(f"change 1 of {len(changes)}") and changes[0].startswith(f"{name}: ")
