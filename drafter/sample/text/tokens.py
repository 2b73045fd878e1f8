"""Token ids as text: what a table of tokens is, one token for a table, running text, and who reads which file.

A token is bytes first: half a character stays visible as `\\xNN` escapes, and whole where its tokens stand together.
`piece` is safe to show anywhere. No code of a checkpoint is ever imported, and nothing is downloaded; what a file
holds is told by its first bytes, because `tokenizer.model` is the name of two kinds of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from drafter.errors import FileError, PathError
from drafter.files.path import there
from drafter.safe import safe

FILES = ("tokenizer.json", "tiktoken.model", "tokenizer.model")
_BASE64_TEXT = re.compile(rb"\s*[A-Za-z0-9+/=][A-Za-z0-9+/=\s]*")
_PROTOBUF = b"\x0a"  # the tag of a sentencepiece model's first field
_MAX_TOKENIZER = 1 << 28


class TokenText(Protocol):
    """Ids to the bytes that they add in the middle of a text; `special` says whether an id is a control token.

    `first_space`: the space before the very first word is not the text's, the tokenizer put it there.
    """

    path: Path
    first_space: bool

    def raw(self, token: int) -> bytes | None: ...

    def special(self, token: int) -> bool: ...


def piece(tokens: TokenText | None, token: int) -> str:
    """One token for a table: quoted text with everything unprintable escaped; `<id N>` where the table has none."""
    data = tokens.raw(token) if tokens is not None else None
    if data is None:
        return f"<id {token}>"
    text = safe(data.decode("utf-8", errors="backslashreplace"))
    return text if tokens is not None and tokens.special(token) else f'"{text}"'


def running(tokens: TokenText, ids: Sequence[int]) -> str:
    """The text of `ids` as a part of a longer one: bytes are joined before they are decoded. Not safe to show."""
    found = ((i, tokens.raw(i)) for i in ids)
    data = b"".join(f"<id {i}>".encode() if raw is None else raw for i, raw in found)
    return data.decode("utf-8", errors="backslashreplace")


def decode(tokens: TokenText | None, ids: Sequence[int]) -> str:
    """The text of `ids` as a whole text; ids in place of text where there is no tokenizer. Not safe to show."""
    if tokens is None:
        return " ".join(map(str, ids))
    text = running(tokens, ids)
    return text.removeprefix(" ") if tokens.first_space else text


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
    return _reader(path)


def _reader(path: Path) -> TokenText:
    from drafter.sample.text.tokens_json import JsonText
    from drafter.sample.text.tokens_sentencepiece import SentencePieceText
    from drafter.sample.text.tokens_tiktoken import TiktokenText

    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise FileError(f"cannot read the file ({error.strerror})", where=path) from error
    if _BASE64_TEXT.fullmatch(head):
        return TiktokenText(path)
    if head.startswith(_PROTOBUF) and head.strip()[:1] not in (b"", b"{"):
        return SentencePieceText(path)
    return TiktokenText(path) if path.name.endswith(".model") else JsonText(path)
