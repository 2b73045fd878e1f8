"""Which group a sample belongs to, told by its path alone: a named glob, or the `-s` under which it was found.

Knows no scores and opens no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from drafter.errors import WiringError
from drafter.sample.sample import split_part

OTHER = "other"  # samples that no glob matches


@dataclass(frozen=True)
class Grouping:
    """`globs` are (name, glob) pairs of which the first that matches decides; without any, `given` paths name groups.

    Without globs and with fewer than two given paths there are no groups.
    """

    globs: tuple[tuple[str, str], ...] = ()
    given: tuple[Path, ...] = ()

    @property
    def any(self) -> bool:
        return bool(self.globs) or len(set(self.given)) > 1

    def of(self, path: Path) -> str:
        """The group of the sample `path`."""
        if self.globs:
            return next((name for name, glob in self.globs if _matches(path, glob)), OTHER)
        above = [given for given in self.given if path == given or split_part(path)[0].is_relative_to(given)]
        return str(max(above, key=lambda given: len(given.parts))) if above else OTHER

    def without_samples(self, paths: Iterable[Path]) -> list[str]:
        """A sentence for each glob that is the group of none of the samples `paths`, and why."""
        matched, decided = set(), set()
        for path in paths:
            fitting = [pair for pair in self.globs if _matches(path, pair[1])]
            matched.update(fitting)
            decided.update(fitting[:1])
        lost = {True: "matches only samples of groups before it", False: "matches no sample"}
        unused = dict.fromkeys(pair for pair in self.globs if pair not in decided)
        return [f"--group {name}={glob} {lost[(name, glob) in matched]}" for name, glob in unused]


def parse_groups(asked: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """`NAME=GLOB` as (name, glob). Raises WiringError for anything else."""
    found = []
    for text in asked:
        name, equals, glob = text.partition("=")
        if not (name.strip() and equals and glob):
            raise WiringError(f"--group {text!r}", expected="NAME=GLOB, e.g. code='*/code/*'")
        found.append((name.strip(), glob))
    return tuple(found)


def _matches(path: Path, glob: str) -> bool:
    """On the whole path and on the name, of the sample and of the file that it lies in."""
    file = split_part(path)[0]
    return any(fnmatchcase(text, glob) for text in {str(path), path.name, str(file), file.name})
