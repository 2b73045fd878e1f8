"""Writing a plan: a new folder, whole or not at all, with weights streamed in bounded memory.

The folder holds the configs, one model.safetensors, `eagle3_tui_fix.json` (where it comes from and what was changed),
and those of `SMALL_FILES` that the source has: what a server needs to read the weights or to generate. Nothing else is
copied: no tokenizer (the target's is used), no code, no training state, no metrics of another wiring.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.checkpoint.checkpoint import Checkpoint, open_checkpoint
from drafter.errors import CheckpointError, FileError, PathError
from drafter.export import shorten
from drafter.files.find import find_checkpoints
from drafter.files.fingerprint import fingerprint
from drafter.files.json_file import read_json
from drafter.files.path import there
from drafter.files.safetensors_file import read_header
from drafter.fix.configs import source_folder
from drafter.fix.plan import BLOCKS, OFFSETS, Plan, TensorPlan, plan_json
from drafter.json_text import json_text
from drafter.log import header

if TYPE_CHECKING:
    import torch

WEIGHTS, PROVENANCE = "model.safetensors", "eagle3_tui_fix.json"
SMALL_FILES = ("generation_config.json", "hf_quant_config.json")
CHUNK = 1 << 26  # bytes in memory at a time
_ALIGN = 8  # of the header, as the format's own writer does
# what may differ between source and copy without another function being computed
_MAY_DIFFER = {"dialect", "producer", "architecture", "verifier", "evidence", "warnings", "aux_ids", "id_convention"}

Poll = Callable[[], None]
Progress = Callable[[int, int], None]


def write(
    made: Plan,
    folder: Path,
    command: Sequence[str] = (),
    poll: Poll = lambda: None,
    on_progress: Progress = lambda done, total: None,
) -> Path:
    """Write the folder and return it, resolved. `on_progress` gets bytes of weights done and planned.

    Raises PathError for a place that is taken or lies in the source, FileError where reading or writing fails,
    CheckpointError should the copy not read back as the same drafter. Nothing is left behind then.
    """
    target = check_place(made.checkpoint, folder)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    made_it = False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        made_it = True
        for name, table in made.configs.items():
            (temporary / name).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        _copy_small_files(source_folder(made.checkpoint), temporary)
        _write_weights(temporary / WEIGHTS, made, poll, on_progress)
        (temporary / PROVENANCE).write_text(json_text(_provenance(made, command)), encoding="utf-8")
        _check_copy(temporary, made)
        temporary.replace(target)
    except OSError as error:
        raise FileError(f"cannot write the folder ({error.strerror})", where=target) from error
    finally:
        if made_it:
            shutil.rmtree(temporary, ignore_errors=True)  # gone already where all went well
    return target


def check_place(checkpoint: Checkpoint, folder: Path, run: Path | None = None) -> Path:
    """`folder`, resolved, if a new checkpoint may be written there. Raises PathError.

    `run` is the folder in which the checkpoint was found: a copy there would count as one more of the run.
    """
    try:
        target, source = folder.resolve(), source_folder(checkpoint).resolve()
        inside = run is not None and target.is_relative_to(run.resolve())
        taken = there(target) and (not target.is_dir() or any(target.iterdir()))
    except (OSError, RuntimeError, ValueError) as error:
        raise PathError(f"no folder can be written there ({error})", where=folder) from error
    if target == source or target.is_relative_to(source) or source.is_relative_to(target):
        raise PathError("the checkpoint's own folder", expected="a new folder elsewhere", where=folder)
    if inside:
        hint = "give a folder outside it, or the checkpoint itself as PATH"
        raise PathError(
            f"in the folder that is read, {run}", expected="a new folder elsewhere", where=folder, hint=hint
        )
    if taken:
        raise PathError("something is there already", expected="a new or an empty folder", where=folder)
    return target


def _copy_small_files(source: Path, into: Path) -> None:
    for name in SMALL_FILES:
        if (source / name).is_file():
            (into / name).write_text(json.dumps(read_json(source / name), indent=2) + "\n", encoding="utf-8")


# --- weights


def _write_weights(path: Path, made: Plan, poll: Poll, on_progress: Progress) -> None:
    # widest elements first: every tensor then lies at a multiple of its element's size
    tensors = sorted(made.tensors, key=lambda t: (-t.source.itemsize, t.name))
    total, done = sum(tensor.source.nbytes for tensor in tensors), 0
    with path.open("xb") as file:
        file.write(_layout(tensors, _metadata(made)))
        for tensor in tensors:
            for part in _parts(tensor, made.blocks):
                poll()
                done += file.write(_bytes(part))
                on_progress(done, total)
        file.flush()
        os.fsync(file.fileno())


def _layout(tensors: Sequence[TensorPlan], metadata: dict[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for tensor in tensors:
        end = at + tensor.source.nbytes
        entries[tensor.name] = {
            "dtype": tensor.source.dtype,
            "shape": list(tensor.source.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    return len(text).to_bytes(8, "little") + text


def _metadata(made: Plan) -> dict[str, str]:
    """That of the source's files, in which producers sign; "format" is what transformers asks for."""
    metadata = {"format": "pt"}
    for path in _weight_files(made.checkpoint):
        if path.suffix == ".safetensors":
            metadata |= read_header(path).metadata
    return metadata


def _weight_files(checkpoint: Checkpoint) -> list[Path]:
    return sorted({tensor.path for tensor in checkpoint.tensors.values()})


def _parts(tensor: TensorPlan, blocks: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """What is written of one tensor, in pieces of whole rows."""
    source = tensor.source
    moved = tensor.change == BLOCKS
    if tensor.change == OFFSETS:
        yield _offsets(source.read())
    elif len(source.shape) < 2:
        whole = source.read()
        yield _moved(whole, blocks) if moved else whole
    else:
        row = max(1, source.nbytes // max(1, source.shape[0]))
        step = max(1, CHUNK // row)
        for start in range(0, source.shape[0], step):
            rows = source.rows(start, min(start + step, source.shape[0]))
            yield _moved(rows, blocks) if moved else rows


def _moved(x: torch.Tensor, blocks: tuple[int, ...]) -> torch.Tensor:
    """`x` [.., A * Ht] with its A blocks in the order of `blocks`."""
    moved: torch.Tensor = x.unflatten(-1, (len(blocks), -1))[..., list(blocks), :].flatten(-2)
    return moved


def _offsets(d2t: torch.Tensor) -> torch.Tensor:
    import torch

    offsets = d2t.to(torch.int64) - torch.arange(d2t.numel())
    kept = offsets.to(d2t.dtype)
    if not torch.equal(kept.to(torch.int64), offsets):
        raise CheckpointError(f"d2t of {d2t.dtype}", expected="a type that holds its offsets")
    return kept


def _bytes(x: torch.Tensor) -> Any:
    """The elements of `x` in order, as a buffer."""
    import torch

    return x.contiguous().reshape(-1).view(torch.uint8).numpy() if x.numel() else b""


# --- what was done, and whether it came out right


def _provenance(made: Plan, command: Sequence[str]) -> dict[str, Any]:
    folder = source_folder(made.checkpoint)
    sources = [folder / name for name in made.configs if (folder / name).is_file()] + _weight_files(made.checkpoint)
    found: dict[str, Any] = shorten(
        {
            "made_by": "eagle3-tui fix",
            "versions": header([])["versions"],
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": list(command),
            "source": {"path": str(made.checkpoint.path), "files": {p.name: fingerprint(p) for p in sources}},
            **plan_json(made),
        }
    )
    return found


def _check_copy(folder: Path, made: Plan) -> None:
    """Open the copy as anybody would. Raises CheckpointError where it is another drafter than the source."""
    (found,) = find_checkpoints(folder)
    copy, source = open_checkpoint(found), made.checkpoint
    for item in fields(source.run_config):
        ours, theirs = getattr(source.run_config, item.name), getattr(copy.run_config, item.name)
        if item.name not in _MAY_DIFFER and ours != theirs:
            raise CheckpointError(f"the copy reads back with {item.name} {theirs!r}", expected=f"{ours!r}")
    shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
    if {name: tensor.shape for name, tensor in copy.tensors.items()} != shapes:
        raise CheckpointError("the copy reads back with other tensors", where=made.checkpoint.path)
