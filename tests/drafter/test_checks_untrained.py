"""Matrices that look random among trained ones: which are named, how gravely, and what small drafters are spared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from drafter.checks.case import Case
from drafter.checks.finding import ERROR, OK, WARNING, Finding
from drafter.checks.k02_tensors import _untrained
from drafter.checks.untrained import Look, mostly_trained, noise_among
from drafter.checks.verdict import verdict_of

O_PROJ, UP = "layers.0.self_attn.o_proj.weight", "layers.0.mlp.up_proj.weight"


def look(size: int, deviations: float, std: float = 0.05) -> Look:
    """A matrix of independent numbers but for the `deviations` of its rows and columns."""
    return Look((size, size), None, 0.0, std, kurtosis=3.0, rows=deviations, columns=deviations)


def world(**changed: Look) -> dict[str, Look]:
    """Five trained matrices, and those `changed`."""
    trained = {f"trained_{i}.weight": look(512, 50.0) for i in range(5)}
    return {**trained, **{name.replace("__", "."): one for name, one in changed.items()}}


def said(looks: dict[str, Look]) -> list[Finding]:
    tensors = {name: SimpleNamespace(dtype="BF16") for name in looks}
    case: Any = SimpleNamespace(
        checkpoint=SimpleNamespace(tensors=tensors), files=SimpleNamespace(layer=lambda key: None)
    )
    return list(_untrained(cast(Case, case), looks))


@pytest.mark.parametrize(("name", "severity"), [(UP, ERROR), (O_PROJ, WARNING)])
def test_random_numbers_among_trained_ones_are_an_error_but_for_what_is_trained_late(name: str, severity: str) -> None:
    (found,) = said({**world(), name: look(512, 1.0)})
    assert name in found.title and "independent random numbers" in found.title
    assert found.severity == severity


def test_trained_matrices_are_let_be() -> None:
    assert said(world()) == []


def test_noise_is_told_in_small_matrices_too_but_not_in_a_small_o_proj() -> None:
    looks = {**world(), UP: look(128, 1.0), O_PROJ: look(128, 1.0), "k_proj.weight": look(64, 1.0)}
    assert noise_among(looks) == [UP]  # 64 x 64 numbers tell nothing
    assert noise_among({**world(), O_PROJ: look(512, 1.0)}) == [O_PROJ]


def test_nothing_is_noise_where_nothing_is_trained() -> None:
    looks = {UP: look(512, 1.0), O_PROJ: look(512, 1.0)}
    assert noise_among(looks) == [] and not mostly_trained(looks)
    copied = {**looks, "embed_tokens.weight": look(512, 50.0), "lm_head.weight": look(512, 50.0)}  # of the target
    assert noise_among(copied) == [] and not mostly_trained(copied)
    assert mostly_trained(world())


def test_a_warning_that_is_the_verdict_does_not_hide_the_others() -> None:
    shaped = Finding("it-generalises", "K12", WARNING, "it does worse", means="generalisation")
    other = Finding("untrained", "K02", WARNING, "a tensor looks untrained", weight=79)
    kind, sentence = verdict_of([other, shaped])
    assert kind == "generalisation" and sentence.endswith("1 warning, first: a tensor looks untrained")
    assert "warning" not in verdict_of([shaped])[1]
    assert "warning" not in verdict_of([Finding("x", "K12", OK, "it predicts", means="healthy")])[1]
