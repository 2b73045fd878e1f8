"""Two recordings compared: every number against whole tensors, every verdict against what was done to the copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.errors import Cancelled, SampleError
from drafter.files.stored import StoredTensor
from drafter.sample.many import pairs
from drafter.sample.many.partners import find_partners
from drafter.sample.many.twin_words import sentences
from drafter.sample.many.twins import ALIKE, EQUAL, NONE, SCALED, Comparison, compare_recordings, comparison_json
from drafter.sample.open import open_sample
from drafter.sample.sample import UNKNOWN_ID, Claim, Sample
from tests.drafter.helpers import refused
from tests.drafter.twin_files import WIDTH, brute_cosine, brute_ratio, recorded, states, tokens, written

T = 70
IDS = tokens(T)
STATES = states(T)  # [T, 4, WIDTH]


def compared(tmp_path: Path, theirs: Tensor, ids: list[int] = IDS, ours: Tensor = STATES) -> Comparison:
    """Ours is IDS with `ours`, its slots labelled embed, 3, 31, 59."""
    labels = [Claim("embed", "test", 0), *(Claim(str(depth), "test", depth) for depth in (3, 31, 59))]
    sample = recorded(tmp_path / "ours/data_0.pt", IDS, ours)
    claims = [*labels, *[None] * len(sample.slots)][: len(sample.slots)]
    return compare_recordings(sample.with_claims(claims), recorded(tmp_path / "theirs/data_0.pt", ids, theirs))


def found(comparison: Comparison) -> list[tuple[int | None, str, bool]]:
    return [(m.best.ours if m.kind != NONE else None, m.kind, m.clear) for m in comparison.matches]


# --- numbers


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_every_pair_against_whole_tensors(tmp_path: Path, dtype: torch.dtype) -> None:
    noise = torch.randn(T, 4, WIDTH, generator=torch.Generator().manual_seed(3))
    theirs = (STATES.float() + noise * torch.tensor([0.0, 0.001, 0.5, 50.0])[:, None]).to(dtype)
    theirs[11] = STATES[11].to(dtype)
    comparison = compared(tmp_path, theirs)
    relative = 2.0**-7  # ours is bfloat16, the coarser of all
    assert len(comparison.pairs) == 16
    for pair in comparison.pairs:
        a, b = STATES[:, pair.ours], theirs[:, pair.theirs]
        assert pair.cosine == pytest.approx(brute_cosine(a, b), abs=1e-6)
        assert pair.norm_ratio == pytest.approx(brute_ratio(a, b), rel=1e-6)
        equal = (a.bfloat16() == b.bfloat16()).all(1)
        difference = (a.float() - b.float()).abs()
        scale = torch.stack([a.float().abs(), b.float().abs(), a.float().abs().mean(1, keepdim=True).expand(-1, WIDTH)])
        close = (difference <= relative * scale.amax(0)).all(1) | equal
        assert (pair.rows, pair.equal_rows, pair.close_rows) == (T, int(equal.sum()), int(close.sum()))
        assert pair.max_difference == float(difference.max())
        assert pair.first_differing == (None if bool(close.all()) else int((~close).nonzero()[0]))
        assert pair.bad_rows == 0
    assert comparison.pairs[0].close_rows == T  # the fixture has both kinds
    assert 0 < sum(p.first_differing is not None for p in comparison.pairs) < 16


def test_rows_that_are_zero_or_not_finite_are_left_out_of_means(tmp_path: Path) -> None:
    theirs = STATES.clone()
    theirs[3, 1, 5], theirs[4, 1, 0] = torch.nan, torch.inf
    theirs[5, 1] = 0
    comparison = compared(tmp_path, theirs)
    pair = next(p for p in comparison.pairs if (p.ours, p.theirs) == (1, 1))
    assert (pair.bad_rows, pair.equal_rows, pair.first_differing) == (2, T - 3, 3)
    assert pair.cosine == pytest.approx(1.0) and pair.norm_ratio == pytest.approx(1.0)
    assert pair.max_difference == float(STATES[5, 1].float().abs().max())
    assert f"equal on {T - 3} of {T} rows, 2 rows not finite, first differs at row 3" in sentences(comparison)[2]


def test_the_same_not_a_number_is_equal(tmp_path: Path) -> None:
    broken = STATES.clone()
    broken[3, 1, 5] = torch.nan
    pair = compared(tmp_path, broken, ours=broken).pairs[5]
    assert (pair.ours, pair.theirs, pair.bad_rows, pair.equal_rows) == (1, 1, 1, T)


def test_huge_numbers_do_not_overflow(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STATES * 1e30, ours=STATES * 1e30)
    assert comparison.ordering == (0, 1, 2, 3)
    assert all(p.cosine is not None and -1 <= p.cosine <= 1 for p in comparison.pairs)


# --- which slot is which


def test_a_permuted_choice_of_slots_is_the_ordering(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STATES[:, [1, 2, 3]])
    assert comparison.ordering == (1, 2, 3)
    assert sentences(comparison) == [
        f"the same {T} tokens",
        f"slot 0 of theirs is slot 1 of ours (depth 3): equal on all {T} rows",
        f"slot 1 of theirs is slot 2 of ours (depth 31): equal on all {T} rows",
        f"slot 2 of theirs is slot 3 of ours (depth 59): equal on all {T} rows",
        "theirs is [1,2,3] of ours: the ordering to serve",
    ]
    assert compared(tmp_path, STATES[:, [3, 0, 2, 1]]).ordering == (3, 0, 2, 1)
    same = compared(tmp_path, STATES)
    assert sentences(same)[-1] == "theirs is [0,1,2,3] of ours: the same slots in the same order"
    assert "slot 0 of ours (embed)" in sentences(same)[1]


def test_one_row_that_differs_is_named(tmp_path: Path) -> None:
    theirs = STATES.clone()[:, [1]]
    theirs[0] = 9.0
    comparison = compared(tmp_path, theirs)
    said = f"slot 0 of theirs is slot 1 of ours (depth 3): equal on {T - 1} of {T} rows, first differs at row 0"
    assert sentences(comparison)[1] == said


def test_noise_matches_none_and_there_is_no_ordering(tmp_path: Path) -> None:
    theirs = STATES.clone()
    theirs[:, 2] = states(T, seed=8)[:, 2]
    comparison = compared(tmp_path, theirs)
    assert found(comparison) == [(0, EQUAL, True), (1, EQUAL, True), (None, NONE, False), (3, EQUAL, True)]
    cosines = {i: brute_cosine(STATES[:, i], theirs[:, 2]) for i in range(4)}
    best = max(cosines, key=lambda i: cosines[i])
    said = f"slot 2 of theirs matches none of ours (best cosine {cosines[best]:.2f} with slot {best})"
    assert sentences(comparison)[3] == said
    assert comparison.ordering is None
    assert sentences(comparison)[-1].startswith("0,1,3 of theirs is [0,1,3] of ours; 1 of its 4 slots")


def test_a_slot_that_is_fed_twice_is_no_ordering(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STATES[:, [1, 1, 2]])
    assert [m.best.ours for m in comparison.matches] == [1, 1, 2]
    assert comparison.ordering is None


def test_two_equal_slots_of_ours_are_not_clear(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STATES[:, [2]], ours=STATES[:, [0, 2, 2]])
    assert found(comparison) == [(1, EQUAL, False)]
    assert sentences(comparison)[1].endswith("; not clear: slot 2 of ours is as near")
    assert comparison.ordering is None


def test_the_same_state_computed_otherwise_is_alike(tmp_path: Path) -> None:
    noise = torch.randn(T, 4, WIDTH, generator=torch.Generator().manual_seed(4))
    theirs = (STATES.float() * (1 + 0.03 * noise)).bfloat16()
    comparison = compared(tmp_path, theirs[:, [1, 2]])
    assert found(comparison) == [(1, ALIKE, True), (2, ALIKE, True)]
    assert comparison.ordering == (1, 2)
    assert "slot 0 of theirs is like slot 1 of ours (depth 3): mean cosine 0.999" in sentences(comparison)[1]


def test_a_scaled_state_is_said_to_be_scaled(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STATES[:, [1]] * 4)
    assert found(comparison) == [(1, SCALED, True)]
    assert "points where slot 1 of ours (depth 3) does (mean cosine 1.0000) but is 4 times as long" in str(
        sentences(comparison)
    )
    assert comparison.ordering is None


@pytest.mark.parametrize(("by", "shift", "way", "row"), [(1, -1, "late", "t - 1"), (-1, 1, "early", "t + 1")])
def test_a_capture_that_is_off_by_one_row(tmp_path: Path, by: int, shift: int, way: str, row: str) -> None:
    comparison = compared(tmp_path, STATES.roll(by, dims=0)[:, [1, 2, 3]])
    assert [(m.best.ours, m.best.shift, m.kind, m.clear) for m in comparison.matches] == [
        (i, shift, EQUAL, True) for i in (1, 2, 3)
    ]
    said = f"slot 0 of theirs is slot 1 of ours (depth 3), one row {way} (its row t is row {row} of ours)"
    assert sentences(comparison)[1] == f"{said}: equal on all {T - 1} rows"
    assert sentences(comparison)[-1] == f"theirs is one row {way}: shift it before anything else is compared"
    assert comparison.ordering is None
    for match in comparison.matches:
        slot, other = STATES[:, match.best.ours], STATES.roll(by, dims=0)[:, match.best.ours]
        truth = {-1: (slot[:-1], other[1:]), 0: (slot, other), 1: (slot[1:], other[:-1])}
        for moved, (a, b) in truth.items():
            assert match.shifts[moved] == pytest.approx(brute_cosine(a, b), abs=1e-6)


def test_a_late_capture_of_one_of_two_equal_slots_is_not_clear(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STATES.roll(1, dims=0)[:, [2]], ours=STATES[:, [0, 2, 2]])
    (match,) = comparison.matches
    assert (match.best.ours, match.best.shift, match.kind, match.clear) == (1, -1, EQUAL, False)
    (alone,) = compared(tmp_path, STATES.roll(1, dims=0)[:, [2]], ours=STATES[:, [2]]).matches
    assert (alone.best.shift, alone.clear, alone.second) == (-1, True, None)


# --- dtypes


def test_float32_and_its_bfloat16_copy_are_equal(tmp_path: Path) -> None:
    fine = STATES.float() * 1.0037
    for ours, theirs in ((fine, fine.bfloat16()), (fine.bfloat16(), fine)):
        comparison = compared(tmp_path, theirs, ours=ours)
        assert comparison.ordering == (0, 1, 2, 3)
        assert comparison.tolerance == 2.0**-7
        assert all(m.best.equal_rows == T and m.best.max_difference for m in comparison.matches)


def test_the_tolerance_is_that_of_the_coarser_dtype(tmp_path: Path) -> None:
    fine = states(T).float()
    off = fine * (1 + 2.0**-12)
    assert [m.best.equal_rows for m in compared(tmp_path, off, ours=fine).matches] == [0] * 4
    assert found(compared(tmp_path, off, ours=fine)) == [(i, ALIKE, True) for i in range(4)]
    half = compared(tmp_path, off.half(), ours=fine.half())
    assert (half.tolerance, {m.best.close_rows for m in half.matches}) == (2.0**-10, {T})
    single = compared(tmp_path, fine * (1 + 4e-6), ours=fine)
    assert (single.tolerance, found(single)[0]) == (1e-5, (0, EQUAL, True))
    assert "equal on 0 of 70 rows, the rest within 1e-05" in sentences(single)[1]


# --- other tokens, lengths and widths


def test_a_capture_of_a_prefix(tmp_path: Path) -> None:
    comparison = compared(tmp_path, STATES[:30, [2, 1]], IDS[:30])
    assert comparison.ordering == (2, 1)
    assert sentences(comparison)[0] == f"theirs is the first 30 of the {T} tokens of ours"
    assert {p.rows for p in comparison.pairs} == {30}


def test_a_packed_capture(tmp_path: Path) -> None:
    before, after = states(12, seed=5), states(9, seed=6)
    theirs = torch.cat([before, STATES, after])
    theirs[12 + 4, 2] = 0
    comparison = compared(tmp_path, theirs, tokens(12, seed=5) + IDS + tokens(9, seed=6))
    assert sentences(comparison)[0] == f"ours is tokens 12 to {11 + T} of theirs"
    assert "what came before these tokens may differ" in sentences(comparison)[1]
    assert f"equal on {T - 1} of {T} rows, first differs at row 4 (row 16 of theirs)" in sentences(comparison)[4]
    assert comparison.ordering == (0, 1, 2, 3)


def test_two_texts_that_begin_alike_are_said_to_be_two(tmp_path: Path) -> None:
    theirs = states(T, seed=9)
    theirs[:20] = STATES[:20]
    comparison = compared(tmp_path, theirs, IDS[:20] + tokens(T - 20, seed=9))
    assert {p.rows for p in comparison.pairs} == {20}
    assert sentences(comparison)[:2] == [
        f"only a run of 20 tokens is common, from token 0 of the {T} of ours and token 0 of the {T} of theirs",
        "less than half of either is common: these are probably two texts with a common part",
    ]


def test_a_recording_that_leaves_out_its_first_token(tmp_path: Path) -> None:
    ours = recorded(tmp_path / "ours/data_0.pt", IDS, STATES)
    headless = replace(ours, ids=torch.tensor([UNKNOWN_ID, *IDS[1:]]))
    assert compare_recordings(ours, headless).ordering == (0, 1, 2, 3)


def test_refusals(tmp_path: Path) -> None:
    with refused(SampleError, "other tokens", "theirs/data_0.pt"):
        compared(tmp_path, STATES, tokens(T, seed=7))
    with refused(SampleError, "8 wide", f"expected {WIDTH}", "theirs/data_0.pt"):
        compared(tmp_path, states(T, width=8))


# --- cost


class Watched:
    """A stored slot that notes which rows were read."""

    def __init__(self, tensor: StoredTensor, reads: list[int]) -> None:
        self.tensor, self.reads = tensor, reads
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def rows(self, start: int, stop: int) -> Tensor:
        self.reads.append(stop - start)
        return self.tensor.rows(start, stop)

    def gather(self, indices: list[int]) -> Tensor:
        self.reads.append(len(indices))
        return self.tensor.gather(indices)

    def head(self, rows: int) -> Any:
        raise AssertionError("not asked for")


def watched(sample: Sample, reads: list[int]) -> Sample:
    slots = tuple(replace(slot, tensor=Watched(slot.tensor, reads)) for slot in sample.slots)  # type: ignore[arg-type]
    return replace(sample, slots=slots)


def test_states_are_read_in_blocks(tmp_path: Path) -> None:
    count, reads = 3 * pairs.BLOCK + 5, list[int]()
    ids, whole = tokens(count), states(count)
    whole[pairs.BLOCK + 1, 1] = 0
    ours, theirs = (recorded(tmp_path / side / "data_0.pt", ids, x) for side, x in (("a", states(count)), ("b", whole)))
    comparison = compare_recordings(watched(ours, reads), watched(theirs, reads))
    assert max(reads) <= pairs.BLOCK
    spread = 3 * pairs.SPREAD_ROWS * 8
    assert sum(reads) <= count * 8 + spread
    assert comparison.matches[1].best.first_differing == pairs.BLOCK + 1
    assert comparison.matches[1].best.cosine == pytest.approx(1.0)


def test_blocks_of_many_wide_slots_are_smaller() -> None:
    assert pairs._block_rows(8, 7168) == pairs.BLOCK
    assert pairs._block_rows(512, 65536) * 512 * 65536 * 4 <= pairs.BLOCK_BYTES
    assert pairs._block_rows(10_000, 65536) == 1


def test_many_slots_are_told_apart_on_spread_rows_first(tmp_path: Path) -> None:
    count = 3000
    ids, whole = tokens(count), states(count, slots=12)
    order = [5, 0, 11, 7, 3]
    ours = recorded(tmp_path / "a/data_0.pt", ids, whole)
    theirs = recorded(tmp_path / "b/data_0.pt", ids, whole[:, order])
    comparison = compare_recordings(ours, theirs)
    assert comparison.ordering == tuple(order)
    exact = [p for p in comparison.pairs if p.equal_rows is not None]
    assert (len(comparison.pairs), len(exact), {p.rows for p in exact}) == (60, 10, {count})
    rest = next(p for p in comparison.pairs if p.equal_rows is None)
    rows = [k * count // pairs.SPREAD_ROWS for k in range(pairs.SPREAD_ROWS)]
    a, b = whole[rows, rest.ours], whole[rows, order[rest.theirs]]
    assert rest.rows == pairs.SPREAD_ROWS
    assert rest.cosine == pytest.approx(brute_cosine(a, b), abs=1e-6)
    assert rest.norm_ratio == pytest.approx(brute_ratio(a, b), rel=1e-6)


def test_it_can_be_cancelled(tmp_path: Path) -> None:
    calls = 0

    def poll() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Cancelled

    ours = recorded(tmp_path / "ours/data_0.pt", IDS, STATES)
    with pytest.raises(Cancelled):
        compare_recordings(ours, ours, poll)
    assert calls == 5


def test_json(tmp_path: Path) -> None:
    data = comparison_json(compared(tmp_path, STATES[:, [1, 2, 3]]))
    assert data["ordering"] == [1, 2, 3]
    assert data["aligned"] == {"ours": 0, "theirs": 0, "tokens": T}
    assert [m["ours"] for m in data["matches"]] == [1, 2, 3]
    assert data["ours"]["claimed"] == ["embed", "3", "31", "59"]


# --- two folders


def test_samples_of_two_folders_find_each_other_by_their_tokens(tmp_path: Path) -> None:
    texts = [tokens(20, seed=i) for i in range(5)]
    ours = [written(tmp_path / f"ours/data_{i}.pt", texts[i], states(20)) for i in (0, 1, 2, 3)]
    theirs = [written(tmp_path / f"theirs/data_{n}.pt", texts[i], states(20)) for n, i in enumerate((4, 2, 0))]
    theirs.append(written(tmp_path / "theirs/data_9.pt", texts[1][:10], states(10)))  # a prefix is not looked for
    (tmp_path / "theirs/data_10.pt").write_bytes(b"")
    result = find_partners(ours, [*theirs, tmp_path / "theirs/data_10.pt"], open_sample)
    assert result.pairs == [(ours[0], theirs[2]), (ours[2], theirs[1])]
    assert (result.only_ours, result.only_theirs) == ([ours[1], ours[3]], [theirs[0], theirs[3]])
    assert list(result.unreadable) == [tmp_path / "theirs/data_10.pt"]


def test_a_missing_first_token_does_not_hide_a_partner(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"data_{i}.pt", tokens(20, seed=i), states(20)) for i in (0, 1)]

    def headless(path: Path) -> Sample:
        sample = open_sample(path)
        return replace(sample, ids=torch.tensor([UNKNOWN_ID, *sample.ids.tolist()[1:]])) if path == paths[1] else sample

    both = [written(tmp_path / f"other/data_{i}.pt", tokens(20, seed=i), states(20)) for i in (1, 0)]
    assert find_partners(paths, both, headless).pairs == [(paths[0], both[1]), (paths[1], both[0])]
    # two texts that differ in a known first token are two texts
    alike = written(tmp_path / "alike/data_0.pt", [4, *tokens(20, seed=0)[1:]], states(20))
    assert find_partners(paths[:1], [alike], headless).pairs == []


def test_each_recording_is_used_once(tmp_path: Path) -> None:
    ids = tokens(20)
    ours = [written(tmp_path / f"ours/data_{i}.pt", ids, states(20)) for i in (0, 1)]
    theirs = [written(tmp_path / "theirs/data_0.pt", ids, states(20))]
    result = find_partners(ours, theirs, open_sample)
    assert (result.pairs, result.only_ours, result.only_theirs) == ([(ours[0], theirs[0])], [ours[1]], [])
