"""Hold the sample readers against recorded files: `python -m tests.check_samples_fixtures FIXTURES [PART ...]`.

Not a test: the recorded samples are too large for the repository. Parts: layouts, keys (all by default). It prints
what agrees, and exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from drafter.sample.open import open_sample
from drafter.sample.sample import Sample
from tests.check_cli_fixtures import SPLITS, Tally, arrow, v1
from tests.drafter.helpers import same

SHARED = (0, 1, 2)  # slots that both layouts hold: the embedding and depths 3 and 16
BLOCK = 512


def rows_equal(one: Sample, other: Sample, slot: int, other_slot: int) -> bool:
    blocks = [(a, min(a + BLOCK, one.length)) for a in range(0, one.length, BLOCK)]
    ours, theirs = one.slots[slot].tensor, other.slots[other_slot].tensor
    return all(same(ours.rows(a, b), theirs.rows(a, b)) for a, b in blocks)


def check_layouts(fixtures: Path) -> bool:
    """Each recorded text is the same in both layouts: ids, mask, and the slots that both hold."""
    tally = Tally()
    for index in sorted(i for split in SPLITS.values() for i in split):
        one, other = open_sample(v1(fixtures, index)), open_sample(arrow(fixtures, index))
        tally.same(f"{index} ids", one.ids.tolist(), other.ids.tolist())
        tally.same(f"{index} has masks", (one.mask is not None, other.mask is not None), (True, True))
        tally.same(f"{index} mask", one.supervised.tolist(), other.supervised.tolist())
        tally.same(f"{index} warnings", (one.warnings, other.warnings), ((), ()))
        for slot in SHARED:
            tally.same(f"{index} slot {slot}", rows_equal(one, other, slot, slot), True)
        tally.same(f"{index} last slots differ", rows_equal(one, other, 3, 3), False)
    return tally.report("v1 and arrow hold the same samples")


def check_keys(fixtures: Path) -> bool:
    """A known file, described by keys as if it were unknown."""
    tally = Tally()
    for index in (10, 541):
        known = open_sample(v1(fixtures, index))
        keys = "ids=input_ids,states=hidden_states.2,states=hidden_states.0,mask=loss_mask"
        told = open_sample(v1(fixtures, index), None, keys)
        tally.same(f"{index} ids", told.ids.tolist(), known.ids.tolist())
        tally.same(f"{index} mask", told.supervised.tolist(), known.supervised.tolist())
        for slot, own in enumerate((2, 0)):
            tally.same(f"{index} slot {slot}", rows_equal(told, known, slot, own), True)
        other = open_sample(arrow(fixtures, index), None, "ids=token_ids,states=hidden_states")
        tally.same(f"{index} arrow ids", other.ids.tolist(), known.ids.tolist())
        tally.same(f"{index} arrow slots", [rows_equal(other, known, i, i) for i in SHARED], [True] * 3)
    return tally.report("the same by --keys")


PARTS: dict[str, Callable[[Path], bool]] = {"layouts": check_layouts, "keys": check_keys}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    args = parser.parse_args()
    right = [PARTS[part](args.fixtures) for part in args.parts or PARTS]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
