"""Text that every CPython carries (`pydoc_data.topics`), topics to train on and to hold out, and a byte-level BPE."""

import platform
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from .recipe import Recipe

END = "<|endoftext|>"
SPECIALS = [END, "<|pad|>"]  # ids 0 and 1
PYTHON = platform.python_version()

# Held out from everything that is trained: the tokenizer, the target, the drafter. Topics that share a paragraph with
# one of these (`naming` repeats most of `execmodel`) are held out with it.
HELD_OUT = [
    "binary",
    "bitwise",
    "calls",
    "comparisons",
    "execmodel",
    "global",
    "nonlocal",
    "raise",
    "shifting",
    "slicings",
    "strings",
    "unary",
]


@dataclass(frozen=True)
class Corpus:
    tokenizer: Tokenizer
    train_topics: list[str]
    held_out_topics: list[str]
    train: Tensor  # i64 [tokens], topics with END between them
    held_out: Tensor  # i64 [tokens]


def build(recipe: Recipe) -> Corpus:
    train_topics, held_out_topics = split()
    tokenizer = train_tokenizer([topics[name] for name in train_topics], recipe.vocab)
    return Corpus(
        tokenizer,
        train_topics,
        held_out_topics,
        train=encode(tokenizer, train_topics),
        held_out=encode(tokenizer, held_out_topics),
    )


def split() -> tuple[list[str], list[str]]:
    """Names of the topics to train on and to hold out; no paragraph is in both."""
    paragraphs = {name: _paragraphs(text) for name, text in topics.items()}
    held_out = {name for name in HELD_OUT if name in topics}
    while more := {n for n in topics if n not in held_out and any(paragraphs[n] & paragraphs[h] for h in held_out)}:
        held_out |= more
    train: list[str] = []
    seen: set[str] = set()
    for name in sorted(set(topics) - held_out, key=lambda n: (-len(topics[n]), n)):
        if 2 * len(paragraphs[name] & seen) <= len(paragraphs[name]):  # most of `try` stands in `compound` already
            train.append(name)
            seen |= paragraphs[name]
    return train, sorted(held_out)


def _paragraphs(text: str) -> set[str]:
    return {p.strip() for p in text.split("\n\n") if len(p.strip()) >= 60}


def train_tokenizer(texts: list[str], vocab: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, names: list[str]) -> Tensor:
    end = tokenizer.token_to_id(END)
    ids: list[int] = []
    for name in names:
        ids += [*tokenizer.encode(topics[name]).ids, end]
    return torch.tensor(ids)
