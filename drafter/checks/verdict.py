"""One sentence for all findings: the fault that explains the others, or that there is none, or that nobody can tell.

Looks at findings only; reads no file and no number of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from drafter.checks.finding import (
    BROKEN_CHECKPOINT,
    BROKEN_SAMPLE,
    ERROR,
    GENERALISATION,
    HEALTHY,
    MISWIRED,
    SERVING,
    UNKNOWN,
    UNTRAINED,
    WARNING,
    Finding,
    NotChecked,
)

# what an error of each kind comes to, where the finding does not say
_USUAL = {
    **dict.fromkeys(("K01",), MISWIRED),
    **dict.fromkeys(("K02", "K03", "K04", "K05", "K06", "K07", "K11", "K14"), BROKEN_CHECKPOINT),
    **dict.fromkeys(("K08", "K09"), BROKEN_SAMPLE),
    **dict.fromkeys(("K10", "K13"), SERVING),
    "K12": GENERALISATION,
}
_OPENINGS = {
    MISWIRED: "miswired",
    BROKEN_CHECKPOINT: "the checkpoint is broken",
    BROKEN_SAMPLE: "the sample is broken",
    UNTRAINED: "the drafter is not trained",
    GENERALISATION: "the drafter does not generalise",
    SERVING: "look at the server",
    HEALTHY: "the drafter is healthy",
    UNKNOWN: "no verdict",
}


MEASURED = "it-works-offline"  # the check that needs what all measurements need


def verdict_of(findings: Sequence[Finding], not_checked: Sequence[NotChecked] = ()) -> tuple[str, str]:
    """Its kind and its sentence, of findings in the order of their rank."""
    errors = [finding for finding in findings if finding.severity == ERROR]
    if errors:
        first = errors[0]
        kind = first.means or _USUAL.get(first.kind, UNKNOWN)
        more = f"; {len(errors) - 1} more error{'s' if len(errors) > 2 else ''}" if len(errors) > 1 else ""
        return kind, f"{_opened(kind, first.title)}{more}"
    said = next((finding for finding in findings if finding.means and finding.severity != ERROR), None)
    warnings = [finding for finding in findings if finding.severity == WARNING and finding is not said]
    more = (
        f"; {len(warnings)} warning{'s' if len(warnings) > 1 else ''}, first: {warnings[0].title}" if warnings else ""
    )
    if said is not None:
        return said.means, _opened(said.means, said.title) + more
    whys = {skipped.check: skipped.why for skipped in not_checked}
    reason = whys.get(MEASURED) or next((why for why in whys.values() if "sample" in why), "no measurement was made")
    return UNKNOWN, f"no fault found in the files, but whether it predicts was not measured ({reason}){more}"


def _opened(kind: str, title: str) -> str:
    """The title behind what it comes to, unless it says so itself."""
    opening = _OPENINGS[kind]
    return title if title.startswith(opening) else f"{opening}: {title}"
