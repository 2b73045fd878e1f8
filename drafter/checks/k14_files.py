"""K14: files that are cut, half written, too many, or not in the layout that servers read; and what cannot be opened.

Looks at names, sizes and headers, at no number in a tensor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, FILES, NOTE, OK, Finding
from drafter.checks.registry import check
from drafter.errors import CheckpointError, DrafterError, FileError, UnsafeFileError
from drafter.files.safetensors_file import MAX_HEADER

KIND = "K14"
_TRAINER = {
    "training_state.pt": "SpecForge's training state",
    "eagle_meta.pt": "NeMo Automodel's meta file",
    "draft_model.pt": "a trainer's own weights",
}
_SHOWN = 12


@check("files-whole", KIND, (FILES,), ("airllm#137", "PersuGPT#2", "SafeAILab/EAGLE#138"))
def files_whole(case: Case) -> Iterable[Finding]:
    """Truncated, empty, missing or unfinished weights."""
    state = case.found.state
    if not state or state == "another kind of speculator" or state.startswith("no config"):
        if not state:
            yield Finding(
                "files-whole", KIND, OK, "every file of the weights is as long as its header says", _sizes(case)
            )
        return
    cut = next((found for path in case.found.weights if (found := _cut(path))), {})
    if cut:
        title = f"{cut['file']} is cut: {cut['missing']} of {cut['promised']} bytes are missing"
        fix = "copy the file again; until then nothing can load it"
        yield Finding("files-whole", KIND, ERROR, title, {**cut, "state": state}, fix, view="checkpoint", weight=98)
        return
    fix = "wait until it is written, or copy it again" if "written" in state or "shard" in state else ""
    fix = fix or ("choose an epoch that still has its weights" if state == "no weights" else "copy the files again")
    if ".distcp" in state:
        fix = "export the parts to model.safetensors with the trainer's own tool"
    title = f"the weights are not whole: {state}"
    yield Finding("files-whole", KIND, ERROR, title, {"state": state, **_sizes(case)}, fix, weight=98)


def _sizes(case: Case) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for path in case.found.weights[:_SHOWN]:
        try:
            sizes[path.name] = path.stat().st_size
        except OSError:
            sizes[path.name] = "gone"
    return {"bytes": sizes}


def _cut(path: Path) -> dict[str, Any]:
    """What a safetensors file promises against what it has; empty where it is whole, or its header is."""
    if path.suffix != ".safetensors":
        return {}
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                return {}
            table = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in table.items() if name != "__metadata__"]
        promised = 8 + length + max(ends)
    except (OSError, ValueError, RecursionError, TypeError, KeyError, IndexError, AttributeError):
        return {}
    if type(promised) is not int or promised <= size:
        return {}
    lost = [
        name for name, entry in table.items() if name != "__metadata__" and 8 + length + entry["data_offsets"][1] > size
    ]
    evidence = {"file": path.name, "promised": promised, "has": size, "missing": promised - size}
    return {**evidence, "tensors_cut_or_lost": len(lost), "first": min(lost, key=len)}


@check("opens", "K04", (FILES,), ("sgl-project/sglang#36528",))
def opens(case: Case) -> Iterable[Finding]:
    """Why the checkpoint cannot be opened, in the words of the refusal."""
    error = case.refusal
    if case.opened is not None or error is None:
        return
    if case.found.state and isinstance(error, FileError) and not isinstance(error, UnsafeFileError):
        return  # said by files-whole
    kind, fix = _sort(error)
    evidence = {"found": error.found, "expected": error.expected, "where": error.where}
    title = f"it cannot be opened: {error.found}" + (f", expected {error.expected}" if error.expected else "")
    if "no EAGLE-3" in title or error.expected == "an EAGLE-3 drafter":
        title = f"this is no EAGLE-3 drafter but {error.found}"
    weight = 70 if kind == "K07" else 80
    yield Finding(
        "opens", kind, ERROR, title, evidence, error.hint or fix, ("sgl-project/sglang#36528",), weight=weight
    )


def _sort(error: DrafterError) -> tuple[str, str]:
    """The kind that a refusal belongs to, and what to do about it."""
    if isinstance(error, UnsafeFileError):
        return KIND, "do not load this file anywhere; ask for safetensors"
    if isinstance(error, FileError):
        return KIND, "copy or export the file again"
    if error.expected == "an EAGLE-3 drafter":
        return "K04", "name the drafter's folder: a server that gets this one loads the target as its own draft"
    if isinstance(error, CheckpointError) and " are both " in error.found:
        return "K02", "keep one of the two tensors"
    if " is [" in error.found or " rows" in error.found or "head_dim" in error.found:
        return "K07", "correct the size in config.json, or export the weights again; see the list of shapes"
    return "K04", "correct config.json"


@check("weights-files", KIND, (FILES,), ("SafeAILab/EAGLE#182", "SafeAILab/EAGLE#100"))
def weights_files(case: Case) -> Iterable[Finding]:
    """Which of several files is the head."""
    files = case.files.by_file
    if len(files) < 2 or case.found.index is not None:
        return
    shown = {
        name: {
            "tensors": len(tensors),
            "fc": any(t.endswith("fc.weight") for t in tensors),
            "lm_head": any(t.endswith("lm_head.weight") for t in tensors),
            "bytes": sum(t.nbytes for t in tensors.values()),
        }
        for name, tensors in list(files.items())[:_SHOWN]
    }
    heads = [name for name, tensors in files.items() if any(t.endswith("fc.weight") for t in tensors)]
    title = f"{len(files)} files of weights without an index: the drafter is {heads[0] if heads else 'in none of them'}"
    severity, fix = NOTE, ""
    if len(heads) > 1:
        severity, title = ERROR, f"{len(heads)} files hold an fc, and no index says which is the drafter"
        fix = "leave one of them in the folder: servers load them all, and the last one wins"
    yield Finding("weights-files", KIND, severity, title, shown, fix, ("SafeAILab/EAGLE#182", "SafeAILab/EAGLE#100"))


@check("servable-folder", KIND, (FILES,), ("NVIDIA-NeMo/Automodel#2294", "NVIDIA-NeMo/Automodel#2285"))
def servable_folder(case: Case) -> Iterable[Finding]:
    """A trainer's own folder is not what a server loads: what is missing."""
    files, weights = case.files, [path.name for path in case.found.weights]
    own = {name: what for name, what in _TRAINER.items() if name in files.names}
    own |= {name: "parts of a distributed checkpoint" for name in sorted(files.names) if name.endswith(".distcp")}
    missing = []
    if "config.json" not in files.names:
        missing.append("config.json")
    if not any(name.endswith((".safetensors", ".bin")) and "draft_model" not in name for name in weights):
        missing.append("model.safetensors")
    if not missing or case.found.state == "no weights":
        return
    evidence = {"missing": missing, "there": dict(list(own.items())[:_SHOWN]), "weights": weights[:_SHOWN]}
    who = ", ".join(sorted(set(own.values()))) or "no server's layout"
    title = f"no server loads this folder as it is ({who}): {' and '.join(missing)} missing"
    fix = "export it with the trainer's own tool" + ("; the config lies elsewhere: copy it here" if case.opened else "")
    # what opens here was only not exported yet; without a config nobody can load it at all
    severity = NOTE if case.opened is not None else ERROR
    yield Finding("servable-folder", KIND, severity, title, evidence, fix, ("NVIDIA-NeMo/Automodel#2294",), weight=60)


@check("fingerprints", "K13", (CKPT,), ("vllm-project/vllm#26191",))
def fingerprints(case: Case) -> Iterable[Finding]:
    """Marks of the weights, to be compared after an upgrade; compares nothing itself."""
    from drafter.files.fingerprint import fingerprint

    marks = {path.name: fingerprint(path) for path in case.found.weights[:_SHOWN]}
    title = "the fingerprints of the weights are in the evidence, to be compared after an upgrade"
    yield Finding("fingerprints", "K13", OK, title, marks, reports=("vllm-project/vllm#26191",))
