"""Pane 1 of the Serving view: the drafter as trained and as every server version computes it, with what differs.

Reads the JSON of `views`, which may still be growing; a view that was opened has its differences below it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from eagle3_tui.controls.serving import ServingState
from eagle3_tui.screens.serving_text import NARROW, Line, number, wrapped
from eagle3_tui.screens.view import percent
from eagle3_tui.widgets.line_table import Cells, Column

Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line: `view` None is the trained view; `part` "", "graphs" or the number of a difference."""

    view: int | None
    part: str = ""

    @property
    def difference(self) -> int | None:
        return int(self.part) if self.part.isdecimal() else None


@dataclass(frozen=True)
class Shown:
    """What was scored at one moment: rows may be drawn after the state has moved on. `running`: more comes."""

    views: Json
    pooled: bool
    done: int
    planned: int
    running: bool

    @property
    def incomplete(self) -> bool:
        return self.done < self.planned


def shown_of(serving: ServingState, running: bool) -> Shown | None:
    if serving.views is None:
        return None
    return Shown(serving.views, serving.views_pooled, serving.done, serving.planned, running)


def columns(width: int) -> list[Column]:
    place = [Column("slots", 9)] if width >= NARROW else []
    walk = [Column("walk", 6, "right")] if width >= NARROW else []
    return [
        Column("", 1),
        Column("view", 24, cut="middle"),
        *place,
        Column("step 0", 6, "right"),
        Column("length", 6, "right"),
        *walk,
        Column("against trained"),
    ]


def rows(views: Json, opened: Collection[str]) -> list[Row]:
    found = [Row(None)]
    for i, view in enumerate(views["views"]):
        found.append(Row(i))
        if view["cuda_graphs"]:
            found.append(Row(i, "graphs"))
        if view["name"] in opened:
            found += [Row(i, str(n)) for n in range(len(view["differences"]))]
    return found


def cells(shown: Shown, row: Row, width: int) -> Cells:
    """Sign, name, slots, step 0, accept length, walk, verdict."""
    views = shown.views
    if row.view is None:
        return _cells("", views["trained"], "what training computed", "trained", "", width)
    view = views["views"][row.view]
    if row.part == "graphs":
        replayed = view["cuda_graphs"]
        sign, word, look = ("?", "not all recorded", "dim") if _unscored(replayed) else ("", "replayed steps", "")
        if _unscored(replayed) and replayed["slots"] is not None and shown.incomplete:
            sign, word, look = _unknown(shown.running)
        return _cells(sign, replayed, word, "  in CUDA graphs", look, width)
    if row.difference is not None:
        one = view["differences"][row.difference]
        sign, word, look = _difference(shown, one)
        change = f"{word}: {one['trained']} -> {one['served']}"
        return _cells(sign, one.get("together", {}), change, f"  {one['name']}", look, width)
    sign, word, look = verdict_of(shown, view)
    return _cells(sign, view, word, view["name"], look, width)


def _cells(sign: str, scored: Json, word: str, name: str, look: str, width: int) -> Cells:
    slots = scored.get("slots")
    fed = ["-" if slots is None else _many(slots)] if "slots" in scored else [""]
    ratio, length, walk = numbers(scored)
    wide = width >= NARROW
    texts = [sign, name, *(fed if wide else []), ratio, length, *([walk] if wide else []), word]
    return [(text, look) for text in texts]


def numbers(scored: Json) -> tuple[str, str, str]:
    """Step 0 in percent, mean accept length, walk length; blank where nothing is to be scored."""
    if scored.get("accuracy") is None:
        return "", "", ""
    accuracy, lengths = scored["accuracy"], scored["accept_length"]
    ratio = accuracy["hits"] / accuracy["total"] if accuracy["total"] else None
    return percent(ratio), number(lengths["mean"]), number(lengths["walk"]["length"])


def _unscored(scored: Json) -> bool:
    return scored.get("accuracy") is None


def _unknown(running: bool) -> tuple[str, str, str]:
    return ("", "…", "dim") if running else ("?", "stopped", "dim")


def verdict_of(shown: Shown, view: Json) -> tuple[str, str, str]:
    """Sign, word and style of one view."""
    cost = view["against_trained"]
    if view["refused"]:
        return "x", "refused", "bad"
    if cost is None:
        waits = view["slots"] is not None and not view["problem"] and shown.incomplete
        return _unknown(shown.running) if waits else ("?", "not computed", "warn")
    if not view["differences"]:
        return "=", "same as trained", "good"
    return _cost(cost)


def _difference(shown: Shown, one: Json) -> tuple[str, str, str]:
    if "together" not in one:
        return "", "differs", "dim"
    if one["against_before"] is None:
        return _unknown(shown.running) if one["computed"] and shown.incomplete else ("?", "not computed", "dim")
    return _cost(one["against_before"])


def _cost(cost: Json) -> tuple[str, str, str]:
    if cost["verdict"] == "costs":
        return "!", "costs", "bad"
    return ("+", "gains", "good") if cost["verdict"] == "gains" else ("~", "no clear cost", "")


def _many(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


# ---------------------------------------------------------------------- the detail


def lines(shown: Shown, row: Row, width: int, most: int) -> list[Line]:
    """What the row comes to, with the conventions of its numbers in the last line."""
    views = shown.views
    last = wrapped(conventions(shown), "dim", width, 1)
    if row.view is None:
        fed = f"trained: slots {_many(views['trained']['slots'])}, {views['trained']['why']}"
        target = views["target"]
        layers = "? layers" if target["layers"] is None else f"{target['layers']} layers"
        found = wrapped(fed, "", width, 2) + wrapped(f"target {target['family']}, {layers}", "dim", width, 1)
        for warning in views["warnings"]:
            found += wrapped(f"! {warning}", "warn", width, 2)
        return found[: most - 1] + last
    view = views["views"][row.view]
    if row.difference is not None:
        return _difference_lines(view["differences"][row.difference], width, most - 1) + last
    if row.part == "graphs":
        return _graph_lines(view, width)[: most - 1] + last
    return _view_lines(views, view, width)[: most - 1] + last


def conventions(shown: Shown) -> str:
    views = shown.views
    count = views["samples"]
    what = f"{count} sample{'' if count == 1 else 's'} pooled" if shown.pooled else "this sample"
    stopped = "" if shown.running else "stopped: "
    so_far = f"{stopped}{shown.done} of {shown.planned} scored, " if shown.incomplete else ""
    skipped = f", {len(views['skipped'])} skipped" if views["skipped"] else ""
    return f"{so_far}{what}{skipped}, mask {views['mask']}, {views['depth']} drafts, lengths with bonus, mean of rows"


def _view_lines(views: Json, view: Json, width: int) -> list[Line]:
    cause = next((d for d in view["differences"] if d["name"] == view["cause"]), None)
    notes = [line for note in view["notes"] for line in wrapped(f"note: {note}", "dim", width, 2)]
    if cause is None:
        fed = f"; {view['why']}" if view["slots"] is None and not view["refused"] else ""
        look = "bad" if view["refused"] else ""
        return wrapped(view["sentence"] if view["refused"] else f"{view['sentence']}{fed}", look, width, 4) + notes
    before = _before(views, view, cause)
    old, new = numbers(before), numbers(cause["together"])
    p = min(cause["against_before"]["p_accuracy"], cause["against_before"]["p_length"])
    said = f"{cause['name']} costs first: step 0 {old[0]} -> {new[0]} %, length {old[1]} -> {new[1]} (p = {p:.1g})"
    more = [d["name"] for d in view["differences"] if d is not cause and _costs(d)]
    rest = f"; {', '.join(more)} on top" if more else ""
    return [
        *wrapped(said, "bad", width, 2),
        *wrapped(f"{cause['trained']} -> {cause['served']}{rest}", "", width, 2),
        *wrapped(f"cure: {cause['cure']}", "mark" if cause["curable"] else "warn", width, 3),
        *notes,
    ]


def _before(views: Json, view: Json, cause: Json) -> Json:
    """The scores that a difference is held against: those with the differences before it."""
    before: Json = views["trained"]
    for one in view["differences"]:
        if one is cause:
            break
        before = one["together"] if one["together"]["accuracy"] is not None else before
    return before


def _costs(one: Json) -> bool:
    return bool(one["against_before"]) and one["against_before"]["verdict"] == "costs"


def _graph_lines(view: Json, width: int) -> list[Line]:
    replayed = view["cuda_graphs"]
    said = f"decoding steps are replayed from CUDA graphs, which capture depths {_many(replayed['captures'])} here"
    notes = [line for note in view["notes"] if "CUDA" in note for line in wrapped(note, "dim", width, 3)]
    return wrapped(said, "", width, 2) + wrapped(replayed["why"], "dim", width, 2) + notes


def _difference_lines(one: Json, width: int, most: int) -> list[Line]:
    head = wrapped(f"{one['name']}: {one['trained']} -> {one['served']}", "", width, 1)
    if "together" in one and one["computed"] and one["together"]["accuracy"] is not None:
        alone, together = numbers(one["alone"]), numbers(one["together"])
        cost = one["against_before"]
        told = f"; {cost['verdict']}" if cost is not None else ""
        said = f"alone {alone[0]} %, length {alone[1]}; with those before {together[0]} %, {together[1]}{told}"
        head += wrapped(said, "bad" if _costs(one) else "", width, 1)
    cure = wrapped(f"cure: {one['cure']}", "mark" if one["curable"] else "warn", width, 2)
    why = wrapped(one["why"], "dim", width, most - len(head) - len(cure))
    return head + why + cure
