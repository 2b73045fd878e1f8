"""Results as plain text for people: the JSON of a command in, lines out. Ratios are made here, from the counts.

Every string may come from a file, so each passes `safe` on its way out. Knows no session and no tensor.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from drafter.safe import safe

Json = dict[str, Any]
MOST_SKIPPED, MOST_WARNINGS = 3, 20  # lines of each in a report; the JSON has every one


# score


def score(data: Json, rows: int | None = None) -> str:
    """One line an ordering, best first, and what follows from it. `rows` is how many of each sample were asked for."""
    place, samples = data["checkpoint"], data["samples"]
    lines = [
        f"checkpoint {safe(place['path'])}: {safe(place['dialect'])}, fc takes {place['fc_inputs']} states",
        f"{_many(len(samples), 'sample')}{_left_out(data)}, {sum(s['tokens'] for s in samples)} tokens, "
        f"mask {data['mask']}, view {safe(data['view'])}, {safe(data['device'])} {safe(data['dtype'])}",
        "",
        *_score_table(data),
        "",
        "* best   ~ not told apart from it by the rows   c configured   t trained",
        "step k: right / rows that count; length: mean accepted drafts + 1; walk: tokens a round, as a server logs",
        *(["all rows are pooled; of samples: the mean of the samples' own step 0"] if _several(data) else []),
        "",
        _no_row(data, rows) if data["best"] is None else _verdict(data),
    ]
    if data["coverage"] is not None:
        lines.append(f"in the draft vocabulary: {_share(data['coverage'])} of the tokens to predict")
    lines += _against_verifier(data)
    lines += [f"no {safe(name)}: {safe(why)}" for name, why in data["reasons"].items() if name != "configured"]
    return _text([*lines, *_score_warnings(data)])


def _several(data: Json) -> bool:
    return len(data["samples"]) > 1


def _left_out(data: Json) -> str:
    skipped = data.get("skipped", [])
    return f" ({len(skipped)} more could not be scored)" if skipped else ""


def _against_verifier(data: Json) -> list[str]:
    """Step 0 of the best ordering against what the target itself would have said, where that is known."""
    found = [o for o in data["orderings"] if o["slots"] == data["best"]]
    metrics = {name: m for name, m in found[0]["steps"][0].items() if name != "next_token" and m} if found else {}
    if not metrics:
        return []
    said = ", ".join(f"{safe(name)} {_share(metric['marginal'])}" for name, metric in metrics.items())
    by = data.get("verifier")
    return [
        f"step 0 of {_slots(data['best'])} against the verifier: {said}",
        *([f"verifier: {safe(by)}"] if by else []),
    ]


def _score_warnings(data: Json) -> list[str]:
    lines = [f"switched: {safe(name)} {safe(value)}" for name, value in data.get("switched", {}).items()]
    lines += skipped_lines(data.get("skipped", []))
    found = [*_sample_warnings(data["samples"]), *(line for s in data["samples"] for line in _sample_faults(s))]
    more = len(found) - MOST_WARNINGS
    lines += [*found[:MOST_WARNINGS], *([f"... {more} more warnings: --json has every one"] if more > 0 else [])]
    return [*lines, *(f"warning: {safe(text)}" for text in data.get("warnings", []))]


def _sample_faults(sample: Json) -> list[str]:
    lines = [f"{safe(sample['path'])}: {line}" for line in _contradictions(sample)]
    for slot in sample["slots"]:
        if slot.get("bad_rows"):
            where = f"slot {slot['index']} of {safe(sample['path'])}"
            lines.append(f"warning: {where} has {slot['bad_rows']} rows that are not finite")
    return lines


def skipped_lines(skipped: Sequence[Json]) -> list[str]:
    """The first samples that could not be scored, with the reason, and how many more there are."""
    lines = [f"skipped: {safe(one['path'])}: {safe(one['error'])}" for one in skipped[:MOST_SKIPPED]]
    more = len(skipped) - MOST_SKIPPED
    return [*lines, *([f"skipped: {more} more: --json has every one"] if more > 0 else [])]


def _sample_warnings(samples: Sequence[Json]) -> list[str]:
    """Each warning once, with the first sample that has it: a folder's samples often have the same."""
    having: dict[str, list[str]] = {}
    for sample in samples:
        for text in sample.get("warnings", []):
            having.setdefault(text, []).append(sample["path"])
    lines = []
    for text, paths in having.items():
        others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        lines.append(f"warning: {safe(paths[0])}{others}: {safe(text)}")
    return lines


def _score_table(data: Json) -> list[str]:
    depth, several = data["depth"], _several(data)
    own = ["of samples"] if several else []
    head = ["", "slots", "step 0", "", *own, *(f"step {k}" for k in range(1, depth)), "length", "walk"]
    rows = []
    for ordering in ranked(data):
        steps = [step["next_token"]["marginal"] for step in ordering["steps"]]
        lengths = ordering["accept_length"]
        rows.append(
            [
                marks(data, ordering["slots"]),
                _slots(ordering["slots"]),
                percent(steps[0]),
                f"{steps[0]['hits']}/{steps[0]['total']}",
                *([_percent_of(ordering["mean_of_samples"]["accuracy"])] if several else []),
                *(percent(step) for step in steps[1:]),
                _number(lengths["mean"], 2),
                _number(lengths["walk"]["length"], 2),
            ]
        )
    return table([head, *rows], left=(0, 1))


def ranked(data: Json) -> list[Json]:
    """The orderings, best first; the best itself leads those of equal accuracy."""

    def key(ordering: Json) -> tuple[float, bool]:
        count = ordering["steps"][0]["next_token"]["marginal"]
        return -(count["hits"] / count["total"] if count["total"] else 0.0), ordering["slots"] != data["best"]

    return sorted(data["orderings"], key=key)


def marks(data: Json, slots: list[int]) -> str:
    """Whether an ordering is the best, not told apart from it, configured, trained."""
    found = [
        "*" if slots == data["best"] else "~" if slots in data["tied_with_best"] else " ",
        "c" if slots == data["configured"] else " ",
        "t" if slots == data["trained"] else " ",
    ]
    return "".join(found)


def _verdict(data: Json) -> str:
    """One sentence: does the config select the best ordering?"""
    best, configured = data["best"], data["configured"]
    best_said = f"{_slots(best)}: {_accuracy(data, best)}"
    if configured is None:
        why = safe(data["reasons"].get("configured", "unknown"))
        return f"The best ordering is {best_said}. What the config selects cannot be told: {why}."
    said = f"the config selects slots {_slots(configured)}{_depths(data, configured)}"
    own = _accuracy(data, configured)
    if configured == best:
        return f"Of these orderings {said}, the best: {own}."
    if configured in data["tied_with_best"]:
        return f"Of these orderings {said}: {own}, which the rows cannot tell from the best, {best_said}."
    return f"{said[0].upper()}{said[1:]}: {own}; the best ordering is {best_said}."


def _no_row(data: Json, most: int | None) -> str:
    """Why nothing can be said, and what to ask for instead."""
    samples = data["samples"]
    unsupervised = data["mask"] != "all" and all(sample.get("supervised") == 0 for sample in samples)
    tokens = sum(sample["tokens"] for sample in samples)
    why = f"none of the {tokens} tokens read is supervised" if unsupervised else f"mask {data['mask']} leaves none"
    others = ["--mask all", "--supervised all"] if unsupervised else ["another --mask"]
    if data["mask"] == "all":
        why, others = f"{tokens} tokens are too few", ["longer samples"]
    if most is not None:
        why, others = f"{why} (--rows {most})", ["more --rows", *others[: data["mask"] != "all"]]
    return f"No row counts, so nothing can be said: {why}; try {' or '.join(others)}."


def _depths(data: Json, slots: list[int]) -> str:
    claimed = [s["claimed"] for s in data["samples"][0]["slots"]] if data["samples"] else []
    labels = [claimed[i] if i < len(claimed) else None for i in slots]
    return f" (depths {safe(','.join(map(str, labels)))})" if all(labels) else ""


def _accuracy(data: Json, slots: list[int]) -> str:
    found = [o for o in data["orderings"] if o["slots"] == slots]
    return percent(found[0]["steps"][0]["next_token"]["marginal"]) if found else "not scored"


# step


def step(data: Json) -> str:
    """One token: what was fed, the truth, the ranked predictions, the chain."""
    truth = data["truth"]
    lines = [
        f"token {data['at']} (row {data['row']}), slots {_slots(data['ordering'])}, view {safe(data['view'])}",
        f"sample {safe(data['sample'])}",
        f"fed    {_token(data['input'])}",
        f"truth  {_truth(truth, data['truth_rank'])}",
        "",
        *table(
            [
                ["rank", "logit", "prob", "draft id", "id", "token"],
                *(
                    [
                        str(p["rank"]),
                        _number(p["logit"], 3),
                        _number(p["prob"], 4),
                        str(p["draft_id"]),
                        str(p["id"]),
                        safe(p["text"]),
                    ]
                    for p in data["predictions"]
                ),
            ],
            left=(5,),
        ),
        "",
        *table([["step", "", "token", "truth"], *_chain(data["chain"])], left=(1, 2, 3)),
        "",
        f"accept length {data['accept_length']} (with the bonus token)",
        *(f"warning: {safe(text)}" for text in data["warnings"]),
    ]
    return _text(lines)


def _truth(truth: Json | None, rank: int | None) -> str:
    if truth is None:
        return "none: past the end of the sample"
    where = f"rank {rank}" if rank is not None else "not in the draft vocabulary"
    return f"{_token(truth)}, {where}"


def _chain(chain: list[Json]) -> list[list[str]]:
    rows = []
    for k, link in enumerate(chain):
        truth = link["truth"]
        mark = "-" if truth is None else "=" if link["hit"] else "x"
        rows.append([str(k), mark, _token(link), "past the end" if truth is None else _token(truth)])
    return rows


def _token(token: Json) -> str:
    return f"{safe(token['text'])} ({token['id']})"


# show


def show(data: Json) -> str:
    """Checkpoints, config with evidence, tensors, vocab map, target, tokenizer and sample."""
    facts = data["checkpoint"]
    parts = [
        ("checkpoints", _checkpoints(data["checkpoints"])),
        (f"checkpoint {safe(facts['path'])}", _summary(facts)),
        ("config", _config(facts["config"])),
        ("where the configs disagree (config.json is what is configured)", _disagreements(facts["disagreements"])),
        ("tensors", _tensors(facts)),
        ("vocab map", _vocab(facts["vocab_map"])),
        ("target", _target(data["target"])),
        ("tokenizer", [safe(data["tokenizer"]["why"])]),
        ("samples", [f"{data['samples']['count']} ({safe(data['samples']['why'])})"]),
    ]
    if data["sample"] is not None:
        parts.append((f"sample {safe(data['sample']['path'])}", _sample(data)))
    parts.append(("warnings", [safe(text) for text in data.get("warnings", [])]))
    lines = [line for title, body in parts if body for line in (title, *(f"  {part}".rstrip() for part in body), "")]
    return _text(lines[:-1])


def _checkpoints(found: list[Json]) -> list[str]:
    rows = [
        [
            "*" if f["picked"] else "",
            safe(f["name"]),
            size(f["bytes"]) if f["bytes"] else "-",
            safe(", ".join([*f["links"], *([f["state"]] if f["state"] else [])])),
        ]
        for f in found
    ]
    return table(rows, left=(0, 1, 3))


def _summary(facts: Json) -> list[str]:
    lines = [
        f"{safe(facts['dialect'])} dialect, {safe(facts['producer'])}, {safe(facts['architecture'])}",
        f"fc takes {facts['fc_inputs']} states of {facts['target_hidden_size']}, hidden {facts['hidden_size']}, "
        f"draft vocabulary {facts['draft_vocab_size']} of {facts['vocab_size']}",
    ]
    depths = facts["aux_depths"]
    lines.append(f"layer ids select depths {_slots(depths)}" if depths else "the config names no layer ids")
    lines += [f"validation {safe(name)}: {safe(value)}" for name, value in facts["metrics"].items()]
    return lines + [f"warning: {safe(warning)}" for warning in facts["warnings"]]


def _config(config: Json) -> list[str]:
    rows = [["field", "value", "from"]]
    for name, field in config.items():
        if field["source"] is None:
            evidence = ""
        elif field["source"] == "default":
            evidence = f"default: {field['note'] or field['key']}"
        else:
            evidence = f"{field['source']}: {field['key']}" + (f" ({field['note']})" if field["note"] else "")
        rows.append([safe(name), safe(_value(field["value"])), safe(evidence)])
    return table(rows, left=(0, 1, 2))


def _value(value: Any) -> str:
    """One field for people: `default, base 10000` for RoPE, `-` for what is not there."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    if not isinstance(value, dict):
        return str(value)
    rest = {k: v for k, v in value.items() if k not in ("type", "base") and v is not False}
    head = [f"{value['type']}, base {value['base']:g}"] if {"type", "base"} <= value.keys() else []
    return ", ".join([*head, *(f"{k} {v}" for k, v in rest.items())])


def _disagreements(found: list[Json]) -> list[str]:
    lines = []
    for item in found:
        values = [f"{safe(source)} {safe(value)}" for source, value in item.items() if source != "field"]
        lines.append(f"{safe(item['field'])}: {', '.join(values)}")
    return lines


def _tensors(facts: Json) -> list[str]:
    if not facts["tensors"]:
        return ["none: no weights"]
    rows = [["name", "dtype", "shape", "size", "written as"]]
    for t in facts["tensors"]:
        written = "" if t["written"] == t["name"] else safe(t["written"])
        rows.append([safe(t["name"]), safe(t["dtype"]), _shape(t["shape"]), size(t["bytes"]), written])
    lines = table(rows, left=(0, 1, 2, 4))
    lines += [f"missing: {safe(name)} (from {safe(source)})" for name, source in facts["missing"].items()]
    return lines + [f"not used: {safe(name)} ({safe(why)})" for name, why in facts["unused"].items()]


def _vocab(vocab: Json) -> list[str]:
    lines = [f"read as {safe(vocab['reading'])}" if vocab["reading"] else "not read"]
    lines += [safe(test) for test in vocab["tests"]]
    return lines + ([f"warning: {safe(vocab['warning'])}"] if vocab["warning"] else [])


def _target(target: Json) -> list[str]:
    if target["path"] is None:
        return [f"none: {safe(target['why'])}"]
    head = target["head"] if isinstance(target["head"], str) else "yes" if target["head"] else "no"
    return [
        f"{safe(target['path'])} ({safe(target['why'])})",
        f"{safe(target['model_type'])}, {target['num_layers']} layers, hidden {target['hidden_size']}, "
        f"vocabulary {target['vocab_size']}",
        f"embedding {'yes' if target['embed'] else 'no'}, final norm {'yes' if target['norm'] else 'no'}, head {head}",
    ]


def _sample(data: Json) -> list[str]:
    sample = data["sample"]
    supervised = "no loss mask" if sample["supervised"] is None else f"{sample['supervised']} supervised"
    rows = [["slot", "claimed", "by", "probed", "mean norm", "bad rows"]]
    rows += [
        [
            str(slot["index"]),
            safe(slot["claimed"] or "?"),
            safe(slot["claimed_by"] or "nobody"),
            safe(slot["probed"] or "?"),
            _number(slot["mean_norm"], 2),
            str(slot["bad_rows"]),
        ]
        for slot in sample["slots"]
    ]
    configured, trained = data["configured"], data["trained"]
    lines = [f"{safe(sample['format'])}, {sample['tokens']} tokens, {supervised}", *table(rows, left=(0, 1, 2, 3))]
    if configured:
        lines.append(f"configured: slots {_slots(configured)}: {safe(data['configured_why'])}")
    else:
        lines.append(f"configured: unknown: {safe(data['configured_why'])}")
    if trained:
        lines.append(f"trained: slots {_slots(trained)}, by the training's config")
    lines += [*_contradictions(sample), *_facts(sample["slots"])]
    return lines + [f"warning: {safe(warning)}" for warning in sample["warnings"]]


def _facts(slots: list[Json]) -> list[str]:
    """What was measured, a line each, and a column a slot."""
    facts = [dict(slot.get("facts", [])) for slot in slots]
    names = list(dict.fromkeys(name for slot in facts for name in slot))
    if not names:
        return []
    rows = [[safe(name), *(safe(slot.get(name, "-")) for slot in facts)] for name in names]
    return table([["measured", *(f"slot {slot['index']}" for slot in slots)], *rows], left=(0,))


def _contradictions(sample: Json) -> list[str]:
    words = {"bad": "contradiction", "warn": "doubt"}
    return [f"{words[one['severity']]}: {safe(one['text'])}" for one in sample.get("contradictions", [])]


# Words and columns


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """Aligned columns two spaces apart; those in `left` to the left, others to the right."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell + " " * (width - _width(cell)) if i in left else " " * (width - _width(cell)) + cell
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _width(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def percent(count: Json) -> str:
    return f"{100 * count['hits'] / count['total']:.1f} %" if count["total"] else "-"


def _percent_of(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"


def size(count: int) -> str:
    """`4.7 GB`; decimal units, as disks and model pages count."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def _share(count: Json) -> str:
    return f"{percent(count)} ({count['hits']}/{count['total']})"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _slots(slots: Sequence[int]) -> str:
    return ",".join(map(str, slots))


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
