"""Tokens that stand in no table but in the tokenizer_config.json beside it, under `added_tokens_decoder`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafter.files.json_file import read_json

IDS = range(1 << 31)  # tokenizers hold ids in 32 bits; their libraries fail, or take another id, for others


@dataclass(frozen=True)
class Added:
    text: str
    special: bool


def added_tokens(path: Path) -> dict[int, Added]:
    """Added tokens by id, none where the file has none; odd entries are passed over. Raises FileError."""
    if not path.is_file():
        return {}
    table: Any = read_json(path).get("added_tokens_decoder")
    if not isinstance(table, dict):
        return {}
    found = ((i, entry) for i, entry in table.items() if isinstance(entry, dict) and re.fullmatch("[0-9]{1,9}", i))
    return {
        int(i): Added(entry["content"], entry.get("special") is not False)
        for i, entry in found
        if isinstance(entry.get("content"), str)
    }
