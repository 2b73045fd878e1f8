"""Faults that a program makes and no file holds, as switches: against a plain program that makes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter.drafting.chains import draft_ids
from drafter.drafting.free import leading_right, target_tokens
from drafter.drafting.readout import read_chain
from drafter.drafting.rounds import rounds
from drafter.drafting.tree import tree_plan
from drafter.drafting.tree_eagle2 import forests
from drafter.errors import WiringError
from drafter.wiring import SWITCHES, Wiring
from tests import tiny
from tests.drafter.helpers import refused, same
from tests.drafter.test_variants import MLA, TOLERANCE, VARIANTS, Case, K, S, Variant, case, difference
from tests.reference.faulty import Program

FAULTS = [
    {"row_ids": "same"},
    {"feedback": "first"},
    {"feedback": "through_fc"},
    {"fed_ids": "draft"},
    {"draft_keys": "forgotten"},
    {"draft_keys": "alone"},
    {"feedback": "first", "fed_ids": "draft", "draft_keys": "forgotten", "row_ids": "same"},
]
SIZES = {
    "plain": Variant(),
    "two layers": Variant(replace(S, layers=2), weights={"attention_bias": True}),
    "mla": Variant(MLA, rope=("default", {}, True)),
    "norms": Variant(
        weights={"input_norm": True, "fc_norm": True}, wiring={"norm_before_residual": True, "norm_output": True}
    ),
}


def faulty(folder: Path, name: str, fault: dict[str, str]) -> Case:
    here = case(folder, SIZES[name], tokens=10)
    truth = tiny.reference(here.weights, here.variant.sizes, **SIZES[name].wiring)
    return replace(here, wiring=replace(here.wiring, **fault), truth=truth)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: " ".join(fault.values()))
@pytest.mark.parametrize("name", SIZES)
def test_a_chain_is_that_of_a_program_with_the_fault(tmp_path: Path, name: str, fault: dict[str, str]) -> None:
    here = faulty(tmp_path, name, fault)
    d2t, found, worst = here.weights["d2t"].tolist(), here.steps(own_tokens=True), 0.0
    right = case(tmp_path, SIZES[name], tokens=10).steps(own_tokens=True)
    for row in range(here.run.rows):
        chain = Program(**fault).chain(here.truth, here.sample.ids, here.states, row, K, d2t)
        ours = torch.stack([step.logits[row] for step in found])
        assert float((ours - chain.logits).abs().max() / chain.logits.abs().max()) < TOLERANCE
        assert [link.id for link in read_chain(here.run, here.ordering, here.wiring, row, K)] == chain.target_ids
        worst = max(worst, max(float((a.logits[row] - b).abs().max()) for a, b in zip(right, ours, strict=True)))
    assert worst > 0.01  # the fault does something


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: " ".join(fault.values()))
def test_fed_what_is_right_and_free_accept_the_same(tmp_path: Path, fault: dict[str, str]) -> None:
    """Up to the first miss the two ways are one computation, also where a program feeds the wrong ids."""
    here = faulty(tmp_path, "plain", fault)
    run, (ordering, wiring) = here.run, (here.ordering, here.wiring)
    drafted = draft_ids(run, ordering, wiring, K, own_tokens=True)
    run.ids = run.ids.clone()
    for row in (2, 5):  # a text that accepts some drafts
        run.ids[row + 2 : row + 2 + 3] = target_tokens(run, wiring, drafted)[:3, row]
        run._tokens.clear(), run._contexts.clear()
        drafted = draft_ids(run, ordering, wiring, K, own_tokens=True)
    forced = draft_ids(run, ordering, wiring, K)
    accepted = [leading_right(target_tokens(run, wiring, one), run.ids) for one in (drafted, forced)]
    assert torch.equal(*accepted) and int(accepted[0].max()) > 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: " ".join(fault.values()))
@pytest.mark.parametrize("rule", ["sglang", "sglang-slots", "safeailab"])
def test_a_tree_of_one_branch_is_the_chain(tmp_path: Path, rule: str, fault: dict[str, str]) -> None:
    here = faulty(tmp_path, "two layers", fault)
    plan = tree_plan(rule, K - (rule == "safeailab"), 1, K + 1)
    rows = torch.arange(here.run.rows)
    forest = next(iter(forests(here.run, here.ordering, here.wiring, rows, plan)))
    assert same(forest.draft_ids.T, draft_ids(here.run, here.ordering, here.wiring, K, own_tokens=True))


@pytest.mark.parametrize("value", ["lost_between", "lost_at_end"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_lost_residual_is_the_references(tmp_path: Path, value: str, layers: int) -> None:
    plain = Variant(replace(S, layers=layers))
    here = case(tmp_path, replace(plain, wiring={"residual": value}, switches={"residual": value}))
    wild = 50 * TOLERANCE  # without a residual the norms blow rounding up
    assert difference(here.steps(), here.rows()) < wild
    apart = difference(case(tmp_path, plain).steps(), here.rows())
    assert (apart < wild) == (value == "lost_between" and layers == 1)


@pytest.mark.parametrize("fault", [{"draft_keys": "alone"}, {"feedback": "first"}, {"fed_ids": "draft"}])
@pytest.mark.parametrize("refresh", ["target", "drafted"])
def test_a_server_s_rounds_have_the_fault(tmp_path: Path, refresh: str, fault: dict[str, str]) -> None:
    """The first round of every text is a chain from its first row, whatever happens to the cache later."""
    here = faulty(tmp_path, "two layers", fault)
    first = rounds(here.run, here.ordering, here.wiring, K, refresh)[1]
    chain = read_chain(here.run, here.ordering, here.wiring, first.known - 1, K)
    assert list(first.drafted) == [link.id for link in chain]


def test_rounds_that_keep_drafted_rows_need_their_keys(tmp_path: Path) -> None:
    here = faulty(tmp_path, "plain", {"draft_keys": "forgotten"})
    with refused(WiringError, "draft_keys forgotten"):
        rounds(here.run, here.ordering, here.wiring, K, "drafted")


def test_a_state_of_another_width_does_not_go_through_fc(tmp_path: Path) -> None:
    wide = Variant(replace(S, target_hidden=40, states=2), wiring={"feedback": "through_fc"})
    here = case(tmp_path, wide)
    assert len(here.steps(1)) == 1
    with refused(WiringError, "through_fc"):
        here.steps(2)


def test_a_window_ends_where_it_ended_when_keys_are_forgotten(tmp_path: Path) -> None:
    """A row's own key is always seen, however narrow the window is."""
    narrow = Variant(config={"sliding_window": 1}, wiring={"draft_keys": "forgotten"}, switches={"windows": [1]})
    here = case(tmp_path, narrow)
    kept = replace(here, wiring=replace(here.wiring, draft_keys="kept"))
    assert all(same(a.logits, b.logits) for a, b in zip(here.steps(), kept.steps(), strict=True))


def test_wirings_that_differ_in_later_steps_share_what_rows_hold(tmp_path: Path) -> None:
    here = case(tmp_path, VARIANTS["two layers"])
    first = here.run.context(here.ordering, here.wiring, here.run.rows, lambda: None)
    later = {
        "norm_output": "on", "final_norm": "off", "positions": "constant", "window": "still", "head": "tied",
        "d2t": "offset", "feedback": "first", "fed_ids": "draft", "draft_keys": "alone", "residual": "lost_at_end",
        "lost_norm": "ones",
    }  # fmt: skip
    for name, values in SWITCHES.items():
        for value in values or ("1234",):
            other = here.wiring.switched(name, value)
            if other == here.wiring:
                continue
            shared = other.of_rows() == here.wiring.of_rows()
            assert shared == (later.get(name) is not None and (name, value) != ("window", "none") and (
                (name, value) != ("residual", "lost_between"))), (name, value)  # fmt: skip
            if shared:
                second = here.run.context(here.ordering, other, here.run.rows, lambda: None)
                assert second.keys is first.keys and second.wiring == other


def test_every_switch_s_steps_are_those_of_a_run_of_their_own(tmp_path: Path) -> None:
    """What one wiring leaves in a run changes nothing for the next."""
    here = case(tmp_path, VARIANTS["two layers"])
    for name, values in SWITCHES.items():
        for value in values:
            wiring: Wiring = here.wiring.switched(name, value)
            if name in ("rope_type", "lost_norm"):
                continue  # asks for parameters that the config has not
            shared = replace(here, wiring=wiring).steps()
            alone = replace(case(tmp_path, VARIANTS["two layers"]), wiring=wiring).steps()
            assert all(same(a.logits, b.logits) for a, b in zip(shared, alone, strict=True)), (name, value)
