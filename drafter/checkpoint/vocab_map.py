"""The vocab map d2t: from draft ids (rows of lm_head) to target token ids.

`d2t` holds OFFSETS: target = draft + d2t[draft]. That is what every server computes. Files that hold target ids
directly exist, so both readings are tested against the vocabulary and `t2d`, and what was found is kept to be shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drafter.errors import CheckpointError, WiringError

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


READINGS = ("data", "offset", "direct")


def read_vocab_map(
    d2t: torch.Tensor | None, t2d: torch.Tensor | None, draft_size: int, vocab_size: int, reading: str = "data"
) -> VocabMap:
    """The map of a drafter with `draft_size` rows in its head and a target vocabulary of `vocab_size`.

    `reading`: `data` takes the one that the data supports, `offset` and `direct` that one whatever the data says.
    Raises CheckpointError when the map is missing though the vocabulary is pruned, has another length, or leads out of
    the vocabulary in the reading asked for, or in both.
    """
    import torch

    if reading not in READINGS:
        raise WiringError(f"the reading {reading!r} of d2t", expected=f"one of {', '.join(READINGS)}")
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
    case = _Case(torch.arange(draft_size) + d2t.to(torch.int64), d2t.to(torch.int64), t2d, vocab_size)
    return case.data() if reading == "data" else case.forced(reading)


class _Case:
    """One d2t in both readings: `offset` and `direct` are the target ids [D] that each gives."""

    def __init__(self, offset: torch.Tensor, direct: torch.Tensor, t2d: torch.Tensor | None, vocab_size: int) -> None:
        import torch

        self.offset, self.direct, self.vocab_size = offset, direct, vocab_size
        marks = t2d.to(torch.bool) if t2d is not None and t2d.dim() == 1 and t2d.numel() == vocab_size else None
        self.marked = None if marks is None else int(marks.sum())
        # a t2d that marks another number of ids cannot judge a reading
        self.marks = marks if self.marked == offset.numel() else None
        self.tests = (
            _test("offsets", offset, self.marks, vocab_size),
            _test("direct ids", direct, self.marks, vocab_size),
        )

    def forced(self, reading: str) -> VocabMap:
        name, ids, test = ("offsets", self.offset, self.tests[0])
        if reading == "direct":
            name, ids, test = ("direct ids", self.direct, self.tests[1])
        if test.outside:
            raise CheckpointError(
                f"d2t read as {name} leads to {test.outside} ids outside of the vocabulary",
                expected=f"target ids in 0..{self.vocab_size - 1}",
            )
        return _map(ids, f"{name}, as asked", self.tests, self.vocab_size, "" if test.valid else f"d2t as {test}")

    def data(self) -> VocabMap:
        import torch

        as_offset, as_direct = self.tests
        if as_offset.valid:
            return self._as_offset(self._doubts())
        if as_direct.valid:
            warning = "d2t holds target ids, not offsets: every server adds the row number and decodes other tokens"
            return _map(self.direct, "direct ids", self.tests, self.vocab_size, warning)
        if self.offset.numel() == self.vocab_size:
            warning = f"d2t is no map of the whole vocabulary ({as_offset}) and is ignored; SGLang adds it all the same"
            return _map(torch.arange(self.vocab_size), "identity", self.tests, self.vocab_size, warning)
        if as_offset.outside:
            raise CheckpointError(
                f"d2t leads to {as_offset.outside} ids outside of the vocabulary as offsets, "
                f"{as_direct.outside} as ids",
                expected=f"target ids in 0..{self.vocab_size - 1}",
                hint="the map belongs to another vocabulary or is damaged",
            )
        if self._zeros:
            return self._as_offset(
                f"d2t does not fit t2d: it was never set (all zeros), so draft ids are read as the first "
                f"{self.offset.numel()} target ids; t2d marks as many ids, from which a sorted map can be made"
            )
        return self._as_offset(f"d2t does not fit t2d ({as_offset})" if self.marks is not None else f"d2t: {as_offset}")

    @property
    def _zeros(self) -> bool:
        return not bool(self.direct.any())

    def _as_offset(self, warning: str) -> VocabMap:
        return _map(self.offset, "offsets", self.tests, self.vocab_size, warning)

    def _doubts(self) -> str:
        """What stays doubtful about a map whose offsets are valid."""
        size = self.offset.numel()
        if size == self.vocab_size and not self._zeros:
            return "d2t reorders the whole vocabulary: vLLM and SafeAILab ignore a map of this size, SGLang applies it"
        if self.marked is not None and self.marked != size:
            unset = "; d2t is all zeros too: the map was never set" if self._zeros else ""
            return f"t2d marks {self.marked} ids, the head has {size} rows{unset}"
        if self._zeros and size < self.vocab_size and self.marks is None:
            return f"d2t is all zeros: either the draft vocabulary is the first {size} ids, or the map was never set"
        both = self.tests[1].valid and self.marks is None
        if both and size > 1 and bool((self.direct.diff() > 0).all()):
            return "d2t is valid in both readings and strictly increasing, as a map of target ids is: read as offsets"
        return ""


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
