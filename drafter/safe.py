"""Text from files, made harmless: each string that a stranger may have written passes `safe` before it is shown."""

from __future__ import annotations


def safe(text: object, limit: int = 0) -> str:
    """`text` with each character that does not print shown as a visible escape (`\\x1b`, `\\u202e`).

    Covers C0, C1 and DEL, bidi overrides, zero-width characters, line separators, lone surrogates and private use.
    With `limit` > 0 the result has at most that many characters, the middle replaced by `…`.
    """
    shown = str(text)
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else _escape(char) for char in shown)
    return middle(shown, limit) if limit else shown


def middle(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, cut in the middle so that both ends of a name stay readable."""
    if len(text) <= limit:
        return text
    if limit <= 1:
        return "…"[:limit]
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def _escape(char: str) -> str:
    code = ord(char)
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if char in named:
        return named[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
