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
from tests.trials.table import run, telling


def report_of(name: str) -> Report:
    (fault,) = [fault for fault in _known() if fault.name == name]
    return run(subject(), fault)[1]


@cache
def _known() -> tuple[Fault, ...]:
    return (*clothes(), *all_faults())


def first(report: Report) -> Finding:
    return telling(report)[0]


def test_random_fc_is_no_fault_of_the_sample() -> None:
    """Later steps lean on the tokens and do better, as where the states are of other tokens."""
    found = first(report_of("fc_random"))
    assert (found.kind, found.severity) == ("K02", ERROR)
    assert "fc.weight looks like random numbers" in found.title


def test_a_random_matrix_is_named_and_the_others_are_called_trained() -> None:
    report = report_of("random layers.0.self_attn.q_proj.weight")
    assert "layers.0.self_attn.q_proj.weight looks like random numbers" in first(report).title
    assert report.verdict_kind == "broken-checkpoint"


def test_trained_weights_in_the_wrong_place_are_not_called_untrained() -> None:
    report = report_of("swap_embed_and_hidden_halves_in_qkv")
    assert "the weights are trained" in first(report).title
    assert report.verdict_kind == "broken-checkpoint"


def test_layers_that_are_not_recorded_are_no_fault_of_the_sample() -> None:
    report = report_of("only slots 1,2,3 recorded, all fed")
    assert first(report).kind == "K01" and report.verdict_kind == "miswired"
    assert "names the next token in" in first(report).title


def test_states_that_vouch_for_themselves_are_not_given_to_other_tokens() -> None:
    """A drafter without its layer predicts the token of another row, which says nothing of the sample."""
    assert not [f for f in telling(report_of("made layer")) if f.kind == "K08"]


def test_states_of_other_rows_are_still_told() -> None:
    assert first(report_of("deep slots one row late, the embedding right")).kind == "K08"


@pytest.mark.parametrize("name", ["healthy: flat, ids one below the depths", "healthy: no target"])
def test_healthy(name: str) -> None:
    report = report_of(name)
    assert not [f for f in report.findings if f.severity in (ERROR, WARNING)]
    assert report.verdict_kind == "healthy"


def test_few_rows_are_named_as_the_reason_for_no_verdict() -> None:
    report = report_of("healthy: one sample of 60 tokens")
    assert report.verdict_kind == "unknown"
    assert "29 rows" in report.verdict and "40" in report.verdict


def test_what_is_below_good_is_not_called_healthy_without_a_word() -> None:
    report = report_of("healthy: all samples of 24 tokens")
    assert "the drafter is healthy, but below what is good (2.29): step 0" in report.verdict
