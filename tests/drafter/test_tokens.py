"""Token ids as text from both kinds of table, against the libraries that own them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from drafter.errors import FileError, PathError
from drafter.sample.tokens import TokenText, decode, open_tokenizer, piece
from tests import tiny
from tests.drafter.helpers import refused

TEXT = "naïve café — 😀 \t two\nlines \x1b[1m ¡x¡"
OUTSIDE = [-1, -(2**63), 2**31, 2**32, 2**40, 2**63 - 1, 10_000]


def byte_level(folder: Path) -> tuple[TokenText, Tokenizer]:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([TEXT] * 5, trainer)
    made.add_special_tokens([AddedToken("<|end|>", special=True)])
    made.add_tokens([AddedToken("Ġliteral", special=False)])
    made.save(str(folder / "tokenizer.json"))
    return open_tokenizer(folder), made


RANKS = {bytes([i]): i for i in range(256)} | {b"na": 256, "é".encode(): 257, b"\xf0\x9f": 258, b"two": 260}


def ranked(folder: Path, ranks: Any = RANKS, specials: dict[str, Any] | None = None) -> Path:
    lines = [f"{base64.b64encode(text).decode()} {rank}" for text, rank in dict(ranks).items()]
    (folder / "tiktoken.model").write_text("\n".join(lines) + "\n")
    if specials is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": specials}))
    return folder / "tiktoken.model"


# --- tokenizer.json, byte level


def test_byte_level_ids_are_the_bytes_of_the_text(tmp_path: Path) -> None:
    tokens, made = byte_level(tmp_path)
    ids = made.encode(TEXT).ids
    assert b"".join(tokens.raw(i) or b"?" for i in ids) == TEXT.encode()
    assert decode(tokens, ids) == TEXT == made.decode(ids)
    singles = {tokens.raw(i) for i in range(made.get_vocab_size())}
    assert {bytes([b]) for b in range(256)} <= singles


def test_added_tokens_are_literal_and_specials_known(tmp_path: Path) -> None:
    tokens, made = byte_level(tmp_path)
    end, literal = made.token_to_id("<|end|>"), made.token_to_id("Ġliteral")
    assert tokens.raw(end) == b"<|end|>" and tokens.special(end) and piece(tokens, end) == "<|end|>"
    assert tokens.raw(literal) == "Ġliteral".encode() and not tokens.special(literal)
    assert not tokens.special(5)


def test_half_a_character_stays_visible(tmp_path: Path) -> None:
    tokens, made = byte_level(tmp_path)
    smile = [i for i in range(made.get_vocab_size()) if tokens.raw(i) in (b"\xf0", b"\x9f", b"\x98", b"\x80")]
    by_byte = {tokens.raw(i): i for i in smile}
    assert piece(tokens, by_byte[b"\xf0"]) == '"\\xf0"'
    assert decode(tokens, [by_byte[b] for b in (b"\xf0", b"\x9f", b"\x98", b"\x80")]) == "😀"
    assert decode(tokens, [by_byte[b"\xf0"], by_byte[b"\x9f"]]) == "\\xf0\\x9f"


@pytest.mark.parametrize("token", OUTSIDE)
def test_ids_outside_of_the_table(tmp_path: Path, token: int) -> None:
    for tokens in (byte_level(tmp_path)[0], open_tokenizer(ranked(tmp_path, specials={"300": {"content": "<e>"}}))):
        assert tokens.raw(token) is None and not tokens.special(token)
        assert piece(tokens, token) == f"<id {token}>" == decode(tokens, [token])


# --- tokenizer.json, other kinds


def test_sentence_pieces(tmp_path: Path) -> None:
    words = ["<unk>", "<s>", "</s>", "▁two", "<0x0A>", "<0xZZ>", "x\u202ey", "<0x41", ""]
    tokens = open_tokenizer(tiny.write_tokenizer(tmp_path / "tokenizer.json", tokens=words))
    assert [tokens.raw(i) for i in range(3, 9)] == [b" two", b"\n", b"<0xZZ>", "x\u202ey".encode(), b"<0x41", b""]
    assert [piece(tokens, i) for i in range(1, 7)] == ["<s>", "</s>", '" two"', '"\\n"', '"<0xZZ>"', '"x\\u202ey"']
    assert decode(tokens, [3, 4, 8, 3]) == " two\n two"


def test_without_a_table_ids_are_shown() -> None:
    assert piece(None, 7) == "<id 7>" and decode(None, [7, 8]) == "7 8"


# --- tiktoken.model


SPECIALS = {
    "300": {"content": "<|im_end|>"},
    "301": {"content": "[PAD]"},
    "302": {"content": "[PAD]"},
    "x": {},
    "259": 1,
}


def test_ranks_are_the_bytes_that_tiktoken_gives(tmp_path: Path) -> None:
    tokens = open_tokenizer(ranked(tmp_path, specials=SPECIALS))
    truth = tiktoken.Encoding(
        "x", pat_str=r".", mergeable_ranks=RANKS, special_tokens={"<|im_end|>": 300, "[PAD]": 301}
    )
    for token in [*RANKS.values(), 300, 301]:
        assert tokens.raw(token) == truth.decode_single_token_bytes(token)
    assert tokens.raw(259) is None  # a gap
    assert tokens.raw(302) == b"[PAD]"  # two ids of one text
    assert [t for t in range(310) if tokens.special(t)] == [300, 301, 302]
    assert piece(tokens, 258) == '"\\xf0\\x9f"' and piece(tokens, 300) == "<|im_end|>"
    assert decode(tokens, [258, 0x98, 0x80]) == "😀"


def test_a_folder_may_lack_specials(tmp_path: Path) -> None:
    tokens = open_tokenizer(ranked(tmp_path))
    assert tokens.raw(260) == b"two" and tokens.raw(300) is None


@pytest.mark.parametrize(
    "table",
    [[], "text", {"²": {"content": "x"}}, {"9" * 5000: {"content": "x"}}, {"300": {"content": None}}, {"300": []}],
)
def test_odd_specials_are_passed_over(tmp_path: Path, table: Any) -> None:
    assert open_tokenizer(ranked(tmp_path, specials=table)).raw(97) == b"a"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n\n",
        "YQ==",
        "YQ== 0 1",
        "YQ== x",
        "??? 0",
        "YQ== -1",
        "YQ== 0\nYg== 0",
        "YQ== " + "9" * 5000,
        "\x08\x01\x12",
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.model").write_text(content)
    with refused(FileError, "tiktoken"):
        open_tokenizer(tmp_path / "tokenizer.model")


# --- paths


def test_a_folder_prefers_tokenizer_json(tmp_path: Path) -> None:
    ranked(tmp_path)
    assert open_tokenizer(tmp_path).path.name == "tiktoken.model"
    byte_level(tmp_path)
    assert open_tokenizer(tmp_path).path.name == "tokenizer.json"


def test_no_tokenizer(tmp_path: Path) -> None:
    with refused(PathError, "tokenizer.json or tiktoken.model"):
        open_tokenizer(tmp_path)
    for name in ("absent", "x" * 300):
        with refused(PathError, "--tokenizer"):
            open_tokenizer(tmp_path / name)


@pytest.mark.parametrize("content", ["", "{}", "[]", "{", '{"model": {"type": "BPE\\u001b"}}', '{"version": "9"}'])
def test_a_malformed_tokenizer_json_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with refused(FileError, "not a tokenizer"):
        open_tokenizer(tmp_path)
