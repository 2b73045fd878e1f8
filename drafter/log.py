"""The session log: one JSON object a line, appended and flushed record by record, so that a crash loses nothing.

Records are also kept in memory, so that an export works where no file may be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from drafter.errors import DrafterError, FileError
from drafter.json_text import json_text, plain

_PACKAGES = ("eagle3-tui", "torch", "textual", "safetensors", "numpy", "tokenizers", "pyarrow")


class SessionLog:
    """`path` None keeps records in memory only. A file that cannot be written is a `problem`, never a failure."""

    def __init__(self, path: Path | None, argv: list[str]) -> None:
        self.path = path
        self.problem = ""
        self.records: list[dict[str, Any]] = []
        self._file: TextIO | None = None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if _is_something_else(path):
                    self.problem = f"no session log: {path} is a file of another kind, and is left alone"
                    self.path = None
                else:
                    self._file = path.open("a", encoding="utf-8")
            except OSError as error:
                self.problem = f"no session log: {path}: {error.strerror}"
                self.path = None
        self.write(header(argv))

    def write(self, record: Mapping[str, Any]) -> None:
        stamped = {"time": round(time.time(), 3), **record}
        self.records.append(stamped)
        if self._file is None:
            return
        try:
            self._file.write(json_text(stamped, indent=None))
            self._file.flush()
        except OSError as error:
            self.problem = f"the session log ends here: {error.strerror}"
            self.close()

    def call(self, name: str, inputs: Mapping[str, Any], result: Any, *, keep: bool = True) -> None:
        """One call of the session: its inputs, a digest of the result, and (with `keep`) the result itself."""
        record: dict[str, Any] = {"record": "call", "call": name, "inputs": dict(inputs), "digest": digest(result)}
        if keep:
            record["result"] = result
        self.write(record)

    def failed(self, name: str, inputs: Mapping[str, Any], error: Exception) -> None:
        self.write({"record": "error", "call": name, "inputs": dict(inputs), "error": str(error)})

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # closing writes again what could not be written
                file.close()


def _is_something_else(path: Path) -> bool:
    """Whether there is a file that does not begin as a session log does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    try:
        return bool(first) and json.loads(first).get("record") != "header"
    except (ValueError, AttributeError, RecursionError):
        return True


def header(argv: list[str]) -> dict[str, Any]:
    """Versions and the command: what a bug report needs before anything else."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "record": "header",
        "format": 1,
        "argv": argv,
        "versions": versions,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "terminal": {"TERM": os.environ.get("TERM", ""), "tty": sys.stdout.isatty()},
    }


def digest(result: Any) -> str:
    """Sixteen hex digits of SHA-256 over the canonical JSON of `result`."""
    text = json.dumps(plain(result), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def default_path() -> Path:
    """A new file in the user's state folder."""
    import platformdirs

    name = f"session-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.jsonl"
    return Path(platformdirs.user_state_path("eagle3-tui", appauthor=False)) / name


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a log file; a last line that was cut off is left out. Raises FileError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise FileError(f"cannot read the log ({reason})", where=path) from error
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and records:
                break
            raise FileError(f"line {number} is not a record", expected="a session log", where=path) from error
        if not isinstance(record, dict):
            raise FileError(f"line {number} is not a record", expected="a session log", where=path)
        records.append(record)
    if not records or records[0].get("record") != "header":
        raise FileError("no header in the first line", expected="a session log", where=path)
    return records


class Logged:
    """Writes one call to the log: its result when the block ends well, the refusal when it raises one."""

    def __init__(self, log: SessionLog, name: str, inputs: dict[str, Any]) -> None:
        self.log, self.name, self.inputs = log, name, inputs
        self.result: Any = None

    def __enter__(self) -> Logged:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.log.call(self.name, self.inputs, self.result)
        elif isinstance(error, DrafterError):
            self.log.failed(self.name, self.inputs, error)
