"""Paired outcomes and the epochs of a run, against the reference forward, plain loops and exact binomial sums."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.checkpoint_compare.epochs import ACCURACY, LENGTH, Run, list_epochs, run_json
from drafter.checkpoint_compare.outcomes import Outcomes, SampleOutcome, _outcome, longer, pair, paired_json
from drafter.errors import Cancelled, CheckpointError, PathError, SampleError
from drafter.files.find import Found, find_checkpoints
from drafter.json_text import json_text
from drafter.log import SessionLog
from drafter.scoring.counts import Truths
from drafter.scoring.tallies import MASK_MODES, Count, Lengths
from drafter.session import Options, Session
from drafter.wiring import Wiring
from tests import tiny
from tests.drafter.helpers import refused
from tests.reference import predictions

torch.set_num_threads(1)
SIZES = tiny.Sizes(vocab=11, draft_vocab=8)  # so few tokens that a random drafter is often right
DEPTH = 3
OURS = tiny.tiny_weights(0, SIZES)
# fc moved half way to another run's: right on some rows that ours has right, and on others
THEIRS = {**OURS, "fc.weight": (OURS["fc.weight"] + tiny.tiny_weights(1, SIZES)["fc.weight"] / 2).bfloat16().float()}
WIRED = Wiring("trained", True, False)


class Place:
    """A run of two checkpoints, and samples, on disk."""

    def __init__(self, folder: Path, samples: int = 3) -> None:
        self.weights = [OURS, THEIRS]
        self.run = folder / "run"
        for epoch, weights in enumerate(self.weights):
            tiny.write_flat(self.run / str(epoch), weights, SIZES, speculators_config=True, norm_before_residual=True)
        self.target = tiny.write_target(folder / "target", OURS, SIZES, tokenizer=True)
        self.texts = [tiny.tiny_sample(seed, OURS, SIZES, tokens=150) for seed in range(samples)]
        self.samples = [tiny.write_v1_sample(folder / f"s/data_{i}.pt", t) for i, t in enumerate(self.texts)]

    def session(self, log: SessionLog | None = None, **options: Any) -> Session:
        asked = {"target": self.target, "device": "cpu", "dtype": "float32", "depth": DEPTH, **options}
        return Session(Options(self.run, **asked), log)

    def found(self) -> list[Found]:
        return find_checkpoints(self.run)

    def hits(self, which: int, text: int, ordering: tuple[int, ...] = (0, 1, 2)) -> list[list[bool]]:
        """[K][R] whether the reference's draft is the sample's token."""
        weights, sample = self.weights[which], self.texts[text]
        model = tiny.reference(weights, SIZES, norm_before_residual=True)
        drafts = predictions(model.teacher_forced(sample.ids, sample.slots[:, list(ordering)], DEPTH))
        ids = [i + int(o) for i, o in enumerate(weights["d2t"])]
        truth = [*sample.ids, *([-1] * (DEPTH + 2))]
        return [
            [d is not None and ids[d] == truth[t + 2 + k] for t, d in enumerate(step)] for k, step in enumerate(drafts)
        ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("compare"))


def binomial(a: int, b: int) -> float:
    """Two-sided exact p of `a` against `b` under a fair coin."""
    n = a + b
    return min(1.0, 2 * sum(comb(n, i) for i in range(min(a, b) + 1)) / 2**n) if n else 1.0


def leading(hits: list[list[bool]], row: int) -> int:
    """Right drafts in a row from `row`."""
    return next((k for k, step in enumerate(hits) if not step[row]), len(hits))


# --- two checkpoints on the same samples


def test_pairs_are_those_of_the_reference(place: Place) -> None:
    one, two = place.found()
    found = place.session().compare_outcomes(one, two, place.samples, most=1000)
    both = only_ours = only_theirs = neither = more = less = 0
    rows: set[tuple[int, int]] = set()
    for text, sample in enumerate(place.texts):
        a, b = (place.hits(which, text) for which in (0, 1))
        for t in range(len(sample.ids) - 2):
            if sample.mask[t + 1]:
                both += a[0][t] and b[0][t]
                only_ours += a[0][t] and not b[0][t]
                only_theirs += b[0][t] and not a[0][t]
                neither += not a[0][t] and not b[0][t]
                rows |= {(text, t)} if a[0][t] != b[0][t] else set()
        for t in range(len(sample.ids) - 1 - DEPTH):
            if all(sample.mask[t + 1 + k] for k in range(DEPTH)):
                more += leading(a, t) > leading(b, t)
                less += leading(a, t) < leading(b, t)
    table = found.table
    assert (table.both, table.only_ours, table.only_theirs, table.neither) == (both, only_ours, only_theirs, neither)
    assert both and only_ours and only_theirs  # else the test shows nothing
    assert table.p == pytest.approx(binomial(only_ours, only_theirs))
    assert (found.longer.only_ours, found.longer.only_theirs) == (more, less)
    assert found.longer.p == pytest.approx(binomial(more, less))
    assert {(place.samples.index(r.path), r.row) for r in found.differing} == rows
    for row in found.differing:
        text = place.samples.index(row.path)
        sample = place.texts[text]
        assert (row.fed, row.truth) == (sample.ids[row.row + 1], sample.ids[row.row + 2])
        lengths = tuple(leading(place.hits(which, text), row.row) + 1 for which in (0, 1))
        assert (row.length_ours, row.length_theirs) == lengths
        assert (row.ours == row.truth) == (lengths[0] > 1) and (row.theirs == row.truth) == (lengths[1] > 1)
    apart = [abs(r.length_ours - r.length_theirs) for r in found.differing]
    assert apart == sorted(apart, reverse=True)
    assert sum(s.table.only_ours for s in found.samples) == only_ours and len(found.samples) == 3
    few = place.session().compare_outcomes(one, two, place.samples, most=3).differing
    assert few == found.differing[:3] and apart[0] > apart[-1]


@pytest.mark.parametrize("mask", MASK_MODES)
def test_each_side_is_what_score_says_of_it(place: Place, mask: str) -> None:
    one, two = place.found()
    found = place.session(mask=mask).compare_outcomes(one, two, place.samples)
    for side, outcomes in enumerate((found.ours, found.theirs)):
        session = place.session(mask=mask)
        session.choose_checkpoint((one, two)[side])
        score = session.score(place.samples, [(0, 1, 2)]).scores[0, 1, 2]
        assert outcomes.ordering == (0, 1, 2) and outcomes.why.startswith("trained")
        assert (found.accuracy[side], found.lengths[side]) == (score.accuracy, score.lengths)


def test_the_same_checkpoint_twice_differs_nowhere(place: Place) -> None:
    one = place.found()[0]
    found = place.session().compare_outcomes(one, one, place.samples)
    assert (found.table.only_ours, found.table.only_theirs, found.table.p, found.differing) == (0, 0, 1.0, ())
    assert found.table.rows == found.accuracy[0].total


def test_the_ordering_asked_for_is_both(place: Place) -> None:
    one, two = place.found()
    found = place.session(orderings=("2,0,3",)).compare_outcomes(one, two, place.samples[:1])
    assert (found.ours.ordering, found.theirs.ordering, found.ours.why) == ((2, 0, 3), (2, 0, 3), "as asked")
    sample = place.texts[0]
    hits = place.hits(0, 0, (2, 0, 3))[0]
    assert found.accuracy[0].hits == sum(hits[t] for t in range(len(sample.ids) - 2) if sample.mask[t + 1])


def test_each_has_its_own_ordering_and_wiring(place: Place, tmp_path: Path) -> None:
    other = tiny.write_nested(tmp_path / "x", OURS, SIZES, embed=False, layer_ids=(2, 4, 6), norm_before_residual=False)
    two = find_checkpoints(other)[0]
    session = place.session(slots="embed,2,4,6")
    found = session.compare_outcomes(place.found()[0], two, place.samples[:1])
    assert (found.ours.ordering, found.theirs.ordering) == ((0, 1, 2), (1, 2, 3))
    assert (found.ours.wiring.norm_before_residual, found.theirs.wiring.norm_before_residual) == (True, False)


def test_what_is_open_stays_open(place: Place) -> None:
    session = place.session()
    session.choose_checkpoint(place.found()[0])
    session.choose_sample(place.samples[2])
    drafter = session.load()
    session.compare_outcomes(*place.found(), place.samples[:1])
    assert session.checkpoint.path == place.found()[0].path
    assert session.sample.path == place.samples[2] and session.load() is drafter


def test_a_sample_that_one_cannot_take_is_named_and_left_out(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    shutil.copytree(place.samples[0].parent, folder)
    (folder / "data_1.pt").write_bytes(b"")
    found = place.session().compare_outcomes(*place.found(), sorted(folder.iterdir()))
    assert len(found.samples) == 2
    assert list(found.ours.skipped) == list(found.theirs.skipped) == [folder / "data_1.pt"]
    assert "empty" in found.ours.skipped[folder / "data_1.pt"]


def test_refusals(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.run / "0", tmp_path / "bare")
    (tmp_path / "bare/model.safetensors").unlink()
    bare = find_checkpoints(tmp_path / "bare")[0]
    with refused(CheckpointError, "without weights"):
        place.session().compare_outcomes(place.found()[0], bare, place.samples)
    sizes = tiny.Sizes(vocab=11, draft_vocab=8, hidden=16, head_dim=4)
    tiny.write_nested(tmp_path / "narrow", tiny.tiny_weights(0, sizes), sizes)
    with refused(SampleError, "32 wide", "16"):
        place.session().compare_outcomes(place.found()[0], find_checkpoints(tmp_path / "narrow")[0], place.samples)
    with refused(PathError, "no samples"):
        place.session().compare_outcomes(*place.found(), [])


def test_it_can_be_cancelled(place: Place) -> None:
    calls = 0

    def poll() -> None:
        nonlocal calls
        calls += 1
        if calls > 12:
            raise Cancelled

    with pytest.raises(Cancelled):
        place.session().compare_outcomes(*place.found(), place.samples, poll=poll)


def test_json_and_log(place: Place) -> None:
    log = SessionLog(None, [])
    session = place.session(log)
    found = session.compare_outcomes(*place.found(), place.samples, most=2)
    data = json.loads(json_text(paired_json(found, lambda i: f"<{i}>")))
    assert len(data["differing"]) == 2 and data["differing"][0]["truth"]["text"].startswith("<")
    row = data["differing"][0]
    assert row["at"] == row["row"] + 2
    assert (
        sum(data["step0"][k] for k in ("both", "only_ours", "only_theirs", "neither")) == data["ours"]["step0"]["total"]
    )
    (record,) = [r for r in log.records if r.get("call") == "compare_outcomes"]
    assert record["result"]["step0"] == data["step0"] and "samples" not in record["result"]


# --- made by hand


def outcome(name: str, predicted: list[list[int]], ids: list[int], mode: str = "all") -> SampleOutcome:
    """Predictions [K][R] as target ids of a whole vocabulary."""
    whole = torch.arange(100)
    truths = Truths(torch.tensor(ids), torch.ones(len(ids), dtype=torch.bool), whole, whole)
    return _outcome(Path(name), torch.tensor(predicted), truths, mode)


def outcomes(*samples: SampleOutcome) -> Outcomes:
    return Outcomes((0, 1, 2), "trained", WIRED, samples={s.path: s for s in samples})


def test_lengths_and_nothing_predicted_by_hand() -> None:
    ids = [9, 8, 1, 2, 3, 4]
    a = outcome("x", [[1, 2, 3, -1, 5], [2, 3, 7, 4, 5]], ids)
    assert a.rows.tolist() == [0, 1, 2, 3] and a.right.tolist() == [True, True, True, False]
    assert a.drafted.tolist() == [1, 2, 3, -1]
    assert a.leading.tolist() == [2, 2, 1, 0] and a.accepted.tolist() == [2, 2, 1]
    assert (a.fed.tolist(), a.truth.tolist()) == ([8, 1, 2, 3], [1, 2, 3, 4])
    assert (a.accuracy, a.lengths.histogram) == (Count(3, 4), (0, 1, 2))
    b = outcome("x", [[1, 7, 7, 4, 5], [7, 7, 7, 4, 5]], ids)
    found = pair(outcomes(a), outcomes(b))
    assert found is not None
    assert [(r.row, r.ours, r.theirs, r.length_ours, r.length_theirs) for r in found.differing] == [
        (1, 2, 7, 3, 1),
        (2, 3, 7, 2, 1),
        (3, -1, 4, 1, 2),
    ]
    assert paired_json(found, str)["differing"][2]["ours"] is None
    assert pair(outcomes(a), outcomes(replace(b, path=Path("y")))) is None


def test_the_sign_test_counts_only_rows_that_differ() -> None:
    ours, theirs = torch.tensor([3, 3, 1, 0, 2]), torch.tensor([1, 3, 0, 1, 1])
    table = longer(ours, theirs)
    assert (table.both, table.only_ours, table.only_theirs) == (1, 3, 1)
    assert table.p == pytest.approx(binomial(3, 1))


# --- all of a run


def trained_better(hits: int) -> list[list[int]]:
    """Predictions for 40 tokens 0, 1, 2, ... of which the first `hits` are right, at one step."""
    return [[t + 2 if t < hits else 99 for t in range(39)]]


def run_of(*hits: int) -> Run:
    epochs = list_epochs([Found(Path(f"/r/{i}"), str(i), None, (), 0, epoch=i) for i in range(len(hits))], lambda f: {})
    for epoch, right in zip(epochs, hits, strict=True):
        epoch.outcomes = outcomes(outcome("x", trained_better(right), list(range(40))))
    return Run(1, "all", epochs)


def test_the_best_epoch_and_those_tied_with_it() -> None:
    best = run_of(5, 30, 28, 20).best()
    assert best is not None
    assert (best.index, best.ranked_by, best.rows) == (1, LENGTH, 38)
    assert [(i, p) for i, p in best.tied] == [(2, pytest.approx(binomial(2, 0)))]
    first = run_of(9, 9).best()
    assert first is not None and (first.index, first.tied) == (0, ((1, 1.0),))
    assert run_of().best() is None


def test_the_best_is_told_on_the_samples_that_all_have() -> None:
    run = run_of(5, 30)
    more, fewer = run.epochs[0].outcomes, run.epochs[1].outcomes
    assert more is not None and fewer is not None
    more.samples[Path("y")] = outcome("y", trained_better(38), list(range(40)))  # pooled, it would win
    best = run.best()
    assert best is not None and (best.index, best.rows) == (1, 38)
    del fewer.samples[Path("x")]
    assert run.best() is None


def test_without_accept_lengths_step_0_ranks() -> None:
    run = run_of(5, 30)
    for epoch in run.epochs:
        assert epoch.outcomes is not None
        (one,) = epoch.outcomes.samples.values()
        empty: Tensor = torch.zeros(0, dtype=torch.int16)
        epoch.outcomes.samples[one.path] = replace(one, accepted=empty, longest=empty.int(), lengths=Lengths((0, 0)))
    best = run.best()
    assert best is not None and (best.index, best.ranked_by, best.rows) == (1, ACCURACY, 38)


def test_epochs_of_a_run_on_disk(place: Place, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("0", "1"):
        shutil.copytree(place.run / name, run / name)
    shutil.copytree(place.run / "0", run / "10")
    (run / "10/model.safetensors").unlink()
    (run / "checkpoint_best").symlink_to("1")
    (run / "0/val_metrics.json").write_text('{"loss_epoch": 2.5, "note": "x", "flag": true, "odd": NaN}')
    (run / "10/val_metrics.json").write_text('{"loss_epoch": 1.5}')
    (run / "1/training_state.json").write_text('{"epoch": 1, "global_step": 119}')
    (run / "0/training_state.json").write_text("[")
    log = SessionLog(None, [])
    session = place.session(log)
    seen: list[int] = []
    found = session.run_epochs(find_checkpoints(run), place.samples, lambda r: seen.append(r.done))
    data = json.loads(json_text(run_json(found)))
    assert seen == [1, 2, 3]
    assert [(e["name"], e["epoch"], e["step"], e["problem"]) for e in data["epochs"]] == [
        ("0", 0, None, ""),
        ("1", 1, 119, ""),
        ("10", 10, None, "no weights"),
    ]
    assert [e["epoch_why"] for e in data["epochs"]] == ["the folder's name", "training_state.json", "the folder's name"]
    assert data["epochs"][1]["links"] == ["checkpoint_best"]
    assert data["series"]["metrics"] == {"loss_epoch": [2.5, None, 1.5], "odd": [None, None, None]}
    for which in (0, 1):
        hits = total = 0
        for text, sample in enumerate(place.texts):
            right = place.hits(which, text)[0]
            counted = [t for t in range(len(sample.ids) - 2) if sample.mask[t + 1]]
            hits, total = hits + sum(right[t] for t in counted), total + len(counted)
        assert data["epochs"][which]["step0"] == {"hits": hits, "total": total}
        assert data["series"]["accuracy"][which] == hits / total
    assert data["series"]["length"][2] is None and data["series"]["walk"][0] > 1
    assert data["best"]["index"] in (0, 1)
    (record,) = [r for r in log.records if r.get("call") == "run_epochs"]
    assert record["result"]["series"]["epoch"] == [0, 1, 10]


def test_epochs_and_steps_by_note_and_by_name(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-300").mkdir()
    (tmp_path / "checkpoint-300/trainer_state.json").write_text('{"epoch": 0.7, "global_step": 300}')
    names = ["r-epoch1-step500", "r-step40", "epoch2", "checkpoint-300", "9"]
    epochs = {"r-epoch1-step500": 1, "r-step40": 40, "epoch2": 2, "checkpoint-300": 300, "9": 9}
    listed = list_epochs([Found(tmp_path / n, n, None, (), 0, epoch=epochs[n]) for n in names], lambda f: {})
    assert [(e.found.name, e.epoch, e.step, e.epoch_why) for e in listed] == [
        ("r-epoch1-step500", 1, 500, "the folder's name"),
        ("epoch2", 2, None, "the folder's name"),
        ("9", 9, None, "the folder's name"),
        ("r-step40", None, 40, "not stated"),
        ("checkpoint-300", None, 300, "not stated"),
    ]


def test_epochs_can_be_left_at_any(place: Place) -> None:
    seen: list[Run] = []

    def poll() -> None:
        if seen:
            raise Cancelled

    with pytest.raises(Cancelled):
        place.session().run_epochs(place.found(), place.samples, seen.append, poll)
    assert [e.outcomes is not None for e in seen[0].epochs] == [True, False]
    assert seen[0].best() is not None


def test_an_epoch_that_cannot_be_run_is_listed_with_its_reason(place: Place, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("0", "1", "2"):
        shutil.copytree(place.run / "0", run / name)
    (run / "1/config.json").write_text('{"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 8}')
    (run / "1/config_speculators.json").unlink()
    tiny.write_flat(run / "2", OURS, SIZES, speculators_config=True, changes={"hidden_act": "gelu"})
    found = place.session().run_epochs(find_checkpoints(run), place.samples[:1])
    problems = [epoch.problem for epoch in found.epochs]
    assert problems[0] == "" and problems[1] and all("\n" not in p for p in problems)
    shutil.rmtree(run / "0")
    shutil.rmtree(run / "2")
    shutil.copytree(place.run / "0", run / "0")
    (run / "0/model.safetensors").unlink()
    bare = place.session().run_epochs(find_checkpoints(run), place.samples[:1])
    assert bare.best() is None and bare.epochs[0].problem == "no weights"
    assert run_json(bare)["best"] is None


def test_samples_that_no_epoch_can_take_are_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "data_0.pt").write_bytes(b"")
    with refused(Exception, "empty"):  # type: ignore[arg-type]
        place.session().run_epochs(place.found(), [tmp_path / "data_0.pt"])
