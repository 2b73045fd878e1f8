"""`--keys`: what it says is read, and what it cannot mean is refused, from parsing to the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from drafter.errors import DrafterError, FileError, SampleError, WiringError
from drafter.options import Options
from drafter.sample import keys as module
from drafter.sample.fields import MAX_TOKENS
from drafter.sample.keys import Keys, parse_keys
from drafter.sample.open import open_sample
from drafter.sample.sample import Sample
from drafter.session import Session
from eagle3_tui.cli import main
from tests import tiny
from tests.drafter.helpers import refused, same

IDS = [5, 6, 7, 8, 9]
T, H = len(IDS), 4
STATES = torch.randn(T, 3, H, generator=torch.Generator().manual_seed(3))
LAST = torch.randn(T, H, generator=torch.Generator().manual_seed(4))
MASK = [0, 1, 1, 0, 1]


def save(tmp_path: Path, content: Any, name: str = "record.pt") -> Path:
    torch.save(content, tmp_path / name)
    return tmp_path / name


def check(sample: Sample, states: list[torch.Tensor], mask: list[int] | None = None) -> None:
    assert sample.ids.tolist() == IDS and sample.format == "described by --keys"
    assert (None if sample.mask is None else sample.mask.int().tolist()) == mask
    assert len(sample.slots) == len(states)
    for slot, stored in zip(sample.slots, states, strict=True):
        assert same(slot.tensor.rows(0, T), stored)


# --- parsing


def test_keys_are_parsed() -> None:
    assert parse_keys("ids=a, states = b.0 ,states=c,mask=m,last=l,norm=post") == Keys(
        "a", ("b.0", "c"), "m", "l", "post"
    )
    assert parse_keys("ids=@{stem}.json,last==x") == Keys("@{stem}.json", (), "", "=x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ids",
        "ids=",
        "ids=@,states=b",
        "ids=a",
        "states=b",
        "ids=a,states=b,",
        "ids=a,states=b,other=c",
        "ids=a,ids=b,states=c",
        "ids=a,states=b,states=b",
        "ids=a,states=b,norm=pre",
        "ids=a,last=b,norm=both",
        "IDS=a,states=b",
        "ids=a;states=b",
        "ids=a,states=\x1b[1m\n",
    ],
)
def test_malformed_keys_are_refused(tmp_path: Path, text: str) -> None:
    if "\x1b" in text:
        assert parse_keys(text).states == ("\x1b[1m",)  # a name, if an odd one
        return
    with refused(WiringError, "--keys"):
        parse_keys(text)
    with refused(WiringError, "--keys"):
        Options(tmp_path, keys=text)


# --- reading


def test_all_fields(tmp_path: Path) -> None:
    content = {"t": torch.tensor(IDS), "s": STATES, "e": LAST, "m": torch.tensor(MASK), "junk": torch.ones(3)}
    sample = open_sample(save(tmp_path, content), None, "ids=t,states=s,last=e,norm=pre,mask=m")
    check(sample, [*STATES.unbind(1), LAST], MASK)
    last = sample.slots[-1].layout
    assert last is not None and (last.is_last, last.norm, last.source) == (True, "pre", "--keys")
    assert not sample.warnings


def test_states_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    content = {"t": torch.tensor(IDS), "a": STATES[:, 0].clone(), "b": STATES[:, 1].clone()}
    sample = open_sample(save(tmp_path, content), None, "ids=t,states=b,states=a")
    check(sample, [STATES[:, 1], STATES[:, 0]])
    assert [slot.layout.label for slot in sample.slots if slot.layout] == ["b", "a"]
    assert "no loss mask" in sample.warnings[0]


def test_wide_states_take_the_width_of_the_last_or_of_the_drafter(tmp_path: Path) -> None:
    path = save(tmp_path, {"t": torch.tensor(IDS), "s": STATES.flatten(1), "e": LAST})
    check(open_sample(path, None, "ids=t,states=s,last=e"), [*STATES.unbind(1), LAST])
    check(open_sample(path, H, "ids=t,states=s"), [*STATES.unbind(1)])
    check(open_sample(path, None, "ids=t,last=e"), [LAST])


def test_dotted_keys_walk_tables_lists_and_names_with_dots(tmp_path: Path) -> None:
    content = [{"a.b": {"ids": torch.tensor([IDS])}, "x": [None, {"y.z": STATES[:, 0].clone()}]}]
    check(open_sample(save(tmp_path, content), None, "ids=0.a.b.ids,states=0.x.1.y.z"), [STATES[:, 0]])


def test_keys_take_precedence_over_a_layout_that_is_known(tmp_path: Path) -> None:
    path = tiny.write_v1_sample(tmp_path / "data_0.pt", tiny.tiny_sample(1, tiny.tiny_weights()))
    sample = open_sample(path, None, "ids=input_ids,states=hidden_states.2,states=hidden_states.0")
    whole = open_sample(path)
    assert [same(a.tensor.rows(0, 9), whole.slots[b].tensor.rows(0, 9)) for a, b in zip(sample.slots, (2, 0))] == [  # noqa: B905
        True,
        True,
    ]


@pytest.mark.parametrize("container", ["pt", "npy", "json", "safetensors-key"])
def test_ids_of_another_file(tmp_path: Path, container: str) -> None:
    """The states are one bare tensor; the ids lie beside it."""
    path = save(tmp_path, STATES, "data_7.pt")
    if container == "pt":
        torch.save(torch.tensor([IDS]), tmp_path / "data_7.ids")
    elif container == "npy":
        np.save(tmp_path / "data_7.ids", np.array(IDS, dtype=np.int32))
        (tmp_path / "data_7.ids.npy").rename(tmp_path / "data_7.ids")
    elif container == "json":
        (tmp_path / "data_7.ids").write_text(f" {json.dumps(IDS)}\n")
    else:
        save_file({"a": torch.tensor(IDS)}, tmp_path / "data_7.ids")
        with refused(SampleError, "'data_7.ids' is a dict"):
            open_sample(path, None, "ids=@{stem}.ids,states=.")
        return
    check(open_sample(path, None, "ids=@{stem}.ids,states=."), list(STATES.unbind(1)))
    absolute = tmp_path / "data_7.ids"
    check(open_sample(path, None, f"ids=@{absolute},states=."), list(STATES.unbind(1)))


def test_the_stem_of_a_compressed_file(tmp_path: Path) -> None:
    import gzip

    path = save(tmp_path, STATES, "data_7.ckpt")
    packed = tmp_path / "data_7.ckpt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "data_7.json").write_text(json.dumps(IDS))
    check(open_sample(packed, None, "ids=@{stem}.json,states=."), list(STATES.unbind(1)))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[1, 2]", "2 tokens"),
        ("[]", "0 tokens"),
        ("[1, 2, 3, 4, 5.0]", "whole number"),
        ("[1, 2, 3, 4, true]", "whole number"),
        ("[1, 2, 3, 4, null]", "whole number"),
        ("[1, 2, 3, 4, [5]]", "whole number"),
        ("[1, 2, 3, 4, 99999999999999999999]", "whole number"),
        ("[1, 2", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2, 3, 4]", "'.' is [5, 3, 4]"),
        ('{"ids": [1]}', "safetensors"),
        ("", "empty"),
    ],
)
def test_lists_of_ids_that_are_none_are_refused(tmp_path: Path, text: str, word: str) -> None:
    path = save(tmp_path, STATES)
    (tmp_path / "ids.json").write_text(text)
    with refused(DrafterError):
        open_sample(path, None, "ids=@ids.json,states=.")
    if word not in ("safetensors",):
        with refused(DrafterError, word):
            open_sample(path, None, "ids=@ids.json,states=.")


def test_lists_of_ids_are_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, STATES)
    (tmp_path / "ids.json").write_text(json.dumps([1] * (MAX_TOKENS + 1)))
    with refused(SampleError, f"{MAX_TOKENS + 1} tokens"):
        open_sample(path, None, "ids=@ids.json,states=.")
    monkeypatch.setattr(module, "MAX_JSON", 64)
    with refused(FileError, "more than 64 bytes"):
        open_sample(path, None, "ids=@ids.json,states=.")


def test_no_file_of_ids(tmp_path: Path) -> None:
    with refused(FileError, "absent.json", "--keys"):
        open_sample(save(tmp_path, STATES), None, "ids=@absent.json,states=.")
    with refused(FileError, "--keys"):
        open_sample(save(tmp_path, STATES), None, f"ids=@{'x' * 300},states=.")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("ids=x,states=s", ["no 'x'", "'t', 's', 'list', 'f'"]),
        ("ids=t,states=list.2", ["list.2", "0 to 1"]),
        ("ids=t,states=list.-1", ["list.-1"]),
        ("ids=t,states=list.²", ["list.²"]),
        ("ids=t,states=list.99999999999", ["list.99999999999"]),
        ("ids=t,states=s.0", ["'s.0'", "nothing under '0'"]),
        ("ids=t,states=list", ["'list[0]' is a int"]),
        ("ids=t,states=.", ["'.' is a dict"]),
        ("ids=f,states=s", ["'f' is F32"]),
        ("ids=t,states=f", ["'f' is [5]"]),
        ("ids=t,states=s,mask=x", ["no 'x'"]),
        ("ids=t,states=s,mask=list", ["'loss_mask' is a list"]),
        ("ids=t,states=s,last=f", ["'f' is [5]"]),
        ("ids=t,states=t,last=s", ["'s' is [5, 3, 4]"]),
        ("ids=.,states=s", ["'.' is a dict"]),
    ],
)
def test_keys_that_do_not_fit_the_file_are_refused(tmp_path: Path, keys: str, words: list[str]) -> None:
    content = {"t": torch.tensor(IDS), "s": STATES, "list": [1, 2], "f": torch.ones(T)}
    with refused(SampleError, *words, "record.pt"):
        open_sample(save(tmp_path, content), None, keys)


def test_a_part_is_named_in_the_keys(tmp_path: Path) -> None:
    path = save(tmp_path, [{"t": torch.tensor(IDS), "s": STATES}] * 2)
    with refused(SampleError, "ids=1.KEY"):
        open_sample(path.with_name("record.pt#1"), None, "ids=t,states=s")
    check(open_sample(path, None, "ids=1.t,states=1.s"), list(STATES.unbind(1)))


# --- in a session


def test_a_session_reads_by_its_keys(tmp_path: Path) -> None:
    weights = tiny.tiny_weights()
    checkpoint = tiny.write_nested(tmp_path / "run/0", weights)
    truth = tiny.tiny_sample(1, weights)
    wide = truth.slots.flatten(1)  # [T, 4 * Ht], whose width only the drafter says
    path = save(tmp_path, {"inner": [{"x": wide}], "t": torch.tensor(truth.ids)}, "odd.pt")
    session = Session(Options(checkpoint, samples=(path,), keys="ids=t,states=inner.0.x", device="cpu"))
    session.choose_checkpoint(session.pick(session.find()))
    sample = session.choose_sample(path)
    assert sample.ids.tolist() == truth.ids and len(sample.slots) == 4
    assert all(same(slot.tensor.rows(0, 9), truth.slots[:9, slot.index]) for slot in sample.slots)
    assert session.sample_paths(path) == [path]


def test_the_command_line_takes_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = tiny.tiny_weights()
    checkpoint = tiny.write_nested(tmp_path / "run/0", weights)
    truth = tiny.tiny_sample(1, weights)
    path = save(tmp_path, {"x": truth.slots, "t": torch.tensor(truth.ids), "m": torch.tensor(truth.mask)}, "odd.pt")
    words = ["show", str(checkpoint), "-s", str(path), "--json", "--no-log"]
    assert main([*words, "--keys", "ids=t,states=x,mask=m"]) == 0
    shown = json.loads(capsys.readouterr().out)["sample"]
    assert (shown["format"], shown["tokens"], len(shown["slots"])) == ("described by --keys", len(truth.ids), 4)
    assert main([*words, "--keys", "ids=t"]) == 2
    caught = capsys.readouterr()
    assert caught.out == "" and "neither states= nor last=" in caught.err
