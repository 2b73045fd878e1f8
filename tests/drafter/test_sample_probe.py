"""What the data shows about a slot."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from drafter.checkpoint.target import open_target
from drafter.errors import Cancelled
from drafter.files.safetensors_file import read_header
from drafter.sample.fields import Scaled
from drafter.sample.open import open_sample
from drafter.sample.probes import last_state, probe, scan
from drafter.sample.probes.last_state import lens_of
from drafter.sample.probes.probe import SlotProbe, probe_json, probe_slot, probe_slots
from tests import tiny
from tests.drafter import probe_worlds
from tests.drafter.probe_worlds import EPS, HEAD, NORM, final_norm, predicting

WEIGHTS = tiny.tiny_weights()
TABLE = WEIGHTS["embed_tokens.weight"]
T = tiny.TOKENS


def told(folder: Path, sample: tiny.TinySample, table: Tensor | None) -> list[SlotProbe]:
    opened = open_sample(tiny.write_v1_sample(folder / "data_0.pt", sample))
    rows = None if table is None else (lambda ids: table[ids])
    return [probe_slot(opened, slot, rows) for slot in opened.slots]


def probed(
    folder: Path, change: Callable[[Tensor], object] = lambda slots: None, table: Tensor | None = TABLE
) -> list[SlotProbe]:
    """All slots of a sample whose states [T, S, Ht] were changed."""
    sample = tiny.tiny_sample(0, WEIGHTS)
    change(sample.slots)
    return told(folder, sample, table)


@pytest.mark.parametrize("block", [1, 7, 512])
def test_slots_are_told_apart_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)
    found = probed(tmp_path)
    slots = tiny.tiny_sample(0, WEIGHTS).slots.double()
    assert [p.label for p in found] == ["embed", "not embed", "not embed", "not embed"]
    assert [(p.index, p.bad_rows, p.zero_rows, p.first_bad_row) for p in found] == [(i, 0, 0, None) for i in range(4)]
    assert [(p.embed_equal, p.embed_rows) for p in found] == [(T, T), (0, T), (0, T), (0, T)]
    for slot, one in enumerate(found):
        assert one.mean_norm == pytest.approx(float(slots[:, slot].norm(dim=1).mean()))


def test_without_a_table_equal_tokens_decide(tmp_path: Path) -> None:
    """A text with too few equal tokens says nothing, a longer one tells depth 0 from the rest."""
    few = tiny.tiny_sample(0, WEIGHTS)
    few.slots[:, 0] = TABLE[3 : 3 + T].bfloat16()
    few = replace(few, ids=list(range(3, 3 + T)))
    assert [p.label for p in told(tmp_path, few, None)] == [None] * 4
    many = tiny.tiny_sample(0, WEIGHTS, tokens=200)
    for table in (None, TABLE[:, :16]):
        found = told(tmp_path, many, table)
        assert [p.label for p in found] == ["embed", *["not embed"] * 3]
        assert [(p.embed_equal, p.embed_rows) for p in found] == [(None, 0)] * 4
    by_id: dict[int, int] = {}
    pairs = 0
    for token in many.ids:
        pairs += token in by_id
        by_id[token] = 1
    assert [(p.embed.tokens[0].hits, p.embed.tokens[0].total) for p in found] == [(pairs, pairs), *[(0, pairs)] * 3]


def test_a_few_other_rows_do_not_hide_the_embedding(tmp_path: Path) -> None:
    """A BOS token may be recorded otherwise; half of the rows may not."""
    longer = tiny.tiny_sample(0, WEIGHTS, tokens=300)
    sample = open_sample(tiny.write_v1_sample(tmp_path / "data_0.pt", longer))

    def wrong_for(rows: int) -> str | None:
        table = TABLE.clone()
        calls: list[int] = []

        def look_up(ids: list[int]) -> Tensor:
            calls.extend(ids)
            found = table[ids]
            found[:rows] += 1
            return found

        label = probe_slot(sample, sample.slots[0], look_up).label
        assert len(calls) == 256 or (label == "not embed" and len(calls) == 256 + 255 + 255)  # the shifts, then
        return label

    assert [wrong_for(n) for n in (0, 2, 3, 128)] == ["embed", "embed", "not embed", "not embed"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("block", [2, 512])
def test_numbers_that_are_none_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, block: int
) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)

    def spoil(slots: Tensor) -> None:
        slots[[5, 9, 24], 2, 7] = value
        slots[[0, 3], 1] = 0

    found = probed(tmp_path, spoil)
    assert (found[2].bad_rows, found[2].first_bad_row, found[2].mean_norm) == (3, 5, None)
    assert (found[1].bad_rows, found[1].zero_rows) == (0, 2) and found[1].mean_norm is not None
    assert found[0].label == "embed"


def test_all_bad_and_large_states(tmp_path: Path) -> None:
    assert probed(tmp_path, lambda slots: slots[:, 0].fill_(float("nan")))[0].mean_norm is None
    large = probed(tmp_path, lambda slots: slots[:, 0].fill_(3e38))[0]  # its square is no float32
    assert large.bad_rows == 0 and large.mean_norm == pytest.approx(3e38 * 32**0.5, rel=1e-2)


def test_a_probe_can_be_stopped(tmp_path: Path) -> None:
    sample = open_sample(tiny.write_v1_sample(tmp_path / "data_0.pt", tiny.tiny_sample(0, WEIGHTS)))

    def stop() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        probe_slot(sample, replace(sample.slots[0]), None, stop)


# --- rows and their norms


def test_norms_over_all_rows(tmp_path: Path) -> None:
    found = probed(tmp_path)
    norms = tiny.tiny_sample(0, WEIGHTS).slots.double().norm(dim=2)  # [T, S]
    for slot, one in enumerate(found):
        column = sorted(norms[:, slot].tolist())
        assert (one.min_norm, one.max_norm) == pytest.approx((column[0], column[-1]))
        assert one.median_norm == pytest.approx(column[T // 2]) and (one.rows, one.zero_tail, one.twin) == (
            T,
            None,
            None,
        )


def test_nan_and_inf_are_told_apart(tmp_path: Path) -> None:
    def spoil(slots: Tensor) -> None:
        slots[7, 1, 3], slots[9:12, 1, 5], slots[12, 1, :] = float("-inf"), float("nan"), float("nan")

    one = probed(tmp_path, spoil)[1]
    assert (one.bad_rows, one.nan_rows, one.inf_rows, one.first_bad_row, one.first_bad) == (5, 4, 1, 7, "Inf")
    assert (one.mean_norm, one.max_norm) == (None, None) and one.median_norm is not None
    assert ("rows with NaN, with Inf", "4, 1") in one.facts() and ("the first of them", "row 7 (Inf)") in one.facts()


@pytest.mark.parametrize("block", [1, 7, 512])
def test_zero_rows_and_tails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(scan, "BLOCK", block)

    def spoil(slots: Tensor) -> None:
        slots[:, 1], slots[20:, 2], slots[4, 2], slots[:5, 3] = 0, 0, 0, 0

    found = probed(tmp_path, spoil)
    assert [p.label for p in found] == ["embed", "zeros", "not embed", "not embed"]
    assert [p.zero_tail for p in found] == [None, 0, 20, None]
    assert [(p.zero_rows, p.first_zero_row) for p in found] == [(0, None), (T, 0), (T - 20 + 1, 4), (5, 0)]


def test_zero_rows_do_not_hide_the_embedding(tmp_path: Path) -> None:
    one = probed(tmp_path, lambda slots: slots[15:, 0].zero_())[0]
    assert (one.label, one.embed_equal, one.embed_rows) == ("embed", 15, 15)
    assert told(tmp_path, constant(), None)[0].label is None  # rows that are all the same tell nothing


def constant() -> tiny.TinySample:
    sample = tiny.tiny_sample(0, WEIGHTS, tokens=200)
    return replace(sample, slots=torch.ones_like(sample.slots))


def test_marks_tell_rows_apart_to_the_bit() -> None:
    rng = torch.Generator().manual_seed(0)
    for dtype, width in ((torch.bfloat16, 32), (torch.float32, 7), (torch.float16, 5), (torch.float64, 3)):
        block = torch.randn(64, width, generator=rng).to(dtype)
        block[40:50] = block[3:13]
        block[60] = block[59]
        block[60, width // 2] *= 1.01
        marks = scan._marks(block)
        for a in range(64):
            for b in range(64):
                assert (marks[a] == marks[b]) == torch.equal(block[a], block[b]), (dtype, a, b)


def test_a_slot_that_is_another(tmp_path: Path) -> None:
    found = probe_worlds.probed(tmp_path, lambda slots: slots[:, 2].copy_(slots[:, 1])).probes
    assert [p.twin for p in found] == [None, None, 1, None]
    almost = probe_worlds.probed(tmp_path, nearly_equal).probes
    assert [p.twin for p in almost] == [None] * 4


def nearly_equal(slots: Tensor) -> None:
    slots[:, 2] = slots[:, 1]
    slots[77, 2, 3] *= 1.5


# --- the embedding, shifted or scaled


@pytest.mark.parametrize("rows", [-1, 1, 2])
@pytest.mark.parametrize("with_table", [True, False])
def test_states_that_come_late_or_early(tmp_path: Path, rows: int, with_table: bool) -> None:
    table = TABLE if with_table else None
    one = probe_worlds.probed(tmp_path, probe_worlds.shift(rows), table=table).probes[0]
    assert one.embed_shift == (None if rows == 2 else -rows) and one.label == "not embed"


def test_an_embedding_that_the_model_scales(tmp_path: Path) -> None:
    def change(slots: Tensor) -> None:
        slots[:, 0] = (TABLE[predicting().ids] * 5.66).bfloat16()  # rounded once more than the table

    one = probe_worlds.probed(tmp_path, change).probes[0]
    assert one.label == "embed" and one.embed.scale == pytest.approx(5.66, rel=1e-2)
    assert any(text == "the embedding is scaled by" and value.startswith("5.6") for text, value in one.facts())
    noisy = probe_worlds.probed(tmp_path, lambda s: s[:, 0].mul_(5).add_(torch.randn(s[:, 0].shape) * 0.3)).probes[0]
    assert noisy.label == "not embed"


def test_an_embedding_recorded_in_eight_bits(tmp_path: Path) -> None:
    """Rounded rows are no longer equal to the bit; deeper states stay what they are."""
    sample = open_sample(tiny.write_v1_sample(tmp_path / "data_0.pt", tiny.tiny_sample(0, WEIGHTS)))
    slots = []
    for slot in sample.slots:
        states = slot.tensor.rows(0, T).float()
        scale = states.abs().amax(1) / 448  # [T]
        stored = {"y": (states / scale[:, None]).to(torch.float8_e4m3fn), "scale": scale}
        save_file(stored, tmp_path / f"{slot.index}.safetensors")
        tensors = read_header(tmp_path / f"{slot.index}.safetensors").tensors
        slots.append(replace(slot, tensor=Scaled(tensors["y"], tensors["scale"])))
    found = probe_slots(replace(sample, slots=tuple(slots)), lambda ids: TABLE[ids])
    assert [p.label for p in found] == ["embed", *["not embed"] * 3]
    assert (found[0].embed_equal, found[0].embed_rows) == (T, T) and found[0].embed.scale == pytest.approx(1, abs=0.02)


def test_tokens_that_are_not_known_are_not_looked_up(tmp_path: Path) -> None:
    sample = open_sample(tiny.write_v1_sample(tmp_path / "data_0.pt", tiny.tiny_sample(0, WEIGHTS)))
    ids = sample.ids.clone()
    ids[0] = -1
    asked: list[int] = []

    def look_up(wanted: list[int]) -> Tensor:
        asked.extend(wanted)
        return TABLE[wanted]

    one = probe_slot(replace(sample, ids=ids), sample.slots[0], look_up)
    assert min(asked) >= 0 and (one.label, one.embed_equal, one.embed_rows) == ("embed", T - 1, T - 1)


def test_tokens_that_are_in_no_table_are_left_out(tmp_path: Path) -> None:
    def look_up(wanted: list[int]) -> Tensor:
        return TABLE[wanted] * (torch.tensor(wanted) < 60)[:, None]

    sample = open_sample(tiny.write_v1_sample(tmp_path / "data_0.pt", tiny.tiny_sample(0, WEIGHTS)))
    one = probe_slot(sample, sample.slots[0], look_up)
    known = sum(token < 60 for token in sample.ids.tolist())
    assert 0 < known < T and (one.label, one.embed_equal, one.embed_rows) == ("embed", known, known)


# --- the final norm and the head


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_rows_that_have_passed_the_final_norm(tmp_path: Path, family: str) -> None:
    folder = tiny.write_target(tmp_path / "target", WEIGHTS)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": family}
    (folder / "config.json").write_text(json.dumps(config))
    weight = NORM + (1 if family == "gemma2" else 0)
    options = {"target": open_target(folder)}
    text = predicting()
    before = probe_worlds.probed(tmp_path, **options).probes
    after = probe_worlds.probed(
        tmp_path, lambda s: s[:, 3].copy_(final_norm(text.slots[:, 3], weight)), **options
    ).probes
    assert [p.is_post_norm for p in before] == [False] * 4 and before[3].post_norm is not None
    assert after[3].is_post_norm and after[3].label == "post-norm" and after[3].post_norm is not None
    assert (after[3].post_norm.hits, after[3].post_norm.total) == (120, 120) and after[2].label == "not embed"


def test_without_a_norm_nothing_is_said_of_it(tmp_path: Path) -> None:
    bare = open_target(tiny.write_target(tmp_path / "bare", WEIGHTS, norm=False))
    for one in (bare, replace(bare, norm=bare.embed and bare.embed.select(0, 0).columns(0, 16))):
        assert [p.is_post_norm for p in probe_worlds.probed(tmp_path, target=one).probes] == [None] * 4


def brute(text: tiny.TinySample, slot: int, normed: bool, ahead: int) -> tuple[int, int]:
    """Rows t whose best token of the text is x[t + ahead], one after the other."""
    ids, among = text.ids, sorted(set(text.ids))
    hits = total = 0
    for t in range(len(ids) - 2):
        if text.mask[t + 1]:
            y = text.slots[t, slot].float()
            if normed:
                y = y / (y.square().mean() + EPS).sqrt() * NORM
            scores = [float(HEAD[token] @ y) for token in among]
            hits += among[scores.index(max(scores))] == ids[t + ahead]
            total += 1
    return hits, total


def test_the_head_names_the_next_token(tmp_path: Path) -> None:
    text = predicting()
    found = probe_worlds.probed(tmp_path).probes
    for slot, one in enumerate(found):
        assert [a.normed for a in one.agreements] == [False, True]
        for said in one.agreements:
            assert said.candidates == len(set(text.ids))
            for ahead, share in enumerate((said.same, said.next, said.after)):
                assert (share.hits, share.total) == brute(text, slot, said.normed, ahead), (slot, said.normed, ahead)
    best = found[3].lens
    assert best is not None and best.next.ratio > 0.8 and max(best.same.ratio, best.after.ratio) < 0.1
    truths = [token for token, on in zip(text.ids[1:-1], text.mask[1:-1], strict=True) if on]
    assert best.chance.hits == max(truths.count(token) for token in truths) and best.chance.total == len(truths)


class Counted:
    """A head that notes which rows are read."""

    def __init__(self, head: Any) -> None:
        self.shape, self.dtype, self.asked = head.shape, head.dtype, []
        self._head = head

    def gather(self, rows: list[int]) -> Tensor:
        self.asked += rows
        return self._head.gather(rows)


@pytest.mark.parametrize("cap", [2048, 20])
def test_only_the_rows_of_the_texts_own_tokens_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: int
) -> None:
    monkeypatch.setattr(last_state, "CANDIDATES", cap)
    whole = open_target(tiny.write_target(tmp_path / "target", WEIGHTS))
    head: Any = Counted(whole.head)
    one = probe_worlds.probed(tmp_path, target=replace(whole, head=head)).probes[3]
    assert sorted(head.asked) == sorted(set(head.asked)) and set(head.asked) <= set(predicting().ids)
    assert len(head.asked) == min(cap, len(set(predicting().ids))) == one.agreements[0].candidates


def test_the_drafters_own_head_names_what_it_can(tmp_path: Path) -> None:
    """Without the target's head, rows whose truth is outside of the draft vocabulary do not count."""
    kept = torch.arange(0, 97, 2)  # draft id i stands for token 2 i
    whole = open_target(tiny.write_target(tmp_path / "target", WEIGHTS))
    assert whole.head is not None
    save_file({"own": HEAD[kept].contiguous()}, tmp_path / "own.safetensors")
    own = read_header(tmp_path / "own.safetensors").tensors["own"]
    draft_ids = torch.full((97,), -1)
    draft_ids[kept] = torch.arange(len(kept))
    lens = lens_of(replace(whole, head=None), 32, own, draft_ids)
    sample = open_sample(tiny.write_v1_sample(tmp_path / "data_0.pt", predicting()))
    best = probe_slots(sample, None, lens)[3].lens
    text = predicting()
    inside = sum(token % 2 == 0 and on for token, on in zip(text.ids[1:-1], text.mask[1:-1], strict=True))
    assert best is not None and best.source == "the drafter's own head" and best.next.total == inside
    assert best.next.ratio > 0.8


def test_of_many_slots_the_last_are_shown_to_the_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LENS_SLOTS", 1)
    assert [bool(p.agreements) for p in probe_worlds.probed(tmp_path).probes] == [False, False, False, True]
    found = probe_worlds.probed(tmp_path, claims="embed,last,4,6").probes
    assert [bool(p.agreements) for p in found] == [False, True, False, True]
    monkeypatch.setattr(last_state, "HEAD_BYTES", 4 * 32 * 11)
    assert probe_worlds.probed(tmp_path).probes[3].agreements[0].candidates == 11


def test_a_text_without_supervised_rows_names_nothing(tmp_path: Path) -> None:
    text = replace(predicting(), mask=[0] * 120)
    assert [p.agreements for p in probe_worlds.probed(tmp_path, text=text).probes] == [()] * 4


def test_rows_that_are_not_finite_are_left_out_of_all_shares(tmp_path: Path) -> None:
    one = probe_worlds.probed(tmp_path, lambda s: s[60:70, 3].fill_(float("nan"))).probes[3]
    assert one.lens is not None and one.lens.next.total == brute(predicting(), 3, True, 1)[1] - 10
    assert one.post_norm is not None and one.post_norm.total == 110


def test_every_fact_is_a_pair_of_words(tmp_path: Path) -> None:
    for change in (lambda s: None, lambda s: s[:, 1:].zero_(), lambda s: s.fill_(float("nan"))):
        for one in probe_worlds.probed(tmp_path, change).probes:
            assert one.facts() and all(text.isprintable() and value.isprintable() for text, value in one.facts())
            json.dumps(probe_json(one), allow_nan=False)
