"""The tensors of two checkpoints by canonical name: which are equal, how far the others moved, what was not compared.

Read block by block from the files, fp8 multiplied out as the loader does; fused projections are compared in parts, the
rows of two heads with different vocab maps by the target ids that they stand for. Nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.fused import SCALES
from drafter.checkpoint.vocab_map import VocabMap
from drafter.checkpoint_compare.change import Change, coarser, comparable, is_float, measure
from drafter.errors import DrafterError
from drafter.files.stored import StoredTensor, contiguous
from drafter.model.dequantize import read_rows
from drafter.model.sources import load_vocab_map

CHUNK = 1 << 20  # elements of one block
GATHERED = 512  # rows of a block that are read one by one
HEAD, EMBEDDING, FC = "lm_head.weight", "embed_tokens.weight", "fc.weight"

Poll = Callable[[], None]
Progress = Callable[[int, int, str], None]  # tensors done, tensors planned, the name of the next


@dataclass(frozen=True)
class Compared:
    """One tensor that both have; `note` says which rows, where not all."""

    name: str
    ours: StoredTensor
    theirs: StoredTensor
    change: Change
    note: str = ""

    @property
    def kind(self) -> str:
        if self.change.exact:
            return "equal"
        return f"equal in {self.change.rounded_to}" if self.change.equal else "changed"


@dataclass(frozen=True)
class NotCompared:
    name: str
    why: str
    ours: StoredTensor | None
    theirs: StoredTensor | None

    @property
    def only_in(self) -> str:
        """`ours` or `theirs` for a tensor that the other has not, "" for one that both or neither have."""
        if (self.ours is None) == (self.theirs is None):
            return ""
        return "theirs" if self.ours is None else "ours"


@dataclass(frozen=True)
class TensorComparison:
    """`compared` from the largest relative change on. `fc_blocks`: block i of their fc is block `fc_blocks[i]` of ours,
    None where theirs is not ours with its column blocks moved. `same_map`: both read d2t as the same map; None where
    one of them cannot be read."""

    compared: tuple[Compared, ...]
    not_compared: tuple[NotCompared, ...]
    fc_blocks: tuple[int, ...] | None
    same_map: bool | None


def compare_tensors(
    ours: Checkpoint, theirs: Checkpoint, on_progress: Progress = lambda done, planned, name: None,
    poll: Poll = lambda: None,
) -> TensorComparison:  # fmt: skip
    """Hold every tensor of the two against each other. `poll` is called for every block and may raise Cancelled.

    A tensor whose file cannot be read any more, or whose scales do not fit, is listed as not compared.
    """
    pairs = _Pairs(ours, theirs)
    found: list[Compared] = []
    names, left = pairs.shared(), pairs.only_one()
    for done, name in enumerate(names):
        on_progress(done, len(names), name)
        poll()
        stored = ours.tensors[name], theirs.tensors[name]
        try:
            rows = pairs.rows(name)
            if isinstance(rows, str):
                left.append(NotCompared(name, rows, *stored))
                continue
            change = measure(pairs.blocks(name, rows, poll), pairs.rounded_to(name))
        except DrafterError as error:
            left.append(NotCompared(name, str(error), *stored))
            continue
        found.append(Compared(name, *stored, change, rows.note))
    on_progress(len(names), len(names), "")
    found.sort(key=lambda c: (c.change.equal, -(c.change.relative or 0.0), -(c.change.largest or 0.0), c.name))
    return TensorComparison(tuple(found), tuple(left), _fc_blocks(ours, theirs, found, poll), pairs.same_map)


@dataclass(frozen=True)
class _Rows:
    """The rows of each side that stand for the same thing, in the same order."""

    ours: range | list[int]
    theirs: range | list[int]
    note: str = ""


class _Pairs:
    """Which rows of which tensors belong together."""

    def __init__(self, ours: Checkpoint, theirs: Checkpoint) -> None:
        self.ours, self.theirs = ours, theirs
        self._maps = _map(ours), _map(theirs)

    @property
    def same_map(self) -> bool | None:
        one, two = self._maps
        return None if one is None or two is None else torch.equal(one.target_ids, two.target_ids)

    def shared(self) -> list[str]:
        scales = {f"{w.removesuffix('weight')}{s}" for c in (self.ours, self.theirs) for w in c.scales for s in SCALES}
        return [name for name in self.ours.tensors if name in self.theirs.tensors and name not in scales]

    def only_one(self) -> list[NotCompared]:
        """Tensors that one of the two lacks, or both, and who supplies them; scales belong to their weight."""
        ours, theirs = self.ours, self.theirs
        found = [NotCompared(n, _absent(n, ours, theirs), t, None) for n, t in _only(ours, theirs)]
        found += [NotCompared(n, _absent(n, theirs, ours), None, t) for n, t in _only(theirs, ours)]
        neither = [(name, supplier) for name, supplier in ours.missing.items() if name in theirs.missing]
        return found + [NotCompared(name, f"neither has one ({supplier})", None, None) for name, supplier in neither]

    def rounded_to(self, name: str) -> str:
        """Multiplied-out fp8 is not rounded again: its steps depend on the scales."""
        if name in self.ours.scales or name in self.theirs.scales:
            return ""
        return coarser(self.ours.tensors[name].dtype, self.theirs.tensors[name].dtype)

    def rows(self, name: str) -> _Rows | str:
        """The rows to compare, or the reason why there are none."""
        a, b = self.ours.tensors[name], self.theirs.tensors[name]
        if not comparable(a.dtype, b.dtype):
            return f"{a.dtype} against {b.dtype}"
        if name == HEAD and len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[1] and self.same_map is False:
            return self._by_target_id(a, b)
        if name == EMBEDDING and len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[1]:
            rows = min(a.shape[0], b.shape[0])
            more = f"the first {rows} rows, of {a.shape[0]} and {b.shape[0]}" if a.shape != b.shape else ""
            return _Rows(range(rows), range(rows), more)
        if a.shape != b.shape:
            return f"other shapes: {list(a.shape)} against {list(b.shape)}"
        rows = a.shape[0] if a.shape else 1
        unsure = name == HEAD and self.same_map is None
        return _Rows(range(rows), range(rows), "row by row, as a vocab map cannot be read" if unsure else "")

    def _by_target_id(self, a: StoredTensor, b: StoredTensor) -> _Rows | str:
        ours, theirs = self._maps
        assert ours is not None and theirs is not None
        if (ours.size, theirs.size) != (a.shape[0], b.shape[0]):
            return f"heads of {a.shape[0]} and {b.shape[0]} rows, maps of {ours.size} and {theirs.size}"
        known = ours.target_ids[ours.target_ids < theirs.draft_ids.numel()]
        shared = known[theirs.draft_ids[known] >= 0]
        shared = shared[ours.draft_ids[shared] >= 0].unique()
        if not shared.numel():
            return "the vocab maps share no target id"
        note = (
            f"by target id: {shared.numel()} shared, {ours.size - shared.numel()} only in ours, "
            f"{theirs.size - shared.numel()} only in theirs"
        )
        return _Rows(ours.draft_ids[shared].tolist(), theirs.draft_ids[shared].tolist(), note)

    def blocks(self, name: str, rows: _Rows, poll: Poll) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs of blocks of the same shape each."""
        sides = [(c, c.tensors[name]) for c in (self.ours, self.theirs)]
        flat = [_flat(checkpoint, stored, name, len(rows.ours)) for checkpoint, stored in sides]
        if isinstance(rows.ours, range) and flat[0] is not None and flat[1] is not None:
            for start in range(0, flat[0].numel, CHUNK):
                poll()
                stop = min(start + CHUNK, flat[0].numel)
                yield flat[0].rows(start, stop), flat[1].rows(start, stop)
            return
        step = min(_step(stored) for _, stored in sides)
        step = step if isinstance(rows.ours, range) else min(step, GATHERED)
        for start in range(0, len(rows.ours), step):
            poll()
            part = slice(start, start + step)
            yield read_rows(self.ours, name, rows.ours[part]), read_rows(self.theirs, name, rows.theirs[part])


def _flat(checkpoint: Checkpoint, stored: StoredTensor, name: str, rows: int) -> StoredTensor | None:
    """The first `rows` rows as one row of elements, where they lie so and need no scales."""
    if name in checkpoint.scales or stored.strides != contiguous(stored.shape):
        return None
    numel = stored.numel // stored.shape[0] * rows if stored.shape and stored.shape[0] else stored.numel
    return replace(stored, shape=(numel,), strides=(1,))


def _step(stored: StoredTensor) -> int:
    """Rows of one block; a transposed tensor has its rows all over the file and is read at once."""
    if not stored.shape or stored.strides != contiguous(stored.shape):
        return max(1, stored.shape[0] if stored.shape else 1)
    return max(1, CHUNK * stored.shape[0] // max(stored.numel, 1))


def _map(checkpoint: Checkpoint) -> VocabMap | None:
    try:
        return load_vocab_map(checkpoint)
    except DrafterError:
        return None


def _only(one: Checkpoint, other: Checkpoint) -> list[tuple[str, StoredTensor]]:
    scales = {f"{weight.removesuffix('weight')}{scale}" for weight in one.scales for scale in SCALES}
    return [(n, t) for n, t in one.tensors.items() if n not in other.tensors and n not in scales]


def _absent(name: str, there: Checkpoint, here: Checkpoint) -> str:
    supplier = here.missing.get(name)
    if supplier is not None:
        return f"the other has none ({supplier})"
    if here.quantised:
        return f"the other has {here.quantised}, which is not read"
    unused = there.unused.get(name)
    return f"the other has none; {unused}" if unused else "the other has none"


# --- fc with its blocks moved


def _fc_blocks(ours: Checkpoint, theirs: Checkpoint, found: Sequence[Compared], poll: Poll) -> tuple[int, ...] | None:
    """Which of our fc's column blocks each of theirs is, to the bit; None where they are not, or have not moved."""
    changed = any(c.name == FC and not c.change.equal for c in found)
    inputs, stored = ours.fc_inputs, ours.tensors.get(FC)
    if not changed or stored is None or len(stored.shape) != 2 or stored.shape != theirs.tensors[FC].shape:
        return None
    if inputs < 2 or theirs.fc_inputs != inputs or stored.shape[1] % inputs:
        return None
    same = torch.ones(inputs, inputs, dtype=torch.bool)  # [theirs, ours]
    step = min(_step(stored), _step(theirs.tensors[FC]))
    for start in range(0, stored.shape[0], step):
        poll()
        rows = range(start, min(start + step, stored.shape[0]))
        parts = [read_rows(c, FC, rows).float().chunk(inputs, 1) for c in (ours, theirs)]
        same &= torch.tensor([[torch.equal(a, b) for a in parts[0]] for b in parts[1]])
        if not bool(same.any(1).all()):
            return None
    blocks: list[int] = []
    for row in same.tolist():
        free = [i for i, equal in enumerate(row) if equal and i not in blocks]
        if not free:
            return None
        blocks.append(free[0])
    return tuple(blocks)


# --- JSON


def tensors_json(found: TensorComparison) -> dict[str, Any]:
    return {
        "compared": [
            {
                "name": c.name,
                "kind": c.kind,
                "relative": c.change.relative,
                "largest": c.change.largest,
                "cosine": c.change.cosine,
                "changed": c.change.changed,
                "elements": c.change.elements,
                "not_finite": list(c.change.not_finite),
                "note": c.note,
                "ours": _stored_json(c.ours),
                "theirs": _stored_json(c.theirs),
            }
            for c in found.compared
        ],
        "not_compared": [
            {
                "name": n.name,
                "why": n.why,
                "only_in": n.only_in or None,
                "ours": _stored_json(n.ours),
                "theirs": _stored_json(n.theirs),
            }
            for n in found.not_compared
        ],
        "fc_blocks": list(found.fc_blocks) if found.fc_blocks is not None else None,
        "same_map": found.same_map,
    }


def _stored_json(stored: StoredTensor | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    return {"written": stored.name, "dtype": stored.dtype, "shape": list(stored.shape)}


def is_weight(compared: Compared) -> bool:
    """Whether it holds numbers that training moves, not a map of tokens."""
    return is_float(compared.ours.dtype)
