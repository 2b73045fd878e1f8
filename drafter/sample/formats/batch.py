"""Files of one batch, [B, T, ...] under every key: which of its texts is meant, and where its padding begins.

Knows nothing of layouts; B is 1 for most files, and then nothing is selected.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import SampleError
from drafter.files.stored import StoredTensor
from drafter.sample.fields import tensor_of, vector
from drafter.sample.sample import Sample

if TYPE_CHECKING:
    import torch

MIN_TOKENS = 3


def shape_of(content: Any, key: str) -> tuple[int, ...] | None:
    """The shape of the tensor under `key`; None where there is no table, no such key or no tensor."""
    value = content.get(key) if isinstance(content, dict) else None
    return value.shape if isinstance(value, StoredTensor) else None


def batch_size(content: Any) -> int:
    """B of input_ids [B, T]; 1 for [T], [1, T] and [T, 1], and for what is no batch of texts."""
    shape = shape_of(content, "input_ids") or ()
    return shape[0] if len(shape) == 2 and shape[0] > 1 and shape[1] >= MIN_TOKENS else 1


def entry(content: dict[Any, Any], key: str, part: int, path: Path) -> Any:
    """What is under `key` for text `part` of the batch: [T, ...] of [B, T, ...]; None where nothing is.

    Raises SampleError for a tensor of another batch than input_ids.
    """
    value, size = content.get(key), batch_size(content)
    if value is None or size == 1:
        return value
    tensor = tensor_of(value, key, path)
    if tensor.shape[:1] != (size,):
        raise SampleError(
            f"{key!r} is {list(tensor.shape)}", expected=f"[{size}, ...], the batch of input_ids", where=path
        )
    return tensor.select(0, part)


def cut_padding(sample: Sample, attention: Any = None) -> Sample:
    """`sample` without the rows that only fill its batch, which a warning counts.

    Padding is the tail that `attention`, an attention mask of T entries, leaves out; where there is none, the tail of
    unsupervised tokens of id 0. Without either mask nothing can be told. Raises SampleError when all is padding.
    """
    kept, why = _attended(sample, attention), "the attention mask leaves out the rest"
    if kept is None:
        kept, why = _filled(sample), "the rest has id 0 and no supervision, as the padding of a batch"
    real = 1 + int(kept.nonzero()[-1]) if bool(kept.any()) else 0
    if real == sample.length:
        return sample
    if real < MIN_TOKENS:
        raise SampleError(
            f"{real} of {sample.length} rows are real: {why}", expected=f"at least {MIN_TOKENS}", where=sample.path
        )
    said = f"{real} of {sample.length} rows are real: {why} and is cut"
    return replace(sample.cut(real), warnings=(*sample.warnings, said))


def _attended(sample: Sample, attention: Any) -> torch.Tensor | None:
    """[T] bool; None where no such mask is recorded."""
    if not isinstance(attention, StoredTensor) or attention.numel != sample.length:
        return None
    return vector(attention, "attention_mask", sample.path).read() != 0


def _filled(sample: Sample) -> torch.Tensor:
    """[T] bool: tokens that are not both 0 and unsupervised."""
    return (sample.ids != 0) | sample.supervised
