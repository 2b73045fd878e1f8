"""K13, without a sample: what each server would compute otherwise than training did, and where it would not load.

For a checkpoint that is as its producer made it this is worth knowing, no fault; for the server that is really used
(named by flags or --server) it hurts. Every rule is `drafter.serving`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from drafter.checks.captures import servers, wrong
from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, MISWIRED, NOTE, TCFG, WARNING, Finding
from drafter.checks.k01_wiring import fix_of_ids, trained_depths
from drafter.checks.registry import check
from drafter.errors import DrafterError
from drafter.serving.server import Server
from drafter.serving.view_case import CANNOT
from drafter.serving.view_case import Case as ViewCase
from drafter.serving.views import SERVERS, ServedView, served_view

KIND = "K13"
KINDS = {
    **dict.fromkeys(("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "double_norm"), "K05"),
    **dict.fromkeys(("final_norm", "upper_norms", "qk_norm"), "K05"),
    **dict.fromkeys(("rope", "positions", "window"), "K06"),
    **dict.fromkeys(("embedding", "head", "qkv_bias", "fc_bias", "fc"), "K02"),
    "d2t": "K03",
}
# these change little or nothing in what is most probable
_ROWS = 256  # of an embedding that are compared
_MILD = frozenset({"logit_scale", "window", "positions"})
_REPORTS = {
    "norm_before_fc": ("vllm-project/vllm#38111", "sgl-project/sglang#32334"),
    "embedding": ("lightseekorg/TorchSpec#38",),
    "rope": ("sgl-project/SpecForge#742", "NVIDIA-NeMo/Automodel#2920"),
    "head": ("sgl-project/SpecForge#139",),
    "d2t": ("SafeAILab/EAGLE#222",),
}
_EVERY = tuple(dict.fromkeys(report for reports in _REPORTS.values() for report in reports))


def views(case: Case) -> list[ServedView]:
    """The view of each server that the case is about."""

    def make() -> list[ServedView]:
        try:
            reading = case.vocab().reading
        except DrafterError:
            reading = ""  # said by vocab-map
        wanted = [server for server in servers(case) if server.name in SERVERS]
        return [served_view(_view_case(case, server, reading)) for server in wanted]

    return case.once("views", make)


def _view_case(case: Case, server: Server, reading: str) -> ViewCase:
    return ViewCase(case.checkpoint, case.files.table, server, case.family, case.target_layers, case.target, reading)


@check("served-otherwise", KIND, (CKPT,), _EVERY)
def served_otherwise(case: Case) -> Iterable[Finding]:
    """Each difference between the trained function and that of a server."""
    if not case.checkpoint.has_weights:
        return
    named = case.server is not None
    for view in views(case):
        if view.refused:
            severity = NOTE if not named else ERROR if case.served is None else WARNING
            title = f"{view.name} would not load or run this: {view.refused}"
            title += "; yet it serves, so it reads another folder than this" if case.served is not None else ""
            yield Finding("served-refused", KIND, severity, title, {"server": view.name}, weight=69)
            continue
        for found in view.differences:
            if found.name == "embedding" and same_embedding(case):
                continue
            hurts = WARNING if found.name in _MILD else ERROR
            fix = found.cure.removeprefix(CANNOT) if found.cure.startswith(CANNOT) else found.cure
            title = f"{found.why}: {found.name} is {found.trained} in training, {found.served} there"
            evidence = {"server": view.name, "switch": found.name, "trained": found.trained, "served": found.served}
            kind = KINDS.get(found.name, KIND)
            severity = hurts if named and found.computed else NOTE
            means = MISWIRED if named else ""
            reports = _REPORTS.get(found.name, ())
            yield Finding("served-otherwise", kind, severity, title, evidence, fix, reports, "wiring", 62, means)


def same_embedding(case: Case) -> bool:
    """Whether the drafter's own embedding is the target's, so that it does not matter which is taken."""
    from drafter.checks.rows import compare_rows

    ours = case.checkpoint.tensors.get("embed_tokens.weight")
    theirs = case.target.embed if case.target is not None else None
    if ours is None or theirs is None or ours.shape[1:] != theirs.shape[1:]:
        return False
    found = compare_rows(ours, theirs, _ROWS, case.poll)
    return found.equal == found.rows


@check("served-layers", "K01", (CKPT,), ("vllm-project/vllm#50170", "vllm-project/vllm#43671"))
def served_layers(case: Case) -> Iterable[Finding]:
    """The depths that each server captures, against those that were trained."""
    trained = trained_depths(case)
    if trained is None or not case.checkpoint.config.use_aux or not case.checkpoint.has_weights:
        return
    reports = ("vllm-project/vllm#50170", "vllm-project/vllm#43671")
    said = case.server is None and any(d.field == "aux_depths" for d in case.checkpoint.disagreements)
    for view in [] if said else views(case):  # layer-ids-differ has said it of every server
        capture = view.capture
        if view.refused or capture.depths is None or capture.depths == tuple(trained):
            continue
        source = "its default" if capture.ids is None else capture.source
        title = f"{view.name} captures depths {', '.join(map(str, capture.depths))} ({source}), "
        title += f"training fed {', '.join(map(str, trained))}"
        evidence = {"server": view.name, "captures": capture.depths, "trained": trained, "notes": capture.notes}
        severity = ERROR if case.server is not None and not wrong(case) else NOTE  # one error for one fault
        fix = fix_of_ids(case, trained)
        yield Finding("served-layers", "K01", severity, title, evidence, fix, reports, "orderings", 88)
    for view in views(case):
        if view.graph_depths is not None:
            depths = ", ".join(map(str, view.graph_depths))
            title = f"{view.name} captures depths {depths} in steps replayed from CUDA graphs"
            severity = ERROR if case.server is not None else NOTE
            fix = "--disable-cuda-graph, or SGLang 0.5.11 or later"
            replayed: dict[str, Any] = {"server": view.name, "graph": view.graph_depths, "else": view.capture.depths}
            yield Finding("served-layers", KIND, severity, title, replayed, fix, weight=61)


@check("mrope-target", KIND, (TCFG,), ("vllm-project/vllm#54498",))
def mrope_target(case: Case) -> Iterable[Finding]:
    """A target with three position coordinates, which engines have mixed with slots."""
    table = case.target_table()
    tables = [table.get(key) for key in ("rope_scaling", "rope_parameters")]
    section = next((t["mrope_section"] for t in tables if isinstance(t, dict) and t.get("mrope_section")), None)
    if section is not None:
        title = (
            "the target has multimodal RoPE (mrope): some versions of vLLM wrote drafts to wrong cache slots for these"
        )
        evidence = {"mrope_section": section}
        fix = "if acceptance falls only while serving, try a newer vLLM before looking at the drafter"
        yield Finding("mrope-target", KIND, NOTE, title, evidence, fix, ("vllm-project/vllm#54498",))
