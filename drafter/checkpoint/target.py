"""The target model's folder, as far as an inspector needs it: embedding, head, final norm, and a few config fields.

One tensor at a time is read; the target's layers are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafter.checkpoint.config import finite
from drafter.checkpoint.tensor_files import TensorFiles
from drafter.errors import CheckpointError, PathError
from drafter.files.json_file import read_json
from drafter.files.path import there
from drafter.files.stored import StoredTensor

# families whose RMSNorm multiplies by (1 + weight); the list that speculators 0.9.0 keeps for the final norm
ONE_PLUS_WEIGHT = frozenset({"gemma", "gemma2", "gemma3", "gemma3_text", "qwen3_5", "qwen3_5_text", "recurrent_gemma"})
_EMBEDDINGS = ("embed_tokens.weight", "tok_embeddings.weight", "llm.embed.weight", "backbone.embeddings.weight")


@dataclass(frozen=True)
class TargetFolder:
    """`embed` [V, Ht], `head` [V, Ht] (the embedding when tied), `norm` [Ht]; None where the folder has none."""

    path: Path
    model_type: str
    num_layers: int | None
    hidden_size: int | None
    vocab_size: int | None
    rms_norm_eps: float
    embed: StoredTensor | None
    head: StoredTensor | None
    norm: StoredTensor | None
    tied: bool
    has_fc: bool = False  # what only drafters have

    @property
    def norm_is_one_plus_weight(self) -> bool:
        return self.model_type in ONE_PLUS_WEIGHT


def open_target(path: Path) -> TargetFolder:
    """The target in `path`, headers only.

    Raises PathError when there is no such folder or no config in it, FileError for broken files.
    """
    if not there(path) or not path.is_dir():
        raise PathError("no such target folder", where=path, hint="check --target")
    if not (path / "config.json").is_file():
        raise PathError("a target folder without config.json", where=path)
    config = read_json(path / "config.json")
    text = config.get("text_config")
    inner: dict[str, Any] = {**config, **text} if isinstance(text, dict) else config
    files = TensorFiles.of_folder(path)
    vocab, width = _size(inner, "vocab_size", path), _size(inner, "hidden_size", path)
    # a vision tower's table ends in the same name and has another shape
    embed = next((t for t in (files.ending(name, (vocab, width)) for name in _EMBEDDINGS) if t is not None), None)
    tied = inner.get("tie_word_embeddings") is True
    head = files.ending("lm_head.weight", (vocab, width))
    norm = files.ending("model.norm.weight") or files.ending("norm.weight")
    for tensor, dimensions in ((embed, 2), (head, 2), (norm, 1)):
        if tensor is not None and (len(tensor.shape) != dimensions or not tensor.numel):
            raise CheckpointError(f"{tensor.name!r} is {list(tensor.shape)}", where=tensor.path)
    return TargetFolder(
        path=path,
        model_type=str(inner.get("model_type", "")),
        num_layers=_size(inner, "num_hidden_layers", path),
        hidden_size=width,
        vocab_size=vocab,
        rms_norm_eps=_epsilon(inner, path),
        embed=embed,
        head=embed if head is None and tied else head,
        norm=norm,
        tied=head is None and tied,
        has_fc=files.ending("fc.weight") is not None,
    )


def _epsilon(config: dict[str, Any], path: Path) -> float:
    value = config.get("rms_norm_eps")
    number = 1e-6 if value is None else finite(value)
    if number is None or number < 0:
        raise CheckpointError(f"'rms_norm_eps' is {value!r:.40}", expected="a number >= 0", where=path / "config.json")
    return number


def _size(config: dict[str, Any], key: str, path: Path) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 < value <= 1 << 32:
        raise CheckpointError(f"{key!r} is {value!r:.40}", expected="a size", where=path / "config.json")
    return value
