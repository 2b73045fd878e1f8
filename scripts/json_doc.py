"""Write the second half of JSON.md from the docstrings of the modules that print the commands' text.

    python scripts/json_doc.py [--check]

With --check nothing is written, and the exit code is 1 where JSON.md is not what would be written.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "<!-- what follows is written by scripts/json_doc.py from the docstrings of eagle3_tui/*_report.py -->\n"
COMMANDS = ("samples", "accept", "views", "serving", "compare", "check")


def section(command: str) -> str:
    """The docstring of a report without its first paragraph, under the command's name; empty where there is none."""
    path = ROOT / f"eagle3_tui/{command}_report.py"
    if not path.exists():
        return ""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return f"## {command}\n\n{said.partition(chr(10) * 2)[2].strip()}\n"


def document() -> str:
    """All of JSON.md."""
    head = (ROOT / "JSON.md").read_text(encoding="utf-8").partition(MARK)[0]
    return head + MARK + "\n" + "\n".join(text for text in map(section, COMMANDS) if text)


def main() -> int:
    wanted = document()
    if "--check" in sys.argv:
        return int(wanted != (ROOT / "JSON.md").read_text(encoding="utf-8"))
    (ROOT / "JSON.md").write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
