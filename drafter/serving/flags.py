"""What a launch line asks a server for: the speculative flags out of a pasted command, a JSON table, or a log line.

Only says what is asked; what a server makes of it is `effective`'s matter. Runs nothing, expands no variable, reads
no file but one that is named with `@`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from drafter.errors import FileError, WiringError
from drafter.serving.server import SGLANG, VLLM

MAX_TEXT = 1 << 18  # characters of a pasted command
MAX_NUMBER = 1 << 20  # no server drafts a million tokens
SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


@dataclass(frozen=True)
class Asked:
    """What was asked for; None (or "") where nothing was said. `engine` is "" where the words do not tell it.

    steps, topk, draft_tokens: SGLang's S, K and T (T counts the root). speculative_tokens: vLLM's K (drafts only).
    `ignored` are the flags that say nothing about drafting, `notes` how odd forms were read.
    """

    engine: str = ""
    algorithm: str | None = None
    method: str | None = None
    draft_model: str | None = None
    model: str | None = None
    steps: int | None = None
    topk: int | None = None
    draft_tokens: int | None = None
    speculative_tokens: int | None = None
    page_size: int | None = None
    attention_backend: str | None = None
    decode_backend: str | None = None
    prefill_backend: str | None = None
    tp: int | None = None
    draft_tp: int | None = None
    max_running_requests: int | None = None
    quantization: str | None = None
    draft_quantization: str | None = None
    token_map: str | None = None
    adaptive: bool | None = None
    spec_v2: bool | None = None
    old_form: bool = False
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def speculates(self) -> bool:
        """Whether anything about drafting was asked for."""
        said = (self.algorithm, self.method, self.draft_model, self.steps, self.topk, self.draft_tokens)
        return any(value is not None for value in (*said, self.speculative_tokens)) or bool(self.adaptive)


_NUMBERS = frozenset(field.name for field in fields(Asked) if field.type == "int | None")
_SGLANG_FLAGS = {
    "speculative-algorithm": "algorithm",
    "speculative-draft-model-path": "draft_model",
    "speculative-draft-model": "draft_model",
    "speculative-draft": "draft_model",
    "speculative-num-steps": "steps",
    "speculative-eagle-topk": "topk",
    "speculative-num-draft-tokens": "draft_tokens",
    "speculative-token-map": "token_map",
    "speculative-draft-model-quantization": "draft_quantization",
    "page-size": "page_size",
    "decode-attention-backend": "decode_backend",
    "prefill-attention-backend": "prefill_backend",
    "max-running-requests": "max_running_requests",
    "model-path": "model",
    "tp-size": "tp",
}
_VLLM_FLAGS = {
    "speculative-model": "draft_model",
    "num-speculative-tokens": "speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tp",
    "spec-model": "draft_model",
    "spec-method": "method",
    "spec-tokens": "speculative_tokens",
}
_OLD_FORM = frozenset({"speculative-model", "num-speculative-tokens", "speculative-draft-tensor-parallel-size"})
_FLAGS = {
    **_SGLANG_FLAGS,
    **_VLLM_FLAGS,
    "attention-backend": "attention_backend",
    "quantization": "quantization",
    "model": "model",
    "tensor-parallel-size": "tp",
    "tp": "tp",
}
_SWITCHES = {"speculative-adaptive": "adaptive"}
_CONFIG = ("speculative-config", "sc")
_TABLE = {  # keys of vLLM's JSON table
    "method": "method",
    "model": "draft_model",
    "num_speculative_tokens": "speculative_tokens",
    "draft_tensor_parallel_size": "draft_tp",
    "quantization": "draft_quantization",
}
_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"})
_CONTINUED = re.compile(r"[\\^`][ \t]*\r?\n")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"-{1,2}([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_PROMPT = re.compile(r"^\s*[$#>]\s+")


def parse_flags(text: str) -> Asked:
    """What the pasted `text` asks for: a launch line, speculative flags alone, or vLLM's JSON table alone.

    Of a flag that comes twice the last one counts, as servers read it. Raises WiringError for text that is no command
    line, a number that is none, malformed JSON, or flags of two engines.
    """
    if len(text) > MAX_TEXT:
        raise WiringError(f"flags of {len(text)} characters", expected=f"a launch line of at most {MAX_TEXT}")
    line = _PROMPT.sub("", _CONTINUED.sub(" ", text)).strip()
    if line.startswith("{"):
        return _with_engine(_Words([]).configured(line), [])
    try:
        words = shlex.split(line, comments=False)
    except ValueError as error:
        raise WiringError(f"flags that do not parse ({error})", hint="paste the whole line, with its quotes") from error
    return _with_engine(_Words(words).read(), words)


def flags_text(flags: str) -> str:
    """The flags themselves, or what the file behind `@` holds. Raises FileError."""
    if not flags.startswith("@"):
        return flags
    path = Path(flags[1:])
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT + 1).decode("utf-8", errors="replace")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read the flags ({why})", where=path) from error


def from_table(table: Mapping[str, Any]) -> Asked:
    """What a server says of itself: `speculative_num_steps` and the like, from /get_server_info or a log line."""
    said: dict[str, Any] = {}
    for flag, name in _SGLANG_FLAGS.items():
        value = table.get(flag.replace("-", "_"))
        if isinstance(value, bool) or value in (None, "None", ""):
            continue
        if name in _NUMBERS and not re.fullmatch(r"\d{1,7}", str(value)):
            continue  # another kind of value than this version of the flags has: says nothing
        said[name] = int(value) if name in _NUMBERS else str(value)
    backend = table.get("attention_backend")
    asked = Asked(**said, attention_backend=backend if isinstance(backend, str) else None)
    return replace(asked, engine=SGLANG) if asked.speculates else asked


class _Words:
    """Reads words of a command line, one flag after the other, into an Asked."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.at = list(words), 0
        self.values: dict[str, Any] = {}
        self.ignored: list[str] = []
        self.notes: list[str] = []
        self.engines: dict[str, str] = {}  # engine -> the flag that only it has

    def read(self) -> Asked:
        while self.at < len(self.words):
            self._one()
        return self._asked()

    def configured(self, text: str) -> Asked:
        self._table(text)
        return self._asked()

    def _asked(self) -> Asked:
        if len(self.engines) > 1:
            both = " and ".join(f"{flag} ({engine})" for engine, flag in self.engines.items())
            raise WiringError(f"flags of two engines: {both}", expected="the launch line of one server")
        engine = next(iter(self.engines), "")
        return Asked(engine=engine, **self.values, ignored=tuple(self.ignored), notes=tuple(self.notes))

    def _one(self) -> None:
        word = self.words[self.at]
        self.at += 1
        variable = _VARIABLE.fullmatch(word)
        if variable and variable[1] == SPEC_V2:
            self.values["spec_v2"] = variable[2].lower() in ("1", "true", "yes", "y", "on")
        flag = _FLAG.fullmatch(word)
        if flag is not None:
            self._flag(word.partition("=")[0], flag[1], flag[2])

    def _flag(self, written: str, name: str, value: str | None) -> None:
        name, dot, inner = name.partition(".")
        name = _whole_name(name.replace("_", "-"))
        if name in _CONFIG:
            self._engine(VLLM, written)
            said = self._value(written, value)
            self._set_inner(inner, said, written) if dot else self._table(said)
        elif name in _SWITCHES:
            self._engine(SGLANG, written)
            self.values[_SWITCHES[name]] = True
        elif name in _FLAGS:
            self._known(written, name, self._value(written, value))
        elif written != "-m":  # python's own
            self.ignored.append(written)

    def _known(self, written: str, name: str, value: str) -> None:
        if name.startswith("spec") or name == "num-speculative-tokens":
            self._engine(SGLANG if name in _SGLANG_FLAGS else VLLM, written)
        if name in _OLD_FORM:
            self.values["old_form"] = True
        self._set(_FLAGS[name], value, written)

    def _set(self, field: str, value: Any, written: str) -> None:
        checked = _number(value, written) if field in _NUMBERS else str(value)
        if self.values.get(field, checked) != checked:
            self.notes.append(f"{written} is given twice: {checked}, the last one, counts")
        self.values[field] = checked

    def _value(self, written: str, value: str | None) -> str:
        if value is not None:
            return value
        if self.at < len(self.words) and not _is_flag(self.words[self.at]):
            self.at += 1
            return self.words[self.at - 1]
        raise WiringError(f"{written} without a value", expected=f"{written} VALUE")

    def _table(self, text: str) -> None:
        self._engine(VLLM, "--speculative-config")
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise WiringError(
                f"a speculative config that is not JSON ({error})",
                expected='a table like {"method": "eagle3", "num_speculative_tokens": 3}',
                hint="keep its quotes: wrap the table in single quotes",
            ) from error
        if not isinstance(table, dict):
            raise WiringError(f"a speculative config that is a {type(table).__name__}", expected="a JSON table")
        for key, value in table.items():
            self._set_inner(key, value, f"{key} of the speculative config")

    def _set_inner(self, key: str, value: Any, written: str) -> None:
        if value is None:
            return
        if key in _TABLE:
            self._set(_TABLE[key], value, written)
        else:
            self.ignored.append(f"{key} of the speculative config")

    def _engine(self, engine: str, written: str) -> None:
        self.engines.setdefault(engine, written)


def _with_engine(asked: Asked, words: Sequence[str]) -> Asked:
    """With the engine that the program's name tells, where the flags did not."""
    if asked.engine:
        return asked
    if asked.algorithm is not None and asked.algorithm.upper() in _ALGORITHMS:
        return replace(asked, engine=SGLANG)
    programs: dict[str, Callable[[str], bool]] = {
        SGLANG: lambda word: word.startswith("sglang") or word.endswith("/sglang"),
        VLLM: lambda word: word.startswith("vllm") or word.endswith("/vllm"),
    }
    named = [engine for engine, fits in programs.items() if any(fits(word) for word in words if not _is_flag(word))]
    return replace(asked, engine=named[0]) if len(named) == 1 else asked


def _is_flag(word: str) -> bool:
    return word.startswith("--") or (len(word) > 1 and word[0] == "-" and word[1].isalpha())


def _whole_name(name: str) -> str:
    """The flag of which `name` is the unambiguous beginning, as argparse completes it (`--speculative-algo`)."""
    known = {*_FLAGS, *_SWITCHES, *_CONFIG}
    if name in known or not name.startswith("speculative-"):
        return name
    longer = [flag for flag in known if flag.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _number(value: Any, written: str) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,7}", text) or not 1 <= int(text) <= MAX_NUMBER:
        raise WiringError(f"{written} {text!r:.60}", expected="a whole number >= 1")
    return int(text)
