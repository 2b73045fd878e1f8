"""`Pass{number}.pt` of SGLang's --debug-tensor-dump-output-folder: what each module put out in one forward pass.

Requests are packed behind each other; `seq_lens` and `positions` tell where each ends. The residual stream is found
where a module puts it out: a layer as [hidden, residual], whose sum it is, or the norm before a layer as its second
output. Logits are left alone: they are those of the pass before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from drafter.errors import FileError, SampleError
from drafter.files.stored import INTEGERS, StoredTensor
from drafter.sample.fields import MAX_SLOTS, MAX_TOKENS, make_slots, read_ids, read_mask, vector
from drafter.sample.formats.layouts import depth_layout, last_layout
from drafter.sample.sample import POST, Sample, States
from drafter.sample.source import Reader, Source

if TYPE_CHECKING:
    import torch

NAME = "SGLang (debug tensor dump)"
INFO = ".forward_batch_info."
SOURCE = "SGLang's module names"
MIN_TOKENS = 3
_MAX_REQUESTS = 100_000


@dataclass(frozen=True)
class Summed:
    """Two recorded outputs [T, H] whose sum is the residual stream, added in their own dtype as the model does."""

    hidden: StoredTensor
    residual: StoredTensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.hidden.shape

    @property
    def dtype(self) -> str:
        return self.hidden.dtype

    def rows(self, start: int, stop: int) -> torch.Tensor:
        return self.hidden.rows(start, stop) + self.residual.rows(start, stop)

    def gather(self, indices: Sequence[int]) -> torch.Tensor:
        return self.hidden.gather(indices) + self.residual.gather(indices)

    def head(self, rows: int) -> Summed:
        return self.cut(0, rows)

    def cut(self, start: int, stop: int) -> Summed:
        return Summed(self.hidden.cut(start, stop), self.residual.cut(start, stop))


@dataclass(frozen=True)
class Request:
    """Rows start..stop-1 of the pass; `first` is the position of its first token, > 0 where a prefix was cached."""

    start: int
    stop: int
    first: int


def fits(content: Any) -> bool:
    return isinstance(content, dict) and _model(content) is not None


def _model(content: dict[Any, Any]) -> str | None:
    """The name of the module whose parts were recorded, in most dumps `model`."""
    end = f"{INFO}input_ids"
    return next((key.removesuffix(end) for key in content if isinstance(key, str) and key.endswith(end)), None)


def parts(source: Source) -> int:
    return len(_requests(source))


def _requests(source: Source) -> list[Request]:
    model = _model(source.content)
    total = vector(source.content[f"{model}{INFO}input_ids"], "input_ids", source.file).shape[0]
    lengths = _numbers(source, f"{model}{INFO}seq_lens", _MAX_REQUESTS)
    positions = _numbers(source, f"{model}{INFO}positions", MAX_TOKENS)
    if len(positions) != total or not lengths:
        said = f"{len(positions)} positions and {len(lengths)} requests for {total} tokens"
        raise SampleError(said, expected="a position for each token", where=source.file)
    found, start = [], 0
    for length in lengths:
        first = positions[start] if start < total else 0
        stop = start + length - first
        if not 0 <= first < length or stop > total:
            said = f"a request of {length} tokens that begins at row {start}, position {first}, of {total} rows"
            raise SampleError(said, expected="seq_lens that fit the positions", where=source.file)
        found.append(Request(start, stop, first))
        start = stop
    return found


def _numbers(source: Source, key: str, limit: int) -> list[int]:
    tensor = vector(source.content.get(key), key, source.file)
    if tensor.dtype not in INTEGERS or tensor.shape[0] > limit:
        raise SampleError(f"{key!r} is {list(tensor.shape)} {tensor.dtype}", expected="integers", where=source.file)
    numbers: list[int] = tensor.read().tolist()
    return numbers


def read(source: Source) -> Sample:
    requests = _requests(source)
    request, model = requests[source.part], _model(source.content)
    assert model is not None
    path, count = source.path, request.stop - request.start
    if count < MIN_TOKENS:
        said = f"{count} tokens of a request in this pass"
        hint = "a decode pass holds one token of each: choose another Pass file"
        raise SampleError(said, expected=f"a prefill of {MIN_TOKENS} or more", where=path, hint=hint)
    stored = vector(source.content[f"{model}{INFO}input_ids"], "input_ids", path)
    ids = read_ids(stored.cut(request.start, request.stop), "input_ids", path)
    mask, warnings = read_mask(None, count, path)
    if request.first:
        warnings.append(f"begins at position {request.first}: the tokens before were cached and are not in the file")
    streams, last = residual_streams(source.content, model), _last(source.content, model)
    states = [_rows(state, request, path) for state in [*streams.values(), *last]]
    if not states:
        expected = f"{model}.layers.N, or {model}.layers.N.input_layernorm as [normed, residual]"
        raise SampleError("no residual stream in the dump", expected=expected, where=path)
    layouts = [depth_layout(depth, SOURCE) for depth in streams] + [last_layout(SOURCE, POST) for _ in last]
    return Sample(path, NAME, ids, mask, make_slots(states, count, path, layouts), tuple(warnings))


def _rows(state: StoredTensor | Summed, request: Request, path: Path) -> States:
    try:
        return state.cut(request.start, request.stop)
    except FileError as error:
        raise SampleError(error.found, expected=error.expected, where=path) from error


def residual_streams(content: dict[Any, Any], model: str) -> dict[int, StoredTensor | Summed]:
    """Depth -> residual stream [rows, H], in ascending order of depth."""
    found: dict[int, StoredTensor | Summed] = {}
    embedding = content.get(f"{model}.embed_tokens")
    if _is_rows(embedding):
        found[0] = embedding
    layer = re.compile(re.escape(model) + r"\.layers\.([0-9]{1,4})(\.input_layernorm)?")
    for key, value in content.items():
        match = layer.fullmatch(key) if isinstance(key, str) else None
        stream = _stream(value, bool(match[2])) if match else None
        if match and stream is not None:
            depth = int(match[1]) + (0 if match[2] else 1)
            found[depth] = found.get(depth, stream) if match[2] else stream
    return dict(sorted(found.items())[: MAX_SLOTS - 1])


def _stream(value: Any, is_norm: bool) -> StoredTensor | Summed | None:
    """The stream in what a layer put out, or in the second output of a norm that added the residual."""
    if isinstance(value, list) and len(value) >= 2 and all(_is_rows(item) for item in value[:2]):
        same = value[0].shape == value[1].shape and value[0].dtype == value[1].dtype
        return value[1] if is_norm else Summed(value[0], value[1]) if same else None
    return value if _is_rows(value) and not is_norm else None


def _last(content: dict[Any, Any], model: str) -> list[StoredTensor]:
    """The state after the final norm, where it was recorded."""
    value = content.get(f"{model}.norm")
    value = value[0] if isinstance(value, list) and value else value
    return [value] if _is_rows(value) else []


def _is_rows(value: Any) -> TypeGuard[StoredTensor]:
    return isinstance(value, StoredTensor) and len(value.shape) == 2


READER = Reader(
    NAME,
    "model.forward_batch_info.input_ids, .seq_lens and .positions, outputs of model.layers.N, model.norm [T, H]",
    fits,
    read,
    parts,
)
