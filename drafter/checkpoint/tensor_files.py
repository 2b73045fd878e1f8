"""The tensors of a model folder by header only: one safetensors file, several, or an index with shards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from drafter.errors import FileError
from drafter.files.json_file import read_json
from drafter.files.safetensors_file import read_header
from drafter.files.stored import StoredTensor

INDEX = "model.safetensors.index.json"


class TensorFiles:
    """Finds tensors by name or by the end of it; opens a file's header only when a name leads there."""

    def __init__(self, files: Sequence[Path], index: Path | None = None) -> None:
        self._headers: dict[Path, dict[str, StoredTensor]] = {}
        self._files = list(files)
        self._where: dict[str, Path] | None = _read_index(index) if index is not None else None

    @classmethod
    def of_folder(cls, folder: Path) -> TensorFiles:
        index = folder / INDEX
        if index.is_file():
            return cls([], index)
        return cls(sorted(folder.glob("*.safetensors")))

    def all(self) -> dict[str, StoredTensor]:
        """Every tensor, after opening every header. Raises FileError for a name that stands in two files."""
        found: dict[str, StoredTensor] = {}
        for path in self._paths():
            for name, tensor in self._header(path).items():
                if name in found:
                    raise FileError(f"{name!r} stands in two files", where=path, hint=f"and in {found[name].path.name}")
                found[name] = tensor
        return found

    def ending(self, suffix: str) -> StoredTensor | None:
        """The one tensor whose name is `suffix` or ends in `.suffix`; the shortest name where there are several."""
        names = [name for name in self._names() if name == suffix or name.endswith("." + suffix)]
        if not names:
            return None
        name = min(names, key=lambda n: (len(n), n))
        if self._where is not None:
            return self._header(self._where[name]).get(name)
        return self.all()[name]

    def _names(self) -> list[str]:
        return list(self._where) if self._where is not None else list(self.all())

    def _paths(self) -> list[Path]:
        return sorted(set(self._where.values())) if self._where is not None else self._files

    def _header(self, path: Path) -> dict[str, StoredTensor]:
        if path not in self._headers:
            self._headers[path] = read_header(path).tensors
        return self._headers[path]


def _read_index(index: Path) -> dict[str, Path]:
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict):
        raise FileError("no 'weight_map'", expected="a safetensors index", where=index)
    where = {}
    for name, file in table.items():
        # a shard is a plain name in the same folder: an index must not lead anywhere else
        if not isinstance(file, str) or not re.fullmatch(r"[\w.@+-]+\.safetensors", file):
            raise FileError(f"{name!r} is said to lie in {file!r}", expected="a .safetensors name", where=index)
        where[name] = index.parent / file
    return where
