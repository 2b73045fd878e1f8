"""Values of a rule by the versions whose source was read, and what may be said of a version in between.

A rule is a table (version read -> value). Between two versions that were read and agree the value is certain; where
they differ it is not, and the words say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from drafter.serving.server import Server, parse_version

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Ruled(Generic[T_co]):
    """The value for a version, `words` about which versions say so, and whether that is certain."""

    value: T_co
    words: str
    certain: bool


def ruled(server: Server, read: Mapping[str, T]) -> Ruled[T]:
    """What `read` says for `server`'s version: that of the newest version read up to it.

    Outside what was read the nearest version's value is taken, and said.
    """
    versions = sorted(read, key=parse_version)
    below = [version for version in versions if parse_version(version) <= server.version]
    above = [version for version in versions if parse_version(version) >= server.version]
    name = server.name
    if not below:
        return Ruled(read[versions[0]], f"{name} {server.text} is older than {versions[0]}, the oldest read", False)
    if not above:
        return Ruled(read[below[-1]], f"{name} {server.text} is newer than {below[-1]}, the newest read", False)
    low, high = below[-1], above[0]
    if low == high:
        return Ruled(read[low], f"{name} {low}", True)
    if read[low] == read[high]:
        return Ruled(read[low], f"{name} {low} and {high}", True)
    return Ruled(read[low], f"changed between {name} {low} and {high}: that of {low} is taken", False)
