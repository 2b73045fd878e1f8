"""What several tests of the library need: a refusal with its promises, and tiny drafters opened from disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint, open_checkpoint
from drafter.checkpoint.target import open_target
from drafter.drafting.chains import Step, draft_steps
from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError
from drafter.files.find import find_checkpoints
from drafter.model.device import Placement
from drafter.model.drafter import Eagle3Drafter
from drafter.model.weights import build_drafter
from drafter.sample.open import open_sample
from drafter.wiring import Ordering, Wiring
from tests import tiny

# name -> which optional tensors the weights have
VARIANTS: dict[str, dict[str, bool]] = {
    "plain": {},
    "input_norm": {"input_norm": True},
    "fc_norm": {"fc_norm": True},
    "attention_bias": {"attention_bias": True, "mlp_bias": True},
    "qk_norm": {"qk_norm": True},
}


@contextmanager
def refused(kind: type[DrafterError], *words: str) -> Iterator[None]:
    """The block raises `kind`, whose message is one harmless line that holds all `words`."""
    with pytest.raises(kind) as caught:
        yield
    line = str(caught.value)
    assert line.isprintable() and len(line) <= 1000, line
    for word in words:
        assert word in line, line


def same(ours: Tensor, theirs: Tensor) -> bool:
    """Equal to the bit, NaN included."""
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (ours, theirs)))


def opened(folder: Path) -> Checkpoint:
    (found,) = find_checkpoints(folder)
    return open_checkpoint(found)


def placed(dtype: torch.dtype = torch.float32) -> Placement:
    return Placement(torch.device("cpu"), dtype, "test")


def built(folder: Path, dtype: torch.dtype = torch.float32, target: Path | None = None) -> Eagle3Drafter:
    return build_drafter(opened(folder), open_target(target) if target else None, placed(dtype))


def tiny_run(
    folder: Path,
    weights: dict[str, Tensor],
    sample: tiny.TinySample,
    sizes: tiny.Sizes = tiny.SIZES,
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> SampleRun:
    """`weights` and `sample` written to `folder`, opened, ready to draft. `options` go to `tiny.write_nested`."""
    drafter = built(tiny.write_nested(folder / "checkpoint", weights, sizes, **options), dtype)
    return SampleRun(drafter, open_sample(tiny.write_v1_sample(folder / "data_0.pt", sample)))


def trained(run: SampleRun) -> Wiring:
    return Wiring.trained(run.drafter.config)


def steps(
    run: SampleRun, ordering: Ordering, depth: int, rows: Sequence[int] | None = None, own_tokens: bool = False
) -> list[Step]:
    """All draft steps of `rows` (all of them by default) in one block, in the trained wiring."""
    chosen = torch.arange(run.rows) if rows is None else torch.tensor(rows)
    context = run.context(ordering, trained(run), int(chosen[-1]) + 1, lambda: None)
    return list(draft_steps(run, context, chosen, depth, own_tokens, lambda: None))
