"""Hold tree drafting against recorded trees of the real package: `python -m tests.check_trees_fixtures FIXTURES`.

Not a test: the recorded samples and the trained drafter are too large for the repository. It prints what agrees and
what a row costs, and exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from drafter.checkpoint.checkpoint import open_checkpoint
from drafter.checkpoint.target import open_target
from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.tree import TreePlan, leaf_paths, seen_by, tree_plan
from drafter.drafting.tree_eagle2 import forests, read_tree
from drafter.files.find import find_checkpoints
from drafter.model.device import Placement
from drafter.model.drafter import Eagle3Drafter
from drafter.model.weights import build_drafter
from drafter.sample.open import open_sample
from drafter.wiring import Ordering, Wiring

SAMPLES = {"train0": 10, "train1": 17, "train2": 0, "val0": 541, "val1": 546, "val2": 539}
PLAN = tree_plan("safeailab", 7, 10, 60)
COSTS = (tree_plan("sglang", 5, 4, 16), PLAN)


def load_drafter(fixtures: Path) -> Eagle3Drafter:
    folder = fixtures / "output_speculators"
    found = next(f for f in find_checkpoints(folder) if f.path.resolve() == (folder / "7").resolve())
    placement = Placement(torch.device("cpu"), torch.float32, "float32, as the truths were recorded")
    return build_drafter(open_checkpoint(found), open_target(fixtures / "target"), placement)


def accepted(run: SampleRun, ordering: Ordering, plan: TreePlan, rows: Tensor) -> Tensor:
    wiring = Wiring.trained(run.drafter.config)
    return torch.cat([forest.accepted(run.ids) for forest in forests(run, ordering, wiring, rows, plan)])


def check_tree(run: SampleRun, ordering: Ordering, row: int, golden: dict[str, Tensor]) -> list[str]:
    """What differs from one recorded tree, by name."""
    nodes = read_tree(run, ordering, Wiring.trained(run.drafter.config), row, PLAN).kept()
    paths = leaf_paths(nodes)
    width = max(map(len, paths))
    ours = {
        "draft_tokens": [node.id for node in nodes],
        "retrieve_indices": [path + [-1] * (width - len(path)) for path in paths],
        "tree_mask": [[int(seen) for seen in row] for row in seen_by(nodes)],
        "tree_position_ids": [node.depth for node in nodes],
    }
    return [name for name, value in ours.items() if value != golden[name].tolist()]


def check_file(fixtures: Path, drafter: Eagle3Drafter) -> bool:
    golden = load_file(fixtures / "golden/tree.safetensors")
    right = True
    for key in sorted(k for k in golden if k.endswith(".anchors_p")):
        name, slots = key.removesuffix(".anchors_p").split("_")
        ordering = tuple(map(int, slots))
        run = SampleRun(drafter, open_sample(fixtures / f"samples/v1/data_{SAMPLES[name]}.pt"))
        anchors, accept = golden[key], golden[f"{name}_{slots}.accept"]
        prefix = f"{name}_{slots}_p"
        trees = sorted({int(k.removeprefix(prefix).split(".")[0]) for k in golden if k.startswith(prefix)})
        for p in trees:
            fields = {k.removeprefix(f"{prefix}{p}."): v for k, v in golden.items() if k.startswith(f"{prefix}{p}.")}
            unlike = check_tree(run, ordering, p - 1, fields)
            if unlike:
                print(f"  {prefix}{p}: {', '.join(unlike)} differ")
            right &= not unlike
        found = accepted(run, ordering, PLAN, anchors - 1)
        equal = int((found == accept).sum())
        print(f"  {name} {slots}: {len(trees)} trees compared; accepted {equal} of {len(anchors)} anchors equal")
        right &= equal == len(anchors)
    return right


def check_chains(fixtures: Path, drafter: Eagle3Drafter) -> bool:
    """`topk` 1 against the recorded chains of eight drafts, every row of a sample; and against our own chains."""
    golden, ordering = load_file(fixtures / "golden/541_012.safetensors"), (0, 1, 2)
    run, wiring = SampleRun(drafter, open_sample(fixtures / "samples/v1/data_541.pt")), Wiring.trained(drafter.config)
    rows = torch.arange(run.rows)
    found = list(forests(run, ordering, wiring, rows, tree_plan("sglang", 8, 1)))
    ids = torch.cat([forest.ids for forest in found])
    lengths = torch.cat([forest.accepted(run.ids) for forest in found])
    ours = draft_ids(run, ordering, wiring, 8, own_tokens=True).T
    same = [
        torch.equal(ids, golden["chain_target_id"]),
        torch.equal(lengths, golden["chain_accept"]),
        torch.equal(torch.cat([forest.draft_ids for forest in found]), ours),
    ]
    print(f"  chains of 8, {run.rows} rows: tokens {same[0]}, accepted {same[1]}, our chains {same[2]}")
    return all(same)


def show_costs(fixtures: Path, drafter: Eagle3Drafter) -> None:
    run = SampleRun(drafter, open_sample(fixtures / "samples/v1/data_541.pt"))
    rows = torch.arange(run.rows - 10)
    for plan in COSTS:
        accepted(run, (0, 1, 2), plan, rows[:1])
        start = time.perf_counter()
        lengths = accepted(run, (0, 1, 2), plan, rows)
        cost = (time.perf_counter() - start) / len(rows)
        print(f"  {plan.rule} {plan.steps}/{plan.topk}/{plan.tokens}: {1000 * cost:.1f} ms a row, {len(rows)} rows,")
        print(f"    accept length {float(lengths.float().mean()) + 1:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fixtures", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    drafter = load_drafter(args.fixtures)
    print("trees of SafeAILab's own search")
    right = check_file(args.fixtures, drafter)
    print("chains")
    right &= check_chains(args.fixtures, drafter)
    print("cost")
    show_costs(args.fixtures, drafter)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
