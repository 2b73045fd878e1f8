"""Hold the reference against recorded truths of the real package: `python -m tests.check_fixtures FIXTURES [--rows N]`.

Not a test: the recorded samples and the trained drafter are too large for the repository. It prints what agrees, and
exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tests import reference_scores as scores
from tests.reference import ReferenceDrafter, predictions

DEPTH = 5
SAMPLES = (0, 10, 17, 539, 541, 546)


def drafter(fixtures: Path) -> tuple[ReferenceDrafter, list[int]]:
    weights = load_file(fixtures / "output_speculators/7/model.safetensors")
    weights["embed_tokens.weight"] = load_file(fixtures / "target/model.safetensors")["model.embed_tokens.weight"]
    d2t = weights["d2t"].tolist()
    model = ReferenceDrafter(
        weights, num_heads=9, num_kv_heads=3, head_dim=64, eps=1e-5, rope_theta=100000.0, norm_before_residual=True
    )
    return model, d2t


def sample(fixtures: Path, index: int) -> tuple[list[int], Tensor]:
    """ids and the four recorded slots [T, 4, Ht]."""
    record = torch.load(fixtures / f"samples/v1/data_{index}.pt", weights_only=True)
    return record["input_ids"].tolist(), torch.stack(record["hidden_states"], dim=1)


def gap(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """The largest absolute difference, and the largest magnitude of the truth to read it against."""
    return float((ours - theirs).abs().max()), float(theirs.abs().max())


def check_trace(fixtures: Path, rows: int) -> bool:
    """Logits, hidden states and chains of sample 10 against the recorded tensors."""
    model, d2t = drafter(fixtures)
    trace = load_file(fixtures / "golden/trace_10_012.safetensors")
    ids, slots = sample(fixtures, 10)
    states = slots[:, [0, 1, 2]]
    forced = model.teacher_forced(ids, states, DEPTH, rows)
    first = min(rows, 32)

    def stacked(step: int, count: int, what: str) -> Tensor:
        return torch.stack([getattr(row, what) for row in forced[step][:count] if row is not None])

    gaps = {
        "fc output": gap(torch.stack([model.fuse(s) for s in states[:-1]]), trace["fc_out"]),
        "hidden before the norm, step 0": gap(stacked(0, rows, "prenorm"), trace["hidden_prenorm_step0"][:rows]),
        "hidden before the norm, step 1": gap(stacked(1, rows, "prenorm"), trace["hidden_prenorm_step1"][:rows]),
        "logits, step 0": gap(stacked(0, first, "logits"), trace["logits_step0_first32"][:first]),
        "logits, step 1": gap(stacked(1, min(rows, 8), "logits"), trace["logits_step1_first8"][:rows]),
    }
    golden = load_file(fixtures / "golden/10_012.safetensors")
    same_tokens = True
    for n, anchor in enumerate(trace["chain_anchor_j"].tolist()):
        chain = model.chain(ids, states, anchor, 8, d2t)
        gaps[f"chain hidden from row {anchor}"] = gap(chain.feedback, trace["chain_hidden"][n])
        same_tokens &= chain.target_ids == golden["chain_target_id"][anchor].tolist()
    for what, (value, scale) in gaps.items():
        print(f"  max |difference| {value:.2e} of {scale:.3g}  {what}")
    print(f"  chain tokens equal: {same_tokens}")
    return all(value < 1e-5 * max(scale, 10) for value, scale in gaps.values()) and same_tokens


def check_predictions(fixtures: Path, index: int, ordering: str, rows: int | None) -> tuple[int, int]:
    """(equal, all) predictions of the reference against the recorded ones, over rows whose input token exists."""
    model, _ = drafter(fixtures)
    ids, slots = sample(fixtures, index)
    states = slots[:, [int(slot) for slot in ordering]]
    ours = predictions(model.teacher_forced(ids, states, DEPTH, rows))
    theirs = load_file(fixtures / f"golden/{index}_{ordering}.safetensors")["pred_draft_id"]
    pairs = [(p, int(theirs[k, t])) for k, step in enumerate(ours) for t, p in enumerate(step) if p is not None]
    return sum(a == b for a, b in pairs), len(pairs)


def count_everything(golden: dict[str, Tensor], d2t: list[int], mode: str) -> dict[str, Any]:
    """Everything that can be counted from the recorded predictions of one sample and ordering."""
    ids, mask = golden["input_ids"].tolist(), golden["loss_mask"].tolist()
    pred = scores.existing(golden["pred_draft_id"].tolist(), len(ids))
    verifier = golden["verifier_argmax"].tolist(), golden["verifier_argmax_draft_id"].tolist()
    return scores.score_json(pred, ids, mask, d2t, mode, DEPTH, *verifier)


def check_counts(fixtures: Path) -> bool:
    """Our counts of the recorded predictions against the recorded counts: every sample, ordering, mode and metric."""
    _, d2t = drafter(fixtures)
    gold = json.loads((fixtures / "golden/counts.json").read_text())
    right = True
    for group in ("v1", "speculators"):
        cells, wrong = 0, []
        for file, orderings in gold[group].items():
            index = "".join(c for c in file.removesuffix(".safetensors").removesuffix(".pt") if c.isdigit())
            for ordering, modes in orderings.items():
                golden = load_file(fixtures / f"golden/{index}_{ordering.replace(',', '')}.safetensors")
                for mode, truth in modes.items():
                    cells += len(scores.leaves(truth))
                    unlike = scores.differing(count_everything(golden, d2t, mode), truth)
                    wrong += [f"{file} {ordering} {mode} {line}" for line in unlike]
        print(f"  {group}: {cells - len(wrong)} of {cells} numbers equal")
        for line in wrong[:10]:
            print(f"    {line}")
        right &= not wrong
    return right


def check_walks(fixtures: Path) -> bool:
    """The walk at every recorded depth: from teacher-forced predictions (K <= 5) and from honest chains (K <= 8)."""
    _, d2t = drafter(fixtures)
    summary = json.loads((fixtures / "golden/summary.json").read_text())
    cells, wrong = 0, []
    identity = [0] * 200_000  # chains are recorded as target ids, so nothing is left to map
    for index, entry in summary.items():
        for ordering, truth in entry["orderings"].items():
            golden = load_file(fixtures / f"golden/{index}_{ordering.replace(',', '')}.safetensors")
            ids, mask = golden["input_ids"].tolist(), golden["loss_mask"].tolist()
            forced = scores.existing(golden["pred_draft_id"].tolist(), len(ids))
            chains = golden["chain_target_id"].T.tolist()
            for depth, walk in truth["walk"].items():
                for pred, mapping in ((forced, d2t), (chains, identity)):
                    if len(pred) < int(depth):
                        continue
                    ours = scores.walk(pred, ids, mapping, mask, int(depth))
                    cells += 1
                    if (ours.rounds, ours.tokens) != (walk["rounds"], walk["tokens"]):
                        wrong.append(f"{index} {ordering} K={depth}: {ours.rounds} {ours.tokens} != {walk}")
    print(f"  walks: {cells - len(wrong)} of {cells} equal")
    for line in wrong[:10]:
        print(f"    {line}")
    return not wrong


def check_trainer_metrics(fixtures: Path) -> bool:
    """The trainer's own full_acc_k and cond_acc_k against our ratios (verifier_draft_vocab, mask next)."""
    _, d2t = drafter(fixtures)
    summary = json.loads((fixtures / "golden/summary.json").read_text())
    cells, wrong = 0, []
    for index, entry in summary.items():
        for ordering, truth in entry["orderings"].items():
            golden = load_file(fixtures / f"golden/{index}_{ordering.replace(',', '')}.safetensors")
            steps = count_everything(golden, d2t, "next")["steps"]
            for k, step in enumerate(steps):
                for name, kind in (("full_acc", "joint"), ("cond_acc", "conditional")):
                    cell = step["verifier_draft_vocab"][kind]
                    theirs = truth["speculators_metrics"][f"{name}_{k}"]
                    ours = cell["hits"] / cell["total"] if cell["total"] else float("nan")
                    cells += 1
                    if not (abs(ours - theirs) < 1e-6 or (ours != ours and theirs != theirs)):
                        wrong.append(f"{index} {ordering} {name}_{k}: {cell} != {theirs}")
    print(f"  speculators' own ratios: {cells - len(wrong)} of {cells} equal")
    for line in wrong[:10]:
        print(f"    {line}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("--rows", type=int, default=20, help="rows of sample 10 for the forward")
    parser.add_argument("--everything", action="store_true", help="every prediction, sample and ordering (minutes)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"forward, sample 10, ordering 0,1,2, first {args.rows} rows")
    right = check_trace(args.fixtures, args.rows)
    todo = [(i, o) for i in SAMPLES for o in ("012", "021", "123", "210", "321")] if args.everything else [(10, "012")]
    equal = total = 0
    for index, ordering in todo:
        alike, of = check_predictions(args.fixtures, index, ordering, None if args.everything else args.rows)
        equal, total = equal + alike, total + of
        if alike != of:
            print(f"  sample {index} ordering {ordering}: {alike} of {of} predictions equal")
    print(f"  predictions: {equal} of {total} equal")
    print("counts from the recorded predictions")
    for check in (check_counts, check_walks, check_trainer_metrics):
        right &= check(args.fixtures)
    return 0 if right and equal == total else 1


if __name__ == "__main__":
    sys.exit(main())
