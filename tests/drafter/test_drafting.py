"""The batched forward against the plain reference; in blocks, cancelled, on odd samples."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from drafter.drafting import chains, context
from drafter.drafting.chains import Step, draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.readout import accepted, read_chain, read_rows
from drafter.errors import Cancelled, SampleError, WiringError
from drafter.sample.open import open_sample
from drafter.wiring import Wiring
from tests import tiny
from tests.drafter.helpers import VARIANTS, built, refused, same, steps, tiny_run, trained
from tests.reference import Row, predictions

K = 4
ORDERINGS = [(0, 1, 2), (2, 0, 1), (3, 3, 1)]
SWITCHES = [
    dict(zip(("norm_before_residual", "norm_output"), values, strict=True))
    for values in itertools.product([False, True], repeat=2)
]


def gap(logits: Tensor) -> float:
    """How far the best is ahead of the second."""
    best, second = logits.topk(2).values.tolist()
    return float(best - second)


def compare(found: list[Step], truth: list[list[Row | None]]) -> None:
    """The same rows at every step, logits within 1e-4, and the same choice where rounding cannot decide it."""
    for step, rows in zip(found, truth, strict=True):
        assert step.rows.tolist() == [t for t, row in enumerate(rows) if row is not None]
        for t, logits in zip(step.rows.tolist(), step.logits, strict=True):
            row = rows[t]
            assert row is not None and torch.allclose(logits, row.logits, rtol=1e-4, atol=1e-4), (step.k, t)
            if gap(row.logits) > 1e-3:
                assert int(logits.argmax()) == int(row.logits.argmax())


@pytest.fixture
def small(tmp_path: Path) -> SampleRun:
    weights = tiny.tiny_weights(3)
    return tiny_run(tmp_path, weights, tiny.tiny_sample(3, weights))


# --- against the reference


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "".join("01"[v] for v in s.values()))
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_row_and_step_is_the_references(tmp_path: Path, variant: str, switches: dict[str, bool]) -> None:
    weights = tiny.tiny_weights(5, **VARIANTS[variant])
    sample = tiny.tiny_sample(5, weights, tokens=12)
    run = tiny_run(tmp_path, weights, sample, **switches)
    for ordering in ORDERINGS:
        truth = tiny.reference(weights, **switches).teacher_forced(sample.ids, sample.slots[:, list(ordering)], K)
        compare(steps(run, ordering, K), truth)
        chosen = draft_ids(run, ordering, trained(run), K)
        expected = [[-1 if p is None else p for p in step] for step in predictions(truth)]
        assert float((chosen == torch.tensor(expected)).float().mean()) > 0.97


@pytest.mark.parametrize(
    "sizes",
    [
        replace(tiny.SIZES, states=4, target_hidden=24, heads=6, kv_heads=3, head_dim=10),
        replace(tiny.SIZES, states=2, kv_heads=4),
        replace(tiny.SIZES, states=1, kv_heads=1, heads=8, head_dim=4),
    ],
    ids=["wider", "mha", "one state as wide as the drafter"],
)
def test_other_shapes_are_the_references(tmp_path: Path, sizes: tiny.Sizes) -> None:
    weights = tiny.tiny_weights(6, sizes, qk_norm=True)
    weights["fc.bias"] = torch.randn(sizes.hidden).bfloat16().float()
    sample = tiny.tiny_sample(6, weights, sizes, tokens=10)
    ordering = tuple(range(sizes.states))[::-1]
    truth = tiny.reference(weights, sizes).teacher_forced(sample.ids, sample.slots[:, list(ordering)], K)
    compare(steps(tiny_run(tmp_path, weights, sample, sizes), ordering, K), truth)


def test_both_layouts_compute_the_same(tmp_path: Path, small: SampleRun) -> None:
    weights = tiny.tiny_weights(3)
    flat = tiny.write_flat(tmp_path / "flat", weights, speculators_config=True)
    drafter = built(flat, target=tiny.write_target(tmp_path / "target", weights))
    other = SampleRun(drafter, small.sample)
    for one, two in zip(steps(small, (0, 1, 2), K), steps(other, (0, 1, 2), K), strict=True):
        assert same(one.logits, two.logits)


# --- one pass or many


def test_one_row_alone_is_that_row_among_all(small: SampleRun) -> None:
    whole = steps(small, (0, 1, 2), K)
    for t in range(small.rows):
        for alone in steps(small, (0, 1, 2), K, [t]):
            index = whole[alone.k].rows.tolist().index(t)
            assert torch.allclose(alone.logits[0], whole[alone.k].logits[index], atol=1e-5)
        assert len(steps(small, (0, 1, 2), K, [t])) == min(K, small.rows - t)


@pytest.mark.parametrize("own_tokens", [False, True])
@pytest.mark.parametrize("block", [1, 3, 7])
def test_blocks_of_any_size_give_the_same(
    tmp_path: Path, small: SampleRun, monkeypatch: pytest.MonkeyPatch, block: int, own_tokens: bool
) -> None:
    expected = draft_ids(small, (2, 0, 1), trained(small), K, own_tokens=own_tokens)
    monkeypatch.setattr(context, "BLOCK", block)
    monkeypatch.setattr(chains, "BLOCK", block)
    fresh = SampleRun(small.drafter, small.sample)
    assert torch.equal(draft_ids(fresh, (2, 0, 1), trained(fresh), K, own_tokens=own_tokens), expected)
    assert int((expected >= 0).sum()) == (K * small.rows if own_tokens else sum(small.rows - k for k in range(K)))


def test_chosen_rows_are_those_of_the_whole(small: SampleRun) -> None:
    whole = draft_ids(small, (0, 1, 2), trained(small), K)
    for rows in ([0], [23], [2, 3, 11], [0, 7, 22, 23], []):
        part = draft_ids(small, (0, 1, 2), trained(small), K, torch.tensor(rows, dtype=torch.int64))
        others = [t for t in range(small.rows) if t not in rows]
        assert torch.equal(part[:, rows], whole[:, rows])
        assert bool((part[:, others] == -1).all())


def test_a_sample_shorter_than_the_chain(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(3)
    run = tiny_run(tmp_path, weights, tiny.tiny_sample(3, weights, tokens=3))
    forced = draft_ids(run, (0, 1, 2), trained(run), 5)
    assert (forced >= 0).tolist() == [[True, True], [True, False]] + [[False, False]] * 3
    assert bool((draft_ids(run, (0, 1, 2), trained(run), 5, own_tokens=True) >= 0).all())


def test_shared_products_are_the_whole_product(
    tmp_path: Path, small: SampleRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tiny.tiny_weights(3, fc_norm=True)
    weights["fc.bias"] = torch.randn(32).bfloat16().float()
    for folder, run in (
        (tmp_path / "a", small),
        (tmp_path / "b", tiny_run(tmp_path / "b", weights, tiny.tiny_sample(3, weights))),
    ):
        assert run.drafter.can_share_fc
        whole = SampleRun(run.drafter, run.sample)
        shared = steps(run, (3, 0, 2), K)
        monkeypatch.setattr(context, "MAX_SHARED", 0)
        assert not whole._parts and run._parts, folder
        for one, two in zip(shared, steps(whole, (3, 0, 2), K), strict=True):
            assert torch.allclose(one.logits, two.logits, atol=1e-4)
        assert not whole._parts
        monkeypatch.undo()


def test_a_norm_over_all_states_is_not_shared(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(3, input_norm=True)
    run = tiny_run(tmp_path, weights, tiny.tiny_sample(3, weights))
    steps(run, (0, 1, 2), 1)
    assert not run.drafter.can_share_fc and not run._parts


@pytest.mark.parametrize("kept", [1, 6, 24])
def test_orderings_do_not_disturb_each_other(small: SampleRun, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    orderings = list(itertools.permutations(range(4), 3))
    size = small.context((0, 1, 2), trained(small), 1, lambda: None).nbytes
    monkeypatch.setattr(context, "MAX_CONTEXTS", kept * size)
    first = {o: draft_ids(SampleRun(small.drafter, small.sample), o, trained(small), 2) for o in orderings}
    for ordering in [*orderings, *reversed(orderings)]:
        assert torch.equal(draft_ids(small, ordering, trained(small), 2), first[ordering])
    assert len(small._contexts) == max(kept, 2)
    assert len({tuple(ids.flatten().tolist()) for ids in first.values()}) > 20  # some may choose alike by chance


def test_switches_of_one_drafter_are_told_apart(small: SampleRun) -> None:
    wirings = [Wiring("test", *s.values()) for s in SWITCHES]
    found = [draft_ids(small, (0, 1, 2), w, K) for w in wirings]
    again = [draft_ids(SampleRun(small.drafter, small.sample), (0, 1, 2), w, K) for w in wirings]
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    assert len({tuple(ids.flatten().tolist()) for ids in found}) == len(wirings)


# --- free-running


@pytest.mark.parametrize("switches", [{}, {"norm_before_residual": True, "norm_output": True}])
@pytest.mark.parametrize("d2t", ["offsets", "unsorted"])
def test_a_free_chain_is_the_servers(tmp_path: Path, switches: dict[str, bool], d2t: str) -> None:
    weights = tiny.tiny_weights(4, d2t=d2t)
    sample = tiny.tiny_sample(4, weights, tokens=12)
    run = tiny_run(tmp_path, weights, sample, **switches)
    chosen = draft_ids(run, (1, 2, 0), trained(run), K, own_tokens=True)
    for row in range(run.rows):
        states = sample.slots[:, [1, 2, 0]]
        chain = tiny.reference(weights, **switches).chain(sample.ids, states, row, K, weights["d2t"].tolist())
        assert chosen[:, row].tolist() == chain.draft_ids
        links = read_chain(run, (1, 2, 0), trained(run), row, K)
        assert [link.id for link in links] == chain.target_ids
        truths = [*sample.ids, *[None] * K][row + 2 : row + 2 + K]
        assert [link.truth for link in links] == truths
        assert [link.hit for link in links] == [a == b for a, b in zip(chain.target_ids, truths, strict=True)]
        probs = [float(logits.softmax(0).max()) for logits in chain.logits]
        assert [link.prob for link in links] == pytest.approx(probs, abs=1e-4)


def test_forced_and_free_agree_up_to_the_first_miss(tmp_path: Path) -> None:
    """The text is rewritten to what the drafter says, so that there are hits."""
    weights = tiny.tiny_weights(4)
    sample = tiny.tiny_sample(4, weights)
    chain = tiny.reference(weights).chain(sample.ids, sample.slots[:, :3], 9, 3, weights["d2t"].tolist())
    sample = replace(sample, ids=[*sample.ids[:11], *chain.target_ids[:2], *sample.ids[13:]])
    run = tiny_run(tmp_path, weights, sample)
    forced = draft_ids(run, (0, 1, 2), trained(run), K)
    free = draft_ids(run, (0, 1, 2), trained(run), K, own_tokens=True)
    assert forced[:3, 9].tolist() == free[:3, 9].tolist() == chain.draft_ids
    links = read_chain(run, (0, 1, 2), trained(run), 9, K)
    assert accepted(links) == 2 and [link.hit for link in links[:3]] == [True, True, False]


# --- one row, ranked


def test_a_row_is_ranked_as_its_logits(small: SampleRun) -> None:
    vocab, ids = small.drafter.vocab(trained(small)), small.sample.ids.tolist()
    logits = steps(small, (0, 1, 2), 1)[0].logits
    found = read_rows(small, (0, 1, 2), trained(small), list(range(small.rows)), 6)
    for t, (row, own) in enumerate(zip(found, logits, strict=True)):
        order = sorted(range(len(own)), key=lambda d: (-float(own[d]), d))
        assert [p.draft_id for p in row.predictions] == order[:6]
        assert [p.id for p in row.predictions] == vocab.target_ids[order[:6]].tolist()
        assert [p.prob for p in row.predictions] == pytest.approx(own.softmax(0)[order[:6]].tolist(), abs=1e-5)
        assert [p.rank for p in row.predictions] == [1, 2, 3, 4, 5, 6] and row.fed == ids[t + 1]
        truth = ids[t + 2] if t + 2 < len(ids) else None
        draft = int(vocab.draft_ids[truth]) if truth is not None else -1
        assert (row.row, row.truth, row.truth_in_vocab) == (t, truth, draft >= 0)
        assert row.truth_rank == (order.index(draft) + 1 if draft >= 0 else None)
        assert row.hit == (None if truth is None else order[0] == draft)


def test_equal_logits_are_ranked_by_id(tmp_path: Path) -> None:
    """bfloat16 heads tie often; each token stands in the list once, the lowest first."""
    weights = tiny.tiny_weights(3)
    weights["lm_head.weight"][:] = weights["lm_head.weight"][0]
    run = tiny_run(tmp_path, weights, tiny.tiny_sample(3, weights))
    draft_ids_of = run.drafter.vocab(trained(run)).draft_ids
    for top in (1, 3, 40, 1000):
        for row in read_rows(run, (0, 1, 2), trained(run), [0, 5], top):
            assert [p.draft_id for p in row.predictions] == list(range(min(top, 40)))
            if row.truth_in_vocab:
                assert row.truth is not None and row.truth_rank == int(draft_ids_of[row.truth]) + 1
    assert bool((draft_ids(run, (0, 1, 2), trained(run), 1) == 0).all())


@pytest.mark.parametrize("row", [-1, 24, 10**9])
def test_rows_that_are_not_there_are_refused(small: SampleRun, row: int) -> None:
    with refused(WiringError, f"row {row}", "0..23"):
        read_rows(small, (0, 1, 2), trained(small), [row])
    with refused(WiringError, f"row {row}"):
        read_chain(small, (0, 1, 2), trained(small), row, 3)
    assert read_rows(small, (0, 1, 2), trained(small), []) == []


# --- what a sample may do to it


def test_a_state_that_is_no_number_spoils_no_earlier_row(tmp_path: Path, small: SampleRun) -> None:
    sample = tiny.tiny_sample(3, tiny.tiny_weights(3))
    sample.slots[10, 1] = float("nan")
    spoiled = SampleRun(small.drafter, open_sample(tiny.write_v1_sample(tmp_path / "nan/data_0.pt", sample)))
    for one, two in zip(steps(small, (0, 1, 2), K), steps(spoiled, (0, 1, 2), K), strict=True):
        assert torch.allclose(one.logits[:10], two.logits[:10], atol=1e-5)
        assert bool(two.logits[10:].isnan().all())
    for one, two in zip(steps(small, (0, 3, 2), K), steps(spoiled, (0, 3, 2), K), strict=True):
        assert torch.allclose(one.logits, two.logits, atol=1e-5)


def test_a_sample_that_does_not_fit_is_refused(tmp_path: Path, small: SampleRun) -> None:
    weights, thin = tiny.tiny_weights(3), replace(tiny.SIZES, target_hidden=24)
    path = tiny.write_v1_sample(tmp_path / "thin.pt", tiny.tiny_sample(3, weights, thin))
    with refused(SampleError, "24 wide", "expected 32"):
        SampleRun(small.drafter, open_sample(path))
    foreign = replace(tiny.tiny_sample(3, weights), ids=[*range(10), *[97] * 15])
    run = SampleRun(small.drafter, open_sample(tiny.write_v1_sample(tmp_path / "foreign.pt", foreign)))
    with refused(SampleError, "0..96"):
        draft_ids(run, (0, 1, 2), trained(run), 2)


# --- precision and cancelling


def test_bfloat16_mostly_agrees(tmp_path: Path, small: SampleRun) -> None:
    weights = tiny.tiny_weights(3)
    run = tiny_run(tmp_path / "b", weights, tiny.tiny_sample(3, weights), dtype=torch.bfloat16)
    assert not run.drafter.can_share_fc
    exact, rounded = draft_ids(small, (0, 1, 2), trained(small), K), draft_ids(run, (0, 1, 2), trained(run), K)
    asked = exact >= 0
    assert torch.equal(asked, rounded >= 0)
    assert float((exact == rounded)[asked].float().mean()) > 0.9
    assert steps(run, (0, 1, 2), 1)[0].logits.dtype == torch.float32


def test_a_run_is_usable_after_a_cancel(small: SampleRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled at every place where it can be, and resumed: the same numbers."""
    monkeypatch.setattr(context, "BLOCK", 5)
    monkeypatch.setattr(chains, "BLOCK", 4)
    expected = draft_ids(SampleRun(small.drafter, small.sample), (0, 1, 2), trained(small), K)
    polls = itertools.count()
    draft_ids(SampleRun(small.drafter, small.sample), (0, 1, 2), trained(small), K, poll=lambda: next(polls) and None)
    places = next(polls)
    assert places > 20
    run = SampleRun(small.drafter, small.sample)
    for place in range(places):
        left = iter(range(place))

        def stop() -> None:
            if next(left, None) is None:  # noqa: B023
                raise Cancelled

        with pytest.raises(Cancelled):
            draft_ids(SampleRun(small.drafter, small.sample), (0, 1, 2), trained(small), K, poll=stop)
        left = iter(range(place % 7))
        with pytest.raises(Cancelled):
            draft_ids(run, (0, 1, 2), trained(run), K, poll=stop)
    assert torch.equal(draft_ids(run, (0, 1, 2), trained(run), K), expected)


def test_a_sliding_window_is_full_attention_within_it(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(3)
    layer = tiny.nested_config(weights)["transformer_layer_config"]
    found, runs = [], []
    for name, kind in (("full", {}), ("sliding", {"layer_types": ["sliding_attention"], "sliding_window": 16})):
        changes = {"transformer_layer_config": layer | kind}
        run = tiny_run(tmp_path / name, weights, tiny.tiny_sample(3, weights), changes=changes)
        runs.append(run)
        found.append(draft_ids(run, (0, 1, 2), trained(run), 4, torch.arange(13)))
    assert torch.equal(*found)
    whole = [steps(r, (0, 1, 2), 2) for r in runs]
    assert not any(torch.allclose(a.logits[16:], b.logits[16:], atol=1e-2) for a, b in zip(*whole, strict=True))


def test_a_look_in_the_middle_of_a_fill_ends_well(small: SampleRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine answers a row inside of a sweep's poll, on the same context."""
    monkeypatch.setattr(context, "BLOCK", 7)
    wiring, looks = trained(small), [0]

    def look() -> None:
        looks[0] += 1
        if looks[0] == 2:
            small.context((2, 1, 0), wiring, small.rows, lambda: None)

    filled = small.context((2, 1, 0), wiring, small.rows, look)
    assert filled.filled == small.rows
    assert torch.equal(draft_ids(small, (2, 1, 0), wiring, 2), draft_ids(small, (2, 1, 0), wiring, 2))


def test_what_is_no_number_has_no_rank(tmp_path: Path, small: SampleRun) -> None:
    sample = tiny.tiny_sample(3, tiny.tiny_weights(3))
    sample.slots[10, 1] = float("nan")
    spoiled = SampleRun(small.drafter, open_sample(tiny.write_v1_sample(tmp_path / "nan/data_0.pt", sample)))
    for readout in read_rows(spoiled, (0, 1, 2), trained(spoiled), list(range(10, spoiled.rows)), 3):
        assert readout.truth_rank is None and readout.truth_prob is None
