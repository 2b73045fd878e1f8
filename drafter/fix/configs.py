"""The config files of the fixed folder: the source's own, with the layer ids of the wanted depths.

A flat config stays as it is but for the ids; keys that nobody here knows are kept. The nested config of `speculators`
becomes a flat one where a server is asked for that reads only that, and then stands beside it as what training wrote.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.config import DrafterConfig, Fields, Rope
from drafter.errors import CheckpointError, FileError
from drafter.files.find import CONFIGS, RUN_CONFIGS
from drafter.files.json_file import read_json
from drafter.serving.layer_ids import NESTED, TOP, WIDTH, set_key
from drafter.serving.server import VLLM, Server

CONFIG, TRAINING = CONFIGS
INNER = "transformer_layer_config"
ARCHITECTURE = "LlamaForCausalLMEagle3"
_SPECULATORS_ONLY = (INNER, "speculators_config", "speculators_model_type", "speculators_version", "auto_map")


@dataclass(frozen=True)
class Change:
    """One value that differs from the source's; None stands for an absent key."""

    file: str
    key: str
    old: Any
    new: Any
    why: str


@dataclass
class Configs:
    """`files`: name -> table, to be written. `flattened`: the source's config was nested, what is written is flat."""

    files: dict[str, dict[str, Any]]
    flattened: bool = False
    changes: list[Change] = field(default_factory=list)

    def set(self, file: str, key: str, new: Any, why: str) -> None:
        """Put `new` at the dotted `key`, None to remove it, and note it where that changes anything."""
        table = self.files[file]
        old = Fields(table, file).raw(key)
        if old == new:
            return
        if new is None:
            *parts, last = key.split(".")
            for part in parts:
                table = table[part]
            del table[last]
        else:
            set_key(table, key, new)
        self.changes.append(Change(file, key, old, new, why))


def source_folder(checkpoint: Checkpoint) -> Path:
    return checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent


def configured_table(checkpoint: Checkpoint) -> dict[str, Any]:
    """The config that a server reads, as it stands in the source."""
    return read_json(_present(checkpoint)[0])


def _present(checkpoint: Checkpoint) -> list[Path]:
    """The configs that the checkpoint was opened with: its own, else the one that a run keeps in the folder above."""
    folder = source_folder(checkpoint)
    present = [folder / name for name in CONFIGS if (folder / name).is_file()]
    others = (place / name for place in (folder, folder.parent) for name in RUN_CONFIGS)
    present = present or [path for path in others if path.is_file()][:1]
    if not present:
        raise CheckpointError("no config", expected=CONFIG, where=folder)
    return present


def configs_as_they_are(checkpoint: Checkpoint, servers: Sequence[Server]) -> Configs:
    """Copies of the source's configs, before any id is changed, the first of them flat if one of `servers` wants it."""
    present = _present(checkpoint)
    table = read_json(present[0])
    files = {CONFIG: table}
    if len(present) > 1 and checkpoint.trained_config is not None:
        files[TRAINING] = read_json(present[1])
    if INNER not in table or all(server.name == VLLM for server in servers):
        return Configs(files)
    files = {CONFIG: flat(table, checkpoint.config, checkpoint.draft_vocab_size), TRAINING: files.get(TRAINING, table)}
    configs = Configs(files, flattened=True)
    configs.changes.append(
        Change(CONFIG, INNER, "nested (speculators)", "flat (SGLang)", f"the nested config stands in {TRAINING}")
    )
    return configs


def flat(nested: Mapping[str, Any], config: DrafterConfig, draft_vocab_size: int) -> dict[str, Any]:
    """A nested speculators config as the flat one that SGLang and SpecForge write; defaults are written out."""
    inner = nested[INNER]
    outer = {key: value for key, value in nested.items() if key not in _SPECULATORS_ONLY and value is not None}
    table = {**copy.deepcopy(inner), **copy.deepcopy(outer)}
    table |= {
        "architectures": [ARCHITECTURE],
        "model_type": inner.get("model_type", "llama"),
        "head_dim": config.head_dim,
        "draft_vocab_size": draft_vocab_size,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": config.norm_before_fc,
        "fc_norm": config.fc_norm,
        "norm_output": config.norm_output,
        "tie_word_embeddings": config.tie_lm_head,
        **_rope(config.stated_rope),
    }
    if "dtype" in table:
        table.setdefault("torch_dtype", table["dtype"])
    return table


def _rope(rope: Rope) -> dict[str, Any]:
    """The older schema, which SGLang to 0.5.9 reads alone (checkpoints.md 1.4); the newer one stays beside it."""
    stated = None if rope.type == "default" else {**dict(rope.parameters), "rope_type": rope.type}
    return {"rope_theta": rope.base, "rope_scaling": stated}


def write_ids(
    configs: Configs,
    checkpoint: Checkpoint,
    depths: Sequence[int],
    keys: Mapping[str, Any],
    copies: Mapping[str, Any],
) -> None:
    """Put the lists that servers need, `keys`, and where nothing needs the place their `copies`; remove stale lists.

    The training's own config gets the same depths in its own numbering: the columns of fc stand in their order now.
    """
    nested = INNER in configs.files[CONFIG]
    wanted = {**({} if nested else copies), **keys}
    for key, value in wanted.items():
        configs.set(CONFIG, key, value, "what the servers read")
    for key in {TOP, NESTED} - set(wanted):
        configs.set(CONFIG, key, None, "stale: no server that was asked for reads it")
    if WIDTH not in wanted and WIDTH in configs.files[CONFIG]:
        configs.set(CONFIG, WIDTH, len(depths), "the number of layer ids")
    trained = checkpoint.trained_config or (checkpoint.config if configs.flattened else None)
    if TRAINING in configs.files and trained is not None:
        shift = 1 if trained.id_convention == "depth = id + 1" else 0
        key = trained.evidence["aux_ids"].key if "aux_ids" in trained.evidence else TOP
        configs.set(TRAINING, key, [depth - shift for depth in depths], "the same depths, ascending")


def verifier_architectures(checkpoint: Checkpoint) -> list[str]:
    """The target's architectures, where one of the configs names them (speculators does)."""
    folder = source_folder(checkpoint)
    for name in CONFIGS:
        with contextlib.suppress(FileError):  # no file of that name, or one that the checkpoint warns of
            said = Fields(read_json(folder / name), name).raw("speculators_config.verifier.architectures")
            if isinstance(said, list) and said:
                return [str(architecture) for architecture in said]
    return []
