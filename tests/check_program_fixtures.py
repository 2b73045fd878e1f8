"""The faults of golden/faults.json that no file holds, on the real drafter: its numbers, and what the checks say.

Run by hand: `python -m tests.check_program_fixtures FIXTURES`. For each fault the recorded accuracies (or mean accepted
drafts, shares by position and walk of 8 drafts) are computed with the switch set and compared; then `check` is asked
twice: with the switch set by hand, and with what a server with the fault would show. Both on the training texts, where
this drafter drafts well enough for a fault of later steps to cost anything. Ends with 1 where a number differs, or
where a fault that costs more than other prompts would is not named.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from drafter.checks.finding import ERROR, Finding
from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.free import leading_right, target_tokens
from drafter.drafting.rounds import Round, rounds, walk_json
from drafter.scoring.counts import count, rows_needed
from drafter.scoring.sweep import truths_of
from drafter.session import Options, Session
from drafter.wiring import Wiring

ORDERING, DEPTH = (0, 1, 2), 8
PARTS = {"train0": 10, "val0": 541}
TRAIN, HELD_OUT = (0, 10, 17), (539, 541, 546)
CHAINS = {
    "feed_back_post_norm_hidden": ("norm_output", "on"),
    "feed_back_same_fc_hidden": ("feedback", "first"),
    "feed_draft_id_unmapped": ("fed_ids", "draft"),
    "position_not_incremented": ("positions", "constant"),
    "fresh_kv_each_step": ("draft_keys", "forgotten"),
    "no_prefix_kv": ("draft_keys", "alone"),
}
NOT_SHIFTED = "token_not_shifted (x[j] with g[j])"
# not in the golden file: what else a program may get wrong
MORE = (("feedback", "through_fc"), ("residual", "lost_at_end"))
MATTERS = 0.16  # of the accepted drafts: other prompts move a served length by as much


class Fixture:
    def __init__(self, root: Path) -> None:
        self.root, self.golden = root, json.loads((root / "golden/faults.json").read_text())

    def session(self, **asked: Any) -> Session:
        options = Options(
            self.root / "output_speculators",
            samples=tuple(self.sample(i) for i in TRAIN),
            target=self.root / "target",
            slots="embed,3,16,28",
            device="cpu",
            dtype="float32",
            mask="predicted",
            **asked,
        )
        session = Session(options)
        session.choose_checkpoint(session.pick(session.find()))
        return session

    def sample(self, i: int) -> Path:
        return self.root / f"samples/v1/data_{i}.pt"


def chain_numbers(session: Session, path: Path, wiring: Wiring) -> dict[str, Any]:
    """mean_accept, cum and walk8 as the golden file defines them, of chains that run free."""
    run = SampleRun(session.load(), session.open_sample(path))
    supervised = run.sample.supervised
    drafted = draft_ids(run, ORDERING, wiring, DEPTH, rows_needed(supervised, "predicted", DEPTH), own_tokens=True)
    right = leading_right(target_tokens(run, wiring, drafted), run.ids)
    counted = [t for t in range(run.sample.length - 2) if bool(supervised[t + 2])]
    accepted = right[counted].double()
    walked = walk_json(rounds(run, ORDERING, wiring, DEPTH))["length"]
    cum = [float((accepted > k).double().mean()) for k in range(DEPTH)]
    return {"mean_accept": float(accepted.mean()), "walk8": walked, "cum": cum}


def differs(found: dict[str, Any], said: dict[str, Any]) -> bool:
    pairs = [(found["mean_accept"], said["mean_accept"]), (found["walk8"], said["walk8"])]
    return any(abs(a - b) > 1e-4 for a, b in pairs) or any(
        abs(a - b) > 1e-3 for a, b in zip(found["cum"], said["cum"], strict=False)
    )


def accuracy(session: Session, wiring: Wiring, names: tuple[int, ...], fixture: Fixture) -> float:
    hits = total = 0
    for i in names:
        run = SampleRun(session.load(), session.open_sample(fixture.sample(i)))
        truths = truths_of(run, None, wiring)
        rows = rows_needed(truths.mask, "predicted", 1)
        one = count(draft_ids(run, ORDERING, wiring, 1, rows), truths, "predicted").accuracy
        hits, total = hits + one.hits, total + one.total
    return hits / total


def served(session: Session, wiring: Wiring, fixture: Fixture, drafts: int = 5) -> tuple[float, tuple[float, ...]]:
    """What a server would show on these texts."""
    found: list[Round] = []
    for i in TRAIN:
        run = SampleRun(session.load(), session.open_sample(fixture.sample(i)))
        found += rounds(run, ORDERING, wiring, drafts)
    rates = tuple(sum(one.accepted > k for one in found) / len(found) for k in range(drafts))
    return 1 + sum(rates), rates


def by_hand(fixture: Fixture, name: str, value: str) -> list[Finding]:
    session = fixture.session(switches=((name, value),))
    report = session.check(session.pick(session.last_found), session.list_samples().paths)
    return [one for one in report.findings if one.severity == ERROR]


def as_served(fixture: Fixture, length: float, rates: tuple[float, ...]) -> tuple[str, list[str]]:
    session = fixture.session()
    report = session.check(session.pick(session.last_found), session.list_samples().paths, served=length, rates=rates)
    told = next((one for one in report.findings if one.check == "served-looks-like"), None)
    return ("not told", []) if told is None else (told.title, list(told.evidence["nearest"]))


def main(root: Path) -> int:
    fixture = Fixture(root)
    session = fixture.session()
    right = Wiring.trained(session.checkpoint.run_config)
    best = served(session, right, fixture)[0]
    wanted = {**CHAINS, NOT_SHIFTED: ("row_ids", "same"), **{value: (name, value) for name, value in MORE}}
    failures = 0
    for golden, (name, value) in wanted.items():
        begun, wrong = time.monotonic(), right.switched(name, value)
        print(f"\n{golden}: {name} {value}")
        failures += numbers(fixture, session, golden, wrong)
        failures += not told(fixture, name, value, best, *served(session, wrong, fixture))
        print(f"  {time.monotonic() - begun:.0f} s", flush=True)
    return 1 if failures else 0


def numbers(fixture: Fixture, session: Session, golden: str, wrong: Wiring) -> int:
    """How many of the recorded numbers differ."""
    failures = 0
    for part, i in PARTS.items() if golden in CHAINS else ():
        found, said = chain_numbers(session, fixture.sample(i), wrong), fixture.golden["chain"][golden][part]
        failures += differs(found, said)
        here, there = (f"mean {one['mean_accept']:.4f} walk {one['walk8']:.4f}" for one in (found, said))
        print(f"  {part}: {here}, recorded {there}{'  DIFFERS' if differs(found, said) else ''}")
    for key, names in (("train", TRAIN), ("val", HELD_OUT)) if golden == NOT_SHIFTED else ():
        here, there = accuracy(session, wrong, names, fixture), fixture.golden[golden][key]
        failures += abs(here - there) > 1e-4
        print(f"  {key}: {here:.4f}, recorded {there:.4f}")
    return failures


def told(fixture: Fixture, name: str, value: str, best: float, length: float, rates: tuple[float, ...]) -> bool:
    """Whether the fault is named both ways, or costs too little."""
    matters = best - length > MATTERS * (best - 1)
    errors, (title, nearest) = by_hand(fixture, name, value), as_served(fixture, length, rates)
    named = bool(errors) and errors[0].evidence.get("switch") == name
    looks = f"{name} {value}" in nearest[:2]
    print(f"  served would be {length:.2f} instead of {best:.2f}{'' if matters else ': too little to be told'}")
    print(f"  by hand: {errors[0].title if errors else 'no error'}\n  served: {title}\n          nearest {nearest}")
    print("  named by hand" * named + "  named as served" * looks + "  NOT NAMED" * (matters and not (named and looks)))
    return not matters or (named and looks)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(Path(sys.argv[1])))
