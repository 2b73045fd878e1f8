"""Wiring of the states, told by scores: which slots feed `fc`, in which order, against what the config says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drafter.checks.captures import captures, reading, servers
from drafter.checks.case import Case
from drafter.checks.explain import Diagnosis, Explanation, diagnosis
from drafter.checks.finding import CKPT, ERROR, MISWIRED, NOTE, OK, SMP, WARNING, Finding
from drafter.checks.k01_wiring import no_norm_in_sglang, written_for
from drafter.checks.k08_text import out_of_scale
from drafter.checks.measure import Measured, measures
from drafter.checks.registry import FORWARD, check
from drafter.checks.signature import FLAT_LOW, LOW, RISING, above
from drafter.serving.producers import usual
from drafter.wiring import Ordering, depth_of, name

REPORTS = (
    "vllm-project/vllm#50170",
    "sgl-project/sglang#32334",
    "sgl-project/SpecForge#240",
    "vllm-project/vllm#36527",
)
TOP = 5  # orderings that the evidence names


@check("configured-layers-are-not-the-trained-ones", "K01", (CKPT, SMP), REPORTS, FORWARD)
def configured_layers(case: Case) -> Iterator[Finding]:
    """An ordering of the recorded slots that clearly beats the one that the config's layer ids select."""
    d = diagnosis(case)
    for one in d.found:
        if one.option.ordering != d.base.ordering and "ordering" in one.option.label:
            yield _unsorted(case, d, one) if _only_unsorted(case, d, one) else _wrong_order(case, d, one)
            return
    if d.configured is None:
        yield from _not_recorded(case, d)
    elif not d.found and d.start.accuracy >= LOW:
        yield _right(case, d)


def _wrong_order(case: Case, d: Diagnosis, one: Explanation) -> Finding:
    wanted, was = one.option.ordering, d.base.ordering
    title = (
        f"the drafter works on {_slots(case, d, wanted)}, not on {_slots(case, d, was)} as {_who(d)}: step 0 "
        f"{one.before.accuracy:.3f} -> {one.after.accuracy:.3f}"
    )
    scale = out_of_scale(measures(case), d.samples[0])
    if scale:
        title += f"; but {scale}, so that any ordering without that slot does better"
    elif d.signature.name in (FLAT_LOW, RISING):
        title += f"; even so {d.signature.words}: layers that it was trained on may not be recorded"
    return Finding(
        "configured-layers-are-not-the-trained-ones",
        "K01",
        WARNING if scale else ERROR,
        title,
        {**one.said(), **_table(d), "configured": d.configured_why},
        fix_ids(case, d, wanted),
        REPORTS,
        "orderings",
        60,
    )


def _only_unsorted(case: Case, d: Diagnosis, one: Explanation) -> bool:
    """Whether the config lists the right layers and only the order is wrong: servers capture in ascending order."""
    was, wanted = _depths(case, d, d.base.ordering), _depths(case, d, one.option.ordering)
    return was is not None and wanted is not None and list(wanted) == sorted(was)


def _unsorted(case: Case, d: Diagnosis, one: Explanation) -> Finding:
    return Finding(
        "configured-layers-are-not-the-trained-ones",
        "K01",
        WARNING,
        f"the config lists the layers out of order: fed as listed, {_slots(case, d, d.base.ordering)}, step 0 is "
        f"{one.before.accuracy:.3f}, ascending {one.after.accuracy:.3f}; servers capture in ascending order whatever "
        "the list, other programs may not",
        {**one.said(), **_table(d), "configured": d.configured_why},
        "write the ids in ascending order; fc's columns stay as they are",
        REPORTS,
        "orderings",
        60,
        MISWIRED,
    )


def _who(d: Diagnosis) -> str:
    return "the config says" if d.configured is not None else d.base_why


def _not_recorded(case: Case, d: Diagnosis) -> Iterator[Finding]:
    """What the config selects is not among the slots, or it selects nothing; the drafter may work on others."""
    read = reading(case)
    said, who = read.depths, f"{read.who} selects"
    if not said and case.target_layers is not None:
        said, who = usual(case.target_layers), "the config names no layers, for which engines take"
    depths, severity, measured = _depths(case, d, d.base.ordering), NOTE, d.start
    if said and depths is not None and set(depths) != set(said):
        severity = ERROR if _alone(d, measured) else WARNING
    what = f"{who} depths {name(tuple(said))}, which are" if said else "what the config selects is"
    works, fix = "the drafter works on", "name the slots (--slots), or record those layers"
    if severity == ERROR and list(depths or ()) != sorted(depths or ()):  # no trainer feeds layers in such an order
        severity, works = WARNING, "of what is recorded it predicts best on"
        fix = f"record the layers that training fed: depths {name(tuple(said or ()))}; or name the slots with --slots"
    elif severity == ERROR:
        fix = fix_ids(case, d, d.base.ordering)
    yield Finding(
        "configured-layers-are-not-recorded",
        "K01",
        severity,
        f"{what} not among the recorded slots; {works} {_slots(case, d, d.base.ordering)}: step 0 "
        f"{measured.accuracy:.3f}",
        {**measured.said(), **_table(d), "configured": d.configured_why},
        fix,
        REPORTS,
        "orderings",
        60,
    )


def _alone(d: Diagnosis, found: Measured) -> bool:
    """Whether a drafter works on these slots and clearly less on any others."""
    rivals = [one.counts.accuracy for o, one in d.sweep.items() if set(o) != set(d.base.ordering)]
    second = max(rivals, key=lambda c: c.ratio or 0.0, default=None)
    return found.accuracy >= LOW and (second is None or above(found.counts.accuracy, second, 0.0))


def _right(case: Case, d: Diagnosis) -> Finding:
    tied = d.best == d.base.ordering or d.base.ordering in d.tied
    words = (
        "is the best" if d.best == d.base.ordering else "cannot be told from the best" if tied else "is near the best"
    )
    return Finding(
        "configured-layers-are-not-the-trained-ones",
        "K01",
        OK,
        f"the configured ordering {name(d.base.ordering)} {words} of {len(d.sweep)}",
        {**d.start.said(), **_table(d)},
        view="orderings",
    )


def fix_ids(case: Case, d: Diagnosis, wanted: Ordering) -> str:
    """What to write so that servers feed the slots `wanted`, in the words of each."""
    depths = _depths(case, d, wanted)
    if depths is None:
        return "name the depths of the slots with --slots; the layer ids follow from them"
    said = [written_for(case, server, depths, name(wanted)) for server in servers(case)]
    if list(depths) != sorted(depths):
        fed = all(one.depths == tuple(sorted(depths)) for one in captures(case))
        said = ["the layer ids select these already"] if fed else said
        said.append(
            "servers feed ascending depths, so that the column blocks of fc must move: `eagle3-tui fix --ordering "
            f"{name(wanted)}` writes a copy where they have"
        )
    return f"for depths {name(depths)}: " + "; ".join(said) + no_norm_in_sglang(case)


def _depths(case: Case, d: Diagnosis, ordering: Ordering) -> tuple[int, ...] | None:
    slots = d.samples[0].slots
    found = [depth_of(slots[i], case.target_layers) for i in ordering]
    return tuple(depth for depth in found if depth is not None) if None not in found else None


def _slots(case: Case, d: Diagnosis, ordering: Ordering) -> str:
    depths = _depths(case, d, ordering)
    return f"slots {name(ordering)}" + (f" (depths {name(depths)})" if depths is not None else "")


def _table(d: Diagnosis) -> dict[str, Any]:
    best = sorted(d.sweep.items(), key=lambda pair: -pair[1].counts.accuracy.hits)[:TOP]
    counts = {name(o): f"{one.counts.accuracy.hits} of {one.counts.accuracy.total}" for o, one in best}
    note = {"swept": d.sweep_note} if d.sweep_note else {}
    return {"best orderings": counts, "tied with the best": [name(o) for o in d.tied], **note}
