"""K02: a head that is not in the weights, and what each server puts in its place.

Training makes a pruned head of the target's rows at the mapped ids; no server does. Reads headers only.
"""

from __future__ import annotations

from collections.abc import Iterable

from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, Finding
from drafter.checks.registry import check
from drafter.checks.vocab_size import wrong_vocab_size

_REPORTS = ("SafeAILab/EAGLE#265", "SafeAILab/EAGLE#303")


def head_to_write(rows: int, width: int) -> str:
    """How a head of the target's rows is made, where the draft vocabulary is a part of the target's."""
    return (
        f"lm_head.weight = the rows of the target's lm_head at the mapped ids (arange({rows}) + d2t), [{rows}, {width}]"
    )


@check("head-missing", "K02", (CKPT,), _REPORTS)
def head_missing(case: Case) -> Iterable[Finding]:
    """No lm_head, and a draft vocabulary that is a part of the target's: the rows of no table are the draft ids."""
    checkpoint, config = case.checkpoint, case.checkpoint.run_config
    rows, vocab = checkpoint.draft_vocab_size, config.vocab_size
    if not checkpoint.has_weights or checkpoint.quantised or "lm_head.weight" in checkpoint.tensors:
        return
    if rows == vocab or config.tie_lm_head or wrong_vocab_size(case) is not None:
        return  # the target's whole head is right for the first, `tied-head` speaks of the second
    title = (
        f"lm_head.weight is missing, and the draft vocabulary is {rows} of {vocab} tokens: no server takes the "
        "target's rows at the mapped ids, as is computed here"
    )
    stated = case.files.stated("draft_vocab_size") is not None
    evidence = {
        "draft vocabulary": rows,
        "vocab_size": vocab,
        "SGLang": f"makes a head of {rows} rows that nothing fills"
        if stated
        else "takes the target's whole head, whose row i is token i, and adds d2t to that",
        "vLLM": "takes the target's whole head, whose row i is token i, as draft id i",
    }
    fix = f"weights: {head_to_write(rows, config.hidden_size)}"
    yield Finding("head-missing", "K02", ERROR, title, evidence, fix, _REPORTS, "checkpoint", 84)
