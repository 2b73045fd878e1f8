"""Session: the one object that a front end drives, on one thread. It opens, chooses, steps, scores, checks, exports,
and keeps the log of what it did.

It is built of parts, one file each, of which every one knows those before it: what is open (`core`), how it is wired,
samples, checkpoints, recordings, probes, the drafter at work, scores, chains, served views, comparisons, servers, facts
and checks. torch is imported only when something is computed: finding and opening checkpoints, and listing samples,
work without.
"""

from __future__ import annotations

from drafter.options import Options
from drafter.session.checks import Checks
from drafter.session.samples import SampleList

__all__ = ["Options", "SampleList", "Session"]


class Session(Checks):
    """See the module. Every method that a user can ask for raises DrafterError with the one line to show."""
