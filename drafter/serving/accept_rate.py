"""Which of two definitions SGLang's accept rate has: the version tells, and the printed numbers can.

Up to 0.5.10 it is accept_len / T, the bonus token in the numerator (2 of 2 is 1.0); from 0.5.11 on it is
accepted drafts / (T - 1). Given enough different lines, only one of the two fits them with a whole T.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafter.serving.rules import ruled
from drafter.serving.server import Server

Pairs = Sequence[tuple[float, float]]  # (accept length, accept rate) as printed
# whether the bonus token counts in the numerator, by version (scheduler metrics of SGLang)
BONUS_IN_RATE = {"0.5.6": True, "0.5.9": True, "0.5.10": True, "0.5.11": False, "0.5.14": False, "0.5.23": False}
MAX_TOKENS = 128
_ROUNDED = 0.0051  # of numbers printed with two decimals


@dataclass(frozen=True)
class RateMeaning:
    """`accepted` is the share of drafts that were accepted, None where it cannot be told."""

    bonus: bool | None
    accepted: float | None
    words: str
    warning: str = ""


def rate_meaning(
    pairs: Pairs, mean_length: float, mean_rate: float, server: Server | None, t: int | None
) -> RateMeaning:
    """What the rates of a log mean. `t` is T where the flags tell it, `server` the version where it is known."""
    bonus, why, warning = _decide(pairs, server, t)
    if bonus is None:
        return RateMeaning(None, None, f"accept len / T, or accepted drafts / (T - 1): {why}", warning)
    if not bonus:
        return RateMeaning(False, mean_rate, f"accepted drafts / (T - 1), no bonus token ({why})", warning)
    tokens = t or _fitting(pairs, True)
    accepted = (mean_length - 1) / (tokens - 1) if tokens and tokens > 1 else None
    return RateMeaning(True, accepted, f"accept len / T, the bonus token counts in it ({why})", warning)


def _decide(pairs: Pairs, server: Server | None, t: int | None) -> tuple[bool | None, str, str]:
    shown = _by_numbers(pairs, t)
    if server is None:
        return shown, "name the version with --server" if shown is None else "told by the numbers", ""
    rule = ruled(server, BONUS_IN_RATE)
    if shown is not None and shown != rule.value:
        return shown, "told by the numbers", f"the accept rates do not fit {server}: the numbers' own meaning is taken"
    return rule.value, rule.words, ""


def _by_numbers(pairs: Pairs, t: int | None) -> bool | None:
    """The only definition that fits all lines, with `t` or with any one T; None where both do, or none does."""
    fits = [_fits(pairs, t, bonus) if t else _fitting(pairs, bonus) is not None for bonus in (True, False)]
    return fits[0] if pairs and fits[0] != fits[1] else None


def _fitting(pairs: Pairs, bonus: bool) -> int | None:
    """The smallest T with which one definition fits every line, None where there is none."""
    return next((t for t in range(2, MAX_TOKENS + 1) if _fits(pairs, t, bonus)), None) if pairs else None


def _fits(pairs: Pairs, t: int, bonus: bool) -> bool:
    under, less = (t, 0) if bonus else (t - 1, 1)
    if under < 1:
        return False
    allowed = _ROUNDED + _ROUNDED / under
    return all(abs((length - less) / under - rate) <= allowed for length, rate in pairs)
