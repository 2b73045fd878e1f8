"""K11, without a sample: which numbers are stored, and whether all of them are numbers.

The scan reads every weight, so it comes last.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, NOTE, OK, TW, Finding
from drafter.checks.registry import WEIGHTS, check
from drafter.checks.untrained import FLOATING, looks

KIND = "K11"
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@check("dtypes", KIND, (CKPT,), ("sgl-project/sglang#25894",))
def dtypes(case: Case) -> Iterable[Finding]:
    """The dtypes of the weights, against each other and what the config says."""
    stored = Counter(t.dtype for t in case.checkpoint.tensors.values() if t.dtype in FLOATING)
    said = case.files.stated("torch_dtype", "dtype") or case.files.layer("torch_dtype")
    if not stored:
        return
    evidence: dict[str, Any] = {"tensors by dtype": dict(stored), "config": said}
    reports = ("sgl-project/sglang#25894",)
    main = _NAMES.get(case.checkpoint.dtype, case.checkpoint.dtype)
    matrices = {t.dtype for n, t in case.checkpoint.tensors.items() if len(t.shape) == 2 and t.dtype in _NAMES}
    if isinstance(said, str) and said not in ("auto", main) and case.checkpoint.dtype in _NAMES:
        title = f"the weights are {main}, the config says {said}: a server casts them"
        fix = f"config.json: torch_dtype = {main}"
        yield Finding("dtypes", KIND, NOTE, title, evidence, fix, reports)
    elif len(matrices) > 1:
        several = ", ".join(sorted(_NAMES[dtype] for dtype in matrices))
        title = f"matrices of {several} in one checkpoint: a server casts them to one"
        yield Finding("dtypes", KIND, NOTE, title, evidence, reports=reports)
    else:
        yield Finding("dtypes", KIND, OK, f"the weights are {main}", evidence, reports=reports)


@check("dtype-of-target", KIND, (CKPT, TW), ("sgl-project/sglang#25894",))
def dtype_of_target(case: Case) -> Iterable[Finding]:
    """Another dtype than the target's, on which norm kernels have failed."""
    assert case.target is not None
    theirs = next((t.dtype for t in (case.target.embed, case.target.head) if t is not None), "")
    ours = case.checkpoint.dtype
    if ours in _NAMES and theirs in _NAMES and ours != theirs:
        title = f"the drafter is {_NAMES[ours]}, the target {_NAMES[theirs]}: kernels of some servers reject the mix"
        fix = f"serve both in one dtype: --dtype {_NAMES[theirs]}"
        evidence = {"drafter": _NAMES[ours], "target": _NAMES[theirs]}
        yield Finding("dtype-of-target", KIND, NOTE, title, evidence, fix, ("sgl-project/sglang#25894",))


@check("quantised", KIND, (CKPT,))
def quantised(case: Case) -> Iterable[Finding]:
    """A layout of weights whose forward is not computed here."""
    if case.checkpoint.quantised:
        title = f"{case.checkpoint.quantised}: not computed here, so nothing can be measured"
        yield Finding("quantised", KIND, NOTE, title, fix="check the drafter before it was quantised")


@check("numbers", KIND, (CKPT,), ("vllm-project/vllm#55250", "sgl-project/sglang#27883"), WEIGHTS)
def numbers(case: Case) -> Iterable[Finding]:
    """NaN and infinities in any stored dtype, really counted."""
    seen = looks(case)
    counts = {name: math.prod(look.shape) for name, look in seen.items()}
    bad = {
        name: {"nan": look.nan, "inf": look.inf, "of": counts[name]}
        for name, look in seen.items()
        if look.nan or look.inf
    }
    reports = ("vllm-project/vllm#55250", "sgl-project/sglang#27883")
    if bad:
        name, found = next(iter(bad.items()))
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        title = (
            f"{name}{more} holds {found['nan']} NaN and {found['inf']} infinite numbers: every prediction becomes NaN"
        )
        fix = "take an earlier epoch; if this is a cast to float16, export bfloat16 or float32"
        yield Finding("numbers", KIND, ERROR, title, bad, fix, reports, "checkpoint", 96)
    elif seen:
        top = max(seen, key=lambda name: seen[name].largest)
        evidence = {"scanned": sum(counts.values()), "largest": {top: seen[top].largest}}
        yield Finding("numbers", KIND, OK, f"all {sum(counts.values())} weights are finite", evidence, reports=reports)
