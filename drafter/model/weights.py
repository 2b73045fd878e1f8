"""The drafter's weights from its checkpoint, cast to where it runs; what is not there and cannot be run is refused."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.target import TargetFolder
from drafter.checkpoint.vocab_map import VocabMap, read_vocab_map
from drafter.errors import CheckpointError
from drafter.files.stored import StoredTensor
from drafter.model.device import Placement
from drafter.model.drafter import Eagle3Drafter
from drafter.model.embedding import EmbeddingTable
from drafter.model.rope import SUPPORTED

_NOT_WEIGHTS = ("embed_tokens.weight", "d2t", "t2d", "verifier_lm_head.weight", "verifier_norm.weight")


def check_runnable(checkpoint: Checkpoint) -> None:
    """Refuse, by name, what this version would compute wrongly. Raises CheckpointError."""
    config, where = checkpoint.config, checkpoint.path
    if not checkpoint.has_weights:
        raise CheckpointError("a checkpoint without weights", expected="model.safetensors", where=where)
    refused = {
        f"attention {config.attention!r}": config.attention != "gqa",
        f"{config.num_layers} decoder layers": config.num_layers != 1,
        f"RoPE of type {config.rope.type!r}": config.rope.type not in SUPPORTED,
        "partial rotary embedding": config.rope.parameters.get("partial_rotary_factor") not in (None, 1, 1.0),
        f"the activation {config.hidden_act!r}": config.hidden_act not in ("silu", "swish"),
        "a drafter without auxiliary states": not config.use_aux,
        "a head tied to the embedding": config.tie_lm_head,
    }
    for what, present in refused.items():
        if present:
            raise CheckpointError(f"{what}, which this version does not compute", where=where)
    odd = [t for t in checkpoint.tensors.values() if t.dtype not in ("BF16", "F16", "F32", "F64") and "2" not in t.name]
    if odd:
        raise CheckpointError(f"{odd[0].name!r} is {odd[0].dtype}", expected="plain floats, not quantised", where=where)
    if checkpoint.missing:
        names = ", ".join(map(repr, checkpoint.missing[:3]))
        raise CheckpointError(f"no {names} ({len(checkpoint.missing)} missing)", where=where)


def load_weights(checkpoint: Checkpoint, placement: Placement, poll: Callable[[], None]) -> dict[str, Tensor]:
    """Everything but the embedding, by canonical name. `poll` is called between tensors and may raise Cancelled."""
    check_runnable(checkpoint)
    weights = {}
    for name, stored in checkpoint.tensors.items():
        if name not in _NOT_WEIGHTS and name not in checkpoint.unused:
            poll()
            weights[name] = stored.read().to(placement.device, placement.dtype)
    _check_shapes(checkpoint, weights)
    return weights


def _check_shapes(checkpoint: Checkpoint, weights: dict[str, Tensor]) -> None:
    c = checkpoint.config
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    attn, mlp = "layers.0.self_attn", "layers.0.mlp"
    if c.num_heads % max(c.num_kv_heads, 1):
        raise CheckpointError(f"{c.num_heads} heads over {c.num_kv_heads} key heads", where=checkpoint.path)
    shapes = {
        f"{attn}.q_proj.weight": (q, 2 * c.hidden_size),
        f"{attn}.k_proj.weight": (kv, 2 * c.hidden_size),
        f"{attn}.v_proj.weight": (kv, 2 * c.hidden_size),
        f"{attn}.o_proj.weight": (c.hidden_size, q),
        f"{mlp}.gate_proj.weight": (c.intermediate_size, c.hidden_size),
        f"{mlp}.up_proj.weight": (c.intermediate_size, c.hidden_size),
        f"{mlp}.down_proj.weight": (c.hidden_size, c.intermediate_size),
        "norm.weight": (c.hidden_size,),
    }
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != shape:
            raise CheckpointError(
                f"{name!r} is {list(weights[name].shape)}", expected=f"{list(shape)}", where=checkpoint.path
            )


def load_vocab_map(checkpoint: Checkpoint) -> VocabMap:
    """d2t as the checkpoint holds it. Raises CheckpointError where it cannot be a map of this vocabulary."""
    d2t, t2d = checkpoint.tensors.get("d2t"), checkpoint.tensors.get("t2d")
    try:
        return read_vocab_map(
            d2t.read() if d2t else None,
            t2d.read() if t2d else None,
            checkpoint.draft_vocab_size,
            checkpoint.config.vocab_size,
        )
    except CheckpointError as error:
        raise CheckpointError(error.found, expected=error.expected, where=checkpoint.path, hint=error.hint) from error


def find_embedding(checkpoint: Checkpoint, target: TargetFolder | None) -> EmbeddingTable:
    """The drafter's own embedding, else the target's. Raises CheckpointError where none fits."""
    own = checkpoint.tensors.get("embed_tokens.weight")
    if own is not None:
        return _table(own, "the checkpoint's own", checkpoint)
    if target is None or target.embed is None:
        raise CheckpointError(
            "no embed_tokens in the checkpoint, and no target folder that has it",
            expected="the target's folder",
            where=checkpoint.path,
            hint="name it with --target",
        )
    return _table(target.embed, "the target's", checkpoint)


def _table(stored: StoredTensor, source: str, checkpoint: Checkpoint) -> EmbeddingTable:
    if len(stored.shape) != 2 or stored.shape[1] != checkpoint.config.hidden_size:
        raise CheckpointError(
            f"{source} embedding is {list(stored.shape)}",
            expected=f"[{checkpoint.config.vocab_size}, {checkpoint.config.hidden_size}]",
            where=stored.path,
        )
    return EmbeddingTable(stored, source)


def find_head(checkpoint: Checkpoint, vocab: VocabMap, target: TargetFolder | None) -> StoredTensor | None:
    """The target's head [V, Ht] for a drafter that has none of its own; None when the drafter has one."""
    if "lm_head.weight" in checkpoint.tensors:
        return None
    if target is None or target.head is None:
        raise CheckpointError(
            "no lm_head in the checkpoint, and no target folder that has it",
            where=checkpoint.path,
            hint="name it with --target",
        )
    if target.head.shape[1] != checkpoint.config.hidden_size or target.head.shape[0] < int(vocab.target_ids.max()) + 1:
        raise CheckpointError(f"the target's head is {list(target.head.shape)}", where=target.head.path)
    return target.head


def build_drafter(
    checkpoint: Checkpoint, target: TargetFolder | None, placement: Placement, poll: Callable[[], None] = lambda: None
) -> Eagle3Drafter:
    """The drafter of `checkpoint`, ready to run; what the checkpoint does not hold comes from `target`.

    Raises CheckpointError for what is missing or not computed by this version, FileError for unreadable files.
    """
    check_runnable(checkpoint)
    vocab = load_vocab_map(checkpoint)
    embedding = find_embedding(checkpoint, target)
    head = find_head(checkpoint, vocab, target)
    weights = load_weights(checkpoint, placement, poll)
    if head is not None:
        rows = head.gather(vocab.target_ids.tolist())  # [D, H]
        weights["lm_head.weight"] = rows.to(placement.device, placement.dtype)
    return Eagle3Drafter(checkpoint.config, weights, embedding, vocab, placement)
