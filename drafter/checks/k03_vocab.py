"""K03: the vocab map and the sizes that have to agree with it, held against themselves and the target's.

Reads d2t, t2d and headers; predicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from drafter.checks.case import Case
from drafter.checks.files import stated
from drafter.checks.finding import CKPT, ERROR, FILES, NOTE, OK, TCFG, TOK, WARNING, Finding
from drafter.checks.k02_head import head_to_write
from drafter.checks.registry import check
from drafter.checks.vocab_size import VocabSize, wrong_vocab_size
from drafter.errors import CheckpointError
from drafter.sample.text.tokens import piece

if TYPE_CHECKING:
    import torch

    from drafter.files.stored import StoredTensor

KIND = "K03"
EXAMPLES = 5
_COUNTS = ("SafeAILab/EAGLE#248", "sgl-project/SpecForge#139", "xLLM-AI/xllm#1328", "pytorch/executorch#20149")
_MAX_MAP = 1 << 24  # ids; more than any vocabulary


@check("vocab-counts", KIND, (FILES,), _COUNTS)
def vocab_counts(case: Case) -> Iterable[Finding]:
    """draft_vocab_size, rows of lm_head, d2t, marks in t2d, and vocab_size, rows of embed_tokens, t2d."""
    files = case.files
    if files.config is None or not files.tensors:
        return
    counts, size = _counts(case), wrong_vocab_size(case)
    if size is not None:
        yield _wrong_size(size, counts)
        return
    # of a head that the target supplies the map alone tells the size
    rows = counts["lm_head rows"] or counts["d2t length"] or counts["draft_vocab_size"]
    pairs = [(name, counts[name], rows) for name in ("draft_vocab_size", "d2t length", "t2d marks")]
    if rows == files.config.vocab_size:
        pairs.pop()  # of a whole vocabulary nobody reads the marks, and trainers leave them as they were made
    wrong = {name: f"{found}, the head has {wanted} rows" for name, found, wanted in pairs if _differ(found, wanted)}
    vocab = files.config.vocab_size
    if _differ(counts["t2d length"], vocab):
        wrong["t2d length"] = f"{counts['t2d length']}, vocab_size is {vocab}"
    embed = counts["embed_tokens rows"]
    if embed is not None and embed < vocab:
        wrong["embed_tokens rows"] = f"{embed}, vocab_size is {vocab}"
    padded = embed is not None and embed > vocab
    if not wrong:
        severity, title = OK, "the sizes of both vocabularies agree"
        if padded:
            severity, title = NOTE, f"embed_tokens has {embed} rows for a vocabulary of {vocab}: padded"
        yield Finding("vocab-counts", KIND, severity, title, counts, reports=_COUNTS)
        return
    name, said = next(iter(wrong.items()))
    title = f"{name} is {said}" + (f"; {len(wrong) - 1} more do not agree" if len(wrong) > 1 else "")
    yield Finding(
        "vocab-counts", KIND, ERROR, title, {**counts, "wrong": wrong}, _counts_fix(wrong, counts), _COUNTS, weight=58
    )


def _wrong_size(size: VocabSize, counts: Mapping[str, int | None]) -> Finding:
    drafted = counts["lm_head rows"] or counts["d2t length"] or counts["draft_vocab_size"]
    mixed = ", the size of the draft vocabulary" if drafted == size.found else ""
    title = f"{size.key} is {size.found} in config.json{mixed}, but {size.words}"
    evidence = {**counts, "says": dict(size.witnesses)}
    fix = f"config.json: {size.key} = {size.wanted}"
    return Finding("vocab-counts", KIND, ERROR, title, evidence, fix, _COUNTS, weight=93)


def _differ(found: int | None, wanted: int | None) -> bool:
    return found is not None and wanted is not None and found != wanted


def _counts(case: Case) -> dict[str, int | None]:
    files, tensors = case.files, case.files.tensors
    config = files.config
    assert config is not None

    def rows(name: str) -> int | None:
        tensor = tensors.get(name)
        return tensor.shape[0] if tensor is not None and tensor.shape else None

    stated_size = files.stated("draft_vocab_size")
    return {
        "draft_vocab_size": stated_size if type(stated_size) is int else None,
        "lm_head rows": rows("lm_head.weight"),
        "d2t length": rows("d2t"),
        "t2d marks": _marks(case),
        "t2d length": rows("t2d"),
        "vocab_size": config.vocab_size,
        "embed_tokens rows": rows("embed_tokens.weight"),
    }


def _marks(case: Case) -> int | None:
    t2d = _map_tensor(case.files.tensors.get("t2d"))
    return None if t2d is None else int(t2d.bool().sum())


def _map_tensor(stored: StoredTensor | None) -> torch.Tensor | None:
    """A tensor of one dimension that a map may be; None for what is none, or was cast to floats."""
    if stored is None or len(stored.shape) != 1 or stored.numel > _MAX_MAP:
        return None
    return None if stored.dtype.startswith(("F", "BF", "C")) else stored.read()


def _counts_fix(wrong: Mapping[str, str], counts: Mapping[str, int | None]) -> str:
    if "d2t length" in wrong:
        return "export the weights again with the map that the head was trained with"
    if "draft_vocab_size" in wrong:
        return f"config.json: draft_vocab_size = {counts['lm_head rows'] or counts['d2t length']}"
    if "t2d marks" in wrong:
        return "make t2d anew from d2t: t2d[i + d2t[i]] = true, all others false; or train with that many draft ids"
    return "export the weights again: the map, the embedding and vocab_size are of different vocabularies"


@check("vocab-map", KIND, (CKPT,), ("SafeAILab/EAGLE#222", "NVIDIA-NeMo/Automodel#2447", "Tencent/AngelSlim#16"))
def vocab_map(case: Case) -> Iterable[Finding]:
    """How d2t reads: offsets, target ids, never set, of another vocabulary, missing."""
    checkpoint, config = case.checkpoint, case.checkpoint.run_config
    if not checkpoint.has_weights or wrong_vocab_size(case) is not None:
        return  # nothing is to be done to a map that is held against a wrong size
    d2t, rows = checkpoint.tensors.get("d2t"), checkpoint.draft_vocab_size
    beside = d2t is not None and d2t.path not in _weight_paths(case)
    if d2t is None and rows != config.vocab_size:
        yield _missing(rows, config.vocab_size, "")
        return
    if beside and d2t is not None:
        yield _missing(rows, config.vocab_size, d2t.path.name)
    try:
        vocab = case.vocab()
    except CheckpointError as error:
        yield _unreadable(error, case)
        return
    evidence: dict[str, Any] = {"reading": vocab.reading, "tests": [str(test) for test in vocab.tests]}
    evidence["examples"] = _examples(case, vocab.target_ids)
    found = _judged(case, vocab.reading, vocab.warning, evidence)
    if found is not None:
        yield found
    elif not beside:
        title = f"the vocab map reads well: {vocab.reading}"
        yield Finding(
            "vocab-map", KIND, OK, title, evidence, reports=("SafeAILab/EAGLE#222", "pytorch/executorch#20149")
        )


def _weight_paths(case: Case) -> set[Any]:
    shards = {tensor.path for name, tensor in case.checkpoint.tensors.items() if name not in ("d2t", "t2d")}
    return shards | set(case.found.weights)


def _missing(rows: int, vocab_size: int, beside: str) -> Finding:
    title = f"the weights hold no d2t, and the head has {rows} rows for a vocabulary of {vocab_size}"
    title += ": vLLM takes the first ids, so nearly every draft is another token"
    fix = "add d2t (int64, offsets: target id - row) to model.safetensors; without it the rows mean no tokens"
    if beside:
        title += f"; a map lies beside them in {beside}"
        fix = f"put the d2t of {beside} into model.safetensors; `eagle3-tui fix` does so"
    evidence = {"lm_head rows": rows, "vocab_size": vocab_size, "beside": beside or "no map found"}
    return Finding("vocab-map-missing", KIND, ERROR, title, evidence, fix, ("NVIDIA-NeMo/Automodel#2447",), weight=88)


def _unreadable(error: CheckpointError, case: Case) -> Finding:
    outside = "outside of the vocabulary" in error.found
    title = f"the vocab map cannot be right: {error.found}"
    evidence = {"found": error.found, "expected": error.expected, "vocab_size": case.checkpoint.run_config.vocab_size}
    d2t = case.checkpoint.tensors.get("d2t")
    if d2t is not None and outside:
        ids, size = _map_tensor(d2t), case.checkpoint.run_config.vocab_size
        if ids is not None:
            import torch

            target = torch.arange(ids.numel()) + ids.long()
            bad = ((target < 0) | (target >= size)).nonzero().flatten()
            evidence["rows"] = bad[:EXAMPLES].tolist()
            evidence["their ids"] = target[bad[:EXAMPLES]].tolist()
    fix = "take the map that the head was trained with; a server indexes past its tables, or drafts other tokens"
    return Finding("vocab-map-range", KIND, ERROR, title, evidence, fix, ("Tencent/AngelSlim#16",), weight=86)


def _judged(case: Case, reading: str, warning: str, evidence: Mapping[str, Any]) -> Finding | None:
    checkpoint, vocab_size = case.checkpoint, case.checkpoint.run_config.vocab_size
    whole = checkpoint.draft_vocab_size == vocab_size
    if reading == "direct ids":
        title = "d2t holds target ids where every server expects offsets: each draft becomes another token"
        fix = "weights: d2t = d2t - arange(len(d2t)); `eagle3-tui fix` writes it so"
        reports = ("SafeAILab/EAGLE#222",)
        return Finding("vocab-map-is-direct", KIND, ERROR, title, evidence, fix, reports, "checkpoint", 89)
    if not warning or (whole and "all zeros" in warning):
        return None  # of a whole vocabulary a map of zeros is right
    if "was never set" in warning and "either" not in warning:
        fix = "make d2t from t2d (sorted ids - arange), or export the weights with the map"
        return Finding("vocab-map-unset", KIND, ERROR, warning, evidence, fix, ("SafeAILab/EAGLE#222",), weight=87)
    if "all zeros" in warning:
        fix = "if the draft vocabulary is not the first ids, take the map that the head was trained with"
        return Finding("vocab-map-unset", KIND, WARNING, warning, evidence, fix, ("SafeAILab/EAGLE#222",), weight=40)
    if whole:
        fix = "nothing, if the head has a row for every token of the target: leave d2t out then; else " + (
            f"config.json: vocab_size = the target's, which is more than {vocab_size}"
        )
        return Finding("vocab-map-ignored", KIND, ERROR, warning, evidence, fix, weight=60)
    if "marks" in warning and "t2d" in warning and "fit" not in warning:
        return None  # said by vocab-counts
    if "both readings" in warning:
        return Finding("vocab-map-ambiguous", KIND, NOTE, warning, evidence)
    title = f"{warning}: the map belongs to another vocabulary, or is damaged"
    fix = "take the map that the head was trained with"
    return Finding("vocab-map-stale", KIND, ERROR, title, evidence, fix, weight=85)


def _examples(case: Case, target_ids: torch.Tensor) -> list[str]:
    """Some rows with the tokens that they stand for, spread over the map."""
    count = target_ids.numel()
    rows = sorted({count * i // EXAMPLES for i in range(EXAMPLES)}) if count else []
    said = []
    for row in rows:
        token = int(target_ids[row])
        text = f" {piece(case.tokens, token)}" if case.tokens is not None else ""
        said.append(f"row {row} -> {token}{text}")
    return said


@check("tied-head", KIND, (FILES,), ("sgl-project/SpecForge#139", "Tencent/AngelSlim#16"))
def tied_head(case: Case) -> Iterable[Finding]:
    """tie_word_embeddings beside a head of its own, or of another size."""
    head, config = case.files.tensors.get("lm_head.weight"), case.files.config
    if config is None or config.tie_lm_head is not True or not case.files.tensors:
        return
    size = case.files.stated("draft_vocab_size")
    rows = head.shape[0] if head is not None and head.shape else size
    evidence = {
        "tie_word_embeddings": True,
        "rows": rows,
        "vocab_size": config.vocab_size,
        "own lm_head": head is not None,
    }
    reports = ("sgl-project/SpecForge#139", "Tencent/AngelSlim#16")
    fix = "config.json: tie_word_embeddings = false"
    if head is not None:
        title = (
            "tie_word_embeddings is true beside an lm_head of its own: SGLang drops the head and takes the embedding"
        )
        # a whole head may be a copy of the embedding
        severity = WARNING if rows == config.vocab_size else ERROR
        yield Finding("tied-head", KIND, severity, title, evidence, fix, reports, weight=82)
    elif type(rows) is int and rows != config.vocab_size:
        title = f"tie_word_embeddings is true, and the head has {rows} rows for a vocabulary of {config.vocab_size}"
        fix += f"; weights: {head_to_write(rows, config.hidden_size)}"
        yield Finding("tied-head", KIND, ERROR, title, evidence, fix, reports, weight=82)


@check("special-tokens", KIND, (CKPT,))
def special_tokens(case: Case) -> Iterable[Finding]:
    """A drafter that has no end token in its vocabulary never drafts one."""
    whole = case.checkpoint.draft_vocab_size == case.checkpoint.run_config.vocab_size
    if not case.checkpoint.has_weights or whole or wrong_vocab_size(case) is not None:
        return
    ends = _end_ids(case)
    drafted = set(case.vocab().target_ids.tolist())
    absent = [token for token in ends if token not in drafted]
    if absent:
        said = ", ".join(map(str, absent))
        title = f"the end token {said} is not in the draft vocabulary: the drafter never drafts the end of an answer"
        yield Finding("special-tokens", KIND, NOTE, title, {"eos_token_id": ends, "absent": absent})


def _end_ids(case: Case) -> list[int]:
    """As the target says, else the drafter's own config."""
    said = [stated(case.target_table(), "eos_token_id"), case.files.layer("eos_token_id")]
    value: Any = next((one for one in said if one is not None), [])
    ids: list[Any] = value if isinstance(value, list) else [value]
    return [one for one in ids if type(one) is int and 0 <= one < case.checkpoint.run_config.vocab_size]


@check("vocab-share", "K12", (CKPT,), ("sgl-project/SpecForge#218",))
def vocab_share(case: Case) -> Iterable[Finding]:
    """A pruned vocabulary that is hardly smaller than the whole one."""
    rows, vocab_size = case.checkpoint.draft_vocab_size, case.checkpoint.run_config.vocab_size
    if case.checkpoint.has_weights and vocab_size / 2 < rows < vocab_size and wrong_vocab_size(case) is None:
        share = rows / vocab_size
        title = f"the draft vocabulary is {share:.0%} of the whole: the head costs nearly as much as a whole one"
        evidence = {
            "draft vocabulary": rows,
            "vocab_size": vocab_size,
            "hidden_size": case.checkpoint.config.hidden_size,
        }
        yield Finding("vocab-share", "K12", NOTE, title, evidence, reports=("sgl-project/SpecForge#218",))


@check("target-vocab", KIND, (FILES, TCFG), ("xLLM-AI/xllm#1328", "Tencent/AngelSlim#16"))
def target_vocab(case: Case) -> Iterable[Finding]:
    """The target's vocabulary is the one that the drafter was made for."""
    config, target = case.files.config, case.target
    if config is None or target is None or target.vocab_size in (None, config.vocab_size):
        return
    wrong = wrong_vocab_size(case)
    if wrong is not None and wrong.wanted == target.vocab_size:
        return  # the target is right
    size = target.vocab_size or 0
    evidence = {"target vocab_size": size, "drafter vocab_size": config.vocab_size, "target": target.path}
    needed = config.vocab_size
    if case.opened is not None and case.opened.has_weights:
        needed = int(case.vocab().target_ids.max()) + 1
    severity = ERROR if needed > size else WARNING
    title = f"the target has {size} tokens, the drafter was made for {config.vocab_size}"
    fix = "take the target that the drafter was trained for"
    yield Finding("target-vocab", KIND, severity, title, {**evidence, "ids needed": needed}, fix, weight=50)


@check("tokenizer-ids", KIND, (CKPT, TOK), ("SafeAILab/EAGLE#258",))
def tokenizer_ids(case: Case) -> Iterable[Finding]:
    """Ids that the drafter may draft and the tokenizer has no token for."""
    assert case.tokens is not None
    if not case.checkpoint.has_weights or wrong_vocab_size(case) is not None:
        return
    ids = case.vocab().target_ids.tolist()
    absent = [token for token in ids if case.tokens.raw(token) is None]
    evidence = {"draft ids": len(ids), "without a token": len(absent), "first": absent[:EXAMPLES]}
    if absent:
        title = f"{len(absent)} of {len(ids)} draft ids are no tokens of this tokenizer: it may be another model's"
        severity = WARNING if len(absent) > len(ids) // 20 else NOTE  # a few may be padding
        yield Finding("tokenizer-ids", KIND, severity, title, evidence, "name the target's own, --tokenizer")
    else:
        yield Finding("tokenizer-ids", KIND, OK, "the tokenizer has a token for every draft id", evidence)
