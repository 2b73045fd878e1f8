"""From flags to what a server does with them: picks the engine and its rules, and takes a drafter's facts from files.

Reads headers and small JSON files of a checkpoint only.
"""

from __future__ import annotations

import contextlib
from typing import Any

from drafter.checkpoint.checkpoint import Checkpoint
from drafter.checkpoint.config import Fields
from drafter.errors import FileError, WiringError
from drafter.files.find import CONFIGS
from drafter.files.json_file import read_json
from drafter.serving.effective import UNKNOWN, DrafterFacts, Effective
from drafter.serving.flags import Asked
from drafter.serving.server import SGLANG, VLLM, Server
from drafter.serving.sglang_flags import effective_sglang
from drafter.serving.vllm_flags import effective_vllm

_RULES = {SGLANG: effective_sglang, VLLM: effective_vllm}
_PROPOSAL = "speculators_config.proposal_methods"
_VERIFIER = "speculators_config.verifier.architectures"


def effective(asked: Asked, server: str | Server = "", drafter: DrafterFacts = UNKNOWN) -> Effective:
    """What `server` (`sglang@0.5.9`, `vllm`, ...) makes of `asked`; without one, the flags' engine, newest version.

    Raises WiringError where the engine cannot be told, is another one than the flags', or has no rules here.
    """
    text = str(server) or asked.engine
    if not text:
        raise WiringError("flags that do not tell the engine", expected="--server sglang@VERSION or vllm@VERSION")
    named = server if isinstance(server, Server) else Server.parse(text)
    if named.name not in _RULES:
        raise WiringError(f"the flags of {named.name}", expected=" or ".join(_RULES), hint="its rules were not read")
    if asked.engine and asked.engine != named.name:
        raise WiringError(f"flags of {asked.engine}", expected=f"those of {named}", hint="check --server")
    return _RULES[named.name](asked, named, drafter)


def drafter_facts(checkpoint: Checkpoint) -> DrafterFacts:
    """What the rules need to know of an opened checkpoint."""
    config = checkpoint.run_config
    return DrafterFacts(
        is_eagle3=True,
        fc_inputs=checkpoint.fc_inputs,
        dialect=checkpoint.config.dialect,
        architecture=checkpoint.config.architecture,
        parallel=config.parallel,
        speculative_tokens=_proposed(_said(checkpoint, _PROPOSAL)),
        n_predict=_count(_said(checkpoint, "n_predict")),
        target_architecture=_first_name(_said(checkpoint, _VERIFIER)),
    )


def _said(checkpoint: Checkpoint, key: str) -> Any:
    """The value of `key` in the first of the checkpoint's configs that has it, None where none does."""
    folder = checkpoint.path if checkpoint.path.is_dir() else checkpoint.path.parent
    for name in CONFIGS:
        with contextlib.suppress(FileError):  # no file of that name, or one that the checkpoint warns of
            value = Fields(read_json(folder / name), name).raw(key)
            if value is not None:
                return value
    return None


def _proposed(methods: Any) -> int | None:
    first = methods[0] if isinstance(methods, list) and methods else None
    return _count(first.get("speculative_tokens")) if isinstance(first, dict) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20 else None


def _first_name(value: Any) -> str:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else ""
