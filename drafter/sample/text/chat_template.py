"""The chat template beside a tokenizer as text, and the marks that it writes. No template is ever run."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from drafter.errors import DrafterError
from drafter.files.json_file import read_json, read_small

MAX_BYTES = 1 << 20
_JINJA, _JSON, _CONFIG = "chat_template.jinja", "chat_template.json", "tokenizer_config.json"
# what no one types: <|im_start|>, <｜User｜>, <start_of_turn>, [INST]
_MARK = re.compile(r"<\|[^|<>\s'\"]{1,40}\|>|<\uff5c[^\uff5c<>'\"]{1,40}\uff5c>|<(?:start|end)_of_turn>|\[/?INST\]")
_HEX = re.compile(r"[0-9a-f]{8,128}")


@dataclass(frozen=True)
class ChatTemplate:
    """`text` as it stands in `path`."""

    text: str
    path: Path

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of turns and roles in it, each once."""
        return tuple(dict.fromkeys(_MARK.findall(self.text)))

    def is_named_by(self, said: str) -> bool | None:
        """Whether `said` is this template: its text, or a hash of it. None where it is neither a text nor a hash."""
        if _HEX.fullmatch(said.lower()):
            data = self.text.encode()
            hashes = (hashlib.new(name, data, usedforsecurity=False).hexdigest() for name in ("md5", "sha1", "sha256"))
            return any(one.startswith(said.lower()) for one in hashes)
        return said.strip() == self.text.strip() if "{%" in said or "{{" in said else None


def find_marks(text: str) -> tuple[str, ...]:
    """The marks of any template in a text, each once."""
    return tuple(dict.fromkeys(_MARK.findall(text)))


def chat_template(folder: Path) -> ChatTemplate | None:
    """The template of the tokenizer in `folder`; of several by name the one called default, else the first.

    Files that cannot be read are as if they were not there: nobody asked for them.
    """
    jinja = folder / _JINJA
    try:
        if jinja.is_file():
            data = read_small(jinja, MAX_BYTES, "a chat template")
            return ChatTemplate(data.decode("utf-8", errors="replace"), jinja)
    except DrafterError:
        return None
    for name in (_JSON, _CONFIG):
        found = _in_table(folder / name)
        if found:
            return ChatTemplate(found, folder / name)
    return None


def _in_table(path: Path) -> str:
    try:
        said = read_json(path).get("chat_template") if path.is_file() else None
    except DrafterError:
        return ""
    if isinstance(said, list):
        named = {str(one.get("name")): one.get("template") for one in said if isinstance(one, dict)}
        said = named.get("default", next(iter(named.values()), None))
    return said if isinstance(said, str) else ""
