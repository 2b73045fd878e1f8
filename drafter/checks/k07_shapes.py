"""K07: the sizes that belong together: every shape at once, head_dim and where it comes from, the three widths.

Works also where the checkpoint cannot be opened for its shapes. Reads headers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from drafter.checkpoint.config import DrafterConfig
from drafter.checkpoint.inventory import NOBODY, take_inventory
from drafter.checkpoint.shapes import misshapen
from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, FILES, OK, TCFG, Finding
from drafter.checks.head_sizes import HeadSizes, cure, readings
from drafter.checks.registry import check
from drafter.checks.written import written
from drafter.files.stored import StoredTensor

KIND = "K07"
_SHAPES = ("SafeAILab/EAGLE#315", "vllm-project/speculators#134", "NVIDIA/Model-Optimizer#628")


@check("shapes", KIND, (FILES,), _SHAPES)
def shapes(case: Case) -> Iterable[Finding]:
    """Every tensor of another shape than the config gives it, none left out for an earlier one."""
    config, tensors, opened = _config(case), case.files.tensors, case.opened
    if config is None or not tensors or (opened is not None and opened.quantised):
        return
    if opened is not None:
        wrong, missing, unused = dict(opened.misshapen), list(opened.fatal), list(opened.unused)
    else:
        wrong, missing, unused = _salvaged(config, tensors)
    if not wrong:
        checked = len(opened.expected) if opened is not None else 0
        if opened is not None:
            title = f"all {checked} tensors that are used have the shapes of the config"
            yield Finding("shapes", KIND, OK, title, _formulas(config), reports=_SHAPES)
        return
    said = {name: text + _explained(name, tensors[name], config) for name, text in wrong.items()}
    named = written(case)
    evidence = {"wrong": {named(n): text for n, text in said.items()}, "missing": [*map(named, missing)]}
    evidence |= {"unused": [*map(named, unused)], **_formulas(config)}
    first = next(iter(said))
    more = f" and {len(said) - 1} more" if len(said) > 1 else ""
    title = f"{named(first)} is {said[first]}{more}: not the shape that the config gives"
    yield Finding("shapes", KIND, ERROR, title, evidence, _fix(said, case, config), _SHAPES, "checkpoint", 75)


def _config(case: Case) -> DrafterConfig | None:
    return case.opened.run_config if case.opened is not None else case.files.config


def _salvaged(
    config: DrafterConfig, tensors: Mapping[str, StoredTensor]
) -> tuple[dict[str, str], list[str], list[str]]:
    """Wrong shapes, missing and unused tensors of a checkpoint that does not open, with the likeliest states."""
    inputs, head = _states(config, tensors), tensors.get("lm_head.weight")
    rows = head.shape[0] if head is not None and head.shape else config.draft_vocab_size or config.vocab_size
    stated = config.draft_vocab_size or rows
    listed = take_inventory(config, inputs, tensors)
    missing = [name for name, source in listed.missing.items() if source == NOBODY]
    return misshapen(config, inputs, stated, tensors), missing, list(listed.unused)


def _states(config: DrafterConfig, tensors: Mapping[str, StoredTensor]) -> int:
    """How many states fc may take: as its columns say, or its rows where it lies transposed, else the usual three."""
    fc = tensors.get("fc.weight")
    if fc is None or len(fc.shape) != 2:
        return 3
    sizes = [n // config.target_hidden_size for n in (fc.shape[1], fc.shape[0]) if n % config.target_hidden_size == 0]
    return next((n for n in sizes if n > 1), len(config.aux_ids or ()) or 3)


def _explained(name: str, stored: StoredTensor, config: DrafterConfig) -> str:
    """What a size is a multiple of, in words; empty where that tells nothing."""
    shape, hidden = stored.shape, config.hidden_size
    if name == "fc.weight" and len(shape) == 2:
        if shape[1] == hidden and shape[0] % config.target_hidden_size == 0:
            return " (it is transposed)"
        if shape[0] == hidden and shape[1] % config.target_hidden_size:
            thirds = shape[1] // 3 if shape[1] % 3 == 0 else 0
            return f" ({shape[1]} = 3 x {thirds}: target_hidden_size may be {thirds})" if thirds else ""
        return f" ({shape[1]} = {shape[1] // config.target_hidden_size} x {config.target_hidden_size})"
    if (
        name.startswith("layers.0.self_attn.")
        and len(shape) == 2
        and shape[1] == hidden
        and not name.endswith("o_proj.weight")
    ):
        return f" ({hidden} = 1 x H: the attention of an EAGLE-3 drafter takes 2 x H, embedding beside hidden)"
    return ""


def _fix(wrong: Mapping[str, str], case: Case, config: DrafterConfig) -> str:
    if any("may be" in text for text in wrong.values()):
        said = next(text for text in wrong.values() if "may be" in text)
        return "config.json: " + said.rpartition("target_hidden_size may be ")[2].rstrip(")").join(
            ("target_hidden_size = ", "")
        )
    heads = [name for name in wrong if "self_attn" in name]
    found = _head_sizes(case, config) if heads and len(heads) == len(wrong) else ()
    if found and found[0].changes(config):
        return _cure_of_heads(case, config)
    return "export the weights again, or correct the sizes in config.json"


def _head_sizes(case: Case, config: DrafterConfig) -> tuple[HeadSizes, ...]:
    return readings(config, case.files.tensors, _likely(case))


def _likely(case: Case) -> int | None:
    """The target's head_dim, which most drafters have too."""
    size = case.target_table().get("head_dim")
    return size if type(size) is int else None


def _cure_of_heads(case: Case, config: DrafterConfig) -> str:
    prefix = "transformer_layer_config." if "transformer_layer_config" in case.files.table else ""
    return cure(_head_sizes(case, config), config, prefix, _likely(case))


def _formulas(c: DrafterConfig) -> dict[str, Any]:
    """Each size with where it comes from."""

    def source(name: str) -> str:
        evidence = c.evidence.get(name)
        return (
            "" if evidence is None else evidence.note if evidence.is_default else f"{evidence.source}: {evidence.key}"
        )

    found: dict[str, Any] = {
        "H": f"{c.hidden_size} ({source('hidden_size')})",
        "Ht": f"{c.target_hidden_size} ({source('target_hidden_size')})",
        "attention in": f"2 x H = {2 * c.hidden_size}: embedding beside hidden",
    }
    if c.mla is None:
        found["head_dim"] = f"{c.head_dim} ({source('head_dim')}); H / heads = {c.hidden_size / c.num_heads:g}"
        found["q_proj rows"] = f"heads x head_dim = {c.num_heads} x {c.head_dim} = {c.num_heads * c.head_dim}"
        found["k_proj rows"] = f"{c.num_kv_heads} x {c.head_dim} = {c.num_kv_heads * c.head_dim}"
    return found


@check("head-dim", KIND, (FILES,), ("SafeAILab/EAGLE#315", "vllm-project/speculators#134"))
def head_dim(case: Case) -> Iterable[Finding]:
    """head_dim is not hidden_size / heads, and the config does not say so."""
    config, q = _config(case), case.files.tensors.get("layers.0.self_attn.q_proj.weight")
    if config is None or q is None or config.mla is not None or len(q.shape) != 2:
        return
    by_rows, rest = divmod(q.shape[0], config.num_heads)
    divided, stated = config.hidden_size // config.num_heads, case.files.layer("head_dim")
    evidence = {
        "q_proj rows": q.shape[0],
        "num_attention_heads": config.num_heads,
        "rows / heads": by_rows if not rest else f"{q.shape[0] / config.num_heads:g}",
        "hidden_size / heads": config.hidden_size / config.num_heads,
        "head_dim in the config": stated,
    }
    reports = ("SafeAILab/EAGLE#315", "vllm-project/speculators#134", "SafeAILab/EAGLE#223")
    key = "transformer_layer_config.head_dim" if "transformer_layer_config" in case.files.table else "head_dim"
    if not rest and stated is None and by_rows != divided:
        title = f"head_dim is {by_rows} by q_proj, and the config states none: servers take {divided}"
        yield Finding("head-dim", KIND, ERROR, title, evidence, f"config.json: {key} = {by_rows}", reports, weight=78)
    elif not rest and type(stated) is int and stated != by_rows:
        title = f"the config says head_dim {stated}, q_proj has {q.shape[0]} rows = {config.num_heads} x {by_rows}"
        fix = _cure_of_heads(case, config) if _head_sizes(case, config) else f"config.json: {key} = {by_rows}"
        yield Finding("head-dim", KIND, ERROR, title, evidence, fix, reports, weight=78)


@check("widths", KIND, (CKPT,), ("sgl-project/sglang#8163", "sgl-project/sglang#10059", "vllm-project/speculators#79"))
def widths(case: Case) -> Iterable[Finding]:
    """The three widths: of the state, of what enters the attention, of what enters fc."""
    c, inputs = case.checkpoint.run_config, case.checkpoint.fc_inputs
    fc = case.checkpoint.tensors.get("fc.weight")
    evidence = {
        "recursion state": f"1 x H = {c.hidden_size}",
        "attention in": f"2 x H = {2 * c.hidden_size}",
        "fc in": f"{inputs} x Ht = {inputs} x {c.target_hidden_size} = {inputs * c.target_hidden_size}",
        "fc out": c.hidden_size,
    }
    reports = ("sgl-project/sglang#8163", "sgl-project/sglang#10059", "vllm-project/vllm#38073")
    if fc is None and c.target_hidden_size != c.hidden_size and case.checkpoint.has_weights:
        title = f"no fc, although the target is {c.target_hidden_size} wide and the drafter {c.hidden_size}"
        yield Finding("widths", KIND, ERROR, title, evidence, "export the weights with fc", reports, weight=72)
        return
    title = f"the drafter takes {inputs} x {c.target_hidden_size} at first, its own state of {c.hidden_size} after"
    yield Finding("widths", KIND, OK, title, evidence, reports=reports)


@check("target-width", KIND, (FILES, TCFG), ("vllm-project/vllm#38073", "sgl-project/sglang#8163"))
def target_width(case: Case) -> Iterable[Finding]:
    """The width that fc was made for is the target's."""
    config, target = _config(case), case.target
    if config is None or target is None or target.hidden_size in (None, config.target_hidden_size):
        return
    title = f"the target is {target.hidden_size} wide, the drafter was made for {config.target_hidden_size}"
    evidence = {"target hidden_size": target.hidden_size, "drafter": config.target_hidden_size, "target": target.path}
    fix = f"config.json: target_hidden_size = {target.hidden_size}, if fc has a multiple of that; else another target"
    yield Finding("target-width", KIND, ERROR, title, evidence, fix, ("vllm-project/vllm#38073",), weight=76)
