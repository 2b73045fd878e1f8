"""K02: tensors that are missing, unused, never trained, or another's: names by header, numbers from the files.

A number is judged beside the others of the same file, never alone: a tiny or heavily regularised drafter looks random
throughout and is let be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from drafter.checkpoint.inventory import ANOTHER
from drafter.checkpoint.tensor_files import TensorFiles
from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, NOTE, OK, TW, UNTRAINED, WARNING, Finding
from drafter.checks.registry import WEIGHTS, check
from drafter.checks.untrained import COPIED, Look, initial_value, looks, structured
from drafter.checks.vocab_size import wrong_vocab_size
from drafter.checks.written import written
from drafter.files.stored import FLOATS

KIND = "K02"
SHARE_EQUAL, SHARE_CLOSE = 1.0, 0.9  # mean cosine of rows
ROWS = 1024  # of an embedding or head that are compared, spread over it
_UNTRAINED = ("vllm-project/speculators#1114", "vllm-project/vllm#19570")


@check("tensors-missing", KIND, (CKPT,), ("NVIDIA/Model-Optimizer#628", "vllm-project/speculators#1114"))
def tensors_missing(case: Case) -> Iterable[Finding]:
    """All that nobody can supply, at once."""
    named = written(case)
    fatal = [named(name) for name in case.checkpoint.fatal]
    reports = ("NVIDIA/Model-Optimizer#628", "vllm-project/speculators#1114")
    if not case.checkpoint.has_weights or case.checkpoint.quantised:
        return  # packed weights have other names: `quantised` says so
    lists = {"unused": case.checkpoint.unused, "misshapen": case.checkpoint.misshapen}
    evidence = {"missing": fatal} | {key: {named(n): why for n, why in one.items()} for key, one in lists.items()}
    if fatal:
        more = f" and {len(fatal) - 1} more are" if len(fatal) > 1 else " is"
        title = f"{fatal[0]}{more} missing, which only the drafter has: {_left(fatal)}"
        fix = "export the weights again; if the name differs, rename it: " + ", ".join(fatal[:4])
        yield Finding("tensors-missing", KIND, ERROR, title, evidence, fix, reports, "checkpoint", 83)
        return
    count = len(case.checkpoint.expected)
    yield Finding("tensors-missing", KIND, OK, f"all {count} tensors that a drafter needs are there", evidence)


def _left(missing: list[str]) -> str:
    """What SGLang and vLLM compute with instead: they make norms of ones, and matrices of whatever lay in memory."""
    norms = [name for name in missing if "norm" in name]
    what = "it" if len(missing) == 1 else "them"
    if len(norms) == len(missing):
        return f"SGLang and vLLM load without {what} and leave {what} at ones"
    if not norms:
        return f"SGLang and vLLM load without {what} and leave {what} unfilled, at random"
    return "SGLang and vLLM load without them, leave norms at ones and matrices unfilled, at random"


@check("tensors-unused", KIND, (CKPT,), ("NVIDIA/Model-Optimizer#628", "sgl-project/sglang#32334"))
def tensors_unused(case: Case) -> Iterable[Finding]:
    """Present, and read by no forward: parts of another function, or leftovers."""
    unused = case.checkpoint.unused
    if case.checkpoint.quantised:
        return
    named = written(case)
    foreign = [named(name) for name, why in unused.items() if why == ANOTHER]
    if foreign:
        title = (
            f"{foreign[0]}{f' and {len(foreign) - 1} more' if len(foreign) > 1 else ''} is no part of a drafter's layer"
        )
        title += ": another function was trained, or a name is wrong"
        evidence = {"tensors": foreign, "missing": {named(n): why for n, why in case.checkpoint.missing.items()}}
        yield Finding("tensors-unused", KIND, WARNING, title, evidence, "check the export's renaming", weight=55)
    rest = {named(name): why for name, why in unused.items() if not why.startswith("should be used")}
    if rest:
        title = f"{len(rest)} tensor(s) that no forward reads"
        yield Finding("tensors-unused", KIND, NOTE, title, rest)


@check("inventory", KIND, (CKPT,), ("SafeAILab/EAGLE#265", "SafeAILab/EAGLE#303"))
def inventory(case: Case) -> Iterable[Finding]:
    """Own, shared or missing, and what follows."""
    checkpoint = case.checkpoint
    if not checkpoint.has_weights:
        return
    has = checkpoint.tensors.__contains__
    rows, vocab = checkpoint.draft_vocab_size, checkpoint.run_config.vocab_size
    said = {
        "embed_tokens": "own: vLLM takes it where it differs from the target's, SGLang takes the target's"
        if has("embed_tokens.weight")
        else "shared: every server takes the target's",
        "lm_head": f"own, {rows} rows" if has("lm_head.weight") else _head_of_others(case),
        "d2t": "own" if has("d2t") else "none needed" if rows == vocab else "missing: the rows mean no tokens",
        "t2d": "own" if has("t2d") else "none: servers do not read it",
        "norm": "own"
        if has("norm.weight")
        else "missing"
        if checkpoint.run_config.final_norm
        else "none by the config",
    }
    yield Finding("inventory", KIND, OK, "what is the drafter's own, and what is shared", said, view="checkpoint")


def _head_of_others(case: Case) -> str:
    if case.checkpoint.run_config.tie_lm_head:
        return "tied: the embedding's rows"
    if case.checkpoint.draft_vocab_size == case.checkpoint.run_config.vocab_size:
        return "shared: the target's"
    return "missing: no server takes the target's rows at the mapped ids, as is computed here"


# --- against the target's tensors


@check("embedding-of-target", KIND, (CKPT, TW), ("lightseekorg/TorchSpec#38", "vllm-project/vllm#50158"))
def embedding_of_target(case: Case) -> Iterable[Finding]:
    """The drafter's own embedding beside the target's: identical, close or unrelated, in both halves."""
    ours = case.checkpoint.tensors.get("embed_tokens.weight")
    theirs = case.target.embed if case.target is not None else None
    if ours is None or theirs is None or len(ours.shape) != 2 or ours.shape[1] != theirs.shape[1]:
        return
    from drafter.checks.rows import compare_rows

    found = compare_rows(ours, theirs, ROWS, case.poll)
    evidence: dict[str, Any] = {"rows": found.rows, "equal": found.equal, "mean cosine": round(found.cosine, 4)}
    evidence["mean cosine by quarter"] = [round(c, 4) for c in found.parts]
    reports = ("lightseekorg/TorchSpec#38", "vllm-project/vllm#50158")
    if found.equal == found.rows:
        yield Finding("embedding-of-target", KIND, OK, "the embedding is the target's", evidence, reports=reports)
    elif min(found.parts) < 0.5 < max(found.parts):
        title = "part of the embedding is the target's and part is not: ranks of a server will not agree to share it"
        fix = "weights: leave embed_tokens out, or export all of its rows"
        yield Finding("embedding-of-target", KIND, WARNING, title, evidence, fix, reports, weight=52)
    elif found.cosine < 0.2:
        title = "the embedding has nothing to do with the target's: SGLang replaces it, vLLM uses it"
        fix = "weights: leave embed_tokens.weight out, unless it was trained from nothing; try --embedding target"
        yield Finding("embedding-of-target", KIND, WARNING, title, evidence, fix, reports, weight=57)
    else:
        close = "close to" if found.cosine >= SHARE_CLOSE else "akin to"
        title = f"the embedding is {close} the target's, not equal: SGLang takes the target's, vLLM this one"
        yield Finding("embedding-of-target", KIND, NOTE, title, evidence, reports=reports)


@check("head-rows", KIND, (CKPT, TW), ("lightseekorg/TorchSpec#38",))
def head_rows(case: Case) -> Iterable[Finding]:
    """A head that was cut out of the target's at the wrong rows."""
    ours = case.checkpoint.tensors.get("lm_head.weight")
    theirs = case.target.head if case.target is not None else None
    if ours is None or theirs is None or len(ours.shape) != 2 or ours.shape[1] != theirs.shape[1]:
        return
    if wrong_vocab_size(case) is not None:
        return  # d2t cannot be read as it is meant
    from drafter.checks.rows import cosine_at

    vocab, rows = case.vocab(), ours.shape[0]
    picked = [rows * i // min(rows, ROWS) for i in range(min(rows, ROWS))]
    ids = vocab.target_ids
    places = {
        "the mapped ids": [int(ids[row]) for row in picked],
        "the first rows": picked,
        "the offsets d2t": [int(ids[row]) - row for row in picked],
    }
    inside = {name: at for name, at in places.items() if all(0 <= i < theirs.shape[0] for i in at)}
    cosines = {name: cosine_at(ours, picked, theirs, at) for name, at in inside.items()}
    evidence = {f"mean cosine with {name}": round(value, 4) for name, value in cosines.items()}
    right = cosines.get("the mapped ids", 0.0)
    best = max(cosines, key=lambda name: cosines[name])
    if cosines[best] > 0.9 and cosines[best] - right > 0.1:
        title = f"lm_head is the target's head at {best}, not at the mapped ids: its rows are those of other tokens"
        fix = "weights: lm_head = target_head[arange(D) + d2t], or train the head again"
        yield Finding("head-rows", KIND, ERROR, title, evidence, fix, weight=81)
    elif right > 0.999:
        yield Finding("head-rows", KIND, OK, "lm_head is the target's head at the mapped ids", evidence)
    else:
        yield Finding("head-rows", KIND, OK, "lm_head is a head of its own", evidence)


@check("target-embeddings", KIND, (TW,), ("vllm-project/vllm#19570", "sgl-project/SpecForge#666"))
def target_embeddings(case: Case) -> Iterable[Finding]:
    """Several tables in the target that are named like an embedding."""
    assert case.target is not None
    found = TensorFiles.of_folder(case.target.path).all_ending("embed_tokens.weight")
    if len(found) < 2 or case.target.embed is None:
        return
    shown = {tensor.name: list(tensor.shape) for tensor in found[:8]}
    title = f"the target has {len(found)} tensors named embed_tokens; {case.target.embed.name} fits and is taken"
    reports = ("vllm-project/vllm#19570", "sgl-project/SpecForge#666")
    yield Finding("target-embeddings", KIND, NOTE, title, shown, reports=reports)


# --- what was never trained


@check("untrained", KIND, (CKPT,), _UNTRAINED, WEIGHTS)
def untrained(case: Case) -> Iterable[Finding]:
    """Tensors that hold what they were made with."""
    used = {name: look for name, look in looks(case).items() if name in case.checkpoint.expected}
    found = list(_untrained(case, used, written(case)))
    yield from found
    if not found and used:
        title = "no tensor looks as it was made: none is constant, none is even noise among trained ones"
        yield Finding("untrained", KIND, OK, title, {"tensors": len(used)}, reports=_UNTRAINED)


def _untrained(case: Case, looks: dict[str, Look], named: Callable[[str], str] = str) -> Iterable[Finding]:
    plain = {n: look for n, look in looks.items() if case.checkpoint.tensors[n].dtype in FLOATS}  # fp8 is scaled
    matrices = {name: look for name, look in plain.items() if look.is_matrix}
    norms = {name: look for name, look in looks.items() if len(look.shape) == 1 and "norm" in name}
    idle = _identity_layers(looks)
    yield from _zeros(looks, idle, named)
    # of the others only those tell something that are large enough to be told from chance
    told = {name: look for name, look in matrices.items() if not look.constant}
    own = [name for name in told if name not in COPIED]
    trained = [name for name in own if structured(told[name])]
    wide = case.files.layer("initializer_range")
    std = wide if isinstance(wide, float) else 0.02
    initial = {name: why for name, look in told.items() if (why := initial_value(look, std))}
    if own and all(name in initial for name in own) and norms and all(look.constant == 1.0 for look in norms.values()):
        title = "every matrix looks as it was made and every norm is exactly one: this drafter was never trained"
        evidence = {"matrices": {named(n): why for n, why in initial.items()}, "norms of ones": [*map(named, norms)]}
        yield Finding("untrained", KIND, ERROR, title, evidence, "train it", _UNTRAINED, weight=92, means=UNTRAINED)
        return
    if len(trained) * 2 >= max(len(own) - len(initial), 1) and trained:
        for name, why in initial.items():
            title = f"{named(name)} looks untrained: {why}, where {len(trained)} others are clearly trained"
            others = {named(n): looks[n].facts() for n in trained[:3]}
            evidence = {"tensor": named(name), **looks[name].facts(), "trained": others}
            fix = "the export lost it and a loader filled it in: check the name in the trainer's own file, export again"
            # training moves all matrices of this size far from even, but o_proj late: that one may be young, not lost
            severity = WARNING if not why.startswith("the initial") and "o_proj" in name else ERROR
            yield Finding("untrained", KIND, severity, title, evidence, fix, _UNTRAINED, "checkpoint", 79)
    yield from _norms_of_ones(norms, idle, named)


def _identity_layers(looks: dict[str, Look]) -> set[str]:
    """Layers whose outputs are zero throughout: they pass their input on, as somebody meant them to."""
    layers = {name.split(".self_attn.")[0] for name in looks if name.endswith(".self_attn.o_proj.weight")}
    outs = ("self_attn.o_proj.weight", "mlp.down_proj.weight")
    return {
        f"{at}."
        for at in layers
        if all((x := looks.get(f"{at}.{out}")) is not None and x.constant == 0 for out in outs)
    }


def _zeros(looks: dict[str, Look], idle: set[str], named: Callable[[str], str]) -> Iterable[Finding]:
    for at in sorted(idle):
        layer = named(f"{at}mlp.down_proj.weight").removesuffix(".mlp.down_proj.weight")
        title = f"{layer} adds nothing: its o_proj and down_proj are zero"
        yield Finding("untrained", KIND, NOTE, title, {"layer": layer})
    for name, look in looks.items():
        if look.constant == 0 and not name.endswith(".bias") and not name.startswith(tuple(idle)):
            title = f"{named(name)} is zero throughout"
            evidence = {"tensor": named(name), "shape": list(look.shape)}
            fix = "export the weights again: a tensor was made and never filled"
            yield Finding("untrained", KIND, ERROR, title, evidence, fix, _UNTRAINED, "checkpoint", 80)


def _norms_of_ones(norms: dict[str, Look], idle: set[str], named: Callable[[str], str]) -> Iterable[Finding]:
    counted = {name: look for name, look in norms.items() if not name.startswith(tuple(idle))}
    same = {name: look.constant for name, look in counted.items() if look.constant not in (None, 0.0)}
    if same and len(same) * 2 <= len(counted):
        names = ", ".join(map(named, same))
        title = f"{names} holds one value ({next(iter(same.values())):g}) where the other norms are trained"
        evidence: dict[str, Any] = {"constant": {named(n): value for n, value in same.items()}}
        evidence["others"] = [named(name) for name in counted if name not in same]
        fix = "check the name in the trainer's own file: a norm that is not found stays at ones"
        yield Finding("untrained", KIND, WARNING, title, evidence, fix, _UNTRAINED, "checkpoint", 54)
