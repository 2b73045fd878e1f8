"""One recorded sample in canonical form: token ids, loss mask, and the recorded hidden states as numbered slots.

The ids and the mask are in memory; states stay in the file and are read by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from drafter.errors import SampleError

if TYPE_CHECKING:
    import torch

UNKNOWN_ID = -1  # a token that a recording leaves out
PRE, POST = "pre", "post"


@dataclass(frozen=True)
class Claim:
    """What somebody says a slot is: `depth` in layers passed (0 = embedding output), or the verifier's last state.

    `norm` says whether a last state is before (`pre`) or after (`post`) the target's final norm, or nothing.
    `assumed` marks a producer's default that no file confirms.
    """

    label: str
    source: str
    depth: int | None = None
    is_last: bool = False
    norm: str = ""
    assumed: bool = False


class States(Protocol):
    """Recorded rows [T, Ht] that are read when they are asked for; a StoredTensor is one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    def rows(self, start: int, stop: int) -> torch.Tensor: ...

    def gather(self, indices: Sequence[int]) -> torch.Tensor: ...

    def head(self, rows: int) -> States: ...


@dataclass(frozen=True)
class Slot:
    """One recorded state: `tensor` is [T, Ht], unread; `layout` what the file's own layout promises about it."""

    index: int
    tensor: States
    claim: Claim | None = None
    layout: Claim | None = None


@dataclass(frozen=True)
class Sample:
    """`ids` [T] int64, `mask` [T] bool or None when the file records none, `slots` of equal shape [T, Ht].

    `path` names the sample: a file that holds several is followed by `#` and a number, 0 to `parts` - 1. `aux_rule` are
    the layers that the producer records unless it is told others (see `claims`). `verifier_draft` gives [T] draft ids,
    read when it is called, where the recording has the verifier's distribution instead of its state: entry t is its
    choice among the draft vocabulary after x[0..t], -1 where there is none.
    """

    path: Path
    format: str
    ids: torch.Tensor
    mask: torch.Tensor | None
    slots: tuple[Slot, ...]
    warnings: tuple[str, ...] = ()
    parts: int = 1
    aux_rule: str = ""
    verifier_draft: Callable[[], torch.Tensor] | None = field(default=None, repr=False, compare=False)

    @property
    def file(self) -> Path:
        return split_part(self.path)[0]

    @property
    def length(self) -> int:
        return self.ids.numel()

    @property
    def supervised(self) -> torch.Tensor:
        """The loss mask [T] bool; all true where the file records none."""
        import torch

        return self.mask if self.mask is not None else torch.ones(self.length, dtype=torch.bool)

    @property
    def width(self) -> int:
        return self.slots[0].tensor.shape[1]

    def first_rows(self, rows: int | None) -> Sample:
        """The sample cut so that at most `rows` rows have a next token to predict (rows + 2 tokens)."""
        if rows is None or rows + 2 >= self.length:
            return self
        if rows < 1:
            raise SampleError(f"--rows {rows}", expected="at least 1", where=self.path)
        return self.cut(rows + 2)

    def cut(self, length: int) -> Sample:
        """The first `length` tokens."""
        slots = tuple(replace(slot, tensor=slot.tensor.head(length)) for slot in self.slots)
        mask = None if self.mask is None else self.mask[:length]
        whole = self.verifier_draft
        chosen = None if whole is None else lambda: whole()[:length]
        return replace(self, ids=self.ids[:length], mask=mask, slots=slots, verifier_draft=chosen)

    def with_claims(self, claims: list[Claim | None]) -> Sample:
        slots = tuple(replace(slot, claim=claim) for slot, claim in zip(self.slots, claims, strict=True))
        return replace(self, slots=slots)


def split_part(path: Path) -> tuple[Path, int | None]:
    """`shard.safetensors#3` is sample 3 of the file `shard.safetensors`; other names are files."""
    name, mark, number = path.name.rpartition("#")
    if mark and name and number.isascii() and number.isdecimal() and len(number) <= 9:
        return path.with_name(name), int(number)
    return path, None


def name_part(file: Path, part: int, parts: int) -> Path:
    """The name of sample `part` of a file that holds `parts`."""
    return file.with_name(f"{file.name}#{part}") if parts > 1 else file
