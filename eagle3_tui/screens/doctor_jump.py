"""Where on the screen a finding is to be seen: the view, its pane, and the row that shows the thing.

Reads the finding's evidence only; whether the row is there shows when the view is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from drafter.checks.finding import Finding
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.view import Searchable, View

# the view that shows a kind of finding, where the finding names none
_USUAL = {
    **dict.fromkeys(("K01", "K12"), "orderings"),
    **dict.fromkeys(("K02", "K03", "K04", "K07", "K11", "K14"), "checkpoints"),
    **dict.fromkeys(("K05", "K06"), "wiring"),
    **dict.fromkeys(("K08", "K09"), "samples"),
    **dict.fromkeys(("K10", "K13"), "serving"),
}
_SAME = {"checkpoint": "checkpoints", "sample": "samples"}
_PANES = {"K04": "config", "K06": "config", "K02": "tensors", "K07": "tensors", "K11": "tensors"}
_SERVING = {"K10": "flags", "K13": "views"}
_SLOT, _ORDERING = re.compile(r"\bslot (\d+)\b"), re.compile(r"\bslots (\d+(?:,\d+)+)\b")


@dataclass(frozen=True)
class Jump:
    """`rows` are texts of which the first that is a cell of the pane's table gets the cursor."""

    view: str
    pane: str = ""
    rows: tuple[str, ...] = ()


_MAP = Jump("checkpoints", "config", ("vocab map",))  # the row that says how d2t and t2d read


def jump(finding: Finding) -> Jump | None:
    """Where to go for a finding, None where no view shows it."""
    view = _SAME.get(finding.view, finding.view) or _USUAL.get(finding.kind, "")
    if view == "checkpoints":
        return _in_checkpoints(finding)
    if view == "samples":
        return _in_samples(finding)
    if view == "orderings":
        return Jump(view, rows=tuple(_ORDERING.findall(finding.title)))
    if view == "wiring":
        return Jump(
            view, rows=tuple(str(finding.evidence[key]) for key in ("switch", "flag") if key in finding.evidence)
        )
    if view == "serving":
        server = str(finding.evidence.get("server", ""))
        return Jump(view, _SERVING.get(finding.kind, "numbers"), (server,) if server else ())
    return Jump(view) if view else None


def _in_checkpoints(finding: Finding) -> Jump:
    missing = finding.evidence.get("missing")
    if missing and isinstance(missing, Mapping | list | tuple):
        return Jump("checkpoints", "config", tuple(map(str, missing)))
    if finding.kind == "K03":
        return _MAP
    if "tensor" in finding.evidence:
        return Jump("checkpoints", "tensors", (str(finding.evidence["tensor"]),))
    return Jump("checkpoints", _PANES.get(finding.kind, "runs"), tuple(map(str, finding.evidence)))


def _in_samples(finding: Finding) -> Jump:
    said = [finding.title, *map(str, finding.evidence), *map(str, finding.evidence.values())]
    slots = [number for text in said for number in _SLOT.findall(text)]
    if slots:
        return Jump("samples", "slots", tuple(slots))
    names = tuple(name for names in finding.evidence for name in str(names).split(", "))  # one sentence of several
    return Jump("samples", "text" if finding.kind == "K09" else "files", names)


def go(view: View, to: Jump) -> None:
    """Put the cursor of a view that is on screen where the jump leads."""
    if isinstance(view, PanesView) and to.pane in view.PANES:
        view.show_pane(view.PANES.index(to.pane))
    table = view.table()
    if table is None or not to.rows:
        return
    source = table.source
    texts = source.texts() if isinstance(source, Searchable) else None
    for wanted in to.rows:
        for row in range(len(source)):
            found = [texts[row]] if texts is not None else [text.strip() for text, _ in source.cells(row)]
            if (wanted.lower() if texts is not None else wanted) in found:
                if not table.move_to_row(row):
                    view.end_filter()
                    table.move_to_row(row)
                return
