"""Which layers a producer records unless it is told others, as a rule in L, the target's number of layers.

A rule lists depths: `2, L//2, L-3`. Whoever applies one says that no file confirms it.
"""

from __future__ import annotations

import re
from itertools import pairwise

_TERM = re.compile(r"(?P<number>\d{1,6})|L(?P<half>//2)?(?P<shift>[+-]\d{1,6})?")


def default_depths(rule: str, num_layers: int) -> list[int] | None:
    """The depths that `rule` gives for a target of `num_layers`; None where it gives no ascending ones (few layers).

    Raises ValueError for a rule of another form.
    """
    depths = [_value(term.strip(), num_layers) for term in rule.split(",")]
    ascending = all(a < b for a, b in pairwise(depths))
    return depths if ascending and depths[0] >= 0 and depths[-1] <= num_layers else None


def _value(term: str, num_layers: int) -> int:
    found = _TERM.fullmatch(term)
    if found is None:
        raise ValueError(f"not a rule of layers: {term!r}")
    if found["number"] is not None:
        return int(found["number"])
    return (num_layers // 2 if found["half"] else num_layers) + int(found["shift"] or 0)
