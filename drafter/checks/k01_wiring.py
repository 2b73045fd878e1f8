"""K01, without a sample: which states the layer ids name, for whoever trained and for whoever serves.

What a list of ids means to each server is `drafter.serving`'s matter; here is judged what follows. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from drafter.checks.captures import captures, reading, right, servers, vllms_own, written_by_training, wrong
from drafter.checks.case import Case
from drafter.checks.files import has_key, is_nested, stated
from drafter.checks.finding import CKPT, ERROR, NOTE, OK, WARNING, Finding
from drafter.checks.registry import check
from drafter.errors import DrafterError
from drafter.serving.layer_ids import NESTED, TOP, WIDTH, Capture, captured, embedding_versions, ids_to_write
from drafter.serving.producers import defaults_like, usual
from drafter.serving.server import SGLANG, VLLM, Server
from drafter.wiring import CONFIG

KIND = "K01"
STORY = ("sgl-project/sglang#32334", "vllm-project/vllm#50170")
_AFTER = "depth = id + 1"


def trained_depths(case: Case) -> tuple[int, ...] | None:
    """The depths that training itself wrote down, in fc's order, or that the one list there names; else None."""
    if case.checkpoint.trained_config is None and vllms_own(case):
        return case.checkpoint.config.aux_ids  # vLLM's id is the depth
    return case.checkpoint.run_config.aux_depths


@check("layer-ids-differ", KIND, (CKPT,), STORY)
def layer_ids_differ(case: Case) -> Iterable[Finding]:
    """The ids that servers read name other states than those that training wrote down."""
    trained = written_by_training(case)
    differs = any(d.field == "aux_depths" for d in case.checkpoint.disagreements)
    bad, good = wrong(case), [one for one in right(case) if one.ids is not None]  # a default is no one's intention
    if trained is None or not (bad or differs) or _guess_is_wrong(case):
        return
    source, training = case.files.table_name, _training(case)
    evidence: dict[str, Any] = {
        source: {"ids": case.checkpoint.config.aux_ids, "depths": case.checkpoint.config.aux_depths},
        training: {"depths": trained},
    }
    for one in captures(case):
        evidence[f"{one.server} captures"] = one.depths if one.depths is not None else list(one.notes)
    fed = f"training fed depths {_many(trained)} ({training})"
    if good and not bad:
        title = f"{_and(good)} captures depths {_many(trained)}, as training fed them ({training})"
        yield Finding("layer-ids-differ", KIND, OK, title, evidence, reports=STORY)
        return
    if good or case.server is not None:
        title = "; ".join(f"{source} makes {one.server} feed fc the states at depths {_by(one)}" for one in bad)
        title += f", {fed}" + (f"; {_and(good)} captures these" if good else "")
    else:
        title = f"{source} feeds fc the states at depths {_many(case.checkpoint.config.aux_depths or ())}, {fed}"
    fix = fix_of_ids(case, trained, [one.server for one in bad]) + no_norm_in_sglang(case)
    severity = WARNING if good else ERROR  # whoever serves with an engine that is right has no fault
    yield Finding("layer-ids-differ", KIND, severity, title, evidence, fix, STORY, "orderings", 95)


def _training(case: Case) -> str:
    config = case.checkpoint.trained_config
    return config.evidence["hidden_size"].source if config is not None else "nowhere"


def _and(found: Sequence[Capture]) -> str:
    return " and ".join(str(one.server) for one in found)


def _by(one: Capture) -> str:
    source = "its default: it reads no list here" if one.ids is None else one.source
    return f"{_many(one.depths or ())} ({source})"


def fix_of_ids(case: Case, depths: Sequence[int], wrong_ones: Sequence[Server] = ()) -> str:
    """The keys and values that make each server, or those of them that are wrong, capture `depths`, in fc's order."""
    said = [written_for(case, server, depths) for server in wrong_ones or servers(case)]
    if list(depths) != sorted(depths):
        said.insert(0, "no server permutes what it captures: `eagle3-tui fix` moves the column blocks of fc")
    return "; ".join([*said, "or write a copy with `eagle3-tui fix`"])


def written_for(case: Case, server: Server, depths: Sequence[int], ordering: str = "") -> str:
    """What `server` needs in config.json to capture `depths`; why it cannot, where no key does it.

    `ordering` names the slots, where they are not the ones that training named, for the command that writes a copy.
    """
    if server.name == SGLANG and is_nested(case.files.table):
        command = f"eagle3-tui fix --for {server}" + (f" --ordering {ordering}" if ordering else "")
        return f"{server} loads no nested config: `{command}` writes a flat one with its layer ids"
    lists = ids_to_write(sorted(depths), server, case.family, case.target_layers)
    if lists.keys is None:
        return f"{server}: {lists.reason}"
    keys = ", ".join(f"{key} = {_value(value)}" for key, value in lists.keys.items())
    # of the notes only what keeps it from running; assumptions about the target stand once, in the evidence
    raises = next((note for note in lists.notes if "TypeError" in note), "")
    raises = raises or (embedding_versions(server, case.family) if 0 in depths and case.server is None else "")
    return f"{server}: config.json: {keys}" + (f" ({raises})" if raises else "")


def _other_width(case: Case) -> bool:
    """Whether the target is of another width than the drafter's config says: then nobody knows what fc takes."""
    width = case.target.hidden_size if case.target is not None else None
    return width not in (None, case.checkpoint.run_config.target_hidden_size)


def no_norm_in_sglang(case: Case) -> str:
    """What right ids do not repair where SGLang is among the servers, to follow a fix; empty where there is nothing."""
    norm = case.checkpoint.run_config.norm_before_residual
    if not norm or all(server.name != SGLANG for server in servers(case)):
        return ""
    return "; SGLang has no norm_before_residual on top of that: `eagle3-tui views` measures what it costs"


def _value(value: Any) -> str:
    return str(list(value)) if isinstance(value, list | tuple) else str(value)


def _many(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


@check(
    "layer-ids", KIND, (CKPT,), ("vllm-project/vllm#50170", "lightseekorg/tokenspeed#526", "sgl-project/SpecForge#240")
)
def layer_ids(case: Case) -> Iterable[Finding]:
    """The list itself: absent, empty, repeated, too long or short, unsorted."""
    checkpoint, config = case.checkpoint, case.checkpoint.config
    read, inputs = reading(case), checkpoint.fc_inputs
    ids = read.ids
    if not config.use_aux:
        return
    evidence = {"ids": ids, "source": _source(case), "fc takes": inputs, "depths": read.depths}
    if ids is None:
        yield _absent(case, evidence)
        return
    if not ids:
        title = "the list of layer ids is empty: it names no states, and some engines take their default for it"
        reports = ("lightseekorg/tokenspeed#526",)
        yield Finding("layer-ids", KIND, ERROR, title, evidence, _needs(case, "name the layers"), reports, weight=93)
        return
    twice = sorted({one for one in ids if list(ids).count(one) > 1})
    if twice:
        title = f"layer id {_many(twice)} is named more than once in {list(ids)}: servers capture each state once"
        fix = _needs(case, "name distinct layers; a default for a small target collapses to this")
        reports = ("NVIDIA-NeMo/Automodel#2224",)
        yield Finding("layer-ids", KIND, ERROR, title, evidence, fix, reports, weight=91)
    elif len(ids) != inputs and checkpoint.has_weights and not _other_width(case):
        title = f"{len(ids)} layer ids, but fc takes {inputs} states"
        fix = _needs(case, f"name {inputs} layers")
        yield Finding("layer-ids", KIND, ERROR, title, evidence, fix, ("SafeAILab/EAGLE#294",), weight=91)
    elif list(ids) != sorted(ids) and case.checkpoint.trained_config is None:
        title = (
            f"the layer ids {list(ids)} are not ascending: every server captures in ascending order whatever the list"
        )
        fix = "if training fed them in the listed order, `eagle3-tui fix` moves the column blocks of fc"
        yield Finding("layer-ids", KIND, WARNING, title, evidence, fix, weight=59)
    elif not wrong(case):
        title = f"layer ids {list(ids)} from {evidence['source']} name depths {_many(read.depths or ())}"
        title += f" for {read.who}" if read.who != CONFIG else ""
        yield Finding("layer-ids", KIND, OK, title, evidence)


def _source(case: Case) -> str:
    read = reading(case)
    if read.who != CONFIG:
        return f"{case.files.table_name}: {read.key}"
    evidence = case.checkpoint.config.evidence.get("aux_ids")
    return (
        "nowhere"
        if evidence is None
        else evidence.note
        if evidence.is_default
        else f"{evidence.source}: {evidence.key}"
    )


def _needs(case: Case, otherwise: str) -> str:
    depths = trained_depths(case)
    usable = depths is not None and len(set(depths)) == len(depths) == case.checkpoint.fc_inputs
    return fix_of_ids(case, depths) if usable and depths is not None and case.checkpoint.trained_config else otherwise


def _keys_of_ids() -> str:
    return f"config.json: {NESTED} = depths less 1 (SGLang); {TOP} = depths, {WIDTH} = how many (vLLM)"


def _guess_is_wrong(case: Case) -> bool:
    """No list at all, and training fed other layers than engines guess then: said by layer-ids."""
    trained, n = written_by_training(case), case.target_layers
    return case.checkpoint.config.aux_ids is None and trained is not None and (n is None or tuple(trained) != usual(n))


def _absent(case: Case, evidence: dict[str, Any]) -> Finding:
    n = case.target_layers
    guess = f"2, n//2, n-3 = {_many(usual(n))}" if n is not None else "2, n//2, n-3"
    trained = written_by_training(case)
    if trained is not None and _guess_is_wrong(case):
        title = f"the config names no layer ids, so servers guess depths {guess}; training fed {_many(trained)}"
        fix = fix_of_ids(case, trained)
        return Finding("layer-ids", KIND, ERROR, title, evidence, fix, STORY, "orderings", weight=94)
    title = f"the config names no layer ids: every engine guesses depths {guess}"
    if case.checkpoint.config.dialect == "safeailab":
        title += ", which is what SafeAILab trains with"
    fix = f"if another triple was trained, write it: {_keys_of_ids()}"
    if n is not None and len(set(usual(n))) < len(usual(n)):
        title += f", which are {len(set(usual(n)))} states of so small a target"
        fix = f"write the layers that were trained, each once: {_keys_of_ids()}"
    elif n is not None:
        fix = f"if another triple was trained, write it: {fix_of_ids(case, usual(n))} (for the guess)"
    return Finding(
        "layer-ids", KIND, NOTE, title, {**evidence, "layers of the target": n}, fix, ("vllm-project/vllm#50170",)
    )


@check("layer-ids-range", KIND, (CKPT,), ("sgl-project/sglang#32334",))
def layer_ids_range(case: Case) -> Iterable[Finding]:
    """Ids past the target's last layer, in the producer's numbering and in each server's."""
    read, n = reading(case), case.target_layers
    if not case.checkpoint.config.use_aux or not read.ids or read.depths is None:
        return
    if n is None:
        raise DrafterError("how many layers the target has is not known", hint="name the target, --target, or --layers")
    ids, depths = read.ids, read.depths
    evidence = {"ids": ids, "layers of the target": n, "as depth = id": ids, "as depth = id + 1": [i + 1 for i in ids]}
    reports = ("sgl-project/sglang#32334", "sgl-project/sglang#32226")
    low, high = min(ids), max(ids)
    if high > n or low < -1 or (high == n and min(depths) < 0):
        wrong = high if high > n else low
        title = f"layer id {wrong} is no layer of a target of {n}, in either numbering: that state is never captured"
        yield Finding(
            "layer-ids-range", KIND, ERROR, title, evidence, f"ids are -1..{n - 1}, or 0..{n}", reports, weight=92
        )
    elif max(depths) > n:
        title = f"layer id {high} is past the last layer for a server that adds one; as depth {n} it is the last state"
        fix = "SGLang before 0.5.17 captures one state too few; write " + fix_of_ids(case, ids)
        severity = NOTE if case.family.name == "gpt_oss" else ERROR  # its rule takes such a list as it is
        yield Finding("layer-ids-range", KIND, severity, title, evidence, fix, reports, weight=92)
    elif n in depths:
        title = f"layer id {ids[list(depths).index(n)]} is the output of the last layer, before the final norm"
        yield Finding("layer-ids-range", KIND, NOTE, title, evidence, reports=reports)
    else:
        yield Finding("layer-ids-range", KIND, OK, f"every layer id is a layer of a target of {n}", evidence)


@check(
    "id-convention",
    KIND,
    (CKPT,),
    ("lightseekorg/TorchSpec#61", "lightseekorg/TorchSpec#63", "sgl-project/SpecForge#240"),
)
def id_convention(case: Case) -> Iterable[Finding]:
    """Whose default the ids are, and whether they stand in the numbering of the layout that they came with."""
    config, read, n = case.checkpoint.config, reading(case), case.target_layers
    if not config.use_aux or not read.ids or read.depths is None:
        return
    if n is None:
        raise DrafterError("how many layers the target has is not known", hint="name the target, --target, or --layers")
    ids, depths = read.ids, read.depths
    after = ids != depths
    families = defaults_like(depths, n)
    before, as_depths = (1, n // 2 - 1, n - 4), usual(n)
    names = "midlayer" if any("midlayer" in t.name for t in case.checkpoint.tensors.values()) else "layers.0"
    evidence = {
        "ids": ids,
        "numbering": _AFTER if after else "depth = id",
        "depths": depths,
        "default of": families or "none known",
        "layers of the target": n,
        "names": names,
    }
    reports = ("lightseekorg/TorchSpec#61", "sgl-project/SpecForge#240")
    speculators = config.dialect == "speculators" or case.checkpoint.trained_config is not None
    if not speculators and after and ids == as_depths:
        title = f"ids {list(ids)} are the usual depths as vLLM numbers them, in a layout where SGLang adds one"
        fix = f"if depths {_many(as_depths)} were trained: {NESTED} = {list(before)}"
        yield Finding("id-convention", KIND, WARNING, title, evidence, fix, reports, weight=56)
    elif not speculators and not after and ids == before:
        title = (
            f"ids {list(ids)} are the usual depths as SGLang numbers them, in a layout that vLLM reads as they stand"
        )
        fix = f"if depths {_many(as_depths)} were trained: {TOP} = {list(as_depths)}"
        yield Finding("id-convention", KIND, WARNING, title, evidence, fix, reports, weight=56)
    elif wrong(case):
        return  # whose default they are is no praise where they are not what was trained
    elif families:
        title = f"depths {_many(depths)} are the default of {', '.join(families)}"
        yield Finding("id-convention", KIND, OK, title, evidence, reports=reports)
    else:
        near = [i for i in range(3) if len(ids) == 3 and depths[i] != as_depths[i]]
        alone = len(near) == 1 and abs(depths[near[0]] - as_depths[near[0]]) == 1
        title = f"depths {_many(depths)} are no known default"
        if alone:
            title += f"; only one of them is one off the usual {_many(as_depths)}: compare both"
        yield Finding("id-convention", KIND, NOTE, title, evidence, reports=reports)


@check("two-lists", KIND, (CKPT,), ("vllm-project/vllm#50170",))
def two_lists(case: Case) -> Iterable[Finding]:
    """The list at the top, which vLLM reads, and the nested one, which SGLang reads, select different states."""
    if written_by_training(case) is not None:
        return  # layer-ids-differ holds each of them against what was trained
    table = case.files.table
    top, nested = stated(table, TOP), stated(table, NESTED)
    if (
        not (has_key(table, TOP) and has_key(table, NESTED))
        or not isinstance(top, list)
        or not isinstance(nested, list)
    ):
        return
    depths = {}
    for name in (SGLANG, VLLM):
        depths[name] = captured(table, Server.parse(name), case.family, case.target_layers).depths
    evidence = {TOP: top, NESTED: nested, "sglang captures": depths[SGLANG], "vllm captures": depths[VLLM]}
    if None not in depths.values() and depths[SGLANG] != depths[VLLM]:
        title = f"{TOP} {top} makes vLLM capture depths {_many(depths[VLLM] or ())}, "
        title += f"{NESTED} {nested} makes SGLang capture {_many(depths[SGLANG] or ())}"
        depths_wanted = trained_depths(case) or ()
        fix = fix_of_ids(case, depths_wanted) if depths_wanted else "keep the list of the depths that were trained"
        # one server is right and needs only its own list, so that neither need be hurt
        yield Finding("two-lists", KIND, NOTE, title, evidence, fix, ("vllm-project/vllm#50170",), weight=30)
