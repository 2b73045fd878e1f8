"""Which states the layer ids of a checkpoint select: for the server that is named, else for whoever the config serves.

What a list means to a server is `drafter.serving`'s matter. Judges nothing and knows no finding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drafter.checks.case import Case
from drafter.checks.files import is_nested, stated
from drafter.serving.layer_ids import NESTED, TOP, WIDTH, Capture, captured
from drafter.serving.server import SGLANG, VLLM, Server
from drafter.wiring import CONFIG


@dataclass(frozen=True)
class Reading:
    """`ids` as read, `depths` those that they name, one for each, by `who`; `key` is the list that was read."""

    who: str
    key: str
    ids: tuple[int, ...] | None
    depths: tuple[int, ...] | None


def servers(case: Case) -> tuple[Server, ...]:
    """The server that flags name, else the newest that were read."""
    if case.server is not None:
        return (case.server,)
    return tuple(Server.parse(name) for name in (SGLANG, VLLM))


def captures(case: Case) -> tuple[Capture, ...]:
    """What each of them captures by the config that servers read."""
    return tuple(captured(case.files.table, one, case.family, case.target_layers) for one in servers(case))


def written_by_training(case: Case) -> tuple[int, ...] | None:
    """The depths that a second config, the training's own, names; None where there is none or it names none."""
    config = case.checkpoint.trained_config
    return config.aux_depths if config is not None else None


def wrong(case: Case) -> tuple[Capture, ...]:
    """The servers that would feed other states than training wrote down.

    Of a named server it is what counts. Where none is named an engine's default is no fault of the config, as long as
    the list that it does have is right.
    """
    trained = written_by_training(case)
    if trained is None or not case.checkpoint.config.use_aux:
        return ()
    own = case.checkpoint.config.aux_depths in (trained, None)
    found = [one for one in captures(case) if one.depths is not None and one.depths != trained]
    return tuple(one for one in found if case.server is not None or not own or one.ids is not None)


def right(case: Case) -> tuple[Capture, ...]:
    """The servers that capture what training wrote down."""
    trained = written_by_training(case)
    return () if trained is None else tuple(one for one in captures(case) if one.depths == trained)


def reading(case: Case) -> Reading:
    """The layer ids as the named server reads them; with none named, and lists that differ, as the one that is served
    what was trained; else, and where a server reads no list, by the convention of the config's producer."""
    config = case.checkpoint.config
    for one in _leading(case):
        if one.ids is not None:
            return Reading(str(one.server), one.source, one.ids, _each(one))
    evidence = config.evidence.get("aux_ids")
    return Reading(CONFIG, evidence.key if evidence is not None else "", config.aux_ids, config.aux_depths)


def _leading(case: Case) -> Iterable[Capture]:
    if case.server is not None:
        return captures(case)
    differs = written_by_training(case) not in (None, case.checkpoint.config.aux_depths)
    own = vllms_own(case)
    return [*(right(case) if differs else ()), *(one for one in captures(case) if own and one.server.name == VLLM)]


def vllms_own(case: Case) -> bool:
    """Whether the ids are for vLLM alone: at the top of a flat config, with the number of states that only it asks."""
    table = case.files.table
    return not is_nested(table) and None not in (stated(table, TOP), stated(table, WIDTH)) and not stated(table, NESTED)


def _each(one: Capture) -> tuple[int, ...]:
    """The depth of each id; a server gives them ascending, each once, and leaves out what the target has not."""
    ids = one.ids or ()
    after = set(one.depths or ()) <= {i + 1 for i in ids}
    return tuple(i + 1 for i in ids) if after else tuple(ids)
