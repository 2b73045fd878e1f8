"""The known layouts in the order in which they are tried; the first that fits reads the file."""

from __future__ import annotations

from drafter.sample.formats import (
    angelslim,
    baldeagle,
    eagle,
    hidden_only,
    modelopt,
    nemo,
    plain,
    sglang_dump,
    specforge,
    specforge_debug,
    speculators_arrow,
    speculators_v0,
    speculators_v1,
    tensorrt_llm,
    torchspec,
    torchspec_offline,
)
from drafter.sample.source import Reader

READERS: tuple[Reader, ...] = (
    nemo.READER,
    torchspec.READER,
    torchspec_offline.READER,
    sglang_dump.READER,
    tensorrt_llm.READER,
    modelopt.READER,
    speculators_arrow.READER,
    speculators_v1.READER,
    speculators_v0.READER,
    specforge.READER,
    specforge_debug.READER,
    angelslim.READER,
    baldeagle.READER,
    eagle.READER,
    hidden_only.READER,
    plain.READER,  # takes what none of the others does
)
