"""A drafter that was really trained, as values that a fault changes, written to disk and opened as a user would.

Knows no fault and judges nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checks.run import Report
from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError
from drafter.model.drafter import Eagle3Drafter
from drafter.scoring.counts import count, rows_needed
from drafter.scoring.sweep import truths_of
from drafter.session import Options, Session
from drafter.wiring import Wiring, configured_ordering

Config = dict[str, Any]
EMBED, HEAD, FC, AT = "embed_tokens.weight", "lm_head.weight", "fc.weight", "layers.0."
GROUPS = ("train", "held_out")


@dataclass
class Recorded:
    """One sample: `states` [S, T, Ht] in slot order. `raw` are keys of the file that replace what is written."""

    group: str
    name: str
    ids: Tensor
    mask: Tensor
    states: Tensor
    raw: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.bfloat16


@dataclass
class Trial:
    """Everything that a fault can change, in place: `config` is the speculators layout, unless `flat`.

    `files` maps names in the checkpoint's folder to their text; `after` is called with that folder.
    """

    weights: dict[str, Tensor]
    config: Config
    samples: list[Recorded]
    target: dict[str, Tensor]
    target_config: Config
    depths: tuple[int, ...]  # of the slots
    options: dict[str, Any]
    target_folder: Path
    named_target: bool = True
    layer_key: str = "transformer_layer_config"
    files: dict[str, str] = field(default_factory=dict)
    after: Callable[[Path], None] = lambda folder: None

    @property
    def layer(self) -> Config:
        """The part of the config that is the decoder layer's."""
        table: Config = self.config.get(self.layer_key, self.config)
        return table

    def states(self, change: Callable[[Tensor], Tensor]) -> None:
        for sample in self.samples:
            sample.states = change(sample.states)

    def keep(self, *slots: int) -> None:
        """Only these slots are recorded."""
        self.states(lambda s: s[list(slots)])
        self.depths = tuple(self.depths[i] for i in slots)
        self.options["slots"] = labels(self.depths)


def labels(depths: Sequence[int]) -> str:
    return ",".join("embed" if depth == 0 else str(depth) for depth in depths)


@dataclass(frozen=True)
class Subject:
    """Where a trained drafter, its target and its samples lie; `depth`, `mask` are the session's options."""

    weights: Path
    config: Path
    target: Path
    train: tuple[Path, ...]
    held_out: tuple[Path, ...]
    depths: tuple[int, ...]
    depth: int = 5
    mask: str = "next"

    def fresh(self) -> Trial:
        """An untouched copy, with the target's embedding among the weights."""
        target = load_file(self.target / "model.safetensors")
        weights = {canonical(n): t for n, t in load_file(self.weights).items()}
        weights.setdefault(EMBED, next(t for n, t in target.items() if n.endswith(EMBED)).clone())
        samples = [
            _read(path, g) for g, paths in zip(GROUPS, (self.train, self.held_out), strict=True) for path in paths
        ]
        options = {"slots": labels(self.depths), "depth": self.depth, "mask": self.mask, "device": "cpu"}
        return Trial(
            weights, json.loads(self.config.read_text()), samples, target,
            json.loads((self.target / "config.json").read_text()), self.depths, options, self.target,
        )  # fmt: skip


def canonical(name: str) -> str:
    return name.replace("midlayer.", AT)


def _read(path: Path, group: str) -> Recorded:
    stored = torch.load(path, weights_only=True)
    states = torch.stack(stored["hidden_states"])
    return Recorded(group, path.stem, stored["input_ids"], stored["loss_mask"], states)


def write(trial: Trial, folder: Path) -> Session:
    """Everything on disk, opened. Raises DrafterError where the checkpoint is refused."""
    draft, target = folder / "draft", folder / "target"
    draft.mkdir(parents=True)
    (draft / "config.json").write_text(json.dumps(trial.config))
    save_file({n: t.contiguous().clone() for n, t in trial.weights.items()}, draft / "model.safetensors")
    for name, said in trial.files.items():
        (draft / name).write_text(said)
    trial.after(draft)
    if trial.named_target:
        _write_target(trial, target)
    for sample in trial.samples:
        _write_sample(sample, folder / "samples" / sample.group)
    options = {
        "samples": tuple(folder / "samples" / group for group in dict.fromkeys(s.group for s in trial.samples)),
        "target": target if trial.named_target else None,
        "dtype": "float32",
        **trial.options,
    }
    return Session(Options(draft, **options))


def _write_target(trial: Trial, target: Path) -> None:
    target.mkdir()
    for path in trial.target_folder.iterdir():
        if path.name.startswith("tokenizer"):
            shutil.copy(path, target / path.name)
    (target / "config.json").write_text(json.dumps(trial.target_config))
    save_file({n: t.contiguous().clone() for n, t in trial.target.items()}, target / "model.safetensors")


def _write_sample(sample: Recorded, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    states = [state.to(sample.dtype).clone() for state in sample.states]
    record = {"input_ids": sample.ids, "hidden_states": states, "loss_mask": sample.mask}
    torch.save({k: v for k, v in (record | sample.raw).items() if v is not None}, folder / f"{sample.name}.pt")


def checked(session: Session) -> Report:
    """What `check` says."""
    found = session.pick(session.find())
    return session.check(found, session.list_samples().paths)


def accuracy(session: Session) -> tuple[float | None, ...]:
    """Step 0 as the config configures it and with the map as servers read it, by group; None where it cannot run."""
    try:
        session.choose_checkpoint(session.pick(session.find()))
        drafter = session.load()
    except DrafterError:
        return (None,) * len(GROUPS)
    wiring = Wiring.trained(session.checkpoint.run_config).changed(d2t="offset")
    try:
        drafter.vocab(wiring)
    except DrafterError:
        return (0.0,) * len(GROUPS)  # ids beyond the vocabulary: a server's tokens are none
    return tuple(_scored(session, drafter, wiring, group) for group in GROUPS)


def _scored(session: Session, drafter: Eagle3Drafter, wiring: Wiring, group: str) -> float | None:
    hits = total = 0
    for path in session.list_samples().paths:
        if path.parent.name != group:
            continue
        try:
            sample = session.open_sample(path)
            ordering, _ = configured_ordering(
                session.checkpoint.config.aux_depths, sample.slots, session.checkpoint.fc_inputs,
                last=session.target_layers,
            )  # fmt: skip
            if ordering is None:
                return None
            run = SampleRun(drafter, sample)
            truths = truths_of(run, None, wiring)
            mode = session.options.mask
            ids = draft_ids(run, ordering, wiring, 1, rows_needed(truths.mask, mode, 1))
            one = count(ids, truths, mode).accuracy
        except DrafterError:
            continue
        hits, total = hits + one.hits, total + one.total
    return hits / total if total else None
