"""JSON that every reader accepts: ASCII only, and `null` for what is not a number.

Weights can be NaN, so results can be; Python would write `NaN`, which is not JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_text(value: Any, indent: int | None = 1) -> str:
    """`value` as JSON; with `indent` None on one line. Ends in a line break."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=True, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """`value` with NaN and infinities as None, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
