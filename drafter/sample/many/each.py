"""Every sample of a list of files, one after another: opened, or refused with its reason; parts of a file included.

Only headers, ids and masks are read. Knows nothing of what the samples are wanted for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from drafter.errors import DrafterError, SampleError
from drafter.files.path import there
from drafter.sample.sample import Sample, name_part, split_part

Opener = Callable[[Path], Sample]
Looked = tuple[Path, "Sample | DrafterError"]


def each_sample(paths: Sequence[Path], open_one: Opener, poll: Callable[[], None] = lambda: None) -> Iterator[Looked]:
    """(path, sample) of each sample in `paths`, or (path, refusal); a file that holds several gives each of them."""
    for path in paths:
        yield from each_part(path, open_one, poll)


def each_part(path: Path, open_one: Opener, poll: Callable[[], None] = lambda: None) -> Iterator[Looked]:
    """The samples of the file `path`; only the one named where `path` is `file#i`."""
    poll()
    if not there(path) and split_part(path)[1] is not None:
        yield path, _look(path, open_one)
        return
    first = _look(path, open_one)
    parts = _parts(path, first, open_one)
    yield name_part(path, 0, parts), first
    for part in range(1, parts):
        poll()
        name = name_part(path, part, parts)
        yield name, _look(name, open_one)


def _look(path: Path, open_one: Opener) -> Sample | DrafterError:
    try:
        return open_one(path)
    except DrafterError as error:
        return error


def _parts(path: Path, first: Sample | DrafterError, open_one: Opener) -> int:
    """How many samples the file holds; where the first is refused for its own sake, the second is asked."""
    if isinstance(first, SampleError):
        second = _look(name_part(path, 1, 2), open_one)
        return second.parts if isinstance(second, Sample) else 1
    return first.parts if isinstance(first, Sample) else 1
