"""`samples/{hash}.pt` of TorchSpec's offline datasets; `dataset.json` beside `samples/` tells the last state's norm.

The loss mask is text: lengths of runs, `2,3,2` for two tokens without loss, three with, two without.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError, SampleError
from drafter.files.json_file import read_json
from drafter.files.stored import StoredTensor
from drafter.sample.fields import MAX_TOKENS
from drafter.sample.formats.torchspec import FLAG, read_states
from drafter.sample.sample import Sample
from drafter.sample.source import Reader, Source

if TYPE_CHECKING:
    import torch

NAME = "TorchSpec (offline dataset)"
RUNS, DATASET = "packed_loss_mask", "dataset.json"
_MAX_TEXT = 1 << 20


def fits(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and {"input_ids", "hidden_states", RUNS} <= content.keys()
        and isinstance(content["hidden_states"], StoredTensor)
    )


def read(source: Source) -> Sample:
    content = {**source.content, FLAG: _prenorm(source.file)}
    sample = read_states(source, content, NAME)
    runs = source.content[RUNS]
    if sample.mask is not None or runs is None or runs == "":
        return sample
    said = tuple(line for line in sample.warnings if not line.startswith("no loss mask"))
    return replace(sample, mask=unpack(runs, sample.length, sample.path), warnings=said)


def unpack(runs: Any, length: int, path: Path) -> torch.Tensor:
    """The loss mask [length] bool from the lengths of its runs, the first without loss. Raises SampleError."""
    import torch

    whole = isinstance(runs, str) and len(runs) <= _MAX_TEXT
    words = [word.strip() for word in runs.split(",")] if whole else []
    if not words or not all(word.isascii() and word.isdecimal() and len(word) <= 7 for word in words):
        raise SampleError(f"{RUNS} {runs!r:.40}", expected="lengths of runs, 2,3,2", where=path)
    lengths = [int(word) for word in words]
    if sum(lengths) != length or length > MAX_TOKENS:
        raise SampleError(f"{RUNS} of {sum(lengths)} tokens", expected=f"{length}", where=path)
    values = torch.arange(len(lengths)) % 2 == 1
    return values.repeat_interleave(torch.tensor(lengths))


def _prenorm(sample: Path) -> bool | None:
    """What the dataset says of its last states; None where it says nothing."""
    for folder in (sample.parent.parent, sample.parent):
        try:
            said = read_json(folder / DATASET).get(FLAG)
        except DrafterError:
            continue
        return said if isinstance(said, bool) else None
    return None


READER = Reader(
    NAME,
    "input_ids [1, T], hidden_states [1, T, n * H], last_hidden_states [1, T, H], packed_loss_mask as text",
    fits,
    read,
)
