"""tokenizer.json through the `tokenizers` library: byte-level BPE, byte fallback, Metaspace, WordPiece, Unigram.

The library looks up tokens; which bytes a token's text stands for is told here by the file's decoder, because the
library decodes to text only, where half a character is lost. It is given the vocabulary and the added tokens alone:
on a malformed normalizer or splitter, which nobody needs for this, it panics past every `except Exception`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafter.errors import FileError
from drafter.files.json_file import read_json
from drafter.sample.text.tokens_config import IDS, Added

MAX_BYTES = 1 << 27  # the largest of known models have 35 MB

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Writing:
    """How text stands in tokens: `byte_level` stand-ins for bytes; `space` for a space; WordPiece's `joins` before a
    token that continues a word, where every other begins with a space. `first_space` as in TokenText.
    """

    byte_level: bool = False
    space: str = "▁"
    joins: str = ""
    first_space: bool = False


def writing_of(decoder: Any) -> Writing:
    """The writing that a decoder's own JSON tells; what it does besides (clean-up of spaces) is no token's text."""
    steps = list(_steps(decoder))
    kinds = {_text(step.get("type")) for step in steps}
    space, joins, first_space = "▁", "", False
    for step in steps:
        kind = step.get("type")
        if kind == "Metaspace":
            space = _text(step.get("replacement")) or space
            first_space = step.get("prepend_scheme", "always") != "never"
        elif kind == "Replace" and step.get("content") == " ":
            pattern = step.get("pattern")
            space = (_text(pattern.get("String")) if isinstance(pattern, dict) else "") or space
        elif kind == "Strip" and step.get("content") == " ":
            first_space = bool(step.get("start"))
        elif kind == "WordPiece":
            joins, first_space = _text(step.get("prefix")), True
    return Writing("ByteLevel" in kinds, space, joins, first_space)


def _steps(decoder: Any) -> Iterator[dict[str, Any]]:
    if isinstance(decoder, dict):
        if decoder.get("type") == "Sequence" and isinstance(decoder.get("decoders"), list):
            for step in decoder["decoders"]:
                yield from _steps(step)
        else:
            yield decoder


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class JsonText:
    """Raises FileError for a file that is no such table."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            table = read_json(path, MAX_BYTES)
        except FileError as error:
            raise FileError(f"not a tokenizer ({error.found})", expected=error.expected, where=path) from error
        self._tokenizer = _load(table, path)
        self._added = {
            i: Added(str(token.content), bool(token.special))
            for i, token in self._tokenizer.get_added_tokens_decoder().items()
        }
        self._writing = writing_of(table.get("decoder"))
        self._unbyte = _byte_level_table() if self._writing.byte_level else {}
        self.first_space = self._writing.first_space

    def special(self, token: int) -> bool:
        return token in self._added and self._added[token].special

    def raw(self, token: int) -> bytes | None:
        if token in self._added:
            return self._added[token].text.encode(errors="backslashreplace")
        text = self._tokenizer.id_to_token(token) if token in IDS else None
        return None if text is None else self._bytes(str(text))

    def _bytes(self, text: str) -> bytes:
        if self._writing.byte_level and self._unbyte.keys() >= set(text):
            return b"".join(map(self._unbyte.__getitem__, text))
        if not self._writing.byte_level:  # there a token with any other character stands for itself
            if byte := _BYTE_PIECE.fullmatch(text):
                return bytes.fromhex(byte.group(1))
            text = self._spaced(text)
        return text.encode(errors="backslashreplace")

    def _spaced(self, text: str) -> str:
        if joins := self._writing.joins:
            return text.removeprefix(joins) if text.startswith(joins) else f" {text}"
        return text.replace(self._writing.space, " ")


def _load(table: dict[str, Any], path: Path) -> Any:
    """The library's tokenizer of the vocabulary and the added tokens."""
    from tokenizers import Tokenizer

    needed = {"version": "1.0", "model": table.get("model"), "added_tokens": table.get("added_tokens") or []}
    try:
        return Tokenizer.from_str(json.dumps(needed))
    except BaseException as error:  # it raises bare Exception for malformed files, and PanicException, which is none
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise FileError(
            f"not a tokenizer ({str(error)[:120]})", expected="a vocabulary and added tokens", where=path
        ) from error


def _byte_level_table() -> dict[str, bytes]:
    """The printable stand-ins that byte-level BPE writes for bytes, turned round."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_ins = {byte: chr(byte) for byte in plain}
    others = [byte for byte in range(256) if byte not in stand_ins]
    stand_ins |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return {char: bytes([byte]) for byte, char in stand_ins.items()}
