"""Recorded samples: whether numbers are numbers, states were recorded, and belong to the tokens beside them.

The first checks look at the samples alone, the last one at what the drafter makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drafter.checks.case import Case
from drafter.checks.explain import mispaired
from drafter.checks.finding import BROKEN_SAMPLE, CKPT, ERROR, NOTE, SMP, WARNING, Finding
from drafter.checks.measure import Measures, measures
from drafter.checks.pairing import Pairing
from drafter.checks.registry import FORWARD, SAMPLE, check
from drafter.sample.probes.probe import SlotProbe
from drafter.sample.sample import Sample

NAMED = 4  # samples that a title or the evidence names
PAIRING = ("vllm-project/speculators#279", "sgl-project/SpecForge#473", "sgl-project/sglang#26163")


def _of(m: Measures, said: Callable[[Sample, SlotProbe], str]) -> dict[str, str]:
    """sample name -> what `said` says of its slots, those of which it says something."""
    found: dict[str, str] = {}
    for sample in m.samples:
        words = [word for probe in m.probes(sample) if (word := said(sample, probe))]
        if words:
            found[sample.path.name] = "; ".join(words)
    return found


def about_samples(
    id: str, kind: str, severity: str, what: str, found: dict[str, str], m: Measures, fix: str,
    reports: tuple[str, ...], weight: int = 80,
) -> Iterator[Finding]:  # fmt: skip
    """A finding about the samples that `found` names with what is said of each; none where it names none."""
    if not found:
        return
    names = list(found)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    said: dict[str, list[str]] = {}  # each sentence once
    for sample, words in found.items():
        said.setdefault(words, []).append(sample)
    shown = {", ".join(samples[:NAMED]): words for words, samples in list(said.items())[:NAMED]}
    rest = len(m.samples) - len(names)
    title = f"{what}: {names[0]}{more} of {len(m.samples)} samples" + (f", not the other {rest}" if rest else "")
    yield Finding(id, kind, severity, title, {"samples": len(found), **shown}, fix, reports, "sample", weight,
                  BROKEN_SAMPLE if kind in ("K01", "K11") else "")  # fmt: skip


@check("states-are-numbers", "K08", (CKPT, SMP), ("sgl-project/SpecForge#104",), SAMPLE)
def finite(case: Case) -> Iterator[Finding]:
    """NaN and Inf by sample, slot and first row."""

    def said(sample: Sample, probe: SlotProbe) -> str:
        if not probe.bad_rows:
            return ""
        return (
            f"slot {probe.index}: {probe.nan_rows} rows with NaN, {probe.inf_rows} with Inf, the first is row "
            f"{probe.first_bad_row}"
        )

    m = measures(case)
    fix = "record these samples again; an overflow in the target's run (float16) is the usual cause. They are left out"
    yield from about_samples(
        "states-are-numbers", "K08", ERROR, "recorded states that are not finite", _of(m, said), m, fix,
        ("sgl-project/SpecForge#104", "vllm-project/speculators#994"),
    )  # fmt: skip


@check("slots-were-recorded", "K01", (CKPT, SMP), ("vllm-project/vllm#36527",), SAMPLE)
def recorded(case: Case) -> Iterator[Finding]:
    """Slots of zeros, and two slots with the same numbers: the target did not collect its states."""

    def said(sample: Sample, probe: SlotProbe) -> str:
        if probe.all_zero:
            return f"slot {probe.index} is all zeros"
        return f"slot {probe.index} has the same numbers as slot {probe.twin}" if probe.twin is not None else ""

    m = measures(case)
    fix = "check the recording: the target says that it gives aux states but did not collect these; record again"
    yield from about_samples(
        "slots-were-recorded", "K01", ERROR, "slots that hold no states of their own", _of(m, said), m, fix,
        ("vllm-project/vllm#36527",),
    )  # fmt: skip


@check("states-reach-the-end", "K08", (CKPT, SMP), ("sgl-project/sglang#26163",), SAMPLE)
def whole(case: Case) -> Iterator[Finding]:
    """States that are zero from some row to the end: a capture that was cut."""

    def said(sample: Sample, probe: SlotProbe) -> str:
        if probe.zero_tail is None or probe.all_zero:
            return ""
        return f"slot {probe.index} is zero from row {probe.zero_tail} to the end ({probe.rows - probe.zero_tail} rows)"

    m = measures(case)
    fix = "record again; if rows were padded, cut ids and mask to the rows that were recorded"
    yield from about_samples(
        "states-reach-the-end", "K08", ERROR, "states that end before their tokens", _of(m, said), m, fix,
        ("sgl-project/sglang#26163",),
    )  # fmt: skip


@check("slot-states-stand-at-their-tokens", "K08", (CKPT, SMP), PAIRING, SAMPLE)
def placed(case: Case) -> Iterator[Finding]:
    """A slot of embeddings that are those of other tokens, and a last state that names another place's token."""
    m, found = measures(case), {}
    for sample in m.samples:
        shifted = [f"slot {p.index} by {p.embed_shift:+d} row" for p in m.probes(sample) if p.embed_shift]
        words = [c.text for c in m.contradictions(sample) if "another sample" in c.text or "one row too" in c.text]
        if shifted or words:
            found[sample.path.name] = "; ".join(
                [*(f"{s} (embeddings of the neighbouring token)" for s in shifted), *words]
            )
    fix = "pair row t of the states with token x[t] (ids and states of one request); record again"
    yield from about_samples(
        "slot-states-stand-at-their-tokens", "K08", ERROR, "states that stand beside other tokens", found, m,
        fix, PAIRING,
    )  # fmt: skip


@check("target-is-the-recorded-one", "K11", (CKPT, SMP), ("vllm-project/vllm-ascend#5974",), SAMPLE)
def rotated(case: Case) -> Iterator[Finding]:
    """A slot said to be the embedding, whose rows depend on the token alone and yet are no rows of the table."""
    m, found = measures(case), foreign_embeddings(measures(case))
    if not found:
        return
    if m.embedding("target") is None:  # then it is the checkpoint's own table that is another one
        yield from about_samples(
            "target-is-the-recorded-one", "K02", ERROR, "the checkpoint's embedding is not the recorded one", found,
            m, "leave embed_tokens.weight out of the checkpoint, or replace it by the target's", PAIRING[:1], 85,
        )  # fmt: skip
        return
    fix = (
        "the target's residual stream is rotated (QuaRot, SpinQuant) where the rows are as long as the embedding's: "
        "fold the rotation into fc and the embedding; else record with the target that the drafter was trained on"
    )
    yield from about_samples(
        "target-is-the-recorded-one", "K11", ERROR, "states of a rotated or of another target", found, m, fix,
        ("vllm-project/vllm-ascend#5974", "sgl-project/sglang#30524"), 85,
    )  # fmt: skip


def foreign_embeddings(m: Measures) -> dict[str, str]:
    """sample name -> the slot said to be the embedding that is one of another table, with both lengths."""
    table, found = m.embedding("target") or m.embedding("own"), {}
    for sample in m.samples:
        for slot, probe in zip(sample.slots, m.probes(sample), strict=True):
            said = slot.claim is not None and slot.claim.depth == 0
            equal = probe.embed.table.get(0) if probe.embed.table else None
            if not said or table is None or equal is None or not probe.embed.context_free or equal.ratio > 0.01:
                continue
            inside = sample.ids[1:][~m.outside(sample)[1:]][:256]
            own = float(table(inside.tolist()).float().norm(dim=-1).median())
            found[sample.path.name] = (
                f"slot {slot.index}: equal tokens have equal rows ({probe.embed.tokens[0]} pairs), none is their "
                f"embedding; median norm {probe.median_norm or 0:.3f}, the embedding's {own:.3f}"
            )
    return found


@check("slots-are-what-they-are-said-to-be", "K08", (CKPT, SMP), ("vllm-project/speculators#279",), SAMPLE)
def claims(case: Case) -> Iterator[Finding]:
    """What else of a slot contradicts itself: said to be the embedding, before or after the norm, the last."""
    m = measures(case)
    bad: dict[str, str] = {}
    weak: dict[str, str] = {}
    foreign = foreign_embeddings(m)
    told = ("not finite", "all zeros", "same numbers", "to the end", "shifted", "another sample", "one row too")
    for sample in m.samples:
        for severity, into in (("bad", bad), ("warn", weak)):
            rest = [c.text for c in m.contradictions(sample) if c.severity == severity]
            rest = [text for text in rest if not any(word in text for word in told)]
            if rest and sample.path.name not in foreign:  # all of it follows from the other target
                into[sample.path.name] = "; ".join(rest)
    id, fix = (
        "slots-are-what-they-are-said-to-be",
        "name the slots as they were recorded, --slots, or record the layers meant",
    )
    yield from about_samples(id, "K08", ERROR, "slots that are not what they are said to be", bad, m, fix, PAIRING, 45)
    yield from about_samples(id, "K08", NOTE, "slots of which something is odd", weak, m, fix, PAIRING)


@check("samples-fit-the-drafter", "K07", (CKPT, SMP), ("sgl-project/sglang#10059", "SafeAILab/EAGLE#294"), SAMPLE)
def fitting(case: Case) -> Iterator[Finding]:
    """Widths and numbers of slots that `fc` cannot take."""
    m = measures(case)
    if not m.misfits:
        return
    inputs, width = case.checkpoint.fc_inputs, case.checkpoint.run_config.target_hidden_size
    shown = {path.name: why for path, why in m.misfits[:NAMED]}
    yield Finding(
        "samples-fit-the-drafter",
        "K07",
        ERROR if not m.samples else WARNING,
        f"{len(m.misfits)} of {len(case.samples)} samples do not fit: {next(iter(shown.values()))}",
        {**shown, "fc takes": f"{inputs} states of {width}"},
        f"record {inputs} states of the target, each {width} wide, for every token",
        ("sgl-project/sglang#10059", "SafeAILab/EAGLE#294", "sgl-project/SpecForge#297"),
        "sample",
        75,
    )


@check("states-belong-to-their-tokens", "K08", (CKPT, SMP), PAIRING, FORWARD)
def belonging(case: Case) -> Iterator[Finding]:
    """Whether the drafter predicts more with the states a row earlier or later, or with another sample's."""
    found, m = mispaired(case), measures(case)
    if not found or foreign_embeddings(m):
        return  # of another target's states nothing says whose tokens they are
    one = max(found, key=lambda p: p.after.accuracy - p.before.accuracy)
    yield Finding(
        "states-belong-to-their-tokens",
        "K08",
        ERROR,
        f"the states of {len(found)} of {len(m.sane)} samples belong to other tokens: {_better(one)}",
        {p.sample.path.name: _better(p) for p in found[:NAMED]}
        | {"p": f"at most {max(p.p for p in found):.1e} (exact paired test, corrected)"},
        "pair row t of the states with token x[t] of the same text; record again",
        PAIRING,
        "sample",
        78,
    )


def _better(one: Pairing) -> str:
    numbers = f"{one.before.accuracy:.3f} -> {one.after.accuracy:.3f} of {one.before.rows} rows"
    if one.other is not None:
        return f"{one.sample.path.name} predicts better with the states of {one.other.path.name}: {numbers}"
    word = "later" if one.shift > 0 else "earlier"
    return f"{one.sample.path.name} predicts better with the states one row {word}: {numbers}"
