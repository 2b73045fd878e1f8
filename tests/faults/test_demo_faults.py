"""Faults of the shipped drafter, which no threshold was set on: those that the toy next door cannot show.

`tests/check_faults_demo.py` runs all of them by hand.
"""

from __future__ import annotations

from functools import cache

import pytest

from drafter.checks.finding import ERROR, WARNING, Finding
from drafter.checks.run import Report
from tests.check_faults_demo import subject
from tests.trials.clothes import clothes
from tests.trials.faults import Fault, all_faults
from tests.trials.table import report_of, telling


def said(name: str) -> Report:
    (fault,) = [fault for fault in _known() if fault.name == name]
    return report_of(subject(), fault)


@cache
def _known() -> tuple[Fault, ...]:
    return (*clothes(), *all_faults())


def first(report: Report) -> Finding:
    return telling(report)[0]


def test_random_fc_is_no_fault_of_the_sample() -> None:
    """Later steps lean on the tokens and do better, as where the states are of other tokens."""
    found = first(said("fc_random"))
    assert (found.kind, found.severity) == ("K02", ERROR)
    assert "fc.weight looks like random numbers" in found.title


def test_a_lost_head_is_an_error_and_no_server_is_said_to_make_it_up() -> None:
    (found,) = telling(said("no lm_head"))
    assert found.check == "head-missing" and "the mapped ids (arange(576) + d2t), [576, 128]" in found.fix


def test_a_head_is_not_to_be_left_out_for_what_servers_do_with_embeddings() -> None:
    found = [f for f in telling(said("random lm_head")) if f.check == "the-target-s-own-tensor-predicts-better"]
    assert found and "lm_head.weight = the rows of the target's lm_head" in found[0].fix
    assert not any("leave lm_head" in f.fix or "SGLang takes" in f.fix for f in found)


def test_a_random_matrix_is_named_and_the_others_are_called_trained() -> None:
    report = said("random layers.0.self_attn.q_proj.weight")
    assert "layers.0.self_attn.q_proj.weight looks like random numbers" in first(report).title
    assert report.verdict_kind == "broken-checkpoint"


def test_a_matrix_that_may_be_random_is_named_and_not_called_trained() -> None:
    found = next(f for f in telling(said("random layers.0.self_attn.o_proj.weight")) if "few are right" in f.title)
    assert "layers.0.self_attn.o_proj.weight cannot be told from random numbers" in found.title
    assert "the weights are trained" not in found.title


def test_a_matrix_of_one_value_is_named_by_the_scores_too() -> None:
    found = [f for f in telling(said("zero layers.0.self_attn.o_proj.weight")) if "few are right" in f.title]
    assert found and "o_proj.weight holds one value" in found[0].title


def test_the_map_that_predicts_is_written_as_a_formula() -> None:
    found = next(f for f in telling(said("the map one row up")) if f.check == "vocab-map-predicts-in-another-reading")
    assert "d2t does not name the tokens of lm_head's rows" in found.title and "ascending, does: step 0" in found.title
    assert found.fix.startswith("weights: d2t = nonzero(t2d) - arange(D), with D = 576")


def test_trained_weights_in_the_wrong_place_are_not_called_untrained() -> None:
    report = said("heads of q in another order")
    assert "most matrices are trained" in first(report).title
    assert report.verdict_kind == "broken-checkpoint"


def test_halves_in_each_other_s_place_are_named() -> None:
    report = said("swap_embed_and_hidden_halves_in_qkv")
    assert "take the hidden before the embedding" in first(report).title and "-> 0.695" in first(report).title
    assert report.verdict_kind == "broken-checkpoint"


def test_layers_that_are_not_recorded_are_no_fault_of_the_sample() -> None:
    report = said("only slots 1,2,3 recorded, all fed")
    assert first(report).kind == "K01" and report.verdict_kind == "miswired"
    assert "names the next token in" in first(report).title


def test_a_recording_that_contradicts_itself_vouches_for_nothing() -> None:
    report = said("slot 0 is not the embedding that it is said to be")
    assert {f.kind for f in telling(report)} == {"K08"}


def test_states_that_vouch_for_themselves_are_not_given_to_other_tokens() -> None:
    """A drafter without its layer predicts the token of another row, which says nothing of the sample."""
    assert not [f for f in telling(said("made layer")) if f.kind == "K08"]


def test_states_of_other_rows_are_still_told() -> None:
    assert first(said("deep slots one row late, the embedding right")).kind == "K08"


def test_a_lost_matrix_is_named_before_a_switch_that_helps_a_little() -> None:
    found = first(said("random layers.0.mlp.gate_proj.weight"))
    assert found.kind == "K02" and "gate_proj" in found.title


def test_the_map_of_another_run_is_told_by_the_rows_of_the_target_s_head() -> None:
    """The target's own head at the mapped ids predicts better too, which is no fault of the drafter's head."""
    found = first(said("F12 the map of another run, seed 1"))
    assert (found.kind, found.check) == ("K03", "head-rows-are-the-mapped-tokens")
    assert "63 of 64 rows" in found.title


def test_a_vocab_size_of_the_draft_vocabulary_is_one_error_with_its_key() -> None:
    """Nobody is told to throw the map away: it, the embedding and the target are right."""
    (found,) = telling(said("vocab_size is draft_vocab_size"))
    assert (found.kind, found.severity) == ("K03", ERROR)
    assert found.title.endswith("it is 1024 by the length of t2d, the target's config and the rows of embed_tokens")
    assert found.fix == "config.json: transformer_layer_config.vocab_size = 1024"


def test_the_right_map_is_told_too() -> None:
    (found,) = [f for f in said("correct").findings if f.check == "head-rows-are-the-mapped-tokens"]
    assert found.severity == "ok"


def test_a_slot_out_of_proportion_is_the_fault_that_is_named() -> None:
    found = first(said("slot 1 x 1000"))
    assert (found.kind, found.severity) == ("K05", ERROR) and "slot 1" in found.title


def test_what_is_copied_from_the_target_is_no_sign_of_training() -> None:
    report = said("never trained")
    assert report.verdict_kind == "untrained" and first(report).check == "untrained"


def test_a_rotated_target_is_said_once() -> None:
    assert [f.kind for f in telling(said("F33 one rotation of all slots"))] == ["K11"]


def test_states_of_nothing_do_not_tell_the_target_s_choice() -> None:
    assert [f.kind for f in telling(said("deep states are random numbers"))] == ["K08"]


def test_what_is_not_held_against_the_drafter_is_the_verdict() -> None:
    report = said("half of the text is not the target's")
    assert report.verdict_kind == "unknown"
    assert "not held against the drafter: the text is not the target's" in report.verdict


def test_the_reason_for_no_measurement_is_the_verdict_s() -> None:
    assert "the activation 'relu'" in said("relu instead of silu").verdict


def test_another_width_is_not_taken_for_another_number_of_layers() -> None:
    assert {f.kind for f in telling(said("target_hidden_size is another"))} == {"K07"}


def test_one_bad_sample_leaves_the_others_sound() -> None:
    found = first(said("healthy: one slot bad in one sample"))
    assert found.title.endswith("data_0.pt of 12 samples, not the other 11")


@pytest.mark.parametrize("name", ["healthy: flat, ids one below the depths", "healthy: no target"])
def test_healthy(name: str) -> None:
    report = said(name)
    assert not [f for f in report.findings if f.severity in (ERROR, WARNING)]
    assert report.verdict_kind == "healthy"


def test_few_rows_are_named_as_the_reason_for_no_verdict() -> None:
    report = said("healthy: one sample of 60 tokens")
    assert report.verdict_kind == "unknown"
    assert "only 29 rows count, 40 are needed" in report.verdict


def test_what_is_below_good_is_not_called_healthy_without_a_word() -> None:
    report = said("healthy: all samples of 24 tokens")
    assert "the drafter is healthy, but below what is good (2.29): step 0" in report.verdict
