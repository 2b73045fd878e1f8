"""All that must hold before a commit: lint, format, types, import contracts, tests. The same at home and in CI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def main() -> int:
    """Run each check; the first that fails ends it, with its exit status."""
    python = sys.executable
    checks = [
        [python, "-m", "ruff", "check", "."],
        [python, "-m", "ruff", "format", "--check", "."],
        [python, "-m", "mypy"],
        [str(BIN / "lint-imports")],
        [python, "-m", "pytest", *sys.argv[1:]],
    ]
    for command in checks:
        print(f"== {' '.join(Path(command[0]).name if i == 0 else part for i, part in enumerate(command))}", flush=True)
        status = subprocess.run(command, cwd=ROOT).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
