"""How many heads of which size the rows of q, k and v and the columns of o allow, beside what the config says.

q and k alone allow several readings; a norm of q or k tells the size. Knows no score: where two fit, scores decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from drafter.checkpoint.config import DrafterConfig
from drafter.files.stored import StoredTensor

AT = "layers.0.self_attn."


@dataclass(frozen=True)
class HeadSizes:
    heads: int
    kv_heads: int
    head_dim: int

    def changes(self, config: DrafterConfig) -> dict[str, int]:
        """The keys that the config has otherwise, with these values."""
        keys = {
            "num_attention_heads": (self.heads, config.num_heads),
            "num_key_value_heads": (self.kv_heads, config.num_kv_heads),
            "head_dim": (self.head_dim, config.head_dim),
        }
        return {key: wanted for key, (wanted, found) in keys.items() if wanted != found}


def readings(
    config: DrafterConfig, tensors: Mapping[str, StoredTensor], likely: int | None = None
) -> tuple[HeadSizes, ...]:
    """The readings that the shapes allow, first of `likely` head_dim, then with the fewest keys to change.

    Each leaves at least one of the config's three numbers as it is, but where a norm of q or k tells the size. Empty
    where the tensors do not fit each other, whatever the config.
    """
    rows = _rows(tensors)
    if config.mla is not None or rows is None:
        return ()
    q, kv = rows
    found = {one for size in _sizes(config, tensors, q, kv) if (one := _of_size(q, kv, size)) is not None}
    return tuple(sorted(found, key=lambda one: (one.head_dim != likely, len(one.changes(config)), one.head_dim)))


def _rows(tensors: Mapping[str, StoredTensor]) -> tuple[int, int] | None:
    """(rows of q, rows of k), where v has as many as k and o as many columns as q has rows."""
    shapes = [t.shape if (t := tensors.get(f"{AT}{part}_proj.weight")) is not None else () for part in "qkvo"]
    if any(len(shape) != 2 for shape in shapes):
        return None
    q, k, v, o = shapes
    return (q[0], k[0]) if k[0] == v[0] and o[1] == q[0] else None


def _sizes(config: DrafterConfig, tensors: Mapping[str, StoredTensor], q: int, kv: int) -> Iterator[int]:
    """head_dim by the norms, else as the config says it, or as the heads that it names divide the rows."""
    norms = [t.shape[0] for part in "qk" if (t := tensors.get(f"{AT}{part}_norm.weight")) is not None and t.shape]
    if norms:
        yield norms[0]
        return
    yield config.head_dim
    for rows, heads in ((q, config.num_heads), (kv, config.num_kv_heads)):
        if heads and rows % heads == 0:
            yield rows // heads


def _of_size(q: int, kv: int, size: int) -> HeadSizes | None:
    if size < 2 or size % 2 or q % size or kv % size or not kv or (q // size) % (kv // size):
        return None
    return HeadSizes(q // size, kv // size, size)


def cure(found: tuple[HeadSizes, ...], config: DrafterConfig, prefix: str, likely: int | None = None) -> str:
    """What to write, each key with its value; where two readings fit both of them."""
    said = [", ".join(f"{prefix}{key} = {value}" for key, value in one.changes(config).items()) for one in found[:2]]
    if len(found) == 1:
        return f"config.json: {said[0]}"
    first = f" (the target's head_dim is {likely} too)" if found[0].head_dim == likely else ""
    either = f"config.json: {said[0]}{first}; or else {said[1]}"
    return f"{either}: the shapes fit both, so write one and look at the scores; only the right one predicts"
