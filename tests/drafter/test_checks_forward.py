"""What the forward checks measure and conclude, against counts made by hand; chance is never called a fault."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from drafter.checks.case import Case
from drafter.checks.explain import compared, diagnosis, marginals, relabelled
from drafter.checks.finding import Finding
from drafter.checks.k09_mask import _against_turns
from drafter.checks.measure import Measured, Measures, Option, measured, measures, moved
from drafter.checks.run import all_checks, run_checks
from drafter.checks.signature import DEAD_ALL, DYING, FLAT_LOW, RISING, UNTOLD, WHOLE, signature
from drafter.sample.open import open_sample
from drafter.sample.sample import Sample
from drafter.scoring.counts import Truths
from drafter.scoring.tallies import Count
from drafter.wiring import Wiring
from scripts import train_fault_fixture as training
from tests.drafter.byte_chat import chat
from tests.faults import toy
from tests.faults import world as worlds
from tests.faults.checked import brief, case_of, check_world
from tests.faults.world import World, healthy, record, with_last, write_world


def case(folder: Path, world: World | None = None) -> Case:
    chosen = world or healthy()
    return case_of(write_world(folder, chosen), folder)


# --- the fixture


def test_the_library_counts_what_the_training_forward_does(tmp_path: Path) -> None:
    opened = case(tmp_path)
    m, d = measures(opened), diagnosis(opened)
    weights = {n: t.float() for n, t in healthy().weights.items()}
    hits, totals = [0] * 4, [0] * 4
    for recorded in healthy().samples:
        ids = torch.tensor([recorded.ids])
        slots = torch.cat([recorded.states[depth] for depth in training.DEPTHS], -1)[None]
        target_ids = torch.arange(worlds.SIZES.draft_vocab) + healthy().weights["d2t"]
        for k, logits in enumerate(training.logits(weights, worlds.target().embed, slots, ids, 4)):
            truth = ids[0, 2 + k :]
            right = target_ids[logits[0, : len(truth)].argmax(-1)] == truth
            counted = torch.tensor(recorded.mask)[1 + k :][: len(truth)].bool()
            hits[k] += int((right & counted).sum())
            totals[k] += int(counted.sum())
    ours = marginals(m.measure(d.base, d.samples, 4))
    assert [c.total for c in ours] == totals
    assert all(abs(c.hits - h) <= 1 for c, h in zip(ours, hits, strict=True))  # a tie may fall either way
    assert 0.6 < hits[0] / totals[0] < 0.85


def test_wrong_layers_cost_nearly_everything(tmp_path: Path) -> None:
    d = diagnosis(case(tmp_path))
    assert d.best == (1, 2, 3)
    others = [one.accuracy for ordering, one in d.sweep.items() if ordering != (1, 2, 3)]
    assert sorted(others)[len(others) // 2] < 0.15
    assert max(others) < 0.6 * d.sweep[d.best].accuracy


def test_the_target_says_what_is_recorded() -> None:
    recorded = record(17)
    choice = toy.last_choice(worlds.target(), recorded.states[toy.LAYERS])
    assert choice[1:-1].tolist() == recorded.ids[2:]


def test_the_fixture_is_small() -> None:
    assert sum(path.stat().st_size for path in worlds.DATA.iterdir()) <= 700_000


# --- moved rows


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_moved_rows_are_those_beside(shift: int, tmp_path: Path) -> None:
    recorded = record(4, 20)
    sample = open_sample(worlds.write_sample(tmp_path, recorded))
    other = moved(sample, shift)
    assert other.ids.tolist() == recorded.ids[1:-1]
    assert other.supervised.tolist() == [bool(m) for m in recorded.mask[1:-1]]
    for slot, depth in zip(other.slots, recorded.kept, strict=True):
        wanted = recorded.states[depth][1 + shift : 19 + shift]
        assert torch.equal(slot.tensor.rows(0, 18).float(), wanted)
        assert torch.equal(slot.tensor.gather([3, 0]).float(), wanted[[3, 0]])
        assert slot.tensor.head(5).shape == (5, toy.WIDTH)


def test_states_of_a_shorter_sample_shorten_the_tokens(tmp_path: Path) -> None:
    one = open_sample(worlds.write_sample(tmp_path, record(4, 20)))
    two = open_sample(worlds.write_sample(tmp_path, record(5, 12)))
    both = moved(one, 0, two)
    assert both.length == 10 and both.slots[0].tensor.shape == (10, toy.WIDTH)
    assert both.ids.tolist() == record(4, 20).ids[1:11]


# --- measuring


def _made(predicted: Tensor, truths: Truths) -> Measured:
    return measured(predicted, truths, "all")


def _truths(ids: list[int], targets: list[int], vocab: int = 12) -> Truths:
    inverse = torch.full((vocab,), -1)
    inverse[targets] = torch.arange(len(targets))
    mask = torch.ones(len(ids), dtype=torch.bool)
    return Truths(torch.tensor(ids), mask, torch.tensor(targets), inverse)


def test_another_map_is_counted_with_its_own_ids() -> None:
    truths = _truths([0, 1, 5, 6, 7, 5], [1, 2, 3])
    predicted = torch.tensor([[0, 1, 2, 0, -1]])
    assert _made(predicted, truths).counts.accuracy == Count(0, 4)
    right = measured(predicted, truths, "all", torch.tensor([5, 6, 7]))
    assert right.counts.accuracy == Count(4, 4) and right.counts.coverage == Count(4, 4)
    beyond = measured(predicted, truths, "all", torch.tensor([5, 600, -3]))  # a server would look beyond the table
    assert beyond.counts.accuracy == Count(2, 4)


# --- signatures


def counts(*hits: int, total: int = 400) -> list[Count]:
    return [Count(h, total) for h in hits]


@pytest.mark.parametrize(
    ("hits", "name"),
    [
        ((292, 284, 284, 284, 280), WHOLE),  # baseline
        ((29, 64, 60, 44, 48), FLAT_LOW),  # F01: embed and others; deeper steps are a little better, by chance or not
        ((24, 40, 28, 32, 28), FLAT_LOW),  # F05
        ((0, 0, 0, 0, 0), DEAD_ALL),  # F10
        ((4, 4, 4, 4, 0), DEAD_ALL),  # F24
        ((204, 200, 200, 200, 200), WHOLE),  # F13: the map's matter, not the shape's
        ((52, 100, 124, 140, 152), RISING),  # F31
        ((152, 212, 212, 200, 192), RISING),  # F08
        ((292, 120, 128, 128, 120), DYING),  # F22
        ((184, 76, 56, 40, 36), DYING),  # F23
        ((160, 24, 20, 20, 20), DYING),  # F26b
        ((262, 256, 256, 244, 240), WHOLE),  # F20: a small loss that only a comparison shows
    ],
)
def test_the_shapes_of_the_table(hits: tuple[int, ...], name: str) -> None:
    assert signature(counts(*hits)).name == name


def test_few_rows_have_no_shape() -> None:
    assert signature(counts(0, 0, 0, total=30)).name == UNTOLD
    assert signature([]).name == UNTOLD
    assert signature(counts(20, 9, 9, total=45)).name == WHOLE  # half lost, of so few rows: may be chance


# --- chance is no fault


def _hits(right: Tensor) -> Measured:
    """Measured counts whose step-0 hits are `right` [n]."""
    ids = [0, 1, *[2 if hit else 3 for hit in right.tolist()]]
    return _made(torch.zeros(1, len(right) + 1, dtype=torch.int64), _truths(ids, [2]))


def test_noise_explains_nothing() -> None:
    rng = torch.Generator().manual_seed(0)
    option = Option((0,), Wiring("trained", False, False))
    base = torch.rand(300, generator=rng) < 0.5
    for _ in range(300):
        other = base.clone()
        flipped = torch.rand(300, generator=rng) < 0.25
        other[flipped] = torch.rand(int(flipped.sum()), generator=rng) < 0.5
        assert compared(_hits(base), _hits(other), option, 300) is None


def test_a_real_gain_is_told_with_a_p_that_counts_the_tries() -> None:
    base = torch.zeros(200, dtype=torch.bool)
    base[:80] = True
    better = base.clone()
    better[80:110] = True  # 30 rows differ, all for the better
    option = Option((0,), Wiring("trained", False, False))
    found = compared(_hits(base), _hits(better), option, 10)
    assert found is not None and math.isclose(found.p, 10 * 2 * 0.5**30, rel_tol=1e-6)
    assert compared(_hits(base), _hits(better), option, 10**7) is None
    assert compared(_hits(better), _hits(base), option, 1) is None
    assert compared(_hits(torch.zeros(200).bool()), _hits(torch.arange(200) < 40), option, 1) is None  # repairs little


def test_a_few_rows_give_no_fault(tmp_path: Path) -> None:
    """Wrong layers on twelve tokens: too little to say anything."""
    w = replace(healthy().ids(0, 2, 4), samples=(record(3, 12),))
    report = check_world(tmp_path, w, ("forward",))
    assert not [f for f in report.findings if f.severity == "error"], brief(report)


def test_a_random_drafter_is_no_wiring_fault(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(3)
    w = healthy()
    for name, tensor in w.weights.items():
        if tensor.is_floating_point() and "embed" not in name:
            w = w.weight(name, torch.randn(tensor.shape, generator=rng) * tensor.std() + (tensor.dim() == 1))
    d = diagnosis(case(tmp_path, w))
    assert not d.found and not d.mispaired
    assert d.signature.name in (DEAD_ALL, FLAT_LOW)


# --- the relabelled head


def test_relabelling_leaves_each_row_out(tmp_path: Path) -> None:
    opened = case(tmp_path)
    m, d = Measures(opened), diagnosis(opened)
    told = relabelled(m, d)
    ours, chance = told.same, told.chance
    pairs = []
    for sample in d.samples:
        predicted = m.predicted(sample, d.base, opened.depth)[0]
        pairs += [(int(p), int(sample.ids[t + 2])) for t, p in enumerate(predicted[:-1].tolist()) if p >= 0]
    hits = total = 0
    for i, (draft, token) in enumerate(pairs):
        rest = [t for j, (p, t) in enumerate(pairs) if p == draft and j != i]
        if rest:
            best = min(set(rest), key=lambda t: (-rest.count(t), t))
            hits, total = hits + (best == token), total + 1
    assert (ours.hits, ours.total) == (hits, total)
    assert (ours.ratio or 0) > 3 * (chance.ratio or 0)
    often = {p for p, _ in pairs if [q for q, _ in pairs].count(p) > 1}
    tokens = {p: [t for q, t in pairs if q == p] for p in often}
    most = {max(sorted(set(ts)), key=ts.count) for ts in tokens.values()}
    assert (told.distinct.hits, told.distinct.total) == (len(most), len(often))


# --- masks

MARKS = ("<|im_start|>", "<|im_end|>")
TEXT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n«{answer}»<|im_end|>\n"


def told(folder: Path, answer: str, change: str) -> tuple[str, str] | None:
    made = chat(folder, TEXT, MARKS, answer=answer)
    mask = torch.tensor(made.answers).bool()
    first = int(mask.nonzero()[0])
    if change == "late":
        mask = mask.roll(1)
    elif change == "early":
        mask = mask.roll(-1)
    elif change == "first":
        mask[first] = False
    elif change == "thinking":
        text = bytes(i for i in made.ids if i < 256).decode()
        at = first + text[text.index("<think>") :].index("</think>") + len("</think>")
        mask[first:at] = False
    elif change == "all":
        mask[:] = True
    sample = Sample(Path("s"), "test", torch.tensor(made.ids), mask, ())
    opened = Case.__new__(Case)
    opened.tokens = made.tokens
    return _against_turns(opened, sample)


@pytest.mark.parametrize(
    ("change", "severity", "words"),
    [
        ("", "ok", ""),
        ("late", "error", "one token late"),
        ("early", "error", "one token early"),
        ("first", "error", "first token of each answer"),
        ("thinking", "warning", "thinking"),
        ("all", "note", "the prompt's too"),
    ],
)
def test_masks_against_the_turns(change: str, severity: str, words: str, tmp_path: Path) -> None:
    found = told(tmp_path, "<think>well, well</think>hello there", change)
    assert found is not None and found[0] == severity and words in found[1]


# --- which samples are drafted from


def test_large_weights_are_drafted_from_fewer_rows_of_every_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drafter.checks import measure

    monkeypatch.setattr(measure, "LARGE", 1000)
    monkeypatch.setattr(measure, "FEWER_TOKENS", 30)
    monkeypatch.setattr(measure, "FEWER_SAMPLES", 2)
    opened = case(tmp_path, replace(healthy(), samples=tuple(record(seed) for seed in (0, 1, 2, 9000))))
    opened.group_of = lambda path: path.name.partition("_")[0]
    found = Measures(opened).sane
    assert {s.path.stem for s in found} == {"train_0", "heldout_9000"}
    assert [s.length for s in found] == [30, 30]


def test_what_does_not_fit_is_left_out_with_its_reason(tmp_path: Path) -> None:
    one, two, *_ = healthy().samples
    w = replace(healthy(), samples=(one, replace(two, kept=(2, 4, 6)), replace(record(9), kept=(2, 4))))
    w = replace(w, asked={"slots": None})  # labels for four slots would refuse the others
    m = Measures(case(tmp_path, w))
    assert [s.path.stem for s in m.samples] == [one.name]
    said = {path.stem: why for path, why in m.misfits}
    assert "3 recorded states" in said[two.name] and "fc takes 3" in said["train_9"]


# --- what the findings say


def findings(folder: Path, world: World) -> dict[str, Finding]:
    report = check_world(folder, world, ("sample", "forward"))
    assert not report.crashes, report.crashes[0][1]
    return {finding.check: finding for finding in report.findings}


def test_wrong_layers_say_what_to_write(tmp_path: Path) -> None:
    found = findings(tmp_path, healthy().ids(0, 2, 4))["configured-layers-are-not-the-trained-ones"]
    assert found.severity == "error" and "slots 1,2,3 (depths 2,4,6)" in found.title
    assert "`eagle3-tui fix --for sglang@0.5.23 --ordering 1,2,3` writes a flat one" in found.fix  # it loads no other
    assert "vllm@0.33.0: " in found.fix and "[2, 4, 6]" in found.fix
    assert "exact paired test" in str(found.evidence["p"]) and found.evidence["rows"] == 268


def test_a_healthy_drafter_says_what_serving_should_reach(tmp_path: Path) -> None:
    opened = case(tmp_path)
    d = diagnosis(opened)
    held_out = [s for s in d.samples if "heldout" in s.path.name]
    length = measures(opened).measure(d.base, held_out).length
    found = next(f for f in run_checks(opened).findings if f.check == "it-works-offline")
    assert f"accept length {length:.2f}" in found.title and found.means == "healthy"
    assert found.evidence["samples"] == f"{len(held_out)} of {len(opened.samples)}"
    assert found.evidence["on"] == f"{len(held_out)} held-out samples"
    assert (found.evidence["mask"], found.evidence["metric"]) == ("next", "next_token")


def test_swapped_states_name_the_partner(tmp_path: Path) -> None:
    one, two, *rest = healthy().samples
    w = replace(healthy(), samples=(replace(one, states=two.states), replace(two, states=one.states), *rest))
    w = replace(w.each(lambda s: replace(s, kept=(2, 4, 6))), labels="2,4,6")
    found = findings(tmp_path, w)["states-belong-to-their-tokens"]
    assert "states of 2 of 4 samples" in found.title
    assert f"{one.name}.pt predicts better with the states of {two.name}.pt" in str(found.evidence)


def test_a_broken_sample_does_not_spoil_the_others(tmp_path: Path) -> None:
    """One sample of NaN among four: it is named and left out, and the drafter is healthy on the rest."""
    first = healthy().samples[0]
    state = first.states[4].clone()
    state[10, 0] = float("nan")
    w = replace(healthy(), samples=(first.edited(4, state), *healthy().samples[1:]))
    found = findings(tmp_path, w)
    assert "train_0.pt" in found["states-are-numbers"].title
    assert found["it-works-offline"].severity == "ok"
    assert "slot 2: 1 rows with NaN" in str(found["states-are-numbers"].evidence)


def test_the_target_s_choices_are_counted(tmp_path: Path) -> None:
    w = with_last(healthy())
    changed = [*w.samples[0].ids]
    for place in (30, 40, 50):
        changed[place] = (changed[place] + 1) % toy.USED
    w = replace(w, samples=(replace(w.samples[0], ids=changed).edited(0, worlds.target().embed[changed]),))
    found = findings(tmp_path, w)["text-is-what-the-target-says"]
    assert found.evidence["recorded token = argmax of the target"] == "65 of 68"


def test_every_check_of_these_stages_needs_a_sample_and_names_a_report() -> None:
    ours = [check for check in all_checks() if check.stage in ("sample", "forward") and check.id != "samples-open"]
    assert len(ours) >= 18
    assert all("sample" in check.needs and check.reports for check in ours)
