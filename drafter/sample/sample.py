"""One recorded sample in canonical form: token ids, loss mask, and the recorded hidden states as numbered slots.

The ids and the mask are in memory; states stay in the file and are read by rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import SampleError
from drafter.files.stored import FLOATS, INTEGERS, StoredTensor

if TYPE_CHECKING:
    import torch

MAX_TOKENS = 1_000_000
MAX_SLOTS = 64
MAX_WIDTH = 65_536


@dataclass(frozen=True)
class Claim:
    """What somebody says a slot is: `depth` in layers passed (0 = embedding output), or the verifier's last state."""

    label: str
    source: str
    depth: int | None = None
    is_last: bool = False


@dataclass(frozen=True)
class Slot:
    """One recorded state: `tensor` is [T, Ht], unread."""

    index: int
    tensor: StoredTensor
    claim: Claim | None = None


@dataclass(frozen=True)
class Sample:
    """`ids` [T] int64, `mask` [T] bool or None when the file records none, `slots` of equal shape [T, Ht]."""

    path: Path
    format: str
    ids: torch.Tensor
    mask: torch.Tensor | None
    slots: tuple[Slot, ...]
    warnings: tuple[str, ...] = field(default=())

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
        keep = rows + 2
        slots = tuple(replace(slot, tensor=slot.tensor.head(keep)) for slot in self.slots)
        mask = None if self.mask is None else self.mask[:keep]
        return replace(self, ids=self.ids[:keep], mask=mask, slots=slots)

    def with_claims(self, claims: list[Claim | None]) -> Sample:
        slots = tuple(replace(slot, claim=claim) for slot, claim in zip(self.slots, claims, strict=True))
        return replace(self, slots=slots)


def read_ids(value: Any, key: str, path: Path) -> torch.Tensor:
    """The token ids stored under `key`: [T] int64. Raises SampleError for other shapes, dtypes or lengths."""
    import torch

    tensor = _vector(value, key, path)
    if tensor.dtype not in INTEGERS:
        raise SampleError(f"{key!r} is {tensor.dtype}", expected="integer token ids", where=path)
    if not 3 <= tensor.shape[0] <= MAX_TOKENS:
        raise SampleError(f"{tensor.shape[0]} tokens", expected=f"3 to {MAX_TOKENS}", where=path)
    return tensor.read().to(torch.int64)


def read_mask(value: Any, length: int, path: Path) -> tuple[torch.Tensor | None, list[str]]:
    """The loss mask as [length] bool, and what had to be assumed."""
    import torch

    if value is None:
        return None, ["no loss mask in the sample: all rows count"]
    mask = _vector(value, "loss_mask", path).read() != 0
    if mask.numel() == length:
        return mask, []
    warning = f"the loss mask has {mask.numel()} entries for {length} tokens"
    if mask.numel() > length:
        return mask[:length], [f"{warning}: cut, as the trainers do"]
    return torch.cat([mask, torch.zeros(length - mask.numel(), dtype=torch.bool)]), [
        f"{warning}: the rest is unsupervised"
    ]


def make_slots(tensors: list[StoredTensor], length: int, path: Path) -> tuple[Slot, ...]:
    """Slots from the recorded states. Raises SampleError where shapes or dtypes do not fit each other or the ids."""
    if not 1 <= len(tensors) <= MAX_SLOTS:
        raise SampleError(f"{len(tensors)} recorded states", expected=f"1 to {MAX_SLOTS}", where=path)
    width = tensors[0].shape[-1] if tensors[0].shape else 0
    for index, tensor in enumerate(tensors):
        if tensor.dtype not in FLOATS:
            raise SampleError(f"state {index} is {tensor.dtype}", expected="floats", where=path)
        if len(tensor.shape) != 2 or tensor.shape[1] != width or not 0 < width <= MAX_WIDTH:
            raise SampleError(
                f"state {index} is {list(tensor.shape)}", expected=f"[{length}, {width or 'width'}]", where=path
            )
        if tensor.shape[0] != length:
            raise SampleError(
                f"state {index} has {tensor.shape[0]} rows for {length} tokens",
                expected="one row a token",
                where=path,
                hint="the recording was cut or belongs to other tokens",
            )
    return tuple(Slot(i, tensor) for i, tensor in enumerate(tensors))


def _vector(value: Any, key: str, path: Path) -> StoredTensor:
    if not isinstance(value, StoredTensor):
        raise SampleError(f"{key!r} is a {type(value).__name__}", expected="a tensor", where=path)
    vector: StoredTensor = value.select(0, 0) if len(value.shape) == 2 and value.shape[0] == 1 else value
    if len(vector.shape) != 1:
        raise SampleError(f"{key!r} is {list(vector.shape)}", expected="one dimension", where=path)
    return vector
