"""The order in which people expect names with numbers in them."""

from __future__ import annotations

import re


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key by which `epoch_10` follows `epoch_9`."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)
