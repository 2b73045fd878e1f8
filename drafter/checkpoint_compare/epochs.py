"""The checkpoints of a run in a row: what the trainer measured, what each does on the given samples, which is best.

Fills one checkpoint after another, so that whoever waits can stop at any; one that cannot be run stays listed with the
reason. Knows no session: how a checkpoint is run is asked of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafter.checkpoint_compare.outcomes import Outcomes, longer, outcomes_json
from drafter.errors import DrafterError
from drafter.files.find import Found
from drafter.files.json_file import read_json
from drafter.scoring.compare import TIE, mcnemar
from drafter.scoring.tallies import lengths_json

MAX_METRICS = 64
STATES = ("training_state.json", "trainer_state.json")
_STEP = re.compile(r"step[-_]?(\d{1,15})$")
LENGTH, ACCURACY = "accept length", "step-0 accuracy"


@dataclass
class Epoch:
    """One checkpoint of a run; `epoch` and `step` are by its own note, else by its folder's name.

    `metrics` are the trainer's own numbers. `outcomes` are None where it was not run: `problem` says why.
    """

    found: Found
    epoch: int | None
    step: int | None
    epoch_why: str
    metrics: dict[str, float]
    outcomes: Outcomes | None = None
    problem: str = ""


@dataclass(frozen=True)
class Best:
    """The best of those run, by `ranked_by`; `tied` are those that the rows cannot tell from it, with the test's p."""

    index: int
    ranked_by: str
    rows: int
    tied: tuple[tuple[int, float], ...]


@dataclass
class Run:
    """All checkpoints of one folder, in the order of their epochs; `done` of them have been run or passed over."""

    depth: int
    mask: str
    epochs: list[Epoch]
    done: int = 0

    def best(self) -> Best | None:
        return _best(self.epochs)


Metrics = Callable[[Found], dict[str, Any]]
RunOne = Callable[[Found], Outcomes]


def list_epochs(found: Sequence[Found], metrics: Metrics) -> list[Epoch]:
    """Every checkpoint with what its folder says of it, by epoch and step within each run; nothing is run."""
    listed = [_epoch(one, metrics) for one in found]
    runs = {_parent(e): i for i, e in reversed(list(enumerate(listed)))}
    return sorted(listed, key=lambda e: (runs[_parent(e)], e.epoch is None, e.epoch or 0, e.step or 0))


def _parent(epoch: Epoch) -> Path:
    return epoch.found.path.parent


def _epoch(found: Found, metrics: Metrics) -> Epoch:
    folder = found.path if found.path.is_dir() else found.path.parent
    state = _state(folder)
    try:
        measured = _numbers(metrics(found))
        problem = found.state
    except DrafterError as error:
        measured, problem = {}, found.state or str(error)
    epoch, step = _whole(state.get("epoch")), _whole(state.get("global_step", state.get("step")))
    if step is None and (match := _STEP.search(found.name)):
        step = int(match.group(1))
    why = str(state["file"]) if epoch is not None else "not stated"
    if epoch is None and found.epoch is not None and found.epoch != step:  # folders are named by step as well
        epoch, why = found.epoch, "the folder's name"
    return Epoch(found, epoch, step, why, measured, None, problem)


def _state(folder: Path) -> dict[str, Any]:
    """What the trainer noted beside the weights, with the name of the `file`; empty where it did not."""
    for name in STATES:
        try:
            return {**read_json(folder / name, 1 << 22), "file": name}
        except DrafterError:
            continue  # a note beside the checkpoint, never a reason not to list it
    return {}


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def _numbers(table: dict[str, Any]) -> dict[str, float]:
    found = {key: float(v) for key, v in table.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return dict(list(found.items())[:MAX_METRICS])


def run_epochs(
    run: Run,
    run_one: RunOne,
    on_progress: Callable[[Run], None] = lambda run: None,
    poll: Callable[[], None] = lambda: None,
) -> Run:
    """Fill `run` one checkpoint after another; `on_progress` sees it after each. Raises the first refusal where none of
    those with weights can be run."""
    first: DrafterError | None = None
    for epoch in run.epochs:
        poll()
        if not epoch.problem:
            try:
                epoch.outcomes = run_one(epoch.found)
            except DrafterError as error:
                first, epoch.problem = first or error, str(error)
        run.done += 1
        on_progress(run)
    if first is not None and all(epoch.outcomes is None for epoch in run.epochs):
        raise first
    return run


# --- the best


def _best(epochs: Sequence[Epoch]) -> Best | None:
    """By accept length on the rows that all have; by step-0 accuracy where no row has one."""
    ran = [(i, e.outcomes) for i, e in enumerate(epochs) if e.outcomes is not None]
    shared = _shared([outcomes for _, outcomes in ran])
    if not shared:
        return None
    samples = {i: [outcomes.samples[path] for path in shared] for i, outcomes in ran}
    lengths = {i: torch.cat([s.accepted for s in found]) for i, found in samples.items()}
    if all(values.numel() for values in lengths.values()):
        ranked = _ranked({i: int(values.long().sum()) for i, values in lengths.items()})
        ps = [(i, longer(lengths[ranked[0]], lengths[i]).p) for i in ranked[1:]]
        return Best(ranked[0], LENGTH, lengths[ranked[0]].numel(), _tied(ps))
    right = {i: torch.cat([s.right for s in found]) for i, found in samples.items()}
    return _best_by_accuracy(right)


def _best_by_accuracy(right: dict[int, Tensor]) -> Best | None:
    if not all(values.numel() for values in right.values()):
        return None
    ranked = _ranked({i: int(values.sum()) for i, values in right.items()})
    ps = [(i, mcnemar(right[ranked[0]], right[i])) for i in ranked[1:]]
    return Best(ranked[0], ACCURACY, right[ranked[0]].numel(), _tied(ps))


def _shared(outcomes: Sequence[Outcomes]) -> list[Path]:
    """Samples that every one of them has."""
    return [path for path in outcomes[0].samples if all(path in o.samples for o in outcomes)] if outcomes else []


def _ranked(scores: dict[int, int]) -> list[int]:
    return sorted(scores, key=lambda i: -scores[i])


def _tied(ps: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    return tuple((i, p) for i, p in ps if p > TIE)


# --- JSON


def run_json(run: Run) -> dict[str, Any]:
    """The table, the best, and `series`: lists of equal length for a plot, null where a checkpoint has no number."""
    best = run.best()
    epochs = [_epoch_json(epoch) for epoch in run.epochs]
    return {
        "depth": run.depth,
        "mask": run.mask,
        "epochs": epochs,
        "done": run.done,
        "best": None
        if best is None
        else {
            "index": best.index,
            "name": run.epochs[best.index].found.name,
            "ranked_by": best.ranked_by,
            "rows": best.rows,
            "tied": [{"index": i, "name": run.epochs[i].found.name, "p": p} for i, p in best.tied],
        },
        "series": _series(run, epochs),
    }


def _epoch_json(epoch: Epoch) -> dict[str, Any]:
    found, outcomes = epoch.found, epoch.outcomes
    total = outcomes.pooled() if outcomes is not None else None
    return {
        "name": found.name,
        "path": str(found.path),
        "links": list(found.links),
        "state": found.state,
        "epoch": epoch.epoch,
        "epoch_why": epoch.epoch_why,
        "step": epoch.step,
        "metrics": epoch.metrics,
        "problem": epoch.problem,
        "step0": {"hits": total[0].hits, "total": total[0].total} if total else None,
        "length": lengths_json(total[1]) if total else None,
        **(outcomes_json(outcomes) if outcomes is not None else {}),
    }


def _series(run: Run, epochs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for epoch in run.epochs for name in epoch.metrics)
    lengths = [e["length"] for e in epochs]
    return {
        "name": [e["name"] for e in epochs],
        "epoch": [e["epoch"] for e in epochs],
        "step": [e["step"] for e in epochs],
        "accuracy": [_ratio(e["step0"]) for e in epochs],
        "length": [one["mean"] if one else None for one in lengths],
        "walk": [one["walk"]["length"] if one else None for one in lengths],
        "metrics": {name: [epoch.metrics.get(name) for epoch in run.epochs] for name in names},
    }


def _ratio(count: dict[str, int] | None) -> float | None:
    return count["hits"] / count["total"] if count and count["total"] else None
