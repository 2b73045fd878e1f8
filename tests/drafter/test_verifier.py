"""The verifier's own choice from recorded states, in chunks, against one plain computation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint.target import TargetFolder, open_target
from drafter.checkpoint.vocab_map import VocabMap, read_vocab_map
from drafter.drafting import verifier
from drafter.drafting.chains import draft_ids
from drafter.drafting.verifier import last_norm, last_slot, recorded_choice, verifier_choice, why_not
from drafter.errors import Cancelled
from drafter.sample.claims import claim_slots
from drafter.sample.open import open_sample
from drafter.sample.probes.last_state import lens_of
from drafter.sample.probes.probe import probe_slots
from drafter.sample.sample import POST, PRE, Claim, Sample
from drafter.session import Session
from tests import tiny
from tests.drafter.helpers import placed
from tests.drafter.probe_worlds import final_norm
from tests.tiny_world import tiny_world

WEIGHTS = tiny.tiny_weights()
TINY = tiny.tiny_sample(2, WEIGHTS, depths=tiny.ARROW_DEPTHS)


def recorded(tmp_path: Path, labels: str | None = "embed,2,4,last") -> Sample:
    folder = tiny.write_arrow_samples(tmp_path / "data", {0: TINY})
    return claim_slots(open_sample(folder / "hidden_states/hs_0.safetensors"), labels, None, 8)


def target(tmp_path: Path, **options: bool) -> TargetFolder:
    return open_target(tiny.write_target(tmp_path / "target", WEIGHTS, **options))


def vocab(weights: dict[str, Tensor] = WEIGHTS) -> VocabMap:
    return read_vocab_map(weights["d2t"], weights["t2d"], 40, 97)


@pytest.mark.parametrize(("rows", "head_rows"), [(256, 16384), (3, 7), (1, 1), (25, 96), (24, 97)])
def test_chunks_give_the_plain_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, head_rows: int
) -> None:
    monkeypatch.setattr(verifier, "ROWS", rows)
    monkeypatch.setattr(verifier, "HEAD_ROWS", head_rows)
    sample = recorded(tmp_path)
    assert why_not(sample, target(tmp_path)) is None and last_slot(sample) == 3
    choice = verifier_choice(sample, target(tmp_path), vocab(), placed())
    full, draft = tiny.verifier_argmax(WEIGHTS, TINY.slots[:, 3])
    assert choice.full is not None and (choice.full.tolist(), choice.draft.tolist()) == (full, draft)


def test_an_unsorted_map(tmp_path: Path) -> None:
    weights = WEIGHTS | tiny.vocab_map(0, kind="unsorted")
    choice = verifier_choice(recorded(tmp_path), target(tmp_path), vocab(weights), placed())
    assert choice.draft.tolist() == tiny.verifier_argmax(weights, TINY.slots[:, 3])[1]


def test_a_tied_target_uses_its_embedding(tmp_path: Path) -> None:
    choice = verifier_choice(recorded(tmp_path), target(tmp_path, lm_head=False), vocab(), placed())
    x = TINY.slots[:, 3].float()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * tiny.target_weights(WEIGHTS)["model.norm.weight"]
    assert (
        choice.full is not None and choice.full.tolist() == (x @ WEIGHTS["embed_tokens.weight"].T).argmax(-1).tolist()
    )


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "llama"])
def test_norms_that_multiply_by_one_plus_weight(tmp_path: Path, family: str) -> None:
    folder = tiny.write_target(tmp_path / "target", WEIGHTS)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": family}
    (folder / "config.json").write_text(json.dumps(config))
    weight = torch.linspace(-2, 2, 32).bfloat16()
    tensors = load_file(folder / "model.safetensors") | {"model.norm.weight": weight}
    save_file(tensors, folder / "model.safetensors")
    choice = verifier_choice(recorded(tmp_path), open_target(folder), vocab(), placed())
    x = TINY.slots[:, 3].float()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (weight.float() + (family != "llama"))
    assert (
        choice.full is not None
        and choice.full.tolist() == (x @ tensors["lm_head.weight"].float().T).argmax(-1).tolist()
    )


def test_a_padded_head_may_choose_its_padding(tmp_path: Path) -> None:
    """More rows in the head than the drafter's config has tokens: the choice is kept, and is in no draft vocabulary."""
    folder = tiny.write_target(tmp_path / "target", WEIGHTS)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.cat([tensors["lm_head.weight"], 50 * tensors["lm_head.weight"][:3]])
    save_file(tensors, folder / "model.safetensors")
    choice = verifier_choice(recorded(tmp_path), open_target(folder), vocab(), placed())
    full, draft = tiny.verifier_argmax(WEIGHTS, TINY.slots[:, 3])
    assert choice.full is not None and int(choice.full.max()) >= 97 and choice.draft.tolist() == draft
    assert all(a == b for a, b in zip(choice.full.tolist(), full, strict=True) if a < 97)


def test_reasons_why_it_cannot_be_told(tmp_path: Path) -> None:
    sample, whole = recorded(tmp_path), target(tmp_path)
    cases = {
        "--target": (sample, None),
        "no lm_head": (sample, replace(whole, head=None)),
        "no final norm": (sample, replace(whole, norm=None)),
        "--slots": (recorded(tmp_path, "embed,2,4,6"), whole),
        "wide": (sample, replace(whole, head=whole.head and whole.head.columns(0, 16))),
        "norm is 16 wide": (sample, replace(whole, norm=whole.norm and whole.norm.columns(0, 16))),
    }
    for word, (one, other) in cases.items():
        reason = why_not(one, other)
        assert reason is not None and word in reason, word


def test_it_can_be_cancelled(tmp_path: Path) -> None:
    def stop() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        verifier_choice(recorded(tmp_path), target(tmp_path), vocab(), placed(), stop)


# --- before or after the final norm


@pytest.mark.parametrize(
    ("read_rows", "state_bytes", "head_bytes"), [(512, 1 << 29, 1 << 28), (3, 1, 1), (7, 900, 500)]
)
def test_little_is_in_memory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_rows: int, state_bytes: int, head_bytes: int
) -> None:
    for name, value in {
        "READ_ROWS": read_rows,
        "STATE_BYTES": state_bytes,
        "HEAD_BYTES": head_bytes,
        "ROWS": 4,
    }.items():
        monkeypatch.setattr(verifier, name, value)
    sample, whole = recorded(tmp_path), target(tmp_path)
    states, head = Watched(sample.slots[3].tensor), Watched(whole.head)
    slots = (*sample.slots[:3], replace(sample.slots[3], tensor=states))
    choice = verifier_choice(replace(sample, slots=slots), replace(whole, head=head), vocab(), placed())
    full, draft = tiny.verifier_argmax(WEIGHTS, TINY.slots[:, 3])
    assert choice.full is not None and (choice.full.tolist(), choice.draft.tolist()) == (full, draft)
    assert max(states.reads) <= read_rows and sum(states.reads) == tiny.TOKENS  # each state once
    assert max(head.reads) <= max(1, head_bytes // 128) and sum(head.reads) % 97 == 0


class Watched:
    """States that note how many rows are read at once."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.reads = inner, list[int]()
        self.shape, self.dtype = inner.shape, inner.dtype

    def rows(self, start: int, stop: int) -> Tensor:
        self.reads.append(stop - start)
        rows: Tensor = self.inner.rows(start, stop)
        return rows

    def gather(self, indices: Any) -> Tensor:
        raise AssertionError("not row by row")

    def head(self, rows: int) -> Any:
        raise AssertionError("not cut")


def after_the_norm(tmp_path: Path, norm: str = "") -> Sample:
    """The recording with its last state already normed, the claim saying `norm`."""
    slots = TINY.slots.clone()
    slots[:, 3] = final_norm(slots[:, 3])
    folder = tiny.write_arrow_samples(tmp_path / f"normed-{norm}", {0: replace(TINY, slots=slots)})
    sample = claim_slots(open_sample(folder / "hidden_states/hs_0.safetensors"), "embed,2,4,last", None, 8)
    return sample.with_claims([*(s.claim for s in sample.slots[:3]), Claim("last", "test", is_last=True, norm=norm)])


def test_the_norm_is_applied_as_claimed_else_as_the_data_shows(tmp_path: Path) -> None:
    whole = target(tmp_path)
    lens = lens_of(whole, 32, None, None)
    for claimed, sample, expected in (
        ("", recorded(tmp_path), PRE),
        ("", after_the_norm(tmp_path), POST),
        ("post", after_the_norm(tmp_path, "post"), POST),
        ("pre", after_the_norm(tmp_path, "pre"), PRE),
    ):
        norm, why = last_norm(sample, probe_slots(sample, None, lens))
        assert norm == expected and bool(why) == (claimed == "" and expected == POST)
        if why:
            assert "slot 3 has passed the target's final norm (25 of 25 compared rows)" in why
    assert last_norm(recorded(tmp_path, "?,?,?,?"), []) == (PRE, "")
    assert last_norm(after_the_norm(tmp_path), []) == (PRE, "")  # nothing was looked at


def test_a_producers_default_gives_way_to_the_data(tmp_path: Path) -> None:
    def told(sample: Sample, norm: str) -> tuple[str, str]:
        claims = [*(s.claim for s in sample.slots[:3]), Claim("last", "layout", is_last=True, norm=norm, assumed=True)]
        claimed = sample.with_claims(claims)
        return last_norm(claimed, probe_slots(claimed, None, lens_of(target(tmp_path), 32, None, None)))

    before, after = recorded(tmp_path), after_the_norm(tmp_path)
    assert told(before, "pre") == (PRE, "") and told(after, "post") == (POST, "")
    norm, why = told(before, "post")
    assert norm == PRE and "has not passed" in why and "(0 of 25 compared rows)" in why
    norm, why = told(after, "pre")
    assert norm == POST and "has passed" in why


def test_a_state_after_the_norm_goes_to_the_head_as_it_is(tmp_path: Path) -> None:
    sample, bare = after_the_norm(tmp_path, "post"), target(tmp_path, norm=False)
    assert "no final norm" in str(why_not(sample, bare, PRE)) and why_not(sample, bare, POST) is None
    choice = verifier_choice(sample, bare, vocab(), placed(), norm=POST)
    head = tiny.target_weights(WEIGHTS)["lm_head.weight"]
    logits = final_norm(TINY.slots[:, 3]).float() @ head.T
    assert choice.full is not None and choice.full.tolist() == logits.argmax(-1).tolist()


def test_a_session_says_which_norm_it_takes(tmp_path: Path) -> None:
    world = tiny_world(tmp_path, "nested", "arrow", count=1)
    (text,) = world.texts
    before = world.session(depth=1, orderings=("0,1,2",))
    plain = before.score_json(before.score(world.samples))
    assert plain["samples"][0]["warnings"] == []
    text.slots[:, 3] = final_norm(text.slots[:, 3], tiny.target_weights(world.weights)["model.norm.weight"])
    tiny.write_arrow_samples(tmp_path / "samples", {0: text})
    after = world.session(depth=1, orderings=("0,1,2",), slots="embed,2,4,last")
    data = after.score_json(after.score(world.samples))
    assert "slot 3 has passed the target's final norm" in data["samples"][0]["warnings"][0]
    strict = data["orderings"][0]["steps"][0]["verifier_strict"]["marginal"]
    logits = text.slots[:, 3].float() @ tiny.target_weights(world.weights)["lm_head.weight"].T
    run = after.run()
    drafted = draft_ids(run, (0, 1, 2), after.wiring, 1, torch.arange(24))[0]
    said = run.drafter.vocab(after.wiring).target_ids[drafted]
    rows = [t for t in range(24) if text.mask[t + 1]]
    hits = sum(int(said[t]) == int(logits[t + 1].argmax()) for t in rows)
    assert strict == {"hits": hits, "total": len(rows)}


# --- a recorded distribution


def test_a_recorded_choice_is_taken_as_it_is(tmp_path: Path) -> None:
    sample = recorded(tmp_path)
    chosen = torch.arange(25) % 40
    chosen[[4, 24]] = -1
    choice, why = recorded_choice(replace(sample, verifier_draft=lambda: chosen), vocab())
    assert choice is not None and choice.full is None and choice.draft.tolist() == chosen.tolist()
    assert "draft vocabulary only" in why
    assert recorded_choice(sample, vocab())[0] is None
    none, why = recorded_choice(replace(sample, verifier_draft=lambda: torch.full((25,), 40)), vocab())
    assert none is None and "draft id 40" in why and "40" in why


def test_only_what_was_recorded_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose truth has no recorded choice do not count, and what needs the whole vocabulary is null."""
    world = tiny_world(tmp_path, "nested", "arrow", count=1)
    chosen = torch.arange(25) % 3
    chosen[[12, 13, 20]] = -1
    opened = Session.open_sample
    monkeypatch.setattr(
        Session, "open_sample", lambda self, path: replace(opened(self, path), verifier_draft=lambda: chosen)
    )
    session = world.session(depth=2, orderings=("0,1,2",))
    data = session.score_json(session.score(world.samples))
    drafted = draft_ids(session.run(), (0, 1, 2), session.wiring, 2, torch.arange(24))
    mask = world.texts[0].mask
    for k, step in enumerate(data["orderings"][0]["steps"]):
        assert step["verifier_strict"] is None and step["in_vocab"] is None
        rows = [t for t in range(24 - k) if mask[t + k + 1] and chosen[t + 1 + k] >= 0]
        hits = sum(int(drafted[k, t]) == int(chosen[t + 1 + k]) for t in rows)
        assert step["verifier_draft_vocab"]["marginal"] == {"hits": hits, "total": len(rows)}
    assert set(data["reasons"]) == {"verifier_strict", "in_vocab"}
