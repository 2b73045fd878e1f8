"""What the data shows about a slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import Tensor

from drafter.errors import Cancelled
from drafter.sample import probe
from drafter.sample.open import open_sample
from drafter.sample.probe import SlotProbe, probe_slot
from tests import tiny

WEIGHTS = tiny.tiny_weights()
TABLE = WEIGHTS["embed_tokens.weight"]
T = tiny.TOKENS


def probed(
    folder: Path, change: Callable[[Tensor], object] = lambda slots: None, table: Tensor | None = TABLE
) -> list[SlotProbe]:
    """All slots of a sample whose states [T, S, Ht] were changed."""
    sample = tiny.tiny_sample(0, WEIGHTS)
    change(sample.slots)
    opened = open_sample(tiny.write_v1_sample(folder / "data_0.pt", sample))
    rows = None if table is None else (lambda ids: table[ids])
    return [probe_slot(opened, slot, rows) for slot in opened.slots]


@pytest.mark.parametrize("block", [1, 7, 512])
def test_slots_are_told_apart_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(probe, "BLOCK", block)
    found = probed(tmp_path)
    slots = tiny.tiny_sample(0, WEIGHTS).slots.double()
    assert [p.label for p in found] == ["embed", "not embed", "not embed", "not embed"]
    assert [(p.index, p.bad_rows, p.zero_rows, p.first_bad_row) for p in found] == [(i, 0, 0, None) for i in range(4)]
    assert [(p.embed_equal, p.embed_rows) for p in found] == [(T, T), (0, T), (0, T), (0, T)]
    for slot, one in enumerate(found):
        assert one.mean_norm == pytest.approx(float(slots[:, slot].norm(dim=1).mean()))


def test_without_a_table_nothing_is_said(tmp_path: Path) -> None:
    assert [p.label for p in probed(tmp_path, table=None)] == [None] * 4
    assert [p.label for p in probed(tmp_path, table=TABLE[:, :16])] == [None] * 4


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
        assert len(calls) == 256
        return label

    assert [wrong_for(n) for n in (0, 2, 3, 128)] == ["embed", "embed", "not embed", "not embed"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("block", [2, 512])
def test_numbers_that_are_none_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, block: int
) -> None:
    monkeypatch.setattr(probe, "BLOCK", block)

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
