"""The drafter's weights from its checkpoint, cast to where it runs; what is not there and cannot be run is refused."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.target import TargetFolder
from drafter.checkpoint.vocab_map import VocabMap, read_vocab_map
from drafter.errors import CheckpointError
from drafter.files.stored import FLOATS, StoredTensor
from drafter.model.device import Placement
from drafter.model.drafter import Eagle3Drafter
from drafter.model.embedding import EmbeddingTable
from drafter.model.rope import SUPPORTED

_NOT_WEIGHTS = ("embed_tokens.weight", "d2t", "t2d", "verifier_lm_head.weight", "verifier_norm.weight")


def check_runnable(checkpoint: Checkpoint) -> None:
    """Refuse, by name, what this version would compute wrongly. Raises CheckpointError."""
    config, where = checkpoint.run_config, checkpoint.path
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
    for name, stored in checkpoint.tensors.items():
        if stored.dtype not in FLOATS and name not in ("d2t", "t2d"):
            raise CheckpointError(f"{name!r} is {stored.dtype}", expected="plain floats, not quantised", where=where)
    if checkpoint.missing:
        names = ", ".join(map(repr, checkpoint.missing[:3]))
        raise CheckpointError(f"no {names} ({len(checkpoint.missing)} missing)", where=where)
    _check_shapes(checkpoint)


def load_weights(checkpoint: Checkpoint, placement: Placement, poll: Callable[[], None]) -> dict[str, Tensor]:
    """Everything but the embedding, by canonical name. `poll` is called between tensors and may raise Cancelled."""
    check_runnable(checkpoint)
    weights = {}
    for name, stored in checkpoint.tensors.items():
        if name not in _NOT_WEIGHTS and name not in checkpoint.unused:
            poll()
            weights[name] = stored.read().to(placement.device, placement.dtype)
    return weights


def _check_shapes(checkpoint: Checkpoint) -> None:
    c = checkpoint.run_config
    if c.num_heads % c.num_kv_heads:
        raise CheckpointError(f"{c.num_heads} heads over {c.num_kv_heads} key heads", where=checkpoint.path)
    for name, shape in _shapes(checkpoint).items():
        stored = checkpoint.tensors.get(name)
        if stored is not None and name not in checkpoint.unused and stored.shape != shape:
            raise CheckpointError(f"{name!r} is {list(stored.shape)}", expected=f"{list(shape)}", where=checkpoint.path)


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that the forward may use."""
    c, inputs = checkpoint.run_config, checkpoint.fc_inputs
    q, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    projections = {
        "fc": (c.hidden_size, inputs * c.target_hidden_size),
        "layers.0.self_attn.q_proj": (q, 2 * c.hidden_size),
        "layers.0.self_attn.k_proj": (kv, 2 * c.hidden_size),
        "layers.0.self_attn.v_proj": (kv, 2 * c.hidden_size),
        "layers.0.self_attn.o_proj": (c.hidden_size, q),
        "layers.0.mlp.gate_proj": (c.intermediate_size, c.hidden_size),
        "layers.0.mlp.up_proj": (c.intermediate_size, c.hidden_size),
        "layers.0.mlp.down_proj": (c.hidden_size, c.intermediate_size),
        "lm_head": (checkpoint.draft_vocab_size, c.hidden_size),
    }
    norms = {
        "input_norm": inputs * c.target_hidden_size,
        **{f"fc_norm.{i}": c.target_hidden_size for i in range(inputs)},
        **{
            f"layers.0.{name}": c.hidden_size for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        },
        **{f"layers.0.self_attn.{name}": c.head_dim for name in ("q_norm", "k_norm")},
        "norm": c.hidden_size,
    }
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": shape for name, shape in projections.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in projections.items()}
    return shapes | {f"{name}.weight": (width,) for name, width in norms.items()}


def load_vocab_map(checkpoint: Checkpoint) -> VocabMap:
    """d2t as the checkpoint holds it. Raises CheckpointError where it cannot be a map of this vocabulary."""
    d2t, t2d = checkpoint.tensors.get("d2t"), checkpoint.tensors.get("t2d")
    try:
        return read_vocab_map(
            d2t.read() if d2t else None,
            t2d.read() if t2d else None,
            checkpoint.draft_vocab_size,
            checkpoint.run_config.vocab_size,
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
    if len(stored.shape) != 2 or stored.shape[1] != checkpoint.run_config.hidden_size:
        raise CheckpointError(
            f"{source} embedding is {list(stored.shape)}",
            expected=f"[{checkpoint.run_config.vocab_size}, {checkpoint.run_config.hidden_size}]",
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
    rows, width = int(vocab.target_ids.max()) + 1, checkpoint.run_config.hidden_size
    shape = target.head.shape
    if len(shape) != 2 or shape[1] != width or shape[0] < rows:
        expected = f"[{rows} or more, {width}]"
        raise CheckpointError(f"the target's head is {list(shape)}", expected=expected, where=target.head.path)
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
    return Eagle3Drafter(checkpoint.run_config, weights, embedding, vocab, placement)
