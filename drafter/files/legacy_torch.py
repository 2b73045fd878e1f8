"""Files of `torch.save` from before 1.6, which are no zip: five pickles, then each storage's length and bytes.

torch's own `weights_only` unpickler reads the pickles, so no code is run; storages are made on the meta device and
given their places in the file, in the order of the fifth pickle.
"""

from __future__ import annotations

from typing import Any, BinaryIO

from drafter.errors import FileError

MAGIC = b"\x80\x02\x8a\x0a"  # a pickle of the number by which torch knows the kind
_NUMBER, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class TooLong(Exception):
    """The structure is longer than any real file's."""


class _Limited:
    """What an unpickler needs of a file, for no more than `left` bytes."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file, self._left = file, left

    def read(self, size: int) -> bytes:
        self._take(size)
        return self._file.read(size)

    def readline(self) -> bytes:
        line = self._file.readline(self._left)
        self._take(len(line))
        return line

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0 or size < 0:
            raise TooLong


def load_legacy(file: BinaryIO, offset_name: str, limit: int) -> Any:
    """What is stored, with meta tensors whose storages carry their place in the file as `offset_name`.

    The pickles may take `limit` bytes. Raises UnpicklingError for what would run code, TooLong, or FileError.
    """
    import torch
    from torch._weights_only_unpickler import Unpickler

    storages: dict[str, tuple[Any, int]] = {}

    def storage(saved: Any) -> Any:
        kind, storage_type, key, _location, count, view = saved
        if kind not in ("storage", b"storage") or view is not None or type(count) is not int or count < 0:
            raise FileError("a storage of a kind that is not read", expected="whole storages of numbers")
        if str(key) not in storages:
            size = torch._utils._element_size(storage_type.dtype)
            storages[str(key)] = (torch.UntypedStorage(count * size, device="meta"), size)
        made = storages[str(key)][0]
        return torch.storage.TypedStorage(wrap_storage=made, dtype=storage_type.dtype, _internal=True)

    pickles = _Limited(file, limit)

    def load() -> Any:
        unpickler = Unpickler(pickles, encoding="utf-8")
        unpickler.persistent_load = storage  # type: ignore[method-assign]  # as torch itself sets it
        return unpickler.load()

    if load() != _NUMBER or load() != _PROTOCOL:
        raise FileError("a file that begins like an old torch file and is none")
    load()  # the machine that wrote it
    value, keys = load(), load()
    if not isinstance(keys, list) or {str(key) for key in keys} != set(storages):
        raise FileError("an old torch file whose list of storages does not fit")
    for key in keys:
        made, size = storages[str(key)]
        if int.from_bytes(file.read(8), "little") * size != made.nbytes():
            raise FileError("a storage of another length than its tensors say", hint="the file is truncated or forged")
        setattr(made, offset_name, file.tell())
        file.seek(made.nbytes(), 1)
    return value
