"""The bytes of a text laid end to end, with where each token ends: finds tokens by text and text by tokens."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from drafter.sample.text.tokens import TokenText

_UNKNOWN = b"\xff"  # one byte that is in no text, so that ids without text keep a place


class LaidText:
    """`pieces[i]` are the bytes of token i, `data` all of them, `ends[i]` where token i ends in `data`."""

    def __init__(self, ids: Sequence[int], tokens: TokenText) -> None:
        known = {i: tokens.raw(i) for i in set(ids)}
        table = {i: _UNKNOWN if raw is None else raw for i, raw in known.items()}
        self.pieces = [table[i] for i in ids]
        self.data = b"".join(self.pieces)
        self.ends = list(accumulate(map(len, self.pieces)))

    def token_at(self, byte: int) -> int:
        """The token that holds byte `byte` of the text; their number past the end."""
        return bisect_right(self.ends, byte)

    def between(self, start: int, stop: int) -> range:
        """The tokens that hold any of the bytes start..stop-1."""
        return range(self.token_at(start), self.token_at(stop - 1) + 1) if start < stop else range(0)
