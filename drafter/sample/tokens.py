"""Token ids as text, from tokenizer.json or tiktoken.model; no code of a checkpoint is ever imported.

A token is bytes first: half a character stays visible as `\\xNN` escapes. `piece` is safe to show anywhere.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from drafter.errors import FileError, PathError
from drafter.files.json_file import read_json
from drafter.files.path import there
from drafter.safe import safe

FILES = ("tokenizer.json", "tiktoken.model")
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_MAX_TOKENIZER = 1 << 28
_IDS = range(1 << 31)  # the libraries hold ids in 32 bits


class TokenText(Protocol):
    """Ids to bytes; `special` says whether an id is a control token of the model, not text."""

    path: Path

    def raw(self, token: int) -> bytes | None: ...

    def special(self, token: int) -> bool: ...


def piece(tokens: TokenText | None, token: int) -> str:
    """One token for a table: quoted text with everything unprintable escaped; `<id N>` where the table has none."""
    data = tokens.raw(token) if tokens is not None else None
    if data is None:
        return f"<id {token}>"
    text = safe(data.decode("utf-8", errors="backslashreplace"))
    return text if tokens is not None and tokens.special(token) else f'"{text}"'


def decode(tokens: TokenText | None, ids: Sequence[int]) -> str:
    """Running text of `ids`: bytes are joined before they are decoded, so that split characters become whole."""
    if tokens is None:
        return " ".join(map(str, ids))
    found = ((i, tokens.raw(i)) for i in ids)
    data = b"".join(f"<id {i}>".encode() if raw is None else raw for i, raw in found)
    return data.decode("utf-8", errors="backslashreplace")


def open_tokenizer(path: Path) -> TokenText:
    """The tokenizer in a file or folder. Raises PathError or FileError."""
    if there(path) and path.is_dir():
        files = [path / name for name in FILES if (path / name).is_file()]
        if not files:
            raise PathError("no tokenizer", expected=" or ".join(FILES), where=path)
        path = files[0]
    if not there(path) or not path.is_file():
        raise PathError("no such tokenizer", where=path, hint="check --tokenizer")
    if path.stat().st_size > _MAX_TOKENIZER:
        raise FileError(f"a tokenizer of {path.stat().st_size} bytes", where=path)
    return TiktokenText(path) if path.name.endswith(".model") else JsonText(path)


class JsonText:
    """tokenizer.json, through the `tokenizers` library."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self.path = path
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for any malformed file
            raise FileError(f"not a tokenizer ({str(error)[:120]})", where=path) from error
        self._added = dict(self._tokenizer.get_added_tokens_decoder())
        self._unbyte = _byte_level_table() if "ByteLevel" in str(self._tokenizer.decoder) else None

    def special(self, token: int) -> bool:
        return token in self._added and bool(self._added[token].special)

    def raw(self, token: int) -> bytes | None:
        text = self._tokenizer.id_to_token(token) if token in _IDS else None
        if text is None:
            return None
        if token in self._added:
            return str(text).encode()
        if self._unbyte is not None:
            return b"".join(self._unbyte.get(char, char.encode()) for char in text)
        if byte := _BYTE_PIECE.fullmatch(text):
            return bytes.fromhex(byte.group(1))
        return str(text).replace("▁", " ").encode()


class TiktokenText:
    """tiktoken.model (`base64 rank` lines), specials from tokenizer_config.json, through the `tiktoken` library."""

    def __init__(self, path: Path) -> None:
        import tiktoken

        self.path = path
        self._special = _added_tokens(path.parent / "tokenizer_config.json")
        ranks = _ranks(path)
        special = {text: i for i, text in self._special.items() if i not in ranks}
        # the pattern splits text before it is encoded; ids are only looked up here, so any pattern does
        self._encoding = tiktoken.Encoding(
            path.name,
            pat_str=r"\S+|\s+",
            mergeable_ranks={text: rank for rank, text in ranks.items()},
            special_tokens=special,
        )

    def special(self, token: int) -> bool:
        return token in self._special

    def raw(self, token: int) -> bytes | None:
        if token not in _IDS:
            return None
        try:
            return bytes(self._encoding.decode_single_token_bytes(token))
        except KeyError:
            # the library holds one id a text; files with several exist
            return self._special[token].encode() if token in self._special else None


def _ranks(path: Path) -> dict[int, bytes]:
    ranks: dict[int, bytes] = {}
    try:
        for line in path.read_bytes().splitlines():
            if line:
                text, rank = line.split()
                token = int(rank)
                if token in ranks or token not in _IDS:
                    raise FileError(f"the rank {token} in a tiktoken table", expected="each once", where=path)
                ranks[token] = base64.b64decode(text, validate=True)
    except (ValueError, OSError) as error:
        raise FileError("not a tiktoken table ('base64 rank' lines)", where=path) from error
    if not ranks:
        raise FileError("an empty tiktoken table", where=path)
    if len(set(ranks.values())) != len(ranks):
        raise FileError("a token that stands twice in a tiktoken table", expected="each once", where=path)
    return ranks


def _added_tokens(path: Path) -> dict[int, str]:
    if not path.is_file():
        return {}
    table: Any = read_json(path).get("added_tokens_decoder")
    if not isinstance(table, dict):
        return {}
    named = {i: t.get("content") for i, t in table.items() if isinstance(t, dict) and re.fullmatch(r"[0-9]{1,9}", i)}
    return {int(i): text for i, text in named.items() if isinstance(text, str)}


def _byte_level_table() -> dict[str, bytes]:
    """The printable stand-ins that byte-level BPE writes for bytes, turned round."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_ins = {byte: chr(byte) for byte in plain}
    others = [byte for byte in range(256) if byte not in stand_ins]
    stand_ins |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return {char: bytes([byte]) for byte, char in stand_ins.items()}
