"""What a checkpoint's files say, as JSON: the short form of every result, and all of it with the evidence.

Imports no torch: a checkpoint is opened and logged before torch is there.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.config import Mla

if TYPE_CHECKING:
    from drafter.checkpoint.target import TargetFolder
    from drafter.checkpoint.vocab_map import VocabMap
    from drafter.files.find import Found


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    c = checkpoint.config
    return {
        "path": str(checkpoint.path),
        "dialect": c.dialect,
        "producer": c.producer,
        "hidden_size": c.hidden_size,
        "target_hidden_size": c.target_hidden_size,
        "fc_inputs": checkpoint.fc_inputs,
        "draft_vocab_size": checkpoint.draft_vocab_size,
        "vocab_size": c.vocab_size,
        "num_layers": c.num_layers,
        "attention": c.attention,
    }


def facts_json(checkpoint: Checkpoint, vocab: VocabMap | None) -> dict[str, Any]:
    """Everything that the checkpoint's files say, with the evidence for each field."""
    return {
        **checkpoint_json(checkpoint),
        "architecture": checkpoint.config.architecture,
        "config": {
            name: {
                "value": _plain(value),
                "source": evidence.source if evidence else None,
                "key": evidence.key if evidence else None,
                "note": evidence.note if evidence else "",
            }
            for name, value, evidence in checkpoint.config.items()
        },
        "aux_depths": _plain(checkpoint.config.aux_depths),
        "disagreements": [
            {
                "field": d.field,
                d.configured_source: _plain(d.configured),
                d.trained_source: _plain(d.trained),
            }
            for d in checkpoint.disagreements
        ],
        "tensors": [
            {"name": name, "written": t.name, "dtype": t.dtype, "shape": list(t.shape), "bytes": t.nbytes}
            for name, t in checkpoint.tensors.items()
        ],
        "expected": list(checkpoint.expected),
        "missing": dict(checkpoint.missing),
        "unused": dict(checkpoint.unused),
        "misshapen": dict(checkpoint.misshapen),
        "quantised": checkpoint.quantised,
        "warnings": list(checkpoint.warnings),
        "vocab_map": None if vocab is None else vocab_json(vocab),
        "metrics": checkpoint.metrics,
    }


def vocab_json(vocab: VocabMap | None, problem: str = "") -> dict[str, Any]:
    """How d2t is read and how both readings do; `problem` where it cannot be read."""
    if vocab is None:
        return {"reading": None, "tests": [], "warning": problem}
    return {"reading": vocab.reading, "tests": [str(t) for t in vocab.tests], "warning": vocab.warning}


def found_json(found: Found, picked: bool) -> dict[str, Any]:
    return {
        "name": found.name,
        "path": str(found.path),
        "bytes": found.size,
        "links": list(found.links),
        "state": found.state,
        "picked": picked,
    }


def target_json(target: TargetFolder | None, why: str) -> dict[str, Any]:
    """What the target's folder holds of what an inspector needs."""
    if target is None:
        return {"path": None, "why": why}
    return {
        "path": str(target.path),
        "why": why,
        "model_type": target.model_type,
        "num_layers": target.num_layers,
        "hidden_size": target.hidden_size,
        "vocab_size": target.vocab_size,
        "embed": target.embed is not None,
        "norm": target.norm is not None,
        "head": "tied to the embedding" if target.tied else target.head is not None,
    }


def _plain(value: Any) -> Any:
    if hasattr(value, "base") and hasattr(value, "type"):
        return {"type": value.type, "base": value.base, "interleaved": value.interleaved, **dict(value.parameters)}
    if isinstance(value, Mla):
        return asdict(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
