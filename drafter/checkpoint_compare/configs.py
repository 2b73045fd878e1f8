"""Two configs in normal form, field by field with the evidence for each, and the keys that only one file has.

Says whether two spellings mean the same; knows nothing of weights. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.config import DrafterConfig, Evidence
from drafter.checkpoint.dialect_speculators import INNER
from drafter.errors import DrafterError
from drafter.files.json_file import read_json

EQUAL, SPELLED, ONE_SIDED, DIFFERENT, ORIGIN = "equal", "same meaning", "stated by one", "different", "origin"
MAX_KEYS, MAX_DEPTH, MAX_SHOWN = 5000, 8, 200
_SKIPPED = frozenset({"aux_ids", "id_convention"})  # compared as depths
_ORIGIN = frozenset({"dialect", "producer", "architecture"})  # who wrote a config, not what it means
_MAY_BE_UNSAID = frozenset({"aux_depths", "max_positions", "draft_vocab_size", "verifier"})
_UNKNOWN = Evidence("default", "", None, "not stated")


@dataclass(frozen=True)
class Stated:
    """What one config says of a field: `value` in normal form, `written` as it stands in the file, and where."""

    value: Any
    written: Any
    source: str
    key: str
    note: str

    @property
    def is_default(self) -> bool:
        return self.source == "default"


@dataclass(frozen=True)
class FieldPair:
    """`kind`: equal; same meaning, written otherwise; stated by one; different; origin (who wrote it differs)."""

    field: str
    kind: str
    ours: Stated
    theirs: Stated


@dataclass(frozen=True)
class RawKey:
    """A key of the files, without the prefix of a nested layer config; `read` if a normal field is made of it.

    `ours` and `theirs` are the values, None with `has_ours` or `has_theirs` False where the key is not there.
    """

    key: str
    ours: Any
    theirs: Any
    has_ours: bool
    has_theirs: bool
    read: bool


@dataclass(frozen=True)
class Face:
    """One pair of config files. `name`: `configured` (what a server reads) or `trained` (what training wrote).

    `keys` are the raw keys that only one has, or that no field is made of and that differ.
    """

    name: str
    ours: Path | None
    theirs: Path | None
    fields: tuple[FieldPair, ...]
    keys: tuple[RawKey, ...]

    def of_kind(self, *kinds: str) -> list[FieldPair]:
        return [pair for pair in self.fields if pair.kind in kinds]


def compare_configs(ours: Checkpoint, theirs: Checkpoint) -> tuple[Face, ...]:
    """The configured configs, and where one of the two has the training's own beside it also those of the training."""
    faces = [_face("configured", ours, theirs, ours.config, theirs.config)]
    if ours.trained_config is not None or theirs.trained_config is not None:
        faces.append(_face("trained", ours, theirs, ours.run_config, theirs.run_config))
    return tuple(faces)


def _face(name: str, a: Checkpoint, b: Checkpoint, ours: DrafterConfig, theirs: DrafterConfig) -> Face:
    files = _file(a, ours), _file(b, theirs)
    pairs = tuple(_pairs(a, b, ours, theirs))
    return Face(name, *files, pairs, tuple(_raw(*files, _read_keys(ours, theirs))))


def _pairs(a: Checkpoint, b: Checkpoint, ours: DrafterConfig, theirs: DrafterConfig) -> Iterator[FieldPair]:
    others = {name: (value, evidence) for name, value, evidence in theirs.items()}
    skipped = {"stated_rope"} if all(c.stated_rope == c.rope for c in (ours, theirs)) else set()
    for name, value, evidence in ours.items():
        if name in skipped:
            continue
        if name not in _SKIPPED:
            yield _pair(name, _stated(value, evidence), _stated(*others[name]))
        elif name == "aux_ids":
            yield _pair("aux_depths", _depths(ours), _depths(theirs))
    inputs = [Stated(c.fc_inputs, c.fc_inputs, "weights", "fc.weight", "") for c in (a, b)]
    yield _pair("fc_inputs", *inputs)


def _stated(value: Any, evidence: Evidence | None) -> Stated:
    found = evidence or _UNKNOWN
    return Stated(value, found.value, found.source, found.key, found.note)


def _depths(config: DrafterConfig) -> Stated:
    """Layer ids as depths; as written with the convention in which they are meant."""
    found = config.evidence.get("aux_ids", _UNKNOWN)
    written = None if config.aux_ids is None else f"{list(config.aux_ids)} ({config.id_convention})"
    return Stated(config.aux_depths, written, found.source, found.key, found.note)


def _pair(name: str, ours: Stated, theirs: Stated) -> FieldPair:
    return FieldPair(name, _kind(name, ours, theirs), ours, theirs)


def _kind(name: str, ours: Stated, theirs: Stated) -> str:
    if ours.value != theirs.value:
        if name in _ORIGIN:
            return ORIGIN
        unsaid = [stated.value in (None, "") for stated in (ours, theirs)]
        return ONE_SIDED if name in _MAY_BE_UNSAID and any(unsaid) else DIFFERENT
    if ours.is_default and theirs.is_default:
        return EQUAL
    same = (ours.key, ours.is_default, _comparable(ours)) == (theirs.key, theirs.is_default, _comparable(theirs))
    return EQUAL if same or name in _ORIGIN else SPELLED


def _comparable(stated: Stated) -> Any:
    return list(stated.written) if isinstance(stated.written, tuple) else stated.written


# --- raw keys


def _file(checkpoint: Checkpoint, config: DrafterConfig) -> Path | None:
    """Where the config lies: beside the weights, or in the folder above."""
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    sources = [e.source for e in config.evidence.values() if e.source not in ("default", "weights", "")]
    for base in (folder, folder.parent):
        for source in dict.fromkeys(sources):
            if (base / source).is_file():
                return base / source
    return None


def _read_keys(*configs: DrafterConfig) -> frozenset[str]:
    return frozenset(e.key.removeprefix(INNER) for config in configs for e in config.evidence.values() if e.key)


def _raw(ours: Path | None, theirs: Path | None, read: frozenset[str]) -> Iterator[RawKey]:
    one, two = _flat(ours), _flat(theirs)
    for key in sorted({*one, *two}):
        made = any(key == name or key.startswith(f"{name}.") for name in read)
        if (key in one) != (key in two) or (not made and one[key] != two[key]):
            yield RawKey(key, one.get(key), two.get(key), key in one, key in two, made)


def _flat(path: Path | None) -> dict[str, Any]:
    """The file's keys, dotted; what cannot be read has none (opening the checkpoint has said so)."""
    found: dict[str, Any] = {}
    try:
        _flatten(read_json(path) if path is not None else {}, "", found, 0)
    except DrafterError:
        return {}
    return found


def _flatten(table: Mapping[str, Any], prefix: str, found: dict[str, Any], depth: int) -> None:
    for key, value in table.items():
        full = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
            _flatten(value, f"{full}.", found, depth + 1)
        elif len(found) < MAX_KEYS:
            # a key that stands both inside and outside of the layer's table keeps its long name
            short = full.removeprefix(INNER)
            found[full if short in found else short] = value


# --- JSON


def faces_json(faces: tuple[Face, ...]) -> list[dict[str, Any]]:
    return [
        {
            "name": face.name,
            "ours": str(face.ours) if face.ours else None,
            "theirs": str(face.theirs) if face.theirs else None,
            "fields": [
                {"field": p.field, "kind": p.kind, "ours": _stated_json(p.ours), "theirs": _stated_json(p.theirs)}
                for p in face.fields
            ],
            "keys": [_key_json(key) for key in face.keys],
        }
        for face in faces
    ]


def _stated_json(stated: Stated) -> dict[str, Any]:
    return {
        "value": _shown(stated.value),
        "written": _shown(stated.written),
        "source": stated.source,
        "key": stated.key,
        "note": stated.note,
    }


def _key_json(key: RawKey) -> dict[str, Any]:
    found: dict[str, Any] = {"key": key.key, "read": key.read}
    found |= {"ours": _shown(key.ours)} if key.has_ours else {}
    return found | ({"theirs": _shown(key.theirs)} if key.has_theirs else {})


def _shown(value: Any) -> Any:
    """`value` for JSON; a file's value may be megabytes long."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    text = repr(value)
    return value if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
