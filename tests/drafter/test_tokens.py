"""Token ids as text from every kind of table, against the libraries that own them."""

from __future__ import annotations

import base64
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from drafter.errors import FileError, PathError
from drafter.sample.text.tokens import TokenText, decode, open_tokenizer, piece, running
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


WORDS = ["the cat sat on the mat", "naïve café, the élan of a cat", "matter of the flatness", "two  spaces — 😀 \n"]

UNKNOWN = {"unk_token": "<unk>"}


def joined(tokens: TokenText, ids: list[int]) -> str:
    """As the libraries show bytes that are no text."""
    return b"".join(tokens.raw(i) or b"" for i in ids).decode(errors="replace")


def metaspace_unigram(folder: Path) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace(prepend_scheme="always")
    made.train_from_iterator(
        WORDS * 5,
        trainers.UnigramTrainer(vocab_size=90, special_tokens=["<unk>"], **UNKNOWN, show_progress=False),
    )
    return made


def metaspace_never(folder: Path) -> Tokenizer:
    made = metaspace_unigram(folder)
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    made.decoder = decoders.Metaspace(prepend_scheme="never")
    return made


def byte_fallback(folder: Path) -> Tokenizer:
    """As Llama 2 has it: spaces replaced in the whole text, a byte for each character outside of the table."""
    made = Tokenizer(models.BPE(byte_fallback=True, **UNKNOWN))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    specials = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=specials, show_progress=False)
    made.train_from_iterator(["the cat sat on the mat"] * 5, trainer)
    table = json.loads(made.to_str())
    table["added_tokens"] = table["added_tokens"][:1]  # bytes are no added tokens
    return Tokenizer.from_str(json.dumps(table))


def word_piece(folder: Path) -> Tokenizer:
    made = Tokenizer(models.WordPiece(**UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    made.train_from_iterator(
        WORDS * 5, trainers.WordPieceTrainer(vocab_size=80, special_tokens=["<unk>"], show_progress=False)
    )
    return made


def other_space(folder: Path) -> Tokenizer:
    made = Tokenizer(models.WordLevel({"<unk>": 0, "_a": 1, "_b▁": 2, "c": 3}, **UNKNOWN))
    made.decoder = decoders.Metaspace(replacement="_", prepend_scheme="first")
    return made


KINDS: list[Callable[[Path], Tokenizer]] = [
    metaspace_unigram, metaspace_never, byte_fallback, word_piece, other_space, lambda folder: byte_level(folder)[1]
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_random_ids_read_as_the_library_reads_them(tmp_path: Path, kind: Callable[[Path], Tokenizer]) -> None:
    made = kind(tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    tokens = open_tokenizer(tmp_path)
    added = made.get_added_tokens_decoder()
    plain = [
        i for i in range(made.get_vocab_size())
        if i not in added and not str(made.id_to_token(i)).startswith("<0x")
    ]  # fmt: skip
    # the library drops every space of a first token that has several, and the ## of a first token
    firsts = [i for i in plain if made.id_to_token(i).count("▁") < 2 and not made.id_to_token(i).startswith("##")]
    dice = random.Random(1)
    assert len(firsts) > 2
    for _ in range(300):
        ids = [dice.choice(firsts), *dice.choices(plain, k=dice.randrange(8))]
        text = joined(tokens, ids)
        text = text.removeprefix(" ") if tokens.first_space else text
        assert text == made.decode(ids, skip_special_tokens=False)
        assert "�" in text or decode(tokens, ids) == text


@pytest.mark.parametrize("kind", [metaspace_unigram, metaspace_never, byte_fallback, word_piece])
def test_texts_come_back(tmp_path: Path, kind: Callable[[Path], Tokenizer]) -> None:
    made = kind(tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    tokens = open_tokenizer(tmp_path)
    for text in ["the cat", "a mat", "the flat of a cat"] + ["café 😀 \n"] * (kind is byte_fallback):
        ids = made.encode(text).ids
        assert decode(tokens, ids) == text == made.decode(ids)
        assert running(tokens, ids) == (f" {text}" if tokens.first_space else text)


def test_a_byte_level_token_with_other_characters_stands_for_itself(tmp_path: Path) -> None:
    made = Tokenizer(models.BPE({"a": 0, "Ġa": 1, "Ġ😀": 2}, []))
    made.decoder = decoders.Sequence([decoders.ByteLevel()])
    made.save(str(tmp_path / "tokenizer.json"))
    tokens = open_tokenizer(tmp_path)
    assert [joined(tokens, [i]) for i in range(3)] == [made.decode([i]) for i in range(3)] == ["a", " a", "Ġ😀"]


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        [],
        {},
        {"type": "Sequence"},
        {"type": []},
        {"type": "Sequence", "decoders": [1, None]},
        {"type": "Replace", "content": " "},
        {"type": "Metaspace", "replacement": 5},
        {"type": "Replace", "content": " ", "pattern": {"Regex": "x"}},
    ],
)
def test_decoders_that_say_nothing(decoder: Any) -> None:
    from drafter.sample.text.tokens_json import writing_of

    assert writing_of(decoder).space == "▁" and not writing_of(decoder).byte_level


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


def test_added_tokens_need_not_be_special(tmp_path: Path) -> None:
    tokens = open_tokenizer(ranked(tmp_path, specials={"300": {"content": "<think>", "special": False}}))
    assert piece(tokens, 300) == '"<think>"' and not tokens.special(300)


def test_a_surrogate_in_an_added_token(tmp_path: Path) -> None:
    tokens = open_tokenizer(ranked(tmp_path, specials={"300": {"content": "\ud800x"}}))
    assert piece(tokens, 300).isprintable() and decode(tokens, [300]).isprintable()


# --- sentencepiece models


def sentences(folder: Path, **how: Any) -> tuple[Path, sentencepiece.SentencePieceProcessor]:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(WORDS * 20), model_writer=model, minloglevel=2, hard_vocab_limit=False,
        **{"vocab_size": 330, "byte_fallback": True, **how},
    )  # fmt: skip
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return folder / "tokenizer.model", sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


HOWS: list[dict[str, Any]] = [
    {"model_type": "unigram"},
    {"model_type": "bpe"},
    {"model_type": "bpe", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    {"model_type": "unigram", "byte_fallback": False, "vocab_size": 60, "user_defined_symbols": ["<user>", "▁cat▁"]},
]


@pytest.mark.parametrize("how", HOWS)
def test_sentencepiece_ids_read_as_the_package_reads_them(tmp_path: Path, how: dict[str, Any]) -> None:
    path, made = sentences(tmp_path, **how)
    tokens = open_tokenizer(path)
    assert tokens.first_space == how.get("add_dummy_prefix", True)
    size, dice = made.get_piece_size(), random.Random(2)
    plain = [i for i in range(size) if not (made.is_control(i) or made.is_unknown(i) or made.is_byte(i))]
    firsts = [i for i in plain if made.id_to_piece(i) != "▁"]  # the package drops several of these at the start
    for _ in range(300):
        ids = [dice.choice(firsts), *dice.choices(plain, k=dice.randrange(8))]
        assert decode(tokens, ids) == made.decode(ids)
    for text in [*WORDS[:3], "café"] + ["x😀y\n"] * how.get("byte_fallback", True):
        assert decode(tokens, made.encode(text)) == made.decode(made.encode(text))
    for token in range(size):
        assert tokens.special(token) == (made.is_control(token) or made.is_unknown(token))
        if made.is_byte(token):
            assert tokens.raw(token) == bytes([int(made.id_to_piece(token)[3:-1], 16)])
    for token in OUTSIDE:
        assert tokens.raw(token) is None and not tokens.special(token) and piece(tokens, token) == f"<id {token}>"


def test_sentencepiece_takes_added_tokens_beside_it(tmp_path: Path) -> None:
    path, made = sentences(tmp_path)
    size = made.get_piece_size()
    added = {
        str(size): {"content": "<|im_end|>"},
        "1": {"content": "<begin>"},
        str(size + 1): {"content": "▁x", "special": False},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    tokens = open_tokenizer(path)
    assert [piece(tokens, i) for i in (1, size, size + 1, size + 2)] == [
        "<begin>", "<|im_end|>", '"▁x"', f"<id {size + 2}>"
    ]  # fmt: skip


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = sentences(tmp_path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with refused(FileError, "eagle3-tui[sentencepiece]", "tokenizer.model"):
        open_tokenizer(path)


def test_a_sentencepiece_model_that_is_broken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, _ = sentences(tmp_path, model_type="bpe")
    data, dice = path.read_bytes(), random.Random(3)
    capfd.readouterr()
    for _ in range(150):
        at = dice.randrange(12, len(data))
        broken = data[:at] if dice.random() < 0.3 else data[:at] + dice.randbytes(dice.randrange(1, 9)) + data[at + 4 :]
        path.write_bytes(broken)
        try:
            tokens = open_tokenizer(path)
        except FileError as error:
            assert str(error).isprintable()
        else:
            assert all(piece(tokens, i).isprintable() for i in range(-1, 400))
    path.write_bytes(b"\x0a\x05hello")
    with refused(FileError, "sentencepiece"):
        open_tokenizer(path)
    assert capfd.readouterr() == ("", "")  # nothing of the library's own on the terminal


def test_the_first_bytes_tell_the_kind_and_not_the_name(tmp_path: Path) -> None:
    path, made = sentences(tmp_path)
    for name in ("tiktoken.model", "spiece.vocab"):
        assert open_tokenizer(path.rename(tmp_path / name)).raw(5) == bytes([int(made.id_to_piece(5)[3:-1], 16)])
        path = tmp_path / name
    for name in ("tokenizer.model", "qwen.tiktoken"):
        table = ranked(tmp_path).rename(tmp_path / name)
        assert open_tokenizer(table).raw(256) == b"na"
    made_json = tiny.write_tokenizer(tmp_path / "x.model", tokens=["<unk>", "<s>", "</s>", "▁two"])
    with refused(FileError, "tiktoken"):
        open_tokenizer(made_json)
    made_json = made_json.rename(tmp_path / "x")
    made_json.write_text("\n  " + made_json.read_text())
    assert open_tokenizer(made_json).raw(3) == b" two"


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


BROKEN: dict[str, str] = {
    "": "not JSON",
    "{": "not JSON",
    "[]": "a table",
    "[" * 100_000: "not JSON",
    "{}": "not a tokenizer",
    '{"model": []}': "not a tokenizer",
    '{"model": {"type": "BPE\\u001b"}}': "not a tokenizer",
    '{"model": {"vocab": 5}}': "not a tokenizer",
    '{"model": {"vocab": {"a": "0"}}}': "not a tokenizer",
    '{"model": {"vocab": {"a": -1}}}': "not a tokenizer",
    '{"model": {"vocab": {"a": true}}}': "not a tokenizer",
    '{"model": {"vocab": {}}}': "not a tokenizer",
    '{"model": {"vocab": [["a", 0.5], []]}}': "not a tokenizer",
    '{"model": {"vocab": [["a"], 5]}}': "not a tokenizer",
    '{"model": {"vocab": {"a": 0}}, "added_tokens": [5]}': "not a tokenizer",
    '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1}]}': "not a tokenizer",
    '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 4294967296, "content": "x"}]}': "not a tokenizer",
}


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_malformed_tokenizer_json_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with refused(FileError, BROKEN[content], "tokenizer.json"):
        open_tokenizer(tmp_path)


def test_what_ids_do_not_need_is_not_looked_at(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The library ends the process's thread with a panic on such a normalizer, printed to the terminal."""
    table = json.loads(tiny.write_tokenizer(tmp_path / "tokenizer.json").read_text())
    table |= {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "post_processor": 5}
    (tmp_path / "tokenizer.json").write_text(json.dumps(table))
    assert piece(open_tokenizer(tmp_path), 5) == '"w5"'
    assert capfd.readouterr() == ("", "")


def test_a_surrogate_in_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"\\ud800": 0, "b": 1}}}')
    with refused(FileError, "not a tokenizer"):
        open_tokenizer(tmp_path)
