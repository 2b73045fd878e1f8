"""What the command `accept` found, as text: its JSON in, lines out. Knows no session and no tensor.

`accept --json`; a COUNT is `{"hits", "total"}`, a WALK `{"rounds", "tokens", "length"}`, a TOKEN `{"id", "text"}` (id
null where no numbers came out), a BROKEN `{"chains", "broken", "outside", "no_numbers"}`:
```
{"checkpoint": as `score`, "device", "dtype", "placement_reason", "switched": {...}, "warnings": [...],
 "ordering": [0,1,2], "view", "depth": K, "mask",
 "samples": [{"path", "format", "tokens", "accept_length": LENGTHS, "rows_that_differ"}],
 "lengths": the accept length of each row of the first sample, null where a row does not count,
 "skipped": [{"path", "error"}],
 "steps": [{"step", "teacher_forced": COUNT, "free_running": COUNT, "joint": COUNT, "conditional": COUNT}, ... K],
 "accept_length": {LENGTHS..., "mean_of_samples": {"mean", "samples"}, "free_running": {"mean", "rows_that_differ"}},
 "expected": {"conditional", "joint", "marginal": the usual mistake},
 "breaks": {BROKEN..., "whole", "places": {"broken", "outside"}, "ceiling": {"sum", "rows"},
            "steps": [{"step", BROKEN...}], "positions": [{"from", "to", BROKEN...}],
            "tokens": [{TOKEN..., "breaks", "reached", "instead": [{TOKEN..., "breaks"}]}],
            "outside_tokens": [{TOKEN..., "breaks"}]},
 "not_finite": rows that count and gave no numbers at step 0,
 "rounds": {"sample", "refresh", "refresh_words", "walk": WALK,
            "each": [{"known": {"at", TOKEN...}, "drafted": [{TOKEN..., "hit"}], "accepted", "bonus": TOKEN | null,
                      "emitted"}]},
 "conventions": {"rows": ..., number: what it counts, in words}}
```
with LENGTHS = `{"mean", "rows", "histogram": [rows with length 1, 2, ... K+1], "walk": WALK}`; the bonus token counts.
"""

from __future__ import annotations

import textwrap
from typing import Any

from drafter.safe import safe
from eagle3_tui.text_report import percent, table

Json = dict[str, Any]
BAR, WORD, WIDTH = 32, 14, 100  # columns of the longest bar, characters of a token, columns of words
MARKS = "= accepted, x the first wrong one, - not looked at"


def accept(data: Json, shown: int = 8, ascii: bool = False) -> str:
    """`shown` rounds; `ascii` draws the bars without block characters."""
    parts = [
        _head(data),
        _steps(data),
        _lengths(data, ascii),
        _expected(data),
        _breaks(data, ascii),
        _tokens(data["breaks"]),
        _rounds(data, shown),
        [f"warning: {safe(line)}" for line in _warnings(data)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(data: Json) -> list[str]:
    samples = data["samples"]
    many = f"{len(samples)} sample{'' if len(samples) == 1 else 's'}"
    tokens = sum(sample["tokens"] for sample in samples)
    switched = "".join(f", {safe(name)} {safe(value)}" for name, value in data["switched"].items())
    return [
        f"checkpoint {safe(data['checkpoint']['path'])}",
        f"{many}, {tokens} tokens, slots {_slots(data['ordering'])}, view {safe(data['view'])}{switched}, "
        f"{safe(data['device'])} {safe(data['dtype'])}",
        f"greedy chains of {data['depth']} drafts; mask {safe(data['mask'])}: {safe(data['conventions']['rows'])}",
    ]


def _slots(slots: list[int]) -> str:
    return ",".join(map(str, slots))


# By draft step


def _steps(data: Json) -> list[str]:
    names = ("teacher_forced", "free_running", "joint", "conditional")
    rows = [["step", "text fed", "", "own fed", "", "joint", "", "conditional", ""]]
    for step in data["steps"]:
        rows.append([str(step["step"]), *(cell for name in names for cell in _cells(step[name]))])
    words = data["conventions"]
    titles = zip(("text fed", "own fed", "joint", "conditional"), names, strict=True)
    return [
        "by draft step (right / rows):",
        *table(rows),
        *(line for title, name in titles for line in _said(f"  {title}: {words[name]}")),
    ]


def _cells(count: Json) -> list[str]:
    return [percent(count), f"{count['hits']}/{count['total']}"]


# Accept lengths


def _lengths(data: Json, ascii: bool) -> list[str]:
    lengths, words = data["accept_length"], data["conventions"]
    walk, mean = lengths["walk"], lengths["mean_of_samples"]
    lines = _said(f"accept length {_number(lengths['mean'])} over {lengths['rows']} rows: {words['accept_length']}")
    if mean["samples"] > 1:
        lines += _said(f"mean of {mean['samples']} samples {_number(mean['mean'])}: {words['mean_of_samples']}")
    differ = lengths["free_running"]["rows_that_differ"]
    same = "the same on every row" if not differ else f"other on {differ} rows, where rounding split a tie"
    lines.append(f"fed its own tokens {_number(lengths['free_running']['mean'])}: {same}")
    lines += _histogram(lengths["histogram"], ascii)
    tokens = f"{walk['tokens']} tokens in {walk['rounds']} rounds"
    return [*lines, *_said(f"walk {_number(walk['length'])} ({tokens}): {words['walk']}")]


def _said(text: str) -> list[str]:
    """A number and its convention, in as many lines as that takes."""
    indent = len(text) - len(text.lstrip())
    lines = textwrap.wrap(safe(text).strip(), WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2))
    return lines or [""]


def _histogram(histogram: list[int], ascii: bool) -> list[str]:
    most, rows = max(histogram), sum(histogram)
    if not rows:
        return []
    cells = [
        [str(n + 1), str(count), f"{100 * count / rows:.1f} %", bar(count, most, BAR, ascii)]
        for n, count in enumerate(histogram)
    ]
    return table([["length", "rows", "", ""], *cells], left=(3,))


def bar(value: int, most: int, width: int, ascii: bool) -> str:
    """`value` as a bar of at most `width` columns, `most` the full one; what is not 0 never vanishes."""
    if value <= 0 or most <= 0:
        return ""
    if ascii:
        return "#" * max(1, round(width * value / most))
    eighths = max(1, round(8 * width * value / most))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _expected(data: Json) -> list[str]:
    found, words = data["expected"], data["conventions"]
    lines = ["accept lengths that the accuracies imply:"]
    for name in ("conditional", "joint", "marginal"):
        lines += _said(f"  {_number(found[name])}: {words[f'expected.{name}']}")
    right, wrong = found["conditional"], found["marginal"]
    if right is not None and wrong is not None and abs(right - wrong) >= 0.005:
        lines.append(f"  multiplying marginals is off by {wrong - right:+.2f} here")
    return lines


# Breaks


def _breaks(data: Json, ascii: bool) -> list[str]:
    breaks = data["breaks"]
    if not breaks["chains"]:
        return ["breaks: no row counts for an accept length"]
    places, ceiling = breaks["places"], breaks["ceiling"]
    most = max(step["broken"] for step in breaks["steps"])
    rows = [["step", "reached", "break here", "", "outside", ""]]
    for step in breaks["steps"]:
        share = {"hits": step["broken"], "total": step["chains"]}
        cells = [str(step["step"]), str(step["chains"]), str(step["broken"]), percent(share), str(step["outside"])]
        rows.append([*cells, bar(step["broken"], most, BAR // 2, ascii)])
    return [
        f"breaks: {breaks['broken']} of {breaks['chains']} chains break, at {places['broken']} places of the text; "
        f"{breaks['whole']} are right to the end",
        *_said(
            f"  {breaks['outside']} of them at {places['outside']} places whose true token is outside of the draft "
            "vocabulary: no training repairs these"
        ),
        *_said(f"  {_number(ceiling['sum'] / ceiling['rows'])}: {data['conventions']['ceiling']}"),
        *table(rows, left=(5,)),
        *_positions(breaks["positions"]),
    ]


def _positions(positions: list[Json]) -> list[str]:
    """By how much text came before; nothing where all chains are in one bucket."""
    some = [part for part in positions if part["chains"]]
    if len(some) < 2:
        return []
    rows = [["rows", "chains", "break", "", "outside"]]
    for part in some:
        share = percent({"hits": part["broken"], "total": part["chains"]})
        span = f"{part['from']}-{part['to']}"
        rows.append([span, str(part["chains"]), str(part["broken"]), share, str(part["outside"])])
    return ["by the place of the row:", *table(rows, left=(0,))]


def _tokens(breaks: Json) -> list[str]:
    lines: list[str] = []
    if breaks["tokens"]:
        rows = [["breaks", "reached", "true token", "said instead"]]
        for one in breaks["tokens"]:
            said = ", ".join(f"{_token(other)} x{other['breaks']}" for other in one["instead"])
            rows.append([str(one["breaks"]), str(one["reached"]), _token(one), said])
        lines += ["tokens at which most chains break (reached: chains that came to it unbroken):"]
        lines += table(rows, left=(2, 3))
    if breaks["outside_tokens"]:
        named = ", ".join(f"{_token(one)} x{one['breaks']}" for one in breaks["outside_tokens"])
        lines += _said(f"outside of the draft vocabulary: {named}")
    return lines


def _token(token: Json) -> str:
    return "no numbers" if token["id"] is None else f"{safe(token['text'], WORD)} ({token['id']})"


# Rounds


def _rounds(data: Json, shown: int) -> list[str]:
    rounds = data["rounds"]
    walk, each = rounds["walk"], rounds["each"]
    lines = [
        f"rounds of {safe(rounds['sample'])}: {_number(walk['length'])} tokens a round ({walk['tokens']} in "
        f"{walk['rounds']}), refresh {safe(rounds['refresh'])}",
        *_said(f"  {rounds['refresh_words']}"),
    ]
    if rounds["refresh"] != "target":
        lines.append(f"  with refresh target: {_target_walk(data)}")
    if each and shown:
        rows = [["after token", "known", "accepted", f"drafts ({MARKS})", "bonus"]]
        rows += [_round(one) for one in each[:shown]]
        lines += table(rows, left=(1, 3, 4))
    return [*lines, *([f"... {len(each) - shown} more rounds"] if each and len(each) > shown else [])]


def _target_walk(data: Json) -> str:
    """The same text decoded as servers do."""
    path = data["rounds"]["sample"]
    walk = next((s["accept_length"]["walk"] for s in data["samples"] if s["path"] == path), None)
    return "-" if walk is None else f"{_number(walk['length'])} ({walk['tokens']} in {walk['rounds']})"


def _round(one: Json) -> list[str]:
    drafted, known, bonus = one["drafted"], one["known"], one["bonus"]
    said = []
    for k, token in enumerate(drafted):
        mark = "=" if token["hit"] else "x" if k == one["accepted"] and bonus is not None else "-"
        said.append(f"{mark}{'(no numbers)' if token['id'] is None else safe(token['text'], WORD)}")
    accepted = f"{one['accepted']}/{len(drafted)}" if drafted else "no row"
    after = "end of the run" if bonus is None else safe(bonus["text"], WORD)
    return [str(known["at"]), safe(known["text"], WORD), accepted, " ".join(said), after]


def _warnings(data: Json) -> list[str]:
    lines = list(data["warnings"])
    if data["not_finite"]:
        lines.append(f"NaN: {data['not_finite']} of the rows that count gave no numbers and are misses for that alone")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
