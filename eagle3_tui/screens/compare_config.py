"""Two configs field by field as rows: what differs first, then what is only written otherwise, then what is equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drafter.checkpoint_compare.configs import DIFFERENT, EQUAL, ONE_SIDED, ORIGIN, SPELLED, Face, FieldPair, RawKey
from eagle3_tui.screens.checkpoints import shown
from eagle3_tui.widgets.line_table import Cells, Column

if TYPE_CHECKING:
    from drafter.checkpoint_compare.compare import Comparison
    from drafter.checkpoint_compare.configs import Stated

ABSENT = "(not there)"
_KEY = "key"
_RANKS = (DIFFERENT, ONE_SIDED, ORIGIN, SPELLED, _KEY, EQUAL)
_GLYPHS = {DIFFERENT: "!", ONE_SIDED: "?", ORIGIN: "o", SPELLED: "=", _KEY: "k", EQUAL: ""}
_LOOKS = {DIFFERENT: "bad", ONE_SIDED: "warn", ORIGIN: "", SPELLED: "good", _KEY: "dim", EQUAL: "dim"}
_FOR = {"configured": "served", "trained": "trained"}
_LONGER = {
    DIFFERENT: "the two mean different things",
    ONE_SIDED: "only one of the two says it",
    ORIGIN: "who wrote the config differs, not what it means",
    SPELLED: "the same meaning, written otherwise",
    EQUAL: "equal",
}


@dataclass(frozen=True)
class ConfigLine:
    """One field, or one key that no field is made of, of one pair of config files."""

    face: Face
    pair: FieldPair | None
    raw: RawKey | None = None

    @property
    def kind(self) -> str:
        return self.pair.kind if self.pair is not None else _KEY

    @property
    def field(self) -> str:
        return self.pair.field if self.pair is not None else self.raw.key if self.raw is not None else ""

    @property
    def values(self) -> tuple[str, str]:
        """Ours and theirs."""
        if self.pair is not None:
            return shown(self.pair.ours.value), shown(self.pair.theirs.value)
        assert self.raw is not None
        ours, theirs = _value(self.raw.ours), _value(self.raw.theirs)
        return ours if self.raw.has_ours else ABSENT, theirs if self.raw.has_theirs else ABSENT


def lines_of(comparison: Comparison) -> list[ConfigLine]:
    """Every field of every pair of files, what differs first."""
    lines = [ConfigLine(face, pair) for face in comparison.faces for pair in face.fields]
    lines += [ConfigLine(face, None, key) for face in comparison.faces for key in face.keys if not key.read]
    return sorted(lines, key=lambda line: _RANKS.index(line.kind))


def columns(width: int, faces: int) -> list[Column]:
    """Half of the room for each side."""
    which = [Column("for", 7)] if faces > 1 else []
    field = max(8, min(22, width // 4))
    side = max(6, (width - field - 4 - 8 * len(which)) // 2)
    return [Column("", 1), *which, Column("field", field, cut="middle"), Column("ours", side), Column("theirs")]


def cells(line: ConfigLine, faces: int) -> Cells:
    look = _LOOKS[line.kind]
    which = [_FOR[line.face.name]] if faces > 1 else []
    return [(text, look) for text in (_GLYPHS[line.kind], *which, line.field, *line.values)]


def said(line: ConfigLine | None) -> list[tuple[str, str]]:
    """What a difference amounts to, and the evidence of each side."""
    if line is None:
        return []
    what = {"configured": "what servers read", "trained": "what training wrote"}[line.face.name]
    files = [str(path) if path is not None else "no file" for path in (line.face.ours, line.face.theirs)]
    if line.pair is None:
        why = "a key that nothing here is made of"
        return [(f"{line.field}: {why}; {what}", _LOOKS[_KEY]), *_both(line.values, ("", ""), files)]
    evidence = _evidence(line.pair.ours), _evidence(line.pair.theirs)
    return [(f"{line.field}: {_LONGER[line.kind]}; {what}", _LOOKS[line.kind]), *_both(line.values, evidence, files)]


def _both(values: tuple[str, str], evidence: tuple[str, str], files: list[str]) -> list[tuple[str, str]]:
    sides = zip(("ours", "theirs"), values, evidence, files, strict=True)
    return [(f"{side:6} {value}{why or f', in {file}'}", "") for side, value, why, file in sides]


def _evidence(stated: Stated) -> str:
    if stated.is_default:
        note = "" if stated.note in ("", "not stated") else f": {stated.note}"
        return f", not stated{note}"
    written = _value(stated.written)
    said = "" if written == shown(stated.value) else f" = {written}"
    return f", by {stated.source}: {stated.key}{said}"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value[:64]))
    return shown(value)
