"""Tensors of two checkpoints against numbers computed whole in plain float64; verdicts; what is left out is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint_compare import tensors as module
from drafter.checkpoint_compare import verdict as v
from drafter.checkpoint_compare.compare import Comparison, compare, comparison_json
from drafter.checkpoint_compare.tensors import Compared, TensorComparison, compare_tensors
from drafter.errors import Cancelled
from drafter.json_text import json_text
from tests import tiny
from tests.drafter.helpers import opened

torch.set_num_threads(1)
WEIGHTS = tiny.tiny_weights()
UP, FC, HEAD, Q = "layers.0.mlp.up_proj.weight", "fc.weight", "lm_head.weight", "layers.0.self_attn.q_proj.weight"
Weights = dict[str, Tensor]


def rewritten(folder: Path, change: Callable[[Weights], Weights]) -> Checkpoint:
    """The checkpoint in `folder` with other tensors in its file."""
    whole = change(load_file(folder / "model.safetensors"))
    save_file({k: t.contiguous() for k, t in whole.items()}, folder / "model.safetensors")
    return opened(folder)


def nested(folder: Path, weights: Weights = WEIGHTS, **options: Any) -> Checkpoint:
    return opened(tiny.write_nested(folder, weights, **options))


def one(found: TensorComparison, name: str) -> Compared:
    (compared,) = [c for c in found.compared if c.name == name]
    return compared


def kinds(found: TensorComparison) -> dict[str, str]:
    return {c.name: c.kind for c in found.compared}


def noisy(scale: float, seed: int = 5) -> Weights:
    rng = torch.Generator().manual_seed(seed)

    def moved(name: str, t: Tensor) -> Tensor:
        still = not t.is_floating_point() or name.startswith(("embed", "lm_head"))
        return t if still else t + scale * t.std() * torch.randn(t.shape, generator=rng)

    return {name: moved(name, t) for name, t in WEIGHTS.items()}


# --- numbers


@pytest.mark.parametrize("chunk", [7, 64, 1 << 20])
def test_numbers_are_those_of_the_whole_tensors(tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    other = noisy(0.2)
    found = compare_tensors(nested(tmp_path / "a"), nested(tmp_path / "b", other))
    for name in (UP, FC, "norm.weight"):
        a, b = (w[name].bfloat16().double() for w in (WEIGHTS, other))
        change = one(found, name).change
        assert change.relative == pytest.approx(float((b - a).norm() / a.norm()), rel=1e-12)
        assert change.largest == float((b - a).abs().max())
        assert change.cosine == pytest.approx(float((a * b).sum() / a.norm() / b.norm()), rel=1e-12)
        assert (change.changed, change.elements) == (int((a != b).sum()), a.numel())
    relative = [c.change.relative for c in found.compared if not c.change.equal]
    assert relative == sorted(relative, key=lambda r: -(r or 0)) and len(relative) > 5
    assert found.compared[0].kind == "changed" and found.compared[-1].kind == "equal"


def test_not_a_number_hides_nothing_and_equals_itself(tmp_path: Path) -> None:
    def spoil(w: Weights) -> Weights:
        w[UP][3, 4], w[UP][5, 6] = float("nan"), float("inf")
        return w

    def spoil_and_move(w: Weights) -> Weights:
        w = spoil(w)
        w[UP][0, 0] += 1.0
        w[UP][1, 1] = float("nan")
        return w

    ours = tiny.write_nested(tmp_path / "a", WEIGHTS)
    theirs = tiny.write_nested(tmp_path / "b", WEIGHTS)
    a = rewritten(ours, spoil)
    assert kinds(compare_tensors(a, rewritten(theirs, spoil)))[UP] == "equal"
    found = one(compare_tensors(a, rewritten(theirs, spoil_and_move)), UP).change
    assert found.not_finite == (2, 3)
    before = WEIGHTS[UP][0, 0].bfloat16()
    moved = float((before + 1.0).double() - before.double())
    assert (found.changed, found.largest) == (2, moved)
    norm = WEIGHTS[UP].bfloat16().double()
    norm[3, 4] = norm[5, 6] = norm[1, 1] = 0.0
    assert found.relative == pytest.approx(moved / float(norm.norm()), rel=1e-9)


def test_two_dtypes_are_equal_in_the_coarser(tmp_path: Path) -> None:
    fine = {k: t + 1e-4 * t if t.is_floating_point() else t for k, t in WEIGHTS.items()}
    a, b = nested(tmp_path / "a", fine, dtype=torch.float32), nested(tmp_path / "b", fine)
    found = compare_tensors(a, b)
    assert set(kinds(found).values()) == {"equal", "equal in BF16"}  # equal: the vocab map, and what needs no rounding
    change = one(found, UP).change
    assert change.relative is not None and 0 < change.relative < 2**-8
    assert compare(a, b).verdict.kind == v.SAME
    widened = compare_tensors(nested(tmp_path / "c"), nested(tmp_path / "d", dtype=torch.float32))
    assert set(kinds(widened).values()) == {"equal"}


def test_fp8_is_multiplied_out_as_the_loader_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 100)  # three rows at a time: blocks of scales are crossed
    scale = torch.rand(3, 2) + 0.5  # blocks of 16 x 16
    spread = scale.repeat_interleave(16, 0).repeat_interleave(16, 1)

    def quantise(w: Weights) -> Weights:
        whole = {k: t for k, t in w.items() if k != UP}
        stored = (w[UP].float() / spread).to(torch.float8_e4m3fn)
        return whole | {UP: stored, UP.replace("weight", "weight_scale_inv"): scale}

    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [16, 16]}}
    a = nested(tmp_path / "a")
    b = rewritten(tiny.write_nested(tmp_path / "b", WEIGHTS, changes=config), quantise)
    found = compare_tensors(a, b)
    exact = WEIGHTS[UP].double()
    theirs = (WEIGHTS[UP] / spread).to(torch.float8_e4m3fn).float() * spread
    assert one(found, UP).change.relative == pytest.approx(float((theirs.double() - exact).norm() / exact.norm()))
    assert {n for n, kind in kinds(found).items() if kind != "equal"} == {UP}
    assert found.not_compared == ()
    judged = compare(a, b).verdict
    assert (judged.kind, "rounded to eight bits" in judged.sentence) == (v.ROUNDED, True)
    assert compare(b, b).verdict.kind == v.SAME


def test_other_numbers_in_fp8_are_no_rounding(tmp_path: Path) -> None:
    def quantise(w: Weights) -> Weights:
        return {
            **w,
            UP: (w[UP].float() * 1.2).to(torch.float8_e4m3fn),
            UP.replace("weight", "weight_scale"): torch.ones(()),
        }

    b = rewritten(tiny.write_nested(tmp_path / "b", WEIGHTS), quantise)
    assert compare(nested(tmp_path / "a"), b).verdict.kind == v.ONE_RUN


# --- which tensors belong together


def test_names_and_fused_projections_of_one_drafter(tmp_path: Path) -> None:
    def fuse(w: Weights) -> Weights:
        at = "midlayer."
        parts = [w.pop(f"{at}self_attn.{p}_proj.weight") for p in "qkv"]
        ups = [w.pop(f"{at}mlp.{p}_proj.weight") for p in ("gate", "up")]
        return w | {f"{at}self_attn.qkv_proj.weight": torch.cat(parts), f"{at}mlp.gate_up_proj.weight": torch.cat(ups)}

    a = rewritten(tiny.write_flat(tmp_path / "a", WEIGHTS), fuse)
    found = compare_tensors(a, nested(tmp_path / "b"))
    assert set(kinds(found).values()) == {"equal"}
    assert one(found, Q).ours.name == "midlayer.self_attn.qkv_proj.weight"
    assert [(n.name, n.only_in) for n in found.not_compared] == [("embed_tokens.weight", "theirs")]


def test_heads_are_compared_by_the_tokens_of_their_rows(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(1)
    full = torch.randn(97, 32, generator=rng).bfloat16().float()

    def drafter(folder: Path, kind: str, seed: int) -> tuple[Checkpoint, set[int]]:
        maps = tiny.vocab_map(seed, kind=kind)
        ids = maps["d2t"] + torch.arange(40)
        return nested(folder, {**WEIGHTS, **maps, HEAD: full[ids]}), set(ids.tolist())

    a, one_ids = drafter(tmp_path / "a", "offsets", 1)
    b, two_ids = drafter(tmp_path / "b", "unsorted", 2)
    found = compare_tensors(a, b)
    head, shared = one(found, HEAD), len(one_ids & two_ids)
    assert (found.same_map, head.kind, head.change.elements) == (False, "equal", shared * 32)
    assert head.note == f"by target id: {shared} shared, {40 - shared} only in ours, {40 - shared} only in theirs"
    assert one(found, "d2t").kind == "changed"
    assert compare(a, b).verdict.kind == v.PARTLY
    # the same tokens in another order of rows: the naive comparison would call every row changed
    c, three_ids = drafter(tmp_path / "c", "unsorted", 1)
    assert three_ids == one_ids and one(compare_tensors(a, c), HEAD).change.elements == 40 * 32
    assert one(compare_tensors(a, c), HEAD).kind == "equal"


def test_a_map_that_is_written_in_the_other_reading_is_the_same(tmp_path: Path) -> None:
    direct = {**WEIGHTS, **tiny.vocab_map(0, kind="direct")}
    found = compare(nested(tmp_path / "a"), nested(tmp_path / "b", direct))
    assert (found.tensors.same_map, kinds(found.tensors)["d2t"]) == (True, "changed")
    assert found.verdict.kind == v.SAME
    assert "15 of 16 shared tensors are equal, d2t written otherwise" in found.verdict.sentence


def test_what_is_not_compared_is_said(tmp_path: Path) -> None:
    def change(w: Weights) -> Weights:
        w["embed_tokens.weight"] = torch.cat([w["embed_tokens.weight"], torch.zeros(3, 32, dtype=torch.bfloat16)])
        w["extra.weight"] = torch.ones(2)
        w["t2d"] = w["t2d"].double()
        return {k: t for k, t in w.items() if k != "norm.weight"}

    b = rewritten(tiny.write_nested(tmp_path / "b", WEIGHTS), change)
    found = compare(nested(tmp_path / "a"), b)
    why = {n.name: (n.only_in, n.why) for n in found.tensors.not_compared}
    assert set(why) == {"extra.weight", "norm.weight", "t2d"}
    assert why["norm.weight"][0] == "ours" and "nobody" in why["norm.weight"][1]
    assert why["extra.weight"][0] == "theirs"
    assert why["t2d"] == ("", "BOOL against F64")
    assert one(found.tensors, "embed_tokens.weight").note == "the first 97 rows, of 97 and 100"
    assert found.verdict.kind == v.PARTLY  # all that was compared is equal, and yet they are not the same drafter
    assert "not compared: norm.weight, extra.weight, t2d" in found.verdict.sentence


def test_shapes_that_differ_are_not_compared(tmp_path: Path) -> None:
    sizes = tiny.Sizes(mlp=64)
    wide = opened(tiny.write_nested(tmp_path / "b", tiny.tiny_weights(0, sizes), sizes))
    found = compare_tensors(nested(tmp_path / "a"), wide)
    why = {n.name: n.why for n in found.not_compared}
    assert why[UP] == "other shapes: [48, 32] against [64, 32]"
    sizes = tiny.Sizes(hidden=16, head_dim=4)
    narrow = opened(tiny.write_nested(tmp_path / "c", tiny.tiny_weights(0, sizes), sizes))
    judged = compare(nested(tmp_path / "d"), narrow).verdict
    assert judged.kind == v.UNRELATED
    assert "hidden_size" in judged.differing


def test_integers_of_other_widths_and_a_file_that_went_away(tmp_path: Path) -> None:
    b = rewritten(tiny.write_nested(tmp_path / "b", WEIGHTS), lambda w: {**w, "d2t": w["d2t"].int()})
    assert kinds(compare_tensors(nested(tmp_path / "a"), b))["d2t"] == "equal"
    gone = nested(tmp_path / "c")
    (tmp_path / "c/model.safetensors").unlink()
    found = compare_tensors(nested(tmp_path / "d"), gone)
    assert found.compared == ()
    assert all("cannot open the file" in n.why for n in found.not_compared) and len(found.not_compared) == 16


def test_torch_files_and_transposed_tensors(tmp_path: Path) -> None:
    folder = tiny.write_nested(tmp_path / "b", WEIGHTS)
    whole = load_file(folder / "model.safetensors")
    whole[UP] = whole[UP].t().contiguous().t()  # stored column by column
    torch.save(whole, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    found = compare_tensors(nested(tmp_path / "a"), opened(folder))
    assert one(found, UP).theirs.strides == (1, 48)
    assert set(kinds(found).values()) == {"equal"} and found.not_compared == ()


# --- verdicts


def verdict(a: Checkpoint, b: Checkpoint) -> Comparison:
    return compare(a, b)


def test_exports_of_the_same_weights(tmp_path: Path) -> None:
    a = opened(tiny.write_flat(tmp_path / "a", WEIGHTS, speculators_config=True))
    judged = verdict(a, nested(tmp_path / "b")).verdict
    assert (judged.kind, judged.differing) == (v.SAME, ())
    assert "the same weights exported twice: all 15 shared tensors are equal" in judged.sentence
    assert "config.json differs in aux_depths" in judged.sentence
    other = verdict(nested(tmp_path / "c"), nested(tmp_path / "d", norm_before_residual=True)).verdict
    assert (other.kind, other.differing) == (v.SAME, ("norm_before_residual",))
    assert "the trained functions differ in norm_before_residual" in other.sentence


@pytest.mark.parametrize(("scale", "kind"), [(1e-2, v.ONE_RUN), (1.0, v.ONE_RUN), (6.0, v.AKIN)])
def test_states_of_one_run(tmp_path: Path, scale: float, kind: str) -> None:
    found = verdict(nested(tmp_path / "a"), nested(tmp_path / "b", noisy(scale)))
    assert found.verdict.kind == kind
    assert found.verdict.cosine == pytest.approx(1 / (1 + scale**2) ** 0.5, abs=0.05)


def test_runs_that_only_share_the_target(tmp_path: Path) -> None:
    other = tiny.tiny_weights(9)
    shared = {name: WEIGHTS[name] for name in ("embed_tokens.weight", HEAD, "d2t", "t2d")}
    judged = verdict(nested(tmp_path / "a"), nested(tmp_path / "b", {**other, **shared})).verdict
    assert judged.kind == v.UNRELATED
    assert abs(judged.cosine or 1) < 0.1


def test_one_changed_norm_is_not_the_same_weights(tmp_path: Path) -> None:
    other = {**WEIGHTS, "norm.weight": WEIGHTS["norm.weight"] + 1}
    judged = verdict(nested(tmp_path / "a"), nested(tmp_path / "b", other)).verdict
    assert judged.kind == v.PARTLY
    assert "1 of 16 differ" in judged.sentence


def test_fc_with_its_blocks_moved(tmp_path: Path) -> None:
    parts = WEIGHTS[FC].chunk(3, 1)
    moved = {**WEIGHTS, FC: torch.cat([parts[2], parts[0], parts[1]], 1)}
    found = verdict(nested(tmp_path / "a"), nested(tmp_path / "b", moved))
    assert (found.verdict.kind, found.tensors.fc_blocks) == (v.MOVED, (2, 0, 1))
    repeated = {**WEIGHTS, FC: torch.cat([parts[2], parts[2], parts[1]], 1)}
    assert verdict(nested(tmp_path / "c"), nested(tmp_path / "d", repeated)).tensors.fc_blocks is None


def test_without_weights_there_is_nothing_to_judge_by(tmp_path: Path) -> None:
    folder = tiny.write_nested(tmp_path / "b", WEIGHTS)
    (folder / "model.safetensors").unlink()
    judged = verdict(nested(tmp_path / "a"), opened(folder)).verdict
    assert judged.kind == v.UNKNOWN
    assert "no weights in theirs" in judged.sentence


# --- manners


def test_it_can_be_cancelled_and_says_how_far_it_is(tmp_path: Path) -> None:
    a, b = nested(tmp_path / "a"), nested(tmp_path / "b")
    seen: list[tuple[int, int, str]] = []
    compare_tensors(a, b, lambda *now: seen.append(now))
    assert [done for done, _, _ in seen] == list(range(17)) and {planned for _, planned, _ in seen} == {16}
    calls = 0

    def poll() -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise Cancelled

    with pytest.raises(Cancelled):
        compare_tensors(a, b, poll=poll)


def test_no_more_than_a_block_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from drafter.files import stored

    monkeypatch.setattr(module, "CHUNK", 256)
    a, b, largest = nested(tmp_path / "a"), nested(tmp_path / "b", noisy(0.1)), 0
    read = stored._read_one

    def watched(fd: int, part: stored.StoredTensor) -> Tensor:
        nonlocal largest
        largest = max(largest, part.numel if part.name not in ("d2t", "t2d") else 0)
        return read(fd, part)

    monkeypatch.setattr(stored, "_read_one", watched)
    compare_tensors(a, b)
    assert 0 < largest <= 256


def test_json_holds_it_all(tmp_path: Path) -> None:
    found = verdict(nested(tmp_path / "a"), nested(tmp_path / "b", noisy(0.1)))
    data = comparison_json(found)
    assert len(json_text(data)) > 1000
    assert {c["name"] for c in data["tensors"]["compared"]} == set(WEIGHTS)
    assert data["verdict_kind"] == v.ONE_RUN and data["median_cosine"] == found.verdict.cosine
