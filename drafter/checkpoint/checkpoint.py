"""One draft checkpoint, opened: its config in normal form, its tensors by header, and what is missing.

`config.json` (what a server reads) decides what is configured; `config_speculators.json` beside it (what training
wrote) is evidence of what was trained, and every disagreement between the two is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drafter.checkpoint.config import Disagreement, DrafterConfig, Evidence, disagreements
from drafter.checkpoint.dialects import read_config
from drafter.checkpoint.names import by_canonical_name, expected
from drafter.checkpoint.tensor_files import INDEX, TensorFiles
from drafter.errors import CheckpointError, DrafterError
from drafter.files.find import CONFIGS, Found
from drafter.files.json_file import read_json
from drafter.files.stored import StoredTensor


@dataclass(frozen=True)
class Checkpoint:
    """`tensors` by canonical name, unread; `written_names` leads back to the names in the file."""

    path: Path
    name: str
    config: DrafterConfig
    trained_config: DrafterConfig | None
    disagreements: tuple[Disagreement, ...]
    tensors: dict[str, StoredTensor]
    fc_inputs: int
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    warnings: tuple[str, ...]
    metrics: dict[str, Any]

    @property
    def run_config(self) -> DrafterConfig:
        """The config of the function that was trained: the training's own where it is there, else the configured."""
        return self.trained_config or self.config

    @property
    def has_weights(self) -> bool:
        return bool(self.tensors)

    @property
    def draft_vocab_size(self) -> int:
        """Rows of the drafter's head: what it can say."""
        head = self.tensors.get("lm_head.weight")
        if head is not None:
            return head.shape[0]
        return self.config.draft_vocab_size or self.config.vocab_size

    @property
    def weight_bytes(self) -> int:
        return sum(t.nbytes for t in self.tensors.values())

    @property
    def dtype(self) -> str:
        """The stored dtype of fc, the tensor that every EAGLE-3 drafter has."""
        fc = self.tensors.get("fc.weight")
        return fc.dtype if fc is not None else "none"


def open_checkpoint(found: Found) -> Checkpoint:
    """Open what the search found; headers and JSON only.

    Raises CheckpointError when it is not an EAGLE-3 drafter or its files contradict each other, FileError for files
    that cannot be read.
    """
    folder = found.path if found.path.is_dir() else found.path.parent
    config, trained, differing, problems = read_configs(folder)
    index = folder / INDEX
    files = TensorFiles([], index) if index.is_file() and found.path.is_dir() else TensorFiles(found.weights)
    tensors = by_canonical_name(files.all())
    config, warnings = _fit_to_weights(config, tensors)
    if trained is not None:
        trained, more = _fit_to_weights(trained, tensors)
        warnings += [warning for warning in more if warning not in warnings]
    run = trained or config
    inputs = _fc_inputs(run, tensors)
    needed = expected(run.num_layers) + _norms_asked_for(run, inputs) if tensors else []
    optional = {"embed_tokens.weight", "lm_head.weight", "d2t", "t2d", *_optional(run)}
    return Checkpoint(
        path=found.path,
        name=found.name,
        config=config,
        trained_config=trained,
        disagreements=tuple(differing),
        tensors=tensors,
        fc_inputs=inputs,
        missing=tuple(name for name in needed if name not in tensors),
        unused=tuple(name for name in tensors if name not in needed and name not in optional),
        warnings=(*problems, *warnings),
        metrics=_side_file(folder / "val_metrics.json"),
    )


def read_configs(folder: Path) -> tuple[DrafterConfig, DrafterConfig | None, list[Disagreement], list[str]]:
    """The configured normal form, the trained one where a second file holds it, where they differ, and warnings."""
    present = [folder / name for name in CONFIGS if (folder / name).is_file()]
    if not present:
        raise CheckpointError("no config", expected="config.json", where=folder)
    config = read_config(read_json(present[0]), present[0].name)
    if len(present) == 1:
        return config, None, [], []
    try:
        trained = read_config(read_json(present[1]), present[1].name)
    except DrafterError as error:
        return config, None, [], [f"what training wrote is not known: {error}"]
    return config, trained, disagreements(config, trained, present[1].name), []


def _side_file(path: Path) -> dict[str, Any]:
    try:
        return read_json(path) if path.is_file() else {}
    except DrafterError:
        return {}  # a note beside the checkpoint, never a reason not to open it


def _fc_inputs(config: DrafterConfig, tensors: dict[str, StoredTensor]) -> int:
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


def _matrix(tensors: dict[str, StoredTensor], name: str) -> StoredTensor | None:
    stored = tensors.get(name)
    if stored is not None and len(stored.shape) != 2:
        raise CheckpointError(f"{name} is {list(stored.shape)}", expected="two dimensions", where=stored.path)
    return stored


def _fit_to_weights(config: DrafterConfig, tensors: dict[str, StoredTensor]) -> tuple[DrafterConfig, list[str]]:
    """Where a default of the config contradicts the weights, the weights are right; a key that does is an error."""
    warnings: list[str] = []
    q = _matrix(tensors, "layers.0.self_attn.q_proj.weight")
    if q is not None and config.attention == "gqa" and q.shape[0] != config.num_heads * config.head_dim:
        head_dim, rest = divmod(q.shape[0], config.num_heads)
        stated = config.evidence.get("head_dim")
        if rest or (stated is not None and not stated.is_default):
            raise CheckpointError(
                f"q_proj has {q.shape[0]} rows",
                expected=f"{config.num_heads} heads of {config.head_dim}, as the config says",
                where=q.path,
            )
        note = Evidence("weights", "q_proj rows / num_attention_heads", head_dim)
        config = replace(config, head_dim=head_dim, evidence={**config.evidence, "head_dim": note})
        warnings.append(f"head_dim {head_dim} taken from the weights: the config states none")
    head = _matrix(tensors, "lm_head.weight")
    if head is not None and config.draft_vocab_size is not None and head.shape[0] != config.draft_vocab_size:
        warnings.append(f"lm_head has {head.shape[0]} rows, the config says draft_vocab_size {config.draft_vocab_size}")
    return config, warnings


def _norms_asked_for(config: DrafterConfig, inputs: int) -> list[str]:
    names = ["input_norm.weight"] if config.norm_before_fc else []
    return names + [f"fc_norm.{i}.weight" for i in range(inputs) if config.fc_norm]


def _optional(config: DrafterConfig) -> set[str]:
    used = set()
    for layer in range(config.num_layers):
        used |= {f"layers.{layer}.self_attn.{p}_proj.bias" for p in "qkvo"}
        used |= {f"layers.{layer}.self_attn.{p}_norm.weight" for p in "qk"}
        used |= {f"layers.{layer}.mlp.{p}_proj.bias" for p in ("gate", "up", "down")}
    return used | {"fc.bias"}
