"""Hold chains and rounds against recorded truths of the real package: `python -m tests.check_chains_fixtures FIXTURES`.

Not a test: the recorded samples and the trained drafter are too large for the repository. It prints what agrees, and
exits 1 if anything differs. `--plain N` samples are also decoded by the plain server of the reference, row after row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

from drafter.drafting.context import SampleRun
from drafter.drafting.free import both_ways, leading_right, target_tokens
from drafter.drafting.rounds import rounds
from drafter.sample.open import open_sample
from drafter.wiring import Ordering, Wiring
from tests import reference_scores
from tests.check_fixtures import SAMPLES, drafter, sample
from tests.check_trees_fixtures import load_drafter
from tests.reference.rounds import PlainServer, decode

K = 8
ORDERINGS = ("0,1,2", "0,2,1", "1,2,3", "2,1,0", "3,2,1")
PLAIN = (10, 541, 546)


class Tally:
    def __init__(self) -> None:
        self.same = self.all = 0
        self.lines: list[str] = []

    def add(self, what: str, same: int, of: int) -> None:
        self.same, self.all = self.same + same, self.all + of
        if same != of:
            self.lines.append(f"    {what}: {same} of {of}")

    def report(self, title: str) -> bool:
        print("\n".join([f"  {title}: {self.same} of {self.all} equal", *self.lines[:8]]), flush=True)
        return self.same == self.all > 0


def ordering(text: str) -> Ordering:
    return tuple(int(c) for c in text.split(","))


def check_golden(fixtures: Path, runs: dict[int, SampleRun]) -> bool:
    """Every recorded chain and its accepted drafts, both ways; every walk of K = 1..8 as rounds."""
    summary = json.loads((fixtures / "golden/summary.json").read_text())
    chains, accepts, ways, walks = Tally(), Tally(), Tally(), Tally()
    for index, run in runs.items():
        for name in ORDERINGS:
            what, golden = (
                f"{index} {name}",
                load_file(fixtures / f"golden/{index}_{name.replace(',', '')}.safetensors"),
            )
            wiring = Wiring.trained(run.drafter.config)
            both = both_ways(run, ordering(name), wiring, K)
            tokens = target_tokens(run, wiring, both.free)
            chains.add(what, int((golden["chain_target_id"] == tokens.T).sum()), tokens.numel())
            right = leading_right(tokens, run.ids)
            accepts.add(what, int((right == golden["chain_accept"]).sum()), len(right))
            forced = leading_right(target_tokens(run, wiring, both.forced), run.ids)
            ways.add(what, int((right == forced).sum()), len(right))
            for depth, walk in summary[str(index)]["orderings"][name]["walk"].items():
                made = rounds(run, ordering(name), wiring, int(depth))
                ours = {"rounds": len(made), "tokens": sum(one.emitted for one in made)}
                walks.add(f"{what} K={depth}", int(ours == walk), 1)
    titles = ("chain tokens", "accepted drafts", "accept length teacher-forced and free", "walks")
    parts = [tally.report(title) for tally, title in zip((chains, accepts, ways, walks), titles, strict=True)]
    return all(parts)


def check_plain(fixtures: Path, runs: dict[int, SampleRun], count: int) -> bool:
    """Every row of some samples drafted by the plain server; their rounds with either refresh."""
    model, d2t = drafter(fixtures)
    rows, redone = Tally(), {False: Tally(), True: Tally()}
    for index in PLAIN[:count]:
        run, (ids, slots) = runs[index], sample(fixtures, index)
        wiring = Wiring.trained(run.drafter.config)
        server = PlainServer(model, slots[:, [0, 1, 2]], K, d2t, keep=False)
        ours = target_tokens(run, wiring, both_ways(run, (0, 1, 2), wiring, K).free).T.tolist()
        server.prefill(ids[:2])
        for row, token in enumerate([*ids[2:], None]):
            rows.add(f"{index} row {row}", int(server.draft() == ours[row]), 1)
            if token is not None:
                server.emit([], token)
        spans = reference_scores.runs(run.sample.supervised.long().tolist())
        for keep, tally in redone.items():
            plain = PlainServer(model, slots[:, [0, 1, 2]], 5, d2t, keep)
            truth = [one for start, stop in spans for one in decode(plain, ids, start, stop)]
            made = rounds(run, (0, 1, 2), wiring, 5, "drafted" if keep else "target")
            same = [(a.known, list(a.drafted), a.accepted) == (b.known, b.drafted, b.accepted)
                    for a, b in zip(made, truth, strict=False)]  # fmt: skip
            tally.add(f"{index}", sum(same), max(len(made), len(truth)))
            tokens = sum(one.emitted for one in made)
            print(f"  sample {index}, {'kept' if keep else 'redone'} rows: {tokens} tokens in {len(made)} rounds")
    titles = ("rows redone, rounds of K = 5", "rows kept as drafted, rounds of K = 5")
    parts = [rows.report("chains of every row, plain"), *(t.report(n) for t, n in zip(redone.values(), titles))]  # noqa: B905
    return all(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fixtures", type=Path)
    parser.add_argument(
        "--plain", type=int, default=3, metavar="N", help="samples decoded by the plain server (minutes)"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = load_drafter(args.fixtures)
    runs = {i: SampleRun(model, open_sample(args.fixtures / f"samples/v1/data_{i}.pt")) for i in SAMPLES}
    start = time.monotonic()
    right = check_golden(args.fixtures, runs)
    print(f"  {time.monotonic() - start:.0f} s", flush=True)
    return 0 if (not args.plain or check_plain(args.fixtures, runs, args.plain)) and right else 1


if __name__ == "__main__":
    sys.exit(main())
