"""A server as the user names it, `sglang@0.5.12.post1`, with versions that can be compared."""

from __future__ import annotations

import re
from dataclasses import dataclass

from drafter.errors import WiringError

Version = tuple[int, ...]
SGLANG, VLLM, TRTLLM = "sglang", "vllm", "trtllm"
# the versions whose source was read (checkpoints.md, table of versions): oldest, newest
READ: dict[str, tuple[str, str]] = {
    SGLANG: ("0.4.6.post5", "0.5.23"),
    VLLM: ("0.33.0", "0.33.0"),
    TRTLLM: ("main", "main"),
}
MAIN: Version = (1 << 30,)  # a branch is later than its releases
_PARTS = 4
_PHASES = {"dev": -4, "a": -3, "b": -2, "rc": -1, "": 0, "post": 1}
_VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,3})(?:[.-]?(dev|a|b|rc|post)\.?(\d{1,6}))?(?:\+[\w.]{1,40})?")


@dataclass(frozen=True)
class Server:
    """`assumed`: the user named no version, and the newest one that was read is meant."""

    name: str
    version: Version
    text: str
    assumed: bool = False

    @classmethod
    def parse(cls, text: str) -> Server:
        """`sglang`, `vllm@0.33.0`, ... Raises WiringError for another name or no version number."""
        name, at, version = text.strip().lower().partition("@")
        if name not in READ or (at and not version):
            expected = ", ".join(f"{known}@{newest}" for known, (_, newest) in READ.items())
            raise WiringError(f"the server {text!r:.60}", expected=f"one of {expected}, or another version")
        number = version or READ[name][1]
        return cls(name, parse_version(number), number.removeprefix("v"), assumed=not version)

    def before(self, version: str) -> bool:
        return self.version < parse_version(version)

    @property
    def unread(self) -> str:
        """Why this version's rules are those of another one; empty where its source was read."""
        oldest, newest = READ[self.name]
        if self.assumed:
            return f"no version given: the rules of {self.name} {newest}, the newest read"
        if self.version < parse_version(oldest):
            return f"older than what was read: the rules of {self.name} {oldest}"
        if self.version > parse_version(newest):
            return f"newer than what was read: the rules of {self.name} {newest}"
        return ""

    def __str__(self) -> str:
        return f"{self.name}@{self.text}"


def parse_version(text: str) -> Version:
    """A version as numbers that compare as PEP 440 orders them: 0.5.12rc1 < 0.5.12 < 0.5.12.post1 < 0.5.13.

    Raises WiringError for what is no version.
    """
    if text == "main":
        return MAIN
    match = _VERSION.fullmatch(text)
    if match is None:
        raise WiringError(f"the version {text!r:.60}", expected="a version like 0.5.12.post1")
    release = [int(part) for part in match[1].split(".")]
    return (*release, *[0] * (_PARTS - len(release)), _PHASES[match[2] or ""], int(match[3] or 0))
