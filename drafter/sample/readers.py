"""The known layouts in the order in which they are tried; the first that fits reads the file."""

from __future__ import annotations

from drafter.sample import speculators_arrow, speculators_v1
from drafter.sample.source import Reader

READERS: tuple[Reader, ...] = (
    speculators_arrow.READER,
    speculators_v1.READER,
)
