"""Every refusal a user can meet.

    DrafterError
    ├── PathError          nothing there, or nothing there that could be opened
    ├── FileError          a file that is not, or no longer, what it should be
    │   └── UnsafeFileError    reading it would run code, or allocate more than the file holds
    ├── CheckpointError    readable, but not an EAGLE-3 drafter that can be run
    ├── SampleError        readable, but not a recorded sample that fits
    ├── WiringError        an ordering, row or option that does not fit what is open
    └── DeviceError        the device or dtype that was asked for is not to be had

    Cancelled              not a refusal: the user asked for something else

A message is one line: what was found, what was expected, where, what to do next. It is made harmless here, once,
because every part of it may come from a file.
"""

from __future__ import annotations

from drafter.safe import safe

MAX_LINE = 1000  # a name in a file may be megabytes long


class DrafterError(Exception):
    """The base of all refusals. `str()` is the whole line; the parts stay readable as attributes."""

    def __init__(self, found: str, *, expected: str = "", where: object = "", hint: str = "") -> None:
        self.found, self.expected, self.where, self.hint = found, expected, str(where), hint
        parts = [found]
        if expected:
            parts.append(f"expected {expected}")
        if self.where:
            parts.append(f"in {self.where}")
        if hint:
            parts.append(hint)
        super().__init__(safe("; ".join(parts), MAX_LINE))


class PathError(DrafterError):
    """Nothing is there, or nothing there can be opened."""


class FileError(DrafterError):
    """A file that is not, or no longer, what it should be."""


class UnsafeFileError(FileError):
    """Reading the file would run code, or allocate more than the file holds."""


class CheckpointError(DrafterError):
    """Readable, but not an EAGLE-3 drafter that can be run."""


class SampleError(DrafterError):
    """Readable, but not a recorded sample that fits the drafter."""


class WiringError(DrafterError):
    """An ordering, a row or an option that does not fit what is open."""


class DeviceError(DrafterError):
    """The device or dtype that was asked for is not to be had."""


class Cancelled(Exception):
    """Raised inside long work when the user has asked for something else."""
