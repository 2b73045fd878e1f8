"""Every variant of the forward against the plain reference, row by row, and against what the real packages recorded.

The weights come straight from memory: no file format is in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from drafter.checkpoint import config as checkpoint_config
from drafter.checkpoint.config import DrafterConfig, Rope
from drafter.checkpoint.vocab_map import VocabMap, read_vocab_map
from drafter.drafting import chains, context
from drafter.drafting.chains import draft_ids, draft_steps
from drafter.drafting.context import SampleRun
from drafter.drafting.readout import read_chain, read_rows
from drafter.errors import CheckpointError
from drafter.model.drafter import Eagle3Drafter
from drafter.model.embedding import EmbeddingTable
from drafter.sample.open import open_sample
from drafter.scoring.counts import count
from drafter.scoring.sweep import truths_of
from drafter.wiring import Wiring
from scripts import (
    conformance_angelslim,
    conformance_cases,
    conformance_modelopt,
    conformance_specforge,
    conformance_speculators,
)
from scripts.conformance_cases import Case as PackageCase
from scripts.conformance_cases import text, weights_of
from tests import reference, tiny
from tests.drafter.helpers import placed, refused, same
from tests.reference import Latent, Row

K, TOLERANCE = 4, 2e-5
DATA = Path(__file__).parents[1] / "data"
LATENT = Latent(nope=6, rope=4, value=5, kv_rank=12)
YARN = {"factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 4, "beta_slow": 1}
DEEPSEEK = YARN | {"mscale": 1.0, "mscale_all_dim": 0.8}
LLAMA3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
S = tiny.SIZES
MLA = replace(S, latent=LATENT, query_rank=10)


@dataclass(frozen=True)
class Variant:
    """`weights`: options of `tiny_weights`; `config`: fields of DrafterConfig; `wiring`: fields of Wiring.

    `switches`: what the reference needs to be told; `rope`: (type, table, interleaved) for both.
    """

    sizes: tiny.Sizes = S
    weights: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    wiring: dict[str, Any] = field(default_factory=dict)
    rope: tuple[str, dict[str, Any], bool] = ("default", {}, False)
    switches: dict[str, Any] = field(default_factory=dict)


def both(**wiring: Any) -> dict[str, Any]:
    """A switch that the wiring and the reference call by the same name."""
    return {"wiring": wiring, "switches": wiring}


EVERYTHING = {"input_norm": True, "fc_norm": True, "attention_bias": True, "mlp_bias": True, "fc_bias": True}
FEW_STATES = replace(S, states=1)
PARALLEL: dict[str, Any] = {"parallel": True, "mask_token_id": 5}

VARIANTS: dict[str, Variant] = {
    "plain": Variant(),
    "mha": Variant(replace(S, kv_heads=4)),
    "one key head": Variant(replace(S, kv_heads=1)),
    "every norm and bias": Variant(weights=EVERYTHING | {"qk_norm": True}, **both(norm_output=True)),
    "target wider": Variant(replace(S, target_hidden=40, states=2)),
    "five states": Variant(replace(S, states=5)),
    "one state, fc kept": Variant(FEW_STATES),
    "no aux": Variant(FEW_STATES, weights={"fc": False}, config={"use_aux": False}),
    "two layers": Variant(replace(S, layers=2), weights={"attention_bias": True}),
    "four layers": Variant(replace(S, layers=4), weights={"qk_norm": True}, **both(norm_before_residual=True)),
    "norm_before_residual": Variant(**both(norm_before_residual=True, norm_output=True)),
    "double_norm": Variant(**both(double_norm=True)),
    "no final norm": Variant(**both(final_norm=False)),
    "constant": Variant(**both(positions="constant")),
    "late": Variant(replace(S, layers=2), **both(positions="late")),
    "logit scale": Variant(config={"logit_scale": 0.25}, switches={"logit_scale": 0.25}),
    "tied": Variant(wiring={"head": "tied"}, switches={"head": "tied", "draft_vocab": S.draft_vocab}),
    "linear": Variant(rope=("linear", {"factor": 4.0}, False)),
    "dynamic": Variant(config={"max_positions": 8}, rope=("dynamic", {"factor": 2.0}, False)),
    "dynamic within": Variant(rope=("dynamic", {"factor": 2.0}, False)),
    "llama3": Variant(rope=("llama3", LLAMA3, False)),
    "yarn": Variant(rope=("yarn", YARN, False)),
    "yarn, halves kept": Variant(rope=("yarn", YARN | {"attention_factor": 1.3, "truncate": False}, False)),
    "interleaved": Variant(rope=("default", {}, True)),
    "partial": Variant(rope=("default", {"partial_rotary_factor": 0.5}, False)),
    "rotary_dim, interleaved": Variant(rope=("default", {"rotary_dim": 6}, True)),
    "mla": Variant(MLA, rope=("default", {}, True)),
    "mla, whole q": Variant(replace(MLA, query_rank=None), rope=("default", {}, True), **both(norm_output=True)),
    "mla, yarn": Variant(MLA, rope=("yarn", DEEPSEEK, True), weights={"fc_norm": True}),
    "mla, two layers, biases": Variant(
        replace(MLA, layers=2), weights={"attention_bias": True}, rope=("default", {}, False)
    ),
    "p-eagle": Variant(replace(S, layers=4), weights={"mask_hidden": True}, config=PARALLEL),
    "p-eagle, norms": Variant(
        weights={"mask_hidden": True, **EVERYTHING}, config=PARALLEL, **both(norm_before_residual=True)
    ),
}


class _Stored:
    """As much of a stored tensor as an embedding needs."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.shape = tensor, tuple(tensor.shape)

    def gather(self, rows: list[int]) -> Tensor:
        return self.tensor[rows]


class MemorySources:
    def __init__(self, weights: dict[str, Tensor], dtype: torch.dtype) -> None:
        self.weights, self.dtype = weights, dtype
        table = weights["embed_tokens.weight"]
        self.tables = {"own": table, "target": table.flip(0)}

    def embedding(self, which: str) -> EmbeddingTable:
        return EmbeddingTable(_Stored(self.tables[which]), which)  # type: ignore[arg-type]

    def head(self, which: str, d2t: str, embedding: str = "own") -> Tensor:
        own = self.weights["lm_head.weight"]
        tied = self.tables[embedding][: len(own)]
        return {"own": own, "target": own.flip(0), "tied": tied}[which].to(self.dtype)

    def vocab(self, d2t: str) -> VocabMap:
        size, vocab = self.weights["lm_head.weight"].shape[0], self.weights["embed_tokens.weight"].shape[0]
        if d2t == "direct":
            ids = torch.arange(size) * 2
            inverse = torch.full((vocab,), -1)
            inverse[ids] = torch.arange(size)
            return VocabMap(ids, inverse, "direct ids", ())
        return read_vocab_map(self.weights["d2t"], self.weights["t2d"], size, vocab)


def drafter_config(variant: Variant, weights: dict[str, Tensor]) -> DrafterConfig:
    s, kind = variant.sizes, variant.rope
    mla = None
    if s.latent is not None:
        mla = checkpoint_config.Mla(s.query_rank, s.latent.kv_rank, s.latent.nope, s.latent.rope, s.latent.value)
    fields: dict[str, Any] = {
        **dict.fromkeys(("dialect", "producer", "architecture", "id_convention", "verifier"), "test"),
        "hidden_size": s.hidden,
        "target_hidden_size": s.target_width,
        "vocab_size": s.vocab,
        "draft_vocab_size": s.draft_vocab,
        "num_heads": s.heads,
        "num_kv_heads": s.kv_heads,
        "head_dim": s.head_dim,
        "intermediate_size": s.mlp,
        "num_layers": s.layers,
        "rms_norm_eps": s.eps,
        "hidden_act": "silu",
        "rope": Rope.of(s.rope_theta, kind[0], kind[1], kind[2]),
        "attention": "mla" if mla else "gqa",
        "mla": mla,
        "attention_bias": variant.weights.get("attention_bias", False),
        "norm_before_residual": False,
        "norm_before_fc": "input_norm.weight" in weights,
        "fc_norm": "fc_norm.0.weight" in weights,
        "norm_output": False,
        "use_aux": True,
        "aux_ids": None,
        "tie_lm_head": False,
        "sliding_window": None,
        "max_positions": 512,
    }
    return DrafterConfig(**fields | variant.config)


def model_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a drafter is given: neither embedding, head nor map."""
    return {k: v for k, v in weights.items() if k not in ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d")}


@dataclass(frozen=True)
class Case:
    """A variant, set up: `run` for ours, `truth` for the reference."""

    variant: Variant
    run: SampleRun
    wiring: Wiring
    truth: reference.ReferenceDrafter
    sample: tiny.TinySample
    weights: dict[str, Tensor]

    @property
    def ordering(self) -> tuple[int, ...]:
        return tuple(slot % 4 for slot in range(self.variant.sizes.states))[::-1]

    @property
    def states(self) -> Tensor:
        return self.sample.slots[:, list(self.ordering)]

    def rows(self, depth: int = K) -> list[list[Row | None]]:
        if self.variant.config.get("parallel"):
            return self.truth.parallel(self.sample.ids, self.states, depth)
        return self.truth.teacher_forced(self.sample.ids, self.states, depth)

    def steps(self, depth: int = K, own_tokens: bool = False) -> list[chains.Step]:
        rows = torch.arange(self.run.rows)
        filled = self.run.context(self.ordering, self.wiring, self.run.rows, lambda: None)
        return list(draft_steps(self.run, filled, rows, depth, own_tokens, lambda: None))


def case(folder: Path, variant: Variant, tokens: int = 14, dtype: torch.dtype = torch.float32) -> Case:
    weights = tiny.tiny_weights(8, variant.sizes, **variant.weights)
    sample = tiny.tiny_sample(8, weights, variant.sizes, tokens=tokens)
    config = drafter_config(variant, weights)
    given = {name: tensor.to(dtype) for name, tensor in model_weights(weights).items()}
    drafter = Eagle3Drafter(config, given, MemorySources(weights, dtype), placed(dtype))
    run = SampleRun(drafter, open_sample(tiny.write_v1_sample(folder / "data_0.pt", sample)))
    wiring = replace(Wiring.trained(config), **variant.wiring)
    return Case(variant, run, wiring, _truth(variant, weights, config), sample, weights)


def _truth(variant: Variant, weights: dict[str, Tensor], config: DrafterConfig) -> reference.ReferenceDrafter:
    kind, table, interleaved = variant.rope
    part = table.get("rotary_dim") or int(table.get("partial_rotary_factor", 1) * variant.sizes.head_dim)
    rope = reference.Rope(
        variant.sizes.rope_theta,
        kind,
        table,
        rotary_dim=None if variant.sizes.latent else part,
        interleaved=interleaved,
        max_positions=config.max_positions or 0,
    )
    return tiny.reference(weights, variant.sizes, rope=rope, mask_token=config.mask_token_id, **variant.switches)


def difference(found: list[chains.Step], truth: list[list[Row | None]]) -> float:
    """The largest distance of two logits over the largest logit; every row of the truth is among the found."""
    worst = 0.0
    for step, rows in zip(found, truth, strict=True):
        there = [(t, row) for t, row in enumerate(rows) if row is not None]
        expected = torch.stack([row.logits for _, row in there])
        ours = step.logits[[step.rows.tolist().index(t) for t, _ in there]]
        worst = max(worst, float((ours - expected).abs().max() / expected.abs().max()))
    return worst


@pytest.mark.parametrize("name", VARIANTS)
def test_every_row_and_step_is_the_references(tmp_path: Path, name: str) -> None:
    here = case(tmp_path, VARIANTS[name])
    assert difference(here.steps(), here.rows()) < TOLERANCE


PACKAGES = {
    "speculators": conformance_speculators.CASES,
    "specforge": conformance_specforge.CASES,
    "modelopt": conformance_modelopt.CASES,
    "angelslim": conformance_angelslim.CASES,
}
# its positions begin at 1, so the length that dynamic RoPE looks at is one more
NOT_OURS = {"dynamic"}


@pytest.mark.parametrize(
    ("package", "name"),
    [(package, name) for package, cases in PACKAGES.items() for name in cases if name not in NOT_OURS],
)
def test_logits_are_the_packages(tmp_path: Path, package: str, name: str) -> None:
    recorded = PACKAGES[package][name]
    everything = load_file(DATA / "speculators_tiny/weights.safetensors")
    everything = {k: t.float() if t.is_floating_point() else t for k, t in everything.items()}
    weights, sample = weights_of(recorded, everything), text(everything)
    truth = load_file(DATA / f"{package}_tiny/logits.safetensors")[name]  # [K, R, D]
    run, wiring = packaged(tmp_path, recorded, weights, sample)
    ordering = tuple(range(recorded.states))
    filled = run.context(ordering, wiring, run.rows, lambda: None)
    for step in draft_steps(run, filled, torch.arange(run.rows), len(truth), False, lambda: None):
        fed = torch.arange(run.rows - step.k)  # later rows were fed some other token
        assert float((step.logits[fed] - truth[step.k, fed]).abs().max() / truth.abs().max()) < TOLERANCE


@pytest.mark.parametrize("name", [name for name in conformance_speculators.CASES if name not in NOT_OURS])
def test_logits_of_calm_weights_are_the_packages_to_the_last_digits(tmp_path: Path, name: str) -> None:
    """Where rounding is not blown up, the largest absolute difference in float32 is 2e-5 at most."""
    recorded = PACKAGES["speculators"][name]
    everything = load_file(DATA / "speculators_tiny/weights.safetensors")
    everything = {k: t.float() if t.is_floating_point() else t for k, t in everything.items()}
    everything = conformance_cases.calmed(everything, conformance_speculators.CALM)
    truth = load_file(DATA / "speculators_tiny/logits_calm.safetensors")[name]  # [K, R, D]
    run, wiring = packaged(tmp_path, recorded, weights_of(recorded, everything), text(everything))
    filled = run.context(tuple(range(recorded.states)), wiring, run.rows, lambda: None)
    for step in draft_steps(run, filled, torch.arange(run.rows), len(truth), False, lambda: None):
        fed = torch.arange(run.rows - step.k)
        assert float((step.logits[fed] - truth[step.k, fed]).abs().max()) <= 2e-5


def packaged(
    folder: Path, recorded: PackageCase, weights: dict[str, Tensor], sample: tiny.TinySample
) -> tuple[SampleRun, Wiring]:
    """A package's case as one of ours; what the reference is told says what it is."""
    told = dict(recorded.switches)
    rope: reference.Rope = told.pop("rope", None) or reference.Rope(tiny.SIZES.rope_theta, interleaved=recorded.latent)
    table = dict(rope.params) | ({"rotary_dim": rope.rotary_dim} if rope.rotary_dim else {})
    changes: dict[str, Any] = {"rope": Rope.of(rope.theta, rope.kind, table, rope.interleaved)}
    changes["max_positions"] = rope.max_positions
    mask, windows = told.pop("mask_token", None), told.pop("windows", None)
    if mask is not None:
        changes |= {"parallel": True, "mask_token_id": mask}
    if windows:
        changes["sliding_window"] = windows[0]
        changes["full_layers"] = tuple(i for i, width in enumerate(windows) if width is None)
    config = replace(drafter_config(Variant(recorded.sizes), weights), **changes)
    drafter = Eagle3Drafter(config, model_weights(weights), MemorySources(weights, torch.float32), placed())
    run = SampleRun(drafter, open_sample(tiny.write_v1_sample(folder / "data_0.pt", sample)))
    # a trainer's window stays where the row is, but for P-EAGLE's
    return run, replace(Wiring.trained(config), window="moving" if mask is not None else "still", **told)


@pytest.mark.parametrize("name", ["plain", "two layers", "mla", "late", "tied", "mla, two layers, biases"])
def test_a_free_chain_is_the_servers(tmp_path: Path, name: str) -> None:
    here = case(tmp_path, VARIANTS[name])
    d2t = here.weights["d2t"].tolist()
    found = here.steps(own_tokens=True)
    for row in range(here.run.rows):
        chain = here.truth.chain(here.sample.ids, here.states, row, K, d2t)
        ours = torch.stack([step.logits[row] for step in found])
        assert float((ours - chain.logits).abs().max() / chain.logits.abs().max()) < TOLERANCE
        links = read_chain(here.run, here.ordering, here.wiring, row, K)
        assert [link.id for link in links] == chain.target_ids


# --- what was one pass in one layer


@pytest.mark.parametrize("name", ["four layers", "mla", "p-eagle", "dynamic"])
@pytest.mark.parametrize("block", [1, 5])
def test_blocks_of_any_size_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block: int
) -> None:
    here = case(tmp_path, VARIANTS[name])
    expected = draft_ids(here.run, here.ordering, here.wiring, K)
    monkeypatch.setattr(context, "BLOCK", block)
    monkeypatch.setattr(chains, "BLOCK", block)
    fresh = SampleRun(here.run.drafter, here.run.sample)
    assert torch.equal(draft_ids(fresh, here.ordering, here.wiring, K), expected)
    some = torch.tensor([2, 3, 9])
    assert torch.equal(draft_ids(fresh, here.ordering, here.wiring, K, some)[:, some], expected[:, some])


@pytest.mark.parametrize("name", ["two layers", "mla", "p-eagle"])
def test_a_state_that_is_no_number_spoils_no_earlier_row(tmp_path: Path, name: str) -> None:
    here = case(tmp_path, VARIANTS[name])
    spoiled = replace(here.sample, slots=here.sample.slots.clone())
    spoiled.slots[7, 1] = float("nan")
    run = SampleRun(here.run.drafter, open_sample(tiny.write_v1_sample(tmp_path / "nan.pt", spoiled)))
    for one, two in zip(here.steps(), replace(here, run=run).steps(), strict=True):
        assert torch.allclose(one.logits[:7], two.logits[:7], atol=1e-5) and bool(two.logits[7:].isnan().all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_half_precision_mostly_agrees(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    exact = case(tmp_path, VARIANTS[name]).steps(2)
    rounded = case(tmp_path, VARIANTS[name], dtype=dtype).steps(2)
    for one, two in zip(exact, rounded, strict=True):
        assert two.logits.dtype == torch.float32
        assert float((one.logits - two.logits).norm() / one.logits.norm()) < 0.1


# --- sliding windows


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("width", [1, 2, 5, 9, 100])
def test_a_window_is_a_servers(tmp_path: Path, width: int, layers: int) -> None:
    variant = Variant(
        replace(S, layers=layers), config={"sliding_window": width}, switches={"windows": [width] * layers}
    )
    here = case(tmp_path, variant, tokens=20)
    d2t = here.weights["d2t"].tolist()
    found = here.steps(own_tokens=True)
    forced = here.steps()
    assert difference(forced[:1], here.rows()[:1]) < TOLERANCE
    for row in range(here.run.rows):
        chain = here.truth.chain(here.sample.ids, here.states, row, K, d2t)
        ours = torch.stack([step.logits[row] for step in found])
        assert float((ours - chain.logits).abs().max() / chain.logits.abs().max()) < TOLERANCE


def test_a_window_of_p_eagle_moves_with_the_depth(tmp_path: Path) -> None:
    plain = VARIANTS["p-eagle"]
    variant = replace(plain, config=plain.config | {"sliding_window": 5}, switches={"windows": [5] * 4})
    here = case(tmp_path, variant, tokens=20)
    assert difference(here.steps(), here.rows()) < TOLERANCE
    assert difference(case(tmp_path, plain, tokens=20).steps(), here.rows()) > 0.01


# --- p-eagle


def test_a_parallel_drafter_is_fed_no_tokens(tmp_path: Path) -> None:
    """Forced and free are one, for every row to its full depth; the counts are those of any other drafter."""
    here = case(tmp_path, VARIANTS["p-eagle"])
    forced = draft_ids(here.run, here.ordering, here.wiring, K)
    free = draft_ids(here.run, here.ordering, here.wiring, K, own_tokens=True)
    assert torch.equal(forced, free) and bool((forced >= 0).all())
    links = read_chain(here.run, here.ordering, here.wiring, 3, K)
    vocab = here.run.drafter.vocab(here.wiring)
    assert [link.id for link in links] == vocab.target_ids[forced[:, 3]].tolist()
    counts = count(forced, truths_of(here.run, None, here.wiring), "all")
    assert [step["next_token"].marginal.total for step in counts.steps] == [12, 11, 10, 9]


def test_wirings_of_a_parallel_drafter_are_told_apart(tmp_path: Path) -> None:
    here = case(tmp_path, VARIANTS["p-eagle"])
    for switches in ({}, {"norm_before_residual": True}, {"double_norm": True}, {}):
        other = replace(here, wiring=replace(here.wiring, **switches))
        truth = tiny.reference(here.weights, here.variant.sizes, mask_token=5, **switches)
        assert difference(other.steps(), replace(here, truth=truth).rows()) < TOLERANCE


@pytest.mark.parametrize("token", [None, -1, 97])
def test_a_mask_token_that_is_none_is_refused(tmp_path: Path, token: int | None) -> None:
    plain = VARIANTS["p-eagle"]
    here = case(tmp_path, replace(plain, config=PARALLEL | {"mask_token_id": token}))
    with refused(CheckpointError, "mask_token_id"):
        draft_ids(here.run, here.ordering, here.wiring, K)


# --- what a wiring selects


def test_a_wiring_selects_where_things_come_from(tmp_path: Path) -> None:
    here = case(tmp_path, VARIANTS["plain"])
    own = here.steps(2)
    flipped = dict(here.weights, **{"embed_tokens.weight": here.weights["embed_tokens.weight"].flip(0)})
    other = replace(here, wiring=replace(here.wiring, embedding="target"))
    truth = replace(other, truth=tiny.reference(flipped)).rows(2)
    assert difference(other.steps(2), truth) < TOLERANCE and difference(own, truth) > 0.1
    tied = replace(other, wiring=replace(other.wiring, head="tied"))
    truth = tiny.reference(flipped, head="tied", draft_vocab=S.draft_vocab)
    assert difference(tied.steps(2), replace(tied, truth=truth).rows(2)) < TOLERANCE
    head = replace(here, wiring=replace(here.wiring, head="target")).steps(2)
    assert all(same(one.logits.flip(-1), two.logits) for one, two in zip(own, head, strict=True))
    direct = replace(here.wiring, d2t="direct")
    shown = read_rows(here.run, here.ordering, direct, [4], 3)[0]
    assert [p.id for p in shown.predictions] == [2 * p.draft_id for p in shown.predictions]
    assert int(truths_of(here.run, None, direct).target_ids[3]) == 6


@pytest.mark.parametrize("rope", [Rope(10000.0), Rope.of(7e4, "linear", {"factor": 3.0}), Rope(5e4, interleaved=True)])
def test_a_wiring_overrides_the_rope(tmp_path: Path, rope: Rope) -> None:
    here = case(tmp_path, VARIANTS["plain"])
    turned = reference.Rope(rope.base, rope.type, dict(rope.parameters), interleaved=rope.interleaved)
    other = replace(here, wiring=replace(here.wiring, rope=rope), truth=tiny.reference(here.weights, rope=turned))
    assert difference(other.steps(), other.rows()) < TOLERANCE
    assert difference(here.steps(), other.rows()) > 0.001


def test_a_rope_without_its_parameters_is_refused(tmp_path: Path) -> None:
    here = case(tmp_path, VARIANTS["plain"])
    for kind in ("yarn", "llama3", "linear", "dynamic", "longrope"):
        with refused(CheckpointError, kind):
            draft_ids(here.run, here.ordering, replace(here.wiring, rope=Rope(1e4, kind)), 2)


# --- what is not computed


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"attention": "gated-mla"}, "gated-mla"),
        ({"attention": "mla"}, "sizes"),
        ({"rope": Rope(1e4, "longrope")}, "longrope"),
        ({"rope": Rope.of(1e4, "default", {"partial_rotary_factor": 2})}, "dimensions"),
        ({"num_layers": 2}, "layers.1"),
        ({"norm_before_fc": True}, "input_norm.weight"),
        ({"fc_norm": True}, "fc_norm.0.weight"),
        ({"parallel": True}, "mask_hidden"),
    ],
)
def test_what_is_not_computed_is_refused(changes: dict[str, Any], word: str) -> None:
    weights = tiny.tiny_weights(8)
    config = replace(drafter_config(Variant(), weights), **changes)
    with refused(CheckpointError, word):
        Eagle3Drafter(config, model_weights(weights), MemorySources(weights, torch.float32), placed())


@pytest.mark.parametrize("gone", ["fc", "norm", "layers.0.hidden_norm", "layers.0.mlp.up_proj"])
def test_a_tensor_that_is_missing_is_named(tmp_path: Path, gone: str) -> None:
    here = case(tmp_path, VARIANTS["plain"])
    weights = {name: t for name, t in here.weights.items() if name != f"{gone}.weight"}
    with refused(CheckpointError, f"{gone}.weight"):
        sources = MemorySources(weights, torch.float32)
        drafter = Eagle3Drafter(here.run.drafter.config, model_weights(weights), sources, placed())
        draft_ids(SampleRun(drafter, here.run.sample), here.ordering, here.wiring, 1)


def test_no_norm_is_no_fault_where_none_is_asked_for(tmp_path: Path) -> None:
    here = case(tmp_path, VARIANTS["no final norm"])
    weights = {name: t for name, t in here.weights.items() if name != "norm.weight"}
    drafter = Eagle3Drafter(
        here.run.drafter.config, model_weights(weights), MemorySources(weights, torch.float32), placed()
    )
    other = replace(here, run=SampleRun(drafter, here.run.sample))
    assert difference(other.steps(), here.rows()) < TOLERANCE
    with refused(CheckpointError, "norm.weight", "norm_output"):
        replace(other, wiring=replace(here.wiring, norm_output=True)).steps()
