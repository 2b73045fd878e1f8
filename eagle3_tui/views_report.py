"""What the command `views` found, as text: its JSON in, lines out.

```
{"checkpoint": as in `score --json`, "depth": K, "mask", "samples": how many were scored,
 "skipped": [{"path", "error"}], "target": {"family", "layers": n | null},
 "trained": {"slots": [0,1,2], "why", "depths": [0,3,16], SCORE},
 "views": [{"name": "sglang@0.5.9 .. 0.5.10", "versions": [...], "refused": why it would not load | null,
   "captures": depths in the server's order | null, "ids": of the config | null (default), "ids_from": key,
   "slots": the recorded slots that are captured | null, "why", SCORE, "against_trained": COST | null,
   "cuda_graphs": null | {"captures", "slots", "why", SCORE},   (replayed steps capture other depths, SGLang to 0.5.10)
   "differences": [{"name", "trained", "served", "why", "cure", "curable": by a key, "computed",
                    "alone": {SCORE}, "together": {SCORE}, "against_before": COST | null}],
   "cause": name of the first difference that clearly costs | null, "sentence", "notes": [...]}],
 "warnings": [...]}
```
SCORE: "accuracy": {"hits", "total"} | null (step 0, next_token), "accept_length": as in `score --json` | null,
"problem": why it could not be computed | null. `alone` is the trained view with this difference only, `together` with
it and all before it; a view that is refused has its differences without scores. COST: "p_accuracy", "p_length" (exact
paired tests of step 0 and of the accept length), "verdict": "costs", "gains" or "cannot be told apart (p > 0.05)".
"""

from __future__ import annotations

import textwrap
from typing import Any

from drafter.safe import safe

Json = dict[str, Any]
WIDTH = 118


def views(data: Json) -> str:
    """The table of views, then each view's differences."""
    seen: set[str] = set()
    described = [line for view in data["views"] for line in _view(view, seen)]
    return "\n".join([*_head(data), "", *_table(data), *described]) + "\n"


def _head(data: Json) -> list[str]:
    trained, target = data["trained"], data["target"]
    layers = "? layers" if target["layers"] is None else f"{target['layers']} layers"
    return [
        f"checkpoint {safe(data['checkpoint']['path'])}",
        f"target     {safe(target['family'])}, {layers}",
        f"samples    {data['samples']}, mask {data['mask']}, {data['depth']} draft steps",
        f"trained    slots {_many(trained['slots'])} ({safe(trained['why'])})",
        *(f"warning: {safe(warning)}" for warning in data["warnings"]),
    ]


def _table(data: Json) -> list[str]:
    width = max([24, *(len(view["name"]) + 2 for view in data["views"])])
    lines = [_row("view", "slots", "step 0", "length", "walk", "against trained", width)]
    lines.append(_score_row("trained", data["trained"], "", width))
    for view in data["views"]:
        cost = view["against_trained"]
        said = "would not load" if view["refused"] else "not computed" if cost is None else _verdict(cost)
        lines.append(_score_row(view["name"], view, said, width))
        if view["cuda_graphs"]:
            replayed = view["cuda_graphs"]
            said = "" if replayed["accuracy"] else f"depths {_many(replayed['captures'])}, not all recorded"
            lines.append(_score_row("  in CUDA graphs", replayed, said, width))
    return lines


def _score_row(name: str, scored: Json, said: str, width: int) -> str:
    slots = "-" if scored["slots"] is None else _many(scored["slots"])
    return _row(name, slots, *_numbers(scored), said, width)


def _numbers(scored: Json | None) -> tuple[str, str, str]:
    if scored is None or scored["accuracy"] is None:
        return "-", "-", "-"
    accuracy, lengths = scored["accuracy"], scored["accept_length"]
    ratio = accuracy["hits"] / accuracy["total"] if accuracy["total"] else None
    return _number(ratio, 3), _number(lengths["mean"], 2), _number(lengths["walk"]["length"], 2)


def _row(name: str, slots: str, ratio: str, length: str, walk: str, said: str, width: int) -> str:
    return f"{safe(name):<{width}}{slots:<10}{ratio:>7}{length:>8}{walk:>7}  {said}".rstrip()


def _verdict(cost: Json) -> str:
    least = min(cost["p_accuracy"], cost["p_length"])
    return cost["verdict"] if "p >" in cost["verdict"] else f"{cost['verdict']} (p = {least:.1g})"


def _view(view: Json, seen: set[str]) -> list[str]:
    """One view; the reasons in `seen` stand above already, and are added to."""
    lines = ["", *_wrapped(view["sentence"], "")]
    for one in view["differences"]:
        lines += _difference(one, seen)
    if view["slots"] is None and not view["refused"] and not any(d["name"] == "ordering" for d in view["differences"]):
        lines += _wrapped(f"ordering: {view['why']}", "  ")
    return lines + [line for note in view["notes"] for line in _wrapped(f"note: {note}", "  ")]


def _difference(one: Json, seen: set[str]) -> list[str]:
    said = "" if one["computed"] or "together" not in one else " (not computed)"
    lines = _wrapped(f"{one['name']}: {one['trained']} -> {one['served']}{said}", "  ")
    if one["computed"] and "together" in one:
        alone, together = _numbers(one["alone"]), _numbers(one["together"])
        said = f"alone {alone[0]}, length {alone[1]}; with those before it {together[0]}, length {together[1]}"
        cost = one["against_before"]
        lines += _wrapped(f"{said}{': ' + _verdict(cost) if cost else ''}", "    ")
    for text in (one["why"], f"cure: {one['cure']}"):
        lines += [] if f"{one['name']} {text}" in seen else _wrapped(text, "    ")
        seen.add(f"{one['name']} {text}")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    wrapped = textwrap.wrap(safe(text), WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
    return [f"{indent}{'  ' if i else ''}{line}" for i, line in enumerate(wrapped)]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _many(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))
