"""Text from strangers, made harmless; and the line that every refusal is."""

from __future__ import annotations

import pytest

from drafter import errors
from drafter.errors import DrafterError
from drafter.safe import middle, safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, naïve 日本 😀", "plain text, naïve 日本 😀"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("a\nb\tc\rd\x00", "a\\nb\\tc\\rd\\x00"),
        ("\x7f\x85\x9b", "\\x7f\\x85\\x9b"),
        ("\u202eevil\u2066\u200b\ufeff\u2028", "\\u202eevil\\u2066\\u200b\\ufeff\\u2028"),
        ("\ud800\ue000\U000e0041", "\\ud800\\ue000\\U000e0041"),
        ("\xa0\u3000", "\\xa0\\u3000"),
        (7, "7"),
        ("", ""),
    ],
)
def test_what_does_not_print_is_shown_as_an_escape(text: object, shown: str) -> None:
    assert safe(text) == shown


def test_nothing_that_passes_can_act() -> None:
    everything = "".join(map(chr, range(0x110000)))
    assert safe(everything).isprintable()
    safe(everything).encode()


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 9, 10, 11])
def test_names_are_cut_in_the_middle(limit: int) -> None:
    cut = safe("abcdefghij", limit)
    assert len(cut) <= limit
    if limit >= 10:
        assert cut == "abcdefghij"
    elif limit > 2:
        assert cut[0] == "a" and cut[-1] == "j" and "…" in cut


def test_cutting_to_nothing() -> None:
    assert middle("abc", 0) == "" and middle("abc", 1) == "…" and middle("", 0) == ""


# --- refusals


def test_a_refusal_is_one_line_of_its_parts() -> None:
    error = DrafterError("a \x1b[1mthing", expected="another", where="/where/x\n", hint="do so")
    assert str(error) == "a \\x1b[1mthing; expected another; in /where/x\\n; do so"
    assert (error.found, error.expected, error.where, error.hint) == (
        "a \x1b[1mthing",
        "another",
        "/where/x\n",
        "do so",
    )
    assert str(DrafterError("alone")) == "alone"


def test_a_refusal_stays_short() -> None:
    line = str(DrafterError("x" * 10**6, where="/the/end"))
    assert len(line) <= errors.MAX_LINE and line.endswith("/the/end")


def test_every_refusal_is_one_of_the_tree_and_a_cancel_is_none() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) == 9
    assert [kind.__name__ for kind in kinds if not issubclass(kind, DrafterError)] == ["Cancelled"]
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in kinds)
