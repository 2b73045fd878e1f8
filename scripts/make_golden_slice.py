"""Cut the small slice of recorded truths that the tests need out of the full fixtures: tests/data/golden.

    python -m scripts.make_golden_slice FIXTURES [tests/data/golden]

The full fixtures (a trained drafter, recorded samples, outputs of the real package) are too large for the repository.
Kept: predictions and verifier choices, from which every count follows, and the counts themselves. Not kept: weights and
hidden states.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

SAMPLES = (0, 10, 17, 539, 541, 546)
ORDERINGS = ("0,1,2", "0,2,1", "1,2,3")


def tight(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the smallest unsigned type that holds them."""
    if array.min() < 0:
        raise ValueError(f"a negative id: {array.min()}")
    return array.astype(np.min_scalar_type(int(array.max())))


def sample_arrays(golden: Path, index: int) -> dict[str, NDArray[Any]]:
    """One sample's text, mask, verifier choices, and for each ordering its predictions and chains."""
    out: dict[str, NDArray[Any]] = {}
    for ordering in ORDERINGS:
        name = ordering.replace(",", "")
        tensors = load_file(golden / f"{index}_{name}.safetensors")
        for key in ("input_ids", "verifier_argmax", "verifier_argmax_draft_id"):
            array = tight(tensors[key])
            if key in out and not np.array_equal(out[key], array):
                raise ValueError(f"sample {index}: {key} differs between orderings")
            out[key] = array
        out["loss_mask"] = tensors["loss_mask"].astype(bool)
        out[f"pred_draft_id_{name}"] = tight(tensors["pred_draft_id"])
        out[f"pred_target_id_{name}"] = tight(tensors["pred_target_id"])
        out[f"chain_target_id_{name}"] = tight(tensors["chain_target_id"])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("tests/data/golden"))
    args = parser.parse_args()
    golden, folder = args.fixtures / "golden", args.folder
    folder.mkdir(parents=True, exist_ok=True)

    weights = load_vocab_map(args.fixtures / "samples/speculators")
    np.savez_compressed(folder / "vocab_map.npz", **weights)
    for index in SAMPLES:
        np.savez_compressed(folder / f"sample_{index}.npz", **sample_arrays(golden, index))

    counts = json.loads((golden / "counts.json").read_text())
    summary = json.loads((golden / "summary.json").read_text())
    kept: dict[str, Any] = {"depth": 5, "modes": ["next", "predicted", "same", "all"]}
    for group in ("v1", "speculators"):
        kept[group] = {
            file: {ordering: modes[ordering] for ordering in ORDERINGS if ordering in modes}
            for file, modes in counts[group].items()
        }
    kept["walk"] = {i: {o: summary[i]["orderings"][o]["walk"] for o in ORDERINGS} for i in map(str, SAMPLES)}
    kept["trainer"] = {
        i: {o: accuracies(summary[i]["orderings"][o]["speculators_metrics"]) for o in ORDERINGS}
        for i in map(str, SAMPLES)
    }
    (folder / "counts.json").write_text(json.dumps(kept, separators=(",", ":")) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {size / 1000:.0f} kB")


def load_vocab_map(folder: Path) -> dict[str, NDArray[Any]]:
    """d2t as offsets [D], t2d as bool [V]."""
    d2t = np.load(next(folder.glob("d2t-*.npy")), allow_pickle=False)
    t2d = np.load(next(folder.glob("t2d-*.npy")), allow_pickle=False)
    return {"d2t": tight(d2t), "t2d": t2d.astype(bool)}


def accuracies(metrics: dict[str, float]) -> dict[str, float | None]:
    """The trainer's full_acc_k and cond_acc_k; None where it divided zero by zero."""
    return {k: (None if v != v else v) for k, v in metrics.items() if "_acc_" in k}


if __name__ == "__main__":
    main()
