"""Faults of whoever runs the drafter, which no file holds: set as switches by hand, or seen in a server's numbers.

What a server would show is drafted round by round with the fault in force, from the drafter's own files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drafter.checks.run import Report, run_checks
from drafter.drafting.context import SampleRun
from drafter.drafting.rounds import rounds
from drafter.session import Session
from drafter.wiring import Ordering, Wiring
from tests.faults.checked import case_of
from tests.faults.variants import split_layers
from tests.faults.world import World, healthy, with_last, write_world

DRAFTS = 5
RIGHT: Ordering = (1, 2, 3)


@dataclass(frozen=True)
class Program:
    """`switches`, or another `ordering` of the recorded slots (embedding, 2, 4, 6, and the last of `make`), is what is
    wrong; `kinds` are the headings under which the right answer stands, `said` is what it must name."""

    name: str
    report: str
    kinds: tuple[str, ...]
    said: str
    switches: Mapping[str, str] = field(default_factory=dict)
    ordering: Ordering = RIGHT
    make: Callable[[], World] = healthy


def _one(report: str, kind: str, name: str, value: str, make: Callable[[], World] = healthy) -> Program:
    return Program(f"{name} {value}", report, (kind,), name, {name: value}, make=make)


BY_HAND = [
    _one("sgl-project/SpecForge#455", "K08", "row_ids", "same"),
    _one("fault-signatures F22", "K05", "feedback", "through_fc"),
    _one("golden feed_back_same_fc_hidden", "K05", "feedback", "first"),
    _one("golden feed_draft_id_unmapped", "K03", "fed_ids", "draft"),
    _one("golden no_prefix_kv", "K13", "draft_keys", "alone"),
    _one("vllm-project/vllm#26164", "K05", "residual", "lost_between", split_layers),
    _one("golden position_not_incremented", "K06", "positions", "constant"),
    _one("golden fresh_kv_each_step", "K13", "draft_keys", "forgotten"),
    _one("vllm-project/vllm#11672", "K05", "norm_before_residual", "off"),
]
# changes next to nothing in this toy: its last layer says little by its residual, its texts are short
INVISIBLE = [
    _one("vllm-project/vllm#14464", "", "residual", "lost_at_end"),
    _one("vllm-project/speculators#1114", "", "final_norm", "off"),
    _one("sgl-project/SpecForge#265", "", "rope_base", "10000"),
]
SERVED = [
    *BY_HAND,
    Program("the first layers", "B001", ("K01",), "fed slots 0,1,2", ordering=(0, 1, 2)),
    Program("the deeper layers", "B001", ("K01",), "fed slots 2,3,4", {}, (2, 3, 4), lambda: with_last(healthy())),
]  # fmt: skip


def check_by_hand(folder: Path, program: Program) -> Report:
    session = write_world(folder, program.make())
    case = case_of(session, folder)
    case.switches = dict(program.switches)
    return run_checks(case)


def check_served(folder: Path, program: Program, positions: bool = True) -> Report:
    """What `check` says of the healthy files where a server has the fault; `positions`: its log tells these too."""
    session = write_world(folder, program.make())
    length, rates = served(session, program)
    case = case_of(session, folder, length)
    case.rates = rates if positions else ()
    return run_checks(case)


def served(session: Session, program: Program) -> tuple[float, tuple[float, ...]]:
    """The mean accept length of a server with the fault on text that was not trained on, and the shares of rounds by
    accepted drafts."""
    drafter, accepted = session.load(), list[int]()
    wiring = Wiring.trained(session.checkpoint.run_config)
    for name, value in program.switches.items():
        wiring = wiring.switched(name, value)
    for path in session.list_samples().paths:
        if "heldout" not in path.name:
            continue
        run = SampleRun(drafter, session.open_sample(path))
        accepted += [one.accepted for one in rounds(run, program.ordering, wiring, DRAFTS)]
    rates = tuple(sum(one > k for one in accepted) / len(accepted) for k in range(DRAFTS))
    return 1 + sum(accepted) / len(accepted), rates
