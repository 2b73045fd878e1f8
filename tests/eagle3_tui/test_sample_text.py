"""The text of a sample with its supervised spans marked: characters stay whole inside a span, bytes show where cut."""

from __future__ import annotations

from pathlib import Path

import torch

from drafter.sample.open import open_sample
from drafter.sample.text.tokens import open_tokenizer
from eagle3_tui.screens.sample_text import readable, sample_text
from tests.drafter.byte_chat import write_table
from tests.tiny import write_tokenizer

SMILE = list("😀".encode())


def test_a_character_over_several_tokens(tmp_path: Path) -> None:
    tokens = open_tokenizer(write_table(tmp_path, ["<|im_end|>"]))
    ids = [97, *SMILE, 98, *SMILE, 300, 10, 27, 999]
    mask = [0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    record = {
        "input_ids": torch.tensor(ids),
        "hidden_states": [torch.ones(len(ids), 8)],
        "loss_mask": torch.tensor(mask),
    }
    torch.save(record, tmp_path / "data_0.pt")
    text = sample_text(open_sample(tmp_path / "data_0.pt"), tokens).plain
    assert text == "a«😀»b\\xf0\\x9f«\\x98\\x80<|im_end|>\\n\n\\x1b<id 999>»"


def test_a_token_of_no_text_is_nothing(tmp_path: Path) -> None:
    tokens = open_tokenizer(write_tokenizer(tmp_path / "tokenizer.json", tokens=["a", "b", "c", ""]))
    assert readable(tokens, [0, 3, 1]) == "ab"
