"""JSON.md says what the reports' docstrings say."""

from __future__ import annotations

from scripts import json_doc


def test_the_shapes_are_those_of_the_modules() -> None:
    written = (json_doc.ROOT / "JSON.md").read_text(encoding="utf-8")
    assert written == json_doc.document(), "run python scripts/json_doc.py"
    for command in ("samples", "accept", "views", "serving", "compare"):
        assert f"## {command}\n" in written
