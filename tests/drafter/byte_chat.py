"""A tokenizer of 256 bytes and some marks, and chats written with it whose answers are known token by token."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drafter.sample.text.tokens import TokenText, open_tokenizer

FIRST_MARK = 300


@dataclass(frozen=True)
class Chat:
    ids: list[int]
    answers: list[int]  # 1 for each token that the assistant wrote
    tokens: TokenText

    @property
    def spans(self) -> list[tuple[int, int]]:
        edges = [
            i for i in range(len(self.ids) + 1) if (self.answers[i - 1 : i] or [0]) != (self.answers[i:] or [0])[:1]
        ]
        return list(zip(edges[::2], edges[1::2], strict=True))


def write_table(folder: Path, marks: Sequence[str], pairs: Mapping[bytes, int] | None = None) -> Path:
    """tiktoken.model with id = byte, `pairs` besides, and the marks from 300 on."""
    ranks = {bytes([i]): i for i in range(256)} | dict(pairs or {})
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{base64.b64encode(text).decode()} {rank}" for text, rank in ranks.items()]
    (folder / "tiktoken.model").write_text("\n".join(lines) + "\n")
    added = {str(FIRST_MARK + i): {"content": mark, "special": True} for i, mark in enumerate(marks)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return folder


def chat(folder: Path, text: str, marks: Sequence[str], **words: str) -> Chat:
    """`text` as a template writes it: answers between « and », each of `marks` one token, {name} a word of `words`.

    A mark inside a word is text that somebody typed, and no token.
    """
    ids: list[int] = []
    answers: list[int] = []
    answer = 0
    for part in re.split("(" + "|".join(map(re.escape, [*marks, "«", "»"])) + ")", text):
        if part in ("«", "»"):
            answer = int(part == "«")
            continue
        new = [FIRST_MARK + list(marks).index(part)] if part in marks else list(part.format(**words).encode())
        ids += new
        answers += [answer] * len(new)
    return Chat(ids, answers, open_tokenizer(write_table(folder, marks)))
