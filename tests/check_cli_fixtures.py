"""Hold sessions and the command line against recorded truths: `python -m tests.check_cli_fixtures FIXTURES [PART ...]`.

Not a test: the recorded samples are too large for the repository and the whole takes minutes. Parts: counts, story,
views, walk, steps, commands (all by default). It prints what agrees, and exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from drafter.session import Options, Session
from drafter.views import views_json
from drafter.wiring import Ordering
from eagle3_tui.cli import main as eagle3_tui
from tests.reference_scores import MODES, differing, leaves

SLOTS = "embed,3,16,28"
SPLITS = {"train": (0, 10, 17), "val": (539, 541, 546)}
GAP = 1e-3  # logits closer than this may be ranked either way


class Tally:
    """Cells that were compared, and the first ones that differ."""

    def __init__(self) -> None:
        self.cells = self.wrong = 0
        self.lines: list[str] = []

    def same(self, what: str, ours: Any, theirs: Any) -> None:
        self.cells += 1
        if ours != theirs:
            self.differs(f"{what}: {ours} != {theirs}")

    def tree(self, what: str, ours: Any, theirs: Any) -> None:
        self.cells += len(leaves(theirs))
        for line in differing(ours, theirs):
            self.differs(f"{what} {line}")

    def differs(self, line: str) -> None:
        self.wrong += 1
        self.lines.append(line)

    def report(self, title: str) -> bool:
        print(f"  {title}: {self.cells - self.wrong} of {self.cells} cells equal", flush=True)
        for line in self.lines[:8]:
            print(f"    {line}")
        return not self.wrong and self.cells > 0


def session(fixtures: Path, folder: str, samples: list[Path], **options: Any) -> Session:
    """A session with the checkpoint that `pick` takes, and the first of `samples`."""
    opened = Session(
        Options(fixtures / folder, samples=tuple(samples), target=fixtures / "target", device="cpu", **options)
    )
    opened.choose_checkpoint(opened.pick(opened.find()))
    opened.choose_sample(samples[0])
    return opened


def v1(fixtures: Path, index: int) -> Path:
    return fixtures / f"samples/v1/data_{index}.pt"


def arrow(fixtures: Path, index: int) -> Path:
    return fixtures / f"samples/speculators/hidden_states/hs_{index}.safetensors"


def number(file: str) -> int:
    return int("".join(c for c in file.split(".")[0] if c.isdigit()))


def ordering(text: str) -> Ordering:
    return tuple(int(c) for c in text if c.isdigit())


def scored(opened: Session, paths: list[Path], orderings: list[Ordering] | None = None) -> dict[str, Any]:
    return opened.score_json(opened.score(paths, orderings))


def by_slots(data: dict[str, Any]) -> dict[Ordering, Any]:
    return {tuple(o["slots"]): o for o in data["orderings"]}


# The parts


def check_counts(fixtures: Path) -> bool:
    """Every recorded sample, ordering, mask mode and metric, in both layouts."""
    gold = json.loads((fixtures / "golden/counts.json").read_text())
    right = True
    groups = [("v1", "output", v1, SLOTS), ("speculators", "output", arrow, None)]
    groups.append(("speculators", "output_speculators", arrow, None))
    for group, folder, place, slots in groups:
        tally = Tally()
        for file, orderings in gold[group].items():
            path = place(fixtures, number(file))
            for mode in MODES:
                opened = session(fixtures, folder, [path], slots=slots, mask=mode)
                ours = by_slots(scored(opened, [path], [ordering(o) for o in orderings]))
                for name, modes in orderings.items():
                    tally.tree(f"{file} {name} {mode}", ours[ordering(name)], modes[mode])
        right &= tally.report(f"counts, {group} samples on {folder}")
    return right


def check_story(fixtures: Path) -> bool:
    """A drafter that is good as trained and wired wrongly: best, configured, and all 24 orderings pooled."""
    faults = json.loads((fixtures / "golden/faults.json").read_text())["orders_all_24_permutations"]
    tally = Tally()
    paths = [v1(fixtures, i) for split in SPLITS.values() for i in split]
    for split, indices in SPLITS.items():
        part = [v1(fixtures, i) for i in indices]
        data = scored(session(fixtures, "output", part, slots=SLOTS, mask="predicted", depth=1), part)
        for slots, found in by_slots(data).items():
            count = found["steps"][0]["next_token"]["marginal"]
            name = "".join(map(str, slots))
            tally.same(f"{split} {name}", round(count["hits"] / count["total"], 4), faults[name][split])
    data = scored(session(fixtures, "output", paths, slots=SLOTS, depth=1), paths)
    tally.same("best of all samples", data["best"], [0, 1, 2])
    tally.same("tied with it", data["tied_with_best"], [])
    tally.same("configured, flat with --slots", data["configured"], [1, 2, 3])
    for folder, slots, place, expected in (
        ("output", None, v1, None),
        ("output", None, arrow, None),
        ("output_speculators", SLOTS, v1, (0, 1, 2)),
        ("output_speculators", None, v1, (0, 1, 2)),
        ("output_speculators", None, arrow, (0, 1, 2)),
    ):
        opened = session(fixtures, folder, [place(fixtures, 10)], slots=slots)
        tally.same(f"configured, {folder} {place.__name__} --slots {slots}", opened.configured()[0], expected)
        tally.same(f"trained, {folder} {place.__name__} --slots {slots}", opened.trained(), (0, 1, 2))
    return tally.report("the founding story")


def check_views(fixtures: Path) -> bool:
    """As SGLang serves it: the wrong slots, the raw residual, both; and vLLM, which honours the residual."""
    faults = json.loads((fixtures / "golden/faults.json").read_text())
    tally = Tally()
    for split, indices in SPLITS.items():
        part = [v1(fixtures, i) for i in indices]
        opened = session(fixtures, "output", part, slots=SLOTS, mask="predicted", depth=2)
        data = views_json(opened.views(part, ["sglang@0.5.9", "sglang", "vllm"]))
        *served, vllm = data["views"]
        for view in served:
            found = {one["name"]: one for one in view["differences"]}
            for scored_as, truth in (
                (data["trained"], faults["correct"]),
                (found["ordering"]["alone"], faults["orders_all_24_permutations"]["123"]),
                (found["norm_before_residual"]["alone"], faults["norm_before_residual_flipped"]),
                (found["norm_before_residual"]["together"], faults["norm_before_residual_flipped_and_order_123"]),
                (view, faults["norm_before_residual_flipped_and_order_123"]),
            ):
                count = scored_as["accuracy"]
                tally.same(f"{split} {view['name']}", round(count["hits"] / count["total"], 4), truth[split])
            tally.same(f"{split} {view['name']} cause", view["cause"], "ordering")
        tally.same(f"{split} vllm differs", [one["name"] for one in vllm["differences"]], ["ordering"])
    return tally.report("served views")


def check_walk(fixtures: Path) -> bool:
    """Rounds and tokens of every sample and ordering at every depth."""
    summary = json.loads((fixtures / "golden/summary.json").read_text())
    tally = Tally()
    for index, entry in summary.items():
        path = v1(fixtures, int(index))
        opened = session(fixtures, "output", [path], slots=SLOTS)
        for depth in range(1, 9):
            result = opened.score([path], [ordering(o) for o in entry["orderings"]], depth=depth)
            ours = by_slots(opened.score_json(result))
            for name, truth in entry["orderings"].items():
                walk, gold = ours[ordering(name)]["accept_length"]["walk"], truth["walk"][str(depth)]
                have, want = (walk["rounds"], walk["tokens"]), (gold["rounds"], gold["tokens"])
                tally.same(f"{index} {name} depth {depth}", have, want)
    return tally.report("walks")


def check_steps(fixtures: Path, every: int = 4) -> bool:
    """Top five, chain and accept length of every fourth row of every sample and ordering."""
    tops, chains = Tally(), Tally()
    for file in sorted((fixtures / "golden").glob("*_???.safetensors")):
        index, _, name = file.stem.partition("_")
        if not index.isdigit():
            continue
        golden = load_file(file)
        opened = session(fixtures, "output", [v1(fixtures, int(index))], slots=SLOTS, depth=8)
        for row in range(0, opened.sample.length - 1, every):
            ours = opened.step_json(opened.step(row + 2, ordering(name)))
            what = f"{file.stem} row {row}"
            _compare_top(tops, what, ours["predictions"], golden, row)
            chain = golden["chain_target_id"][row].tolist()
            chains.same(f"{what} chain", [link["id"] for link in ours["chain"]], chain)
            chains.same(f"{what} accept", ours["accept_length"] - 1, int(golden["chain_accept"][row]))
            truths = [link["truth"] for link in ours["chain"]]
            chains.same(f"{what} cap", sum(t is not None for t in truths), int(golden["chain_cap"][row]))
    right = tops.report("top five draft ids and logits, where the gaps are larger than 1e-3")
    return chains.report("chains, accepted drafts, truths") and right


def _compare_top(
    tally: Tally, what: str, ours: list[dict[str, Any]], golden: dict[str, torch.Tensor], row: int
) -> None:
    logits, ids = golden["top5_logits"][row].tolist(), golden["top5_draft_id"][row].tolist()
    for i, prediction in enumerate(ours):
        tally.same(f"{what} logit {i}", abs(prediction["logit"] - logits[i]) < GAP, True)
        near = [abs(logits[i] - other) for j, other in enumerate(logits) if j != i]
        if min(near) > GAP and i < len(ours) - 1:  # the sixth is not recorded, so the fifth's gap is not known
            tally.same(f"{what} rank {i + 1}", prediction["draft_id"], ids[i])


def check_commands(fixtures: Path) -> bool:
    """The real command line on one sample of each layout, and a step."""
    gold = json.loads((fixtures / "golden/counts.json").read_text())
    score, step = Tally(), Tally()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        for group, place, slots in (("v1", v1, ["--slots", SLOTS]), ("speculators", arrow, [])):
            path = place(fixtures, 10)
            start = time.monotonic()
            words = ["score", str(fixtures / "output"), "-s", str(path), *slots, "--json", "-o", str(out), "--no-log"]
            command(words)
            print(f"  score of {path.name}, 24 orderings: {time.monotonic() - start:.1f} s")
            ours = by_slots(json.loads(out.read_text()))
            score.same("orderings", len(ours), 24)
            for name, modes in gold[group][path.name].items():
                score.tree(f"{path.name} {name}", ours[ordering(name)], modes["next"])
        words = ["step", str(fixtures / "output"), "-s", str(v1(fixtures, 541)), "--at", "70", "--depth", "8"]
        command([*words, "--json", "-o", str(out), "--no-log"])
        ours_step = json.loads(out.read_text())
        golden = load_file(fixtures / "golden/541_012.safetensors")
        step.same("ordering", ours_step["ordering"], [0, 1, 2])
        step.same("chain", [link["id"] for link in ours_step["chain"]], golden["chain_target_id"][68].tolist())
    return score.report("score --json") & step.report("step --json")


def command(words: list[str]) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = eagle3_tui(words)
    if code:
        raise SystemExit(f"{' '.join(words)}: exit {code}: {said.getvalue()}")


PARTS: dict[str, Callable[[Path], bool]] = {
    "counts": check_counts,
    "story": check_story,
    "views": check_views,
    "walk": check_walk,
    "steps": check_steps,
    "commands": check_commands,
}


def checks(fixtures: Path, parts: list[str]) -> Iterator[bool]:
    for part in parts or list(PARTS):
        print(part, flush=True)
        start = time.monotonic()
        yield PARTS[part](fixtures)
        print(f"  {time.monotonic() - start:.0f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    args = parser.parse_args()
    return 0 if all(list(checks(args.fixtures, args.parts))) else 1


if __name__ == "__main__":
    sys.exit(main())
