"""K02: rows or columns of a trained matrix that are zero throughout: a head, a slot's block of fc or a shard is lost.

Embeddings are let be (rows of padding), and so is a head whose rows no t2d bears out. A matrix that is zero as a whole
is said by `untrained`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from drafter.checkpoint.config import DrafterConfig
from drafter.checks.case import Case
from drafter.checks.finding import CKPT, NOTE, WARNING, Finding
from drafter.checks.registry import WEIGHTS, check
from drafter.checks.untrained import Look, looks
from drafter.checks.written import written

LEAST = 8  # rows that are zero side by side, from which they are a part and not a neuron that died
SHOWN = 4
_REPORTS = ("vllm-project/speculators#1114",)
Run = tuple[int, int]  # the first, and the last


@check("rows-of-zeros", "K02", (CKPT,), _REPORTS, WEIGHTS)
def rows_of_zeros(case: Case) -> Iterable[Finding]:
    """One finding for each matrix, with the rows or columns."""
    named = written(case)
    for name, look in looks(case).items():
        if name not in case.checkpoint.expected or not _counts(case, name):
            continue
        for what, runs in (("rows", look.zero_rows), ("columns", look.zero_columns)):
            if runs:
                yield _finding(case.checkpoint.run_config, name, named(name), look, what, runs)


def _counts(case: Case, name: str) -> bool:
    """Whether zeros in it are no padding."""
    if name == "lm_head.weight":
        part = case.checkpoint.draft_vocab_size != case.checkpoint.run_config.vocab_size
        return part and "t2d" in case.checkpoint.tensors
    return name != "embed_tokens.weight"


def _finding(c: DrafterConfig, name: str, shown: str, look: Look, what: str, runs: tuple[Run, ...]) -> Finding:
    wide = any(last - first + 1 >= LEAST for first, last in runs)
    more = f" and {len(runs) - SHOWN} more places" if len(runs) > SHOWN else ""
    said = ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs[:SHOWN]) + more
    part = "; ".join(dict.fromkeys(words for run in runs[:SHOWN] if (words := "; ".join(_part(c, name, what, run)))))
    title = f"{what} {said} of {shown} are all zero" + (f": {part}" if part else "")
    evidence = {"tensor": shown, "shape": list(look.shape), what: said, "zero": sum(b - a + 1 for a, b in runs)}
    fix = "export the weights again and compare these with an earlier epoch: they were made and never filled"
    severity = WARNING if wide else NOTE
    return Finding("rows-of-zeros", "K02", severity, title, evidence, fix, _REPORTS, "checkpoint", 56)


def _part(c: DrafterConfig, name: str, what: str, run: Run) -> Iterator[str]:
    """What whole part of the drafter the run is."""
    kind, (first, last) = name.rpartition(".self_attn.")[2].partition("_proj")[0], run
    sizes = {"q": c.num_heads, "k": c.num_kv_heads, "v": c.num_kv_heads, "o": c.num_heads}
    head = ".self_attn." in name and c.mla is None and what == ("columns" if kind == "o" else "rows")
    if head and kind in sizes:
        heads = range(-(-first // c.head_dim), (last + 1) // c.head_dim)
        listed = ", ".join(map(str, heads))
        if heads:
            yield f"head{'s' if len(heads) > 1 else ''} {listed} of {sizes[kind]}, counted from 0"
    elif name == "fc.weight" and what == "columns":
        blocks = range(-(-first // c.target_hidden_size), (last + 1) // c.target_hidden_size)
        if blocks:
            yield f"nothing of input {', '.join(map(str, blocks))} of fc is used, counted from 0"
