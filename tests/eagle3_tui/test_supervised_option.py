"""`--supervised` on the command line: another mask is scored, and said; what cannot be meant is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from eagle3_tui import cli
from tests import tiny
from tests.tiny_world import World, tiny_world

torch.set_num_threads(1)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return tiny_world(tmp_path, count=1)


def words(world: World, command: str, how: str) -> list[str]:
    return [command, str(world.output), "-s", str(world.samples[0]), "--no-log", "--json", "--supervised", how]


def test_a_span_is_what_counts(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words(world, "score", "4:9"), "--ordering", "0,1,2", "--depth", "1"]) == 0
    scored = json.loads(capsys.readouterr().out)
    (sample,) = scored["samples"]
    assert sample["supervised"] == 5
    assert any("spans: 5 of 25 tokens supervised (--supervised 4:9)" in warning for warning in sample["warnings"])
    # rows whose fed token x[t+1] is one of the five, and which have a token to predict
    assert scored["orderings"][0]["steps"][0]["next_token"]["marginal"]["total"] == 5


def test_refusals_are_one_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    for how, said in (
        ("9:4", "a span that ends after token 9"),
        ("roles", "chat template"),
        ("x", "recorded, all, roles"),
    ):
        assert cli.main(words(world, "score", how)) == 2
        out, err = capsys.readouterr()
        assert out == "" and said in err.splitlines()[-1]


def test_roles_are_told_by_the_tokenizer_that_is_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = world.texts[0].ids
    names = {ids[0]: "<|im_start|>", ids[1]: "assistant\n"}
    table = [names.get(i, f"w{i}") for i in range(tiny.SIZES.vocab)]
    tokenizer = tiny.write_tokenizer(tmp_path / "mine.json", tokens=table)
    assert cli.main([*words(world, "show", "roles"), "--tokenizer", str(tokenizer)]) == 0
    sample = json.loads(capsys.readouterr().out)["sample"]
    assert any("roles (ChatML)" in warning for warning in sample["warnings"])
