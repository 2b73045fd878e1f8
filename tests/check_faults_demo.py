"""Every fault that a file can hold, put into the shipped demo drafter one at a time, and what the checks say of it.

Run by hand: `python -m tests.check_faults_demo [-v] [NAME ...]`. The drafter is configured rightly first (the config
that it ships for a server is wrong on purpose). Prints a table and ends with 1 where a fault is not named.
"""

from __future__ import annotations

import sys

import torch

from eagle3_tui.demo import DATA, OUTPUT, TARGET
from tests.trials.clothes import clothes
from tests.trials.faults import all_faults
from tests.trials.subject import Subject
from tests.trials.table import table

DEPTHS = (0, 2, 4, 6)


def subject() -> Subject:
    samples = [tuple(sorted((DATA / "samples" / group).glob("*.pt"))) for group in ("train", "held_out")]
    folder = OUTPUT / "7"
    return Subject(
        folder / "model.safetensors", folder / "config_speculators.json", TARGET, samples[0], samples[1], DEPTHS
    )


def main(words: list[str]) -> int:
    long = "-v" in words
    wanted = [word for word in words if word != "-v"]
    chosen = [f for f in (*clothes(), *all_faults()) if not wanted or any(word in f.name for word in wanted)]
    tally = table(subject(), chosen, long or bool(wanted))
    return 1 if tally.missed or tally.strange else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
