"""What several checks measure: which samples are sound, and what the drafter scores on them under any option.

Everything is computed once for a case, when first asked for. Decides nothing: `options` lists what may be tried,
`explain` compares. Knows no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import torch
from torch import Tensor

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checks.case import Case
from drafter.drafting.chains import draft_ids
from drafter.drafting.context import SampleRun
from drafter.drafting.verifier import last_norm, verifier_choice, why_not
from drafter.errors import DrafterError, SampleError
from drafter.model.device import Placement, choose
from drafter.model.drafter import Eagle3Drafter
from drafter.model.sources import find_embedding
from drafter.model.weights import build_drafter
from drafter.sample.probes.contradictions import Contradiction, contradictions
from drafter.sample.probes.last_state import Lens, lens_of
from drafter.sample.probes.probe import SlotProbe, probe_slots
from drafter.sample.sample import Sample, States
from drafter.scoring.counts import OrderingCounts, Truths, count, length_rows, next_token_hits, row_mask, rows_needed
from drafter.scoring.sweep import truths_of
from drafter.scoring.tallies import Count
from drafter.wiring import Ordering, Wiring

MAX_TOKENS = 514  # of each sample: more tell little more about a fault, and cost time
MAX_SAMPLES = 8  # that are drafted from; probes see all
LARGE = 1_000_000_000  # bytes of weights from which a row costs so much that fewer have to do
FEWER_TOKENS, FEWER_SAMPLES = 130, 4
COVERED = 0.8  # share of answer tokens below which the draft vocabulary itself costs much
OFF_POLICY, OFF_POLICY_ROWS = 0.6, 32  # share of answer tokens that are the target's choice; rows that tell it
Variant = tuple[tuple[str, bool | float], ...]  # fields of a checkpoint's config with other values


@dataclass(frozen=True)
class Option:
    """One way of running the drafter, all of it said: `label` names what it changes, `kind` whose fault that would be.

    `variant` are fields of the checkpoint's config that are changed for it; `map_name` a reading of the vocab map that
    is not the one in force; `switch` the switch of the wiring that it changes, where it is one.
    """

    ordering: Ordering
    wiring: Wiring
    label: str = ""
    kind: str = ""
    variant: Variant = ()
    map_name: str = ""
    switch: str = ""

    def same_run(self, other: Option) -> bool:
        return (self.ordering, self.wiring, self.variant) == (other.ordering, other.wiring, other.variant)


@dataclass(frozen=True)
class Measured:
    """Counts of one option over samples, and `accepted` [n]: the leading right drafts of each row."""

    counts: OrderingCounts
    accepted: Tensor = field(repr=False)

    @property
    def accuracy(self) -> float:
        return self.counts.accuracy.ratio or 0.0

    @property
    def rows(self) -> int:
        return self.counts.accuracy.total

    @property
    def length(self) -> float | None:
        return self.counts.lengths.mean

    @property
    def steps(self) -> list[float | None]:
        """Teacher-forced accuracy at each draft step."""
        return [step["next_token"].marginal.ratio for step in self.counts.steps]

    @property
    def joint(self) -> list[float | None]:
        """Share of chains that are right up to each step: what a server accepts."""
        return [step["next_token"].joint.ratio for step in self.counts.steps]

    def said(self) -> dict[str, object]:
        """As evidence: counts first."""
        counts = self.counts
        return {
            "step 0": f"{counts.accuracy.hits} of {counts.accuracy.total}",
            "accuracy by draft step": [None if a is None else round(a, 3) for a in self.steps],
            "accept length": None if self.length is None else round(self.length, 2),
        }


@dataclass(frozen=True)
class Moved:
    """Recorded rows of `states` from `first` on, `length` of them: what a sample would be whose rows are shifted."""

    states: States
    first: int
    length: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length, *self.states.shape[1:])

    @property
    def dtype(self) -> str:
        return self.states.dtype

    def rows(self, start: int, stop: int) -> Tensor:
        return self.states.rows(self.first + start, self.first + stop)

    def gather(self, indices: Sequence[int]) -> Tensor:
        return self.states.gather([self.first + index for index in indices])

    def head(self, rows: int) -> Moved:
        return replace(self, length=min(rows, self.length))


def moved(sample: Sample, shift: int, states: Sample | None = None) -> Sample:
    """Tokens 1..T-2 of `sample`, each beside the state `shift` rows further on, of `states` if given."""
    source = states if states is not None else sample
    length = min(sample.length, source.length) - 2
    slots = tuple(replace(s, tensor=Moved(s.tensor, 1 + shift, length)) for s in source.slots)
    mask = None if sample.mask is None else sample.mask[1 : 1 + length]
    return replace(sample, ids=sample.ids[1 : 1 + length], mask=mask, slots=slots, verifier_draft=None)


class Measures:
    """Of one case. Raises DrafterError where the drafter cannot be loaded or no sample fits it."""

    def __init__(self, case: Case) -> None:
        self.case, self.poll = case, case.poll
        self.checkpoint: Checkpoint = case.checkpoint
        self.misfits: list[tuple[Path, str]] = []
        self.samples = self._fitting()
        self.rows_known = self.checkpoint.run_config.vocab_size
        self._drafters: dict[Variant, Eagle3Drafter] = {}
        self._runs: dict[tuple[Path, Variant], SampleRun] = {}
        self._ids: dict[tuple[Path, Ordering, Wiring, Variant, int], Tensor] = {}

    # ------------------------------------------------------------------ samples

    def _fitting(self) -> list[Sample]:
        """The samples that the drafter can take, cut where they are long; the others are kept with their reason."""
        width, inputs = self.checkpoint.run_config.target_hidden_size, self.checkpoint.fc_inputs
        found: list[Sample] = []
        most = FEWER_TOKENS if self.checkpoint.weight_bytes > LARGE else MAX_TOKENS
        for sample in self.case.samples:
            why = _misfit(sample, width, inputs, found[0] if found else None)
            if why:
                self.misfits.append((sample.path, why))
            else:
                found.append(sample.cut(most) if sample.length > most else sample)
        return found

    def probes(self, sample: Sample) -> list[SlotProbe]:
        """What the data of `sample` shows."""
        return self.case.once(f"probes {sample.path}", lambda: self._probes(sample))

    def _probes(self, sample: Sample) -> list[SlotProbe]:
        table = self.embedding("target") or self.embedding("own")
        return probe_slots(sample, table, self._lens(sample.width), self.poll)

    def embedding(self, which: str) -> Callable[[list[int]], Tensor] | None:
        """Rows of the `target`'s table, or of the checkpoint's `own`; None where there is none."""
        try:
            table = find_embedding(self.checkpoint, self.case.target, which)
        except DrafterError:
            return None
        return lambda ids: table.rows(torch.tensor(ids))

    def _lens(self, width: int) -> Lens:
        own, ids, target = None, None, self.case.target
        if target is None or target.head is None:
            try:
                own, ids = self.checkpoint.tensors.get("lm_head.weight"), self.case.vocab().draft_ids
            except DrafterError:
                own = None
        return lens_of(target, width, own, ids)

    def contradictions(self, sample: Sample) -> list[Contradiction]:
        return contradictions(sample, self.probes(sample))

    def unsound(self, sample: Sample) -> str:
        """Why nothing measured on `sample` would count; empty where it is sound."""
        return self.case.once(f"unsound {sample.path}", lambda: self._unsound(sample))

    def _unsound(self, sample: Sample) -> str:
        if bool(self.outside(sample).any()):
            return "token ids outside of the vocabulary"
        if sample.mask is not None and self.case.mask != "all" and not bool(sample.mask[1:].any()):
            return "no supervised token"
        for probe in self.probes(sample):
            if probe.bad_rows or probe.all_zero or probe.zero_tail is not None or probe.twin is not None:
                return f"slot {probe.index} is not sound"
            if probe.embed_shift:
                return f"slot {probe.index} is shifted"
        return next((c.text for c in self.contradictions(sample) if c.severity == "bad" and _spoils(c)), "")

    def _sane(self, most: int) -> list[Sample]:
        """The first `most`, but not all of one group where others have some: first seen, then unseen, in turn."""
        good = [sample for sample in self.samples if not self.unsound(sample)]
        groups: dict[str, list[Sample]] = {}
        for sample in good:
            groups.setdefault(self.case.group_of(sample.path), []).append(sample)
        turns = [sample for turn in zip_longest(*groups.values()) for sample in turn if sample is not None]
        chosen = {id(sample) for sample in turns[:most]}
        return [sample for sample in good if id(sample) in chosen]

    def outside(self, sample: Sample) -> Tensor:
        """[T] bool: the ids without a row in the embedding; the first is never embedded and may be any."""
        own, target = self.checkpoint.tensors.get("embed_tokens.weight"), self.case.target
        sizes = [t.shape[0] for t in (own, target.embed if target is not None else None) if t is not None]
        self.rows_known = max(sizes, default=self.checkpoint.run_config.vocab_size)
        found = (sample.ids < 0) | (sample.ids >= self.rows_known)
        found[:1] = False
        return found

    def coverage(self) -> Count:
        """How many supervised tokens can be drafted at all. Raises CheckpointError without a map."""
        return self.case.once("coverage", self._coverage)

    def _coverage(self) -> Count:
        drafts, found = self.case.vocab().draft_ids, Count()
        for sample in self.samples:
            ids = sample.ids[sample.supervised]
            inside = (ids >= 0) & (ids < len(drafts))
            found += Count(int((drafts[ids[inside]] >= 0).sum()), ids.numel())
        return found

    @property
    def uncovered(self) -> bool:
        told = self.coverage()
        return told.total > 0 and told.hits < COVERED * told.total

    def on_policy(self) -> Count:
        """How many supervised tokens are the target's own choice, where its last state is recorded."""
        return self.case.once("on policy", self._on_policy)

    def _on_policy(self) -> Count:
        found, target = Count(), self.case.target
        for sample in self.samples:
            norm = last_norm(sample, self.probes(sample))[0]
            if target is None or self.unsound(sample) or why_not(sample, target, norm) is not None:
                continue
            choice = verifier_choice(sample, target, self.case.vocab(), self.placement, self.poll, norm)
            if choice.full is not None:
                counted = sample.supervised[1:]
                found += Count(int((choice.full[:-1] == sample.ids[1:])[counted].sum()), int(counted.sum()))
        return found

    @property
    def off_policy(self) -> bool:
        """Whether the recorded text is not the target's: then nothing that is right of it is the drafter's merit."""
        told = self.on_policy()
        return told.total >= OFF_POLICY_ROWS and told.hits < OFF_POLICY * told.total

    @property
    def sane(self) -> list[Sample]:
        """Those of which no number contradicts another. Raises SampleError where there is none."""
        most = FEWER_SAMPLES if self.checkpoint.weight_bytes > LARGE else MAX_SAMPLES
        found = self.case.once("sane", lambda: self._sane(most))
        if not found:
            reasons = [f"{path.name}: {why}" for path, why in self.misfits]
            reasons += [f"{s.path.name}: {self.unsound(s)}" for s in self.samples]
            expected = "one whose states belong to its tokens"
            raise SampleError(
                "no sound sample to draft from", expected=expected, where=next(iter(reasons), "none given")
            )
        return found

    # ------------------------------------------------------------------ the drafter

    @property
    def placement(self) -> Placement:
        checkpoint = self.checkpoint
        return choose("auto", "auto", checkpoint.dtype, checkpoint.weight_bytes)

    def drafter(self, variant: Variant = ()) -> Eagle3Drafter:
        if variant not in self._drafters:
            if not variant and self.case.load is not None:
                self._drafters[variant] = self.case.load()
            else:
                self._drafters[variant] = build_drafter(self._changed(variant), self.case.target, self.placement)
        return self._drafters[variant]

    def _changed(self, variant: Variant) -> Checkpoint:
        if not variant:
            return self.checkpoint
        config = replace(self.checkpoint.run_config, **dict(variant))  # type: ignore[arg-type]
        return replace(self.checkpoint, config=config, trained_config=None, misshapen={}, missing={})

    def run(self, sample: Sample, variant: Variant = ()) -> SampleRun:
        key = (sample.path, variant)
        if key not in self._runs:
            self._runs[key] = SampleRun(self.drafter(variant), sample)
        return self._runs[key]

    def forget(self, variant: Variant) -> None:
        """Drop what a variant holds."""
        self._drafters.pop(variant, None)
        self._runs = {key: run for key, run in self._runs.items() if key[1] != variant}

    # ------------------------------------------------------------------ scores

    def predicted(self, sample: Sample, option: Option, depth: int) -> Tensor:
        """[depth, R] draft ids of the rows that count."""
        key = (sample.path, option.ordering, _plain(option.wiring), option.variant, depth)
        if key not in self._ids:
            run = self.run(sample, option.variant)
            rows = rows_needed(sample.supervised, self.case.mask, depth)
            self._ids[key] = draft_ids(run, option.ordering, option.wiring, depth, rows, poll=self.poll)
        return self._ids[key]

    def truths(self, sample: Sample, option: Option) -> Truths:
        return truths_of(self.run(sample, option.variant), None, option.wiring)

    def measure(self, option: Option, samples: Sequence[Sample], depth: int = 0, ids: Tensor | None = None) -> Measured:
        """Pooled over `samples` at `depth` steps (the case's if 0).

        `ids` [D] are the target ids of draft ids where the option's reading of the map is another.
        """
        depth, found = depth or self.case.depth, None
        for sample in samples:
            truths = self.truths(sample, option)
            one = measured(self.predicted(sample, option, depth), truths, self.case.mask, ids)
            found = one if found is None else _both(found, one)
        assert found is not None
        return found

    def alone(self, sample: Sample, option: Option, depth: int = 1) -> Measured:
        """One sample that is not among the case's, say with its rows moved; nothing of it is kept."""
        run = SampleRun(self.drafter(option.variant), sample)
        rows = rows_needed(sample.supervised, self.case.mask, depth)
        predicted = draft_ids(run, option.ordering, option.wiring, depth, rows, poll=self.poll)
        return measured(predicted, truths_of(run, None, option.wiring), self.case.mask)


def measures(case: Case) -> Measures:
    return case.once("measures", lambda: Measures(case))


def measured(predicted: Tensor, truths: Truths, mode: str, ids: Tensor | None = None) -> Measured:
    """Counts of `predicted` [K, R], draft ids mapped by `ids` [D] if given."""
    if ids is not None:
        inverse = torch.full_like(truths.draft_ids, -1)
        inside = (ids >= 0) & (ids < len(inverse))
        inverse[ids[inside]] = torch.arange(len(ids))[inside]
        truths = replace(truths, target_ids=ids, draft_ids=inverse)
    mapped = truths.target_ids[predicted.clamp(min=0)].masked_fill(predicted < 0, -1)
    right = next_token_hits(mapped, truths.ids)
    counted = length_rows(row_mask(truths.mask, mode, predicted.shape[1]), predicted.shape[0])
    return Measured(count(predicted, truths, mode), right.long().cumprod(0).sum(0)[counted])


def _both(one: Measured, other: Measured) -> Measured:
    return Measured(one.counts + other.counts, torch.cat([one.accepted, other.accepted]))


def _plain(wiring: Wiring) -> Wiring:
    """Without the view's name and the map, neither of which changes what is drafted from the sample's tokens."""
    return replace(wiring, view="", d2t="data" if wiring.head != "target" else wiring.d2t)


def _misfit(sample: Sample, width: int, inputs: int, first: Sample | None) -> str:
    if sample.length < 3:
        return f"{sample.length} tokens, too few to predict one"
    if sample.width != width:
        return f"states {sample.width} wide, the drafter takes {width}"
    if len(sample.slots) < inputs:
        return f"{len(sample.slots)} recorded states, fc takes {inputs}"
    if first is not None and len(first.slots) != len(sample.slots):
        return f"{len(sample.slots)} recorded states, {first.path.name} has {len(first.slots)}"
    return ""


def _spoils(found: Contradiction) -> bool:
    """Whether the states would be of other tokens; a slot that is only misnamed can still feed the drafter."""
    return "another sample" in found.text or "shifted" in found.text or "one row too" in found.text
