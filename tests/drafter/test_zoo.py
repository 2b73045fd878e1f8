"""Every drafter of the zoo opens, says who made it and why it thinks so, and computes what its producer computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.facts import facts_json
from drafter.drafting.chains import draft_ids
from drafter.drafting.readout import read_chain, read_rows
from drafter.errors import DrafterError
from drafter.session import Options, Session
from eagle3_tui import cli
from tests import tiny
from tests.reference import Row
from tests.zoo import ANIMALS, BROKEN, REFUSED, Animal, Broken, Refused
from tests.zoo.kinds import TOKENS

torch.set_num_threads(1)
DEPTH = 4
ROWS = TOKENS - 1
CLOSE = 1e-4  # of the largest logit
EVERY = pytest.mark.parametrize("animal", ANIMALS, ids=lambda animal: animal.name)


@dataclass(frozen=True)
class Kept:
    """An animal on disk, and what must come of it."""

    animal: Animal
    folder: Path
    target: Path | None
    sample: Path
    forced: list[list[Row | None]]
    ordering: tuple[int, ...]

    def session(self) -> Session:
        session = Session(
            Options(self.folder, samples=(self.sample,), target=self.target, device="cpu", dtype="float32", depth=DEPTH)
        )
        session.choose_checkpoint(session.pick(session.find()))
        return session

    def close(self, ours: float, truth: float, logits: Tensor) -> bool:
        return abs(ours - truth) <= CLOSE * float(logits.abs().max())


Keep = Callable[[Animal], Kept]


@pytest.fixture(scope="module")
def keep(tmp_path_factory: pytest.TempPathFactory) -> Keep:
    """Writes each animal once, and computes its reference once."""
    made: dict[str, Kept] = {}
    root = tmp_path_factory.mktemp("zoo")

    def keep(animal: Animal) -> Kept:
        if animal.name not in made:
            folder = animal.write(root / animal.name / "drafter")
            text = animal.sample()
            path = tiny.write_v1_sample(root / animal.name / "data_0.pt", text)
            target = None
            if animal.needs_target:
                weights = tiny.tiny_weights(animal.seed, animal.sizes, **animal.make)
                head = animal.head != "target, tied"
                target = tiny.write_target(root / animal.name / "target", weights, animal.sizes, lm_head=head)
            # not the order in which they were recorded, so that another order shows
            ordering = tuple(reversed(range(animal.sizes.states)))
            reference = animal.reference()
            forward = reference.parallel if "mask_token" in animal.switches else reference.teacher_forced
            forced = forward(text.ids, text.slots[:, list(ordering)], DEPTH)
            made[animal.name] = Kept(animal, folder, target, path, forced, ordering)
        return made[animal.name]

    return keep


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Session logs go to a folder of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def facts(checkpoint: Checkpoint) -> dict[str, Any]:
    return facts_json(checkpoint, None)["config"]


def from_the_target(animal: Animal) -> set[str]:
    """What a checkpoint may lack because the target has it."""
    return {f"{name}.weight" for name in ("embed_tokens", "lm_head") if name in animal.drop}


@EVERY
def test_it_says_who_made_it_and_what_it_holds(keep: Keep, animal: Animal) -> None:
    checkpoint = keep(animal).session().checkpoint
    assert animal.producer.lower() in checkpoint.config.producer.lower()
    assert checkpoint.config.dialect in animal.dialects
    found = facts(checkpoint)
    sizes = animal.sizes
    expected = {
        "hidden_size": sizes.hidden,
        "num_layers": sizes.layers,
        "vocab_size": sizes.vocab,
        "num_heads": sizes.heads,
        "intermediate_size": sizes.mlp,
        **animal.fields,
    }
    assert {name: found[name]["value"] for name in expected} == expected
    assert checkpoint.draft_vocab_size == sizes.draft_vocab
    assert checkpoint.fc_inputs == sizes.states
    without = [name for name, field in found.items() if not field["source"]]
    assert without == [], "fields that no evidence is shown for"
    if animal.warns:
        assert any(all(word in line for word in animal.warns) for line in checkpoint.warnings)
    assert set(checkpoint.missing) <= from_the_target(animal)


@EVERY
def test_step_0_is_the_references(keep: Keep, animal: Animal) -> None:
    kept = keep(animal)
    session = kept.session()
    session.choose_sample(kept.sample)
    found = read_rows(session.run(), kept.ordering, session.wiring, list(range(ROWS)), 5)
    ids = animal.target_ids()
    for t, readout in enumerate(found):
        row = kept.forced[0][t]
        assert row is not None
        for prediction in readout.predictions:
            truth = float(row.logits[prediction.draft_id])
            assert kept.close(prediction.logit, truth, row.logits), (t, prediction, truth)
            assert prediction.id == int(ids[prediction.draft_id])
        best = row.logits.max()
        assert kept.close(float(row.logits[readout.predictions[0].draft_id]), float(best), row.logits), t


@EVERY
def test_four_teacher_forced_steps_are_the_references(keep: Keep, animal: Animal) -> None:
    kept = keep(animal)
    session = kept.session()
    session.choose_sample(kept.sample)
    found = draft_ids(session.run(), kept.ordering, session.wiring, DEPTH)
    compared = 0
    for k, step in enumerate(kept.forced):
        for t, row in enumerate(step):
            drafted = int(found[k, t])
            if row is not None:
                assert drafted >= 0, (k, t)
                best = float(row.logits.max())  # of two that are equally good, either
                assert kept.close(float(row.logits[drafted]), best, row.logits), (k, t)
                compared += 1
    assert compared == sum(ROWS - k for k in range(DEPTH))


@EVERY
def test_a_chain_of_its_own_is_the_references(keep: Keep, animal: Animal) -> None:
    """Drafted freely from one row; P-EAGLE drafts in parallel, from the mask token alone."""
    kept, row = keep(animal), 6
    session = kept.session()
    session.choose_sample(kept.sample)
    ids = animal.target_ids()
    # the reference drafts as a server does, whose window moves on with the draft
    served = session.wiring.switched("window", "moving")
    found = read_chain(session.run(), kept.ordering, served, row, DEPTH)
    if "mask_token" in animal.switches:
        logits = [step[row].logits for step in kept.forced if step[row] is not None]  # type: ignore[union-attr]
    else:
        text = animal.sample()
        offsets = (ids - torch.arange(len(ids))).tolist()
        chain = animal.reference().chain(text.ids, text.slots[:, list(kept.ordering)], row, DEPTH, offsets)
        logits = list(chain.logits)
    assert len(logits) == DEPTH
    for link, truth in zip(found, logits, strict=True):
        probs = truth.softmax(-1)
        assert link.prob == pytest.approx(float(probs.max()), rel=2e-3)
        if link.id != int(ids[truth.argmax()]):
            first, second = probs.topk(2).values.tolist()
            assert second == pytest.approx(first, rel=2e-3)
            break  # two were equally good, and what follows one does not follow the other


@EVERY
def test_show_names_it(keep: Keep, animal: Animal, capsys: pytest.CaptureFixture[str]) -> None:
    kept = keep(animal)
    words = ["show", str(kept.folder), "--json"]
    assert cli.main(words) == 0
    shown = json.loads(capsys.readouterr().out)["checkpoint"]
    assert animal.producer.lower() in shown["producer"].lower()
    assert shown["dialect"] in animal.dialects
    assert set(shown["missing"]) <= from_the_target(animal)


def test_every_animal_has_a_name_of_its_own() -> None:
    names = [animal.name for animal in ANIMALS]
    assert len(set(names)) == len(names) >= 90


def test_the_code_in_a_checkpoint_is_never_imported(keep: Keep) -> None:
    armed = [animal for animal in ANIMALS if animal.beside is not None and (keep(animal).folder / "config.py").exists()]
    assert armed
    for animal in armed:
        keep(animal).session().load()
        assert not (keep(animal).folder / "IMPORTED").exists()


@pytest.mark.parametrize("other", REFUSED, ids=lambda other: other.name)
def test_what_is_no_drafter_is_refused_in_one_line(tmp_path: Path, other: Refused) -> None:
    other.write(tmp_path)
    with pytest.raises(DrafterError) as caught:
        session = Session(Options(tmp_path, device="cpu"))
        session.choose_checkpoint(session.pick(session.find()))
        session.load()
    line = str(caught.value)
    assert other.word.lower() in line.lower()
    assert line.isprintable() and len(line) <= 1000


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_what_is_not_whole_is_listed_or_refused(tmp_path: Path, broken: Broken) -> None:
    """Its state says so; where the listing cannot know, opening or loading says so."""
    said = ""
    try:
        session = Session(Options(broken.write(tmp_path / "drafter"), device="cpu"))
        found = session.pick(session.find())
        said = found.state
        session.choose_checkpoint(found)
        session.load()
    except DrafterError as error:
        said += f" | {error}"
    assert said, "it was taken for a whole one"
    assert broken.word.lower() in said.lower()
    assert said.isprintable()
