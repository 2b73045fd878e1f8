"""What the command `samples` found, as text: its JSON in, lines out. Knows no session and no tensor.

`samples --json`; counts are of samples, `files` and `bytes` count each file once:
```
{"why": where the samples were found, "drafter": {"width": what it takes, "slots": how many at least},
 "samples": [{"path", "size", "format", "tokens", "supervised": n | null, "slots", "width", "dtype": "BF16",
              "warnings": [...], "error": "" | one line, "kind": "" | the error without its numbers, "empty"}],
 "totals": {"files", "bytes", "tokens", "supervised", "readable", "unreadable", "empty", "without_mask",
            "unsupervised", "by_format": {name: n}, "by_dtype", "by_slots", "by_width",
            "errors": [{"kind", "path", "error", "count"}]}}
```
`samples --against PATH --json`:
```
{"comparisons": [{"ours": {"path", "format", "tokens", "dtypes", "claimed"}, "theirs": {...},
                  "aligned": {"ours": first token, "theirs": first token, "tokens": n}, "tolerance",
                  "matches": [{"theirs": slot, "ours": slot | null, "kind": "equal|alike|scaled|none", "clear",
                               "best": PAIR, "second": PAIR | null, "shifts": {"-1": cosine, "0", "1"}}],
                  "pairs": [PAIR, ...], "ordering": [1,2,3] | null, "verdict": [sentence, ...]}],
 "failed": [{"ours", "theirs", "error"}], "orderings": [{"ordering": [...] | null, "samples": n}],
 "not_compared": n, "only_ours": [path], "only_theirs": [path], "unreadable": [{"path", "error"}]}
```
with PAIR = `{"ours", "theirs", "shift", "rows", "norm_ratio", "cosine", "equal_rows", "close_rows", "max_difference",
"first_differing", "bad_rows"}`; those after `cosine` are null where only spread rows were compared.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from drafter.safe import safe
from eagle3_tui.text_report import size, table

Json = dict[str, Any]
NAME_WIDTH = 48
MOST_NAMED = 10


# survey


def survey(data: Json) -> str:
    """A line a sample, then what they are together and the first error of each kind."""
    root = _common([one["path"] for one in data["samples"]])
    head = ["name", "format", "tokens", "supervised", "slots", "width", "dtype", "size", "problem"]
    rows = [head, *(_row(one, root) for one in data["samples"])]
    totals = data["totals"]
    lines = [f"samples {safe(root)} ({safe(data['why'])})", "", *table(rows, left=(0, 1, 6, 8)), "", *_totals(totals)]
    lines += _misfits(data)
    if totals["errors"]:
        lines += ["", "first error of each kind"]
        lines += [f"  {error['count']} x {safe(error['error'])}" for error in totals["errors"]]
    return "\n".join(lines) + "\n"


def _row(one: Json, root: str) -> list[str]:
    name = safe(_below(one["path"], root), NAME_WIDTH)
    if one["error"]:
        return [name, "-", "-", "-", "-", "-", "-", size(one["size"]), _problem(one)]
    supervised = "no mask" if one["supervised"] is None else str(one["supervised"])
    shape = [str(one["tokens"]), supervised, str(one["slots"]), str(one["width"])]
    return [name, _short(one["format"]), *shape, safe(one["dtype"]), size(one["size"]), _problem(one)]


def _problem(one: Json) -> str:
    if one["error"]:
        return safe(one["error"].replace(f"; in {one['path']}", ""))
    unused = [f"0 of {one['tokens']} tokens supervised"] if one["supervised"] == 0 else []
    return safe("; ".join([*unused, *one["warnings"]]))


def _short(name: str) -> str:
    return safe(name.partition(" (")[0])


def _totals(totals: Json) -> list[str]:
    count = totals["readable"] + totals["unreadable"]
    lines = [
        f"{_many(count, 'sample')} in {_many(totals['files'], 'file')}, {size(totals['bytes'])}: "
        f"{_many(totals['tokens'], 'token')}, {totals['supervised']} supervised",
        f"{totals['readable']} readable, {totals['unreadable']} unreadable, {totals['empty']} of them empty",
        f"{totals['without_mask']} without a loss mask, {totals['unsupervised']} without a supervised token",
    ]
    named = (("format", "by_format"), ("dtype", "by_dtype"), ("slots", "by_slots"), ("width", "by_width"))
    for name, key in named:
        counts = ", ".join(f"{_short(value)} in {n}" for value, n in totals[key].items())
        lines += [f"{name}: {counts}"] if counts else []
    return lines


def _misfits(data: Json) -> list[str]:
    """How many samples the open drafter cannot take, by their width and number of slots."""
    drafter, readable = data["drafter"], [one for one in data["samples"] if not one["error"]]
    narrow = sum(one["width"] != drafter["width"] for one in readable)
    few = sum(one["slots"] < drafter["slots"] for one in readable)
    lines = [f"{_many(narrow, 'sample')} not {drafter['width']} wide, as the drafter takes"] if narrow else []
    return lines + ([f"{_many(few, 'sample')} with fewer than {drafter['slots']} slots, as fc takes"] if few else [])


# comparisons


def comparisons(data: Json) -> str:
    """Each pair of recordings with its verdict and numbers; then what they have in common and what has no partner."""
    lines: list[str] = []
    for one in data["comparisons"]:
        lines += [*_comparison(one), ""]
    if len(data["comparisons"]) + len(data["failed"]) > 1:
        lines += [*_together(data), ""]
    lines += [f"not compared: {safe(f['theirs'])}: {safe(f['error'])}" for f in data["failed"]]
    if data["not_compared"]:
        lines.append(f"{_many(data['not_compared'], 'more pair')} not compared; say how many with --most")
    lines += _unpaired("ours", data["only_ours"]) + _unpaired("theirs", data["only_theirs"])
    lines += [f"unreadable: {safe(one['error'])}" for one in data["unreadable"][:MOST_NAMED]]
    if len(data["unreadable"]) > MOST_NAMED:
        lines.append(f"and {len(data['unreadable']) - MOST_NAMED} more unreadable")
    return "\n".join(lines).rstrip("\n") + "\n"


def _comparison(one: Json) -> list[str]:
    lines = [f"{side:6} {safe(one[side]['path'])} ({_short(one[side]['format'])})" for side in ("ours", "theirs")]
    head = ["theirs", "ours", "kind", "cosine", "norm ratio", "equal", "close", "rows", "largest difference", "shift"]
    rows = [head, *(_match(match) for match in one["matches"])]
    return [*lines, *(f"  {safe(said)}" for said in one["verdict"]), *(f"  {line}" for line in table(rows, left=(2,)))]


def _match(match: Json) -> list[str]:
    best = match["best"]
    return [
        str(match["theirs"]),
        str(best["ours"]),
        match["kind"] if match["clear"] or match["kind"] == "none" else f"{match['kind']}?",
        _number(best["cosine"], ".6f"),
        _number(best["norm_ratio"], ".4f"),
        _number(best["equal_rows"], "d"),
        _number(best["close_rows"], "d"),
        str(best["rows"]),
        _number(best["max_difference"], ".4g"),
        f"{best['shift']:+d}" if best["shift"] else "0",
    ]


def _together(data: Json) -> list[str]:
    total = len(data["comparisons"])
    lines = []
    for found in data["orderings"]:
        slots = found["ordering"]
        said = "no ordering of ours" if slots is None else f"[{','.join(map(str, slots))}] of ours"
        lines.append(f"{found['samples']} of {_many(total, 'pair')}: theirs is {said}")
    return lines


def _unpaired(side: str, paths: list[str]) -> list[str]:
    if not paths:
        return []
    lines = [f"{_many(len(paths), 'sample')} of {side} without a partner:"]
    lines += [f"  {safe(path)}" for path in paths[:MOST_NAMED]]
    return lines + ([f"  and {len(paths) - MOST_NAMED} more"] if len(paths) > MOST_NAMED else [])


# words


def _common(paths: list[str]) -> str:
    """The deepest folder that holds all."""
    folders = {str(Path(path).parent) for path in paths}
    try:
        return os.path.commonpath(folders) if folders else ""
    except ValueError:  # relative and absolute ones
        return ""


def _below(path: str, root: str) -> str:
    return str(Path(path).relative_to(root)) if root and Path(path).is_relative_to(root) else path


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
