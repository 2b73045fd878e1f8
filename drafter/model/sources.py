"""Where a drafter's embedding, head and vocab map come from: the checkpoint, or the target, as a wiring asks.

Each is read when a wiring first asks for it, and kept. What is not there is refused by name.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.target import TargetFolder
from drafter.checkpoint.vocab_map import VocabMap, read_vocab_map
from drafter.errors import CheckpointError, WiringError
from drafter.files.stored import StoredTensor
from drafter.model.dequantize import read_weight
from drafter.model.device import Placement
from drafter.model.embedding import EmbeddingTable


class Sources(Protocol):
    """Every method raises CheckpointError where the checkpoint and the target have no such thing."""

    def embedding(self, which: str) -> EmbeddingTable:
        """`own`: the checkpoint's table, else the target's; `target`: the target's. [V, H]."""
        ...

    def head(self, which: str, d2t: str, embedding: str = "own") -> Tensor:
        """[D, H] where and as the drafter runs. `target`: the target's rows at the mapped ids; `tied`: the first D
        rows of `embedding`, the one in use; `own`: the checkpoint's, else `tied` where its config ties, else `target`.
        """
        ...

    def vocab(self, d2t: str) -> VocabMap:
        """`data`: the reading that the data supports; `offset` and `direct` whatever the data says, where the ids are
        in range."""
        ...


class CheckpointSources:
    """Sources of one checkpoint, with a target's folder where there is one."""

    def __init__(self, checkpoint: Checkpoint, target: TargetFolder | None, placement: Placement) -> None:
        self._checkpoint, self._target, self._placement = checkpoint, target, placement
        self._tables: dict[str, EmbeddingTable] = {}
        self._heads: dict[tuple[str, str], Tensor] = {}
        self._maps: dict[str, VocabMap] = {}

    def embedding(self, which: str) -> EmbeddingTable:
        if which not in self._tables:
            found = find_embedding(self._checkpoint, self._target, which)
            # one table for both names where they are the same, so that its rows are kept once
            same = [table for table in self._tables.values() if table.stored == found.stored]
            self._tables[which] = same[0] if same else found
        return self._tables[which]

    def head(self, which: str, d2t: str, embedding: str = "own") -> Tensor:
        if which == "own" and "lm_head.weight" in self._checkpoint.tensors:
            key = ("own", "")
        elif which == "own" and self._checkpoint.run_config.tie_lm_head:
            key = ("tied", embedding)
        elif which in ("own", "target"):
            key = ("target", d2t)
        elif which == "tied":
            key = ("tied", embedding)
        else:
            raise WiringError(f"the head {which!r}", expected="own, target or tied")
        if key not in self._heads:
            self._heads[key] = self._read_head(*key)
        return self._heads[key]

    def vocab(self, d2t: str) -> VocabMap:
        if d2t not in self._maps:
            self._maps[d2t] = load_vocab_map(self._checkpoint, d2t)
        return self._maps[d2t]

    def _read_head(self, kind: str, detail: str) -> Tensor:
        if kind == "own":
            return read_weight(self._checkpoint, "lm_head.weight", self._placement)
        if kind == "tied":
            table = self.embedding(detail)
            rows = self._checkpoint.draft_vocab_size
            if table.stored.shape[0] < rows:
                raise self._refusal(f"a head of {rows} rows tied to an embedding of {table.stored.shape[0]}")
            return self._placed(table.rows(torch.arange(rows)))
        vocab, head = self.vocab(detail), self._target_head()
        needed, width = int(vocab.target_ids.max()) + 1, self._checkpoint.run_config.hidden_size
        if head.shape[1] != width or head.shape[0] < needed:
            expected = f"[{needed} or more, {width}]"
            raise CheckpointError(f"the target's head is {list(head.shape)}", expected=expected, where=head.path)
        return self._placed(head.gather(vocab.target_ids.tolist()))  # [D, H]

    def _target_head(self) -> StoredTensor:
        if self._target is None or self._target.head is None:
            absent = "" if "lm_head.weight" in self._checkpoint.tensors else "no lm_head in the checkpoint, and "
            raise self._refusal(f"{absent}no target folder that has a head")
        return self._target.head

    def _placed(self, rows: Tensor) -> Tensor:
        return rows.to(self._placement.device, self._placement.dtype)

    def _refusal(self, found: str) -> CheckpointError:
        return _refusal(found, self._checkpoint)


def find_embedding(checkpoint: Checkpoint, target: TargetFolder | None, which: str = "own") -> EmbeddingTable:
    """The drafter's own embedding, else the target's; with `target` the target's. Raises CheckpointError."""
    if which not in ("own", "target"):
        raise WiringError(f"the embedding {which!r}", expected="own or target")
    own = checkpoint.tensors.get("embed_tokens.weight") if which == "own" else None
    if own is not None:
        return _table(own, "the checkpoint's own", checkpoint)
    if target is None or target.embed is None:
        asked = "no embed_tokens in the checkpoint, and " if which == "own" else ""
        raise _refusal(f"{asked}no target folder that has an embedding", checkpoint)
    return _table(target.embed, "the target's", checkpoint)


def _table(stored: StoredTensor, source: str, checkpoint: Checkpoint) -> EmbeddingTable:
    config = checkpoint.run_config
    if len(stored.shape) != 2 or stored.shape[1] != config.hidden_size:
        raise CheckpointError(
            f"{source} embedding is {list(stored.shape)}",
            expected=f"[{config.vocab_size}, {config.hidden_size}]",
            where=stored.path,
        )
    return EmbeddingTable(stored, source)


def _refusal(found: str, checkpoint: Checkpoint) -> CheckpointError:
    return CheckpointError(found, where=checkpoint.path, hint="name the target's folder with --target")


def load_vocab_map(checkpoint: Checkpoint, reading: str = "data") -> VocabMap:
    """d2t as the checkpoint holds it. Raises CheckpointError where it cannot be a map of this vocabulary."""
    d2t, t2d = checkpoint.tensors.get("d2t"), checkpoint.tensors.get("t2d")
    sizes = checkpoint.draft_vocab_size, checkpoint.run_config.vocab_size
    try:
        return read_vocab_map(d2t.read() if d2t else None, t2d.read() if t2d else None, *sizes, reading)
    except CheckpointError as error:
        raise CheckpointError(error.found, expected=error.expected, where=checkpoint.path, hint=error.hint) from error
