"""What the command `compare` found, as text: its JSON in, lines out. Knows no session and no tensor.

`compare PATH OTHER --json`:
```
{"ours": {"path", "dialect", "producer", "dtype", "bytes", "metrics", "warnings"}, "theirs": {...},
 "verdict": sentence, "verdict_kind": "same weights|same weights, fc moved|same weights, rounded|partly the same|
   one run|akin|unrelated|not comparable", "median_cosine": x | null, "differing": [field],
 "configs": [{"name": "configured|trained", "ours": file, "theirs": file,
   "fields": [{"field", "kind": "equal|same meaning|stated by one|different|origin",
               "ours": {"value", "written", "source", "key", "note"}, "theirs": {...}}],
   "keys": [{"key", "read": whether a field is made of it, "ours": value, "theirs": value (absent where not there)}]}],
 "tensors": {"compared": [{"name", "kind": "equal|equal in DTYPE|changed", "relative", "largest", "cosine", "changed",
                           "elements", "not_finite": [ours, theirs], "note", "ours": STORED, "theirs": STORED}],
             "not_compared": [{"name", "why", "only_in", "ours": STORED | null, "theirs": STORED | null}],
             "fc_blocks": [2,0,1] | null, "same_map": true | false | null},
 "outcomes": null | {"depth", "mask", "ours": SIDE, "theirs": SIDE, "step0": TABLE,
   "longer": {"equal", "ours", "theirs", "p"}, "samples": [{"path", "tokens", "step0": TABLE, "length": {...}}],
   "differing": [{"path", "row", "at", "input", "truth", "ours": {"id", "text"} | null, "theirs", "length"}]},
 "outcomes_problem": "" | one line, "warnings": [...]}
```
with STORED = `{"written", "dtype", "shape"}`, TABLE = `{"both", "only_ours", "only_theirs", "neither", "p"}` and SIDE =
`{"ordering", "ordering_why", "view", "placed", "warnings", "samples", "skipped", "step0": {"hits", "total"},
"length": {"mean", "rows", "histogram", "walk"}}`.

`compare PATH --json`: `{"path", "depth", "mask", "done", "epochs": [{"name", "path", "links", "state", "epoch",
"epoch_why", "step", "metrics", "problem", "step0", "length", ...}], "best": {"index", "name", "ranked_by", "rows",
"tied": [{"index", "name", "p"}]} | null, "series": {"name", "epoch", "step", "accuracy", "length", "walk",
"metrics": {name: [...]}}, "warnings": [...]}`.
"""

from __future__ import annotations

from typing import Any

from drafter.safe import safe
from eagle3_tui.text_report import percent, size, table

Json = dict[str, Any]
NAME_WIDTH, VALUE_WIDTH, MOST_KEYS, MOST_SAMPLES, MOST_METRICS = 48, 60, 40, 40, 6
RIGHT = "right: the drafted token is the sample's own; the verifier is not asked, so no target's final norm has a say"


# two checkpoints


def comparison(data: Json) -> str:
    """The verdict first, then configs, tensors, and what each predicts."""
    lines = [_side(name, data[name]) for name in ("ours", "theirs")]
    lines.append(f"verdict {safe(data['verdict'])}")
    for face in data["configs"]:
        lines += ["", *_face(face)]
    lines += ["", *_tensors(data["tensors"])]
    if data["outcomes"] is not None:
        lines += ["", *_outcomes(data["outcomes"])]
    if data["outcomes_problem"]:
        lines += ["", f"predictions not compared: {safe(data['outcomes_problem'])}"]
    lines += [f"warning: {name}: {safe(text)}" for name in ("ours", "theirs") for text in data[name]["warnings"]]
    return "\n".join([*lines, *(f"warning: {safe(text)}" for text in data["warnings"])]) + "\n"


def _side(name: str, side: Json) -> str:
    return f"{name:7} {safe(side['path'])} ({safe(side['producer'])}, {safe(side['dtype'])}, {size(side['bytes'])})"


def _face(face: Json) -> list[str]:
    what = {"configured": "what servers read", "trained": "what training wrote"}[face["name"]]
    lines = [f"config, {what}: {_file(face['ours'])} against {_file(face['theirs'])}"]
    kinds = (("different", "different"), ("stated by one", "stated by one"), ("origin", "written by others"))
    for kind, title in kinds:
        lines += [f"  {title}: {_field(field)}" for field in face["fields"] if field["kind"] == kind]
    alike = [field for field in face["fields"] if field["kind"] == "same meaning"]
    lines += [f"  same meaning: {_field(field)}" for field in alike if not _only_nested(field)]
    nested = [safe(field["field"]) for field in alike if _only_nested(field)]
    if nested:
        lines.append(f"  same meaning, in the layer's own table on one side: {', '.join(nested)}")
    equal = sum(field["kind"] == "equal" for field in face["fields"])
    lines.append(f"  equal: {_many(equal, 'field')}")
    return lines + _keys(face["keys"])


def _file(path: str | None) -> str:
    return safe(path) if path else "no file"


def _field(field: Json) -> str:
    return f"{safe(field['field'])} {_stated(field['ours'])} | {_stated(field['theirs'])}"


def _stated(stated: Json) -> str:
    value, written = _value(stated["value"]), _value(stated["written"])
    if stated["source"] == "default":
        why = "" if stated["note"] in ("", "not stated") else f": {safe(stated['note'], VALUE_WIDTH)}"
        return f"{value or 'nothing'} (not stated{why})"
    said = "" if written == value else f" = {written}"
    return f"{value} ({safe(stated['key'], VALUE_WIDTH)}{said})"


def _value(value: Any) -> str:
    """A value on one line; a table by its entries."""
    if isinstance(value, dict):
        return safe(", ".join(f"{k} {v}" for k, v in value.items() if v not in (None, [], (), False)), VALUE_WIDTH)
    return safe("none" if value is None else value, VALUE_WIDTH)


def _only_nested(field: Json) -> bool:
    """Whether the two spellings differ only in the table in which the key lies."""
    ours, theirs = field["ours"], field["theirs"]
    return (
        "default" not in (ours["source"], theirs["source"])
        and ours["written"] == theirs["written"]
        and ours["key"].rpartition(".")[2] == theirs["key"].rpartition(".")[2]
    )


def _keys(keys: list[Json]) -> list[str]:
    """Keys that no field is made of; the others are told by their fields."""
    unread = [key for key in keys if not key["read"]]
    lines = []
    for side, other in (("ours", "theirs"), ("theirs", "ours")):
        found = [f"{safe(k['key'])} {_value(k[side])}" for k in unread if side in k and other not in k]
        more = f", and {len(found) - MOST_KEYS} more" if len(found) > MOST_KEYS else ""
        lines += [f"  keys only in {side}: {', '.join(found[:MOST_KEYS])}{more}"] if found else []
    both = [k for k in unread if "ours" in k and "theirs" in k]
    return lines + [
        f"  other value: {safe(k['key'])} {_value(k['ours'])} | {_value(k['theirs'])}" for k in both[:MOST_KEYS]
    ]


def _tensors(found: Json) -> list[str]:
    compared = found["compared"]
    changed = [one for one in compared if one["kind"] == "changed"]
    lines = [f"tensors: {len(compared)} compared, {len(changed)} changed, {len(found['not_compared'])} not compared"]
    if changed:
        head = ["tensor", "dtype", "moved by", "largest", "cosine", "elements changed", "note"]
        lines += [f"  {line}" for line in table([head, *map(_change, changed)], left=(0, 1, 6))]
        lines.append("  moved by: L2 norm of the difference over that of ours")
    if found["fc_blocks"] is not None:
        lines.append(
            f"  fc: the column blocks of theirs are {','.join(map(str, found['fc_blocks']))} of ours, to the bit"
        )
    equal = [one for one in compared if one["kind"] != "changed"]
    lines += [f"  equal: {', '.join(_equal(one) for one in equal)}"] if equal else []
    return lines + [
        f"  not compared: {safe(one['name'])}: {_where(one)}{safe(one['why'])}" for one in found["not_compared"]
    ]


def _change(one: Json) -> list[str]:
    dtypes = list(dict.fromkeys(one[side]["dtype"] for side in ("ours", "theirs")))
    numbers = [_number(one["relative"], ".4g"), _number(one["largest"], ".4g"), _number(one["cosine"], ".6f")]
    bad = f"not finite: {one['not_finite'][0]} and {one['not_finite'][1]}" if any(one["not_finite"]) else ""
    note = "; ".join(part for part in (bad, one["note"]) if part)
    share = percent({"hits": one["changed"], "total": one["elements"]})
    return [safe(one["name"], NAME_WIDTH), safe(" | ".join(dtypes)), *numbers, share, safe(note)]


def _equal(one: Json) -> str:
    said = [one["kind"].removeprefix("equal").strip(), one["note"]]
    said += [f"not finite: {one['not_finite'][0]}"] if any(one["not_finite"]) else []
    more = "; ".join(part for part in said if part)
    return safe(one["name"]) + (f" ({safe(more)})" if more else "")


def _where(one: Json) -> str:
    return f"only in {one['only_in']}; " if one["only_in"] else ""


# what they predict


def _outcomes(found: Json) -> list[str]:
    lines = [
        f"predictions: depth {found['depth']}, mask {safe(found['mask'])}, {_many(len(found['samples']), 'sample')}"
    ]
    lines += [_ran(name, found[name]) for name in ("ours", "theirs")]
    lines.append(f"  {RIGHT}")
    lines += [*_step0(found["step0"]), _longer(found["longer"])]
    lines += ["", *_samples(found["samples"])] if len(found["samples"]) > 1 else []
    lines += ["", *_differing(found)] if found["differing"] else []
    for name in ("ours", "theirs"):
        lines += [f"skipped by {name}: {safe(one['error'])}" for one in found[name]["skipped"][:MOST_SAMPLES]]
        lines += [f"warning: {name}: {safe(warning)}" for warning in found[name]["warnings"]]
    return lines


def _ran(name: str, side: Json) -> str:
    length, walk = side["length"]["mean"], side["length"]["walk"]["length"]
    slots = ",".join(map(str, side["ordering"]))
    count = side["step0"]
    return (
        f"  {name:6} step 0 {percent(count)} ({count['hits']}/{count['total']}), length {_number(length, '.3f')}, "
        f"walk {_number(walk, '.3f')}; ordering {slots} ({safe(side['ordering_why'])}), view {safe(side['view'])}"
    )


def _step0(found: Json) -> list[str]:
    return [
        f"  step 0: both right {found['both']}, only ours {found['only_ours']}, only theirs {found['only_theirs']}, "
        f"both wrong {found['neither']}; McNemar p {_p(found['p'])}{_told_apart(found['p'])}"
    ]


def _longer(found: Json) -> str:
    return (
        f"  accept length: equal {found['equal']}, longer in ours {found['ours']}, in theirs {found['theirs']}; "
        f"sign test p {_p(found['p'])}{_told_apart(found['p'])}"
    )


def _told_apart(p: float) -> str:
    return "" if p <= 0.05 else ": not told apart by these rows"


def _samples(samples: list[Json]) -> list[str]:
    head = ["sample", "tokens", "both", "only ours", "only theirs", "neither", "p", "length ours", "theirs"]
    rows = [head, *map(_sample, samples[:MOST_SAMPLES])]
    more = len(samples) - MOST_SAMPLES
    return table(rows, left=(0,)) + ([f"... {more} more samples: --json has every one"] if more > 0 else [])


def _sample(one: Json) -> list[str]:
    counts = [str(one["step0"][key]) for key in ("both", "only_ours", "only_theirs", "neither")]
    lengths = [_number(one["length"][side]["mean"], ".3f") for side in ("ours", "theirs")]
    return [safe(one["path"], NAME_WIDTH), str(one["tokens"]), *counts, _p(one["step0"]["p"]), *lengths]


def _differing(found: Json) -> list[str]:
    total = found["step0"]["only_ours"] + found["step0"]["only_theirs"]
    head = ["token", "fed", "truth", "ours", "theirs", "length ours", "theirs", "sample"]
    rows = [head, *map(_differing_row, found["differing"])]
    said = f"rows that only one has right, those whose accept lengths differ most first: {len(rows) - 1} of {total}"
    return [said, *(f"  {line}" for line in table(rows, left=(1, 2, 3, 4, 7)))]


def _differing_row(row: Json) -> list[str]:
    tokens = [_token(row[key]) for key in ("input", "truth", "ours", "theirs")]
    lengths = [str(row["length"][side]) for side in ("ours", "theirs")]
    return [str(row["at"]), *tokens, *lengths, safe(row["path"], NAME_WIDTH)]


def _token(token: Json | None) -> str:
    return "-" if token is None else safe(token["text"], 24)


# epochs


def epochs(data: Json) -> str:
    """A line a checkpoint, the best, and the trainer's own numbers in a table of their own."""
    found, best = data["epochs"], data["best"]
    lines = [
        f"run {safe(data['path'])}: {_many(len(found), 'checkpoint')}, depth {data['depth']}, mask {safe(data['mask'])}"
    ]
    head = ["", "checkpoint", "epoch", "step", "step 0", "length", "walk", "ordering", "links", "state"]
    tied = {one["index"] for one in best["tied"]} if best else set()
    marks = ["*" if best and i == best["index"] else "~" if i in tied else "" for i in range(len(found))]
    rows = [head, *(_epoch(one, mark) for one, mark in zip(found, marks, strict=True))]
    lines += ["", *table(rows, left=(0, 1, 7, 8, 9)), "", _best(best)]
    lines += _curve(data["series"])
    lines += _metrics(data["series"])
    lines += [f"skipped by {safe(o['name'])}: {safe(s['error'])}" for o in found for s in o.get("skipped", [])]
    lines += [f"warning: {safe(o['name'])}: {safe(w)}" for o in found for w in o.get("warnings", [])]
    return "\n".join([*lines, *(f"warning: {safe(text)}" for text in data["warnings"])]) + "\n"


def _epoch(one: Json, mark: str) -> list[str]:
    length = one["length"]
    numbers = [
        percent(one["step0"]) if one["step0"] else "-",
        _number(length["mean"] if length else None, ".3f"),
        _number(length["walk"]["length"] if length else None, ".3f"),
    ]
    places = [_number(one["epoch"], "d"), _number(one["step"], "d")]
    ordering = f"{','.join(map(str, one['ordering']))}" if one.get("ordering") else "-"
    words = [safe(", ".join(one["links"]), NAME_WIDTH), safe(one["problem"] or "ok", 2 * NAME_WIDTH)]
    return [mark, safe(one["name"], NAME_WIDTH), *places, *numbers, ordering, *words]


def _best(best: Json | None) -> str:
    if best is None:
        return "no checkpoint could be run on these samples"
    tied = ", ".join(f"{safe(one['name'])} (p {_p(one['p'])})" for one in best["tied"])
    said = f"not told apart from it: {tied}" if tied else "no other is tied with it"
    return f"* best {safe(best['name'])} by {best['ranked_by']} over {best['rows']} rows; ~ {said}"


def _curve(series: Json) -> list[str]:
    """The accept lengths as bars from 1 on: the shape of the curve at a glance."""
    known = [length for length in series["length"] if length is not None]
    if len(known) < 2:
        return []
    top = max(known)
    rows = [
        [safe(name, NAME_WIDTH), f"{length:.3f}", "#" * round(40 * (length - 1) / max(top - 1, 1e-9))]
        for name, length in zip(series["name"], series["length"], strict=True)
        if length is not None
    ]
    return ["", "accept length", *(f"  {line}" for line in table(rows, left=(0, 2)))]


def _metrics(series: Json) -> list[str]:
    names = list(series["metrics"])
    if not names:
        return []
    shown = sorted(names, key=_telling)[:MOST_METRICS]
    head = ["checkpoint", *map(safe, shown)]
    rows = [
        [safe(name, NAME_WIDTH), *(_number(series["metrics"][m][i], ".4f") for m in shown)]
        for i, name in enumerate(series["name"])
        if any(series["metrics"][m][i] is not None for m in names)
    ]
    more = f"; {len(names) - len(shown)} more in --json" if len(names) > len(shown) else ""
    return [
        "",
        f"as the trainer measured on its own data{more}",
        *(f"  {line}" for line in table([head, *rows], left=(0,))),
    ]


def _telling(name: str) -> tuple[bool, str]:
    """Accuracies before losses."""
    return "acc" not in name, name


# words


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
