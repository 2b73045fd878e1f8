"""A config held against the weights: a default that contradicts them gives way, a stated size that does is an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from drafter.checkpoint.config import DrafterConfig, Evidence
from drafter.checkpoint.names import layer_of
from drafter.errors import CheckpointError
from drafter.files.stored import StoredTensor

Tensors = Mapping[str, StoredTensor]
_ATTENTION = "layers.0.self_attn."


def fit_to_weights(config: DrafterConfig, tensors: Tensors) -> tuple[DrafterConfig, list[str]]:
    """The config with what only the weights tell, and what was changed for them.

    Raises CheckpointError where a stated size contradicts the weights.
    """
    warnings: list[str] = []
    if config.attention == "gqa":
        config = _fit_head_dim(config, tensors, warnings)
    config = _fit_layers(config, tensors, warnings)
    head = _matrix(tensors, "lm_head.weight")
    if head is not None and config.draft_vocab_size is not None and head.shape[0] != config.draft_vocab_size:
        warnings.append(f"lm_head has {head.shape[0]} rows, the config says draft_vocab_size {config.draft_vocab_size}")
    return config, warnings


def fc_inputs(config: DrafterConfig, tensors: Tensors) -> int:
    """A, the states that fc takes; 1 where there is no fc. Raises CheckpointError for an fc of another shape."""
    if not config.use_aux:
        return 1
    fc = _matrix(tensors, "fc.weight")
    if fc is None:
        return len(config.aux_ids) if config.aux_ids else 3
    if fc.shape[0] != config.hidden_size or not fc.shape[1] or fc.shape[1] % config.target_hidden_size:
        raise CheckpointError(
            f"fc.weight is {list(fc.shape)}",
            expected=f"[{config.hidden_size}, A * {config.target_hidden_size}]",
            where=fc.path,
        )
    return fc.shape[1] // config.target_hidden_size


def _matrix(tensors: Tensors, name: str) -> StoredTensor | None:
    stored = tensors.get(name)
    if stored is not None and len(stored.shape) != 2:
        raise CheckpointError(f"{name} is {list(stored.shape)}", expected="two dimensions", where=stored.path)
    return stored


def _fit_head_dim(config: DrafterConfig, tensors: Tensors, warnings: list[str]) -> DrafterConfig:
    for name, heads in (("q_proj", config.num_heads), ("qkv_proj", config.num_heads + 2 * config.num_kv_heads)):
        stored = _matrix(tensors, f"{_ATTENTION}{name}.weight")
        if stored is None or stored.shape[0] == heads * config.head_dim:
            continue
        head_dim, rest = divmod(stored.shape[0], heads)
        stated = config.evidence.get("head_dim")
        if rest or (stated is not None and not stated.is_default):
            raise CheckpointError(
                f"{name} has {stored.shape[0]} rows",
                expected=f"{heads} heads of {config.head_dim}, as the config says",
                where=stored.path,
            )
        warnings.append(f"head_dim {head_dim} taken from the weights: the config states none")
        return _noted(config, "head_dim", f"{name} rows / heads", head_dim)
    return config


def _fit_layers(config: DrafterConfig, tensors: Tensors, warnings: list[str]) -> DrafterConfig:
    """Fewer layers in the weights than configured: the number was the target's, or a part is lost."""
    layers = {layer for name in tensors if (layer := layer_of(name)) is not None}
    if layers and max(layers) + 1 < config.num_layers:
        count = max(layers) + 1
        warnings.append(
            f"num_hidden_layers is {config.num_layers}, the weights have {count} layer(s), which are taken: servers "
            "refuse the number, or fill the other layers at random"
        )
        return _noted(config, "num_layers", "layers.*", count)
    return config


def _noted(config: DrafterConfig, name: str, key: str, value: int) -> DrafterConfig:
    evidence = {**config.evidence, name: Evidence("weights", key, value)}
    if name == "head_dim":
        return replace(config, head_dim=value, evidence=evidence)
    return replace(config, num_layers=value, evidence=evidence)
