"""The tensors of a model folder by header only: one file, several, or an index with shards; safetensors or torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drafter.errors import FileError
from drafter.files.containers import INDEX as INDEX
from drafter.files.containers import INDEXES
from drafter.files.json_file import read_json
from drafter.files.safetensors_file import read_header
from drafter.files.stored import StoredTensor
from drafter.files.torch_file import read_torch_file

DRAFT = "draft_state_dict"
_WRAPPERS = (DRAFT, "state_dict", "model_state_dict", "model", "module")  # keys under which the tensors may lie


class TensorFiles:
    """Finds tensors by name or by the end of it; opens a file's header only when a name leads there.

    `metadata` and `state_keys` (the other keys of a torch file) fill as files are opened; `unread` are files that hold
    no drafter beside one that does.
    """

    def __init__(self, files: Sequence[Path], index: Path | None = None) -> None:
        self._headers: dict[Path, dict[str, StoredTensor]] = {}
        self._files = list(files)
        self._where: dict[str, Path] | None = _read_index(index) if index is not None else None
        self.metadata: dict[str, str] = {}
        self.state_keys: frozenset[str] = frozenset()
        self.unread: list[Path] = []

    @classmethod
    def of_folder(cls, folder: Path) -> TensorFiles:
        index = next((folder / name for name in INDEXES if (folder / name).is_file()), None)
        if index is not None:
            return cls([], index)
        return cls(sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin")))

    def keep_the_drafter(self) -> None:
        """Of several files without an index, keep the one that holds a whole drafter, where there is just one."""
        if self._where is None and len(self._files) > 1:
            whole = [path for path in self._files if _is_drafter(self._header(path))]
            if len(whole) == 1:
                self.unread = [path for path in self._files if path != whole[0]]
                self._files = whole

    def all(self) -> dict[str, StoredTensor]:
        """Every tensor, after opening every header. Raises FileError for a name that stands in two files."""
        found: dict[str, StoredTensor] = {}
        for path in self._paths():
            for name, tensor in self._header(path).items():
                if name in found:
                    raise FileError(f"{name!r} stands in two files", where=path, hint=f"and in {found[name].path.name}")
                found[name] = tensor
        return found

    def ending(self, suffix: str, shape: tuple[int | None, ...] = ()) -> StoredTensor | None:
        """The tensor whose name is `suffix` or ends in `.suffix`.

        Of several, one that has `shape` (None: any size) is taken, and of these the one with the shortest name.
        """
        found = self.all_ending(suffix)
        fitting = [tensor for tensor in found if _fits(tensor.shape, shape)]
        return next(iter(fitting or found), None)

    def all_ending(self, suffix: str) -> list[StoredTensor]:
        """The tensors whose names are `suffix` or end in `.suffix`, the shortest name first."""
        names = [name for name in self._names() if name == suffix or name.endswith("." + suffix)]
        names.sort(key=lambda n: (len(n), n))
        if self._where is None:
            whole = self.all()
            return [whole[name] for name in names]
        found = (self._header(self._where[name]).get(name) for name in names)
        return [tensor for tensor in found if tensor is not None]

    def _names(self) -> list[str]:
        return list(self._where) if self._where is not None else list(self.all())

    def _paths(self) -> list[Path]:
        return sorted(set(self._where.values())) if self._where is not None else self._files

    def _header(self, path: Path) -> dict[str, StoredTensor]:
        if path not in self._headers:
            if path.suffix == ".safetensors":
                file = read_header(path)
                self.metadata |= file.metadata
                self._headers[path] = file.tensors
            else:
                self._headers[path] = self._torch(path)
        return self._headers[path]

    def _torch(self, path: Path) -> dict[str, StoredTensor]:
        table = read_torch_file(path)
        if not isinstance(table, dict):
            raise FileError(f"a torch file with a {type(table).__name__}", expected="a table of tensors", where=path)
        wrapper = next((key for key in _WRAPPERS if isinstance(table.get(key), dict)), None)
        if wrapper is not None:
            self.state_keys |= {str(key) for key in table}
            table = table[wrapper]
        found = {str(k): replace(v, name=str(k)) for k, v in table.items() if isinstance(v, StoredTensor)}
        if not found:
            keys = ", ".join(repr(str(key))[:40] for key in list(table)[:4])
            raise FileError(f"a torch file without tensors (keys {keys})", expected="weights by name", where=path)
        return found


def _fits(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(found) == len(wanted) and all(w is None or f == w for f, w in zip(found, wanted, strict=True))


def _is_drafter(tensors: dict[str, StoredTensor]) -> bool:
    return all(any(name.endswith(end) for name in tensors) for end in ("fc.weight", "o_proj.weight"))


def _read_index(index: Path) -> dict[str, Path]:
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict):
        raise FileError("no 'weight_map'", expected="an index of weights", where=index)
    suffix = INDEXES.get(index.name, ".safetensors")
    where = {}
    for name, file in table.items():
        # a shard is a plain name in the same folder: an index must not lead anywhere else
        if not isinstance(file, str) or not re.fullmatch(r"[\w@+-][\w.@+-]*" + re.escape(suffix), file):
            raise FileError(f"{name!r} is said to lie in {file!r}", expected=f"a {suffix} name", where=index)
        where[name] = index.parent / file
    return where
