"""What lies in a checkpoint's folder, as written: names, config tables, tensors by header; each problem is kept.

It is there also where the checkpoint cannot be opened, and then tells as much as can be told. Judges nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.checkpoint.clues import Clues
from drafter.checkpoint.names import by_canonical_name, canonical
from drafter.checkpoint.tensor_files import TensorFiles
from drafter.errors import DrafterError
from drafter.files.find import RUN_CONFIGS, Found
from drafter.files.json_file import read_json

if TYPE_CHECKING:
    from drafter.checkpoint.config import DrafterConfig
    from drafter.files.stored import StoredTensor

MAX_NAMES = 10_000
INNER = "transformer_layer_config"  # where a nested config keeps the decoder layer


@dataclass(frozen=True)
class Files:
    """Everything is read when it is first asked for, and kept."""

    found: Found
    problems: dict[str, str] = field(default_factory=dict)  # file name -> the one line that says what is wrong

    @property
    def folder(self) -> Path:
        return self.found.path if self.found.path.is_dir() else self.found.path.parent

    @cached_property
    def names(self) -> frozenset[str]:
        """Names in the folder, of a folder of very many the first."""
        try:
            with os.scandir(self.folder) as entries:
                return frozenset(entry.name for entry, _ in zip(entries, range(MAX_NAMES), strict=False))
        except OSError:
            return frozenset()

    @cached_property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The configs that can be read, by file name: first the one that servers read."""
        paths = [self.folder / name for name in RUN_CONFIGS if name in self.names]
        if not paths and self.found.config is not None:
            paths = [self.found.config]
        tables = {}
        for path in paths:
            try:
                tables[path.name] = read_json(path)
            except DrafterError as error:
                self.problems[path.name] = str(error)
        return tables

    @property
    def table(self) -> dict[str, Any]:
        """The config that servers read; empty where there is none."""
        return next(iter(self.tables.values()), {})

    @property
    def table_name(self) -> str:
        return next(iter(self.tables), "config.json")

    @cached_property
    def by_file(self) -> dict[str, dict[str, StoredTensor]]:
        """file name -> its tensors by the names in it, unread."""
        tensors = {}
        for path in self.found.weights:
            try:
                tensors[path.name] = TensorFiles([path]).all()
            except DrafterError as error:
                self.problems[path.name] = str(error)
        return tensors

    @cached_property
    def tensors(self) -> dict[str, StoredTensor]:
        """By canonical name, as far as two tensors do not claim the same one: then the first is kept."""
        written: dict[str, StoredTensor] = {}
        for tensors in self.by_file.values():
            written |= {name: tensor for name, tensor in tensors.items() if name not in written}
        try:
            return by_canonical_name(written)
        except DrafterError as error:
            self.problems["tensor names"] = str(error)
        first: dict[str, StoredTensor] = {}
        for name, tensor in written.items():
            first.setdefault(canonical(name), tensor)
        return first

    @cached_property
    def config(self) -> DrafterConfig | None:
        """The normal form of the config that servers read, without regard to the weights; None where it has none."""
        from drafter.checkpoint.dialects import read_config

        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        written = frozenset(name for tensors in self.by_file.values() for name in tensors)
        try:
            return read_config(self.table, self.table_name, Clues(shapes, written, files=self.names))
        except DrafterError as error:
            self.problems.setdefault(self.table_name, str(error))
            return None

    def stated(self, *keys: str) -> Any:
        """The first of the dotted `keys` that the config of servers sets; None where none is set."""
        return stated(self.table, *keys)

    def layer(self, key: str) -> Any:
        """A field of the decoder layer, which a nested config keeps inside."""
        return stated(self.table, self.key(key))

    def key(self, name: str) -> str:
        """The dotted key of a field of the decoder layer in the config that servers read, for whoever writes it."""
        return key_in(self.table, name)

    def written_in_all(self, name: str, value: str) -> str:
        """A field of the decoder layer written into each config, as a fix: what training wrote is read here too."""
        return "; ".join(f"{file}: {key_in(table, name)} = {value}" for file, table in self.tables.items())


def is_nested(table: Mapping[str, Any]) -> bool:
    """Whether a config keeps its decoder layer inside, as speculators writes it."""
    return isinstance(table.get(INNER), Mapping)


def layer_of_table(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of `table` that has the fields of the decoder layer."""
    inner = table.get(INNER)
    return inner if isinstance(inner, Mapping) else table


def key_in(table: Mapping[str, Any], name: str) -> str:
    """The dotted key of a field of the decoder layer in `table`."""
    return f"{INNER}.{name}" if is_nested(table) else name


def stated(table: Mapping[str, Any], *keys: str) -> Any:
    """The first of the dotted `keys` that is set in `table`."""
    for key in keys:
        value: Any = table
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def has_key(table: Mapping[str, Any], key: str) -> bool:
    """Whether the dotted `key` stands in `table`, null or not."""
    *parts, last = key.split(".")
    inner = stated(table, ".".join(parts)) if parts else table
    return isinstance(inner, Mapping) and last in inner
