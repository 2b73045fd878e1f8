"""A tiktoken table (`base64 rank` lines) through the `tiktoken` library, with the specials of tokenizer_config.json.

The table is read here and not by the library's loader, which keeps a copy in the temporary folder by the path's name.
"""

from __future__ import annotations

import base64
from pathlib import Path

from drafter.errors import FileError
from drafter.sample.text.tokens_config import IDS, added_tokens


class TiktokenText:
    """Raises FileError for a file that is no such table."""

    first_space = False

    def __init__(self, path: Path) -> None:
        import tiktoken

        self.path = path
        ranks = _ranks(path)
        self._added = added_tokens(path.parent / "tokenizer_config.json")
        merges = {text: i for i, text in ranks.items()}
        if len(merges) != len(ranks):
            raise FileError("a token that stands twice in a tiktoken table", expected="each once", where=path)
        # ids are only looked up, so any pattern for splitting text does
        self._encoding = tiktoken.Encoding(path.name, pat_str=r"\S+|\s+", mergeable_ranks=merges, special_tokens={})

    def special(self, token: int) -> bool:
        return token in self._added and self._added[token].special

    def raw(self, token: int) -> bytes | None:
        if token not in IDS:
            return None
        try:
            return bytes(self._encoding.decode_single_token_bytes(token))
        except KeyError:
            return self._added[token].text.encode(errors="backslashreplace") if token in self._added else None


def _ranks(path: Path) -> dict[int, bytes]:
    ranks: dict[int, bytes] = {}
    try:
        for line in path.read_bytes().splitlines():
            if line:
                text, rank = line.split()
                token = int(rank)
                if token in ranks or token not in IDS:
                    raise FileError(f"the rank {token} in a tiktoken table", expected="each once", where=path)
                ranks[token] = base64.b64decode(text, validate=True)
    except (ValueError, OSError) as error:
        raise FileError("not a tiktoken table ('base64 rank' lines), and no sentencepiece model", where=path) from error
    if not ranks:
        raise FileError("an empty tiktoken table", where=path)
    return ranks
