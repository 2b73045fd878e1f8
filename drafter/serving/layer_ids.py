"""Layer ids of a config -> the depths that a server captures, and back (checkpoints.md section 5).

The only place that knows these rules; each stands in a table with the source it was read from. A depth counts layers
passed: 0 is the embedding's output, n the last layer's before the final norm. Every server concatenates what it
captures in ascending depth, whatever the order of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.errors import CheckpointError
from drafter.serving.families import DEEPSEEK, FAMILIES, GPT_OSS, MINIMAX_M3_VL, ORDINARY, Family
from drafter.serving.producers import Depths, usual
from drafter.serving.server import SGLANG, TRTLLM, VLLM, Server

MAX_IDS, MAX_ID = 64, 1 << 20  # a list is a stranger's

TOP = "eagle_aux_hidden_state_layer_ids"
NESTED = f"eagle_config.{TOP}"
WIDTH = "num_aux_hidden_states"
DEFAULT = "default"

# --- the tables

Rule = Callable[[Sequence[int], int | None], Sequence[int]]


def plus_one(ids: Sequence[int], n: int | None) -> Sequence[int]:
    return [i + 1 for i in ids]


def as_is(ids: Sequence[int], n: int | None) -> Sequence[int]:
    return ids


def plus_one_if_first_is_one(ids: Sequence[int], n: int | None) -> Sequence[int]:
    return plus_one(ids, n) if ids and ids[0] == 1 else ids


def as_is_if_last_layer_named(ids: Sequence[int], n: int | None) -> Sequence[int]:
    return ids if ids and max(ids) == n else plus_one(ids, n)


# SGLang's set_eagle3_layers_to_capture by target family (5.2): the rule in force from each version on
SGLANG_RULES: dict[str, tuple[tuple[str, Rule], ...]] = {
    ORDINARY: (("0", plus_one),),
    DEEPSEEK: (("0", plus_one), ("0.5.13", plus_one_if_first_is_one)),  # PR #25454
    GPT_OSS: (("0", plus_one), ("0.5.17", as_is_if_last_layer_named)),
    MINIMAX_M3_VL: (("0", plus_one),),
}
# between these two, the version in which the family's rule changed was not read
SGLANG_UNREAD = {GPT_OSS: ("0.5.14", "0.5.17")}
# depths without ids (5.1), where they are not the usual ones: MiniMax-M3-VL adds 1 to its default too (5.2)
SGLANG_DEFAULTS: dict[str, Callable[[int], Depths]] = {MINIMAX_M3_VL: lambda n: (3, n // 2 + 1, n - 2)}
# targets that accept EAGLE-3 only from a version on (5.2: PR #19689)
SGLANG_TARGETS_SINCE = {"kimi_k25": "0.5.10"}
SGLANG_ANY_COUNT_SINCE = "0.5.12"  # before, fc takes three states (4.10)
SGLANG_GRAPH_FIXED = "0.5.11"  # PR #22836: before, CUDA graphs captured the default depths (5.2)

# (key, what is added to its ids); the first that is set counts. SGLang: model_runner.py, spec_aux_hidden_state.py.
# vLLM 0.33: gpu_model_runner.py (V1), eagle3_utils.py (V2) (5.3). TensorRT-LLM: llmapi/llm_args.py (5.1).
Sources = tuple[tuple[str, int], ...]
SGLANG_SOURCES: Sources = ((NESTED, 0),)
VLLM_SOURCES: dict[str, Sources] = {
    "V1": ((TOP, 0), ("dflash_config.target_layer_ids", 1), (NESTED, 0)),
    "V2": (
        (TOP, 0),
        ("dflash_config.target_layer_ids", 1),
        ("target_layer_ids", 1),
        ("dflash_config.layer_ids", 0),
        ("eagle_config.layer_ids", 0),
    ),
}
TRTLLM_SOURCES: Sources = ((NESTED, 0),)


@dataclass(frozen=True)
class Embedding:
    """Whether a server can give depth 0 of some targets: it raises TypeError up to one version, works from another."""

    server: str
    targets: frozenset[str]  # names of families
    raises_to: str | None
    works_from: str | None


EMBEDDINGS = (  # 5.2 and 5.3, "Embedding"
    Embedding(SGLANG, frozenset({"llama", "gpt_oss"}), "0.5.14", "0.5.23"),
    Embedding(SGLANG, frozenset(FAMILIES[DEEPSEEK]), "0.5.13", "0.5.14"),
    Embedding(SGLANG, frozenset({"qwen2", "qwen3"}), None, "0"),
    Embedding(SGLANG, frozenset(), None, "0.5.23"),  # all others
    Embedding(VLLM, frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25"}), "0.33.0", None),
    Embedding(VLLM, frozenset({"llama", "qwen2", "qwen3", "gpt_oss", "minimax_m2", "gemma4"}), None, "0"),
    Embedding(VLLM, frozenset(), None, None),
)  # fmt: skip


# --- from a config to depths


@dataclass(frozen=True)
class Capture:
    """What one server captures.

    `depths` stand in the order in which they are concatenated; None when they cannot be told. `ids` are those of the
    config, None for the server's default; `source` is the key that supplied them. `failure` says why the server does
    not run with this, and is empty where it does.
    """

    server: Server
    family: Family
    depths: Depths | None
    ids: Depths | None
    source: str
    notes: tuple[str, ...] = ()
    failure: str = ""


def captured(
    config: Mapping[str, Any] | DrafterConfig, server: Server, family: Family, num_layers: int | None
) -> Capture:
    """What `server` captures from a target of `family` with `num_layers` layers for a drafter with this config.

    Raises CheckpointError for a list of ids that is none.
    """
    table = _as_written(config) if isinstance(config, DrafterConfig) else config
    notes = [note for note in (server.unread, family.note) if note]
    capture = _SERVERS[server.name](table, server, family, num_layers)
    return replace(capture, notes=(*notes, *capture.notes))


def _as_written(config: DrafterConfig) -> dict[str, Any]:
    """The part of the config's table that named the ids, rebuilt from the evidence."""
    evidence = config.evidence.get("aux_ids")
    if config.aux_ids is None or evidence is None:
        return {}
    table: Any = list(config.aux_ids)
    for part in reversed(evidence.key.split(".")):
        table = {part: table}
    return dict(table)


def _sglang(table: Mapping[str, Any], server: Server, family: Family, n: int | None) -> Capture:
    ids, source = _first(table, SGLANG_SOURCES)
    notes = []
    if ids is None and _ids(table, TOP) is not None:
        notes.append("the top-level list of layer ids is not read for the capture")
    since, until = SGLANG_UNREAD.get(family.rule, ("", ""))
    if since and not server.before(f"{since}.post1") and server.before(until):
        notes.append(f"the rule for {family.name} changed between {since} and {until}: the older one is assumed")
    default = None if n is None else sglang_default(family, n)
    if ids is None:
        return _by_default(server, family, n, default, notes)
    rule = [rule for version, rule in SGLANG_RULES[family.rule] if not server.before(version)][-1]
    capture = _reached(server, family, n, ids, source, rule(ids, n), notes)
    if server.before(SGLANG_GRAPH_FIXED) and (default is None or capture.depths != default):
        graph = "2, n//2, n-3" if default is None else ", ".join(map(str, default))
        notes.append(
            f"steps replayed from CUDA graphs capture the default depths {graph} up to 0.5.10: "
            "--disable-cuda-graph heals it"
        )
    limit = sglang_limit(server, family, len(ids))
    return _with(capture, notes, limit)


def sglang_default(family: Family, n: int) -> Depths:
    """The depths that SGLang captures of a target of `n` layers where no ids are given: each once, ascending."""
    return passed_once(SGLANG_DEFAULTS.get(family.rule, usual)(n))


def passed_once(depths: Sequence[int]) -> Depths:
    """A layer is passed once, so that a depth that is named twice is captured once."""
    return tuple(sorted(set(depths)))


def sglang_limit(server: Server, family: Family, count: int) -> str:
    """Why this version of SGLang takes no drafter of `count` states on this target; empty where it does."""
    since = SGLANG_TARGETS_SINCE.get(family.name)
    if since is not None and server.before(since):
        return f"{family.name} targets take EAGLE-3 drafters from {since} on"
    if count != 3 and server.before(SGLANG_ANY_COUNT_SINCE):
        return f"fc takes three states before {SGLANG_ANY_COUNT_SINCE}, not {count}"
    return ""


def _vllm(table: Mapping[str, Any], server: Server, family: Family, n: int | None) -> Capture:
    runner = "V1" if _drafts_in_parallel(table) else "V2"
    ids, source = _first(table, VLLM_SOURCES[runner])
    notes = []
    if runner == "V2" and source != TOP and _ids(table, NESTED) is not None:
        notes.append(f"the default model runner (V2) does not read {NESTED}")
    if ids is None:
        capture = _by_default(server, family, n, _usual(n), notes)
    else:
        capture = _reached(server, family, n, ids, source, ids, notes)
        if n is not None and n in ids and family.rule == DEEPSEEK:
            notes.append(f"vLLM without #46973 captures nothing for id {n} of this family")
    return _with(capture, notes, _vllm_width(table, capture.depths))


def _drafts_in_parallel(table: Mapping[str, Any]) -> bool:
    """P-EAGLE, for which vLLM takes its older runner (5.3)."""
    return table.get("speculators_model_type") == "peagle" or table.get("parallel_drafting") is True


def _vllm_width(table: Mapping[str, Any], depths: Depths | None) -> str:
    """5.3: llama_eagle3 counts states by `num_aux_hidden_states`, else by the list in eagle_config, else takes 3."""
    if depths is None or "transformer_layer_config" in table:
        return ""
    stated, nested = table.get(WIDTH), _ids(table, NESTED)
    width, why = (stated, WIDTH) if type(stated) is int else (len(nested), NESTED) if nested else (3, DEFAULT)
    return "" if width == len(depths) else f"fc is built for {width} states ({why}), {len(depths)} are captured"


def _trtllm(table: Mapping[str, Any], server: Server, family: Family, n: int | None) -> Capture:
    ids, source = _first(table, TRTLLM_SOURCES)
    if ids is None:
        return _by_default(server, family, n, _usual(n), [])
    notes = ["whether the list is read from the config is not known: set eagle3_layers_to_capture"]
    inner = [i for i in ids if i != -1]
    capture = _reached(server, family, n, inner, source, plus_one(inner, n), notes)
    last = "id -1 gives the state after the final norm, moved last: no recorded depth" if -1 in ids else ""
    return _with(replace(capture, ids=ids), notes, last)


def _usual(n: int | None) -> Depths | None:
    return None if n is None else passed_once(usual(n))


def _by_default(server: Server, family: Family, n: int | None, depths: Depths | None, notes: list[str]) -> Capture:
    said = "no layer ids that this server reads: its default"
    if depths is None:
        unknown = (*notes, f"{said}, which depends on the target's number of layers")
        return Capture(server, family, None, None, DEFAULT, unknown)
    few = "" if len(depths) == 3 else f"the default of a target with {n} layers names {len(depths)} depths, fc takes 3"
    return Capture(server, family, depths, None, DEFAULT, (*notes, said), few)


def _reached(
    server: Server,
    family: Family,
    n: int | None,
    ids: Depths | Sequence[int],
    source: str,
    indices: Sequence[int],
    notes: list[str],
) -> Capture:
    """What a list captures when its ids lead to `indices`: each once, those that the target has, in ascending order."""
    inside = sorted({i for i in indices if i >= 0 and (n is None or i <= n)})
    if n is None:
        notes.append("the target's number of layers is unknown: ids past its end are not noticed")
    problems = []
    if not ids:
        problems.append("an empty list names no states")
    if len(inside) < len(indices):
        lost = [f"id {ids[at]} leads to depth {i}" for at, i in enumerate(indices) if i not in inside]
        twice = [f"depth {i} is named twice" for i in inside if list(indices).count(i) > 1]
        problems.append(f"captured {len(inside)} of {len(indices)} states: {', '.join([*lost, *twice])}")
    if 0 in inside:
        answer, text = _embedding(server, family)
        (problems if answer is False else notes).extend([text] if text else [])
    return Capture(server, family, tuple(inside), tuple(ids), source, (), "; ".join(problems))


def _embedding(server: Server, family: Family) -> tuple[bool | None, str]:
    """Whether depth 0 is given (None: not known), and what to say about it."""
    rows = [row for row in EMBEDDINGS if row.server == server.name]
    row = next((row for row in rows if family.name in row.targets), rows[-1] if rows else None)
    if row is not None and not family.assumed:
        if row.raises_to is not None and not Server.parse(f"{server.name}@{row.raises_to}").version < server.version:
            return False, "the embedding (depth 0) raises TypeError here, hidden_states + None: needs a patch"
        if row.works_from is not None and not server.before(row.works_from):
            return True, ""
    elif row is not None and server.name == SGLANG and not server.before("0.5.23"):
        return True, ""
    return None, "whether this version gives the embedding (depth 0) of this target was not read"


def embedding_versions(server: Server, family: Family) -> str:
    """Of which other versions of `server` depth 0 cannot be had, or nobody read it; empty where all give it."""
    rows = [row for row in EMBEDDINGS if row.server == server.name]
    row = next((row for row in rows if family.name in row.targets), rows[-1] if rows else None)
    if row is None or row.works_from in (None, "0"):
        return ""
    if row.raises_to is None or family.assumed:
        return f"depth 0 from {row.works_from} on; before that not read for this target"
    return f"depth 0 needs a patch up to {row.raises_to}: TypeError"


def _with(capture: Capture, notes: list[str], problem: str) -> Capture:
    failure = "; ".join(part for part in (capture.failure, problem) if part)
    return replace(capture, notes=tuple(dict.fromkeys((*capture.notes, *notes))), failure=failure)


_SERVERS: dict[str, Callable[[Mapping[str, Any], Server, Family, int | None], Capture]] = {
    SGLANG: _sglang,
    VLLM: _vllm,
    TRTLLM: _trtllm,
}


def _first(table: Mapping[str, Any], sources: Sources) -> tuple[Depths | None, str]:
    for key, shift in sources:
        ids = _ids(table, key)
        if ids is not None:
            return tuple(i + shift for i in ids), key
    return None, DEFAULT


def _ids(table: Mapping[str, Any], key: str) -> Depths | None:
    value = Fields(table, "the config").raw(key)
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) > MAX_IDS
        or not all(type(i) is int and abs(i) < MAX_ID for i in value)
    ):
        raise CheckpointError(f"{key!r} is {value!r:.60}", expected="a list of layer ids")
    return tuple(value)


# --- from depths to a config


@dataclass(frozen=True)
class IdLists:
    """What to write so that a server captures the wanted depths.

    `keys`: dotted key of config.json -> value, None where no list can do it, for the `reason`. `copies`: the same, for
    readers that look elsewhere; another server's list may stand there instead. `notes`: what else it takes.
    """

    keys: Mapping[str, Any] | None
    reason: str = ""
    copies: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def ids_to_write(depths: Sequence[int], server: Server, family: Family, num_layers: int | None) -> IdLists:
    """The lists that make `server` capture `depths`, ascending (5.4). Each is tried against the server's own rule."""
    impossible = _impossible(depths, server, family, num_layers)
    if impossible:
        return IdLists(None, impossible)
    for ids in _candidates(depths):
        keys, copies = _KEYS[server.name](ids, len(depths))
        capture = captured(_table({**copies, **keys}), server, family, num_layers)
        if capture.depths == tuple(depths):
            notes = (*capture.notes, *([capture.failure] if capture.failure else []))
            return IdLists(keys, copies=copies, notes=notes)
    return IdLists(None, f"no list makes {server} capture depths {', '.join(map(str, depths))} of {family.name}")


def _impossible(depths: Sequence[int], server: Server, family: Family, n: int | None) -> str:
    if len(set(depths)) < len(depths):
        return "a depth that is named twice is captured once"
    if list(depths) != sorted(depths):
        return "no server can permute: it concatenates in ascending depth; permute the column blocks of fc"
    if not depths or depths[0] < 0 or (n is not None and depths[-1] > n):
        return f"depths {list(depths)} of a target with {n} layers"
    if server.name == TRTLLM and depths[0] == 0:
        return "TensorRT-LLM gives no embedding: id -1 means the last state after its norm"
    if server.name == TRTLLM and depths[-1] == n:
        return "TensorRT-LLM gives the last state only after its norm (id -1)"
    return sglang_limit(server, family, len(depths)) if server.name == SGLANG else ""


def _candidates(depths: Sequence[int]) -> Iterator[list[int]]:
    """The depths themselves; with another one first, as SGLang looks at the first only; one less."""
    yield list(depths)
    if len(depths) > 1:
        yield [depths[1], depths[0], *depths[2:]]
    yield [depth - 1 for depth in depths]


Keys = tuple[dict[str, Any], dict[str, Any]]
_KEYS: dict[str, Callable[[list[int], int], Keys]] = {
    SGLANG: lambda ids, count: ({NESTED: ids}, {}),
    VLLM: lambda ids, count: ({TOP: ids, WIDTH: count}, {NESTED: ids}),
    TRTLLM: lambda ids, count: ({NESTED: ids}, {}),
}


def _table(keys: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in keys.items():
        set_key(table, key, value)
    return table


def set_key(table: dict[str, Any], key: str, value: Any) -> None:
    """Put `value` at the dotted `key`; a part on the way that is no table is replaced by one."""
    *parts, last = key.split(".")
    for part in parts:
        if not isinstance(table.get(part), dict):
            table[part] = {}
        table = table[part]
    table[last] = value
