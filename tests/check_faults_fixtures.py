"""Faults put into the real drafter one at a time: the accuracy, where golden/faults.json recorded it, and what the
checks say.

Run by hand: `python -m tests.check_faults_fixtures FIXTURES [-v] [--more] [NAME ...]`, where FIXTURES holds
output_speculators, output, target, samples and golden. Without names the recorded faults; `--more` adds those that were
not recorded, and the healthy drafter in other clothes. Prints a table and ends with 1 where a fault is not named or an
accuracy differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.trials.clothes import clothes
from tests.trials.faults import Fault, all_faults, recorded_faults
from tests.trials.subject import Subject, Trial, canonical
from tests.trials.table import table

DEPTHS = (0, 3, 16, 28)
TRAIN, HELD_OUT = (0, 10, 17), (539, 541, 546)


def subject(fixtures: Path) -> Subject:
    train, held_out = (tuple(fixtures / f"samples/v1/data_{i}.pt" for i in names) for names in (TRAIN, HELD_OUT))
    folder = fixtures / "output_speculators/7"
    return Subject(
        folder / "model.safetensors", folder / "config.json", fixtures / "target", train, held_out, DEPTHS, 3,
        "predicted",
    )  # fmt: skip


def of_this_drafter(fixtures: Path) -> Iterator[Fault]:
    """What only this drafter has: an earlier epoch."""

    def first_epoch(trial: Trial) -> None:
        stored = load_file(fixtures / "output/0/model.safetensors")
        trial.weights.update({canonical(name): tensor for name, tensor in stored.items()})

    yield Fault("epoch 0", ("", "K12"), first_epoch)

    def mixed(trial: Trial) -> None:
        trial.weights["fc.weight"] = load_file(fixtures / "output/0/model.safetensors")["fc.weight"]

    yield Fault("fc of epoch 0, the rest of epoch 7", ("", "K02"), mixed)


def _recorded(fixtures: Path) -> dict[str, tuple[float, float]]:
    golden = json.loads((fixtures / "golden/faults.json").read_text())
    golden |= golden.pop("orders_all_24_permutations")
    return {name: (said["train"], said["val"]) for name, said in golden.items() if "train" in said}


def main(fixtures: Path, words: list[str]) -> int:
    wanted = [word for word in words if not word.startswith("-")]
    faults = [*recorded_faults()]
    if wanted or "--more" in words:
        faults = [*clothes(), *of_this_drafter(fixtures), *all_faults()]
    chosen = [fault for fault in faults if not wanted or any(word in fault.name for word in wanted)]
    tally = table(subject(fixtures), chosen, "-v" in words, _recorded(fixtures))
    return 1 if tally.missed or tally.strange or tally.other else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
