"""Scores over many samples: pooled, each by itself, in groups; what is left out, and that nothing of it stays."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter import score_json as score_json_module
from drafter.errors import DrafterError, FileError, PathError, SampleError, WiringError
from drafter.export import markdown
from drafter.results import ScoreResult
from drafter.sample.many.parts import sample_paths
from drafter.session import Session
from tests import reference_scores as scores
from tests import tiny
from tests.drafter.helpers import refused
from tests.reference import predictions
from tests.tiny_world import World, tiny_world

DEPTH, FAVOURITES = 3, 3
ORDERINGS = [(0, 1, 2), (2, 0, 3)]
BROKEN = {
    "data_10.pt": "ends inside of a record|truncated|not a|zip|cut",
    "data_11.pt": "an empty file",
    "data_12.pt": "48 wide",
    "data_13.pt": "2 recorded states",
    "data_14.pt": "3 recorded states",
    "data_15.pt": "2 tokens",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three good samples of unequal length, and a drafter that prefers the few tokens of which they are made."""
    made = tiny_world(tmp_path_factory.mktemp("pool"), count=1)
    head = made.weights["lm_head.weight"].clone()
    head[:FAVOURITES] *= 30
    weights = {**made.weights, "lm_head.weight": head}
    tiny.write_flat(made.output / "7", weights, speculators_config=True, norm_before_residual=True)
    made = replace(made, weights=weights)
    texts = [likely(made, seed, tokens) for seed, tokens in enumerate((25, 70, 12))]
    paths = tuple(tiny.write_v1_sample(made.folder / f"samples/data_{i}.pt", text) for i, text in enumerate(texts))
    return replace(made, samples=paths, texts=tuple(texts))


def likely(world: World, seed: int, tokens: int = tiny.TOKENS) -> tiny.TinySample:
    """Mostly tokens that the drafter prefers, so that hits and long drafts are not rare."""
    text, rng = tiny.tiny_sample(seed, world.weights, tokens=tokens), random.Random(seed)
    d2t = world.weights["d2t"].tolist()
    favourites = [i + d2t[i] for i in range(FAVOURITES)]
    return replace(text, ids=[rng.choice(favourites) if rng.random() < 0.8 else i for i in text.ids])


@pytest.fixture(scope="module")
def folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The good samples, files that are broken or do not fit before and after them, and a file of three samples."""
    place = tmp_path_factory.mktemp("folder")
    for i, text in enumerate(world.texts):
        tiny.write_v1_sample(place / f"data_{3 * i}.pt", text)
    tiny.write_truncated(place / "data_10.pt", world.samples[0])
    (place / "data_11.pt").touch()
    short = tiny.tiny_sample(5, world.weights)
    narrow = {"data_13.pt": short.slots[:, :2], "data_14.pt": short.slots[:, :3]}
    for name, slots in {**narrow, "data_12.pt": torch.zeros(tiny.TOKENS, 4, 48).bfloat16()}.items():
        tiny.write_v1_sample(place / name, replace(short, slots=slots))
    tiny.write_v1_sample(place / "data_15.pt", replace(short, ids=[1, 2], mask=[1, 1], slots=short.slots[:2]))
    (place / "data_00.pt").write_bytes((place / "data_10.pt").read_bytes())
    write_requests(place / "data_requests.pt", world, (7, 8, 9))
    return place


def write_requests(path: Path, world: World, seeds: Sequence[int], broken: int | None = None) -> Path:
    """TensorRT-LLM's list of requests, without a loss mask; entry `broken` has another number of rows than tokens."""
    requests = []
    for i, seed in enumerate(seeds):
        text = likely(world, seed, 20 + seed)
        aux, last = text.slots[:, :3].flatten(1), text.slots[:, 3].clone()
        ids = torch.tensor(text.ids)[:-1] if i == broken else torch.tensor(text.ids)
        requests.append({"id": i, "input_ids": ids, "hidden_state": last, "hidden_state_features": aux})
    torch.save(requests, path)
    return path


def score(session: Session, paths: Sequence[Path], **options: Any) -> tuple[ScoreResult, dict[str, Any]]:
    result = session.score(paths, ORDERINGS, **options)
    return result, session.score_json(result)


def open_folder(world: World, folder: Path, **options: Any) -> tuple[Session, Sequence[Path]]:
    session = Session(replace(world.session().options, samples=(folder,), depth=DEPTH, **options))
    session.choose_checkpoint(session.pick(session.find()))
    listed = session.list_samples().paths
    session.choose_first(listed)
    return session, listed


def expected(world: World, text: tiny.TinySample, ordering: Sequence[int], mask: Sequence[int]) -> dict[str, Any]:
    model = tiny.reference(world.weights, norm_before_residual=True)
    pred = predictions(model.teacher_forced(text.ids, text.slots[:, list(ordering)], DEPTH))
    return scores.score_json(pred, text.ids, list(mask), world.weights["d2t"].tolist(), "next", DEPTH)


# --- the sum


def test_a_folder_is_the_sum_of_what_can_be_scored_in_it(world: World, folder: Path) -> None:
    """The truth of every sample is the reference's, counted by brute force; the pool is their sum."""
    session, listed = open_folder(world, folder)
    result, data = score(session, listed)
    texts = [(t, t.mask) for t in world.texts]
    texts += [(t, [1] * len(t.ids)) for t in (likely(world, seed, 20 + seed) for seed in (7, 8, 9))]
    for ordering, pooled in zip(ORDERINGS, data["orderings"], strict=True):
        single = [expected(world, text, ordering, mask) for text, mask in texts]
        step0 = [one["steps"][0]["next_token"]["marginal"] for one in single]
        for key in ("hits", "total"):
            assert pooled["steps"][0]["next_token"]["marginal"][key] == sum(count[key] for count in step0)
        assert 0 < step0[0]["hits"] < step0[0]["total"]
        histograms = [one["accept_length"]["histogram"] for one in single]
        assert pooled["accept_length"]["histogram"] == [sum(bins) for bins in zip(*histograms, strict=True)]
        own = [next(o for o in s["orderings"] if o["slots"] == list(ordering)) for s in data["samples"]]
        assert [(o["hits"], o["total"]) for o in own] == [(c["hits"], c["total"]) for c in step0]
        for ours, theirs in zip(own, single, strict=True):
            mean, rows = theirs["accept_length"]["mean"], theirs["accept_length"]["rows"]
            assert ours["accept_length"] == {"mean": pytest.approx(mean), "rows": rows}
        ratios = [c["hits"] / c["total"] for c in step0 if c["total"]]
        macro = pooled["mean_of_samples"]
        assert (macro["accuracy"], macro["samples"]) == (pytest.approx(sum(ratios) / len(ratios)), len(ratios))
        assert macro["accuracy"] != sum(c["hits"] for c in step0) / sum(c["total"] for c in step0)
        assert sum(p["total"] for p in pooled["positions"]) == sum(c["total"] for c in step0)
        assert [(p["from"], p["to"]) for p in pooled["positions"]] == [(0, 31), (32, 63), (64, 127)]
    names = [Path(s["path"]).name for s in data["samples"]]
    assert names == ["data_0.pt", "data_3.pt", "data_6.pt", *(f"data_requests.pt#{i}" for i in range(3))]
    assert [p.name for p in result.per_sample] == names


def test_what_is_left_out_says_why(world: World, folder: Path) -> None:
    session, listed = open_folder(world, folder)
    result, data = score(session, listed)
    assert sorted(path.name for path, _ in result.skipped) == ["data_00.pt", *sorted(BROKEN)]
    for one in data["skipped"]:
        words = BROKEN.get(Path(one["path"]).name, "").split("|")
        assert any(word in one["error"] for word in words) and "\n" not in one["error"], one
    assert json.dumps(data)


def test_what_is_left_out_is_in_the_report_of_the_session(world: World, folder: Path) -> None:
    session, listed = open_folder(world, folder)
    score(session, listed)
    lines = [line for line in markdown(session.log.records).splitlines() if line.startswith("- skipped")]
    assert len(lines) == 1 + len(BROKEN)
    assert any("data_11.pt" in line and "an empty file" in line for line in lines)


def test_progress_grows_with_the_parts_and_ends_at_what_is_planned(world: World, folder: Path) -> None:
    session, listed = open_folder(world, folder)
    seen: list[tuple[int, int]] = []
    same: set[int] = set()

    def progress(result: ScoreResult) -> None:
        seen.append((result.done, result.planned))
        same.add(id(result))

    result, _ = score(session, listed, on_progress=progress)
    planned = 2 * (len(listed) + 2)  # one file holds three
    assert seen[-1] == (planned, planned) and len(same) == 1 and id(result) in same
    assert all(done < total for done, total in seen[:-1])
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[0][1] == 2 * len(listed)


# --- refusals


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_file_named_by_itself_is_refused(world: World, folder: Path, name: str) -> None:
    session = world.session(depth=1, samples=(world.samples[0], folder / name))
    with refused(DrafterError, name):
        session.score(session.list_samples().paths, ORDERINGS)


def test_where_none_can_be_scored_the_first_refusal_is_it(world: World, folder: Path, tmp_path: Path) -> None:
    for name in ("data_11.pt", "data_13.pt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with refused(FileError, "an empty file", "data_11.pt"):
        open_folder(world, tmp_path)
    session = world.session()
    with refused(FileError, "an empty file", "data_11.pt"):
        session.score([tmp_path / "data_11.pt", tmp_path / "data_13.pt"], ORDERINGS)
    with refused(PathError, "no samples"):
        session.choose_first([])


def test_an_option_that_does_not_fit_is_refused_at_the_first_sample(world: World, folder: Path) -> None:
    with refused(WiringError, "expected"):
        open_folder(world, folder, orderings=("0,1,7",))
    with refused(WiringError, "--slots"):
        open_folder(world, folder, slots="embed,2")


def test_a_part_that_is_broken_leaves_the_others(world: World, tmp_path: Path) -> None:
    path = write_requests(tmp_path / "requests.pt", world, (7, 8, 9), broken=0)
    assert sample_paths(path, 32) == [tmp_path / f"requests.pt#{i}" for i in range(3)]
    session, listed = open_folder(world, tmp_path)
    assert session.sample.path.name == "requests.pt#1"
    result, _ = score(session, listed)
    assert [p.name for p in result.per_sample] == ["requests.pt#1", "requests.pt#2"]
    assert [p.name for p, _ in result.skipped] == ["requests.pt#0"]
    assert sample_paths(path.with_name("requests.pt#1"), 32) == [path.with_name("requests.pt#1")]
    assert sample_paths(world.samples[0], 32) == [world.samples[0]]


def test_a_sample_that_fails_half_way_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one ordering without those of another would misalign every paired test after them."""
    from drafter.scoring import sweep

    whole, clean = sweep.draft_ids, score(world.session(depth=DEPTH), world.samples[::2])[1]
    calls = 0

    def failing(*args: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 4:  # the second ordering of the second sample
            raise FileError("the file was changed or replaced since it was opened", where=args[0].sample.path)
        return whole(*args, **options)

    session = world.session(depth=DEPTH, samples=(world.folder / "samples",))
    monkeypatch.setattr(sweep, "draft_ids", failing)
    result, data = score(session, world.samples)
    assert [path for path, _ in result.skipped] == [world.samples[1]] and "changed or replaced" in result.skipped[0][1]
    assert result.done == result.planned == 6
    assert {k: data[k] for k in ("orderings", "samples", "best")} == {
        k: clean[k] for k in ("orderings", "samples", "best")
    }
    assert list(result.per_sample) == list(world.samples[::2])
    assert {counts.row_hits.numel() for counts in result.scores.values()} == {
        sum(scored[ORDERINGS[0]].total for scored in result.per_sample.values())
    }


def test_the_same_sample_twice_counts_once(world: World) -> None:
    once = score(world.session(depth=1), world.samples[:2])[1]
    result, twice = score(world.session(depth=1), [*world.samples[:2], world.samples[0]])
    assert twice["orderings"] == once["orderings"] and len(twice["samples"]) == 2
    assert result.done == result.planned
    assert any("1 samples were listed more than once" in text for text in twice["warnings"])


# --- groups


def test_groups_add_up_to_the_pool(world: World) -> None:
    session = world.session(depth=DEPTH, groups=("long=*data_1*", "short=data_2.pt"))
    _, data = score(session, world.samples)
    assert [(g["name"], g["samples"]) for g in data["groups"]] == [("other", 1), ("long", 1), ("short", 1)]
    for i, group in enumerate(data["groups"]):
        _, alone = score(world.session(depth=DEPTH), world.samples[i : i + 1])
        for ours, theirs in zip(group["orderings"], alone["orderings"], strict=True):
            length = {k: v for k, v in theirs["accept_length"].items() if k != "walk"}
            counts = theirs["steps"][0]["next_token"]["marginal"]
            assert ours == {"slots": theirs["slots"], **counts, "accept_length": length}


def test_each_given_path_is_a_group_if_there_are_several(world: World, folder: Path) -> None:
    session, listed = open_folder(world, folder)
    assert score(session, listed)[1]["groups"] is None
    session.options = replace(session.options, samples=(folder, world.folder / "samples"))
    _, data = score(session, session.list_samples().paths)
    assert [(g["name"], g["samples"]) for g in data["groups"]] == [(str(folder), 6), (str(world.folder / "samples"), 3)]
    session.options = replace(session.options, samples=(folder,), groups=("all=*",))
    assert score(session, listed)[1]["groups"] is None


# --- numbers that are none


def test_rows_without_numbers_are_said_in_words(world: World, tmp_path: Path) -> None:
    text = world.texts[0]
    slots = text.slots.clone()
    slots[10, 1] = float("nan")
    path = tiny.write_v1_sample(tmp_path / "data_0.pt", replace(text, slots=slots))
    result, data = score(world.session(depth=1), [path])
    counted = [t for t in range(10, len(text.ids) - 2) if text.mask[t + 1]]
    assert [s.not_finite for s in result.per_sample[path].values()] == [len(counted), 0]
    (line,) = [w for w in data["samples"][0]["warnings"] if w.startswith("NaN")]
    total = sum(text.mask[t + 1] for t in range(len(text.ids) - 2))
    assert f"slots 0,1,2, {len(counted)} of the {total} rows" in line and "under 1 of 2 orderings" in line
    healthy = score(world.session(depth=1), world.samples[:1])[1]
    assert not any(w.startswith("NaN") for w in healthy["samples"][0]["warnings"])


def test_a_sample_without_rows_is_in_no_mean(world: World, tmp_path: Path) -> None:
    unsupervised = replace(world.texts[0], mask=[0] * len(world.texts[0].ids))
    path = tiny.write_v1_sample(tmp_path / "data_9.pt", unsupervised)
    result, data = score(world.session(depth=1), [world.samples[1], path])
    for ordering, pooled in zip(ORDERINGS, data["orderings"], strict=True):
        assert result.per_sample[path][ordering].ratio is None
        ratio = result.per_sample[world.samples[1]][ordering].ratio
        assert pooled["mean_of_samples"] == {"accuracy": ratio, "samples": 1} and ratio
    alone = score(world.session(depth=1), [path])[1]["orderings"][0]["mean_of_samples"]
    assert alone == {"accuracy": None, "samples": 0}


# --- what a front end keeps


def test_a_snapshot_stays_as_it_was(world: World) -> None:
    kept: list[tuple[ScoreResult, str]] = []

    def look(result: ScoreResult) -> None:
        copy = result.snapshot()
        kept.append((copy, repr(copy)))

    session = world.session(depth=1, groups=("a=*data_0*",))
    score(session, world.samples, on_progress=look)
    assert len(kept) == 6 and all(repr(copy) == text for copy, text in kept)
    assert len({text for _, text in kept}) == 6


def test_the_log_keeps_the_samples_own_scores_of_a_few(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def logged() -> list[bool]:
        session = world.session(depth=1)
        score(session, world.samples)
        return ["orderings" in sample for sample in session.log.records[-1]["result"]["samples"]]

    assert logged() == [True] * 3
    monkeypatch.setattr(score_json_module, "MOST_LOGGED", 2)
    assert logged() == [False] * 3


def test_files_are_opened_when_their_turn_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session, events = world.session(depth=1), list[str]()
    opened = session.open_sample
    monkeypatch.setattr(session, "open_sample", lambda path: events.append(path.name) or opened(path))
    session.score(world.samples, ORDERINGS, lambda result: events.append("scored"))
    assert events == ["scored"] * 2 + ["data_1.pt", "scored", "scored", "data_2.pt", "scored", "scored"]


def test_samples_of_another_number_of_slots_than_the_open_one(world: World, tmp_path: Path) -> None:
    three = tiny.tiny_sample(5, world.weights, depths=(0, 2, 4))
    path = tiny.write_v1_sample(tmp_path / "data_3.pt", three)
    result, _ = score(world.session(depth=1), [world.samples[0], path])
    ((skipped, why),) = result.skipped
    assert skipped == path and "3 recorded states" in why and "expected 4" in why
    with refused(SampleError, "3 recorded states", "4", "data_3.pt"):
        score(world.session(depth=1), [path])
