"""From stored tensors to the fields of a Sample: ids, loss mask, and states in the shapes that recorders write.

Every check of sizes is here, before anything is allocated. T tokens, n recorded states, H their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import SampleError
from drafter.files.stored import FLOATS, INTEGERS, StoredTensor
from drafter.sample.sample import Claim, Slot, States

if TYPE_CHECKING:
    import torch

MAX_TOKENS = 1_000_000
MAX_SLOTS = 256
MAX_WIDTH = 65_536


@dataclass(frozen=True)
class Scaled:
    """Quantised rows with one factor each, or one for all: `tensor` [T, H] times `scale` [T] or [1], as float32."""

    tensor: StoredTensor
    scale: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    def rows(self, start: int, stop: int) -> torch.Tensor:
        scale = self.scale.read() if self.scale.shape[0] == 1 else self.scale.rows(start, stop)
        return self.tensor.rows(start, stop).float() * scale.float()[:, None]

    def gather(self, indices: Sequence[int]) -> torch.Tensor:
        scale = self.scale.read() if self.scale.shape[0] == 1 else self.scale.gather(indices)
        return self.tensor.gather(indices).float() * scale.float()[:, None]

    def head(self, rows: int) -> Scaled:
        return Scaled(self.tensor.head(rows), self.scale if self.scale.shape[0] == 1 else self.scale.head(rows))


def tensor_of(value: Any, key: str, path: Path) -> StoredTensor:
    if not isinstance(value, StoredTensor):
        raise SampleError(f"{key!r} is a {type(value).__name__}", expected="a tensor", where=path)
    return value


def vector(value: Any, key: str, path: Path) -> StoredTensor:
    """A stored [T], [1, T] or [T, 1] as [T]."""
    tensor = tensor_of(value, key, path)
    while len(tensor.shape) > 1 and 1 in tensor.shape:
        tensor = tensor.select(tensor.shape.index(1), 0)
    if len(tensor.shape) != 1:
        raise SampleError(f"{key!r} is {list(tensor.shape)}", expected="one dimension", where=path)
    return tensor


def read_ids(value: Any, key: str, path: Path) -> torch.Tensor:
    """The token ids stored under `key`: [T] int64. Raises SampleError for other shapes, dtypes or lengths."""
    import torch

    tensor = vector(value, key, path)
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
    stored = vector(value, "loss_mask", path)
    if stored.shape[0] > MAX_TOKENS:
        raise SampleError(f"a loss mask of {stored.shape[0]} entries for {length} tokens", where=path)
    mask = stored.read() != 0
    if mask.numel() == length:
        return mask, []
    warning = f"the loss mask has {mask.numel()} entries for {length} tokens"
    if mask.numel() > length:
        return mask[:length], [f"{warning}: cut, as the trainers do"]
    return torch.cat([mask, torch.zeros(length - mask.numel(), dtype=torch.bool)]), [
        f"{warning}: the rest is unsupervised"
    ]


def flat(value: Any, key: str, path: Path) -> StoredTensor:
    """A stored [T, W] or [1, T, W] as [T, W]."""
    tensor = tensor_of(value, key, path)
    if len(tensor.shape) == 3 and tensor.shape[0] == 1:
        tensor = tensor.select(0, 0)
    if len(tensor.shape) != 2:
        raise SampleError(f"{key!r} is {list(tensor.shape)}", expected="[tokens, width] or [1, ...]", where=path)
    return tensor


def split_width(tensor: StoredTensor, width: int | None, key: str, path: Path) -> list[StoredTensor]:
    """[T, n * H] as n times [T, H]. Raises SampleError where `width` H is not known or does not divide."""
    total = tensor.shape[1]
    if width is None:
        raise SampleError(
            f"{key!r} is {total} wide, several states side by side",
            expected="their width",
            where=path,
            hint="a checkpoint says it: choose one",
        )
    if width < 1 or total < 1 or total % width or total // width > MAX_SLOTS:
        raise SampleError(f"{key!r} is {total} wide", expected=f"a multiple of {width}", where=path)
    return [tensor.columns(start, start + width) for start in range(0, total, width)]


def split_states(value: Any, length: int, width: int | None, key: str, path: Path) -> list[StoredTensor]:
    """Recorded states in any shape that names them all, as n times [T, H].

    A list of [T, H] or [1, T, H]; [T, n, H] (token-major) or [n, T, H] (layer-major); [T, n * H] or [1, T, n * H].
    """
    if isinstance(value, list):
        return [flat(item, f"{key}[{i}]", path) for i, item in enumerate(value[: MAX_SLOTS + 1])]
    tensor = tensor_of(value, key, path)
    shape = tensor.shape
    if len(shape) == 4 and shape[0] == 1:
        tensor = tensor.select(0, 0)
        shape = tensor.shape
    if len(shape) == 3 and shape[0] == length and shape[1] <= MAX_SLOTS:
        return [tensor.select(1, i) for i in range(shape[1])]
    if len(shape) == 3 and shape[1] == length and shape[0] <= MAX_SLOTS and (shape[0] > 1 or width == shape[2]):
        return [tensor.select(0, i) for i in range(shape[0])]
    tensor = flat(tensor, key, path)
    return [tensor] if tensor.shape[1] == width else split_width(tensor, width, key, path)


def make_slots(
    states: Sequence[States], length: int, path: Path, layouts: Sequence[Claim | None] = (), *, scaled: bool = False
) -> tuple[Slot, ...]:
    """Slots from the recorded states, with what the layout promises about each.

    Raises SampleError where shapes or dtypes do not fit each other or the ids.
    """
    if not 1 <= len(states) <= MAX_SLOTS:
        raise SampleError(f"{len(states)} recorded states", expected=f"1 to {MAX_SLOTS}", where=path)
    width = states[0].shape[-1] if states[0].shape else 0
    for index, tensor in enumerate(states):
        if tensor.dtype not in FLOATS and not scaled:
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
    promised = [*layouts, *[None] * (len(states) - len(layouts))]
    return tuple(Slot(i, tensor, layout=promised[i]) for i, tensor in enumerate(states))
