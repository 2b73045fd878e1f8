"""What the command `serving` answers, as text: its JSON in, lines out.

`serving --json`; a part that was not asked for is null:
```
{"checkpoint": what `score --json` says of it,
 "flags": {flag: value, ..., "source": "flags|log"},
 "effective": {"server", "algorithm", "steps", "topk", "draft_tokens", "drafted", "verified", "max_accept_length",
               "tree_nodes", "varies", "refused", "conversion", "notes": [...],
               "overrides": [{"kind": "refused|wrong|changed|note", "what", "asked", "effective", "why", "source"}]},
 "log": {"engine", "version", "source", "lines", "accept_length": {"value", "pooled", "count", "mean", "median", "min",
         "max"}, "accept_rate", "throughput", "running": {"count", "mean", ...} | null, "drafts_accepted",
         "per_position": [...], "first_quarter", "last_quarter", "clamped", "definitions": {...}, "warnings": [...],
         "points": [{"line", "time", "length"}]},
 "expectation": {"base_speed", "points": [{"speed", "length", "drafts"}], "round_cost", "break_even",
                 "max_accept_length", "speed_at_max", "at": CHOICE | null,
                 "model": {"fixed", "per_draft", "words", "measured"} | null, "why_no_model",
                 "choices": [CHOICE = {"drafts", "length", "speed", "low", "high"}], "best": [drafts]},
 "why_no_expectation",
 "offline": {"trained": CURVE | null, "served": CURVE | null, "why_not_served", "warnings": [...],
             "groups": [{"name", "kind": "held-out|training|unknown", "trained", "served", "why_not_served"}]} | null,
 "verdict": {"kind", "sentence", "reasons": [...], "missing": [...]}}
```
with CURVE = `{"name", "samples", "rows", "joint": [all of the first i right], "walk": of rounds, "drafts", "length" at
these drafts}`;
`speed` in tokens per second of one request; costs in steps of the server without drafts; lengths with the bonus token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drafter.safe import safe
from eagle3_tui.text_report import table

Json = dict[str, Any]
_DECAY = 0.1  # of the accepted drafts: less is what other prompts make


def serving(data: Json) -> str:
    """A paragraph for each part that was asked for, the verdict last."""
    parts: list[tuple[str, Callable[[Json], list[str]]]] = [
        ("effective", lambda made: effective(made, data["flags"])),
        ("log", log),
        ("expectation", expectation),
        ("offline", offline),
        ("verdict", verdict),
    ]
    lines: list[str] = []
    for name, written in parts:
        if data[name] is not None:
            lines += [*([""] if lines else []), *written(data[name])]
    if data["why_no_expectation"]:
        lines += [*([""] if lines else []), f"speed: {data['why_no_expectation']}"]
    return "\n".join(safe(line) for line in lines) + "\n"


def effective(made: Json, flags: Json) -> list[str]:
    """What a round is, then what is not as asked, the worst first."""
    of = ", as the log tells them" if flags["source"] == "log" else ""
    lines = [f"flags of {made['server']}{of}: {made['algorithm']}", f"  {_round(made)}"]
    for one in made["overrides"]:
        change = f"{one['asked']} -> {one['effective']}" if one["asked"] != one["effective"] else one["asked"]
        lines += [f"  {one['kind']}: {one['what']} {change}", f"    {one['why']}", f"    rule: {one['source']}"]
    lines += [f"  {made['conversion']}"] if made["conversion"] else []
    lines += [f"  note: {note}" for note in made["notes"]]
    ignored = len(flags.get("ignored", ()))
    return [*lines, f"  {ignored} other flag(s) say nothing about drafting"] if ignored else lines


def _round(made: Json) -> str:
    if made["max_accept_length"] is None:
        return "the server does not start with these flags" if made["refused"] else "how a round looks is not known"
    if made["topk"] > 1:
        what = f"a tree of {made['steps']} steps, topk {made['topk']}, {made['drafted']} of {made['tree_nodes']} nodes"
    else:
        what = f"a chain of {made['drafted']} draft(s)"
    most = f"accept length at most {made['max_accept_length']}"
    return f"a round: {what}, {made['verified']} tokens verified, {most}"


def log(data: Json) -> list[str]:
    length = data["accept_length"]
    who = f"{data['engine']} {data['version'] or '(version not told)'}"
    lines = [
        f"log of {who}: accept length {length['value']:.2f}",
        f"  {length['count']} x {data['source']} in {data['lines']} lines: "
        f"mean {length['mean']:.2f}, median {length['median']:.2f}, {length['min']:.2f} to {length['max']:.2f}",
        f"  {data['definitions']['length']}",
    ]
    if data["accept_rate"] is not None:
        lines.append(f"  accept rate {data['accept_rate']['mean']:.2f}: {data['definitions']['rate']}")
    if data["drafts_accepted"] is not None:
        lines.append(f"  drafts accepted {data['drafts_accepted']:.1%}")
    if data["per_position"]:
        rates = ", ".join(f"{p:.3f}" for p in data["per_position"])
        lines.append(f"  first i drafts right: {rates}")
    if data["throughput"] is not None:
        running = "" if data["running"] is None else f", {data['running']['mean']:.1f} requests at a time"
        lines.append(f"  {data['throughput']['median']:.1f} tokens/s (median){running}")
    lines += _course(data)
    if data["clamped"]:
        lines.append("  the log says that the server set the number of draft tokens itself (topk 1)")
    return [*lines, *(f"  note: {warning}" for warning in data["warnings"])]


def _course(data: Json) -> list[str]:
    """How the length moved from the first quarter to the last, where there are enough lines."""
    first, last = data["first_quarter"], data["last_quarter"]
    if first is None or last is None:
        return []
    moved = (last - first) / max(first - 1, 0.01)
    word = "falls" if moved < -_DECAY else "rises" if moved > _DECAY else "steady"
    return [f"  over time: {word}, {first:.2f} in the first quarter, {last:.2f} in the last"]


def offline(data: Json) -> list[str]:
    """The accept lengths of the samples, in the server's own definition: bonus counted, mean of the rows that count."""
    lines = ["offline accept length, bonus counted, mean of rows; walk is that of rounds, as a log counts:"]
    for found in (data["trained"], data["served"]):
        if found is not None:
            reach = f"with {found['drafts']} draft(s)"
            lines.append(
                f"  {found['name']}: {found['length']:.2f} {reach}, {found['rows']} rows of {found['samples']}"
            )
            lines.append(f"    first i drafts right: {', '.join(f'{p:.3f}' for p in found['joint'])}")
    lines += [f"  as served: not known: {data['why_not_served']}"] if data["why_not_served"] else []
    lines += _groups(data["groups"]) if len(data["groups"]) > 1 else []
    return [*lines, *(f"  warning: {warning}" for warning in data["warnings"])]


def _groups(groups: list[Json]) -> list[str]:
    """A row a group: users bring text that was not trained on, so that the held-out row is the one to expect."""
    rows = [["group", "of training", "trained", "walk", "served", "walk", "rows"]]
    for group in groups:
        curves = [group["trained"], group["served"]]
        numbers = [_length(one and one[key]) for one in curves for key in ("length", "walk")]
        rows.append([group["name"], group["kind"], *numbers, str(next((c["rows"] for c in curves if c), 0))])
    return [f"  {line}" for line in table(rows, left=(0, 1))]


def _length(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def expectation(data: Json) -> list[str]:
    point = data["points"][0]
    lines = [
        f"speed: {data['base_speed']:g} tokens/s without drafts, {point['speed']:g} at accept length "
        f"{point['length']:.2f}",
        f"  a round costs {data['round_cost']:.2f} steps of the server without drafts, so accept length "
        f"{data['break_even']:.2f} breaks even",
    ]
    if data["speed_at_max"] is not None:
        gain = data["speed_at_max"] / data["base_speed"]
        never = ": these flags can never pay" if gain < 1 else ""
        lines.append(
            f"  at most {data['max_accept_length']} with these flags: {data['speed_at_max']:.1f} tokens/s, "
            f"{gain:.2f} x{never}"
        )
    if data["at"] is not None:
        lines.append(_at(data["at"], data["base_speed"]))
    model = data["model"]
    if model is None:
        return [*lines, f"  other numbers of drafts: {data['why_no_model']}"]
    lines.append(f"  cost of a round: {model['fixed']:.2f} + {model['per_draft']:.3f} x drafts ({model['words']})")
    return [*lines, *_choices(data)]


def _at(at: Json, base: float) -> str:
    drafts = f" with {at['drafts']} draft(s)" if at["drafts"] else ""
    span = f" ({at['low']:.1f} to {at['high']:.1f})" if at["high"] - at["low"] > 0.05 else ""
    return (
        f"  at accept length {at['length']:.2f}{drafts}: {at['speed']:.1f} tokens/s{span}, {at['speed'] / base:.2f} x"
    )


def _choices(data: Json) -> list[str]:
    if not data["choices"]:
        return []
    best = " or ".join(map(str, data["best"]))
    open_ = ", depending on how the cost splits" if len(data["best"]) > 1 else ""
    rows = [["drafts", "length", "tokens/s", "range"]]
    for one in sorted(data["choices"], key=lambda choice: choice["drafts"]):
        span = f"{one['low']:.1f} to {one['high']:.1f}" if one["high"] - one["low"] > 0.05 else "-"
        rows.append([str(one["drafts"]), f"{one['length']:.2f}", f"{one['speed']:.1f}", span])
    return [f"  best number of drafts: {best}{open_}", *(f"  {line}" for line in table(rows, left=(3,)))]


def verdict(data: Json) -> list[str]:
    lines = [f"verdict ({data['kind']}): {data['sentence']}"]
    lines += [f"  {reason}" for reason in data["reasons"]]
    return [*lines, *(f"  missing: {what}" for what in data["missing"])]
