"""Which dialect a config is written in; each dialect has its own reader, asked in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from drafter.checkpoint import (
    dialect_angelslim,
    dialect_modelopt,
    dialect_nemo,
    dialect_safeailab,
    dialect_specforge,
    dialect_speculators,
    dialect_torchspec,
    dialect_vllm,
    flat,
)
from drafter.checkpoint.clues import NO_CLUES, Clues, Mark, architecture
from drafter.checkpoint.config import DrafterConfig, Fields
from drafter.checkpoint.other_models import refuse_other_models
from drafter.errors import CheckpointError


class Dialect(Protocol):
    """One module a dialect: does it recognise a config, and by what mark; its reading."""

    def recognise(self, table: Mapping[str, Any], clues: Clues) -> Mark | None: ...

    def read(self, fields: Fields, clues: Clues, mark: Mark) -> DrafterConfig: ...


# a producer's own marks first, then class names that several share, then the layout alone
DIALECTS: tuple[Dialect, ...] = (
    dialect_speculators,
    dialect_nemo,
    dialect_torchspec,
    dialect_angelslim,
    dialect_modelopt,
    dialect_specforge,
    dialect_vllm,
    dialect_safeailab,
    flat,
)


def read_config(table: Mapping[str, Any], source: str, clues: Clues = NO_CLUES) -> DrafterConfig:
    """The normal form of one config file, with what lies beside it as clues to its producer.

    Raises CheckpointError when it is no EAGLE-3 drafter's config, naming what it is instead.
    """
    refuse_other_models(table, clues, source)
    for dialect in DIALECTS:
        mark = dialect.recognise(table, clues)
        if mark is not None:
            return dialect.read(Fields(table, source), clues, mark)
    raise CheckpointError(
        f"the config of {architecture(table) or table.get('model_type') or 'an unnamed model'!r}",
        expected=f"an EAGLE-3 drafter ({', '.join(flat.ARCHITECTURES)}, or speculators_model_type 'eagle3')",
        where=source,
    )
