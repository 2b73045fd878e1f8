"""Chains of all rows both ways against a plain server on every row; and the lengths that accuracies imply."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.free import both_ways, leading_right, target_tokens
from drafter.errors import Cancelled, WiringError
from drafter.sample.open import open_sample
from drafter.scoring.chain_report import ChainReport, chain_report_json
from drafter.scoring.counts import count, next_token_hits
from drafter.scoring.expected import length_of_conditionals, length_of_joints
from drafter.scoring.sweep import truths_of
from tests import reference_scores, tiny
from tests.drafter.chain_cases import NAMES, WINDOWS, ChainCase, K, chain_case
from tests.drafter.helpers import refused


def plain_chains(case: ChainCase) -> list[list[int]]:
    """What a server that stands at each row would draft: [R][K] target ids."""
    server, found = case.server(), []
    server.prefill(case.sample.ids[:2])
    for token in [*case.sample.ids[2:], None]:
        found.append(server.draft())
        if token is not None:
            server.emit([], token)
    return found


def plain_length(drafted: list[int], ids: list[int], row: int) -> int:
    truths = ids[row + 2 :]
    return reference_scores.leading([a == b for a, b in zip(drafted, truths, strict=False)])


# --- every row


@pytest.mark.parametrize("name", [*NAMES, *WINDOWS])
def test_free_chains_are_the_plain_servers_on_every_row(tmp_path: Path, name: str) -> None:
    case = chain_case(tmp_path, name)
    free = both_ways(case.run, case.ordering, case.wiring, K).free
    assert target_tokens(case.run, case.wiring, free).T.tolist() == plain_chains(case)


@pytest.mark.parametrize("name", [*NAMES, *WINDOWS])
def test_accept_lengths_are_the_same_both_ways_on_every_row(tmp_path: Path, name: str) -> None:
    case = chain_case(tmp_path, name)
    both = both_ways(case.run, case.ordering, case.wiring, K)
    forced, free = (leading_right(target_tokens(case.run, case.wiring, ids), case.run.ids) for ids in
                    (both.forced, both.free))  # fmt: skip
    truth = [plain_length(drafted, case.sample.ids, t) for t, drafted in enumerate(plain_chains(case))]
    assert forced.tolist() == free.tolist() == truth
    assert {0, K} <= set(truth)


def test_after_a_miss_the_two_ways_differ(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain", tokens=80)
    both, truths = both_ways(case.run, case.ordering, case.wiring, K), truths_of(case.run, None, case.wiring)
    forced, free = (count(ids, truths, "all").steps for ids in (both.forced, both.free))
    differ = both.forced != both.free
    right = next_token_hits(target_tokens(case.run, case.wiring, both.forced), case.run.ids)
    fed_the_truth = torch.cat([torch.ones_like(right[:1]), right[:-1]]).long().cumprod(0).bool()
    assert not bool((differ & fed_the_truth & (both.forced >= 0)).any()), "before a miss both are fed the same"
    assert bool(differ[1:].any())
    for k, (ours, own) in enumerate(zip(forced, free, strict=True)):
        a, b = ours["next_token"], own["next_token"]
        assert (a.joint, a.conditional) == (b.joint, b.conditional), k
    assert any(a["next_token"].marginal != b["next_token"].marginal for a, b in zip(forced, free, strict=True))


def test_free_chains_draft_on_where_the_text_ends(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain")
    both = both_ways(case.run, case.ordering, case.wiring, K)
    assert bool((both.free >= 0).all())
    assert (both.forced >= 0).sum(1).tolist() == [case.run.rows - k for k in range(K)]
    tokens = target_tokens(case.run, case.wiring, both.free)
    assert leading_right(tokens, case.run.ids)[-1] == 0, "no truth, nothing right"


def test_chosen_rows_are_those_of_the_whole(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "two layers")
    whole, rows = both_ways(case.run, case.ordering, case.wiring, K), torch.tensor([0, 7, 8, 30, 38])
    part = both_ways(case.run, case.ordering, case.wiring, K, rows)
    for ours, theirs in ((part.forced, whole.forced), (part.free, whole.free)):
        assert torch.equal(ours[:, rows], theirs[:, rows]) and int((ours >= 0).any(0).sum()) == len(rows)


def test_a_parallel_drafter_is_run_once(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "p-eagle")
    both = both_ways(case.run, case.ordering, case.wiring, K)
    assert both.free is both.forced
    assert torch.equal(both.free, draft_ids(case.run, case.ordering, case.wiring, K, own_tokens=True))


def test_cancelled_between_steps(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain")

    def poll() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        both_ways(case.run, case.ordering, case.wiring, K, poll=poll)


@pytest.mark.parametrize("depth", [1, 3, 9])
@pytest.mark.parametrize("tokens", [2, 3, 6])
def test_leading_right_on_short_texts(tokens: int, depth: int) -> None:
    rng = random.Random(depth)
    for _ in range(30):
        ids = [rng.randrange(2) for _ in range(tokens)]
        drafted = [[rng.choice([-1, 0, 1]) for _ in range(tokens - 1)] for _ in range(depth)]
        found = leading_right(torch.tensor(drafted), torch.tensor(ids))
        columns = zip(*drafted, strict=True)
        assert found.tolist() == [plain_length(list(column), ids, t) for t, column in enumerate(columns)]


# --- what the accuracies imply


def test_lengths_of_accuracies() -> None:
    assert length_of_conditionals([0.83, 0.6, 0.45]) == pytest.approx(1 + 0.83 + 0.83 * 0.6 + 0.83 * 0.6 * 0.45)
    assert length_of_joints([0.5, 0.5, 0.25]) == pytest.approx(2.25)
    assert length_of_conditionals([]) == length_of_joints([]) == 1.0
    assert length_of_conditionals([0.5, 0.0, None, None]) == 1.5, "nobody got further"
    assert length_of_conditionals([0.5, None]) is None and length_of_joints([0.5, None]) is None
    for wrong in (-0.1, 1.2, float("nan")):
        with refused(WiringError, "an accuracy of", "0 to 1"):
            length_of_conditionals([wrong])


def test_multiplied_marginals_are_the_usual_mistake() -> None:
    """Half of the chains is always right, half never: the marginal is 0.5 at each step, nothing breaks after step 0."""
    assert length_of_conditionals([0.5, 1.0, 1.0]) == length_of_joints([0.5, 0.5, 0.5]) == 2.5
    assert length_of_conditionals([0.5, 0.5, 0.5]) == 1.875


# --- the report


def brute_lengths(case: ChainCase, mode: str) -> list[int | None]:
    ids, mask, found = case.sample.ids, case.sample.mask, list[int | None]()
    for t, drafted in enumerate(plain_chains(case)):
        counts = all(t + 2 + k < len(ids) and reference_scores.counts_row(mask, mode, t + k) for k in range(K))
        found.append(1 + plain_length(drafted, ids, t) if counts else None)
    return found


@pytest.mark.parametrize("mode", reference_scores.MODES)
def test_report_of_one_sample(tmp_path: Path, mode: str) -> None:
    case = chain_case(tmp_path, "plain", tokens=60)
    report = ChainReport(case.ordering, K, mode, "trained")
    report.add(case.run, case.wiring)
    truth = brute_lengths(case, mode)
    assert report.rows == truth and report.unequal == 0 and report.forced is not None
    counted = [n for n in truth if n is not None]
    assert report.forced.lengths.histogram == tuple(counted.count(n + 1) for n in range(K + 1))
    data = chain_report_json(report, str, 3)
    assert data["accept_length"]["mean"] == pytest.approx(sum(counted) / len(counted))
    assert data["accept_length"]["free_running"] == {"mean": data["accept_length"]["mean"], "rows_that_differ": 0}
    for step in data["steps"]:
        assert step["joint"]["hits"] == step["conditional"]["hits"] <= step["teacher_forced"]["hits"]
    ratio = [step["joint"]["hits"] / step["joint"]["total"] for step in data["steps"]]
    assert data["expected"]["joint"] == pytest.approx(1 + sum(ratio))
    assert data["expected"]["conditional"] != data["expected"]["marginal"]


def test_report_pools_rows_and_keeps_the_samples_apart(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain", tokens=60)
    short = replace(case.sample, ids=case.sample.ids[:21], mask=case.sample.mask[:21], slots=case.sample.slots[:21])
    other = SampleRun(case.run.drafter, open_sample(tiny.write_v1_sample(tmp_path / "data_1.pt", short)))
    report, alone = (ChainReport(case.ordering, K, "next", "trained") for _ in range(2))
    report.add(case.run, case.wiring)
    report.add(other, case.wiring)
    alone.add(other, case.wiring)
    whole = [n for n in brute_lengths(case, "next") if n is not None]
    part = [n for n in alone.rows if n is not None]
    assert report.forced is not None and alone.forced is not None and part
    assert (report.forced.lengths.sum, report.forced.lengths.rows) == (sum(whole) + sum(part), len(whole) + len(part))
    mean = (sum(whole) / len(whole) + sum(part) / len(part)) / 2
    assert report.mean_of_samples() == (pytest.approx(mean), 2)
    assert report.forced.lengths.mean != pytest.approx(mean)
    assert report.breaks.total.chains == len(whole) + len(part)
    assert [one.lengths.rows for one in report.samples] == [len(whole), len(part)]


def test_nothing_counts(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain", mask=[0] * 40)
    report = ChainReport(case.ordering, K, "next", "trained")
    report.add(case.run, case.wiring)
    data = chain_report_json(report, str, 3)
    assert data["accept_length"]["mean"] is None and data["accept_length"]["rows"] == 0
    assert data["expected"] == {"conditional": None, "joint": None, "marginal": None}
    assert data["accept_length"]["walk"] == {"rounds": 0, "tokens": 0, "length": None}
    assert set(report.rows) == {None} and data["breaks"]["chains"] == 0 and report.mean_of_samples() == (None, 0)
