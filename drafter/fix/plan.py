"""What a fixed folder would be: each server's capture before and after, the configs, and what happens to each tensor.

No server can permute what it captures, so an ordering that is not ascending in depth is served by moving the column
blocks of `fc` and whatever else is laid out by state (checkpoints.md 5.1). Reads headers, configs and d2t only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.vocab_map import read_vocab_map
from drafter.errors import CheckpointError, DrafterError, WiringError
from drafter.files.stored import StoredTensor
from drafter.fix.configs import CONFIG, Change, Configs, configs_as_they_are, configured_table, write_ids
from drafter.serving.families import Family
from drafter.serving.layer_ids import Capture, IdLists, captured, ids_to_write
from drafter.serving.server import SGLANG, VLLM, Server
from drafter.serving.unserved import unserved
from drafter.wiring import Ordering, check_ordering

KEPT, BLOCKS, OTHER_STATE, OFFSETS = "", "column blocks moved", "the norm of another state", "target ids made offsets"
_BY_STATE = ("fc.weight", "input_norm.weight", "mask_hidden")  # [.., A * Ht]: one block a state
_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.|draft_model\.|model\.eagle_module\.|eagle_module\.)+")
_FC_NORM = re.compile(r"fc_norm\.(\d{1,3})\.(.+)")


@dataclass(frozen=True)
class ServerPlan:
    server: Server
    now: Capture
    lists: IdLists
    then: Capture
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TensorPlan:
    """The tensor that will be written as `name`: the bytes of `source`, or what `change` makes of them."""

    name: str
    source: StoredTensor
    change: str = KEPT


@dataclass(frozen=True)
class Plan:
    """`ordering` and `depths` as wanted, in fc's order now; `blocks[j]` is the block of fc that becomes block j."""

    checkpoint: Checkpoint
    ordering: Ordering
    depths: tuple[int, ...]
    blocks: tuple[int, ...]
    family: Family
    num_layers: int | None
    servers: tuple[ServerPlan, ...]
    configs: Mapping[str, Mapping[str, Any]]
    changes: tuple[Change, ...]
    tensors: tuple[TensorPlan, ...]
    notes: tuple[str, ...]

    @property
    def moves_blocks(self) -> bool:
        return list(self.blocks) != sorted(self.blocks)

    @property
    def ascending(self) -> tuple[int, ...]:
        return tuple(sorted(self.depths))


def plan(
    checkpoint: Checkpoint,
    ordering: Ordering,
    slot_depths: Sequence[int | None],
    servers: Sequence[Server],
    family: Family,
    num_layers: int | None,
) -> Plan:
    """How to serve `ordering` of slots at `slot_depths` on `servers` (SGLang and vLLM, the newest read, if empty).

    Raises WiringError where a depth is unknown or no list of ids can do it, CheckpointError for a drafter whose fc
    takes no recorded states or cannot be permuted.
    """
    asked = tuple(servers) or _usual_servers(checkpoint)
    if checkpoint.run_config.parallel and any(server.name != VLLM for server in asked):
        raise WiringError("a P-EAGLE (parallel) drafter", expected="vLLM, the only server that runs one")
    depths = _depths(checkpoint, ordering, slot_depths)
    blocks = tuple(sorted(range(len(depths)), key=lambda at: depths[at]))
    ascending = tuple(depths[at] for at in blocks)
    lists = [ids_to_write(ascending, server, family, num_layers) for server in asked]
    configs = configs_as_they_are(checkpoint, asked)
    now = [captured(configured_table(checkpoint), server, family, num_layers) for server in asked]
    write_ids(configs, checkpoint, ascending, *_merged(asked, lists))
    tensors, notes = _tensors(checkpoint, blocks, configs)
    plans = []
    for server, before, written in zip(asked, now, lists, strict=True):
        then = captured(configs.files[CONFIG], server, family, num_layers)
        if then.depths != ascending:
            raise WiringError(f"{server} would capture {then.depths} of the new config", expected=f"{ascending}")
        assumed = (server.unread, family.note)  # stands with what is captured now
        said = (then.failure, *(note for note in then.notes if note not in assumed), *unserved(checkpoint, server))
        plans.append(ServerPlan(server, before, written, then, tuple(note for note in said if note)))
    return Plan(
        checkpoint=checkpoint,
        ordering=ordering,
        depths=depths,
        blocks=blocks,
        family=family,
        num_layers=num_layers,
        servers=tuple(plans),
        configs=configs.files,
        changes=tuple(configs.changes),
        tensors=tensors,
        notes=(*notes, *_left_alone(checkpoint)),
    )


def _usual_servers(checkpoint: Checkpoint) -> tuple[Server, ...]:
    names = (VLLM,) if checkpoint.run_config.parallel else (SGLANG, VLLM)
    return tuple(Server.parse(name) for name in names)


def _depths(checkpoint: Checkpoint, ordering: Ordering, slot_depths: Sequence[int | None]) -> tuple[int, ...]:
    fc = checkpoint.tensors.get("fc.weight")
    if fc is None or not checkpoint.config.use_aux:
        what = (
            "a drafter whose fc takes no recorded states" if checkpoint.has_weights else "a checkpoint without weights"
        )
        raise CheckpointError(what, expected="fc.weight", where=checkpoint.path)
    check_ordering(ordering, len(slot_depths), checkpoint.fc_inputs)
    depths = []
    for slot in ordering:
        depth = slot_depths[slot]
        if depth is None:
            raise WiringError(f"slot {slot} of unknown depth", expected="its depth", hint="name the slots with --slots")
        depths.append(depth)
    if len(set(depths)) < len(depths):
        said = ", ".join(map(str, depths))
        raise WiringError(f"the ordering feeds depths {said}", expected="distinct ones: a server captures each once")
    return tuple(depths)


def _merged(servers: Sequence[Server], lists: Sequence[IdLists]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One config for all servers. Raises WiringError where one of them cannot be served, or two want other lists."""
    keys: dict[str, Any] = {}
    copies: dict[str, Any] = {}
    first: dict[str, Server] = {}
    for server, written in zip(servers, lists, strict=True):
        if written.keys is None:
            raise WiringError(f"{server} cannot serve this ordering: {written.reason}")
        for key, value in written.keys.items():
            if keys.setdefault(key, value) != value:
                raise WiringError(
                    f"{first[key]} reads {key} {keys[key]}, {server} {value}",
                    expected="servers that read the same list",
                    hint="write one folder for each",
                )
            first.setdefault(key, server)
        copies |= written.copies
    return keys, copies


def _tensors(
    checkpoint: Checkpoint, blocks: tuple[int, ...], configs: Configs
) -> tuple[tuple[TensorPlan, ...], list[str]]:
    moves = list(blocks) != sorted(blocks)
    if moves:
        _check_blocks(checkpoint)
    direct, notes = _holds_direct_ids(checkpoint)
    plans = []
    for canonical, stored in checkpoint.tensors.items():
        name, change = _name(checkpoint, canonical, configs.flattened), KEPT
        state = _FC_NORM.fullmatch(canonical)
        if moves and state and int(state[1]) < len(blocks):
            stored, change = checkpoint.tensors[f"fc_norm.{blocks[int(state[1])]}.{state[2]}"], OTHER_STATE
        elif moves and canonical in _BY_STATE:
            change = BLOCKS
        elif direct and canonical == "d2t":
            change = OFFSETS
        plans.append(TensorPlan(name, stored, change))
    if len({tensor.name for tensor in plans}) < len(plans):
        raise CheckpointError("two tensors would get one name", where=checkpoint.path)
    return tuple(plans), notes


def _check_blocks(checkpoint: Checkpoint) -> None:
    inputs = checkpoint.fc_inputs
    packed = [n for n in checkpoint.tensors if n.startswith("fc.") and n not in ("fc.weight", "fc.bias")]
    if packed:
        raise CheckpointError(f"fc is stored with {packed[0]!r}", expected="plain weights", where=checkpoint.path)
    for name in _BY_STATE:
        stored = checkpoint.tensors.get(name)
        if stored is not None and (not stored.shape or stored.shape[-1] % inputs):
            expected = f"{inputs} equal blocks in the last dimension"
            raise CheckpointError(f"{name!r} is {list(stored.shape)}", expected=expected, where=stored.path)
    norms = [f"fc_norm.{i}.weight" for i in range(inputs)]
    if any(name in checkpoint.tensors for name in norms) and not all(name in checkpoint.tensors for name in norms):
        raise CheckpointError("an fc_norm for some states only", expected=", ".join(norms), where=checkpoint.path)


def _holds_direct_ids(checkpoint: Checkpoint) -> tuple[bool, list[str]]:
    d2t, t2d = checkpoint.tensors.get("d2t"), checkpoint.tensors.get("t2d")
    if d2t is None:
        return False, []
    beside = "d2t" in _lying_beside(checkpoint)
    aside = [f"d2t of {d2t.path.name} goes into the weights, where servers read it"] if beside else []
    try:
        vocab = read_vocab_map(
            d2t.read(), t2d.read() if t2d else None, checkpoint.draft_vocab_size, checkpoint.run_config.vocab_size
        )
    except DrafterError as error:
        return False, [*aside, f"d2t stays as it is: {error}"]
    return vocab.reading == "direct ids", aside


def _name(checkpoint: Checkpoint, canonical: str, flattened: bool) -> str:
    """As written, without the wrappers of a training run, which no server knows.

    In the layout of flat checkpoints where the config becomes flat, and for what is no tensor of the weights' own: the
    parts of a fused one, a map that lay beside them. `midlayer` is what SGLang's own producers write for the one layer;
    vLLM reads it too.
    """
    stored = checkpoint.tensors[canonical]
    shared = sum(tensor.name == stored.name for tensor in checkpoint.tensors.values()) > 1
    if not (flattened or shared or canonical in _lying_beside(checkpoint)):
        return _WRAPPERS.sub("", stored.name)
    one_layer = checkpoint.run_config.num_layers == 1
    return re.sub(r"^layers\.0\.", "midlayer.", canonical) if one_layer else canonical


def _lying_beside(checkpoint: Checkpoint) -> list[str]:
    """The vocab map's tensors, where they lie in no file of the weights."""
    maps = ("d2t", "t2d")
    weights = {tensor.path for name, tensor in checkpoint.tensors.items() if name not in maps}
    aside = {name for name in maps if name in checkpoint.tensors and checkpoint.tensors[name].path not in weights}
    # a shard of its own is a file of the weights too
    return sorted(name for name in aside if checkpoint.tensors[name].path.suffix != ".safetensors")


def _left_alone(checkpoint: Checkpoint) -> list[str]:
    """Other disagreements between the two configs: seen, and not this tool's to decide."""
    return [
        f"left as it is: {d.field} is {d.configured!r} in {d.configured_source}, {d.trained!r} in {d.trained_source}"
        for d in checkpoint.disagreements
        if d.field != "aux_depths"
    ]


def plan_json(made: Plan) -> dict[str, Any]:
    """The plan as data: what `fix --json` prints and what lies in the folder as its provenance."""

    def capture(found: Capture) -> dict[str, Any]:
        depths = None if found.depths is None else list(found.depths)
        ids = None if found.ids is None else list(found.ids)
        return {"depths": depths, "ids": ids, "source": found.source, "failure": found.failure}

    return {
        "ordering": list(made.ordering),
        "depths": list(made.depths),
        "target": {"family": made.family.name, "rule": made.family.rule, "layers": made.num_layers},
        "servers": [
            {
                "server": str(server.server),
                "now": {**capture(server.now), "notes": list(server.now.notes)},
                "wanted": list(made.ascending),
                "write": dict(server.lists.keys or {}),
                "then": capture(server.then),
                "notes": list(server.notes),
            }
            for server in made.servers
        ],
        "fc_blocks": list(made.blocks),
        "fc_permuted": made.moves_blocks,
        "tensors": {tensor.name: tensor.change for tensor in made.tensors if tensor.change},
        "renamed": {
            tensor.source.name: tensor.name
            for tensor in made.tensors
            if tensor.name != tensor.source.name and tensor.change != OTHER_STATE
        },
        "changes": [asdict(change) for change in made.changes],
        "notes": list(made.notes),
    }
