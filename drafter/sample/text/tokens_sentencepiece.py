"""A sentencepiece model, through the optional `sentencepiece` package; added tokens from tokenizer_config.json."""

from __future__ import annotations

from pathlib import Path

from drafter.errors import FileError
from drafter.sample.text.tokens_config import added_tokens

_SPACE = "▁"


class SentencePieceText:
    """Raises FileError for a file that the package does not take, or where the package is not installed."""

    def __init__(self, path: Path) -> None:
        try:
            import sentencepiece
        except ImportError as error:
            raise FileError(
                "a sentencepiece model, for which a package is missing",
                where=path,
                hint="pip install 'eagle3-tui[sentencepiece]', or give a tokenizer.json",
            ) from error
        self.path = path
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
        except (RuntimeError, OSError) as error:
            raise FileError("not a sentencepiece model, nor a tiktoken table", where=path) from error
        self._added = added_tokens(path.parent / "tokenizer_config.json")
        self._size = self._model.get_piece_size()
        self.first_space = self._drops_first_space()

    def special(self, token: int) -> bool:
        if token in self._added:
            return self._added[token].special
        return token in range(self._size) and bool(self._model.is_control(token) or self._model.is_unknown(token))

    def raw(self, token: int) -> bytes | None:
        if token in self._added:
            return self._added[token].text.encode(errors="backslashreplace")
        if token not in range(self._size):
            return None
        text = str(self._model.id_to_piece(token))
        if self._model.is_byte(token):
            return bytes.fromhex(text.removeprefix("<0x").removesuffix(">"))
        return (text if self.special(token) else text.replace(_SPACE, " ")).encode()

    def _drops_first_space(self) -> bool:
        """Whether the model put a space before the text; it says so only by what it decodes."""
        for token in range(self._size):
            word = str(self._model.id_to_piece(token))
            if len(word) > 1 and word.startswith(_SPACE) and not self.special(token):
                return not str(self._model.decode([token])).startswith(" ")
        return False
