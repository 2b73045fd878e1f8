"""The vocab map d2t: from draft ids (rows of lm_head) to target token ids.

`d2t` holds OFFSETS: target = draft + d2t[draft]. That is what every server computes. Files that hold target ids
directly exist, so both readings are tested against the vocabulary and `t2d`, and what was found is kept to be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter.errors import CheckpointError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ReadingTest:
    """How one reading of d2t does: counts of ids outside of the vocabulary, repeated, and not marked in t2d."""

    reading: str
    outside: int
    repeated: int
    not_in_t2d: int | None
    total: int

    @property
    def valid(self) -> bool:
        return self.outside == 0 and self.repeated == 0 and not self.not_in_t2d

    def __str__(self) -> str:
        faults = [f"{self.outside} outside of the vocabulary" if self.outside else ""]
        faults += [f"{self.repeated} repeated" if self.repeated else ""]
        faults += [f"{self.not_in_t2d} not marked in t2d" if self.not_in_t2d else ""]
        said = ", ".join(f for f in faults if f)
        agreed = "all marked in t2d" if self.not_in_t2d is not None else "no t2d to compare"
        return f"{self.reading}: {said or f'all {self.total} ids in range, distinct, {agreed}'}"


@dataclass(frozen=True)
class VocabMap:
    """`target_ids` [D] int64: the target id of each draft id. `draft_ids` [V] int64: the inverse, -1 outside."""

    target_ids: torch.Tensor
    draft_ids: torch.Tensor
    reading: str
    tests: tuple[ReadingTest, ...]
    warning: str = ""

    @property
    def size(self) -> int:
        return self.target_ids.numel()


def read_vocab_map(d2t: torch.Tensor | None, t2d: torch.Tensor | None, draft_size: int, vocab_size: int) -> VocabMap:
    """The map of a drafter with `draft_size` rows in its head and a target vocabulary of `vocab_size`.

    Raises CheckpointError when the map is missing though the vocabulary is pruned, has another length, or is valid in
    neither reading.
    """
    import torch

    if d2t is None:
        if draft_size != vocab_size:
            raise CheckpointError(
                f"no d2t, and a head of {draft_size} rows for a vocabulary of {vocab_size}", expected="a vocab map d2t"
            )
        return _map(torch.arange(draft_size), "identity (no d2t, the whole vocabulary is drafted)", (), vocab_size)
    if d2t.dim() != 1 or d2t.numel() != draft_size:
        raise CheckpointError(f"d2t of shape {list(d2t.shape)}", expected=f"[{draft_size}], the rows of lm_head")
    if d2t.is_floating_point() or d2t.is_complex() or d2t.dtype == torch.bool:
        raise CheckpointError(
            f"d2t of {d2t.dtype}", expected="integers", hint="it was cast with the weights: export the map again"
        )
    rows, values = torch.arange(draft_size), d2t.to(torch.int64)
    marks = t2d.to(torch.bool) if t2d is not None and t2d.dim() == 1 and t2d.numel() == vocab_size else None
    offset, direct = rows + values, values
    tests = (_test("offsets", offset, marks, vocab_size), _test("direct ids", direct, marks, vocab_size))
    return _choose(offset, direct, tests, vocab_size)


def _choose(
    offset: torch.Tensor, direct: torch.Tensor, tests: tuple[ReadingTest, ReadingTest], vocab_size: int
) -> VocabMap:
    as_offset, as_direct = tests
    if as_offset.valid:
        return _map(offset, "offsets", tests, vocab_size)
    if as_direct.valid:
        warning = "d2t holds target ids, not offsets: every server adds the row number and decodes other tokens"
        return _map(direct, "direct ids", tests, vocab_size, warning)
    if as_offset.outside:
        raise CheckpointError(
            f"d2t leads to {as_offset.outside} ids outside of the vocabulary as offsets, {as_direct.outside} as ids",
            expected=f"target ids in 0..{vocab_size - 1}",
            hint="the map belongs to another vocabulary or is damaged",
        )
    return _map(offset, "offsets", tests, vocab_size, f"d2t does not fit t2d ({as_offset})")


def _map(
    target_ids: torch.Tensor, reading: str, tests: tuple[ReadingTest, ...], vocab_size: int, warning: str = ""
) -> VocabMap:
    import torch

    inverse = torch.full((vocab_size,), -1, dtype=torch.int64)
    inverse[target_ids] = torch.arange(target_ids.numel())
    return VocabMap(target_ids, inverse, reading, tests, warning)


def _test(reading: str, ids: torch.Tensor, marks: torch.Tensor | None, vocab_size: int) -> ReadingTest:
    inside = (ids >= 0) & (ids < vocab_size)
    unmarked = None
    if marks is not None:
        unmarked = int((~marks[ids[inside]]).sum()) + int((~inside).sum())
    repeated = ids.numel() - int(ids.unique().numel())
    return ReadingTest(reading, int((~inside).sum()), repeated, unmarked, ids.numel())
