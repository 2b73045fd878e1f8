"""JSON of strangers: capped, plain tables only."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.errors import FileError
from drafter.files.json_file import read_json
from tests.drafter.helpers import refused


def test_a_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": [1, null, {"b": 0.5}]}')
    assert read_json(tmp_path / "x.json") == {"a": [1, None, {"b": 0.5}]}


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "not JSON"),
        (b"[1]", "list"),
        (b'"text"', "str"),
        (b"null", "NoneType"),
        (b'{"a": 1', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": ' + b"[" * 100_000, "not JSON"),
        (b'{"\xff": 1}', "not JSON"),
        (b'{"a": "' + b"x" * 200 + b'"}', "more than 100 bytes"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, data: bytes, word: str) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with refused(FileError, word):
        read_json(tmp_path / "x.json", max_bytes=100 if b"x" * 200 in data else 1 << 24)


@pytest.mark.parametrize("name", ["absent.json", "."])
def test_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with refused(FileError, "cannot read"):
        read_json(tmp_path / name)
