"""The glyphs that the help screen explains, by view."""

from __future__ import annotations

from eagle3_tui.screens import accept, compare, doctor, orderings, serving, step_text, wiring
from eagle3_tui.screens.orderings import OrderingsView
from eagle3_tui.screens.step import StepView
from eagle3_tui.screens.view import View
from eagle3_tui.screens.wiring import WiringView


def for_view(view: View) -> list[tuple[str, str]]:
    """(glyph, meaning) lines for the view on screen."""
    if isinstance(view, StepView):
        return step_text.LEGEND
    if isinstance(view, compare.CompareView):
        return compare.LEGEND
    if isinstance(view, doctor.DoctorView):
        return doctor.LEGEND
    if isinstance(view, serving.ServingView):
        return serving.LEGEND
    if isinstance(view, accept.AcceptView):
        return accept.LEGEND
    if isinstance(view, OrderingsView):
        return orderings.LEGEND
    if isinstance(view, WiringView):
        return wiring.LEGEND
    return [(">", "chosen"), ("!", "look here: a contradiction or something missing"), ("?", "not known")]
