"""One draft checkpoint, opened: its config in normal form, its tensors by header, and what is missing.

`config.json` (what a server reads) decides what is configured; `config_speculators.json` beside it (what training
wrote) is evidence of what was trained, and every disagreement between the two is kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drafter.checkpoint.clues import NO_CLUES, Clues
from drafter.checkpoint.config import Disagreement, DrafterConfig, disagreements
from drafter.checkpoint.dialects import read_config
from drafter.checkpoint.fit import fc_inputs, fit_to_weights
from drafter.checkpoint.fused import split_fused
from drafter.checkpoint.inventory import NOBODY, take_inventory
from drafter.checkpoint.names import by_canonical_name, canonical
from drafter.checkpoint.quantised import block_size, find_scales, refused_layout
from drafter.checkpoint.rope_base import base_warning
from drafter.checkpoint.shapes import misshapen
from drafter.checkpoint.side_map import find_side_maps
from drafter.checkpoint.tensor_files import TensorFiles
from drafter.errors import CheckpointError, DrafterError
from drafter.files.find import CONFIGS, Found
from drafter.files.json_file import read_json
from drafter.files.stored import StoredTensor


@dataclass(frozen=True)
class Checkpoint:
    """`tensors` by canonical name, unread; each one's own `name` is the one in the file.

    `expected` are those that the forward reads, `missing` says who supplies each that is not there, `unused` why each
    of the others is left, `misshapen` which have another shape than the config gives them. `scales` are those of fp8
    weights, by the weight's name; `quantised` names a layout that cannot be read.
    """

    path: Path
    name: str
    config: DrafterConfig
    trained_config: DrafterConfig | None
    disagreements: tuple[Disagreement, ...]
    tensors: dict[str, StoredTensor]
    fc_inputs: int
    missing: dict[str, str]
    unused: dict[str, str]
    warnings: tuple[str, ...]
    metrics: dict[str, Any]
    expected: tuple[str, ...] = ()
    misshapen: dict[str, str] = field(default_factory=dict)
    scales: dict[str, StoredTensor] = field(default_factory=dict)
    block_size: tuple[int, int] | None = None
    quantised: str = ""

    @property
    def run_config(self) -> DrafterConfig:
        """The config of the function that was trained: the training's own where it is there, else the configured."""
        return self.trained_config or self.config

    @property
    def has_weights(self) -> bool:
        return bool(self.tensors)

    @property
    def fatal(self) -> tuple[str, ...]:
        """Missing tensors that nobody else has."""
        return tuple(name for name, source in self.missing.items() if source == NOBODY)

    @property
    def draft_vocab_size(self) -> int:
        """Rows of the drafter's head: what it can say."""
        return _head_rows(self.tensors, self.config)

    @property
    def weight_bytes(self) -> int:
        return sum(t.nbytes for t in self.tensors.values())

    @property
    def dtype(self) -> str:
        """The stored dtype of a large matrix that the drafter has."""
        names = ("fc.weight", "layers.0.mlp.down_proj.weight")
        return next((self.tensors[name].dtype for name in names if name in self.tensors), "none")


def open_checkpoint(found: Found) -> Checkpoint:
    """Open what the search found; headers and JSON only, of torch files their structure.

    Raises CheckpointError when it is not an EAGLE-3 drafter or its files contradict each other, FileError for files
    that cannot be read.
    """
    folder = found.path if found.path.is_dir() else found.path.parent
    files = TensorFiles(found.weights, found.index)
    files.keep_the_drafter()
    written = files.all()
    tensors = by_canonical_name(written)
    config_folder = found.config.parent if found.config is not None else folder
    clues = _clues(written, tensors, files, folder)
    config, trained, differing, problems = read_configs(config_folder, clues, found.config)
    warnings = [*problems, *_about_files(files, folder, config_folder)]

    config, said = fit_to_weights(config, tensors)
    warnings += [*config.warnings, *said]
    if trained is not None:
        trained, more = fit_to_weights(trained, tensors)
        warnings += [warning for warning in (*trained.warnings, *more) if warning not in warnings]
    run = trained or config
    tensors = split_fused(tensors, run)
    inputs = fc_inputs(run, tensors)
    rows = _head_rows(tensors, run)
    if tensors and "d2t" not in tensors and rows != run.vocab_size:
        warnings += _take_side_map(tensors, folder, rows)
    scales = find_scales(tensors)
    listed = take_inventory(run, inputs, tensors, {_canonical_scale(name, s) for name, s in scales.items()})
    warnings += [*listed.warnings, *_about_tensors(run, tensors, rows)]
    return Checkpoint(
        path=found.path,
        name=found.name,
        config=config,
        trained_config=trained,
        disagreements=tuple(differing),
        tensors=tensors,
        fc_inputs=inputs,
        missing=listed.missing,
        unused=listed.unused,
        warnings=tuple(dict.fromkeys(warnings)),
        metrics=_metrics(folder),
        expected=listed.expected,
        misshapen=misshapen(run, inputs, rows, tensors),
        scales=scales,
        block_size=_block_size(config_folder),
        quantised=refused_layout(tensors),
    )


def read_configs(
    folder: Path, clues: Clues = NO_CLUES, config: Path | None = None
) -> tuple[DrafterConfig, DrafterConfig | None, list[Disagreement], list[str]]:
    """The configured normal form, the trained one where a second file holds it, where they differ, and warnings.

    `config` is the file to read where it has none of the two usual names.
    """
    present = [folder / name for name in CONFIGS if (folder / name).is_file()]
    if config is not None and config not in present:
        present = [config]
    if not present:
        raise CheckpointError("no config", expected="config.json", where=folder)
    read = read_config(read_json(present[0]), present[0].name, clues)
    if len(present) == 1:
        return read, None, [], []
    try:
        trained = read_config(read_json(present[1]), present[1].name, clues)
    except DrafterError as error:
        return read, None, [], [f"what training wrote is not known: {error}"]
    return read, trained, disagreements(read, trained, present[1].name), []


def _clues(
    written: Mapping[str, StoredTensor], tensors: Mapping[str, StoredTensor], files: TensorFiles, folder: Path
) -> Clues:
    try:
        beside = frozenset(os.listdir(folder))
    except OSError:
        beside = frozenset()
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return Clues(shapes, frozenset(written), files.metadata, beside, files.state_keys)


def _about_files(files: TensorFiles, folder: Path, config_folder: Path) -> list[str]:
    said = [f"{path.name} is not read: it holds no whole drafter" for path in files.unread]
    if config_folder != folder:
        said.append(f"the config is that of the folder above ({config_folder.name})")
    return said


def _take_side_map(tensors: dict[str, StoredTensor], folder: Path, rows: int) -> list[str]:
    """Put the nearest map beside the weights in their place, and say so."""
    maps = find_side_maps(folder, rows)
    if not maps:
        return []
    nearest = maps[0]
    tensors["d2t"] = nearest.d2t
    if nearest.t2d is not None and "t2d" not in tensors:
        tensors["t2d"] = nearest.t2d
    more = f"; {len(maps) - 1} more there" if len(maps) > 1 else ""
    return [
        f"the weights have no d2t: taken from {nearest.source.name} beside them{more}; a server that reads only the "
        "weights maps nothing (vLLM takes the first ids)"
    ]


def _about_tensors(config: DrafterConfig, tensors: Mapping[str, StoredTensor], rows: int) -> list[str]:
    said = []
    if config.tie_lm_head and "lm_head.weight" in tensors:
        said.append(
            f"tie_word_embeddings is true, but the checkpoint has its own lm_head of {rows} rows, which is taken: "
            "SGLang drops it and reads the embedding's first rows instead"
        )
    embed = tensors.get("embed_tokens.weight")
    if embed is not None and embed.shape and embed.shape[0] != config.vocab_size:
        said.append(f"embed_tokens has {embed.shape[0]} rows, the config says vocab_size {config.vocab_size}")
    base = base_warning(config, tensors)
    return [*said, base] if base else said


def _head_rows(tensors: Mapping[str, StoredTensor], config: DrafterConfig) -> int:
    head = tensors.get("lm_head.weight")
    if head is not None and head.shape:
        return head.shape[0]
    return config.draft_vocab_size or config.vocab_size


def _canonical_scale(weight: str, scale: StoredTensor) -> str:
    return f"{weight.removesuffix('weight')}{canonical(scale.name).rpartition('.')[2]}"


def _block_size(folder: Path) -> tuple[int, int] | None:
    return block_size(_side_file(folder / CONFIGS[0]))


def _metrics(folder: Path) -> dict[str, Any]:
    """What training measured: speculators' file in the folder, or SpecForge's beside the step that it is about."""
    own = _side_file(folder / "val_metrics.json")
    if own:
        return own
    run, _, step = folder.name.rpartition("-step")
    best = _side_file(folder.parent / f"{run}.best_meta.json") if run and step.isdecimal() else {}
    return best if str(best.get("step")) == step else {}


def _side_file(path: Path) -> dict[str, Any]:
    try:
        return read_json(path) if path.is_file() else {}
    except DrafterError:
        return {}  # a note beside the checkpoint, never a reason not to open it
