"""Two checkpoints compared without samples: configs, tensors, and the one sentence about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint_compare.configs import Face, compare_configs, faces_json
from drafter.checkpoint_compare.tensors import Progress, TensorComparison, compare_tensors, tensors_json
from drafter.checkpoint_compare.verdict import Verdict, judge


@dataclass(frozen=True)
class Comparison:
    """`faces`: the configs that servers read, and those that training wrote where one of the two has such."""

    ours: Checkpoint
    theirs: Checkpoint
    faces: tuple[Face, ...]
    tensors: TensorComparison
    verdict: Verdict


def compare(
    ours: Checkpoint,
    theirs: Checkpoint,
    on_progress: Progress = lambda done, planned, name: None,
    poll: Callable[[], None] = lambda: None,
) -> Comparison:
    """Everything that the two say and hold. `poll` is called for every block read and may raise Cancelled."""
    faces = compare_configs(ours, theirs)
    tensors = compare_tensors(ours, theirs, on_progress, poll)
    return Comparison(ours, theirs, faces, tensors, judge(ours, theirs, faces, tensors))


def comparison_json(found: Comparison) -> dict[str, Any]:
    verdict = found.verdict
    return {
        "ours": _side_json(found.ours),
        "theirs": _side_json(found.theirs),
        "verdict": verdict.sentence,
        "verdict_kind": verdict.kind,
        "median_cosine": verdict.cosine,
        "differing": list(verdict.differing),
        "configs": faces_json(found.faces),
        "tensors": tensors_json(found.tensors),
    }


def _side_json(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    return {
        "path": str(checkpoint.path),
        "dialect": config.dialect,
        "producer": config.producer,
        "dtype": checkpoint.dtype,
        "bytes": checkpoint.weight_bytes,
        "metrics": checkpoint.metrics,
        "warnings": list(checkpoint.warnings),
    }
