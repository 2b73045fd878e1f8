"""A session log as Markdown and JSON for a bug report. Home folders and user names become `~`.

Works on the records alone, so that a log file of another day, or of a session that crashed, gives the same report.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drafter.errors import FileError
from drafter.json_text import json_text
from drafter.safe import safe

Record = dict[str, Any]
MOST_SAMPLES, MOST_CALLS = 12, 60  # an issue takes 65,536 characters
# a name may hold spaces where a slash ends it; a folder before `home` (a mount) goes with it
_HOMES = re.compile(
    r"(?<![\w.~-])(?:/[\w.-]+)*/(?:home|homes|Users)/(?:[^/\n\"'`|,;]+(?=/)|[^/\s\"'`|,;]+)"
    r"|(?<!\w)[A-Za-z]:\\+Users\\+[^\\\n\"'`|,;]+"
)


def export(records: list[Record], folder: Path) -> list[Path]:
    """Write `eagle3-tui-TIME.md` and `.json` into `folder`, each atomically. Raises FileError where that fails."""
    stem = f"eagle3-tui-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    return [
        write_atomically(folder / f"{stem}.md", markdown(records), make_folder=True),
        write_atomically(folder / f"{stem}.json", json_text(shorten(records))),
    ]


def write_atomically(path: Path, text: str, *, make_folder: bool = False) -> Path:
    """Write `text` so that `path` is either whole or as it was. Raises FileError.

    A link stays a link, and what is no regular file (a terminal, a pipe) is written to, not replaced.
    """
    target = path.resolve() if path.is_symlink() else path
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return path
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise FileError(f"cannot write the file ({error.strerror})", where=path) from error
    return path


def shorten(value: Any) -> Any:
    """`value` with home folders and the user's name in paths replaced by `~`, at any depth."""
    if isinstance(value, str):
        return _shorten(value)
    if isinstance(value, dict):
        return {_shorten(str(k)): shorten(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [shorten(item) for item in value]
    return value


def _shorten(text: str) -> str:
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", text)
    text = _HOMES.sub("~", text)
    user = _user()
    return re.sub(rf"(?<=/){re.escape(user)}(?=/|$)", "~", text) if user else text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a container user without a name has none to hide


def markdown(records: list[Record]) -> str:
    """The report: environment, what was open, scores, the last steps, refusals, and the list of calls."""
    records = shorten(records)
    lines = ["# eagle3-tui session", "", *_environment(records[0])]
    checkpoint = _last(records, "choose_checkpoint")
    if checkpoint:
        lines += _checkpoint(checkpoint["result"])
    load = _last(records, "load")
    if load:
        result = load["result"]
        lines += [
            f"- device: {_code(result['device'])} {_code(result['dtype'])} ({_text(result['reason'])})",
            f"- vocab map read as: {_text(result['vocab_map'])}; embedding: {_text(result['embedding'])}",
            "",
        ]
    chosen = {record["inputs"]["path"]: record["result"] for record in _calls(records, "choose_sample")}
    for path, result in list(chosen.items())[-MOST_SAMPLES:]:
        lines += [f"- sample {_code(path)}: {_text(result['format'])}, {_text(result['tokens'])} tokens"]
    score = _last(records, "score")
    if score:
        lines += _score(score["result"])
    lines += _steps(list(_calls(records, "step"))[-5:])
    lines += _errors([r for r in records if r.get("record") == "error"])
    calls = list(_calls(records))
    lines += ["", "## Calls", ""]
    if len(calls) > MOST_CALLS:
        lines += [f"The last {MOST_CALLS} of {len(calls)}; all are in the log.", ""]
    lines += ["| call | inputs | digest |", "|---|---|---|"]
    for record in calls[-MOST_CALLS:]:
        inputs = json.dumps(record["inputs"], ensure_ascii=True)
        lines.append(f"| {_text(record['call'])} | {_code(inputs[:160])} | {_code(record['digest'])} |")
    return "\n".join(lines) + "\n"


def _errors(errors: list[Record]) -> list[str]:
    lines = ["", "## Refusals and failures", ""] if errors else []
    for record in errors:
        lines.append(f"- {_text(record['call'])}: {_text(record['error'])}")
        if record.get("trace"):
            lines += ["", *("      " + safe(line) for line in str(record["trace"]).splitlines()), ""]
    return lines


def _environment(header: Record) -> list[str]:
    versions = ", ".join(f"{_text(k)} {_text(v)}" for k, v in header.get("versions", {}).items())
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(header.get("time", 0)))
    return [
        f"- begun: {_text(when)}",
        f"- command: {_code(shlex.join(map(str, header.get('argv', []))))}",
        f"- versions: {versions}; Python {_text(header.get('python', '?'))}",
        f"- platform: {_text(header.get('platform', '?'))}, {_text(header.get('cpus', '?'))} CPUs",
        "",
    ]


def _checkpoint(facts: Record) -> list[str]:
    lines = ["## Checkpoint", "", f"- {_code(facts['path'])}: {_text(facts['dialect'])}, {_text(facts['producer'])}"]
    for name, prints in facts.get("fingerprints", {}).items():
        lines.append(f"- {_code(name)}: " + ", ".join(f"{_text(k)} {_code(v)}" for k, v in prints.items()))
    target = facts.get("target", {})
    lines.append(f"- target: {_code(target.get('path'))} ({_text(target.get('why', ''))})")
    for warning in facts.get("warnings", []):
        lines.append(f"- warning: {_text(warning)}")
    for what in ("missing", "unused"):
        for name, why in dict(facts.get(what) or {}).items():
            lines.append(f"- {what} tensor {_code(name)}: {_text(why)}")
    lines += ["", "| field | value | from | key |", "|---|---|---|---|"]
    for name, field in facts["config"].items():
        source = field["source"] or ""
        note = f" ({field['note']})" if field["note"] else ""
        lines.append(f"| {_text(name)} | {_code(field['value'])} | {_text(source + note)} | {_code(field['key'])} |")
    if facts["disagreements"]:
        lines += ["", "Where the two configs disagree (`config.json` is what is configured):", ""]
        lines += ["- " + ", ".join(f"{_text(k)}: {_code(v)}" for k, v in d.items()) for d in facts["disagreements"]]
    return [*lines, ""]


def _score(result: Record) -> list[str]:
    lines = ["", "## Scores", ""]
    checkpoint = result.get("checkpoint", {}).get("path", "?")
    lines.append(f"- checkpoint {_code(checkpoint)}")
    for name, value in result.get("switched", {}).items():
        lines.append(f"- switched: {_text(name)} {_code(value)}")
    lines.append(
        f"- samples: {len(result['samples'])}, mask {_text(result['mask'])}, depth {_text(result['depth'])}, view "
        f"{_text(result['view'])}, {_text(result['device'])} {_text(result['dtype'])}"
    )
    lines.append(
        f"- best {_code(result['best'])}, tied with it {_code(result['tied_with_best'])}, "
        f"configured {_code(result['configured'])}, trained {_code(result['trained'])}"
    )
    for name, reason in result["reasons"].items():
        lines.append(f"- {_text(name)}: {_text(reason)}")
    for sample in result["samples"][:MOST_SAMPLES]:
        slots = "; ".join(
            f"{s['index']}: claimed {s['claimed']}, probed {s['probed']}, norm {_number(s['mean_norm'])}"
            for s in sample["slots"]
        )
        lines.append(f"- {_code(sample['path'])}: {_text(sample['tokens'])} tokens; slots {_text(slots)}")
    if len(result["samples"]) > MOST_SAMPLES:
        lines.append(f"- and {len(result['samples']) - MOST_SAMPLES} more")
    skipped = result.get("skipped", [])
    lines += [f"- skipped {_code(one['path'])}: {_text(one['error'])}" for one in skipped[:MOST_SAMPLES]]
    if len(skipped) > MOST_SAMPLES:
        lines.append(f"- skipped {len(skipped) - MOST_SAMPLES} more")
    depth = range(result["depth"])
    lines += ["", "next_token hits / rows per draft step (marginal), accept length with the bonus token", ""]
    lines += [
        "| slots | " + " | ".join(f"step {k}" for k in depth) + " | accept length | walk |",
        "|---|" + "---|" * (result["depth"] + 2),
    ]
    ranked = sorted(result["orderings"], key=lambda o: -o["steps"][0]["next_token"]["marginal"]["hits"])
    for ordering in ranked:
        cells = [f"{m['hits']}/{m['total']}" for m in (step["next_token"]["marginal"] for step in ordering["steps"])]
        lengths = ordering["accept_length"]
        ends = [_number(lengths["mean"]), _number(lengths["walk"]["length"])]
        cells = [",".join(map(str, ordering["slots"])), *cells, *ends]
        lines.append(f"| {' | '.join(map(_text, cells))} |")
    return lines


def _steps(records: list[Record]) -> list[str]:
    if not records:
        return []
    lines = [
        "",
        "## Last steps",
        "",
        "| sample | token | slots | fed | truth | rank | predicted | prob | chain | length |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    for record in records:
        r = record["result"]
        truth = r["truth"] or {"text": "past the end"}
        chain = " ".join(("=" if c["hit"] else "x") + str(c["text"]) for c in r["chain"])
        best = r["predictions"][0]
        cells = [
            _code(Path(record["inputs"].get("sample", "?")).name),
            _text(r["at"]),
            _text(",".join(map(str, r["ordering"]))),
            _code(r["input"]["text"]),
        ]
        cells += [_code(truth["text"]), _text(r["truth_rank"]), _code(best["text"]), _number(best["prob"])]
        lines.append(f"| {' | '.join([*cells, _code(chain), _text(r['accept_length'])])} |")
    return lines


def _calls(records: list[Record], name: str | None = None) -> Iterator[Record]:
    return (r for r in records if r.get("record") == "call" and (name is None or r.get("call") == name))


def _last(records: list[Record], name: str) -> Record | None:
    found = list(_calls(records, name))
    return found[-1] if found else None


def _text(value: object) -> str:
    """Text of a stranger inside Markdown: nothing in it may become a table, a link, HTML or a mention."""
    escaped = re.sub(r"([\\`*_\[\]<>|])", r"\\\1", safe(value))
    # GitHub looks for mentions and issue numbers after Markdown's escapes are gone, but not in code
    return re.sub(r"[@#]", r"`\g<0>`", escaped)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _code(value: object) -> str:
    return "`" + safe(value).replace("`", "'").replace("|", "\\|") + "`"
