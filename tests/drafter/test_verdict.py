"""Drafter, wiring, flags, data or engine: a story for each, and numbers that allow no verdict."""

from __future__ import annotations

import itertools

import pytest

from drafter.serving.effective import DrafterFacts, Effective
from drafter.serving.flags import parse_flags
from drafter.serving.serve import effective
from drafter.serving.verdict import (
    CONFIGURED,
    DRAFTER,
    ENGINE,
    FLAGS,
    HELD_OUT,
    MIN_ROUNDS,
    NONE,
    SERVED,
    SERVER,
    SHIFT,
    TRAINED,
    TRAINING,
    UNKNOWN,
    WIRING,
    Offline,
    good_length,
    near,
    verdict,
    verdict_json,
)

KINDS = {DRAFTER, WIRING, FLAGS, SHIFT, ENGINE, SERVER, NONE}


def chain(steps: int, algorithm: str = "EAGLE3", more: str = "--speculative-eagle-topk 1") -> Effective:
    line = (
        f"--speculative-algorithm {algorithm} --speculative-draft-model-path /d --speculative-num-steps {steps} {more}"
    )
    return effective(parse_flags(line), "sglang@0.5.9", DrafterFacts(is_eagle3=True, fc_inputs=3))


def offline(length: float, view: str = TRAINED, samples: str = HELD_OUT, drafts: int = 4, **more: int) -> Offline:
    return Offline(length, drafts, view, samples, **more)


def test_flags_the_founding_story() -> None:
    """1.9 of at most 2, while the drafter reaches 2.9 with five drafts: what was asked for (16) never ran."""
    deep = Offline(2.9, 5, joint=(0.85, 0.45, 0.3, 0.2, 0.1))
    found = verdict([deep], 1.9, chain(1))
    assert (found.kind, found.missing) == (FLAGS, ())
    assert "1.90 of at most 2" in found.sentence and "2.90 with more drafts" in found.sentence
    alone = verdict([], 1.9, chain(1))
    assert alone.kind == FLAGS
    assert "an offline length with more drafts" in alone.missing
    assert verdict([offline(1.2, drafts=1)], 1.95, chain(1)).kind == NONE, "served is far better than offline"


def test_flags_that_feed_one_state() -> None:
    found = verdict([offline(3.0)], 1.0, chain(4, "EAGLE"))
    assert found.kind == FLAGS and "EAGLE3" in found.sentence
    assert verdict([offline(3.0)], 2.9, chain(4, "EAGLE")).kind == NONE, "it does accept: the flags are not that"


def test_wiring() -> None:
    found = verdict([offline(3.0), offline(1.4, SERVED)], 1.35, chain(4))
    assert found.kind == WIRING
    assert all(number in found.sentence for number in ("3.00", "1.40", "1.35"))


def test_engine() -> None:
    for served_view in (3.0, 2.5):
        assert verdict([offline(3.0), offline(served_view, SERVED)], 1.3, chain(4)).kind == ENGINE
    assert verdict([offline(2.5, SERVED)], 1.3, chain(4)).kind == ENGINE, "the served view alone decides"


def test_drafter() -> None:
    found = verdict([offline(1.4)], 1.35, chain(4))
    assert found.kind == DRAFTER and found.missing, "whether it learned its training samples would tell more"
    both = verdict([offline(1.4), offline(1.5, samples=TRAINING)], 1.35, chain(4))
    assert (both.kind, both.missing) == (DRAFTER, ())
    assert verdict([offline(1.3, samples=TRAINING)], 1.26, chain(4)).kind == DRAFTER, "bad even on its training data"


def test_data_shift() -> None:
    found = verdict([offline(1.5), offline(3.5, samples=TRAINING)], 1.45, chain(4))
    assert found.kind == SHIFT and "does not generalise" in found.sentence


def test_as_expected_is_no_fault() -> None:
    found = verdict([offline(2.9)], 2.8, chain(4))
    assert found.kind == NONE and found.sentence.startswith("as expected")
    same = verdict([offline(2.9), offline(2.85, SERVED)], 2.8, chain(4))
    assert same.kind == NONE and same.sentence.startswith("as expected")


@pytest.mark.parametrize("samples", [HELD_OUT, UNKNOWN])
def test_a_good_drafter_that_serves_badly_points_at_the_server(samples: str) -> None:
    """vllm-ascend#2793: 4.3 offline, 1.3 served; without the served view wiring and engine look alike."""
    found = verdict([offline(4.3, samples=samples)], 1.3, chain(4))
    assert found.kind == SERVER and found.sentence.startswith("look at the server")
    assert any("served view" in what for what in found.missing)
    assert any("trained on" in what for what in found.missing) == (samples == UNKNOWN)


def test_training_samples_alone_do_not_accuse_the_server() -> None:
    found = verdict([offline(4.3, samples=TRAINING)], 1.3, chain(4))
    assert found.kind == NONE
    assert any("held-out" in what for what in found.missing)


def test_numbers_that_allow_no_verdict_say_what_is_missing() -> None:
    for found, said in (
        (verdict([offline(3.0)], None, chain(4)), "a server log"),
        (verdict([], 2.0, chain(4)), "an offline accept length"),
        (verdict([offline(3.0)], 5.2, chain(4)), "the flags of this run"),
        (verdict([offline(3.0, drafts=5)], 2.0, chain(4)), "with 4 draft(s), not 5"),
        (verdict([offline(3.0, rounds=MIN_ROUNDS - 1)], 1.5, chain(4)), f"over {MIN_ROUNDS} rounds"),
        (verdict([offline(3.0), offline(3.1, drafts=5)], 1.5, None), "drafts a round"),
        (verdict([offline(3.0, view="sglang")], 1.5, chain(4)), "trained view"),
        (verdict([], 1.5, None), "an offline accept length"),
    ):
        assert found.kind == NONE
        assert any(said in what for what in found.missing), found
    assert verdict([offline(3.0)], 0.4, chain(4)).kind == NONE


def test_the_joint_rates_make_lengths_comparable() -> None:
    joint = (0.8, 0.6, 0.4, 0.2)
    deep = Offline(3.0, 4, TRAINED, HELD_OUT, joint=joint)
    assert [deep.at(k) for k in range(1, 6)] == pytest.approx([1.8, 2.4, 2.8, 3.0, None])
    assert verdict([deep], 2.35, chain(2)).sentence.startswith(("as expected", "the flags"))
    assert verdict([deep], 1.4, chain(2)).kind == SERVER


def test_without_flags_one_number_of_drafts_is_taken_from_the_samples() -> None:
    assert verdict([offline(1.4)], 1.35, None).kind == DRAFTER


def test_a_tree_is_said_to_beat_a_chain() -> None:
    tree = chain(4, more="--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --page-size 1")
    found = verdict([offline(3.0)], 1.4, tree)
    assert found.kind == SERVER
    assert any("lower bound" in reason for reason in found.reasons)


def test_every_combination_gives_a_kind_and_no_kind_without_both_numbers() -> None:
    lengths = (None, 1.05, 1.6, 2.2, 3.5)
    names = list(itertools.product((TRAINED, SERVED), (HELD_OUT, TRAINING)))
    for served in (1.0, 1.3, 1.7, 2.3, 3.4, 4.9):
        for chosen in itertools.product(lengths, repeat=4):
            given = [offline(n, *name) for n, name in zip(chosen, names, strict=True) if n is not None]
            found = verdict(given, served, chain(4))
            assert found.kind in KINDS
            if not given:
                assert found.kind in (NONE, FLAGS)
            held_out, _, as_served, _ = chosen
            if found.kind == WIRING:
                assert as_served is not None and held_out is not None and held_out > as_served
                assert near(served, as_served) or served - as_served < held_out - served
            if found.kind == ENGINE:
                assert as_served is not None and served < as_served and not near(served, as_served)
            if found.kind == SHIFT:
                assert held_out is not None and near(served, held_out)


@pytest.mark.parametrize(
    ("served", "kind", "said"),
    [
        (1.35, WIRING, "as trained 2.06, as the config says 1.35, served 1.35"),
        (1.0, SERVER, "the config does not explain all of it"),
        (2.0, NONE, "no verdict: offline 2.06, served 2.00"),
    ],
)
def test_without_a_server_only_the_config_is_spoken_of(served: float, kind: str, said: str) -> None:
    found = verdict([offline(2.06, samples=UNKNOWN), offline(1.35, CONFIGURED, UNKNOWN)], served, chain(4))
    assert found.kind == kind and said in found.sentence
    assert "this server" not in found.sentence
    assert any("version" in what for what in found.missing) == (kind == SERVER)


def test_a_named_server_is_named() -> None:
    who = "as sglang@0.5.14 computes it"
    near_it = verdict([offline(2.06), Offline(1.0, 4, SERVED, HELD_OUT, who=who)], 1.05, chain(4))
    assert near_it.kind == WIRING and f"{who} 1.00, served 1.05" in near_it.sentence
    below = verdict([offline(2.06), Offline(1.9, 4, SERVED, HELD_OUT, who=who)], 1.05, chain(4))
    assert below.kind == ENGINE and f"{who} 1.90, served 1.05" in below.sentence


@pytest.mark.parametrize("length", [2.0, 2.6])
def test_better_than_offline_is_fine(length: float) -> None:
    """2.0 is below what is good for four drafts, 2.6 above: served 3.2 is better than either."""
    for samples, said in ((UNKNOWN, "as good as expected, or better"), (HELD_OUT, "served is better than what")):
        found = verdict([offline(length, samples=samples)], 3.2, chain(4))
        assert found.kind == NONE and said in found.sentence and "other text" in found.sentence
        assert "no verdict" not in found.sentence
    trained_on = verdict([offline(1.5, samples=TRAINING)], 2.0, chain(4))
    assert trained_on.kind == DRAFTER, "what was trained on should be better than what is served"


def test_thresholds() -> None:
    assert good_length(3) == pytest.approx(2.1, abs=0.02)
    assert good_length(1) < good_length(2) < good_length(5) < 2.4
    assert near(2.0, 2.1) and near(1.0, 1.09) and near(3.0, 2.75) and not near(3.0, 2.5) and not near(1.0, 1.2)
    assert verdict_json(verdict([], 1.9, chain(1)))["kind"] == FLAGS
