"""The reference itself is right: against the real packages' recorded numbers, and against cases done by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from scripts.conformance_cases import STEPS, TOKENS, Case, superset, text, weights_of
from tests import reference_scores as scores
from tests import tiny
from tests.reference import Rope, predictions, rms, rope, to_target

DATA = Path(__file__).parent / "data"
GOLDEN = DATA / "golden"
PACKAGE = DATA / "speculators_tiny"
SAMPLES = (0, 10, 17, 539, 541, 546)

# --- the forward, against the packages


def package_cases() -> dict[str, dict[str, Case]]:
    from scripts import (
        conformance_angelslim,
        conformance_modelopt,
        conformance_specforge,
        conformance_speculators,
    )

    return {
        "speculators": conformance_speculators.CASES,
        "specforge": conformance_specforge.CASES,
        "modelopt": conformance_modelopt.CASES,
        "angelslim": conformance_angelslim.CASES,
    }


def recorded_logits(package: str) -> dict[str, Tensor]:
    return load_file(DATA / f"{package}_tiny" / "logits.safetensors")


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, cases in package_cases().items() for name in cases]
)
def test_logits_equal_those_of_the_package(package: str, name: str) -> None:
    case = package_cases()[package][name]
    stored = load_file(PACKAGE / "weights.safetensors")
    everything = {k: t.float() if t.is_floating_point() else t for k, t in stored.items()}
    truth, sample = recorded_logits(package)[name], text(everything)  # [K, T-1, D]
    ours = tiny.reference(weights_of(case, everything), case.sizes, **case.switches)
    forward = ours.parallel if "mask_token" in case.switches else ours.teacher_forced
    size = float(truth.abs().max())
    compared = 0
    for k, step in enumerate(forward(sample.ids, sample.slots[:, : case.states], STEPS)):
        for t, row in enumerate(step):
            if row is not None:
                assert float((row.logits - truth[k, t]).abs().max()) < 1e-5 * size, (k, t)
                compared += 1
    assert compared == sum(TOKENS - 1 - k for k in range(STEPS))


def test_the_recorded_variants_differ() -> None:
    """Each switch changes the logits, so agreement with all of them is agreement about each."""
    same = {("specforge", "plain", "norm_output")}  # it feeds the state before the norm back either way
    for package, cases in package_cases().items():
        recorded = recorded_logits(package)
        names = list(cases)
        for i, one in enumerate(names):
            for other in names[i + 1 :]:
                # feedback alone differs between norm_output and its absence, so only later steps can tell
                gap = float((recorded[one][1, :13] - recorded[other][1, :13]).abs().max())
                assert (gap > 0.05) != ((package, one, other) in same), (package, one, other)


def test_the_package_weights_are_the_tiny_ones() -> None:
    recorded = load_file(PACKAGE / "weights.safetensors")
    for name, tensor in superset().items():
        assert torch.equal(recorded[name].to(tensor.dtype), tensor), name


# --- the forward, against itself


@pytest.mark.parametrize("switches", [{}, {"norm_before_residual": True}, {"norm_output": True}])
def test_a_chain_is_the_teacher_forced_pass_over_its_own_tokens(switches: dict[str, bool]) -> None:
    """Had the sample continued as the drafter drafted, the training-time test would compute the same logits."""
    weights = tiny.tiny_weights(3)
    drafter, sample, d2t = tiny.reference(weights, **switches), tiny.tiny_sample(3, weights), weights["d2t"].tolist()
    states, row, steps = sample.slots[:, :3], 9, 5
    chain = drafter.chain(sample.ids, states, row, steps, d2t)
    ids = sample.ids[: row + 2] + chain.target_ids
    forced = drafter.teacher_forced(ids, states, steps, row + 1)
    for k in range(steps):
        step = forced[k][row]
        assert step is not None
        assert torch.allclose(step.logits, chain.logits[k], atol=1e-5)
    assert chain.target_ids == [to_target(d, d2t) for d in chain.draft_ids]


def test_rows_exist_while_their_token_does() -> None:
    weights = tiny.tiny_weights(0)
    sample = tiny.tiny_sample(0, weights, tokens=6)
    pred = predictions(tiny.reference(weights).teacher_forced(sample.ids, sample.slots[:, :3], 4))
    assert [[p is not None for p in step] for step in pred] == [
        [True, True, True, True, True],
        [True, True, True, True, False],
        [True, True, True, False, False],
        [True, True, False, False, False],
    ]


def test_only_relative_positions_matter() -> None:
    q, k = torch.randn(2, 8), torch.randn(2, 8)
    near = (rope(q, 5, 1e4) * rope(k, 3, 1e4)).sum(-1)
    assert torch.allclose(near, (rope(q, 105, 1e4) * rope(k, 103, 1e4)).sum(-1), atol=1e-4)
    assert not torch.allclose(near, (rope(q, 6, 1e4) * rope(k, 3, 1e4)).sum(-1), atol=1e-2)


def test_rope_and_rms_by_hand() -> None:
    turned = rope(torch.tensor([[1.0, 0.0, 0.0, 1.0]]), 1, 100.0)  # pairs (0, 2) at angle 1, (1, 3) at angle 0.1
    expected = [np.cos(1), -np.sin(0.1), np.sin(1), np.cos(0.1)]
    assert turned[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert rms(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]), 0.0).tolist() == pytest.approx(
        [3 / 12.5**0.5, 8 / 12.5**0.5]
    )


def test_interleaved_and_partial_rope_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0, 1.0, 5.0]])
    turned = Rope(100.0, rotary_dim=4, interleaved=True).turn(x, 1, 2)  # (0, 1) at angle 1, (2, 3) at angle 0.1
    expected = [np.cos(1), np.sin(1), -np.sin(0.1), np.cos(0.1), 5.0]
    assert turned[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("positions", ["advance", "constant", "late"])
def test_positions_of_later_steps(positions: str) -> None:
    """Relative to row t, step k stands at k, 0 or k + 1; the text and its committed rows stay where they are."""
    weights = tiny.tiny_weights(5)
    sample = tiny.tiny_sample(5, weights, tokens=9)
    drafter = tiny.reference(weights, positions=positions)
    assert [drafter._position(4, k) for k in range(3)] == {
        "advance": [4, 5, 6],
        "constant": [4, 4, 4],
        "late": [4, 6, 7],
    }[positions]
    advance = tiny.reference(weights).teacher_forced(sample.ids, sample.slots[:, :3], 2)
    ours = drafter.teacher_forced(sample.ids, sample.slots[:, :3], 2)
    for step in range(2):
        one, other = ours[step][4], advance[step][4]
        assert one is not None and other is not None
        assert torch.equal(one.logits, other.logits) == (step == 0 or positions == "advance")


def test_a_served_window_moves_with_the_draft() -> None:
    """A server's chain over its own tokens is the teacher-forced pass whose window moves; a trainer's stands still."""
    weights = tiny.tiny_weights(3, qk_norm=True)
    sample, d2t = tiny.tiny_sample(3, weights), weights["d2t"].tolist()
    states, row = sample.slots[:, :3], 9
    moving = tiny.reference(weights, windows=[5], moving_windows=True)
    chain = moving.chain(sample.ids, states, row, 4, d2t)
    ids = sample.ids[: row + 2] + chain.target_ids
    standing = tiny.reference(weights, windows=[5]).teacher_forced(ids, states, 4, row + 1)
    for k, step in enumerate(moving.teacher_forced(ids, states, 4, row + 1)):
        ours, still = step[row], standing[k][row]
        assert ours is not None and still is not None
        assert torch.allclose(ours.logits, chain.logits[k], atol=1e-5)
        assert torch.allclose(still.logits, chain.logits[k], atol=1e-3) == (k == 0)


def test_a_tied_head_is_the_embeddings_first_rows() -> None:
    weights = tiny.tiny_weights(3)
    tied = tiny.reference({k: t for k, t in weights.items() if k != "lm_head.weight"}, head="tied", draft_vocab=40)
    other = tiny.reference(weights | {"lm_head.weight": weights["embed_tokens.weight"][:40]})
    sample = tiny.tiny_sample(3, weights, tokens=4)
    for one, two in zip(*(r.step0(sample.ids, sample.slots[:, :3]) for r in (tied, other)), strict=True):
        assert torch.equal(one.logits, two.logits)


# --- counts, against the package's numbers


def golden(index: int, ordering: str) -> dict[str, list[Any]]:
    arrays = np.load(GOLDEN / f"sample_{index}.npz", allow_pickle=False)
    end = f"_{ordering.replace(',', '')}"
    shared = ("input_ids", "loss_mask", "verifier_argmax", "verifier_argmax_draft_id")
    own = ("pred_draft_id", "pred_target_id", "chain_target_id")
    return {name: arrays[name].astype(int).tolist() for name in shared} | {
        name: arrays[name + end].astype(int).tolist() for name in own
    }


def golden_counts() -> dict[str, Any]:
    return json.loads((GOLDEN / "counts.json").read_text())


def golden_d2t() -> list[int]:
    return np.load(GOLDEN / "vocab_map.npz", allow_pickle=False)["d2t"].astype(int).tolist()


@pytest.mark.parametrize("index", SAMPLES)
@pytest.mark.parametrize("group", ["v1", "speculators"])
def test_counts_equal_the_recorded_ones(group: str, index: int) -> None:
    d2t = golden_d2t()
    file = f"data_{index}.pt" if group == "v1" else f"hs_{index}.safetensors"
    for ordering, modes in golden_counts()[group][file].items():
        g = golden(index, ordering)
        pred = scores.existing(g["pred_draft_id"], len(g["input_ids"]))
        for mode, truth in modes.items():
            ours = scores.score_json(
                pred,
                g["input_ids"],
                g["loss_mask"],
                d2t,
                mode,
                5,
                g["verifier_argmax"],
                g["verifier_argmax_draft_id"],
            )
            assert scores.differing(ours, truth) == [], (ordering, mode)


@pytest.mark.parametrize("index", SAMPLES)
def test_walks_equal_the_recorded_ones(index: int) -> None:
    """Teacher-forced predictions (K <= 5) and honest chains (K <= 8) walk the same way."""
    d2t = golden_d2t()
    for ordering, depths in golden_counts()["walk"][str(index)].items():
        g = golden(index, ordering)
        forced = scores.existing(g["pred_draft_id"], len(g["input_ids"]))
        chains = [list(step) for step in zip(*g["chain_target_id"], strict=True)]
        for depth, truth in depths.items():
            for pred, mapping in ((forced, d2t), (chains, [0] * 49152)):
                if len(pred) >= int(depth):
                    walked = scores.walk(pred, g["input_ids"], mapping, g["loss_mask"], int(depth))
                    assert (walked.rounds, walked.tokens) == (truth["rounds"], truth["tokens"]), (ordering, depth)


@pytest.mark.parametrize("index", SAMPLES)
def test_joint_and_conditional_are_the_trainers_accuracies(index: int) -> None:
    for ordering, truth in golden_counts()["trainer"][str(index)].items():
        g = golden(index, ordering)
        pred = scores.existing(g["pred_draft_id"], len(g["input_ids"]))
        scored = scores.verifier_draft_vocab(pred, g["input_ids"], g["verifier_argmax_draft_id"])
        for k, step in enumerate(scores.count(scored, g["loss_mask"], "next", 5)):
            for ours, name in ((step.joint, f"full_acc_{k}"), (step.conditional, f"cond_acc_{k}")):
                expected = truth[name]
                assert (ours.hits / ours.total if ours.total else None) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("case", range(3))
def test_masks_with_gaps_count_as_in_the_package(case: int) -> None:
    recorded = json.loads((PACKAGE / "metrics.json").read_text())["cases"][case]
    ids = [0] * len(recorded["mask"])  # the verifier's choices are the truth here, not the text
    scored = scores.verifier_draft_vocab(recorded["pred"], ids, recorded["target"])
    for k, truth in enumerate(recorded["steps"]):
        step = scores.count_step(scored, recorded["mask"], "next", k)
        assert [step.joint.hits, step.joint.total] == truth["full"], k
        assert [step.conditional.hits, step.conditional.total] == truth["cond"], k


def test_recorded_predictions_map_by_offsets() -> None:
    d2t = golden_d2t()
    g = golden(541, "0,1,2")
    mapped = [[to_target(d, d2t) for d in step] for step in g["pred_draft_id"]]
    assert mapped == g["pred_target_id"]


# --- counts, by hand


IDS = [5, 6, 7, 8, 9, 7]  # T = 6: rows 0..4
MASK = [0, 0, 1, 1, 0, 1]
D2T = [5, 5, 5, 5, 5]  # draft ids 0..4 are target ids 5..9
# truths x[t+2+k] as draft ids:   step 0: 2 3 4 2 .      step 1: 3 4 2 . .
PRED: list[list[int | None]] = [[2, 0, 4, 2, 1], [3, 4, 0, 1, None]]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # all: step 0 rows 0,1,2,3, hits 0,2,3. step 1 rows 0,1,2, hits 0,1; both right in row 0; step 0 right in 0,2
        ("all", [(3, 4), (3, 4), (3, 4), (2, 3), (1, 3), (1, 2)]),
        # next, l[t+1] = 0 1 1 0 1: step 0 rows 1,2, hit 2. step 1 counts rows with l[t+2]: 0,1; row 0 is hit but does
        # not itself count; conditional rows need l[t+1] and step 0 right: row 2 alone
        ("next", [(1, 2), (1, 2), (1, 2), (2, 2), (0, 2), (0, 1)]),
        # same, l[t] = 0 0 1 1 0: step 0 rows 2,3, both hit. step 1 counts l[t+1]: 1,2; row 2 missed step 1
        ("same", [(2, 2), (2, 2), (2, 2), (1, 2), (0, 2), (0, 1)]),
        # predicted, l[t+2] = 1 1 0 1: step 0 rows 0,1,3, hits 0,3. step 1 counts l[t+3]: 0,2; row 0 all right; row 3
        # has no truth at step 1, so the conditional total is row 0 alone
        ("predicted", [(2, 3), (2, 3), (2, 3), (1, 2), (1, 2), (1, 1)]),
    ],
)
def test_counts_by_hand(mode: str, expected: list[tuple[int, int]]) -> None:
    counted = scores.count(scores.next_token(PRED, IDS, D2T), MASK, mode, 2)
    cells = [getattr(step, kind) for step in counted for kind in ("marginal", "joint", "conditional")]
    assert [(c.hits, c.total) for c in cells] == expected


def test_a_verifiers_truth_reaches_one_row_further() -> None:
    argmax = [9, 9, 7, 8, 9, 6]  # after x[0..j]; row t at step 0 is judged by argmax[t+1]: 9 7 8 9 6
    step = scores.count_step(scores.verifier_strict(PRED, IDS, D2T, argmax), MASK, "all", 0)
    assert (step.marginal.hits, step.marginal.total) == (1, 5)  # 7 5 9 7 6 against these


def test_accept_length_by_hand() -> None:
    # all: rows with both truths are 0,1,2: both right; first wrong; first right
    assert scores.accept_lengths(PRED, IDS, D2T, MASK, "all", 2) == scores.Accept(3, [1, 1, 1])
    # next needs l[t+1] and l[t+2]: row 1 alone, whose first draft is wrong
    accept = scores.accept_lengths(PRED, IDS, D2T, MASK, "next", 2)
    assert (accept.histogram, accept.mean) == ([1, 0, 0], 1.0)


def test_in_vocab_leaves_rows_out() -> None:
    argmax = [0, 7, 50, 9, 7, 50]  # 50 cannot be drafted
    strict = scores.count_step(scores.verifier_strict(PRED, IDS, D2T, argmax), MASK, "all", 0).marginal
    inside = scores.count_step(scores.in_vocab(PRED, IDS, D2T, argmax), MASK, "all", 0).marginal
    assert (strict.total, inside.total, strict.hits) == (5, 3, inside.hits)


def test_coverage_by_hand() -> None:
    assert scores.coverage(IDS, [5, 5, 5], MASK, "all") == scores.Count(2, 4)  # 7 8 9 7 against {5, 6, 7}


# --- the walk, by hand


def right(pattern: str) -> list[list[int | None]]:
    """Predictions of K = 2 on the text 0 1 2 3 ...: for each row a digit, how many leading drafts are right."""
    rows = [[t + 2 + k if k < int(n) else 99 for k in range(2)] for t, n in enumerate(pattern)]
    return [list(step) for step in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("mask", "pattern", "rounds", "tokens", "accepted"),
    [
        # token 2 is free; row 1 accepts 2 and emits 3,4,5; row 4 accepts 0 and emits 6; one left: row 5 is clipped
        ("00111111", "0200020", 3, 5, [2, 0, 1]),
        # all wrong: one token a round
        ("00111", "0000", 2, 2, [0, 0]),
        # clipped: one token left, two right drafts count as one, and no bonus follows
        ("0011000", "222222", 1, 1, [1]),
        # exactly enough: two accepted, the bonus is clipped away
        ("00111000", "2222222", 1, 2, [2]),
        # two runs: the first token of each is free, and no round crosses the gap
        ("01110111", "2222222", 2, 4, [2, 2]),
        # a run of one token has nothing to draft
        ("00100", "2222", 0, 0, []),
        # from token 0 there is no row for the first round: it emits one token
        ("1111", "222", 2, 3, [0, 2]),
        ("0000", "222", 0, 0, []),
    ],
)
def test_walk_by_hand(mask: str, pattern: str, rounds: int, tokens: int, accepted: list[int]) -> None:
    ids = list(range(len(mask)))
    walked = scores.walk(right(pattern), ids, [0] * 100, [int(m) for m in mask], 2)
    assert (walked.rounds, walked.tokens, walked.accepted) == (rounds, tokens, accepted)


def test_mcnemar_by_hand() -> None:
    assert scores.mcnemar_counts(0, 0) == 1.0
    assert scores.mcnemar_counts(3, 3) == 1.0
    assert scores.mcnemar_counts(0, 5) == 2 / 32
    assert scores.mcnemar_counts(5, 0) == 2 / 32
    assert scores.mcnemar_counts(1, 9) == pytest.approx(2 * 11 / 1024)
    assert scores.mcnemar_counts(0, 1) == 1.0
    assert scores.mcnemar_counts(0, 2000) < 1e-300  # no overflow, no rounding to one
    assert scores.mcnemar([True, True, False, True], [True, False, False, False]) == scores.mcnemar_counts(2, 0)


# --- the builders


def test_layouts_hold_the_same_weights(tmp_path: Path) -> None:
    weights = tiny.tiny_weights(1)
    flat = load_file(tiny.write_flat(tmp_path / "flat", weights, speculators_config=True) / "model.safetensors")
    nested = load_file(tiny.write_nested(tmp_path / "nested", weights) / "model.safetensors")
    assert "embed_tokens.weight" not in flat and "midlayer.hidden_norm.weight" in flat
    for name, tensor in flat.items():
        assert torch.equal(tensor, nested[name.replace("midlayer.", "layers.0.")])
    assert nested["fc.weight"].dtype == torch.bfloat16
    assert torch.equal(nested["fc.weight"].float(), weights["fc.weight"])


def test_sample_layouts_hold_the_same_text_and_states(tmp_path: Path) -> None:
    import pyarrow as pa

    weights = tiny.tiny_weights(1)
    v1 = tiny.tiny_sample(4, weights)
    arrow = tiny.tiny_sample(4, weights, depths=tiny.ARROW_DEPTHS)
    record = torch.load(tiny.write_v1_sample(tmp_path / "v1/data_4.pt", v1), weights_only=True)
    folder = tiny.write_arrow_samples(tmp_path / "data", {4: arrow}, rows=6)
    states = load_file(folder / "hidden_states/hs_4.safetensors")
    with pa.OSFile(str(next(folder.glob("*.arrow")))) as source:
        table = pa.ipc.open_stream(source).read_all()
    assert table.num_rows == 6
    assert table.column("input_ids")[4].as_py() == record["input_ids"].tolist() == states["token_ids"].tolist()
    assert table.column("loss_mask")[4].as_py() == record["loss_mask"].tolist()
    for slot in range(3):
        assert torch.equal(record["hidden_states"][slot], states["hidden_states"][:, slot])
    assert torch.equal(states["hidden_states"][:, 0].float(), weights["embed_tokens.weight"][v1.ids])


def test_target_and_tokenizer(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    weights = tiny.tiny_weights(1)
    folder = tiny.write_target(tmp_path / "target", weights, tokenizer=True)
    assert set(load_file(folder / "model.safetensors")) == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    }
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).id_to_token(96) == "w96"
    tied = tiny.write_target(tmp_path / "tied", weights, lm_head=False)
    assert json.loads((tied / "config.json").read_text())["tie_word_embeddings"] is True


@pytest.mark.parametrize("kind", ["offsets", "unsorted"])
def test_sound_vocab_maps(kind: str) -> None:
    made = tiny.vocab_map(0, kind=kind)
    ids = torch.arange(tiny.SIZES.draft_vocab) + made["d2t"]
    assert sorted(ids.tolist()) == made["t2d"].nonzero()[:, 0].tolist()


def test_broken_vocab_maps() -> None:
    direct, out = tiny.vocab_map(0, kind="direct"), tiny.vocab_map(0, kind="out_of_range")
    assert direct["t2d"][direct["d2t"]].all()
    assert int((torch.arange(tiny.SIZES.draft_vocab) + out["d2t"]).max()) >= tiny.SIZES.vocab


def test_the_trap_is_armed(tmp_path: Path) -> None:
    """It goes off when unpickled without care, so a test that finds no marker has shown something."""
    marker = tmp_path / "with a space"
    path = tiny.write_pickle_with_code(tmp_path / "evil.pt", marker)
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists()


def test_bombs_are_small_on_disk(tmp_path: Path) -> None:
    stride = tiny.write_stride_bomb(tmp_path / "stride.pt")
    deflate = tiny.write_deflate_bomb(tmp_path / "deflate.pt")
    assert stride.stat().st_size < 10_000 and deflate.stat().st_size < 500_000
    assert torch.load(stride, weights_only=True)["hidden_states"][0].shape == (25, 10**7)
    short = tiny.write_truncated(tmp_path / "short.pt", stride)
    with pytest.raises(RuntimeError):
        torch.load(short, weights_only=True)


def test_other_shapes_run() -> None:
    """Four states, a wider target, another head size, every optional tensor."""
    sizes = replace(tiny.SIZES, states=4, target_hidden=24, heads=6, kv_heads=3, head_dim=10, layers=2)
    weights = tiny.tiny_weights(2, sizes, input_norm=True, attention_bias=True, mlp_bias=True, qk_norm=True)
    sample = tiny.tiny_sample(2, weights, sizes, tokens=8)
    rows = tiny.reference(weights, sizes).teacher_forced(sample.ids, sample.slots, 2)
    assert rows[1][0] is not None and rows[1][0].logits.isfinite().all()
