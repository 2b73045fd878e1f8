"""Which single fault would give the accept length, and the accepted shares by position, that a server shows.

Each candidate is drafted over the same rounds as the drafter itself; how far its numbers lie from the served ones ranks
it. Other text than the samples' was served, so that near is all that can be said. Of what is equally near, that which
the samples prove by themselves comes first. Knows no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from torch import Tensor

from drafter.checks import options
from drafter.checks.case import Case
from drafter.checks.explain import Diagnosis, diagnosis
from drafter.checks.k12_gap import seen_and_unseen, server_views
from drafter.checks.measure import Measures, Option, measures
from drafter.checks.served_view import drafts_of
from drafter.drafting.free import leading_right
from drafter.errors import DrafterError
from drafter.sample.sample import Sample
from drafter.scoring.counts import round_accepts
from drafter.serving.verdict import near
from drafter.wiring import Ordering, name

SAME = 0.02  # drafts a round: logs are printed with two decimals
CLEAR = 2.0  # a second one that is so many times as far leaves the first alone
MOST_LAYERS = 20  # orderings of the recorded slots, in ascending order as servers feed them, that are tried


@dataclass(frozen=True)
class Rounds:
    """Of all rounds of the text: the mean accept length with the bonus token, and the share of rounds whose first,
    first two, ... drafts are accepted."""

    length: float
    rates: tuple[float, ...]
    rounds: int


@dataclass(frozen=True)
class Fit:
    """`distance` is in accepted drafts a round: by the accept length, or summed over the positions."""

    label: str
    kind: str
    rounds: Rounds
    distance: float


@dataclass(frozen=True)
class Fits:
    """The drafter `as_trained` and the candidates, nearest to what is served first. `close`: those that cannot be told
    from it."""

    as_trained: Fit
    ranked: tuple[Fit, ...]
    close: tuple[Fit, ...]


@dataclass(frozen=True)
class Likeness:
    """What is served looks like one of `fits`, with `drafts` a round; `alone` is the one fault that the positions of
    a log show, None where they do not tell or are not known."""

    fits: Fits
    drafts: int
    alone: Fit | None


def looks_like(case: Case) -> Likeness | None:
    """None where the drafter itself does no better than what is served. Raises DrafterError as `fits` does."""
    return case.once("looks like", lambda: _looks_like(case))


def _looks_like(case: Case) -> Likeness | None:
    assert case.served is not None
    drafts = len(case.rates) or drafts_of(case)
    found = fits(case, diagnosis(case), case.served, case.rates, drafts)
    length = found.as_trained.rounds.length
    if case.served >= length or near(case.served, length):
        return None
    return Likeness(found, drafts, found.ranked[0] if case.rates and _clearly(found) else None)


def _clearly(found: Fits) -> bool:
    """Whether one is close, and the next differs much more from what is served; what computes the same is one."""
    if not found.close:
        return False
    first = found.close[0]
    others = [one for one in found.close[1:] if one.rounds.rates != first.rounds.rates]
    return not others or others[0].distance > CLEAR * max(first.distance, 0.02)


def fits(case: Case, d: Diagnosis, served: float, rates: Sequence[float], drafts: int) -> Fits:
    """Raises DrafterError where the samples have no round to draft in."""
    m, samples = measures(case), _samples(case, d)
    found = []
    for label, kind, option, ids in _candidates(case, d, m):
        case.poll()
        case.tell(label)
        try:
            rounds = _rounds(m, option, samples, drafts, ids)
        except DrafterError:
            if not label:
                raise
            continue  # what cannot be run is not what is served
        finally:
            if option.variant:
                m.forget(option.variant)
        found.append(Fit(label, kind, rounds, _distance(rounds, served, rates)))
    trained, *others = found
    proven, least = _proven(case, d), min((one.distance for one in others), default=0.0)

    def nearest(one: Fit) -> tuple[bool, int]:
        alike = _near(one, served) and (not rates or one.distance <= CLEAR * max(least, SAME))
        return not (alike and proven and one.label.startswith(proven)), round(one.distance / SAME)

    ranked = sorted(others, key=nearest)  # of equals what is proven, then the usual fault
    close = tuple(one for one in ranked if _near(one, served))
    return Fits(trained, tuple(ranked), close)


def _proven(case: Case, d: Diagnosis) -> str:
    """How the candidate is called that other findings prove: what the named server runs, or the ordering of the config
    where the samples refute it. Empty where there is none."""
    if d.base.ordering == d.last.ordering:
        return ""
    return f"fed slots {name(d.base.ordering)}" if case.server is None else f"{case.server} ("


def _near(one: Fit, served: float) -> bool:
    """As two accept lengths are: `near` looks at their difference, which the distance is or is larger than."""
    return near(served, served + one.distance)


def _distance(one: Rounds, served: float, rates: Sequence[float]) -> float:
    if not rates:
        return abs(one.length - served)
    return sum(abs(a - b) for a, b in zip(one.rates, rates, strict=False))


def _samples(case: Case, d: Diagnosis) -> Sequence[Sample]:
    """Those that are most like what is served: not trained on, where that is known."""
    seen, unseen = seen_and_unseen(case, d.samples)
    return unseen if seen and unseen else d.samples


def _rounds(m: Measures, option: Option, samples: Sequence[Sample], drafts: int, ids: Tensor | None) -> Rounds:
    accepted: list[int] = []
    for sample in samples:
        truths = m.truths(sample, option)
        table = truths.target_ids if ids is None else ids
        predicted = m.predicted(sample, option, drafts)
        tokens = table[predicted.clamp(min=0)].masked_fill(predicted < 0, -1)
        accepted += round_accepts(leading_right(tokens, sample.ids).tolist(), truths.mask)
    if not accepted:
        raise DrafterError("no round to draft in", expected="supervised text of two tokens or more")
    rates = tuple(sum(one > k for one in accepted) / len(accepted) for k in range(drafts))
    return Rounds(1 + sum(accepted) / len(accepted), rates, len(accepted))


def _candidates(case: Case, d: Diagnosis, m: Measures) -> Iterator[tuple[str, str, Option, Tensor | None]]:
    """(label, kind, how it runs, target ids of draft ids if not those of the map); the drafter as it is comes first."""
    base = d.last
    yield "", "", base, None
    for view, option, names in server_views(case, d):
        yield f"{view} ({names})", "K13", option, None
    for ordering in _layers(d, base):
        yield f"fed slots {name(ordering)}", "K01", replace(base, ordering=ordering), None
    for option in [*options.program(case, base), *options.switches(case, base)]:
        yield option.label, option.kind, option, None
    for label, ids in options.maps(case, m.drafter().vocab(base.wiring)).items():
        yield label, "K03", base, ids


def _layers(d: Diagnosis, base: Option) -> list[Ordering]:
    slots, inputs = len(d.samples[0].slots), len(base.ordering)
    found = [o for o in combinations(range(slots), inputs) if o != base.ordering]
    return found if len(found) <= MOST_LAYERS else []
