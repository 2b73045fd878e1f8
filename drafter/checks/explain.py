"""Which one change makes the drafter clearly better than it is as configured, and what shape is left without one.

Every option is held against the configured one on the same rows by an exact paired test, corrected for how many were
tried; effects that are small or unlikely are called nothing. Knows no finding: the checks put it in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from drafter.checks import options
from drafter.checks.case import Case
from drafter.checks.measure import Measured, Measures, Option, measures
from drafter.checks.pairing import Pairing, pairing
from drafter.checks.signature import LOW, RISING, ROWS, UNTOLD, WHOLE, Signature, above, signature
from drafter.errors import DrafterError, SampleError
from drafter.sample.sample import Sample
from drafter.scoring.compare import best_ordering, mcnemar
from drafter.scoring.tallies import Count
from drafter.wiring import Ordering

P = 0.001  # a change is told from chance below this, times the changes that were tried
GAIN, LENGTH_GAIN = 0.03, 0.15  # in step-0 accuracy, or in the accept length: less is not worth a finding
AFTER = 0.25  # what does not reach this is not repaired by the change
MOVES = 0.05  # an ordering must win by this: neighbouring layers are alike


@dataclass(frozen=True)
class Explanation:
    """`option` instead of what was before, on the same rows; `p` is corrected for the `tried` changes."""

    option: Option
    before: Measured
    after: Measured
    p: float
    tried: int

    def said(self) -> dict[str, object]:
        return {
            "before": self.before.said(),
            "after": self.after.said(),
            "rows": self.before.rows,
            "p": f"{self.p:.1e} (exact paired test, times {self.tried} changes tried)",
        }


@dataclass
class Diagnosis:
    """`base` is what the config says, `start` its score; `found` the changes that explain, each on top of the last;
    `last`, `end` what is left. `sweep` are the orderings' step-0 counts under the base wiring. `by_hand` are the
    switches that were set by hand."""

    samples: list[Sample]
    base: Option
    base_why: str
    configured: Ordering | None
    configured_why: str
    start: Measured
    sweep: dict[Ordering, Measured]
    sweep_note: str
    best: Ordering
    tied: tuple[Ordering, ...]
    mispaired: list[Pairing] = field(default_factory=list)
    by_hand: frozenset[str] = frozenset()
    found: list[Explanation] = field(default_factory=list)
    last: Option = field(init=False)
    end: Measured = field(init=False)

    def __post_init__(self) -> None:
        self.last, self.end = self.base, self.start

    def take(self, one: Explanation) -> None:
        self.found.append(one)
        self.last, self.end = one.option, one.after

    @property
    def signature(self) -> Signature:
        return signature(marginals(self.end))

    @property
    def explained(self) -> bool:
        return bool(self.found)

    def of(self, *kinds: str) -> list[Explanation]:
        """The changes of these kinds that a checkpoint's files can be meant by."""
        return [one for one in self.of_files if one.option.kind in kinds]

    @property
    def of_files(self) -> list[Explanation]:
        return [one for one in self.found if one not in self.of_program]

    @property
    def of_program(self) -> list[Explanation]:
        """The changes that only whoever runs the drafter can make: no file says these, or a switch was set by hand."""
        return [one for one in self.found if one.option.switch in options.PROGRAM or one.option.switch in self.by_hand]


def marginals(one: Measured) -> list[Count]:
    return [step["next_token"].marginal for step in one.counts.steps]


def diagnosis(case: Case) -> Diagnosis:
    """Raises DrafterError where nothing can be drafted; mispaired samples alone raise SampleError."""
    return case.once("diagnosis", lambda: _Diagnose(case).run())


def mispaired(case: Case) -> list[Pairing]:
    """The samples whose states belong to other tokens."""
    return case.once("mispaired", lambda: _Diagnose(case).pairings())


class _Diagnose:
    def __init__(self, case: Case) -> None:
        self.case, self.m = case, measures(case)
        self.slots = self.m.sane[0].slots
        self.wiring = options.base_wiring(case)
        self.configured, self.configured_why = options.configured(case, self.slots)
        self.near = [o for o in (options.trained(case, self.slots), self.configured) if o is not None]

    def pairings(self) -> list[Pairing]:
        """Under the configured wiring, or under the ordering that scores best if the samples pair better there."""
        base, samples = self._base(self.m.sane)[0], self.m.sane
        tried = [base]
        if self.m.measure(base, samples, 1).accuracy < LOW:  # perhaps the config's layers are the fault
            tried.append(replace(base, ordering=self._favourite(self._sweep(base, samples)[0])))
        found = [self._paired(option) for option in tried]
        plain = max(self.m.measure(option, samples, 1).accuracy for option in tried)
        mean, best = max(found, key=lambda one: one[0])
        return best if mean > plain else []

    def _paired(self, option: Option) -> tuple[float, list[Pairing]]:
        """The mean accuracy of the samples, each paired as it does best, and those that were paired otherwise."""
        samples = self.m.sane
        each = [(sample, pairing(self.m, sample, option, samples)) for sample in samples]
        right = [one.after.accuracy if one else self.m.measure(option, [s], 1).accuracy for s, one in each]
        return sum(right) / len(right), [one for _, one in each if one is not None]

    def run(self) -> Diagnosis:
        wrong = mispaired(self.case)
        samples = [s for s in self.m.sane if all(s is not one.sample for one in wrong)]
        if not samples:
            raise SampleError("no sample whose states belong to its tokens", where=wrong[0].sample.path)
        base, why = self._base(samples)
        sweep, note = self._sweep(base, samples)
        best, tied = best_ordering({o: one.counts for o, one in sweep.items()})
        assert best is not None
        d = Diagnosis(
            samples, base, why, self.configured, self.configured_why, self.m.measure(base, samples), sweep, note, best,
            tuple(tied), wrong, frozenset(self.case.switches),
        )  # fmt: skip
        for _ in range(2):
            one = self._explain(d)
            if one is None:
                break
            d.take(one)
        if not d.found and d.signature.name not in (WHOLE, UNTOLD):
            one = self._explain_two(d)
            if one is not None:
                d.take(one)
        return d

    # ------------------------------------------------------------------ where to begin

    def _base(self, samples: Sequence[Sample]) -> tuple[Option, str]:
        if self.configured is not None:
            return Option(self.configured, self.wiring), self.configured_why
        guess, why = options.guessed(self.case, self.slots)
        if guess is not None:
            return Option(guess, self.wiring), why
        if self.near:
            return Option(self.near[0], self.wiring), "the training's config names it"
        first = Option(tuple(range(self.case.checkpoint.fc_inputs)), self.wiring)
        sweep, _ = self._sweep(first, samples)
        return Option(self._favourite(sweep), self.wiring), f"the best of {len(sweep)}: {self.configured_why}"

    def _sweep(self, base: Option, samples: Sequence[Sample]) -> tuple[dict[Ordering, Measured], str]:
        chosen, note = options.orderings(self.case, self.slots, [*self.near, base.ordering])
        found = {}
        for number, ordering in enumerate(chosen, 1):
            self.case.tell(f"ordering {number} of {len(chosen)}")
            found[ordering] = self.m.measure(replace(base, ordering=ordering), samples, 1)
        return found, note

    def _favourite(self, sweep: dict[Ordering, Measured]) -> Ordering:
        """The best; of those that cannot be told from it the one that somebody names, or whose slots ascend."""
        best, tied = best_ordering({o: one.counts for o, one in sweep.items()})
        assert best is not None
        named = [o for o in (best, *tied) if o in self.near]
        ascending = [o for o in (best, *tied) if list(o) == sorted(o)]
        return next(iter([*named[:1], *ascending[:1], best]))

    # ------------------------------------------------------------------ what explains

    def _explain(self, d: Diagnosis) -> Explanation | None:
        tried = [*self._orderings(d), *options.switches(self.case, d.last)]
        if self.case.switches or d.signature.name not in (WHOLE, UNTOLD):
            tried += options.program(self.case, d.last)
        maps = options.maps(self.case, self.m.drafter().vocab(d.last.wiring))
        count = len(d.sweep) + len(tried) - 1 + len(maps)
        found = list(self._compared(d, tried, maps, count))
        return max(found, key=lambda one: (one.after.counts.lengths.sum, one.after.accuracy), default=None)

    def _orderings(self, d: Diagnosis) -> list[Option]:
        """The favourite of the sweep under the wiring that is in force now."""
        sweep = d.sweep if d.last.wiring == d.base.wiring and not d.last.variant else self._sweep(d.last, d.samples)[0]
        favourite = self._favourite(sweep)
        if favourite == d.last.ordering or sweep[favourite].accuracy - _at(sweep, d.last, self.m, d) < MOVES:
            return []
        return [replace(d.last, ordering=favourite, label="ordering", kind="K01")]

    def _compared(
        self, d: Diagnosis, tried: Sequence[Option], maps: dict[str, Tensor], count: int
    ) -> Iterable[Explanation]:
        for name, ids in maps.items():
            after = self.m.measure(d.last, d.samples, ids=ids)
            option = replace(d.last, label=name, kind="K03", map_name=name)
            one = compared(d.end, after, option, count)
            if one is not None:
                yield one
        for number, option in enumerate(tried, 1):
            self.case.poll()
            self.case.tell(f"{option.label}, change {number} of {len(tried)}")
            try:
                if hopeless(d.end, self.m.measure(option, d.samples, 1)):
                    continue  # the later steps need not be drafted
                after = self.m.measure(option, d.samples)
            except DrafterError:
                continue  # what cannot be run explains nothing
            finally:
                if option.variant and option.variant != d.last.variant:
                    self.m.forget(option.variant)
            one = compared(d.end, after, option, count)
            if one is not None:
                yield one

    def _explain_two(self, d: Diagnosis) -> Explanation | None:
        """Another ordering and another residual at once: each alone changes nothing."""
        if d.signature.name == RISING:
            return None
        value = "off" if d.base.wiring.norm_before_residual else "on"
        other = replace(d.base, wiring=d.base.wiring.switched("norm_before_residual", value))
        sweep = self._sweep(other, d.samples)[0]
        favourite = self._favourite(sweep)
        option = replace(other, ordering=favourite, label=f"norm_before_residual {value}, ordering", kind="K05")
        return compared(d.end, self.m.measure(option, d.samples), option, 2 * len(sweep))


def _at(sweep: dict[Ordering, Measured], option: Option, m: Measures, d: Diagnosis) -> float:
    known = sweep.get(option.ordering)
    return (known if known is not None else m.measure(option, d.samples, 1)).accuracy


def hopeless(before: Measured, after: Measured) -> bool:
    """Whether the first step alone says that a change repairs nothing."""
    return after.accuracy < AFTER or after.accuracy < before.accuracy - GAIN


def compared(before: Measured, after: Measured, option: Option, tried: int) -> Explanation | None:
    """`option` as an explanation, None where it is not clearly better."""
    if hopeless(before, after):
        return None
    p_first = mcnemar(before.counts.row_hits, after.counts.row_hits)
    longer, shorter = after.accepted > before.accepted, after.accepted < before.accepted
    p_length = mcnemar(longer, shorter)
    by_first = after.accuracy - before.accuracy >= GAIN and p_first * tried < P
    by_length = _mean(after) - _mean(before) >= LENGTH_GAIN and p_length * tried < P
    if not by_first and not by_length:
        return None
    return Explanation(option, before, after, min(1.0, min(p_first, p_length) * tried), tried)


def _mean(one: Measured) -> float:
    return one.length if one.length is not None else 0.0


@dataclass(frozen=True)
class Relabelled:
    """`same`: rows whose truth is the most frequent truth of their draft id elsewhere; `chance`: the same of one id for
    all; `distinct` of the draft ids said twice or more have a most frequent truth of their own."""

    same: Count
    chance: Count
    distinct: Count


def relabelled(m: Measures, d: Diagnosis) -> Relabelled:
    """What a draft id stands for, whatever the map says: a head that works still says one id for one token.

    Each row is left out of what it is judged by. A broken drafter says something of the token before, so that its ids
    tell a little too, but many of them the same.
    """
    said, truth = [], []
    for sample in d.samples:
        predicted = m.predicted(sample, d.base, m.case.depth)[0]
        rows = (predicted[:-1] >= 0).nonzero().flatten()
        said.append(predicted[rows])
        truth.append(sample.ids[2:][rows])
    drafts, tokens = torch.cat(said), torch.cat(truth)
    groups = [group for group in _groups(drafts, tokens).values() if sum(group.values()) > 1]
    most = {max(group, key=lambda token: (group[token], -token)) for group in groups}
    distinct = Count(len(most), len(groups))
    return Relabelled(_left_out(drafts, tokens), _left_out(torch.zeros_like(drafts), tokens), distinct)


# on a trained drafter of 8,000 ids whose head was permuted 0.61 and 0.91; with a random tensor at most 0.26 and 0.73
RELABELLED, DISTINCT = 0.3, 0.8


def foreign_map(case: Case) -> Relabelled | None:
    """`relabelled` where next to nothing is right and yet the head speaks of the same tokens again and again."""
    return case.once("foreign map", lambda: _foreign_map(measures(case), diagnosis(case)))


def _foreign_map(m: Measures, d: Diagnosis) -> Relabelled | None:
    if d.found or d.start.rows < ROWS or d.start.accuracy > 0.1:
        return None
    told = relabelled(m, d)
    again = told.same.total >= ROWS and (told.same.ratio or 0.0) >= RELABELLED and above(told.same, told.chance, 0.08)
    return told if again and (told.distinct.ratio or 0.0) >= DISTINCT else None


def _groups(drafts: Tensor, tokens: Tensor) -> dict[int, dict[int, int]]:
    """draft id -> token -> how often."""
    groups: dict[int, dict[int, int]] = {}
    for draft, token in zip(drafts.tolist(), tokens.tolist(), strict=True):
        seen = groups.setdefault(draft, {})
        seen[token] = seen.get(token, 0) + 1
    return groups


def _left_out(drafts: Tensor, tokens: Tensor) -> Count:
    groups, hits, total = _groups(drafts, tokens), 0, 0
    for draft, token in zip(drafts.tolist(), tokens.tolist(), strict=True):
        rest = {other: n - (other == token) for other, n in groups[draft].items() if n - (other == token) > 0}
        if rest:
            total += 1
            hits += max(rest, key=lambda other: (rest[other], -other)) == token
    return Count(hits, total)
