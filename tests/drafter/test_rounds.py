"""Rounds against a plain server that commits one row after another, on texts that agree with the drafter."""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from drafter.drafting.context import SampleRun
from drafter.drafting.rounds import REFRESH_WORDS, REFRESHES, Round, rounds, rounds_json, supervised_runs
from drafter.errors import Cancelled, WiringError
from drafter.sample.open import open_sample
from tests import reference_scores, tiny
from tests.drafter.chain_cases import NAMES, WINDOWS, ChainCase, K, chain_case
from tests.drafter.helpers import refused
from tests.reference.rounds import decode


def found(case: ChainCase, refresh: str, depth: int = K) -> list[tuple[object, ...]]:
    made = rounds(case.run, case.ordering, case.wiring, depth, refresh)
    return [(one.known, list(one.drafted), one.accepted, one.bonus) for one in made]


def expected(case: ChainCase, keep: bool, depth: int = K) -> list[tuple[object, ...]]:
    server = case.server(keep, depth)
    runs = reference_scores.runs(case.sample.mask)
    return [astuple(one) for start, stop in runs for one in decode(server, case.sample.ids, start, stop)]


@pytest.mark.parametrize("keep", [False, True], ids=["target", "drafted"])
@pytest.mark.parametrize("name", [*NAMES, *WINDOWS])
def test_every_round_is_the_plain_servers(tmp_path: Path, name: str, keep: bool) -> None:
    case = chain_case(tmp_path, name, keep=keep)
    truth = expected(case, keep)
    assert found(case, "drafted" if keep else "target") == truth
    lengths = {accepted for _, _, accepted, _ in truth}
    assert {0, K} <= lengths and len(lengths) >= 3, lengths  # a test on texts without hits would show nothing


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
@pytest.mark.parametrize("keep", [False, True], ids=["target", "drafted"])
def test_other_depths(tmp_path: Path, depth: int, keep: bool) -> None:
    case = chain_case(tmp_path, "two layers", keep=keep)
    assert found(case, "drafted" if keep else "target", depth) == expected(case, keep, depth)


def test_kept_rows_make_a_difference(tmp_path: Path) -> None:
    """On a text that agrees with a server that forgets nothing, one that does draws other drafts."""
    case = chain_case(tmp_path, "plain", keep=False)
    assert found(case, "drafted") == expected(case, True) != found(case, "target")


MASKS = {
    "whole text": [1] * 40,
    "several runs": [0] * 3 + [1] * 9 + [0] * 2 + [1] + [0] + [1] * 14 + [0] + [1] * 2 + [0] * 2 + [1] * 5,
    "first token alone": [1] + [0] * 39,
    "one round at the end": [0] * 38 + [1, 1],
    "last token alone": [0] * 39 + [1],
    "nothing": [0] * 40,
}


@pytest.mark.parametrize("keep", [False, True], ids=["target", "drafted"])
@pytest.mark.parametrize("name", MASKS)
def test_masks(tmp_path: Path, name: str, keep: bool) -> None:
    case = chain_case(tmp_path, "plain", keep=keep, mask=MASKS[name])
    assert found(case, "drafted" if keep else "target") == expected(case, keep)


@pytest.mark.parametrize("name", MASKS)
def test_sums_are_those_of_walk(tmp_path: Path, name: str) -> None:
    case = chain_case(tmp_path, "plain", mask=MASKS[name])
    for depth in (1, 3, 6):
        made = rounds(case.run, case.ordering, case.wiring, depth)
        pred = [[None] * case.run.rows for _ in range(depth)]
        for one in made:  # a walk needs the drafts of the rows where rounds begin, and no others
            for k, token in enumerate(one.drafted):
                pred[k][one.known - 1] = token
        walk = reference_scores.walk(pred, case.sample.ids, [0] * 97, case.sample.mask, depth)
        assert (len(made), sum(one.emitted for one in made)) == (walk.rounds, walk.tokens)
        assert [one.accepted for one in made] == walk.accepted


def test_what_is_emitted_is_the_text(tmp_path: Path) -> None:
    for refresh in ("target", "drafted"):
        case = chain_case(tmp_path, "plain", mask=[0] * 5 + [1] * 35)
        said = [case.sample.ids[5]]
        for one in rounds(case.run, case.ordering, case.wiring, K, refresh):
            assert one.known == 4 + len(said) and len(one.drafted) == K
            said += one.drafted[: one.accepted]
            said += [] if one.bonus is None else [one.bonus]
        assert said == case.sample.ids[5:]


def test_a_state_that_is_no_number_drafts_nothing_after_it(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "two layers")
    slots = case.sample.slots.clone()
    slots[20] = float("nan")
    broken = tiny.write_v1_sample(tmp_path / "nan.pt", replace(case.sample, slots=slots))
    run = SampleRun(case.run.drafter, open_sample(broken))
    for refresh in ("target", "drafted"):
        before = rounds(case.run, case.ordering, case.wiring, K, refresh)
        after = rounds(run, case.ordering, case.wiring, K, refresh)
        clean = [one for one in before if one.known <= 20]
        assert after[: len(clean)] == clean
        assert all(one.drafted == (-1,) * K and one.accepted == 0 for one in after if one.known > 20)
        assert any(one.known > 20 for one in after)


def test_progress_and_cancel(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain", keep=True)
    for refresh in ("target", "drafted"):
        seen: list[int] = []
        made = rounds(case.run, case.ordering, case.wiring, K, refresh, lambda done, _, seen=seen: seen.append(done))
        assert len(seen) == len(made) and seen[-1] == 35
        assert all(a < b for a, b in pairwise(seen))
    polls = 0

    def poll() -> None:
        nonlocal polls
        polls += 1
        if polls == 9:
            raise Cancelled

    with pytest.raises(Cancelled):
        rounds(case.run, case.ordering, case.wiring, K, "drafted", poll=poll)
    assert found(case, "drafted") == expected(case, True)  # and nothing of it stays behind


def test_the_simulation_leaves_the_context_alone(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain", keep=False)
    before = found(case, "target")
    context = case.run.context(case.ordering, case.wiring, case.run.rows, lambda: None)
    keys = [k.clone() for k in context.keys]
    found(case, "drafted")
    assert all(torch.equal(a, b) for a, b in zip(keys, context.keys, strict=True))
    assert found(case, "target") == before


def test_refusals(tmp_path: Path) -> None:
    case = chain_case(tmp_path, "plain")
    with refused(WiringError, "refresh 'never'", "target, drafted"):
        rounds(case.run, case.ordering, case.wiring, K, "never")
    with refused(WiringError, "0 draft steps", "at least 1"):
        rounds(case.run, case.ordering, case.wiring, 0)
    with refused(WiringError, "slot 9"):
        rounds(case.run, (9, 0, 1), case.wiring, K)


def test_runs_of_a_mask() -> None:
    for mask in MASKS.values():
        assert supervised_runs(torch.tensor(mask, dtype=torch.bool)) == reference_scores.runs(mask)


def test_json() -> None:
    made = [Round(0, (), 0, 7), Round(1, (8, -1), 1, None)]
    data = rounds_json(made, "target", lambda i: f"w{i}", torch.tensor([5, 7, 8]))
    assert data["each"] == [
        {"known": {"at": 0, "id": 5, "text": "w5"}, "drafted": [], "accepted": 0, "bonus": {"id": 7, "text": "w7"},
         "emitted": 1},
        {"known": {"at": 1, "id": 7, "text": "w7"},
         "drafted": [{"id": 8, "text": "w8", "hit": True}, {"id": None, "text": "", "hit": False}],
         "accepted": 1, "bonus": None, "emitted": 1},
    ]  # fmt: skip
    assert data["walk"] == {"rounds": 2, "tokens": 2, "length": 1.0}
    assert set(REFRESHES) == set(REFRESH_WORDS) and data["refresh_words"] == REFRESH_WORDS["target"]
    assert rounds_json([], "drafted", str, torch.tensor([1]))["walk"] == {"rounds": 0, "tokens": 0, "length": None}
