"""Recorded samples: ids and padding, text of the target's own, dtypes and scales, and how far along the text it holds.

What the states themselves show is k08_samples' matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from drafter.checks.case import Case
from drafter.checks.explain import diagnosis
from drafter.checks.finding import CKPT, ERROR, OK, SMP, WARNING, Finding
from drafter.checks.k08_samples import about_samples
from drafter.checks.measure import OFF_POLICY_ROWS, Measures, measures
from drafter.checks.registry import FORWARD, SAMPLE, check
from drafter.checks.signature import above
from drafter.sample.probes.contradictions import BAD
from drafter.sample.sample import Sample
from drafter.scoring.tallies import Count, bucket

HUGE, RATIO = 1e4, 500.0  # a mean norm, and a ratio of two of them, that trained drafters are not known to stand
PAD_RUN = 8  # equal tokens at the end from which they are padding
BUCKET = 32  # rows on each side from which accuracies along the text are compared


@check("token-ids-are-in-the-vocabulary", "K08", (CKPT, SMP), ("Tencent/AngelSlim#16",), SAMPLE)
def tokens(case: Case) -> Iterator[Finding]:
    """Ids that have no row in the embedding."""
    m, found = measures(case), {}
    for sample in m.samples:
        outside = m.outside(sample)
        if bool(outside.any()):
            first = int(outside.nonzero()[0])
            found[sample.path.name] = (
                f"{int(outside.sum())} ids, the first is {int(sample.ids[first])} at token {first}"
            )
    fix = "the sample was made with another tokenizer, or marks images by placeholders: record it with the target's own"
    yield from about_samples(
        "token-ids-are-in-the-vocabulary", "K08", ERROR, f"token ids outside of 0..{m.rows_known - 1}", found, m, fix,
        ("Tencent/AngelSlim#16", "SafeAILab/EAGLE#258"),
    )  # fmt: skip


@check("padding-does-not-count", "K08", (CKPT, SMP), ("sgl-project/SpecForge#466",), SAMPLE)
def padding(case: Case) -> Iterator[Finding]:
    """A run of one token at the end that is supervised."""
    m, found = measures(case), {}
    for sample in m.samples:
        ids = sample.ids
        other = (ids != ids[-1]).nonzero().flatten()
        start = int(other[-1]) + 1 if other.numel() else 0
        run = sample.length - start
        if run >= PAD_RUN and bool(sample.supervised[start + 1 :].all()):
            found[sample.path.name] = f"token {int(ids[-1])} {run} times from token {start} on, supervised"
    fix = "set loss_mask to 0 on padding; a drafter learns to predict it, and accuracy counts it"
    yield from about_samples(
        "padding-does-not-count",
        "K08",
        WARNING,
        "padding that is supervised",
        found,
        m,
        fix,
        ("sgl-project/SpecForge#466",),
    )


@check("one-dtype-for-all-states", "K11", (CKPT, SMP), ("vllm-project/speculators#527",), SAMPLE)
def dtypes(case: Case) -> Iterator[Finding]:
    """A mix of dtypes among the samples, or the slots of one."""
    found: dict[str, str] = {}
    for sample in measures(case).samples:
        for slot in sample.slots:
            found.setdefault(slot.tensor.dtype, f"{sample.path.name} slot {slot.index}")
    if len(found) > 1:
        yield Finding(
            "one-dtype-for-all-states",
            "K11",
            WARNING,
            f"recorded states of {len(found)} dtypes: {', '.join(sorted(found))}",
            {f"first of {dtype}": where for dtype, where in found.items()},
            "record all in the target's dtype; a placeholder of another one breaks trainers that expect it",
            ("vllm-project/speculators#527", "vllm-project/speculators#743"),
            "sample",
        )


@check("slots-are-of-one-scale", "K05", (CKPT, SMP), ("vllm-project/speculators#337",), SAMPLE)
def scales(case: Case) -> Iterator[Finding]:
    """Mean norms by slot, and whether one is out of all proportion."""
    m = measures(case)
    for sample in m.samples[:1]:
        norms = _norms(m, sample)
        if not norms:
            return
        severe = out_of_scale(m, sample)
        yield Finding(
            "slots-are-of-one-scale",
            "K05",
            WARNING if severe else OK,
            severe or f"median norms of the slots from {min(norms.values()):.3g} to {max(norms.values()):.3g}",
            {f"slot {i}": round(norm, 3) for i, norm in norms.items()},
            "train with fc_norm (one RMSNorm for each state) or norm_before_fc" if severe else "",
            ("vllm-project/speculators#337",),
            "sample",
        )


def _norms(m: Measures, sample: Sample) -> dict[int, float]:
    return {p.index: p.median_norm for p in m.probes(sample) if p.median_norm}


def out_of_scale(m: Measures, sample: Sample) -> str:
    """The slot whose states are out of all proportion to the others', in words; empty where none is."""
    norms = _norms(m, sample)
    if not norms:
        return ""
    least, (top, largest) = min(norms.values()), max(norms.items(), key=lambda pair: pair[1])
    if largest <= HUGE and largest <= RATIO * least:
        return ""
    return f"the median norms of the slots reach from {least:.3g} to {largest:.3g} (slot {top})"


@check("text-is-what-the-target-says", "K09", (CKPT, SMP), ("SafeAILab/EAGLE#79",), SAMPLE)
def on_policy(case: Case) -> Iterator[Finding]:
    """The share of supervised tokens that are the target's own greedy choice, where its last state is recorded."""
    m = measures(case)
    told, off = m.on_policy(), m.off_policy
    hits, total = told.hits, told.total
    if total < OFF_POLICY_ROWS or (off and any(c.severity == BAD for s in m.samples for c in m.contradictions(s))):
        return  # of states that are not what they are said to be the target's choice cannot be read
    yield Finding(
        "text-is-what-the-target-says",
        "K09",
        WARNING if off else OK,
        f"{hits} of {total} supervised tokens ({hits / total:.0%}) are the target's own choice by its last state",
        {"recorded token = argmax of the target": f"{hits} of {total}"},
        "let the target write the answers (or use its chat template and system prompt), and record those; if it did "
        "write them, the recorded last state is not its own"
        if off
        else "",
        ("SafeAILab/EAGLE#79", "SafeAILab/EAGLE#258"),
        "sample",
    )


@check("positions-are-in-the-table", "K06", (CKPT, SMP), ("vllm-project/vllm#48894",), SAMPLE)
def positions(case: Case) -> Iterator[Finding]:
    """The longest sample against max_position_embeddings: a table of positions ends there in some engines."""
    m, most = measures(case), case.checkpoint.run_config.max_positions
    if most is None:
        return
    found = {s.path.name: f"{s.length} tokens" for s in case.samples if s.length + case.depth > most}
    fix = f"config.json: max_position_embeddings larger than the served context, not {most}, if training went that far"
    yield from about_samples(
        "positions-are-in-the-table", "K06", WARNING, f"samples longer than {most} positions", found, m, fix,
        ("vllm-project/vllm#48894", "vllm-project/vllm#23072"), 40,
    )  # fmt: skip


@check("accuracy-holds-along-the-text", "K06", (CKPT, SMP), ("vllm-project/speculators#684",), FORWARD)
def drift(case: Case) -> Iterator[Finding]:
    """Step-0 accuracy by position, buckets that double; all samples pooled."""
    d = diagnosis(case)
    places = d.end.counts.positions
    if d.found or len(places) < 2:
        return
    for i in range(len(places) - 1, 0, -1):
        late, early = sum(places[i:], Count()), sum(places[:i], Count())
        if late.total >= BUCKET and early.total >= BUCKET:
            falls = above(early, late, 0.15)
            spans = {f"rows {bucket(j)[0]}-{bucket(j)[1]}": f"{c.hits} of {c.total}" for j, c in enumerate(places)}
            yield Finding(
                "accuracy-holds-along-the-text",
                "K06",
                WARNING if falls else OK,
                f"step 0: {early.hits} of {early.total} before row {bucket(i)[0]}, {late.hits} of {late.total} after",
                spans,
                "train on longer text, or with the target's rope_scaling; serve within the trained length"
                if falls
                else "",
                ("vllm-project/speculators#684", "sgl-project/SpecForge#405"),
                "sample",
            )
            if falls:
                return
            break
