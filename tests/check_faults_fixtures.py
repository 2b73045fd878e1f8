"""Every fault of golden/faults.json put into the real drafter: the accuracy as recorded there, and what the checks say.

Run by hand: `python -m tests.check_faults_fixtures FIXTURES [NAME ...]`, where FIXTURES holds output_speculators,
target, samples and golden. Prints a table and ends with 1 where a fault is not named or an accuracy differs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from drafter.checks.case import Case
from drafter.checks.measure import Moved
from drafter.checks.run import Report, run_checks
from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.errors import DrafterError
from drafter.sample.sample import Sample, States
from drafter.scoring.counts import count, rows_needed
from drafter.scoring.sweep import truths_of
from drafter.session import Options, Session
from drafter.wiring import Wiring

SLOTS = "embed,3,16,28"
TRAIN, HELD_OUT = (0, 10, 17), (539, 541, 546)
AT = "layers.0."
Config = dict[str, Any]
TOLERANCE = 0.002


@dataclass(frozen=True)
class Edited:
    """States with a change made to each block of rows."""

    states: States
    change: Callable[[Tensor], Tensor]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.states.shape

    @property
    def dtype(self) -> str:
        return self.states.dtype

    def rows(self, start: int, stop: int) -> Tensor:
        return self.change(self.states.rows(start, stop))

    def gather(self, indices: Any) -> Tensor:
        return self.change(self.states.gather(indices))

    def head(self, rows: int) -> Edited:
        return Edited(self.states.head(rows), self.change)


@dataclass(frozen=True)
class Fault:
    """`weights`, `config`, `sample`: what is changed; `exact` whether the recorded accuracy is one that can be met."""

    name: str
    kinds: tuple[str, ...]
    weights: Callable[[dict[str, Tensor]], None] = lambda w: None
    config: Callable[[Config], None] = lambda c: None
    sample: Callable[[Sample], Sample] = lambda s: s
    ordering: tuple[int, ...] | None = None
    exact: bool = True
    golden: str = ""


def _random(*names: str) -> Callable[[dict[str, Tensor]], None]:
    def change(w: dict[str, Tensor]) -> None:
        rng = torch.Generator().manual_seed(0)
        for name in names:
            w[name] = (torch.randn(w[name].shape, generator=rng) * w[name].float().std()).to(w[name].dtype)

    return change


def _set(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor]], None]:
    def edit(w: dict[str, Tensor]) -> None:
        w[name] = change(w[name]).contiguous()

    return edit


def _rope(**table: Any) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        config["transformer_layer_config"]["rope_parameters"] |= table

    return change


def _ids(*ids: int) -> Callable[[Config], None]:
    return lambda config: config.update(eagle_aux_hidden_state_layer_ids=list(ids))


def _top(**fields: Any) -> Callable[[Config], None]:
    return lambda config: config.update(fields)


def _swap_halves(w: dict[str, Tensor]) -> None:
    for part in "qkv":
        name = f"{AT}self_attn.{part}_proj.weight"
        w[name] = w[name].roll(w[name].shape[1] // 2, 1).contiguous()


def _swap_gate(w: dict[str, Tensor]) -> None:
    gate, up = f"{AT}mlp.gate_proj.weight", f"{AT}mlp.up_proj.weight"
    w[gate], w[up] = w[up], w[gate]


def _states(change: Callable[[Tensor], Tensor]) -> Callable[[Sample], Sample]:
    def edit(sample: Sample) -> Sample:
        return replace(sample, slots=tuple(replace(s, tensor=Edited(s.tensor, change)) for s in sample.slots))

    return edit


def _early(sample: Sample) -> Sample:
    """Row t holds the states of t + 1; the last token goes."""
    length = sample.length - 1
    slots = tuple(replace(s, tensor=Moved(s.tensor, 1, length)) for s in sample.slots)
    mask = None if sample.mask is None else sample.mask[:length]
    return replace(sample, ids=sample.ids[:length], mask=mask, slots=slots)


LAYER = tuple(
    f"{AT}{n}.weight"
    for n in (
        *(f"self_attn.{p}_proj" for p in "qkvo"), "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
    )
)  # fmt: skip
EMBED = "embed_tokens.weight"
FAULTS = (
    Fault("correct", ()),
    Fault("123", ("K01",), config=_ids(3, 16, 28)),
    Fault("102", ("K01",), config=_ids(3, 0, 16)),
    Fault("210", ("K01",), config=_ids(16, 3, 0)),
    Fault("312", ("K01",), config=_ids(28, 3, 16)),
    Fault("021", ("K01",), config=_ids(0, 16, 3)),
    Fault("norm_before_residual_flipped", ("K05",), config=_top(norm_before_residual=False)),
    Fault(
        "norm_before_residual_flipped_and_order_123",
        ("K05", "K01"),
        config=_top(eagle_aux_hidden_state_layer_ids=[3, 16, 28], norm_before_residual=False),
    ),
    Fault("rope_theta_10000_instead_of_100000", ("K06",), config=_rope(rope_theta=10000.0)),
    Fault("rope_theta_500000", ("K06",), config=_rope(rope_theta=500000.0)),
    # inverse frequencies of 128 dimensions cut to 64 are those of the square root of the base
    Fault("rope_inv_freq_for_dim_128_truncated_to_64", ("K06",), config=_rope(rope_theta=100000.0**0.5)),
    Fault("all_positions_zero", ("K06",), config=_rope(rope_type="linear", factor=1e9)),
    Fault("hidden_shifted_wrong (x[j+1] with g[j+1])", ("K08",), sample=_early),
    Fault("d2t_used_as_absolute", ("K03",), weights=lambda w: w.update(d2t=torch.arange(len(w["d2t"])) + w["d2t"])),
    Fault("d2t_ignored (draft id taken as target id)", ("K03",), weights=_set("d2t", torch.zeros_like)),
    Fault("d2t_off_by_one_row", ("K03",), weights=_set("d2t", lambda t: t.roll(1)), exact=False),
    Fault("layer_random (SGLang silently skips layers.0.* names)", ("K02",), weights=_random(*LAYER), exact=False),
    Fault("fc_random", ("K02",), weights=_random("fc.weight"), exact=False),
    Fault("hidden_norm_weight_ones", ("K02", ""), weights=_set(f"{AT}hidden_norm.weight", torch.ones_like)),
    Fault("input_layernorm_weight_ones", ("K02", ""), weights=_set(f"{AT}input_layernorm.weight", torch.ones_like)),
    Fault("final_norm_weight_ones", ("K02", ""), weights=_set("norm.weight", torch.ones_like)),
    Fault("swap_embed_and_hidden_halves_in_qkv", ("K02",), weights=_swap_halves),
    Fault("gate_up_swapped", ("",), weights=_swap_gate),
    Fault("embed_tokens_random", ("K02",), weights=_random(EMBED), exact=False),
    Fault("embed_tokens_rows_shifted_by_1", ("K02",), weights=_set(EMBED, lambda t: t.roll(1, 0)), exact=False),
    Fault("states_x2_scale", ("",), sample=_states(lambda t: t * 2)),
    Fault("hidden_states_all_zero", ("K01",), sample=_states(torch.zeros_like)),
)


def main(fixtures: Path, wanted: list[str]) -> int:
    golden = json.loads((fixtures / "golden/faults.json").read_text())
    golden |= golden.pop("orders_all_24_permutations")
    weights = load_file(fixtures / "output_speculators/7/model.safetensors")
    config = json.loads((fixtures / "output_speculators/7/config.json").read_text())
    target = load_file(fixtures / "target/model.safetensors")
    embed = next(t for n, t in target.items() if n.endswith("embed_tokens.weight"))
    failures = 0
    print(f"{'fault':54} {'recorded':>13} {'here':>13} {'wanted':8} {'first finding':46} s")
    for fault in FAULTS:
        if wanted and not any(word in fault.name for word in wanted):
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            session = _written(Path(folder), fault, dict(weights), json.loads(json.dumps(config)), embed, fixtures)
            accuracy, report = _accuracy(session, fault, fixtures), _checked(session, fault, fixtures)
        said = golden[fault.golden or fault.name]
        failures += _show(fault, said, accuracy, report, time.monotonic() - begun, bool(wanted))
    return 1 if failures else 0


def _show(fault: Fault, said: Any, accuracy: tuple[float, ...], report: Report, took: float, long: bool) -> int:
    telling = [f for f in report.findings if f.severity in ("error", "warning") and f.check != "it-generalises"]
    first = telling[0] if telling else None
    named = (first.kind if first is not None else "") in (fault.kinds or ("",))
    close = not fault.exact or all(
        abs(a - said[k]) <= TOLERANCE for a, k in zip(accuracy, ("train", "val"), strict=True)
    )
    shown = f"{first.kind} {first.severity} {first.check}" if first is not None else f"- [{report.verdict_kind}]"
    mark = ("" if named else " NOT NAMED") + ("" if close else " OTHER ACCURACY")
    recorded = f"{said['train']:.3f} {said['val']:.3f}"
    here = f"{accuracy[0]:.3f} {accuracy[1]:.3f}"
    kinds = "/".join(kind or "-" for kind in fault.kinds) or "-"
    print(f"{fault.name[:54]:54} {recorded:>13} {here:>13} {kinds:8} {shown[:60]:60} {took:.0f}{mark}", flush=True)
    if long:
        for finding in report.findings:
            if finding.severity != "ok":
                print("     ", finding.kind, finding.severity, finding.check, finding.title[:220])
        print("     ", report.verdict_kind, report.verdict[:200], [c[1][-300:] for c in report.crashes])
    return int(not named or not close)


def _written(
    folder: Path, fault: Fault, weights: dict[str, Tensor], config: Config, embed: Tensor, fixtures: Path
) -> Session:
    weights.setdefault(EMBED, embed)
    fault.weights(weights)
    fault.config(config)
    (folder / "draft").mkdir()
    (folder / "draft/config.json").write_text(json.dumps(config))
    save_file(weights, folder / "draft/model.safetensors")
    options = Options(
        folder / "draft",
        samples=tuple(fixtures / f"samples/v1/data_{i}.pt" for i in (*TRAIN, *HELD_OUT)),
        target=fixtures / "target",
        slots=SLOTS,
        device="cpu",
        dtype="float32",
        mask="predicted",
    )
    session = Session(options)
    session.choose_checkpoint(session.pick(session.find()))
    return session


def _samples(session: Session, fault: Fault, fixtures: Path, names: tuple[int, ...]) -> Iterator[Sample]:
    for i in names:
        yield fault.sample(session.open_sample(fixtures / f"samples/v1/data_{i}.pt"))


def _accuracy(session: Session, fault: Fault, fixtures: Path) -> tuple[float, ...]:
    """Step 0 as the config configures it, with the map as servers read it: train, held out."""
    from drafter.checks.options import configured

    case, drafter = _case(session, fault, fixtures), session.load()
    ordering = fault.ordering or configured(case, case.samples[0].slots)[0]
    assert ordering is not None
    wiring = Wiring.trained(session.checkpoint.run_config)
    try:
        drafter.vocab(wiring.changed(d2t="offset"))
        wiring = wiring.changed(d2t="offset")
    except DrafterError:
        return 0.0, 0.0  # ids beyond the vocabulary: a server's tokens are none
    found = []
    for names in (TRAIN, HELD_OUT):
        hits = total = 0
        for sample in _samples(session, fault, fixtures, names):
            run = SampleRun(drafter, sample)
            truths = truths_of(run, None, wiring)
            rows = rows_needed(truths.mask, "predicted", 1)
            one = count(draft_ids(run, ordering, wiring, 1, rows), truths, "predicted").accuracy
            hits, total = hits + one.hits, total + one.total
        found.append(hits / total)
    return tuple(found)


def _case(session: Session, fault: Fault, fixtures: Path) -> Case:
    target, why = session.target
    samples = list(_samples(session, fault, fixtures, (*TRAIN, *HELD_OUT)))
    return Case(
        session.last_found[0], session.checkpoint, target, None, samples, target_why=why, family=session.family(),
        target_layers=session.target_layers, depth=3, mask="predicted", load=session.load,
        group_of=lambda path: "train" if path.stem in {f"data_{i}" for i in TRAIN} else "held out",
    )  # fmt: skip


def _checked(session: Session, fault: Fault, fixtures: Path) -> Report:
    return run_checks(_case(session, fault, fixtures))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
