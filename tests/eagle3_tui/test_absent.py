"""A switch that is said not to apply changes no logit of any drafter of the zoo; one that may apply is not hidden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from drafter.drafting.chains import draft_steps
from drafter.errors import DrafterError
from drafter.session import Options, Session
from drafter.wiring import SWITCHES, Wiring
from eagle3_tui.controls.absent import absent_switches
from tests import tiny
from tests.zoo import ANIMALS, Animal

DEPTH = 3
# what changes a logit of every drafter here that has it; a window only of a sample that is longer
TOLD = {
    "norm_before_fc",
    "fc_norm",
    "fc_bias",
    "qkv_bias",
    "qk_norm",
    "upper_norms",
    "d2t",
    "fc",
    "row_ids",
    "mlp_gate",
    "halves",
}
TOLD |= {"feedback", "fed_ids", "draft_keys", "residual"}


def session_on(animal: Animal, folder: Path) -> Session:
    weights = tiny.tiny_weights(animal.seed, animal.sizes, **animal.make)
    target = tiny.write_target(folder / "target", weights, animal.sizes, lm_head=animal.head != "target, tied")
    drafter, sample = animal.write(folder / "drafter"), tiny.write_v1_sample(folder / "data_0.pt", animal.sample())
    session = Session(Options(drafter, (sample,), target=target, device="cpu", dtype="float32", depth=DEPTH))
    session.choose_checkpoint(session.pick(session.find()))
    session.choose_sample(sample)
    return session


def logits(session: Session, wiring: Wiring) -> Tensor:
    run, ordering = session.run(), tuple(range(session.checkpoint.fc_inputs))
    context = run.context(ordering, wiring, run.rows, lambda: None)
    rows = torch.arange(run.rows)
    steps = draft_steps(run, context, rows, DEPTH, False, lambda: None)
    return torch.cat([step.logits for step in steps])


def predicted(session: Session, wiring: Wiring) -> Tensor:
    """Logits of all steps, beside the target ids that they are for."""
    run = session.run()
    ids = run.drafter.vocab(wiring).target_ids
    return torch.cat([logits(session, wiring).flatten(), ids.float()])


def changed(session: Session, switch: str) -> Iterator[bool]:
    trained = session.trained_wiring
    before = predicted(session, trained)
    for value in SWITCHES[switch]:
        try:
            found = predicted(session, trained.switched(switch, value))
        except DrafterError:
            yield True  # refused is not the same
        else:
            yield not torch.equal(before, found)


@pytest.mark.parametrize("animal", ANIMALS, ids=lambda animal: animal.name)
def test_only_what_changes_nothing_is_absent(tmp_path: Path, animal: Animal) -> None:
    session = session_on(animal, tmp_path)
    absent = absent_switches(session.checkpoint)
    for switch in absent:
        assert not any(changed(session, switch)), switch
    window = session.checkpoint.run_config.sliding_window
    short = {"window"} if window is not None and window < session.sample.length else set()
    for switch in (TOLD | short) - set(absent):
        assert any(changed(session, switch)), switch
