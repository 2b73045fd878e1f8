"""A folder surveyed: against what was written into it, broken files and files of several samples included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter.errors import Cancelled, DrafterError, SampleError
from drafter.files.stored import StoredTensor
from drafter.sample.many.survey import Survey, Surveyed, survey, survey_json
from drafter.sample.open import open_sample
from drafter.sample.sample import Sample, name_part, split_part
from tests import tiny
from tests.drafter.twin_files import WIDTH, states, tokens, written


def mixed(folder: Path) -> list[Path]:
    """Three sound v1 samples of two dtypes, one of them without supervision, one arrow sample, four broken files."""
    paths = [
        written(folder / "data_0.pt", tokens(20), states(20), [0] * 5 + [1] * 15),
        written(folder / "data_1.pt", tokens(30), states(30, slots=3).float(), [0] * 30),
        written(folder / "data_2.pt", tokens(10), states(10)),
    ]
    whole = tiny.TinySample(tokens(40), [1] * 40, states(40), (0, 1, 2, 3))
    paths.append(tiny.write_arrow_samples(folder / "arrow", {3: whole}) / "hidden_states/hs_3.safetensors")
    (folder / "arrow/state.json").unlink()
    paths += [folder / "data_3.pt", folder / "data_4.pt", folder / "data_5.pt", folder / "data_6.pt"]
    paths[4].write_bytes(b"")
    tiny.write_truncated(paths[5], paths[0])
    torch.save({"input_ids": torch.zeros(0, dtype=torch.int64), "hidden_states": [torch.zeros(0, 4)]}, paths[6])
    torch.save({"input_ids": torch.arange(9), "hidden_states": [torch.zeros(7, 4)]}, paths[7])
    return paths


def test_what_a_folder_holds(tmp_path: Path) -> None:
    paths = mixed(tmp_path)
    found = survey(paths, open_sample)
    assert [one.path for one in found.samples] == paths
    assert (found.readable, found.unreadable, found.empty) == (4, 4, 2)
    assert (found.tokens, found.supervised, found.without_mask, found.unsupervised) == (100, 25, 1, 1)
    assert (found.files, found.bytes) == (8, sum(path.stat().st_size for path in paths))
    assert {key.split()[1]: count for key, count in found.by_format.items()} == {"v1": 3, ">=": 1}
    assert (found.by_dtype, found.by_slots, found.by_width) == ({"BF16": 3, "F32": 1}, {4: 3, 3: 1}, {WIDTH: 4})
    assert found.samples[1] == Surveyed(
        paths[1], paths[1].stat().st_size, found.samples[0].format, 30, 0, 3, WIDTH, "F32"
    )
    problems = [one.problem for one in found.samples]
    assert problems[0] == problems[2] == ""
    assert problems[1] == "0 of 30 tokens supervised"
    assert "no loss mask" in problems[3]
    assert [word in said for word, said in zip(("empty file", "", "0 tokens", "7 rows"), problems[4:], strict=True)]
    assert "state 0 has 7 rows for 9 tokens" in problems[7]


def test_the_first_error_of_each_kind(tmp_path: Path) -> None:
    paths = []
    for rows in (7, 8, 5):
        paths.append(tmp_path / f"data_{rows}.pt")
        torch.save({"input_ids": torch.arange(9), "hidden_states": [torch.zeros(rows, 4)]}, paths[-1])
    (tmp_path / "data_9.pt").write_bytes(b"")
    found = survey([*paths, tmp_path / "data_9.pt", tmp_path / "data_gone.pt"], open_sample)
    first, empty, gone = found.errors.values()
    assert (first.kind, first.count, first.path) == ("state N has N rows for N tokens", 3, paths[0])
    assert "state 0 has 7 rows for 9 tokens" in first.error and "\n" not in first.error
    assert (empty.count, gone.count) == (1, 1)
    assert found.samples[-1].size == 0


def test_what_holds_nothing_is_empty(tmp_path: Path) -> None:
    contents: dict[str, object] = {"data_0.pt": {}, "data_1.pt": [], "data_2.pt": {"ids": torch.arange(3)}}
    for name, content in contents.items():
        torch.save(content, tmp_path / name)
    assert [one.empty for one in survey([tmp_path / name for name in contents], open_sample).samples] == [1, 1, 0]


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "data_0.pt").write_bytes(b"junk" * 9)
    found = survey([tmp_path / "data_0.pt"], open_sample)
    assert (found.readable, found.unreadable, found.tokens, dict(found.by_format)) == (0, 1, 0, {})


def test_states_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = mixed(tmp_path)
    read = StoredTensor.read

    def only_vectors(self: StoredTensor) -> torch.Tensor:
        assert len(self.shape) == 1, f"{self.name} was read"
        return read(self)

    monkeypatch.setattr(StoredTensor, "read", only_vectors)
    assert survey(paths, open_sample).readable == 4


def test_it_grows_file_by_file_and_can_be_cancelled(tmp_path: Path) -> None:
    paths = mixed(tmp_path)
    grown: list[tuple[int, int]] = []

    def poll() -> None:
        if len(grown) == 3:
            raise Cancelled

    def found(so_far: Survey) -> None:
        grown.append((len(so_far.samples), so_far.planned))

    with pytest.raises(Cancelled):
        survey(paths, open_sample, poll, found)
    assert grown == [(1, 8), (2, 8), (3, 8)]


# --- files of several samples


class Shards:
    """Opens `shard_*` files as `parts` samples each; those in `broken` are refused."""

    def __init__(self, sample: Sample, parts: int, broken: tuple[int, ...] = ()) -> None:
        self.sample, self.parts, self.broken = sample, parts, broken
        self.asked: list[str] = []

    def __call__(self, path: Path) -> Sample:
        self.asked.append(path.name)
        file, part = split_part(path)
        if (part or 0) >= self.parts:
            raise SampleError(f"sample {part}", expected=f"0 to {self.parts - 1}", where=file)
        if (part or 0) in self.broken:
            raise SampleError(f"state 0 has {part} rows", where=path)
        return replace(self.sample.cut(5 + (part or 0)), path=name_part(file, part or 0, self.parts), parts=self.parts)


@pytest.mark.parametrize("broken", [(), (0,), (2,), (0, 2)])
def test_each_part_is_a_sample(tmp_path: Path, broken: tuple[int, ...]) -> None:
    whole = open_sample(written(tmp_path / "data_0.pt", tokens(20), states(20)))
    shard = tmp_path / "shard_0.safetensors"
    shard.write_bytes(b"x" * 1000)
    found = survey([shard], Shards(whole, 4, broken))
    assert [one.path.name for one in found.samples] == [f"shard_0.safetensors#{i}" for i in range(4)]
    assert (found.files, found.bytes, found.unreadable) == (1, 1000, len(broken))
    assert found.tokens == sum(5 + i for i in range(4) if i not in broken)


def test_a_named_part_is_that_one_alone(tmp_path: Path) -> None:
    whole = open_sample(written(tmp_path / "data_0.pt", tokens(20), states(20)))
    shard = tmp_path / "shard_0.safetensors"
    shard.write_bytes(b"x" * 1000)
    shards = Shards(whole, 4)
    found = survey([name_part(shard, 2, 4), name_part(shard, 3, 4)], shards)
    assert shards.asked == ["shard_0.safetensors#2", "shard_0.safetensors#3"]
    assert (found.files, found.bytes, found.tokens) == (1, 1000, 7 + 8)


def test_a_file_that_is_named_like_a_part_is_a_file(tmp_path: Path) -> None:
    path = written(tmp_path / "data_0.pt", tokens(20), states(20)).rename(tmp_path / "data_0.pt#7")
    found = survey([path], open_sample)
    assert (found.readable, found.bytes) == (1, path.stat().st_size)


# --- as JSON


def test_json(tmp_path: Path) -> None:
    paths = mixed(tmp_path)
    data = survey_json(survey(paths, open_sample))
    assert [one["path"] for one in data["samples"]] == [str(path) for path in paths]
    assert data["samples"][0]["supervised"] == 15 and data["samples"][3]["supervised"] is None
    totals = data["totals"]
    assert (totals["readable"], totals["unreadable"], totals["empty"], totals["tokens"]) == (4, 4, 2, 100)
    assert totals["by_slots"] == {"4": 3, "3": 1}
    assert [e["count"] for e in totals["errors"]] == [1, 1, 1, 1]
    assert "samples" not in survey_json(Survey(0), samples=False)


def test_an_unexpected_failure_is_not_hidden(tmp_path: Path) -> None:
    def broken(path: Path) -> Sample:
        raise ZeroDivisionError

    assert not issubclass(ZeroDivisionError, DrafterError)
    with pytest.raises(ZeroDivisionError):
        survey([tmp_path], broken)
