"""`shard-{number}.safetensors` of NeMo Automodel's precompute_eagle3: n samples, padded to S, already shifted.

Row i holds x[i+1], its loss mask, and the verifier's distribution after it; states are not shifted. x[0] is nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError, SampleError
from drafter.files.json_file import read_json
from drafter.files.path import there
from drafter.files.safetensors_file import read_header
from drafter.files.stored import FLOATS, INTEGERS, StoredTensor
from drafter.sample.fields import MAX_SLOTS, flat, make_slots, read_ids, read_mask, split_width, vector
from drafter.sample.formats.batch import batch_size, cut_padding, entry
from drafter.sample.formats.layouts import DEFAULT_AUX, depth_layout
from drafter.sample.sample import UNKNOWN_ID, Claim, Sample
from drafter.sample.source import Reader, Source

if TYPE_CHECKING:
    import torch

NAME = "NeMo Automodel (shard-{number}.safetensors)"
MANIFEST, EMBEDDINGS, VERSION = "manifest.json", "target_embeddings.safetensors", 2
PROBS, VALUES, INDICES = "target_probs", "target_probs_values", "target_probs_indices"
BLOCK = 512  # rows of probabilities read at once
_BLOCK_NUMBERS = 1 << 24  # and no more numbers than this


def fits(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and {"input_ids", "attention_mask", "loss_mask", "aux_hidden_states"} <= content.keys()
        and any(key in content for key in (PROBS, VALUES, "position_mask"))
    )


def parts(source: Source) -> int:
    return batch_size(source.content)


def read(source: Source) -> Sample:
    content, part, path = source.content, source.part, source.path
    manifest, said = _manifest(source.file)
    ids, mask = _unshifted(content, part, path)
    states = _states(source, path, manifest)
    slots = make_slots(states, ids.numel(), path, _layouts(manifest, len(states)))
    warnings = ("the first token is not in the file, which holds shifted ids", *said)
    padded = Sample(path, NAME, ids, mask, slots, warnings, aux_rule=DEFAULT_AUX)
    attention = entry(content, "attention_mask", part, path)
    _check_padding(attention, padded)
    sample = cut_padding(padded, attention)
    return replace(sample, verifier_draft=_choices(content, part, sample))


def _unshifted(content: dict[Any, Any], part: int, path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """ids [S] and mask [S] with the token in front that the file leaves out; its last entry is only filled up."""
    import torch

    later = read_ids(entry(content, "input_ids", part, path), "input_ids", path)
    stored = vector(entry(content, "loss_mask", part, path), "loss_mask", path)
    supervised, _ = read_mask(stored, later.numel(), path)
    assert supervised is not None  # as one is stored
    ids = torch.cat([torch.tensor([UNKNOWN_ID]), later[:-1]])
    return ids, torch.cat([torch.tensor([False]), supervised[:-1]])


def _check_padding(attention: Any, sample: Sample) -> None:
    stored = vector(attention, "attention_mask", sample.path)
    if stored.shape[0] != sample.length:
        said = f"an attention mask of {stored.shape[0]} entries for {sample.length} tokens"
        raise SampleError(said, expected="one each", where=sample.path)
    kept = stored.read() != 0
    if not bool(kept[: int(kept.sum())].all()):
        raise SampleError("padding before or between the tokens", expected="padding after them", where=sample.path)


def _manifest(shard: Path) -> tuple[dict[str, Any], list[str]]:
    path = shard.parent / MANIFEST
    if not there(path):
        return {}, [f"no {MANIFEST} beside the shard, so nothing says which layers it holds"]
    try:
        manifest = read_json(path)
    except DrafterError as error:
        return {}, [f"{MANIFEST} cannot be read: {error.found}"]
    version = manifest.get("format_version")
    known = type(version) is int and version == VERSION
    return manifest, [] if known else [f"{MANIFEST} has format_version {version!r:.20}, known is {VERSION}"]


def _layer_ids(manifest: dict[str, Any]) -> list[int]:
    """Layers counted from 0, whose outputs were recorded; none where the manifest does not name them."""
    ids = manifest.get("aux_layer_ids")
    good = isinstance(ids, list) and len(ids) <= MAX_SLOTS and all(type(i) is int and -1 <= i < 10_000 for i in ids)
    return ids if good and isinstance(ids, list) else []


def _states(source: Source, path: Path, manifest: dict[str, Any]) -> list[StoredTensor]:
    key = "aux_hidden_states"
    wide = flat(entry(source.content, key, source.part, path), key, path)
    count = len(_layer_ids(manifest))
    fitting = count > 0 and wide.shape[1] % count == 0
    width = wide.shape[1] // count if fitting else source.width or _embedding_width(source.file)
    return split_width(wide, width, key, path)


def _embedding_width(shard: Path) -> int | None:
    """H by the target's embedding [V, H] that lies beside the shards."""
    try:
        weight = read_header(shard.parent / EMBEDDINGS).tensors.get("weight")
    except DrafterError:
        return None
    return weight.shape[1] if weight is not None and len(weight.shape) == 2 else None


def _layouts(manifest: dict[str, Any], count: int) -> list[Claim | None]:
    ids = _layer_ids(manifest)
    return [depth_layout(i + 1, MANIFEST) for i in ids] if len(ids) == count else []


def _choices(content: dict[Any, Any], part: int, sample: Sample) -> Callable[[], torch.Tensor] | None:
    """The verifier's choice among the draft vocabulary after x[0..t], [T] int64, -1 where there is none; read once.

    `position_mask` is not asked: it also leaves out rows whose best token of all is outside of the draft vocabulary.
    """
    if PROBS in content:
        probs, indices = _distribution(content, PROBS, part, sample, FLOATS), None
    elif VALUES in content and INDICES in content:
        probs = _distribution(content, VALUES, part, sample, FLOATS)
        indices = _distribution(content, INDICES, part, sample, INTEGERS)
        if probs.shape != indices.shape:
            said = f"{INDICES!r} is {list(indices.shape)}"
            raise SampleError(said, expected=f"{list(probs.shape)}, as the values", where=sample.path)
    else:
        return None
    return cache(partial(_read_choices, probs, indices))


def _read_choices(probs: StoredTensor, indices: StoredTensor | None) -> torch.Tensor:
    import torch

    step = max(1, min(BLOCK, _BLOCK_NUMBERS // probs.shape[1]))
    blocks = [(start, min(start + step, probs.shape[0])) for start in range(0, probs.shape[0], step)]
    found = [_best(probs.rows(a, b), None if indices is None else indices.rows(a, b)) for a, b in blocks]
    return torch.cat([torch.tensor([UNKNOWN_ID]), *found])


def _distribution(content: dict[Any, Any], key: str, part: int, sample: Sample, dtypes: frozenset[str]) -> StoredTensor:
    """[T - 1, D or k]: row i is what comes after x[0..i+1]."""
    tensor = flat(entry(content, key, part, sample.path), key, sample.path)
    if tensor.shape[0] < sample.length or not tensor.shape[1] or tensor.dtype not in dtypes:
        said = f"{key!r} of a sample is {list(tensor.shape)} {tensor.dtype}"
        raise SampleError(said, expected=f"[{sample.length} or more, choices]", where=sample.path)
    return tensor.head(sample.length - 1)


def _best(probs: torch.Tensor, indices: torch.Tensor | None) -> torch.Tensor:
    """The most probable draft id of each row, the lowest of equals; -1 where no number is above zero."""
    import torch

    probs = probs.float()
    top = probs.max(dim=1, keepdim=True).values  # NaN where a row holds one
    ids = torch.arange(probs.shape[1]).expand_as(probs) if indices is None else indices.to(torch.int64)
    best = torch.where(probs == top, ids, torch.iinfo(torch.int64).max).min(dim=1).values
    return torch.where((top[:, 0] > 0) & (best >= 0), best, UNKNOWN_ID)


READER = Reader(
    NAME,
    "input_ids, attention_mask, loss_mask [n, S], aux_hidden_states [n, S, layers * H], target_probs [n, S, D] or "
    "target_probs_values and target_probs_indices [n, S, k]",
    fits,
    read,
    parts,
)
