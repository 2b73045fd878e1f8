"""K05, without a sample: norms in the weights that the config does not use, or the reverse.

What each server leaves out is `k13_engine`'s matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from drafter.checks.case import Case
from drafter.checks.files import is_nested, stated
from drafter.checks.finding import CKPT, ERROR, NOTE, OK, WARNING, Finding
from drafter.checks.registry import check

KIND = "K05"
_FLAGS = ("vllm-project/vllm#38111", "sgl-project/sglang#32334")
_SGLANG_FC = "norm_before_fc = true, and eagle_config.norm_before_fc = true (SGLang)"
# tensor -> the flag that makes it count, and how it is written in a flat config and in a nested one
_NORMS = (
    (r"input_norm\.weight", "norm_before_fc", _SGLANG_FC, "norm_before_fc = true"),
    (r"fc_norm\.\d+\.weight", "fc_norm", "fc_norm = true", "fc_norm = true"),
    (r"norm\.weight", "final_norm", "", ""),  # compared, not written
    (r"mask_hidden", "parallel", "parallel_drafting = true", 'speculators_model_type = "peagle"'),
    (r"(fc|layers\.0\.hidden_norm)\.\w+", "use_aux", "eagle_config.use_aux_hidden_state = true", ""),
)


@check("norm-flags", KIND, (CKPT,), _FLAGS)
def norm_flags(case: Case) -> Iterable[Finding]:
    """Each optional norm: there and used, there and not used, or used and not there."""
    checkpoint = case.checkpoint
    if not checkpoint.has_weights:
        return
    hurt = False
    for pattern, flag, flat, nested in _NORMS:
        names = [name for name in checkpoint.tensors if re.fullmatch(pattern, name)]
        unused = [name for name in names if checkpoint.unused.get(name, "").startswith("should be used")]
        lacking = [name for name in checkpoint.fatal if re.fullmatch(pattern, name)]
        evidence = {"flag": flag, "value": getattr(checkpoint.run_config, flag), "tensors": names, "missing": lacking}
        if unused and flag != "final_norm":
            hurt = True
            title = f"{unused[0]} is in the weights, but {flag} is not set: no server applies it, and training did"
            fix = f"{case.files.table_name}: {nested if is_nested(case.files.table) else flat}"
            yield Finding("norm-flags", KIND, ERROR, title, evidence, fix, _FLAGS, "wiring", 86)
        elif unused:
            hurt = True
            title = f"{unused[0]} is in the weights, but the config leaves it out in training; servers apply it"
            yield Finding(
                "norm-flags", KIND, WARNING, title, evidence, "compare --final-norm on and off", _FLAGS, "wiring"
            )
        elif lacking and flag in ("norm_before_fc", "fc_norm"):
            hurt = True
            title = f"{flag} is set, but {lacking[0]} is not in the weights: a server leaves it at ones"
            key = checkpoint.config.evidence[flag].key
            fix = f"{case.files.table_name}: {key} = false, or export the weights with the norm"
            yield Finding("norm-flags", KIND, ERROR, title, evidence, fix, _FLAGS, "wiring", 86)
    if not hurt:
        yield Finding("norm-flags", KIND, OK, "the config uses every norm that the weights have", reports=_FLAGS)


SMALL, LARGE = 1e-9, 1e-3  # of rms_norm_eps: drafters have 1e-5 or 1e-6


@check("norm-eps", KIND, (CKPT,))
def eps(case: Case) -> Iterable[Finding]:
    """The number that norms add under the root: outside of what is usual, or not the target's."""
    ours, theirs = case.checkpoint.run_config.rms_norm_eps, case.target_table().get("rms_norm_eps")
    usual = SMALL <= ours <= LARGE
    if usual and (not isinstance(theirs, int | float) or theirs == ours):
        return
    title = f"rms_norm_eps is {ours:g}"
    title += f", the target's {theirs:g}" if isinstance(theirs, int | float) else ", far from the usual 1e-5 or 1e-6"
    wanted = theirs if isinstance(theirs, int | float) else 1e-5
    evidence = {"flag": "rms_norm_eps", "drafter": ours, "target": theirs}
    severity = NOTE if usual else WARNING
    fix = case.files.written_in_all("rms_norm_eps", f"{wanted:g}")
    yield Finding("norm-eps", KIND, severity, title, evidence, fix, weight=30)


@check("two-norms", KIND, (CKPT,))
def two_norms(case: Case) -> Iterable[Finding]:
    """input_norm and fc_norm exclude each other, and readers differ on what comes first."""
    config = case.checkpoint.config
    if config.norm_before_fc and config.fc_norm:
        title = "norm_before_fc and fc_norm are both set: TensorRT-LLM applies the second alone, others both"
        evidence = {"norm_before_fc": True, "fc_norm": stated(case.files.table, "fc_norm", "use_aux_norm")}
        yield Finding("two-norms", KIND, WARNING, title, evidence, "keep the one that was trained", weight=35)
