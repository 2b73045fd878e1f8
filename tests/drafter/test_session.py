"""Session from end to end on tiny runs of both layouts: what it selects, counts, refuses, and writes down."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafter.errors import FileError, PathError, SampleError, WiringError
from drafter.log import SessionLog, read_log
from drafter.session import Options, Session
from drafter.wiring import Ordering
from tests import reference_scores as scores
from tests import tiny
from tests.drafter.helpers import refused
from tests.reference import predictions
from tests.tiny_world import V1_SLOTS, World, tiny_world

DEPTH = 3
ORDERINGS: list[Ordering] = [(0, 1, 2), (2, 0, 3)]


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("flat"))


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("nested"), "nested", "arrow")


def score_of(session: Session, paths: tuple[Path, ...], **options: Any) -> dict[str, Any]:
    return session.score_json(session.score(paths, ORDERINGS, **options))


def reference_json(world: World, index: int, ordering: Ordering, mask: str, verifier: bool) -> dict[str, Any]:
    text = world.texts[index]
    model = tiny.reference(world.weights, norm_before_residual=True)
    pred = predictions(model.teacher_forced(text.ids, text.slots[:, list(ordering)], DEPTH))
    truths = tiny.verifier_argmax(world.weights, text.slots[:, -1]) if verifier else ()
    return scores.score_json(pred, text.ids, text.mask, world.weights["d2t"].tolist(), mask, DEPTH, *truths)


# --- what the configs select


@pytest.mark.parametrize(
    ("config", "slots", "configured"),
    [("flat", V1_SLOTS, (1, 2, 3)), ("flat", None, None), ("nested", V1_SLOTS, (0, 1, 2)), ("nested", None, (0, 1, 2))],
)
def test_configured_and_trained(
    tmp_path: Path, config: str, slots: str | None, configured: tuple[int, ...] | None
) -> None:
    session = tiny_world(tmp_path, config, count=1).session(slots=slots)
    found, why = session.configured()
    assert found == configured
    assert "depth" in why
    assert session.trained() == (0, 1, 2)
    assert session.first_ordering() == ((0, 1, 2), "trained, by the training's config")


def test_first_ordering_without_a_training_config(flat: World, tmp_path: Path) -> None:
    folder = tiny.write_flat(tmp_path / "alone", flat.weights)
    session = replace(flat, output=folder).session(slots=V1_SLOTS)
    assert session.first_ordering() == ((1, 2, 3), "configured")
    session = replace(flat, output=folder).session()
    assert session.trained() is None
    assert session.first_ordering()[0] == (0, 1, 2)
    asked = replace(flat, output=folder).session(orderings=("all", "3,2,1"))
    assert asked.first_ordering() == ((3, 2, 1), "as asked")


def test_another_checkpoint_keeps_the_sample_and_renews_its_claims(flat: World, tmp_path: Path) -> None:
    tiny.write_flat(tmp_path / "run/1", flat.weights)
    tiny.write_nested(tmp_path / "run/2", flat.weights)
    session = replace(flat, output=tmp_path / "run").session()
    one, two = session.last_found
    session.choose_checkpoint(two)
    assert [s.claim.label for s in session.sample.slots if s.claim] == ["embed", "2", "4"]
    session.choose_checkpoint(one)
    assert [s.claim for s in session.sample.slots] == [None] * 4


def test_pick_takes_the_best_then_the_last_with_weights(flat: World, tmp_path: Path) -> None:
    for epoch in ("0", "3", "10"):
        tiny.write_flat(tmp_path / epoch, flat.weights)
    (tmp_path / "10/model.safetensors").unlink()
    session = Session(Options(tmp_path))
    picked = session.pick(session.find())
    assert (picked.name, session.pick_why(picked)) == ("3", "the last with weights")
    (tmp_path / "checkpoint_best").symlink_to("0")
    picked = session.pick(session.find())
    assert (picked.name, session.pick_why(picked)) == ("0", "to which checkpoint_best leads")


# --- scores


@pytest.mark.parametrize("mask", scores.MODES)
def test_scores_agree_with_the_reference(flat: World, nested: World, mask: str) -> None:
    for world, verifier in ((flat, False), (nested, True)):
        path = world.samples[1]
        found = score_of(world.session(mask=mask, depth=DEPTH), (path,))
        for ordering, ours in zip(ORDERINGS, found["orderings"], strict=True):
            assert ours["slots"] == list(ordering)
            assert scores.differing(ours, reference_json(world, 1, ordering, mask, verifier)) == []
        text, d2t = world.texts[1], world.weights["d2t"].tolist()
        assert found["coverage"] == scores.coverage(text.ids, d2t, text.mask, mask).json()


def test_pooled_counts_are_the_sum_of_single_samples(nested: World) -> None:
    pooled = score_of(nested.session(depth=DEPTH), nested.samples)
    single = [score_of(nested.session(depth=DEPTH), (path,)) for path in nested.samples]
    leaves = [scores.leaves(data["orderings"]) for data in (pooled, *single)]
    counted = [key for key in leaves[0] if key.endswith(("hits", "total", "rounds", "tokens")) or "histogram" in key]
    assert len(counted) > 100
    for key in counted:
        assert leaves[0][key] == leaves[1][key] + leaves[2][key], key
    assert [s["path"] for s in pooled["samples"]] == list(map(str, nested.samples))
    assert pooled["coverage"]["total"] == sum(data["coverage"]["total"] for data in single)


def test_depth_and_rows_of_a_score(flat: World) -> None:
    session = flat.session(depth=DEPTH, rows=8)
    deep = score_of(session, flat.samples[:1])
    assert deep["samples"][0]["tokens"] == 10
    shallow = session.score(flat.samples[:1], ORDERINGS, depth=1)
    assert (shallow.depth, len(session.score_json(shallow)["orderings"][0]["steps"])) == (1, 1)


def test_verifier_metrics_are_null_with_the_reason(flat: World, nested: World, tmp_path: Path) -> None:
    metrics = ("verifier_strict", "verifier_draft_vocab", "in_vocab")
    alone = tiny_world(tmp_path, "nested", "arrow", count=1)
    shutil.rmtree(alone.target)
    for session, word in (
        (flat.session(depth=1, slots=V1_SLOTS), "last state"),
        (alone.session(depth=1, target=None), "no target folder"),
    ):
        found = score_of(session, session.options.samples[:1])
        assert all(found["orderings"][0]["steps"][0][name] is None for name in metrics)
        assert all(word in found["reasons"][name] for name in metrics)
    found = score_of(nested.session(depth=1), nested.samples[:1])
    assert all(found["orderings"][0]["steps"][0][name]["marginal"]["total"] for name in metrics)
    assert found["reasons"] == {}


def test_progress_grows_by_one(flat: World) -> None:
    seen: list[tuple[int, int]] = []
    flat.session(depth=1).score(flat.samples, ORDERINGS, lambda r: seen.append((r.done, r.planned)))
    assert seen == [(n, 4) for n in range(1, 5)]


def test_samples_of_other_shapes_are_refused(flat: World, tmp_path: Path) -> None:
    three = tiny.tiny_sample(5, flat.weights, depths=(0, 2, 4))
    path = tiny.write_v1_sample(tmp_path / "data_3.pt", three)
    with refused(SampleError, "3 recorded states", "4", "data_3.pt"):
        flat.session(depth=1, samples=(flat.samples[0], path)).score((flat.samples[0], path), ORDERINGS)
    wide = replace(tiny.tiny_sample(6, flat.weights), slots=torch.zeros(tiny.TOKENS, 4, 48, dtype=torch.bfloat16))
    path = tiny.write_v1_sample(tmp_path / "data_4.pt", wide)
    with refused(SampleError, "48", "32"):
        flat.session(depth=1).score((path,), ORDERINGS)


def test_numbers_that_are_none_stay_json(flat: World, tmp_path: Path) -> None:
    weights = load_file(flat.output / "7/model.safetensors")
    folder = tiny.write_flat(tmp_path / "broken", flat.weights)
    weights["norm.weight"].fill_(float("nan"))
    save_file(weights, folder / "model.safetensors")
    log = SessionLog(tmp_path / "log.jsonl", [])
    replace(flat, output=folder).session(log, depth=2).step(5, (0, 1, 2))
    log.close()
    step = read_log(tmp_path / "log.jsonl")[-1]
    assert step["call"] == "step"
    assert step["result"]["predictions"][0]["logit"] is None


# --- one token


def test_step_agrees_with_the_reference(flat: World) -> None:
    session, text = flat.session(depth=4, slots=V1_SLOTS), flat.texts[0]
    model = tiny.reference(flat.weights, norm_before_residual=True)
    d2t = flat.weights["d2t"].tolist()
    for at in (2, 9, len(text.ids) - 1, len(text.ids)):
        ours = session.step_json(session.step(at, (2, 0, 1)))
        row, states = at - 2, text.slots[:, [2, 0, 1]]
        logits = model.step0(text.ids, states)[row].logits
        order = logits.argsort(descending=True)[:5].tolist()
        assert [p["draft_id"] for p in ours["predictions"]] == order
        assert [p["id"] for p in ours["predictions"]] == [i + d2t[i] for i in order]
        for p in ours["predictions"]:
            assert p["logit"] == pytest.approx(float(logits[p["draft_id"]]), abs=1e-4)
            assert p["prob"] == pytest.approx(float(logits.softmax(-1)[p["draft_id"]]), abs=1e-5)
        assert [link["id"] for link in ours["chain"]] == model.chain(text.ids, states, row, 4, d2t).target_ids
        assert ours["input"] == {"id": text.ids[at - 1], "text": f'"w{text.ids[at - 1]}"'}
        truths = [link["truth"] and link["truth"]["id"] for link in ours["chain"]]
        assert truths == [*text.ids[at : at + 4], None, None, None, None][:4]
        hits = [link["hit"] for link in ours["chain"]]
        assert ours["accept_length"] == 1 + scores.leading(hits)
        _check_truth(ours, text.ids[at] if at < len(text.ids) else None, logits, d2t)


def _check_truth(ours: dict[str, Any], truth: int | None, logits: torch.Tensor, d2t: list[int]) -> None:
    if truth is None:
        assert (ours["truth"], ours["truth_rank"]) == (None, None)
        return
    draft = next((d for d, offset in enumerate(d2t) if d + offset == truth), None)
    rank = None if draft is None else 1 + int((logits > logits[draft]).sum())
    assert ours["truth"]["in_draft_vocab"] == (draft is not None)
    assert (ours["truth"]["id"], ours["truth_rank"]) == (truth, rank)


@pytest.mark.parametrize("at", [-1, 0, 1, tiny.TOKENS + 1, 10**9])
def test_tokens_that_no_row_predicts(flat: World, at: int) -> None:
    with refused(WiringError, f"token {at}", f"2..{tiny.TOKENS}"):
        flat.session().step(at, (0, 1, 2))


# --- options


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"depth": 0}, "--depth"),
        ({"rows": 0}, "--rows"),
        ({"slots": "embed,,3"}, "--slots"),
        ({"slots": "embed,-1"}, "-1"),
        ({"orderings": ("0,x",)}, "0,x"),
    ],
)
def test_options_are_refused_before_anything_is_opened(options: dict[str, Any], word: str) -> None:
    with refused(WiringError, word):
        Session(Options(Path("/nowhere"), **options))


@pytest.mark.parametrize("ordering", ["0,1", "0,1,4", "0,1,2,3"])
def test_orderings_that_do_not_fit(flat: World, ordering: str) -> None:
    with refused(WiringError, "expected"):
        flat.session(orderings=(ordering,))
    session = flat.session()
    with refused(WiringError, "expected"):
        session.orderings([ordering])


def test_views_and_paths_that_are_not_there(flat: World) -> None:
    with refused(WiringError, "the version"):
        flat.session(view="sglang@new").step(5, (0, 1, 2))
    with refused(PathError, "nowhere"):
        Session(Options(Path("/nowhere"))).find()
    with refused(SampleError, "--samples"):
        Session(Options(flat.output)).sample  # noqa: B018


def test_a_tokenizer_nobody_asked_for_may_be_broken(flat: World, tmp_path: Path) -> None:
    sample = tiny.write_v1_sample(tmp_path / "data_0.pt", flat.texts[0])
    (tmp_path / "tokenizer.json").write_text("{not json")
    session = replace(flat, samples=(sample,)).session()
    assert session.tokens is None
    assert session.tokens_why.startswith("none: not a tokenizer")
    assert session.piece(5) == "<id 5>"
    with refused(FileError, "not a tokenizer"):
        replace(flat, samples=(sample,)).session(tokenizer=tmp_path)


# --- the log


def test_the_log_is_written_as_the_session_goes(flat: World, tmp_path: Path) -> None:
    path = tmp_path / "state/log.jsonl"
    session = flat.session(SessionLog(path, ["eagle3-tui", "x"]), depth=2)

    def calls() -> list[str]:
        return [r["call"] for r in read_log(path) if r["record"] != "header"]

    before = ["find", "choose_checkpoint", "choose_sample"]
    assert calls() == before
    session.step(5, (0, 1, 2))
    assert calls() == [*before, "load", "step"]
    session.score(flat.samples, ORDERINGS)
    assert calls() == [*before, "load", "step", "score"]
    header, *records = read_log(path)
    assert header["argv"] == ["eagle3-tui", "x"]
    assert "torch" in header["versions"]
    assert all(len(r["digest"]) == 16 for r in records)
    assert records[-1]["result"]["orderings"][0]["slots"] == [0, 1, 2]
    assert [json.loads(line) for line in path.read_text().splitlines()] == [header, *records]
    session.close()


def test_refusals_and_failures_are_logged(flat: World, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    session = flat.session(SessionLog(path, []))
    with pytest.raises(PathError):
        session.choose_sample(tmp_path / "nothing.pt")
    session.note_failure("step", ValueError("odd"), "Traceback ...")
    missing, failure = read_log(path)[-2:]
    assert (missing["record"], missing["call"]) == ("error", "choose_sample")
    assert "no such sample" in missing["error"]
    assert failure["trace"] == "Traceback ..."
    assert session.sample.path == flat.samples[0]
    session.close()


def test_the_same_calls_have_the_same_digests(flat: World) -> None:
    def digests() -> list[str]:
        session = flat.session(depth=2)
        session.step(5, (0, 1, 2))
        session.score(flat.samples[:1], ORDERINGS)
        return [r["digest"] for r in session.log.records if r["record"] == "call"]

    assert digests() == digests()


def test_a_weight_that_is_no_number_is_said(flat: World) -> None:
    weights = load_file(flat.output / "7/model.safetensors")
    weights["lm_head.weight"][3, 5] = float("nan")
    save_file(weights, flat.output / "7/model.safetensors")
    session = flat.session(depth=1, orderings=("0,1,2",))
    session.choose_checkpoint(session.pick(session.find()))
    result = session.score(session.list_samples().paths[:1])
    (warning,) = session.score_json(result)["warnings"]
    assert warning.startswith("lm_head.weight holds values that are not finite")
