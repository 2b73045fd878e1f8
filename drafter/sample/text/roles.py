"""The assistant's turns of a chat, found by the marks that chat templates write around them.

A mark is one token whose text is exactly the mark, so that a mark which a user typed is none; only the Mistral and
Llama 2 templates have marks made of plain text. No template is run, and a text without marks has no turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drafter.sample.text.laid_text import LaidText
from drafter.sample.text.tokens import TokenText

Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class Template:
    """A turn begins with the token `mark` if the bytes after it match `header`, and ends before a token of `ends`.

    `with_mark` must be somewhere in the text too, for templates that share a mark with another. `in_text`: the mark
    is plain text.
    """

    name: str
    mark: str
    header: str
    ends: tuple[str, ...]
    with_mark: str = ""
    in_text: bool = False


TEMPLATES = (
    Template(
        "Llama 3",
        "<|start_header_id|>",
        r"assistant<\|end_header_id\|>(\n\n)?",
        ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|start_header_id|>"),
    ),
    Template(
        "Llama 4",
        "<|header_start|>",
        r"assistant<\|header_end\|>(\n\n)?",
        ("<|eot|>", "<|eom|>", "<|end_of_text|>", "<|header_start|>"),
    ),
    Template(
        "Kimi",
        "<|im_assistant|>",
        r"[^<]*<\|im_middle\|>",
        ("<|im_end|>", "<|im_user|>", "<|im_system|>", "<|im_assistant|>", "[EOS]"),
    ),
    Template("DeepSeek", "<｜Assistant｜>", "", ("<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>")),
    Template("Gemma", "<start_of_turn>", r"model\n", ("<end_of_turn>", "<eos>", "<start_of_turn>")),
    Template(
        "Harmony",
        "<|start|>",
        r"assistant[^<]*(<\|channel\|>[^<]*)?(<\|constrain\|>[^<]*)?<\|message\|>",
        ("<|end|>", "<|return|>", "<|call|>", "<|start|>"),
    ),
    Template(
        "ChatML",
        "<|im_start|>",
        r"assistant(\n|<\|im_sep\|>)",
        ("<|im_end|>", "<|endoftext|>", "<|im_start|>"),
    ),
    Template(
        "Phi",
        "<|assistant|>",
        r"\n?",
        ("<|end|>", "<|endoftext|>", "<|user|>", "<|system|>", "<|assistant|>"),
        with_mark="<|end|>",
    ),
    Template(
        "GLM",
        "<|assistant|>",
        "",
        ("<|user|>", "<|system|>", "<|observation|>", "<|assistant|>", "<|endoftext|>"),
    ),
    Template("Mistral", "[/INST]", "", ("</s>", "[INST]"), in_text=True),
)


def assistant_spans(ids: Sequence[int], tokens: TokenText) -> tuple[Spans, str] | None:
    """Token spans (start, stop) of what the assistant wrote, and the template's name; None where no mark is known.

    The end-of-turn token is left out, as in speculators 0.3 to 0.7; a turn that the recording cuts goes to its end,
    which there had no loss. Thinking tags are inside: the model writes them. A token that is part header, part answer
    counts. The spans are empty for a chat without any answer.
    """
    return find_turns(LaidText(ids, tokens))


def find_turns(text: LaidText) -> tuple[Spans, str] | None:
    """`assistant_spans` of a text that is laid out already."""
    found: tuple[Spans, str] | None = None
    present = set(text.pieces)
    for template in TEMPLATES:
        if template.in_text and found is not None:
            break  # what looks like a mark is then what somebody wrote
        marks = list(_marks(text, template, present))
        if marks:
            spans = _turns(text, template, marks)
            if spans:
                return spans, template.name
            found = found or (spans, template.name)
    return found


def _marks(text: LaidText, template: Template, present: set[bytes]) -> Iterator[int]:
    """Where the template's marks end, in bytes."""
    mark = template.mark.encode()
    if template.in_text:
        yield from (match.end() for match in re.finditer(re.escape(mark), text.data))
    elif mark in present and (not template.with_mark or template.with_mark.encode() in present):
        yield from (end for piece, end in zip(text.pieces, text.ends, strict=True) if piece == mark)


def _turns(text: LaidText, template: Template, marks: Sequence[int]) -> Spans:
    header = re.compile(template.header.encode())
    stops = _stops(text, template)
    spans: Spans = []
    for end in marks:
        match = header.match(text.data, end)
        if match is None:
            continue
        start = text.token_at(match.end())
        while stops and stops[-1] < start:
            stops.pop()
        stop = stops[-1] if stops else len(text.pieces)
        if start < stop:
            spans.append((start, stop))
    return spans


def _stops(text: LaidText, template: Template) -> list[int]:
    """Where turns end, in tokens, the last first."""
    ends = {end.encode() for end in template.ends}
    stops = {i for i, piece in enumerate(text.pieces) if piece in ends}
    if template.in_text:  # the mark of the next turn is text as well
        plain = [end for end in ends if end.startswith(b"[")]
        stops |= {text.token_at(match.start()) for end in plain for match in re.finditer(re.escape(end), text.data)}
    return sorted(stops, reverse=True)
